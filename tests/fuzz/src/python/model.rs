//! The expected result of an import by the rules: accesses the object in the same order as a consumer.

use interop_core::StreamHandle;

use super::import::{Answer, Program};
use super::outcome::{CAUSED, Expected, MISSING, OWN_ATTRIBUTE, OWN_INTERRUPT, OWN_KEYWORD, REFUSED, TYPE};
use super::tables::{Conduct, OFFERS, REFUSAL};
use crate::tensor::legal;

/// The way by which an array was imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Table,
    Method,
    Interface,
}

/// The result of a call of `__dlpack__`.
#[derive(Clone, Copy)]
enum Given {
    Tensor,
    OtherName,
    NoCapsule,
}

/// A producer during an import.
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

    /// Whether the consumer has taken the struct.
    pub(super) fn taken(&self) -> bool {
        self.taken
    }

    /// Returns the expected result of an import.
    pub(super) fn import(&mut self) -> Expected<Asked> {
        if let Some(end) = self.table() {
            return end;
        }
        if self.program.host_only && self.program.interface.is_none() && self.has_method() {
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
            // A property that raises an `AttributeError`.
            Some(Err(own)) if 1 << own == OWN_ATTRIBUTE => Err(TYPE | CAUSED),
            Some(Err(own)) => Err(1 << own),
            // Dicts are covered elsewhere: none of these has the required keys.
            Some(Ok(super::values::Value::Dict)) => Err(REFUSED),
            // The property's error explains why there is no method.
            None if self.program.raising.is_some() => Err(TYPE | CAUSED),
            Some(Ok(_)) | None => Err(TYPE),
        }
    }

    /// A property that raises an `AttributeError` counts as missing.
    fn has_method(&self) -> bool {
        self.program.raising.map_or(self.program.takes.is_some(), |own| 1 << own != OWN_ATTRIBUTE)
    }

    /// Models the exchange table. Returns `None` if the import continues with the object itself.
    fn table(&mut self) -> Option<Expected<Asked>> {
        let offer = OFFERS[self.program.table?];
        if !offer.usable || !offer.hands_out {
            return None;
        }
        let raised = match self.program.conduct {
            Conduct::Hands if self.program.claims.versioned => None,
            Conduct::Hands | Conduct::Refuses => Some(REFUSAL),
            Conduct::Raises(own) => Some(own),
            Conduct::Fails | Conduct::Nothing => return None,
        };
        if let Some(own) = raised {
            // The method gives the reason, if there is one.
            let is_followed = 1 << own & OWN_INTERRUPT == 0 && self.has_method();
            return (!is_followed).then_some(Err(1 << own));
        }
        self.handed = true;
        if let Err(kinds) = self.receive(Given::Tensor) {
            return Some(Err(kinds));
        }
        // Pinned and managed memory is used on no stream in particular, so the table is not asked for one.
        if [1, 3, 13].contains(&self.program.claims.device[0]) {
            return Some(Ok(Asked::Table));
        }
        if !offer.names_stream {
            // The stream of its pending work is unknown, so the tensor is returned.
            return None;
        }
        // The table answers null: no stream is known. All work is waited for, of which there is none without a driver.
        Some(Ok(Asked::Table))
    }

    /// Models `__dlpack_device__`, then `__dlpack__`.
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
                // Some producers have no streams for pinned and managed memory; the others are asked again with the legacy default
                // stream.
                match self.request(!matches!(device[0], 3 | 13)) {
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
        // A legacy tensor does not state whether it is writable, so the dict is read too.
        match &self.program.interface {
            Some(Err(own)) if !self.program.claims.versioned && 1 << own == OWN_INTERRUPT => {
                Err(OWN_INTERRUPT)
            }
            _ => Ok(Asked::Method),
        }
    }

    /// Whether a producer that rejects the stream is asked again.
    fn asks_for_less(&self, kind: i32) -> bool {
        let less = matches!(
            self.program.stream,
            Some(StreamHandle::PerThreadDefault | StreamHandle::NothingPending)
        );
        matches!(kind, 3 | 13) || less
    }

    /// Models a request: first with `max_version`, then as producers of an older standard accept it.
    fn request(&mut self, stream: bool) -> Expected<Given> {
        match self.call(true, stream) {
            Err(kinds) if kinds == OWN_KEYWORD => self.call(false, stream).map_err(|kinds| kinds | CAUSED),
            given => given,
        }
    }

    /// Models one call.
    fn call(&mut self, version: bool, stream: bool) -> Expected<Given> {
        if let Some(own) = self.program.raising {
            return Err(1 << own);
        }
        let taken = match self.program.takes {
            Some(0 | 4) => true,
            Some(1) => !stream,
            Some(2) => !version,
            Some(3 | 5) => !version && !stream,
            // A number, which is not callable.
            _ => return Err(TYPE),
        };
        if !taken {
            // The error of Python for unknown keywords.
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

    /// Models how the tensor of a capsule is taken and validated.
    fn receive(&mut self, given: Given) -> Expected<()> {
        match given {
            Given::NoCapsule => Err(TYPE),
            Given::OtherName => Err(REFUSED),
            Given::Tensor => {
                self.taken = true;
                legal(&self.program.claims).map(drop).ok_or(REFUSED)
            }
        }
    }
}
