//! What comes of an import, by the rules: the object is asked in the order in which a consumer asks.

use interop_core::StreamHandle;

use super::import::{Answer, Program};
use super::outcome::{
    CAUSED, DICT_MAY_CAUSE, Expected, Kinds, MISSING, OWN_ATTRIBUTE, OWN_INTERRUPT, OWN_KEYWORD, REFUSED,
    TYPE, UNSAID,
};
use super::tables::{Conduct, OFFERS};
use crate::tensor::legal;

/// By which way an array came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Table,
    Method,
    Interface,
}

/// What a call of `__dlpack__` gave.
#[derive(Clone, Copy)]
enum Given {
    Tensor,
    OtherName,
    NoCapsule,
}

/// An object that is asked.
pub(super) struct Model<'a> {
    program: &'a Program,
    answered: usize,
    handed: bool,
    taken: bool,
}

impl<'a> Model<'a> {
    pub(super) fn new(program: &'a Program) -> Self {
        Self { program, answered: 0, handed: false, taken: false }
    }

    /// Whether the struct has changed hands.
    pub(super) fn taken(&self) -> bool {
        self.taken
    }

    /// An import of the object.
    pub(super) fn import(&mut self) -> Expected<Asked> {
        if let Some(end) = self.table() {
            return end;
        }
        // A property that says that it is none is as if there were none.
        let raises = self.program.raising.is_some_and(|own| 1 << own != OWN_ATTRIBUTE);
        let has_method = raises || (self.program.raising.is_none() && self.program.takes.is_some());
        // A tensor that was given back has told that the arrays are not on the host alone.
        if self.program.host_only && self.program.interface.is_none() && has_method && !self.taken {
            self.request(false).and_then(|given| self.receive(given))?;
            if self.program.claims.device[0] == 1 {
                return Ok(Asked::Method);
            }
        }
        match self.program.raising {
            None if self.program.takes.is_some() => return self.method(),
            Some(own) if 1 << own != OWN_ATTRIBUTE => return Err(1 << own),
            _ => {}
        }
        match &self.program.interface {
            // A property that says that it is none.
            Some(Err(own)) if 1 << own == OWN_ATTRIBUTE => Err(TYPE | CAUSED),
            Some(Err(own)) => Err(1 << own),
            // Dicts are looked at elsewhere: none of these has the keys of one.
            Some(Ok(super::values::Value::Dict)) => Err(REFUSED),
            // The property says why there is no method.
            None if self.program.raising.is_some() => Err(TYPE | CAUSED),
            Some(Ok(_)) | None => Err(TYPE),
        }
    }

    /// The exchange table; `None` where the object itself is asked.
    fn table(&mut self) -> Option<Expected<Asked>> {
        let offer = OFFERS[self.program.table?];
        if !offer.usable || !offer.hands_out {
            return None;
        }
        match self.program.conduct {
            Conduct::Hands if self.program.claims.versioned => {}
            // The second of the errors is a `BufferError`, which is an answer.
            Conduct::Hands | Conduct::Refuses | Conduct::Raises(1) => return None,
            Conduct::Raises(own) => return Some(Err(1 << own)),
            Conduct::Fails | Conduct::Nothing => return Some(Err(UNSAID)),
        }
        self.handed = true;
        if let Err(kinds) = self.receive(Given::Tensor) {
            return Some(Err(kinds));
        }
        if self.program.claims.device[0] == 1 {
            return Some(Ok(Asked::Table));
        }
        if !offer.names_stream {
            // Nothing is known of its work: the tensor goes back.
            return None;
        }
        // The table works on the legacy default stream. Between two streams there is no order without a driver.
        let same = matches!(
            self.program.stream,
            None | Some(StreamHandle::LegacyDefault | StreamHandle::NothingPending)
        );
        Some(if same { Ok(Asked::Table) } else { Err(REFUSED) })
    }

