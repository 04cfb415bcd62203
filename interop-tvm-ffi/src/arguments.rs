//! The arguments of a call, which are read one after another.
#![expect(unsafe_code, reason = "reads what a C caller lends")]

use core::cell::Cell;

use interop_core::Error;

use crate::abi::{TVMFFIAny, index};
use crate::call::Call;
use crate::error::CallError;

/// The arguments of a call, or the items of a list among them, which are read one after another.
pub struct Arguments<'c> {
    pub(crate) call: &'c Call<'c>,
    pub(crate) values: &'c [TVMFFIAny],
    next: Cell<usize>,
    /// Of a list: its indices in the lists around it. `None` for the arguments of a call.
    list: Option<Vec<usize>>,
}

impl<'c> Arguments<'c> {
    /// The values at `first`. None if it is null.
    ///
    /// # Safety
    ///
    /// `first` is null, or points to `count` values that nobody writes to during `'c`.
    pub(crate) unsafe fn new(call: &'c Call<'c>, first: *const TVMFFIAny, count: usize) -> Self {
        let values = if count == 0 || first.is_null() {
            &[]
        } else {
            // SAFETY: as the caller promises.
            unsafe { core::slice::from_raw_parts(first, count) }
        };
        Self { call, values, next: Cell::new(0), list: None }
    }

    /// The items at `first` of a list, which is the argument that was read last.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new).
    pub(crate) unsafe fn list(&self, first: *const TVMFFIAny, count: usize) -> Self {
        // SAFETY: as the caller promises.
        let items = unsafe { Self::new(self.call, first, count) };
        Self { list: Some(self.indices()), ..items }
    }

    /// The index of the item that was read last, after those of the lists around it. Empty for an argument of the call.
    fn indices(&self) -> Vec<usize> {
        let last = self.next.get().saturating_sub(1);
        self.list.iter().flat_map(|list| list.iter().copied().chain([last])).collect()
    }

    /// The name of the argument that was read last, for errors: `` `rows[1]` `` for the second item of a list.
    fn place(&self, name: &str) -> String {
        let indices = self.indices().into_iter().map(|index| format!("[{index}]"));
        format!("`{name}{}`", indices.collect::<String>())
    }

    /// The error for a value of a wrong type.
    #[cold]
    pub(crate) fn wrong_type(&self, argument: &str, found: &TVMFFIAny, allowed: &str) -> CallError {
        let found = match found.type_index {
            index::INT => format!("the int {}", found.value as i64),
            other => index::name(other).to_owned(),
        };
        CallError { class: c"TypeError", ..self.wrong_value(argument, &found, allowed) }
    }

    /// The error for a value that is not allowed.
    #[cold]
    pub(crate) fn wrong_value(&self, argument: &str, found: &str, allowed: &str) -> CallError {
        let (place, function) = (self.place(argument), self.call.function);
        let text = format!("{place}: found {found}, allowed: {allowed} (argument of `{function}`)");
        CallError::new(c"ValueError", text)
    }

    /// Names the argument in an error of an array.
    #[cold]
    pub(crate) fn of_argument(&self, argument: &str, error: Error) -> CallError {
        error.with_origin(self.origin(argument)).into()
    }

    /// Where the argument that was read last is from, for errors about its array.
    pub(crate) fn origin(&self, argument: &str) -> String {
        format!("argument {} of `{}`", self.place(argument), self.call.function)
    }

    /// Checks that no argument is left. Expanded code calls this.
    ///
    /// # Errors
    ///
    /// If there are more arguments than parameters.
    #[inline]
    pub fn end(&self) -> Result<(), CallError> {
        let (read, found) = (self.next.get(), self.values.len());
        if read >= found {
            return Ok(());
        }
        let text = format!("`{}`: found {found} arguments, allowed: {read}", self.call.function);
        Err(CallError::new(c"TypeError", text))
    }

    /// The next value, which stays the next one.
    pub(crate) fn peek(&self) -> Option<&'c TVMFFIAny> {
        self.values.get(self.next.get())
    }

    /// The next value.
    #[inline]
    pub(crate) fn next(&self, name: &'static str) -> Result<&'c TVMFFIAny, CallError> {
        let value = self.peek().ok_or_else(|| {
            let text = format!("`{}`: the argument `{name}` is missing", self.call.function);
            CallError::new(c"TypeError", text)
        })?;
        self.next.set(self.next.get() + 1);
        Ok(value)
    }
}
