//! The key `descr`: structs of fields, with nesting and padding.

use interop_core::element::{MiniFloat, StructField, StructType};
use interop_core::protocols::cai::{CudaArrayInterface, DescrEntry, DescrType};
use interop_core::{CudaArray, DType, Device, Element, ErrorKind, FromArray, Import, Lease, SharedBuffer};

use proptest::prelude::*;

use crate::support::arrays::{Array, Claimed};
use crate::support::brute_force::settings;
use crate::support::{Told, assert_told, signed};

type Float8E4m3fn = MiniFloat<{ DType::F8_E4M3FN.code }>;

fn entry(name: &str, typestr: &str, shape: &[i64]) -> DescrEntry {
    DescrEntry { name: name.into(), dtype: DescrType::Typestr(typestr.into()), shape: shape.to_vec() }
}

fn nested(name: &str, entries: Vec<DescrEntry>, shape: &[i64]) -> DescrEntry {
    DescrEntry { name: name.into(), dtype: DescrType::Nested(entries), shape: shape.to_vec() }
}

fn with_descr(typestr: &str, descr: Vec<DescrEntry>) -> CudaArrayInterface {
    CudaArrayInterface {
        shape: vec![2],
        typestr: typestr.into(),
        data: (0x7000, false),
        version: 3,
        descr: Some(descr),
        ..CudaArrayInterface::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Inner {
    tag: u8,
    value: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Outer {
    name: [u8; 3],
    inner: [Inner; 2],
    weight: f64,
    last: i16,
}

/// R23: the fields and their gaps are exported and imported field by field; their sizes sum to that of the typestr.
#[test]
fn structs_are_written_and_read() {
    let array = Array::new(Claimed::gpu::<Outer>(4, 0), &[2, 2]);
    let interface = array.to_cai().unwrap();
    let inner = vec![entry("tag", "|u1", &[]), entry("", "|V3", &[]), entry("value", "<i4", &[])];
    let fields = vec![
        entry("name", "|u1", &[3]),
        entry("", "|V1", &[]),
        nested("inner", inner, &[2]),
        entry("", "|V4", &[]),
        entry("weight", "<f8", &[]),
        entry("last", "<i2", &[]),
        entry("", "|V6", &[]),
    ];
    assert_eq!((interface.typestr.as_str(), interface.descr.as_ref()), ("|V40", Some(&fields)));
    let back = interface.info().unwrap();
    assert_eq!(back.struct_type(), array.info().unwrap().struct_type());
    assert_eq!((back.dtype(), back.nbytes()), (DType::opaque(40), 160));
}

/// Padding in several pieces is the same blob as padding in one piece (found by the fuzz target).
#[test]
fn padding_alone_is_no_record() {
    let pieces = with_descr("|V12", vec![entry("", "|V4", &[]), entry("", "|V4", &[2])]).info().unwrap();
    assert_eq!(pieces.struct_type(), None);
    assert_eq!(pieces, with_descr("|V12", vec![entry("", "|V12", &[])]).info().unwrap());
}

/// R42: a single simple field says no more than the typestr (CuPy always sends it).
#[test]
fn one_plain_field_is_no_record() {
    for (typestr, descr) in [
        ("<f4", entry("", "<f4", &[])),
        ("<f4", entry("x", "<f4", &[])),
        ("|b1", entry("", "|b1", &[])),
        ("|V12", entry("", "|V12", &[])),
    ] {
        let info = with_descr(typestr, vec![descr]).info().unwrap();
        assert_eq!((info.struct_type(), info.dtype()), (None, DType::from_typestr(typestr).unwrap()));
    }
    let info = with_descr("|V12", vec![entry("blob", "|V12", &[])]).info().unwrap();
    let blob = StructField {
        name: "blob".into(),
        offset: 0,
        dtype: DType::opaque(12),
        shape: vec![],
        struct_type: None,
    };
    assert_eq!(info.struct_type(), Some(&StructType { fields: vec![blob] }));
    let error = with_descr("<f4", vec![entry("", "<f4", &[1])]).info().unwrap_err();
    assert_told(&error, (ErrorKind::DType, "descr", "float32[1]", "one field of type \"<f4\""));
}

/// An entry without a name is padding; it moves the fields behind it.
#[test]
fn padding_has_no_name() {
    let descr =
        vec![entry("", "|V2", &[2]), entry("a", "<i2", &[]), entry("", "|V1", &[]), entry("b", "|u1", &[])];
    let info = with_descr("|V8", descr).info().unwrap();
    let offsets: Vec<_> =
        info.struct_type().unwrap().fields.iter().map(|field| (field.name.as_str(), field.offset)).collect();
    assert_eq!(offsets, [("a", 4), ("b", 7)]);
}

/// Sizes that do not match, and values that cannot be read.
#[test]
fn refusals() {
    let deep = (0..20).fold(vec![entry("x", "<f4", &[])], |inner, _| vec![nested("n", inner, &[])]);
    let rows: Vec<(CudaArrayInterface, Told)> = vec![
        (with_descr("|V8", vec![]), (ErrorKind::DType, "descr", "fields of 0 bytes", "8 bytes in all")),
        (
            with_descr("|V8", vec![entry("a", "<f4", &[])]),
            (ErrorKind::DType, "descr", "fields of 4 bytes", "\"|V8\""),
        ),
        (
            with_descr("|V8", vec![entry("a", "<f4", &[3])]),
            (ErrorKind::DType, "descr", "12 bytes", "8 bytes"),
        ),
        (
            with_descr("<f8", vec![entry("a", "<f4", &[]), entry("b", "<f4", &[])]),
            (
                ErrorKind::DType,
                "descr",
                "struct {a: float32 @0, b: float32 @4}",
                "a typestr \"|V8\" for a struct",
            ),
        ),
        (with_descr("<f4", vec![entry("", "<i4", &[])]), (ErrorKind::DType, "descr", "int32", "\"<f4\"")),
        (
            with_descr("|V4", vec![entry("a", ">f4", &[])]),
            (ErrorKind::DType, "descr", "\">f4\"", "native byte order"),
        ),
        (with_descr("|V2", vec![entry("a", "<V2", &[])]), (ErrorKind::DType, "descr", "\"<V2\"", "DLPack")),
        (with_descr("|V8", vec![entry("a", "|O8", &[])]), (ErrorKind::DType, "descr", "\"|O8\"", "")),
        (
            with_descr("|V4", vec![entry("a", "|u1", &[-4])]),
            (ErrorKind::Shape, "descr field \"a\"", "the extent -4", "0 or greater"),
        ),
        (
            with_descr("|V4", vec![entry("a", "<f8", &[1 << 62])]),
            (ErrorKind::DType, "descr", "struct of", "65535 bytes"),
        ),
        (
            with_descr("|V4", vec![entry("a", "<f8", &[i64::MAX, i64::MAX])]),
            (ErrorKind::DType, "descr", "", "65535"),
        ),
        (
            with_descr("|V4", vec![nested("a", vec![], &[])]),
            (ErrorKind::DType, "descr", "struct of 0 bytes", "1 to"),
        ),
        (with_descr("|V4", deep), (ErrorKind::DType, "descr", "structs nested deeper", "16 deep")),
    ];
    for (interface, told) in rows {
        assert_told(&interface.info().unwrap_err(), told);
    }
}

/// R17: a field without a typestr is refused like an array of its type; no other type is written instead.
#[test]
fn fields_without_a_typestr_are_refused() {
    #[derive(Clone, Copy, Element)]
    #[repr(C)]
    struct Scaled {
        scale: f32,
        values: [Float8E4m3fn; 4],
    }
    let error = Array::new(Claimed::gpu::<Scaled>(2, 0), &[2]).to_cai().unwrap_err();
    assert_told(&error, (ErrorKind::DType, "descr field \"values\"", "float8_e4m3fn", "use DLPack"));
}

/// An imported struct array matches the Rust struct with the same fields, and no other.
#[test]
#[expect(unsafe_code, reason = "an interface owns nothing, so importing it is a promise")]
fn records_are_compared_field_by_field() {
    let import = |descr: Vec<DescrEntry>| {
        // SAFETY: nothing is read at the address.
        unsafe { Import::from_cai_on_device(&with_descr("|V8", descr), Device::cuda(0), ()) }.unwrap()
    };
    let right = vec![entry("tag", "|u1", &[]), entry("", "|V3", &[]), entry("value", "<i4", &[])];
    let array: Array<Lease<Inner>> = Array::from_import(import(right.clone())).unwrap();
    assert_eq!(array.to_cai().unwrap().descr, Some(right.clone()));
    let mut renamed = right.clone();
    renamed[2].name = "valve".into();
    let mut retyped = right.clone();
    retyped[2] = entry("value", "<f4", &[]);
    let moved = vec![entry("tag", "|u1", &[]), entry("value", "<i4", &[]), entry("", "|V3", &[])];
    for descr in [renamed, retyped, moved, vec![entry("", "|V8", &[])]] {
        let refused = Array::<Lease<Inner>>::from_import(import(descr)).unwrap_err();
        assert_told(
            &refused.error,
            (ErrorKind::DType, "dtype", "", "struct {tag: uint8 @0, value: int32 @4}"),
        );
    }
}

/// Generates a struct with any fields and gaps of any size: its entries and its size in bytes.
fn structs() -> impl Strategy<Value = (Vec<DescrEntry>, usize)> {
    let sized = [("|b1", 1), ("|u1", 1), ("<i2", 2), ("<f4", 4), ("<c8", 8), ("|V3", 3)];
    let plain = prop::sample::select(sized.to_vec())
        .prop_map(|(typestr, bytes)| (DescrType::Typestr(typestr.into()), bytes));
    let fields = |item: BoxedStrategy<(DescrType, usize)>| {
        let field = (0_usize..4, item, prop::collection::vec(1_i64..4, 0..3));
        prop::collection::vec(field, 1..5).prop_map(|fields| {
            let (mut entries, mut end) = (Vec::new(), 0);
            for (number, (gap, (dtype, bytes), shape)) in fields.into_iter().enumerate() {
                if gap > 0 {
                    entries.push(entry("", &format!("|V{gap}"), &[]));
                }
                end += gap + bytes * signed::<i64, usize>(shape.iter().product());
                entries.push(DescrEntry { name: format!("f{number}"), dtype, shape });
            }
            (entries, end)
        })
    };
    let inner =
        fields(plain.clone().boxed()).prop_map(|(entries, bytes)| (DescrType::Nested(entries), bytes));
    fields(prop_oneof![plain, inner].boxed())
}

proptest! {
    #![proptest_config(settings())]

    /// R23: an imported descr is exported unchanged, field by field and gap by gap.
    #[test]
    fn structs_of_any_fields_come_back((entries, bytes) in structs()) {
        let interface = with_descr(&format!("|V{bytes}"), entries);
        let info = interface.info().unwrap();
        prop_assert_eq!(info.nbytes(), 2 * bytes);
        // SAFETY: nothing is read at the address.
        #[expect(unsafe_code, reason = "an interface owns nothing, so importing it is a promise")]
        let import = unsafe { Import::from_cai_on_device(&interface, Device::cuda(0), ()) }.unwrap();
        let array: Array<SharedBuffer> = Array::from_import(import).unwrap();
        prop_assert_eq!(array.to_cai().unwrap(), interface);
    }
}

/// A field has as many axes as an array, and no more.
#[test]
fn fields_have_as_many_axes_as_arrays() {
    let read = |axes: usize| with_descr("|V4", vec![entry("x", "<f4", &vec![1; axes])]).info();
    let info = read(64).unwrap();
    assert_eq!(info.struct_type().unwrap().fields[0].shape, [1; 64]);
    assert_told(&read(65).unwrap_err(), (ErrorKind::Rank, "descr field \"x\"", "65 axes", "at most 64 axes"));
}

/// A nested record includes the padding at its end.
#[test]
fn a_nested_record_is_padded_to_its_end() {
    #[derive(Clone, Copy, Element)]
    #[repr(C)]
    struct Ragged {
        value: i32,
        tag: u8,
    }
    #[derive(Clone, Copy, Element)]
    #[repr(C)]
    struct Around {
        inner: Ragged,
        more: u32,
    }
    let inner = vec![entry("value", "<i4", &[]), entry("tag", "|u1", &[]), entry("", "|V3", &[])];
    let interface = Array::new(Claimed::gpu::<Around>(1, 0), &[1]).to_cai().unwrap();
    assert_eq!(interface.descr, Some(vec![nested("inner", inner, &[]), entry("more", "<u4", &[])]));
}
