//! Where the work on memory is, as one fact with one table of changes.
//!
//! A stream is never without its context here: [`Stream`], not `StreamHandle`.

use core::fmt;

use crate::array::device::Device;
use crate::array::stream_handle::StreamHandle;
use crate::driver::stream::Stream;

/// Where the work on memory is: for whom its next user waits.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Placement {
    /// No work is pending: memory of the host, or memory for which the host has waited.
    Nothing,
    /// The `stream` field of the struct states it, while the library of the memory works on streams that it does not name, too.
    InField,
    /// Nobody knows on which streams work is pending.
    Unknown,
    /// As `Unknown`, of an argument that is kept after its call, while its library works on, on any stream. Until the call ends,
    /// all work is on the stream of the caller.
    Settled(Option<Stream>),
    /// All work is on this stream.
    On(Stream),
    /// As `On`. The library of the memory goes on working on streams that it does not name.
    Shared(Stream),
    /// All work is on the stream on which the caller works until the call ends.
    Callers(Stream),
    /// As `Callers`. The user has named the stream, and keeps it alive.
    Named(Stream),
}

/// What changes a placement. The table in ARCHITECTURE has a row for each.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    /// A stream has been made to wait for all work that is known, or is named by a `stream` field. `None`: the host has waited.
    Ordered(Option<Stream>),
    /// All work comes before what is queued on the stream. `None`: no work is pending.
    Stated(Option<Stream>),
    /// It is the argument of a call, whose caller works on the stream.
    Argument(Stream),
    /// The user has named the stream of the caller, by an argument of a Python function.
    #[cfg_attr(
        not(feature = "python"),
        allow(dead_code, reason = "only an import from Python has a named stream")
    )]
    Named,
    /// The library works on streams that it does not name.
    Hides,
    /// The array is kept after the call.
    Kept,
    /// The memory moves into a storage, which lives longer than the call.
    Stored,
    /// The memory moves into a storage beside a `stream` field, which states its stream.
    StoredBesideField,
}

impl Placement {
    /// The table of changes: what the placement is after an event.
    #[inline]
    pub(crate) fn next(self, event: Change) -> Self {
        use Placement::{Callers, InField, Named, Nothing, On, Settled, Shared, Unknown};
        match event {
            Change::Stated(stream) => Self::all_on(stream),
            Change::Argument(stream) => Callers(stream),
            Change::Ordered(stream) => match self {
                InField | Settled(_) | Shared(_) => stream.map_or(InField, Shared),
                Nothing | Unknown | On(_) | Callers(_) | Named(_) => Self::all_on(stream),
            },
            Change::Named => match self {
                Callers(stream) => Named(stream),
                other => other,
            },
            Change::Hides => match self {
                Nothing | InField => InField,
                Unknown => Settled(None),
                Settled(callers) => Settled(callers),
                On(stream) | Shared(stream) | Callers(stream) | Named(stream) => Shared(stream),
            },
            Change::Kept => match self {
                Callers(stream) => Settled(Some(stream)),
                Named(stream) => On(stream),
                other => other,
            },
            Change::Stored => match self {
                Callers(stream) | Named(stream) => On(stream),
                // The stream of the caller may be destroyed from now on.
                Settled(_) => Settled(None),
                other => other,
            },
            Change::StoredBesideField => match self {
                // The call has no say in the stream of its argument, nor has a field in that of an array that is kept.
                Callers(stream) | Named(stream) => On(stream),
                Settled(_) => Settled(None),
                InField | Shared(_) => InField,
                Nothing | Unknown | On(_) => Nothing,
            },
        }
    }

    /// On a stream whose handle means the same stream in every context, or on no stream.
    #[inline]
    pub(crate) const fn on(stream: StreamHandle) -> Self {
        Self::all_on(Stream::anywhere(stream))
    }

    /// All work is on a stream, or there is none.
    #[inline]
    pub(crate) const fn all_on(stream: Option<Stream>) -> Self {
        match stream {
            Some(stream) => Self::On(stream),
            None => Self::Nothing,
        }
    }

    /// Whether the library that shares the memory works on streams that it does not name.
    pub(crate) const fn has_hidden_streams(self) -> bool {
        matches!(self, Self::InField | Self::Settled(_) | Self::Shared(_))
    }

    /// Whether it is the argument of a call, on the stream of the caller.
    pub(crate) const fn is_argument(self) -> bool {
        matches!(self, Self::Callers(_) | Self::Named(_))
    }

    /// Whether no work is pending.
    #[inline]
    pub(crate) const fn is_nothing(self) -> bool {
        matches!(self, Self::Nothing | Self::InField)
    }

    /// Whether nobody can say on which stream work is pending.
    #[inline]
    pub(crate) const fn is_unknown(self) -> bool {
        matches!(self, Self::Unknown | Self::Settled(_))
    }

    /// The stream with the last work that is known.
    #[inline]
    pub(crate) const fn last(self) -> Option<Stream> {
        match self {
            Self::On(stream) | Self::Shared(stream) | Self::Callers(stream) | Self::Named(stream) => {
                Some(stream)
            }
            Self::Nothing | Self::InField | Self::Unknown | Self::Settled(_) => None,
        }
    }

