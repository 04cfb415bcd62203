//! The types of results.

use core::error::Error as StdError;
use core::num::TryFromIntError;

use interop_core::{CudaArray, StreamHandle};

use crate::abi::{TVMFFIAny, index};
use crate::argument::{ArrayKind, OptionKind, ValueKind};
use crate::arguments::Arguments;
use crate::call::{Call, Host};
use crate::error::CallError;
use crate::operator::signature::Kind;
use crate::owned_object::OwnedObject;
use crate::runtime::Functions;

/// The type of a result. The compiler finds `K`, which tells arrays and values apart.
///
/// It is `()`, an integer, a float, a `bool`, a [`NewArray`](crate::NewArray) in memory of the caller, a struct with
/// `#[derive(CudaArray)]` that owns its memory, or a `Result` of these with any error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of an exported function",
    note = "allowed: `()`, integers, floats, `bool`, `NewArray<…>`, a struct with `#[derive(CudaArray)]` that owns its memory, and a `Result` of these"
)]
pub trait ReturnValue<K> {
    /// The type of the result in a schema of `PyTorch`.
    #[doc(hidden)]
    const RETURNS: Kind;

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
    const RETURNS: Kind = T::RETURNS;

    fn into_value(self, call: &Call<'_>) -> Result<TVMFFIAny, CallError> {
        self.map_err(|error| CallError::of_function(error.into(), call.function))?.into_value(call)
    }
}

macro_rules! values {
    ($kind:ident $returns:ident: $number:ident => $value:expr; $($type:ty)*) => { $(
        impl ReturnValue<ValueKind> for $type {
            const RETURNS: Kind = Kind::$returns;

            fn into_value(self, _: &Call<'_>) -> Result<TVMFFIAny, CallError> {
                let $number = self;
                Ok(TVMFFIAny::new(index::$kind, $value))
            }
        }
    )* };
}

values! { NONE None: _nothing => 0; () }
values! { BOOL Bool: flag => flag.into(); bool }
values! { FLOAT Float: number => number.to_bits(); f64 }
values! { FLOAT Float: number => f64::from(number).to_bits(); f32 }
values! { INT Int: number => bits(number); i64 }
values! { INT Int: number => bits(number.into()); i8 i16 i32 u8 u16 u32 }
values! { INT Int: number => i64::try_from(number).map(bits).map_err(too_large)?; isize u64 usize }

const fn bits(number: i64) -> u64 {
    u64::from_ne_bytes(number.to_ne_bytes())
}

#[cold]
fn too_large(_: TryFromIntError) -> CallError {
    CallError::new(c"ValueError", "`result`: found an integer of 64 bits, allowed: 63 bits")
}

#[diagnostic::do_not_recommend]
impl<A: CudaArray + Send + 'static> ReturnValue<ArrayKind> for A {
    const RETURNS: Kind = Kind::Tensor { is_written: false };

    fn into_value(self, call: &Call<'_>) -> Result<TVMFFIAny, CallError> {
        call.owning(self).map(OwnedObject::into_any)
    }
}

impl Call<'_> {
    /// A tensor of the caller's library that owns an array, with its memory.
    pub(crate) fn owning(&self, array: impl CudaArray + Send + 'static) -> Result<OwnedObject, CallError> {
        let stream = self.stream(array.info()?.device()).unwrap_or(StreamHandle::LegacyDefault);
        match self.host {
            Host::TvmFfi => {
                let functions = Functions::of_results()?;
                functions.adopt(array.into_dlpack_as(stream)?)
            }
            Host::Torch(torch) => torch.adopt(array.into_dlpack_as(stream)?),
        }
    }
}

impl Arguments<'_> {
    /// Converts the result of the function. Expanded code calls this.
    ///
    /// # Errors
    ///
    /// The error of the function, or of the export.
    #[inline]
    pub fn end_with<R: ReturnValue<K>, K>(&self, result: R) -> Result<TVMFFIAny, CallError> {
        result.into_value(self.call)
    }
}
