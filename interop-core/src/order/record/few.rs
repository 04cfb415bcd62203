//! A few accesses, each in a place of its own.

use core::iter::from_fn;

use crate::order::record::access::{Recorded, Ticket};

/// The largest number of accesses in places, which are searched one by one. For more, the maps are faster.
pub(crate) const FEW: usize = 32;

/// Accesses in no order. An access that begins is written once, and its end clears a bit.
#[derive(Default)]
pub(crate) struct FewAccesses {
    places: Vec<Recorded>,
    /// A bit for each place with an access.
    used: u32,
}

impl FewAccesses {
    #[inline]
    pub(crate) fn all(&self) -> impl Iterator<Item = &Recorded> {
        let mut left = self.used;
        from_fn(move || {
            let place = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (place < FEW).then(|| &self.places[place])
        })
    }

    #[inline]
    pub(crate) fn find(&self, is_met: impl Fn(&Recorded) -> bool) -> Option<&Recorded> {
        if self.used == 0 { None } else { self.all().find(|recorded| is_met(recorded)) }
    }

    /// Adds an access. Returns its place, or `None` if all are used.
    #[inline]
    pub(crate) fn add(&mut self, recorded: Recorded) -> Option<usize> {
        let place = self.used.trailing_ones() as usize;
        if place == FEW {
            return None;
        }
        match self.places.get_mut(place) {
            Some(free) => *free = recorded,
            None => self.places.push(recorded),
        }
        self.used |= 1 << place;
        Some(place)
    }

    /// Removes an access. Returns it if it was there.
    #[inline]
    pub(crate) fn remove(&mut self, ticket: &Ticket) -> Option<&Recorded> {
        let is_here = |place: &usize| {
            *place < FEW && self.used & 1 << place != 0 && self.places[*place].number == ticket.number
        };
        // An access in several pieces may have another place in each.
        let place = Some(ticket.place).filter(is_here).or_else(|| (0..FEW).find(is_here))?;
        self.used &= !(1 << place);
        Some(&self.places[place])
    }

    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }
}
