//! The types of results.

use core::error::Error as StdError;
use core::num::TryFromIntError;

use interop_core::CudaArray;

use crate::abi::{TVMFFIAny, index};
use crate::argument::{ArrayKind, OptionKind, ValueKind};
use crate::call::Call;
use crate::error::CallError;
use crate::operator::signature::Returns;
use crate::owned_object::OwnedObject;

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
    const RETURNS: Returns;

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
    const RETURNS: Returns = T::RETURNS;

    fn into_value(self, call: &Call<'_>) -> Result<TVMFFIAny, CallError> {
        self.map_err(|error| CallError::of_function(error.into(), call.function))?.into_value(call)
    }
}

macro_rules! values {
    ($kind:ident $returns:ident: $number:ident => $value:expr; $($type:ty)*) => { $(
        impl ReturnValue<ValueKind> for $type {
            const RETURNS: Returns = Returns::$returns;

            fn into_value(self, _: &Call<'_>) -> Result<TVMFFIAny, CallError> {
                let $number = self;
                Ok(TVMFFIAny::new(index::$kind, $value))
            }
        }
    )* };
}

values! { NONE Nothing: _nothing => 0; () }
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
    const RETURNS: Returns = Returns::Tensor;

    fn into_value(self, call: &Call<'_>) -> Result<TVMFFIAny, CallError> {
        OwnedObject::from_array(self, call).map(OwnedObject::into_any)
    }
}
