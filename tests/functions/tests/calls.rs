//! Calls as a C program makes them, which has not loaded `libtvm_ffi`.
#![expect(unsafe_code, reason = "calls exported functions by the C ABI")]
#![expect(clippy::float_cmp, reason = "products of small integers are exact")]
#![expect(clippy::items_after_statements, reason = "structs of one test")]

use core::ffi::{CStr, c_void};
use core::ptr::{null, null_mut};

use interop_core::protocols::dlpack::DLTensor;
use interop_core::{DType, Device};
use interop_function_tests as _;
use interop_tvm_ffi::abi::{TVMFFIAny, TVMFFIObject, TVMFFISeqCell, index};
use interop_tvm_ffi::interop_tvm_ffi_last_error;

mod functions {
    use super::{TVMFFIAny, c_void};

    macro_rules! functions {
        ($($name:ident)*) => {
            unsafe extern "C" {
                $(pub(crate) fn $name(_: *mut c_void, _: *const TVMFFIAny, _: i32, _: *mut TVMFFIAny) -> i32;)*
            }
        };
    }

    functions! { __tvm_ffi_scale_row_ __tvm_ffi_scale_named_ __tvm_ffi_sum __tvm_ffi_values __tvm_ffi_fail __tvm_ffi_explode
    __tvm_ffi_ramp __tvm_ffi_nothing __tvm_ffi_assign_ __tvm_ffi_shared_len __tvm_ffi_lists __tvm_ffi_entry
    __tvm_ffi_function __tvm_ffi_type }
}

use functions::{
    __tvm_ffi_assign_ as assign_, __tvm_ffi_entry as entry, __tvm_ffi_explode as explode,
    __tvm_ffi_fail as fail, __tvm_ffi_function as function, __tvm_ffi_lists as lists,
    __tvm_ffi_nothing as nothing, __tvm_ffi_ramp as ramp, __tvm_ffi_scale_named_ as scale_named_,
    __tvm_ffi_scale_row_ as scale_row_, __tvm_ffi_shared_len as shared_len, __tvm_ffi_sum as sum,
    __tvm_ffi_type as r#type, __tvm_ffi_values as values,
};

type Function = unsafe extern "C" fn(*mut c_void, *const TVMFFIAny, i32, *mut TVMFFIAny) -> i32;

/// Calls a function. Returns its result, or the class and the text of its error.
fn call(function: Function, arguments: &[TVMFFIAny]) -> Result<TVMFFIAny, (String, String)> {
    let mut result = TVMFFIAny::NONE;
    let count = i32::try_from(arguments.len()).unwrap();
    // SAFETY: the tests lend live arguments, or what is refused.
    match unsafe { function(null_mut(), arguments.as_ptr(), count, &raw mut result) } {
        0 => Ok(result),
        code => {
            assert_eq!(code, -1);
            Err(last_error())
        }
    }
}

