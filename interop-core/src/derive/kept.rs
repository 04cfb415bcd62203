//! `Kept`: an imported array that outlives the call that imported it.
#![expect(unsafe_code, reason = "forwards the description and the import of an array")]

use crate::derive::from_array::FromArray;
use crate::error::Result;
use crate::memory::extraction::{DataField, Extraction};

/// Makes a struct around an array dereference to it, and an array itself.
macro_rules! dereferences {
    ($wrapper:ident, $field:tt) => {
        impl<A> ::core::ops::Deref for $wrapper<A> {
            type Target = A;

            fn deref(&self) -> &A {
                &self.$field
            }
        }

        impl<A> ::core::ops::DerefMut for $wrapper<A> {
            fn deref_mut(&mut self) -> &mut A {
                &mut self.$field
            }
        }

        // SAFETY: as for the array, which a move of this struct moves as it does itself.
        unsafe impl<A: $crate::CudaArray> $crate::CudaArray for $wrapper<A> {
            fn info(&self) -> $crate::Result<$crate::ArrayInfo> {
                self.$field.info()
            }

            fn note_read(&self, stream: $crate::StreamHandle) -> bool {
                self.$field.note_read(stream)
            }

            fn note_write(&mut self, stream: $crate::StreamHandle) -> bool {
                self.$field.note_write(stream)
            }

            fn __is_only_handle(&mut self) -> bool {
                self.$field.__is_only_handle()
            }
        }
    };
}

/// An imported array that outlives the call that imported it, for example in a global or in a struct.
///
/// An argument of a function is on the stream on which the caller works. That stream may be destroyed after the call, and
/// the caller's library may work on others then. So an array that is imported as `Kept` is on no known stream
/// ([`Import::settle`](crate::Import::settle)): a [`LaunchScope`](crate::LaunchScope), a copy and an export wait for all
/// work of the memory's context, and after a scope all later work waits for it. A `stream` field gets the legacy default
/// stream. Structs with `#[cuda_array(pyclass)]` are always imported so.
///
/// It dereferences to the struct, which is its field. If a result must be one of the caller's
/// library, too, write `WithLibrary<Kept<…>>`.
///
/// An import during graph capture fails, because the stream that captures is not known to later users of the array.
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
///         self.all.push(samples.0);
///     }
/// }
///
/// let tensor = Samples { values: HostVec::from([1.0_f32, 2.0]), len: 2 }.into_dlpack()?;
/// let mut recorder = Recorder { all: Vec::new() };
/// recorder.keep(Kept::from_dlpack(tensor)?);
/// assert_eq!(recorder.all[0].to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Kept<A>(pub A);

dereferences!(Kept, 0);

impl<A: FromArray> FromArray for Kept<A> {
    const DATA_FIELD: DataField = A::DATA_FIELD;

    fn struct_name() -> &'static str {
        A::struct_name()
    }

    unsafe fn assemble(extraction: &mut Extraction<'_>) -> Result<Self> {
        extraction.keep();
        // SAFETY: as the caller promises; `Kept` is `BorrowedFor` no lifetime, so the memory is not lent.
        unsafe { A::assemble(extraction) }.map(Self)
    }
}

#[cfg(feature = "python")]
pub(crate) use dereferences;
