//! The types of results.
#![expect(unsafe_code, reason = "makes objects of the library")]

use core::error::Error as StdError;
use core::mem::ManuallyDrop;
use core::num::TryFromIntError;

use interop_core::dlpack::ManagedTensor;
use interop_core::{CudaArray, StreamHandle};

use crate::abi::{DecRef, TVMFFIAny, TVMFFIObject, index};
use crate::argument::{ArrayKind, OptionKind, ValueKind};
use crate::call::Call;
use crate::error::CallError;
use crate::runtime::{Functions, Runtime};

/// The type of a result. The compiler finds `K`, which tells arrays and values apart.
///
/// It is `()`, an integer, a float, a `bool`, a [`NewArray`](crate::NewArray) in memory of the caller, a struct with
/// `#[derive(CudaArray)]` that owns its memory, or a `Result` of these with any error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of an exported function",
    note = "allowed: `()`, integers, floats, `bool`, `NewArray<…>`, a struct with `#[derive(CudaArray)]` that owns its memory, and a `Result` of these"
)]
pub trait ReturnValue<K> {
    /// Converts the result.
    ///
    /// # Errors
    ///
    /// The error of the function, or of the export.
    #[doc(hidden)]
    fn into_value(self, call: &Call<'_>) -> Result<TVMFFIAny, CallError>;
}

impl<T: ReturnValue<K>, K, E: Into<Box<dyn StdError + Send + Sync>>> ReturnValue<OptionKind<K>>
    for Result<T, E>
{
    fn into_value(self, call: &Call<'_>) -> Result<TVMFFIAny, CallError> {
        self.map_err(|error| CallError::of_function(error.into(), call.function))?.into_value(call)
    }
}

macro_rules! values {
    ($kind:ident: $number:ident => $value:expr; $($type:ty)*) => { $(
        impl ReturnValue<ValueKind> for $type {
            fn into_value(self, _: &Call<'_>) -> Result<TVMFFIAny, CallError> {
                let $number = self;
                Ok(TVMFFIAny::new(index::$kind, $value))
            }
        }
    )* };
}

values! { NONE: _nothing => 0; () }
values! { BOOL: flag => flag.into(); bool }
values! { FLOAT: number => number.to_bits(); f64 }
values! { FLOAT: number => f64::from(number).to_bits(); f32 }
values! { INT: number => bits(number); i64 }
values! { INT: number => bits(number.into()); i8 i16 i32 u8 u16 u32 }
values! { INT: number => i64::try_from(number).map(bits).map_err(too_large)?; isize u64 usize }

const fn bits(number: i64) -> u64 {
    u64::from_ne_bytes(number.to_ne_bytes())
}

#[cold]
fn too_large(_: TryFromIntError) -> CallError {
    CallError::new(c"ValueError", "`result`: found an integer of 64 bits, allowed: 63 bits")
}

/// A reference to an object of the library.
pub(crate) struct OwnedObject {
    pub(crate) object: *mut TVMFFIObject,
    dec_ref: DecRef,
}

impl OwnedObject {
    /// # Safety
    ///
    /// `object` is a reference that nobody else releases.
    pub(crate) unsafe fn new(object: *mut TVMFFIObject, functions: &Functions) -> Self {
        Self { object, dec_ref: functions.dec_ref }
    }

    /// A tensor that owns an array, with its memory.
    pub(crate) fn from_array(
        array: impl CudaArray + Send + 'static,
        call: &Call<'_>,
    ) -> Result<Self, CallError> {
        let functions = functions()?;
        let stream = call.stream(array.info()?.device()).unwrap_or(StreamHandle::LegacyDefault);
        let tensor = array.into_dlpack_as(stream)?.into_raw();
        let mut object = core::ptr::null_mut();
        // SAFETY: an owned tensor, without requirements, and a pointer that is valid for a write.
        if unsafe { (functions.from_dlpack)(tensor, 0, 0, &raw mut object) } != 0 {
            // SAFETY: the library has not taken the tensor.
            drop(unsafe { ManagedTensor::from_raw(tensor) });
            return Err(CallError::RAISED);
        }
        // SAFETY: the library has made this object, which owns the tensor.
        Ok(unsafe { Self::new(object, functions) })
    }

    /// Gives the reference to the caller.
    pub(crate) fn into_any(self) -> TVMFFIAny {
        let object = ManuallyDrop::new(self).object;
        TVMFFIAny::new(index::TENSOR, object.expose_provenance() as u64)
    }
}

impl Drop for OwnedObject {
    fn drop(&mut self) {
        // SAFETY: the reference is owned, and this is its only release.
        unsafe { (self.dec_ref)(self.object) };
    }
}

/// The functions with which results are made.
pub(crate) fn functions() -> Result<&'static Functions, CallError> {
    let missing = "`libtvm_ffi`: not loaded; an array as a result needs it";
    Runtime::functions().ok_or_else(|| CallError::new(c"RuntimeError", missing))
}

#[diagnostic::do_not_recommend]
impl<A: CudaArray + Send + 'static> ReturnValue<ArrayKind> for A {
    fn into_value(self, call: &Call<'_>) -> Result<TVMFFIAny, CallError> {
        OwnedObject::from_array(self, call).map(OwnedObject::into_any)
    }
}