    /// As [`stream`](Self::stream), for memory of any device.
    #[inline]
    pub(crate) fn handle(self) -> Option<StreamHandle> {
        if self.is_nothing() { Some(StreamHandle::NothingPending) } else { self.last().map(Stream::handle) }
    }

    /// Whether the context that is current will say on which default stream the work is.
    #[inline]
    pub(crate) fn is_open(self) -> bool {
        self.last().is_some_and(Stream::is_open)
    }

    /// The same placement on memory of `device`, whatever context is current later.
    pub(crate) fn located(self, device: Device) -> Self {
        match self {
            Self::On(stream) => Self::On(stream.located(device)),
            Self::Shared(stream) => Self::Shared(stream.located(device)),
            Self::Callers(stream) => Self::Callers(stream.located(device)),
            Self::Named(stream) => Self::Named(stream.located(device)),
            Self::Nothing | Self::InField | Self::Unknown | Self::Settled(_) => self,
        }
    }

    /// The stream with the last work that is known, on memory of `device`.
    #[inline]
    pub(crate) fn stream(self, device: Device) -> Option<Stream> {
        self.last().map(|stream| stream.for_device(device))
    }

    /// As [`stream`](Self::stream), if all work is on that stream.
    #[inline]
    pub(crate) fn only_stream(self, device: Device) -> Option<Stream> {
        if matches!(self, Self::Shared(_)) { None } else { self.stream(device) }
    }

    /// Whether it is known who has all work: a stream, or nobody.
    #[inline]
    pub(crate) const fn is_known(self) -> bool {
        matches!(self, Self::Nothing | Self::InField | Self::On(_) | Self::Callers(_) | Self::Named(_))
    }

    /// As [`Stream::handle_here`]. `None` if the stream is unknown, too.
    pub(crate) fn handle_here(self, device: Device) -> Option<StreamHandle> {
        self.stream(device).map_or_else(|| self.handle(), |stream| stream.handle_here(device))
    }
}

impl PartialEq for Placement {
    /// The default streams of two contexts differ, although they have one handle.
    fn eq(&self, other: &Self) -> bool {
        (self.is_nothing(), self.last()) == (other.is_nothing(), other.last())
    }
}

impl Eq for Placement {}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::context::Context;

    #[test]
    fn default_streams_of_two_contexts_are_not_equal() {
        let on = |context| Placement::On(Stream::legacy(Context::from_driver(context), Device::UNKNOWN));
        assert_eq!(on(8), on(8));
        assert_ne!(on(8), on(16));
        assert_ne!(on(8), Placement::on(StreamHandle::LegacyDefault));
    }

    /// Each cell of the table: the rows are events, the columns placements.
    #[test]
    fn each_cell_of_the_table() {
        use Placement::{Callers, InField, Named, Nothing, On, Settled, Shared, Unknown};

        let [a, b] = [8, 16].map(|context| Stream::legacy(Context::from_driver(context), Device::UNKNOWN));
        let name = |placement: Placement| {
            let stream = match placement {
                Settled(last) => last,
                other => other.last(),
            };
            let of = |kind: &str| match stream {
                Some(stream) if stream == a => format!("{kind}(a)"),
                Some(_) => format!("{kind}(b)"),
                None => kind.to_owned(),
            };
            match placement {
                Nothing => "-".to_owned(),
                InField => "F".to_owned(),
                Unknown => "U".to_owned(),
                Settled(_) => of("K"),
                On(_) => of("O"),
                Shared(_) => of("S"),
                Callers(_) => of("C"),
                Named(_) => of("N"),
            }
        };
        let columns = [Nothing, InField, Unknown, Settled(Some(a)), On(a), Shared(a), Callers(a), Named(a)];
        let rows = [
            (Change::Ordered(Some(b)), "O(b) S(b) O(b) S(b) O(b) S(b) O(b) O(b)"),
            (Change::Ordered(None), "- F - F - F - -"),
            (Change::Stated(Some(b)), "O(b) O(b) O(b) O(b) O(b) O(b) O(b) O(b)"),
            (Change::Stated(None), "- - - - - - - -"),
            (Change::Argument(b), "C(b) C(b) C(b) C(b) C(b) C(b) C(b) C(b)"),
            (Change::Named, "- F U K(a) O(a) S(a) N(a) N(a)"),
            (Change::Hides, "F F K K(a) S(a) S(a) S(a) S(a)"),
            (Change::Kept, "- F U K(a) O(a) S(a) K(a) O(a)"),
            (Change::Stored, "- F U K O(a) S(a) O(a) O(a)"),
            (Change::StoredBesideField, "- F - K - F O(a) O(a)"),
        ];
        for (row, (event, expected)) in rows.into_iter().enumerate() {
            let found: Vec<_> = columns.into_iter().map(|placement| name(placement.next(event))).collect();
            assert_eq!(found.join(" "), expected, "row {row}");
        }
    }
}
