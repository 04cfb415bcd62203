//! Each invalid description is an error that names the location, the value found there and the allowed values.

use interop_core::element::{StructField, StructType};
use interop_core::protocols::{RawDescriptor, Strides};
use interop_core::{DType, Device, DeviceType, ErrorKind, Order};

use crate::support::{Told, assert_told};

const ADDRESS: usize = 0x1000;

/// The description of a contiguous `float32` array of this shape, with some fields replaced.
macro_rules! claims {
    ($shape:expr $(, $field:ident: $value:expr)*) => {
        RawDescriptor { $($field: $value,)* ..RawDescriptor::new(ADDRESS, Device::cuda(0), $shape) }
    };
}

/// Checks that each of these descriptions is refused with this error.
fn refused(rows: Vec<(RawDescriptor<'_>, Told)>) {
    for (claims, told) in rows {
        let shown = format!("{claims:?}");
        match claims.validate() {
            Ok(info) => panic!("{shown} became {info:?}"),
            Err(error) => assert_told(&error, told),
        }
    }
}

/// R84: the number of axes and their extents.
#[test]
fn shapes() {
    let negative = |place, found| (ErrorKind::Shape, place, found, "0 or greater");
    refused(vec![
        (claims!(&[-1]), negative("shape[0]", "-1")),
        (claims!(&[2, 3, i64::MIN]), negative("shape[2]", "-9223372036854775808")),
        // Bug 165: an extent of 0 next to it makes no difference.
        (claims!(&[0, -1]), negative("shape[1]", "-1")),
        (claims!(&[1; 65]), (ErrorKind::Rank, "shape", "65 axes", "at most 64 axes")),
        (claims!(&[-1; 1000]), (ErrorKind::Rank, "shape", "1000 axes", "at most 64 axes")),
    ]);
}

/// R30, R85, bugs 75, 81, 82: strides.
#[test]
fn strides() {
    let count = |found, allowed| (ErrorKind::Strides, "strides", found, allowed);
    let split = |place, found| (ErrorKind::Strides, place, found, "a multiple of the item size, 4 bytes");
    refused(vec![
        (claims!(&[2, 3], strides: Strides::Elements(&[1])), count("1 stride", "2, one for each axis")),
        (claims!(&[2, 3], strides: Strides::Bytes(&[12, 4, 4])), count("3 strides", "2, one for each axis")),
        (claims!(&[], strides: Strides::Elements(&[1])), count("1 stride", "0, one for each axis")),
        (claims!(&[0, 3], strides: Strides::Elements(&[])), count("0 strides", "2, one for each axis")),
        (claims!(&[2, 3], strides: Strides::Bytes(&[14, 4])), split("strides[0]", "14 bytes")),
        (claims!(&[1, 3], strides: Strides::Bytes(&[14, -6])), split("strides[1]", "-6 bytes")),
        (claims!(&[3], strides: Strides::Bytes(&[5])), split("strides[0]", "5 bytes")),
        (
            claims!(&[4], dtype: DType::F4_E2M1FN, strides: Strides::Bytes(&[1])),
            count("strides in bytes", "strides in elements"),
        ),
    ]);
}

/// Bugs 98, 165, 168, R77: sizes, offsets and addresses that do not fit.
#[test]
fn overflow() {
    let told = |place, found| (ErrorKind::Overflow, place, found, "the address space");
    let wide = DType::opaque(u16::MAX);
    refused(vec![
        (claims!(&[1 << 32, 1 << 32, 16], dtype: DType::I32), told("shape", "[4294967296, 4294967296, 16]")),
        (claims!(&[i64::MAX, 2]), told("shape", "9223372036854775807")),
        // The number of elements fits, but not their size in bytes.
        (claims!(&[1 << 61]), told("shape", "2305843009213693952")),
        (claims!(&[1 << 47, 2], dtype: wide), told("shape", "140737488355328")),
        (claims!(&[2], strides: Strides::Elements(&[i64::MAX])), told("strides", "9223372036854775807")),
        (claims!(&[2], strides: Strides::Elements(&[i64::MAX / 8])), told("strides", "1152921504606846975")),
        (claims!(&[2], strides: Strides::Elements(&[i64::MIN])), told("strides", "-9223372036854775808")),
        // Below address 0, and beyond the last address.
        (claims!(&[2], strides: Strides::Bytes(&[-0x1004])), told("strides", "at 0x1000")),
        (claims!(&[2], address: usize::MAX - 6), told("shape", "at 0xfffffffffffffff9")),
    ]);
}

/// R77: `byte_offset` is checked separately.
#[test]
fn byte_offset() {
    let told = |found| (ErrorKind::Overflow, "byte_offset", found, "an offset that fits the address space");
    refused(vec![
        (claims!(&[1], byte_offset: u64::MAX), told("18446744073709551615 on top of address 0x1000")),
        (claims!(&[1], address: usize::MAX, byte_offset: 1), told("1 on top of address 0xffffffffffffffff")),
        (claims!(&[1], byte_offset: 1 << 63), told("9223372036854775808")),
    ]);
}

/// R32, R80: a null address with elements.
#[test]
fn null() {
    let told = (ErrorKind::NullPointer, "data", "a null pointer", "the array has elements");
    refused(vec![
        (claims!(&[1], address: 0), told),
        (claims!(&[], address: 0), told),
        // An offset does not make null an address.
        (claims!(&[2, 3], address: 0, byte_offset: 64), told),
    ]);
    // A part of an array whose memory was freed.
    let near = |found| (ErrorKind::NullPointer, "data", found, "the address of memory");
    refused(vec![
        (claims!(&[1], address: 4), near("the address 0x4, an offset from null")),
        (claims!(&[1], address: 4095), near("0xfff")),
        (claims!(&[2], address: 4, byte_offset: 60), near("0x40")),
    ]);
    assert!(claims!(&[1], address: 4096).validate().is_ok());
    assert!(claims!(&[0], address: 4).validate().is_ok());
}

/// `CuPy` divides the bytes of negative strides as unsigned numbers.
#[test]
fn strides_that_were_negative() {
    for (dtype, elements, bytes) in
        [(DType::F32, 3, -8_i64), (DType::F64, 2, -8), (DType::COMPLEX128, 7, -48)]
    {
        let stride = i64::try_from(bytes.cast_unsigned() / u64::from(dtype.bits / 8)).unwrap();
        let shape = [elements];
        let strides = Strides::Elements(core::slice::from_ref(&stride));
        let descriptor =
            RawDescriptor { dtype, strides, ..RawDescriptor::new(ADDRESS, Device::cuda(0), &shape) };
        let error = descriptor.validate().unwrap_err();
        assert_eq!((error.kind(), error.location()), (ErrorKind::Overflow, "strides"));
        assert!(error.to_string().contains("CuPy writes negative strides"), "{error}");
    }
    let far = RawDescriptor {
        strides: Strides::Elements(&[1 << 61]),
        ..RawDescriptor::new(ADDRESS, Device::CPU, &[3])
    };
    assert!(!far.validate().unwrap_err().to_string().contains("CuPy"));
}

/// R56, R57, bugs 112, 127: unsupported devices, reported by name and number.
#[test]
fn devices() {
    let on = |device_type, device_id| Some(Device { device_type: DeviceType(device_type), device_id });
    let told = |found| {
        (ErrorKind::Device, "device_type", found, "CPU (1), CUDA (2), CUDAHost (3) and CUDAManaged (13)")
    };
    refused(vec![
        (claims!(&[1], device: on(0, 0)), told("unknown (0), memory of an unknown device")),
        (claims!(&[1], device: on(4, 0)), told("OpenCL (4)")),
        (claims!(&[1], device: on(5, 0)), told("unknown (5)")),
        (claims!(&[1], device: on(10, 0)), told("ROCM (10)")),
        (claims!(&[1], device: on(18, 0)), told("Trn (18)")),
        (claims!(&[1], device: on(19, 0)), told("(19)")),
        (claims!(&[1], device: on(21, 0)), told("(21)")),
        (claims!(&[1], device: on(i32::MIN, 0)), told("(-2147483648)")),
        (claims!(&[0], device: on(7, 0)), told("Vulkan (7)")),
        (claims!(&[1], device: on(2, -1)), (ErrorKind::Device, "device_id", "-1", "0 or greater")),
    ]);
}

/// Bug 89: memory whose size is known.
#[test]
fn bounds() {
    let told = |found, allowed| (ErrorKind::OutOfBounds, "shape", found, allowed);
    let memory = || Some(0x1000..0x1018);
    let whole = "bytes 0 to 24, the 24 bytes of memory at 0x1000";
    refused(vec![
        (claims!(&[7], memory: memory()), told("[7] of float32 with strides [1]: bytes 0 to 28", whole)),
        (claims!(&[2, 3], memory: Some(0x1000..0x1017)), told("bytes 0 to 24", "bytes 0 to 23")),
        (claims!(&[2, 3], byte_offset: 4, memory: memory()), told("bytes 4 to 28", whole)),
        (
            claims!(&[2, 3], strides: Strides::Elements(&[4, 1]), memory: memory()),
            told("with strides [4, 1]: bytes 0 to 28", whole),
        ),
        (claims!(&[2], strides: Strides::Bytes(&[-4]), memory: memory()), told("bytes -4 to 4", whole)),
        (claims!(&[1], memory: Some(0x2000..0x3000)), told("bytes -4096 to -4092", "bytes 0 to 4096")),
        (claims!(&[1], memory: Some(0..0)), told("bytes 4096 to 4100", "the 0 bytes")),
    ]);
}

/// The fields of a record must lie within its bytes, and its type must have that size. R23: the fields are in
/// ascending order without overlap, because a `descr` cannot express anything else.
#[test]
fn records() {
    let field =
        |offset, dtype| StructField { name: "a".into(), offset, dtype, shape: vec![], struct_type: None };
    let blob = DType::opaque(8);
    let shaped = |shape: &[usize]| StructField { shape: shape.to_vec(), ..field(0, DType::F32) };
    let inner = StructType { fields: vec![field(4, DType::F64)] };
    let rows = [
        (DType::F4_E2M1FN, field(0, DType::F4_E2M1FN)),
        (DType::F64, field(0, DType::F64)),
        (blob, field(0, DType::F4_E2M1FN)),
        (blob, field(0, DType::new(2, 32, 0))),
        (blob, field(4, DType::F64)),
        (blob, field(usize::MAX, DType::U8)),
        (blob, shaped(&[3])),
        (blob, shaped(&[1 << 62, 4])),
        (blob, StructField { struct_type: Some(inner), ..field(0, blob) }),
    ];
    for (dtype, field) in rows {
        let struct_type = StructType { fields: vec![field] };
        let error = claims!(&[1], dtype: dtype, struct_type: Some(&struct_type))
            .validate()
            .expect_err("a bad record");
        assert_eq!(error.kind(), ErrorKind::DType, "{struct_type}: {error}");
    }
    for (first, second) in [(4, 0), (0, 0), (0, 3)] {
        let struct_type = StructType { fields: vec![field(first, DType::F32), field(second, DType::F32)] };
        let error =
            claims!(&[1], dtype: blob, struct_type: Some(&struct_type)).validate().expect_err("no order");
        assert_told(&error, (ErrorKind::DType, "record", "the field \"a\"", "in increasing order"));
    }
    let struct_type = StructType { fields: vec![shaped(&[2])] };
    let info = claims!(&[1], dtype: blob, struct_type: Some(&struct_type)).validate().unwrap();
    assert_eq!(info.struct_type(), Some(&struct_type));
}

/// An unknown type is reported as such; an invalid shape is reported before its memory is checked.
#[test]
fn the_error_is_the_one_that_explains_the_others() {
    let all_wrong = claims!(&[-1], dtype: DType::new(4, 32, 1), address: 0);
    assert_eq!(all_wrong.clone().validate().unwrap_err().kind(), ErrorKind::DType);
    let typed = RawDescriptor { dtype: DType::F32, ..all_wrong };
    assert_eq!(typed.clone().validate().unwrap_err().kind(), ErrorKind::Shape);
    let shaped = RawDescriptor { shape: &[2], strides: Strides::Elements(&[i64::MAX]), ..typed };
    assert_eq!(shaped.clone().validate().unwrap_err().kind(), ErrorKind::Overflow);
    let strided = RawDescriptor { strides: Strides::Contiguous(Order::F), ..shaped };
    assert_eq!(strided.validate().unwrap_err().kind(), ErrorKind::NullPointer);
}

/// An error message is one line with all parts; the first location is kept.
#[test]
fn messages_are_one_line() {
    let error = claims!(&[2, -3]).validate().unwrap_err().with_origin("cupy.ndarray").with_origin("dict");
    assert_eq!(error.to_string(), "`shape[1]`: found -3, allowed: 0 or greater (from cupy.ndarray)");
    assert_eq!(error.origin(), Some("cupy.ndarray"));
    assert_eq!(format!("{error:?}"), format!("Error(Shape, {error})"));
    let source: &dyn std::error::Error = &error;
    assert!(source.source().is_none());
}
