//! An instance of an array class, held by Rust as an array.
#![expect(unsafe_code, reason = "passes on the promises of the array inside")]

use pyo3::prelude::*;

use crate::array::info::ArrayInfo;
use crate::array::mutability::Mutability;
use crate::derive::cuda_array::CudaArray;
use crate::error::{Error, ErrorKind, Result};
use crate::python::class::array_class::{ArrayClass, struct_of};
use crate::python::unstable_api::with_attached;

/// An instance of an array class. Holds a reference to its Python object.
pub(crate) struct Instance<T: ArrayClass>(pub(crate) Py<T>);

// SAFETY: 1 to 3: as for the instance, which lives as long as its object. Nothing changes it, because the class is
// frozen. 4: others have the object too, so memory that its sole owner may write is stated as read-only.
unsafe impl<T: ArrayClass> CudaArray for Instance<T> {
    fn info(&self) -> Result<ArrayInfo> {
        let info = with_attached(|py| struct_of(self.0.bind(py)).info()).unwrap_or_else(|| {
            let allowed = "an interpreter that runs";
            Err(Error::new(ErrorKind::Unsupported, "python", "an interpreter at its end", allowed))
        })?;
        // Others keep the object. So memory that only its sole owner may write is read-only here.
        let shared = info.mutability() == Mutability::WhenOwned;
        Ok(if shared { ArrayInfo { mutability: Mutability::ReadOnly, ..info } } else { info })
    }
}
