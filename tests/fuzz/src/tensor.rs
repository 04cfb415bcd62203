//! DLPack structs from raw bytes, on read-only pages that end with the struct: reading too far faults, and so does a
//! write.
//!
//! Only the pointers are chosen by the target, because the crate may dereference them: `shape` and `strides` are null
//! or as long as `ndim` states, and the deleter is null or counts its calls.
#![expect(unsafe_code, reason = "foreign structs are bytes behind pointers")]

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr;

use interop_core::protocols::MAX_NDIM;
use interop_core::protocols::dlpack::{
    DLManagedTensor, DLManagedTensorVersioned, DLTensor, Legacy, ManagedTensor, Ownership, TensorAbi,
    Versioned, export,
};
use interop_core::{ArrayInfo, DType, Import, Order};

use crate::guarded::Guarded;
use crate::input::{Input, Output};
use crate::oracle::{addresses, check, check_error, check_same, compact, numel, span, widen};
use crate::types::sized;

/// The maximum length of a list; more axes than are allowed.
const AXES: u8 = 70;
const READ_ONLY: u64 = 1;
const PADDED: u64 = 4;
const KNOWN: u64 = 7;

pub(crate) struct Pages {
    managed: Guarded,
    shape: Guarded,
    strides: Guarded,
}

impl Pages {
    /// Maps the pages for one struct.
    pub(crate) fn new() -> Self {
        Self { managed: Guarded::new(), shape: Guarded::new(), strides: Guarded::new() }
    }
}

thread_local! {
    static PAGES: RefCell<Pages> = RefCell::new(Pages::new());
    /// The number of deleter calls since this was set to 0.
    pub(crate) static RELEASED: Cell<usize> = const { Cell::new(0) };
}

/// The fields of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) versioned: bool,
    pub(crate) version: [u32; 2],
    pub(crate) flags: u64,
    pub(crate) data: u64,
    pub(crate) device: [i32; 2],
    pub(crate) ndim: i32,
    pub(crate) dtype: (u8, u8, u16),
    pub(crate) shape: Option<Vec<i64>>,
    pub(crate) strides: Option<Vec<i64>>,
    pub(crate) byte_offset: u64,
    pub(crate) deleter: bool,
}

/// Runs the target.
///
/// # Panics
///
/// If the crate and the oracle differ, or if a struct is not released exactly once.
pub fn run(data: &[u8]) {
    let claims = read(&mut Input::new(data));
    PAGES.with_borrow_mut(|pages| {
        if claims.versioned { judge::<Versioned>(&claims, pages) } else { judge::<Legacy>(&claims, pages) }
    });
}

/// How the two forms of the struct are written as bytes.
pub(crate) trait Form: TensorAbi {
    /// The size of the part that may be read if the major version differs.
    const HEAD: usize;
    const SIZE: usize = size_of::<Self>();
    const DELETER: usize;
    const TENSOR: usize;
    fn head(claims: &Claims, bytes: &mut [u8]);
}

impl Form for DLManagedTensor {
    const HEAD: usize = Self::SIZE;
    const DELETER: usize = offset_of!(Self, deleter);
    const TENSOR: usize = offset_of!(Self, dl_tensor);
    fn head(_: &Claims, _: &mut [u8]) {}
}

impl Form for DLManagedTensorVersioned {
    const HEAD: usize = offset_of!(Self, flags);
    const DELETER: usize = offset_of!(Self, deleter);
    const TENSOR: usize = offset_of!(Self, dl_tensor);
    fn head(claims: &Claims, bytes: &mut [u8]) {
        put(bytes, 0, claims.version[0].to_ne_bytes());
        put(bytes, 4, claims.version[1].to_ne_bytes());
        put(bytes, offset_of!(Self, flags), claims.flags.to_ne_bytes());
    }
}

