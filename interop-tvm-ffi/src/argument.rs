//! The types of arguments.
#![expect(unsafe_code, reason = "reads what a C caller lends")]

use core::ffi::{CStr, c_char};
use core::marker::PhantomData;

use interop_core::lent::{BorrowedFor, BorrowedTensor};
use interop_core::protocols::dlpack::DLTensor;
use interop_core::storage::Mutability;
use interop_core::{DType, Device, DeviceType, FromArray};

use crate::abi::{TVMFFIAny, TVMFFIByteArray, TVMFFIObject, TVMFFISeqCell, index};
use crate::arguments::Arguments;
use crate::call::{Call, Host};
use crate::device_name::device_of_name;
use crate::error::CallError;
use crate::operator::signature::Kind;

/// The type of a parameter. The compiler finds `K`, which tells arrays, values and lists apart.
///
/// | type | argument |
/// | --- | --- |
/// | a struct with `#[derive(CudaArray)]` and the storage [`Borrowed<'_, T>`](interop_core::lent::Borrowed) or [`BorrowedMut<'_, T>`](interop_core::lent::BorrowedMut) | an array, used in place for the call |
/// | such a struct with `Vec<T>` or `HostVec<T>` | an array, which is copied |
/// | [`BorrowedTensor<'_>`] | an array of any element type and rank; for [`dispatch!`](interop_core::dispatch) |
/// | integers, `f32`, `f64`, `bool`, `&str` | a value; a bool is also an int, and an int is also a float |
/// | [`DType`], [`Device`] | that of TVM FFI or of another library, or its name: `"float32"`, `"cuda:1"` |
/// | `Option` | `None`, or nothing at the end |
/// | `Vec`, tuples of up to four | a list, a tuple or a `tvm_ffi.List` |
/// | `&Call<'_>` | nothing |
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the parameter of an exported function",
    note = "arrays: a struct with `#[derive(CudaArray)]` over `Borrowed<'_, T>`, `BorrowedMut<'_, T>`, `Vec<T>` or `HostVec<T>`, or `BorrowedTensor<'_>`; not over `Lease<T>` and others that could outlive the call",
    note = "values: integers, `f32`, `f64`, `bool`, `&str`, `DType`, `Device`; an `Option`, a `Vec` or a tuple of any of these; `&Call<'_>`"
)]
pub trait Argument<'c, K>: Sized {
    /// The type in a schema of `PyTorch`.
    #[doc(hidden)]
    const KIND: Kind = Kind::None;

    /// Reads the next argument.
    ///
    /// # Errors
    ///
    /// If it is missing, has another type, or does not fit the struct.
    #[doc(hidden)]
    fn read(from: &Arguments<'c>, name: &'static str) -> Result<Self, CallError>;
}

impl<'c> Arguments<'c> {
    /// Reads the next argument. Expanded code calls this.
    ///
    /// # Errors
    ///
    /// If it is missing, has another type, or does not fit the struct.
    #[inline]
    pub fn read<A: Argument<'c, K>, K>(&self, name: &'static str) -> Result<A, CallError> {
        A::read(self, name)
    }
}

/// The kind of arrays.
pub struct ArrayKind(());
/// The kind of values, and of types that are not generic.
pub struct ValueKind(());
/// The kind of options.
pub struct OptionKind<K>(PhantomData<K>);
/// The kind of lists and tuples.
pub struct ListKind<K>(PhantomData<K>);

/// Returns the tensor in a value.
fn tensor_in(value: &TVMFFIAny) -> Option<*const DLTensor> {
    match value.type_index {
        index::DL_TENSOR_PTR => Some(value.pointer()),
        index::TENSOR => Some(value.payload()),
        index::OBJECT_RVALUE_REF => {
            // SAFETY: the value points to a live reference, which may be null.
            let object = unsafe { value.pointer::<*const TVMFFIObject>().read() };
            if object.is_null() {
                return None;
            }
            // SAFETY: a live object, which begins with its header.
            let header = unsafe { object.read() };
            (header.type_index == index::TENSOR).then(|| object.wrapping_add(1).cast())
        }
        _ => None,
    }
}

/// The tensor of the next argument, which is live during the call.
fn next_tensor(from: &Arguments<'_>, name: &'static str) -> Result<*const DLTensor, CallError> {
    let value = from.next(name)?;
    tensor_in(value).ok_or_else(|| from.wrong_type(name, value, "an array"))
}

