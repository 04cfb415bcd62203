//! `Kept`: an imported array that outlives the call that imported it.

use core::ops::{Deref, DerefMut};

use crate::derive::from_array::FromArray;
use crate::error::Result;
use crate::memory::extraction::{Extraction, Requirements};

/// An imported array that outlives the call that imported it, for example in a global or in a struct.
///
/// An argument of a function is on the stream on which the caller works. That stream may be destroyed after the call. An
/// array that is imported as `Kept` is on the legacy default stream instead, which waits for the caller's stream once
/// ([`Import::settle`](crate::Import::settle)). Structs with `#[cuda_array(pyclass)]` are always imported so.
///
/// An import during graph capture fails, because the legacy default stream may not wait for a captured one.
///
/// ```
/// use interop_core::{CudaArray, FromArray, HostVec, Kept, Lease};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
///
/// struct Recorder { all: Vec<Samples<Lease<f32>>> }
///
/// impl Recorder {
///     /// As the argument of a `#[pyfunction]`, too.
///     fn keep(&mut self, samples: Kept<Samples<Lease<f32>>>) {
///         self.all.push(samples.into_inner());
///     }
/// }
///
/// let tensor = Samples { values: HostVec::from_slice(&[1.0_f32, 2.0]), len: 2 }.into_dlpack()?;
/// let mut recorder = Recorder { all: Vec::new() };
/// recorder.keep(Kept::from_dlpack(tensor)?);
/// assert_eq!(recorder.all[0].to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Kept<A>(A);

impl<A> Kept<A> {
    /// Returns the array.
    #[must_use]
    pub fn into_inner(self) -> A {
        self.0
    }
}

impl<A: FromArray> FromArray for Kept<A> {
    const REQUIREMENTS: Requirements = A::REQUIREMENTS;

    fn assemble(extraction: &mut Extraction<'_>) -> Result<Self> {
        extraction.keep();
        A::assemble(extraction).map(Self)
    }
}

impl<A> Deref for Kept<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.0
    }
}

impl<A> DerefMut for Kept<A> {
    fn deref_mut(&mut self) -> &mut A {
        &mut self.0
    }
}