unsafe extern "C" fn release<A>(_: *mut A) {
    RELEASED.set(RELEASED.get() + 1);
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// Writes a list to the page, with as many numbers as `ndim` states, and returns its address. Writes none if `ndim` is
/// invalid.
fn list(numbers: &[i64], ndim: i32, page: &mut Guarded) -> *mut u8 {
    let count = usize::try_from(ndim).ok().filter(|count| *count <= MAX_NDIM).unwrap_or(0);
    let numbers = numbers.iter().copied().chain(std::iter::repeat(1)).take(count);
    page.put(&numbers.flat_map(i64::to_ne_bytes).collect::<Vec<u8>>())
}

/// Builds the struct on guarded pages.
pub(crate) fn build<A: Form>(claims: &Claims, pages: &mut Pages) -> ManagedTensor<A> {
    let pointer = |pointer: *mut u8| pointer.expose_provenance().to_ne_bytes();
    let null = ptr::null_mut();
    let shape = claims.shape.as_ref().map_or(null, |shape| list(shape, claims.ndim, &mut pages.shape));
    let strides =
        claims.strides.as_ref().map_or(null, |strides| list(strides, claims.ndim, &mut pages.strides));
    let deleter = if claims.deleter { release::<A> as *mut c_void as usize } else { 0 };
    let mut bytes = vec![0xa5; A::SIZE];
    A::head(claims, &mut bytes);
    put(&mut bytes, A::DELETER, deleter.to_ne_bytes());
    let tensor = &mut bytes[A::TENSOR..];
    put(tensor, offset_of!(DLTensor, data), claims.data.to_ne_bytes());
    put(tensor, offset_of!(DLTensor, device), claims.device[0].to_ne_bytes());
    put(tensor, offset_of!(DLTensor, device) + 4, claims.device[1].to_ne_bytes());
    put(tensor, offset_of!(DLTensor, ndim), claims.ndim.to_ne_bytes());
    let (code, bits, lanes) = claims.dtype;
    put(tensor, offset_of!(DLTensor, dtype), [code, bits]);
    put(tensor, offset_of!(DLTensor, dtype) + 2, lanes.to_ne_bytes());
    put(tensor, offset_of!(DLTensor, shape), pointer(shape));
    put(tensor, offset_of!(DLTensor, strides), pointer(strides));
    put(tensor, offset_of!(DLTensor, byte_offset), claims.byte_offset.to_ne_bytes());
    if claims.versioned && claims.version[0] != 1 {
        bytes.truncate(A::HEAD);
    }
    // SAFETY: this is a complete struct, or as much of it as another major version guarantees. The deleter is null or
    // counts its calls, and nobody dereferences `data`.
    unsafe { ManagedTensor::from_raw(pages.managed.put(&bytes).cast()) }
}

/// Tests one struct: reads it, imports it, exports it again, and checks its release.
fn judge<A: Form>(claims: &Claims, pages: &mut Pages) {
    RELEASED.set(0);
    let tensor = build::<A>(claims, pages);
    let legal = legal(claims);
    match tensor.info() {
        Err(error) => {
            check_error(&error);
            assert!(legal.is_none(), "{error}");
            // SAFETY: nobody dereferences `data`.
            let refused = unsafe { Import::from_dlpack_unchecked(tensor) }.expect_err("the same tensor");
            assert_eq!((refused.error, RELEASED.get()), (error, 0));
            drop(refused.value);
        }
        Ok(info) => {
            let (shape, strides) = legal.expect("something that is wrong was taken");
            let first = i128::from(claims.data) + i128::from(claims.byte_offset);
            check(&info, &shape, &strides, first, info.dtype().item_bits(info.is_padded()) as i128);
            assert_eq!(info.is_read_only(), !claims.versioned || claims.flags & READ_ONLY != 0);
            check_again(&info);
            // SAFETY: nobody dereferences `data`.
            let import = unsafe { Import::from_dlpack_unchecked(tensor) }.expect("the same tensor");
            assert_eq!(RELEASED.get(), 0);
            drop(import);
        }
    }
    assert_eq!(RELEASED.get(), usize::from(claims.deleter), "one release");
}

/// Exports a description again, and checks that importing the result gives the same description.
fn check_again(info: &ArrayInfo) {
    // SAFETY: nobody dereferences the address.
    let versioned = unsafe { export::<Versioned, _>(info, (), Ownership::Owned) }.expect("a legal array");
    check_same(info, &versioned.info().expect("our own struct"));
    // SAFETY: nobody dereferences the address.
    match unsafe { export::<Legacy, _>(info, (), Ownership::Owned) } {
        Ok(legacy) => {
            let again = legacy.info().expect("our own struct");
            assert_eq!((again.byte_range(), again.shape()), (info.byte_range(), info.shape()));
        }
        Err(refused) => assert!(info.is_read_only() || info.is_padded(), "{}", refused.error),
    }
}

/// Returns the extents and strides if everything is legal.
pub(crate) fn legal(claims: &Claims) -> Option<(Vec<i128>, Vec<i128>)> {
    let flags = if claims.versioned { claims.flags } else { READ_ONLY };
    let ndim = usize::try_from(claims.ndim).ok().filter(|ndim| *ndim <= MAX_NDIM)?;
    let resize =
        |list: &[i64]| list.iter().copied().chain(std::iter::repeat(1)).take(ndim).collect::<Vec<_>>();
    let shape = match &claims.shape {
        Some(shape) => widen(&resize(shape)),
        None if ndim == 0 => Vec::new(),
        None => return None,
    };
    let (code, bits, lanes) = claims.dtype;
    let known = bits % 8 == 0 || flags & !KNOWN == 0;
    let kind = match claims.device {
        [1 | 3 | 13, _] => true,
        [2, ordinal] => ordinal >= 0,
        _ => false,
    };
    if !known || !kind || !sized(code, bits, lanes) || (claims.versioned && claims.version[0] != 1) {
        return None;
    }
    numel(&shape)?;
    let strides = claims.strides.as_ref().filter(|_| ndim > 0);
    let strides = strides.map_or_else(|| compact(&shape, Order::C), |strides| widen(&resize(strides)));
    let span = span(&shape, &strides)?;
    let item = DType::new(code, bits, lanes).item_bits(flags & PADDED != 0) as i128;
    let (data, offset) = (i128::from(claims.data), i128::from(claims.byte_offset));
    let found = span.numel == 0 || (data != 0 && offset <= i128::from(i64::MAX));
    (found && addresses(data + offset, span, item).is_some()).then_some((shape, strides))
}

pub(crate) fn read(input: &mut Input<'_>) -> Claims {
    let [versioned, deleter] = input.bytes();
    let word = |input: &mut Input<'_>| i32::from_ne_bytes(input.bytes());
    let half = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    Claims {
        versioned: versioned % 2 == 1,
        deleter: deleter % 4 != 0,
        version: [half(input.number()), half(input.number())],
        flags: u64::from_ne_bytes(input.number().to_ne_bytes()),
        data: u64::from_ne_bytes(input.number().to_ne_bytes()),
        device: [i32::from(input.byte()), input.number().try_into().unwrap_or(i32::MIN)],
        dtype: (input.byte(), input.byte(), u16::from_ne_bytes(input.bytes())),
        byte_offset: u64::from_ne_bytes(input.number().to_ne_bytes()),
        ndim: if input.byte() == 0 { word(input) } else { i32::from(input.byte() % (AXES + 1)) },
        shape: input.optional(|input| input.list(AXES)),
        strides: input.optional(|input| input.list(AXES)),
    }
}

/// Encodes a struct as bytes. Only the low byte of the device type is kept.
pub(crate) fn write(claims: &Claims) -> Vec<u8> {
    let whole = |number: u64| i64::from_ne_bytes(number.to_ne_bytes());
    let mut output = Output::default();
    output.byte(u8::from(claims.versioned)).byte(u8::from(claims.deleter));
    output.number(claims.version[0].into()).number(claims.version[1].into());
    output.number(whole(claims.flags)).number(whole(claims.data));
    output.byte(claims.device[0].to_le_bytes()[0]).number(claims.device[1].into());
    output.byte(claims.dtype.0).byte(claims.dtype.1).0.extend(claims.dtype.2.to_ne_bytes());
    output.number(whole(claims.byte_offset));
    if let Some(ndim) = u8::try_from(claims.ndim).ok().filter(|ndim| *ndim <= AXES) {
        output.byte(1).byte(ndim);
    } else {
        output.byte(0).0.extend(claims.ndim.to_ne_bytes());
    }
    for numbers in [&claims.shape, &claims.strides] {
        output.optional(numbers.as_ref(), |output, numbers| {
            output.list(numbers, AXES);
        });
    }
    output.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_struct_that_is_written_is_read() {
        let claims = Claims {
            versioned: true,
            version: [1, 3],
            flags: 1,
            data: u64::MAX,
            device: [13, -1],
            ndim: 2,
            dtype: (2, 32, 258),
            shape: Some(vec![2, i64::MIN]),
            strides: None,
            byte_offset: 1 << 63,
            deleter: true,
        };
        assert_eq!(read(&mut Input::new(&write(&claims))), claims);
        let claims = Claims { versioned: false, ndim: -5, deleter: false, shape: None, ..claims };
        assert_eq!(read(&mut Input::new(&write(&claims))), claims);
    }
}