impl<'c> Argument<'c, ValueKind> for BorrowedTensor<'c> {
    const KIND: Kind = Kind::Tensor { is_written: false };

    fn read(from: &Arguments<'c>, name: &'static str) -> Result<Self, CallError> {
        let (tensor, call) = (next_tensor(from, name)?, from.call);
        // The schema of an operator says what is written, and this type does not tell it.
        let mutability = match call.host {
            Host::TvmFfi => Mutability::Writable,
            Host::Torch(_) => Mutability::ReadOnly,
        };
        // SAFETY: 1 and 2: the caller lends a live tensor for the call, and orders its next work after that on its stream.
        // 3: the ABI has no read-only tensors.
        let borrowed = unsafe { BorrowedTensor::new(tensor, mutability) };
        let borrowed = borrowed.map_err(|error| from.of_argument(name, error))?;
        // SAFETY: the tensor is live, as above, and not null.
        let device = unsafe { (*tensor).device };
        let borrowed = match call.stream(device) {
            // SAFETY: the caller has told this stream for the call: it is live, and the caller's work is on it.
            Some(stream) => unsafe { borrowed.with_stream(stream) },
            None => borrowed,
        };
        Ok(borrowed.with_origin(from.origin(name)))
    }
}

#[diagnostic::do_not_recommend]
impl<'c, A: FromArray + BorrowedFor<'c>> Argument<'c, ArrayKind> for A {
    const KIND: Kind = Kind::Tensor { is_written: A::DATA_FIELD.is_written() };

    fn read(from: &Arguments<'c>, name: &'static str) -> Result<Self, CallError> {
        let tensor = next_tensor(from, name)?;
        // SAFETY: the caller lends a live tensor for the call. The ABI has no read-only tensors.
        unsafe { from.call.array(tensor, false) }.map_err(|error| from.of_argument(name, error))
    }
}

impl<'c> Argument<'c, ValueKind> for &'c Call<'c> {
    fn read(from: &Arguments<'c>, _: &'static str) -> Result<Self, CallError> {
        Ok(from.call)
    }
}

impl<'c, A: Argument<'c, K>, K> Argument<'c, OptionKind<K>> for Option<A> {
    const KIND: Kind = Kind::Optional(&A::KIND);

    fn read(from: &Arguments<'c>, name: &'static str) -> Result<Self, CallError> {
        match from.peek() {
            None => Ok(None),
            Some(TVMFFIAny { type_index: index::NONE, .. }) => from.next(name).map(|_| None),
            Some(_) => A::read(from, name).map(Some),
        }
    }
}

/// Returns the items of a list.
fn items<'c>(from: &Arguments<'c>, name: &'static str) -> Result<Arguments<'c>, CallError> {
    let value = from.next(name)?;
    if !matches!(value.type_index, index::ARRAY | index::LIST) {
        return Err(from.wrong_type(name, value, "a list or a tuple"));
    }
    // SAFETY: a live object of this kind, whose payload begins with this struct.
    let TVMFFISeqCell { data, size } = unsafe { value.payload::<TVMFFISeqCell>().read() };
    // SAFETY: the object has these items. It lives as long as the call, and nobody changes it meanwhile, as the caller promises.
    Ok(unsafe { from.list(data, usize::try_from(size).unwrap_or(0)) })
}

impl<'c, T: Argument<'c, K>, K> Argument<'c, ListKind<K>> for Vec<T> {
    const KIND: Kind = Kind::List(&T::KIND);

    fn read(from: &Arguments<'c>, name: &'static str) -> Result<Self, CallError> {
        let items = items(from, name)?;
        (0..items.values.len()).map(|_| T::read(&items, name)).collect()
    }
}

macro_rules! tuples {
    ($($count:literal: $($item:ident $kind:ident),+;)*) => { $(
        impl<'c, $($item: Argument<'c, $kind>, $kind),+> Argument<'c, ListKind<($($kind,)+)>> for ($($item,)+) {
            fn read(from: &Arguments<'c>, name: &'static str) -> Result<Self, CallError> {
                let items = items(from, name)?;
                if items.values.len() != $count {
                    let found = format!("a list of {} items", items.values.len());
                    return Err(from.wrong_value(name, &found, concat!($count, " items")));
                }
                Ok(($($item::read(&items, name)?,)+))
            }
        }
    )* };
}

tuples! { 1: A J; 2: A J, B K; 3: A J, B K, C L; 4: A J, B K, C L, D M; }

/// Returns the number in an int, or in a bool, which is an int in Python.
fn int_in(value: &TVMFFIAny) -> Option<i64> {
    match value.type_index {
        index::INT => Some(value.value as i64),
        index::BOOL => Some((value.value != 0).into()),
        _ => None,
    }
}

macro_rules! integers {
    ($($integer:ty)*) => { $(
        impl<'c> Argument<'c, ValueKind> for $integer {
    const KIND: Kind = Kind::Int;

            fn read(from: &Arguments<'c>, name: &'static str) -> Result<Self, CallError> {
                let value = from.next(name)?;
                let Some(number) = int_in(value) else {
                    return Err(from.wrong_type(name, value, "an int"));
                };
                Self::try_from(number).map_err(|_| {
                    let allowed = format!("{} to {}", Self::MIN, Self::MAX);
                    from.wrong_value(name, &number.to_string(), &allowed)
                })
            }
        }
    )* };
}

integers!(i8 i16 i32 i64 isize u8 u16 u32 u64 usize);