    /// `__dlpack_device__`, then `__dlpack__`.
    fn method(&mut self) -> Expected<Asked> {
        let device = match &self.program.device {
            None => return Err(MISSING),
            Some(Err(own)) => return Err(1 << own),
            Some(Ok(value)) => value.device()?,
        };
        match device {
            [1 | 3 | 13, _] => {}
            [2, ordinal] if ordinal >= 0 => {}
            _ => return Err(REFUSED),
        }
        let on_host = device[0] == 1;
        let given = match self.request(!on_host) {
            Err(first) if !on_host && first & OWN_INTERRUPT == 0 && self.asks_for_less(device[0]) => {
                // Pinned memory has no streams for some; the rest is asked for the legacy default stream.
                match self.request(device[0] != 3) {
                    Err(second) if second & OWN_INTERRUPT != 0 => Err(second),
                    second => second.map_err(|_| first),
                }
            }
            given => given,
        };
        given.and_then(|given| self.receive(given))?;
        let found = self.program.claims.device;
        let host = |kind: i32| [1, 3, 13].contains(&kind);
        let same = found == device || (host(found[0]) && host(device[0]));
        if !same {
            return Err(REFUSED);
        }
        // A legacy tensor does not say whether it may be written, and the dict is asked.
        match &self.program.interface {
            Some(Err(own)) if !self.program.claims.versioned && 1 << own == OWN_INTERRUPT => {
                Err(OWN_INTERRUPT)
            }
            _ => Ok(Asked::Method),
        }
    }

    /// Whether a producer that refuses the stream is asked once more.
    fn asks_for_less(&self, kind: i32) -> bool {
        let less = matches!(
            self.program.stream,
            Some(StreamHandle::PerThreadDefault | StreamHandle::NothingPending)
        );
        kind == 3 || less
    }

    /// A request, first with the version, then as producers of an older standard take it.
    fn request(&mut self, stream: bool) -> Expected<Given> {
        match self.call(true, stream) {
            Err(kinds) if kinds == OWN_KEYWORD => self.call(false, stream).map_err(|kinds| kinds | CAUSED),
            given => given,
        }
    }

    /// One call.
    fn call(&mut self, version: bool, stream: bool) -> Expected<Given> {
        if let Some(own) = self.program.raising {
            return Err(1 << own);
        }
        let taken = match self.program.takes {
            Some(0 | 4) => true,
            Some(1) => !stream,
            Some(2) => !version,
            Some(3 | 5) => !version && !stream,
            // A number, which cannot be called.
            _ => return Err(TYPE),
        };
        if !taken {
            // What Python says of keywords that a function does not have.
            return Err(if version { OWN_KEYWORD } else { TYPE });
        }
        let at = self.answered.min(2);
        self.answered += 1;
        match &self.program.answers[at] {
            Answer::Raises(own) => Err(1 << *own),
            Answer::Value(_) => Ok(Given::NoCapsule),
            Answer::Capsule(_) if self.handed => Ok(Given::NoCapsule),
            Answer::Capsule(name) => {
                self.handed = true;
                Ok(if *name == 0 { Given::Tensor } else { Given::OtherName })
            }
        }
    }

    /// The tensor of a capsule, taken and looked at.
    fn receive(&mut self, given: Given) -> Expected<()> {
        match given {
            Given::NoCapsule => Err(TYPE),
            Given::OtherName => Err(REFUSED),
            Given::Tensor => {
                self.taken = true;
                legal(&self.program.claims).map(drop).ok_or_else(|| self.refusal())
            }
        }
    }

    /// How a tensor is refused. If its strides are why, the dict is asked for, which will not do: none of these has the keys
    /// of one.
    fn refusal(&self) -> Kinds {
        match &self.program.interface {
            None => REFUSED,
            Some(Err(own)) if 1 << own == OWN_INTERRUPT => REFUSED | OWN_INTERRUPT,
            Some(_) => REFUSED | DICT_MAY_CAUSE,
        }
    }
}
