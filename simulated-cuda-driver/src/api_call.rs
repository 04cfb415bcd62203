//! The common code around the body of every driver function.

#![expect(unsafe_code, reason = "results go where the caller of a C function says")]

use std::ffi::{CStr, c_char};

use crate::report::Mistake;
use crate::rules::end_of_process;
use crate::state::{Sim, lock};
use crate::status::{Answer, Status};
use crate::this_thread::{in_callback, in_function};

/// A `CUresult`, as returned to the program.
pub(crate) type Code = i32;

/// Runs the body of the driver function `name`. The function requires `cuInit`.
pub(crate) fn call(name: &'static str, body: impl FnOnce(&mut Sim) -> Answer) -> Code {
    call_early(name, |sim| match sim.all_fail {
        Some(status) => Err(status),
        None if sim.initialized => body(sim),
        None => Err(Status::NOT_INITIALIZED),
    })
}

/// Runs the body of a driver function that may be called before `cuInit`.
pub(crate) fn call_early(name: &'static str, body: impl FnOnce(&mut Sim) -> Answer) -> Code {
    end_of_process::register();
    in_function(name, || {
        let mut sim = lock();
        // Registers the thread before the body runs, so that it does not inherit knowledge that other threads gain later.
        sim.agents.host();
        *sim.calls.entry(name).or_default() += 1;
        let injected = sim.take_fault(name);
        let answer = match injected {
            Some(status) => Err(status),
            None if in_callback() => {
                sim.report(
                    Mistake::CallInside,
                    format!("{name} was called from a host function or a kernel"),
                );
                Err(Status::NOT_PERMITTED)
            }
            None => body(&mut sim),
        };
        sim.settle();
        answer.err().map_or(0, |status| status.0)
    })
}

/// A pointer argument through which a driver function returns a result.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// The location of a result whose type depends on another argument.
    pub(crate) fn at(address: u64) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address as usize))
    }

    /// Whether the caller passed a null pointer.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes the result. A null pointer is an invalid argument.
    pub(crate) fn set(&self, value: T) -> Answer {
        self.set_at(0, value)
    }

    /// Writes the result, unless the pointer is null.
    pub(crate) fn set_if_wanted(&self, value: T) {
        // A null pointer means that the caller does not want this result.
        let _ = self.set(value);
    }

    /// Writes the element `index` of a result that is an array.
    pub(crate) fn set_at(&self, index: usize, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        let place = self.0.wrapping_add(index);
        // SAFETY: a caller of the C function promises that a non-null result pointer is aligned and points to as many
        // values as the function writes. `Out` exists only as the type of such arguments.
        unsafe { place.write(value) };
        Ok(())
    }

    /// Reads the value that the caller stored there.
    pub(crate) fn get(&self) -> Answer<T>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: as in `set_at`. The functions that also read the value document it, so the caller has written it.
        Ok(unsafe { self.0.read() })
    }
}

/// An array or struct that the caller of a driver function passes in.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// Reads the element `index`. A null pointer is an invalid argument.
    pub(crate) fn get(&self, index: usize) -> Answer<T> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        let place = self.0.wrapping_add(index);
        // SAFETY: a caller of the C function promises that the array has the documented length, and callers of this
        // method stay within it. `In` exists only as the type of such arguments.
        Ok(unsafe { place.read_unaligned() })
    }

    /// Whether the caller passed a null pointer.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl In<c_char> {
    /// Returns the text, with invalid UTF-8 replaced.
    pub(crate) fn text(&self) -> Answer<String> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: a caller of the C function promises that the text ends with a zero.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}
