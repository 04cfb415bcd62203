//! The trait that creates derived structs from imports.
#![expect(unsafe_code, reason = "an import may be lent for a time that its type does not state")]

use crate::array::dispatch::HasDType;
use crate::array::dtype::DType;
use crate::error::{Error, Refused, Result};
use crate::memory::extraction::{DataField, Extraction};
use crate::memory::import::Import;
use crate::protocols::dlpack::abi::TensorAbi;
use crate::protocols::dlpack::managed_tensor::ManagedTensor;

/// A struct that can be created from an imported array. Implement it with `#[derive(CudaArray)]`.
///
/// ```
/// use interop_core::{CudaArray, FromArray, Import};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [rows, 3])]
/// struct Points {
///     #[cuda_array(data)]
///     coordinates: Vec<f32>,
///     rows: usize,
/// }
///
/// #[derive(Debug, CudaArray)]
/// #[cuda_array(shape = [rows, 2])]
/// struct Pairs {
///     #[cuda_array(data)]
///     values: Vec<f32>,
///     rows: usize,
/// }
///
/// let points = Points { coordinates: vec![0.5; 12], rows: 4 };
/// let import = Import::from_dlpack(points.into_dlpack()?)?;
///
/// // What does not fit is refused, and nothing is lost.
/// let refused = Pairs::from_import(import).unwrap_err();
/// assert_eq!(refused.error.to_string(), "`Pairs`: `shape[1]`: found 3, allowed: 2");
/// assert_eq!(Points::from_import(*refused.value)?.rows, 4);
/// # Ok::<(), interop_core::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made from an import",
    label = "this type does not implement `FromArray`",
    note = "write `#[derive(CudaArray)]` on the struct, without `#[cuda_array(export)]`",
    note = "or write `export` on the struct that holds it as `inner`, which is then never imported"
)]
pub trait FromArray: Sized {
    /// The field with the data, for arguments that are only read.
    #[doc(hidden)]
    const DATA_FIELD: DataField = DataField::RAW;

    /// Fills the fields from an import; the storage is taken last.
    ///
    /// # Errors
    ///
    /// The first mismatch between import and struct.
    ///
    /// # Safety
    ///
    /// If the memory of the import is lent for `'a`, `Self` is [`BorrowedFor<'a>`](crate::lent::BorrowedFor).
    #[doc(hidden)]
    unsafe fn assemble(extraction: &mut Extraction<'_>) -> Result<Self>;

    /// The name of the struct, for messages.
    #[doc(hidden)]
    #[must_use]
    fn struct_name() -> &'static str {
        name_in(core::any::type_name::<Self>())
    }

    /// Creates the struct from an import.
    ///
    /// # Errors
    ///
    /// The import is returned with the reason, by [`ErrorKind`](crate::ErrorKind):
    ///
    /// - `DType`, `Rank`, `Shape`, `Strides`, `Device`, `ReadOnly` if the import does not match the struct.
    /// - `Overflow` if a field cannot hold an extent or stride.
    /// - `OutOfMemory` and `AlreadyBorrowed` as [`to_vec`](crate::derive::cuda_array::CudaArray::to_vec), for a storage
    ///   that copies.
    /// - As [`cuda::stream_wait`](crate::cuda::stream_wait) and
    ///   [`cuda::stream_synchronize`](crate::cuda::stream_synchronize).
    /// - Errors that a `default` expression returns by `?`.
    fn from_import(mut import: Import) -> Result<Self, Refused<Import>> {
        let mut extraction = Extraction::new(&mut import);
        assemble_named(&mut extraction).map_err(|error| {
            // The storage is taken last, so the import is whole.
            let error = import.add_origin(error);
            Refused::new(import, error)
        })
    }

    /// Creates the struct from a managed tensor.
    ///
    /// On failure the tensor is released. [`Import::from_dlpack`] and [`from_import`](Self::from_import) return it
    /// instead.
    ///
    /// # Errors
    ///
    /// As [`Import::from_dlpack`] and [`from_import`](Self::from_import).
    #[inline]
    fn from_dlpack<A: TensorAbi>(tensor: ManagedTensor<A>) -> Result<Self> {
        let mut import = Import::from_dlpack(tensor)?;
        assemble_named(&mut Extraction::new(&mut import))
    }
}

impl HasDType for Import {
    fn dtype_to_dispatch(&self) -> DType {
        self.info().dtype()
    }

    fn named_in(&self, error: Error) -> Error {
        self.add_origin(error)
    }
}

/// As [`FromArray::assemble`], for an import that owns its memory or that is of a
/// [`BorrowedTensor`](crate::lent::BorrowedTensor). The error names the struct.
#[inline]
pub(crate) fn assemble_named<A: FromArray>(extraction: &mut Extraction<'_>) -> Result<A> {
    // SAFETY: other imports are lent nowhere, and that of a `BorrowedTensor<'a>` becomes an `A: BorrowedFor<'a>`.
    unsafe { A::assemble(extraction) }.map_err(|error| error.of_struct(A::struct_name()))
}

/// Returns the last name in the path of a type, without its parameters. The path of an item in a method begins with the type
/// of the method, which may have parameters too.
fn name_in(path: &'static str) -> &'static str {
    let mut depth = 0;
    let opens = |(at, byte): &(usize, u8)| {
        match byte {
            b'>' if !path[..*at].ends_with('-') => depth += 1,
            b'<' => depth -= 1,
            _ => {}
        }
        depth == 0
    };
    let parameters = path.bytes().enumerate().rev().find(opens).filter(|_| path.ends_with('>'));
    let path = parameters.map_or(path, |(at, _)| &path[..at]);
    path.rsplit("::").next().unwrap_or(path)
}
