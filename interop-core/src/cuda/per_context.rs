//! Values that are cached for each context: modules, streams, memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cuda::context::Context;
use crate::cuda::driver::{Driver, Outcome};
use crate::process::fork::PerProcess;

/// The values, each with its context and the number that distinguishes the context from an earlier one with the same
/// handle.
type Kept<T> = Vec<(Context, Option<u64>, T)>;

/// One value for each context, made at its first use there.
///
/// What a value refers to is destroyed with its context. The driver reuses the handle of a destroyed context, so a
/// value is used only while the same context has the handle.
pub(crate) struct PerContext<T: Send + 'static>(PerProcess<Mutex<Kept<T>>>);

impl<T: Send> PerContext<T> {
    pub(crate) const fn new() -> Self {
        Self(PerProcess::new(|_| Mutex::new(Vec::new())))
    }

    fn lock(&self) -> MutexGuard<'_, Kept<T>> {
        self.0.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` with the value of a context, which is current. No other thread uses any of the values meanwhile.
    pub(crate) fn with<R>(
        &self,
        driver: &Driver,
        context: Context,
        make: impl FnOnce() -> Outcome<T>,
        work: impl FnOnce(&mut T) -> R,
    ) -> Outcome<R> {
        let number = context.number(driver)?;
        let mut kept = self.lock();
        kept.retain(|(of, earlier, _)| *of != context || *earlier == number);
        let known = kept.iter().position(|(of, ..)| *of == context);
        let at = if let Some(at) = known {
            at
        } else {
            kept.push((context, number, make()?));
            kept.len() - 1
        };
        Ok(work(&mut kept[at].2))
    }

    /// Forgets the value of a context. This is for a primary context that was reset, because it keeps its handle and
    /// its number.
    pub(crate) fn forget(&self, context: Context) {
        self.lock().retain(|(of, ..)| *of != context);
    }
}