fn last_error() -> (String, String) {
    let mut class = null();
    // SAFETY: the class is valid for a write.
    let text = unsafe { interop_tvm_ffi_last_error(&raw mut class) };
    // SAFETY: a C string that is valid until the next error.
    let class = unsafe { CStr::from_ptr(class) }.to_string_lossy().into_owned();
    // SAFETY: as above.
    (class, unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Asserts the class of an error, and a part of its text.
#[track_caller]
fn assert_error(result: Result<TVMFFIAny, (String, String)>, class: &str, text: &str) {
    let (found, told) = result.unwrap_err();
    assert!(found == class && told.contains(text), "{found}: {told}");
}

fn int(number: i64) -> TVMFFIAny {
    TVMFFIAny::new(index::INT, u64::from_ne_bytes(number.to_ne_bytes()))
}

fn float(number: f64) -> TVMFFIAny {
    TVMFFIAny::new(index::FLOAT, number.to_bits())
}

fn text(text: &CStr) -> TVMFFIAny {
    TVMFFIAny::new(index::RAW_STR, text.as_ptr().expose_provenance() as u64)
}

/// A row of `float32`, and its extent.
fn row<'a>(numbers: &mut [f32], shape: &'a mut [i64; 1]) -> (DLTensor, &'a mut [i64; 1]) {
    shape[0] = i64::try_from(numbers.len()).unwrap();
    let tensor = DLTensor {
        data: numbers.as_mut_ptr().cast(),
        device: Device::CPU,
        ndim: 1,
        dtype: DType::F32,
        shape: shape.as_mut_ptr(),
        strides: null_mut(),
        byte_offset: 0,
    };
    (tensor, shape)
}

fn tensor(tensor: &DLTensor) -> TVMFFIAny {
    TVMFFIAny::new(index::DL_TENSOR_PTR, (&raw const *tensor).expose_provenance() as u64)
}

#[test]
fn arrays_are_used_in_place() {
    let (mut numbers, mut shape) = ([1.0, 2.0, 3.0], [0]);
    let (array, _shape) = row(&mut numbers, &mut shape);
    assert!(call(scale_row_, &[tensor(&array), float(2.0)]).is_ok());
    assert!(call(scale_named_, &[tensor(&array), int(3)]).is_ok());
    assert_eq!(call(shared_len, &[tensor(&array)]).unwrap().value, 3);
    let total = call(sum, &[tensor(&array), tensor(&array)]).unwrap();
    assert_eq!((total.type_index, f64::from_bits(total.value)), (index::FLOAT, 72.0));
    assert_eq!(f64::from_bits(call(sum, &[tensor(&array), TVMFFIAny::NONE]).unwrap().value), 36.0);
    assert_eq!(call(nothing, &[]).unwrap().type_index, index::NONE);
    assert_eq!(numbers, [6.0, 12.0, 18.0]);
}

/// A list object, as the library lays it out.
#[repr(C)]
struct List {
    header: TVMFFIObject,
    items: TVMFFISeqCell,
}

impl List {
    fn new(items: &[TVMFFIAny]) -> Self {
        let header =
            TVMFFIObject { combined_ref_count: 1, type_index: index::ARRAY, padding: 0, deleter: null() };
        Self {
            header,
            items: TVMFFISeqCell { data: items.as_ptr(), size: i64::try_from(items.len()).unwrap() },
        }
    }

    fn value(&self) -> TVMFFIAny {
        TVMFFIAny::new(index::ARRAY, (&raw const *self).expose_provenance() as u64)
    }
}

#[test]
fn an_error_names_the_item_of_a_list() {
    let (mut numbers, mut shape) = ([1.0, 2.0], [0]);
    let (array, _shape) = row(&mut numbers, &mut shape);
    let doubles = DLTensor { dtype: DType::F64, ..array };
    let extra = [text(c"name"), TVMFFIAny::NONE];
    let call_lists = |rows: &[TVMFFIAny], weights: &[TVMFFIAny], extra: &[TVMFFIAny]| {
        let [rows, weights, extra] = [rows, weights, extra].map(List::new);
        call(lists, &[rows.value(), weights.value(), extra.value()])
    };
    let refused = call_lists(&[tensor(&array), tensor(&doubles)], &[], &extra);
    assert_error(
        refused,
        "TypeError",
        "`Row`: `dtype`: found float64, allowed: float32 (from argument `rows[1]` of `lists`)",
    );
    let refused = call_lists(&[], &[int(1), int(1), text(c"a")], &extra);
    assert_error(refused, "TypeError", "`weights[2]`: found a str, allowed: a float (argument of `lists`)");
    let refused = call_lists(&[], &[], &[text(c"name"), int(-1)]);
    assert_error(
        refused,
        "ValueError",
        "`extra[1]`: found -1, allowed: 0 to 4294967295 (argument of `lists`)",
    );
    let refused = call_lists(&[], &[], &extra[..1]);
    assert_error(refused, "ValueError", "`extra`: found a list of 1 items, allowed: 2 items");
}

#[test]
fn names_of_the_expansion_are_free() {
    assert_eq!(call(entry, &[int(5), int(3)]).unwrap().value, 2);
    assert_eq!(call(function, &[int(5), int(3)]).unwrap().value, 2);
    assert_eq!(call(r#type, &[int(4)]).unwrap().value, 8);
    assert_error(
        call(r#type, &[text(c"a")]),
        "TypeError",
        "`in`: found a str, allowed: an int (argument of `type`)",
    );
    assert_error(call(r#type, &[]), "TypeError", "`type`: the argument `in` is missing");
}

#[test]
fn a_reference_that_the_function_may_take_is_borrowed() {
    /// A tensor object, as the library lays it out.
    #[repr(C)]
    struct Object {
        header: TVMFFIObject,
        tensor: DLTensor,
    }

    let (mut numbers, mut shape) = ([1.0, 2.0], [0]);
    let (array, _shape) = row(&mut numbers, &mut shape);
    let header =
        TVMFFIObject { combined_ref_count: 1, type_index: index::TENSOR, padding: 0, deleter: null() };
    let object = Object { header, tensor: array };
    let address = |place: *const c_void| place.expose_provenance() as u64;
    let plain = TVMFFIAny::new(index::TENSOR, address((&raw const object).cast()));
    assert!(call(scale_row_, &[plain, float(2.0)]).is_ok());
    let reference = &raw const object;
    let moved = TVMFFIAny::new(index::OBJECT_RVALUE_REF, address((&raw const reference).cast()));
    assert!(call(scale_row_, &[moved, float(2.0)]).is_ok());
    assert_eq!(numbers, [4.0, 8.0]);
    let other = Object { header: TVMFFIObject { type_index: index::STR, ..header }, tensor: array };
    let reference = &raw const other;
    let moved = TVMFFIAny::new(index::OBJECT_RVALUE_REF, address((&raw const reference).cast()));
    assert_error(call(scale_row_, &[moved, float(2.0)]), "TypeError", "allowed: an array");
    let reference = null::<Object>();
    let none = TVMFFIAny::new(index::OBJECT_RVALUE_REF, address((&raw const reference).cast()));
    assert_error(call(scale_row_, &[none, float(2.0)]), "TypeError", "allowed: an array");
}

#[test]
fn bad_tensors_are_errors() {
    let (mut numbers, mut shape) = ([1.0, 2.0, 3.0, 4.0], [0]);
    let (array, _shape) = row(&mut numbers, &mut shape);
    let refused = |array: DLTensor, class, text| {
        assert_error(call(scale_row_, &[tensor(&array), float(2.0)]), class, text);
    };
    refused(DLTensor { ndim: 99, ..array }, "ValueError", "found 99");
    refused(DLTensor { ndim: -1, ..array }, "ValueError", "found -1");
    refused(DLTensor { shape: null_mut(), ..array }, "ValueError", "null pointer");
    refused(DLTensor { data: null_mut(), ..array }, "ValueError", "null pointer");
    refused(DLTensor { dtype: DType::F64, ..array }, "TypeError", "`dtype`: found float64, allowed: float32");
    refused(DLTensor { dtype: DType::new(2, 0, 1), ..array }, "TypeError", "dtype");
    refused(
        DLTensor { device: Device::cuda(0), ..array },
        "ValueError",
        "found CUDA (2), ordinal 0, allowed: CPU",
    );
    let (mut two, mut strides) = ([2, 2], [2]);
    refused(DLTensor { ndim: 2, shape: two.as_mut_ptr(), ..array }, "ValueError", "2 axes");
    let mut half = [2];
    refused(
        DLTensor { shape: half.as_mut_ptr(), strides: strides.as_mut_ptr(), ..array },
        "ValueError",
        "`strides[0]`: found 2",
    );
    let mut negative = [-2];
    refused(DLTensor { shape: negative.as_mut_ptr(), ..array }, "ValueError", "found -2");
    let null = TVMFFIAny::new(index::DL_TENSOR_PTR, 0);
    assert_error(call(scale_row_, &[null, float(2.0)]), "ValueError", "found a null pointer");
    assert_eq!(numbers, [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn wrong_arguments_are_errors() {
    let (mut numbers, mut shape) = ([1.0, 2.0], [0]);
    let (array, _shape) = row(&mut numbers, &mut shape);
    let array = tensor(&array);
    let missing = "`scale_row_`: the argument `factor` is missing";
    assert_error(call(scale_row_, &[array]), "TypeError", missing);
    assert_error(call(scale_row_, &[]), "TypeError", "the argument `row` is missing");
    let surplus = "`scale_row_`: found 3 arguments, allowed: 2";
    assert_error(call(scale_row_, &[array, float(1.0), float(1.0)]), "TypeError", surplus);
    let kind = "`factor`: found a str, allowed: a float (argument of `scale_row_`)";
    assert_error(call(scale_row_, &[array, text(c"two")]), "TypeError", kind);
    assert_error(
        call(scale_row_, &[int(3), float(1.0)]),
        "TypeError",
        "`row`: found the int 3, allowed: an array",
    );
    let unknown = TVMFFIAny::new(77_777, 0);
    assert_error(call(scale_row_, &[unknown, float(1.0)]), "TypeError", "an object of an unknown class");
    assert_error(call(assign_, &[array]), "TypeError", "allowed: a list or a tuple");
    // A null pointer for no arguments, and a count that no caller has.
    let mut result = TVMFFIAny::NONE;
    // SAFETY: there are no arguments.
    assert_eq!(unsafe { nothing(null_mut(), null(), 0, &raw mut result) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { nothing(null_mut(), null(), -1, &raw mut result) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { scale_row_(null_mut(), null(), 2, &raw mut result) }, -1);
    assert!(last_error().1.contains("missing"));
}

#[test]
fn numbers_and_texts_are_checked() {
    let yes = TVMFFIAny::new(index::BOOL, 1);
    let with = |small: TVMFFIAny, flag| call(values, &[int(3), small, float(0.5), flag, text(c"abc")]);
    assert_eq!(with(int(255), yes).unwrap().value, 1);
    assert_error(
        with(int(256), yes),
        "ValueError",
        "`small`: found 256, allowed: 0 to 255 (argument of `values`)",
    );
    assert_error(with(int(-1), yes), "ValueError", "`small`: found -1");
    assert_error(with(float(1.0), yes), "TypeError", "`small`: found a float, allowed: an int");
    assert_error(with(int(1), int(1)), "TypeError", "`flag`: found the int 1, allowed: a bool");
    let null = TVMFFIAny::new(index::RAW_STR, 0);
    assert_error(call(fail, &[null]), "TypeError", "allowed: a str");
    assert_error(call(fail, &[text(c"\xff")]), "ValueError", "found other bytes, allowed: UTF-8");
    let short = TVMFFIAny {
        type_index: index::SMALL_STR,
        small_str_len: 3,
        value: u64::from_ne_bytes(*b"key\0\0\0\0\0"),
    };
    assert_error(call(fail, &[short]), "KeyError", "no such key");
}

#[test]
fn arguments_that_share_memory_are_refused_if_one_is_written() {
    let (mut numbers, mut shape) = ([1.0, 2.0], [0]);
    let (array, _shape) = row(&mut numbers, &mut shape);
    let (array, pair) = (tensor(&array), [tensor(&array), tensor(&array)]);
    /// A list object, as the library lays it out.
    #[repr(C)]
    struct List {
        header: TVMFFIObject,
        items: TVMFFISeqCell,
    }

    let header =
        TVMFFIObject { combined_ref_count: 1, type_index: index::ARRAY, padding: 0, deleter: null() };
    let list_of = |size| List { header, items: TVMFFISeqCell { data: pair.as_ptr(), size } };
    let value = |list: &List| TVMFFIAny::new(index::ARRAY, (&raw const *list).expose_provenance() as u64);
    let (both, one) = (list_of(2), list_of(1));
    assert_error(call(assign_, &[value(&both)]), "ValueError", "one writer");
    assert_error(call(assign_, &[value(&one)]), "ValueError", "found a list of 1 items, allowed: 2 items");
    // The record of the refused call is gone.
    assert!(call(scale_row_, &[array, float(2.0)]).is_ok());
    assert_eq!(numbers, [2.0, 4.0]);
}

#[test]
fn errors_and_panics_stay_inside() {
    let (mut numbers, mut shape) = ([1.0, 2.0], [0]);
    let (array, _shape) = row(&mut numbers, &mut shape);
    for _ in 0..3 {
        assert_error(call(explode, &[tensor(&array)]), "RuntimeError", "`explode` panicked: row of 2");
    }
    assert_error(
        call(fail, &[text(c"index")]),
        "IndexError",
        "`here`: found this, allowed: that (from `fail`)",
    );
    assert_error(call(fail, &[text(c"memory")]), "MemoryError", "found this");
    assert_error(call(fail, &[text(c"nul")]), "RuntimeError", "a\\0b");
    assert_error(call(fail, &[text(c"anything")]), "RuntimeError", "anything");
    // SAFETY: a null pointer takes no class.
    let told = unsafe { interop_tvm_ffi_last_error(null_mut()) };
    // SAFETY: a C string that is valid until the next error.
    assert_eq!(unsafe { CStr::from_ptr(told) }, c"anything");
    // What needs the library says so.
    assert_error(
        call(ramp, &[int(3)]),
        "RuntimeError",
        "`libtvm_ffi`: not loaded; an array as a result needs it",
    );
}

#[test]
fn threads_have_errors_of_their_own() {
    assert_error(call(fail, &[text(c"here")]), "RuntimeError", "here");
    std::thread::spawn(|| {
        assert_eq!(last_error(), (String::new(), String::new()));
        assert_error(call(fail, &[text(c"there")]), "RuntimeError", "there");
    })
    .join()
    .unwrap();
    assert_eq!(last_error().1, "here");
}