impl<'c> Argument<'c, ValueKind> for f64 {
    const KIND: Kind = Kind::Float;

    #[expect(clippy::cast_precision_loss, reason = "an int becomes the nearest float, as in Python")]
    fn read(from: &Arguments<'c>, name: &'static str) -> Result<Self, CallError> {
        let value = from.next(name)?;
        if value.type_index == index::FLOAT {
            return Ok(f64::from_bits(value.value));
        }
        let number = int_in(value).ok_or_else(|| from.wrong_type(name, value, "a float"))?;
        Ok(number as f64)
    }
}

impl<'c> Argument<'c, ValueKind> for f32 {
    const KIND: Kind = Kind::Float;

    #[expect(clippy::cast_possible_truncation, reason = "the nearest float, as in an array of this type")]
    fn read(from: &Arguments<'c>, name: &'static str) -> Result<Self, CallError> {
        f64::read(from, name).map(|number| number as f32)
    }
}

impl<'c> Argument<'c, ValueKind> for bool {
    const KIND: Kind = Kind::Bool;

    fn read(from: &Arguments<'c>, name: &'static str) -> Result<Self, CallError> {
        let value = from.next(name)?;
        if value.type_index != index::BOOL {
            return Err(from.wrong_type(name, value, "a bool"));
        }
        Ok(value.value != 0)
    }
}

// The fields of `DLDataType` and `DLDevice` are the bytes of the value.
impl<'c> Argument<'c, ValueKind> for DType {
    const KIND: Kind = Kind::DType;

    fn read(from: &Arguments<'c>, name: &'static str) -> Result<Self, CallError> {
        let value = from.next(name)?;
        if value.type_index == index::DATA_TYPE {
            let [code, bits, x, y, ..] = value.value.to_ne_bytes();
            return Ok(Self::new(code, bits, u16::from_ne_bytes([x, y])));
        }
        let text = name_in(from, value, name, "a dtype or its name")?;
        text.parse().map_err(|_| from.wrong_value(name, &format!("{text:?}"), "a dtype, such as \"float32\""))
    }
}

impl<'c> Argument<'c, ValueKind> for Device {
    const KIND: Kind = Kind::Device;

    fn read(from: &Arguments<'c>, name: &'static str) -> Result<Self, CallError> {
        let value = from.next(name)?;
        if value.type_index == index::DEVICE {
            let bytes = value.value.to_ne_bytes();
            let [device_type, device_id] =
                [0, 4].map(|at| i32::from_ne_bytes([0, 1, 2, 3].map(|byte: usize| bytes[at + byte])));
            return Ok(Self { device_type: DeviceType(device_type), device_id });
        }
        let text = name_in(from, value, name, "a device or its name")?;
        let allowed = "a device, such as \"cpu\" or \"cuda:0\"";
        device_of_name(text).ok_or_else(|| from.wrong_value(name, &format!("{text:?}"), allowed))
    }
}

/// Returns the text in a value that may be a name.
fn name_in<'c>(
    from: &Arguments<'c>,
    value: &'c TVMFFIAny,
    name: &str,
    allowed: &str,
) -> Result<&'c str, CallError> {
    // SAFETY: the caller lends the value for the call.
    let text = unsafe { text_in(value) }.and_then(|bytes| core::str::from_utf8(bytes).ok());
    text.ok_or_else(|| from.wrong_type(name, value, allowed))
}

impl<'c> Argument<'c, ValueKind> for &'c str {
    const KIND: Kind = Kind::Str;

    fn read(from: &Arguments<'c>, name: &'static str) -> Result<Self, CallError> {
        let value = from.next(name)?;
        // SAFETY: the caller lends the value for the call.
        let Some(bytes) = (unsafe { text_in(value) }) else {
            return Err(from.wrong_type(name, value, "a str"));
        };
        core::str::from_utf8(bytes).map_err(|_| from.wrong_value(name, "other bytes", "UTF-8"))
    }
}

/// Returns the bytes of a string.
///
/// # Safety
///
/// The value is live during `'c`, with what it points to.
unsafe fn text_in<'c>(value: &'c TVMFFIAny) -> Option<&'c [u8]> {
    let (data, size) = match value.type_index {
        index::SMALL_STR => ((&raw const value.value).cast(), value.small_str_len.min(8) as usize),
        index::RAW_STR => {
            let text: *const c_char = value.pointer();
            // SAFETY: a C string.
            return (!text.is_null()).then(|| unsafe { CStr::from_ptr::<'c>(text) }.to_bytes());
        }
        index::STR => {
            // SAFETY: a live object of this kind, whose payload begins with this struct.
            let TVMFFIByteArray { data, size } = unsafe { value.payload::<TVMFFIByteArray>().read() };
            (data, size)
        }
        _ => return None,
    };
    // SAFETY: these bytes are in the value, or in the object. An empty string may have none.
    Some(if size == 0 { &[] } else { unsafe { core::slice::from_raw_parts(data, size) } })
}
