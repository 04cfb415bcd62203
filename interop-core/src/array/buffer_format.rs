//! Element types as format strings of the buffer protocol (PEP 3118), and struct elements as `T{...}`.

use core::ffi::c_long;
use std::ffi::CString;

use crate::array::dtype::DType;
use crate::array::struct_type::StructType;
use crate::error::{Error, ErrorKind, Result};

/// The kind and size of a typestr, and the format character of Python's module `struct`.
const FORMATS: [(&str, &str); 14] = [
    ("b1", "?"),
    ("i1", "b"),
    ("i2", "h"),
    ("i4", "i"),
    ("i8", "q"),
    ("u1", "B"),
    ("u2", "H"),
    ("u4", "I"),
    ("u8", "Q"),
    ("f2", "e"),
    ("f4", "f"),
    ("f8", "d"),
    ("c8", "Zf"),
    ("c16", "Zd"),
];

/// The format of the elements. Scalars use native formats, because `memoryview` reads no others.
///
/// # Errors
///
/// [`ErrorKind::DType`] for types without a format in the protocol, such as `bfloat16`.
pub(crate) fn format_of(dtype: DType, struct_type: Option<&StructType>) -> Result<CString> {
    let format = match struct_type {
        Some(struct_type) => record_format(struct_type, dtype.packed_bits() / 8)?,
        // NumPy distinguishes `long` and `long long`. Its `int64` is `long` where `long` has 64 bits.
        None if size_of::<c_long>() == 8 && dtype == DType::I64 => "l".to_owned(),
        None if size_of::<c_long>() == 8 && dtype == DType::U64 => "L".to_owned(),
        None => scalar(dtype)?,
    };
    CString::new(format).map_err(|_| not_expressible("a name with a NUL in it"))
}

fn scalar(dtype: DType) -> Result<String> {
    let allowed = "a type with a buffer protocol format; use DLPack for other types";
    let none = || Error::new(ErrorKind::DType, "dtype", dtype, allowed);
    let typestr = dtype.typestr().ok_or_else(none)?;
    // The byte order is the native one; strip it.
    let kind = &typestr.as_str()[1..];
    if let Some(bytes) = kind.strip_prefix('V') {
        return Ok(format!("{bytes}x"));
    }
    FORMATS
        .iter()
        .find(|(typestr, _)| *typestr == kind)
        .map(|(_, format)| (*format).to_owned())
        .ok_or_else(none)
}

/// `=` selects standard sizes without implicit padding, so offsets are exactly those of the struct.
fn record_format(struct_type: &StructType, size: usize) -> Result<String> {
    let mut end = 0;
    let mut fields = Vec::with_capacity(struct_type.fields.len() + 1);
    for field in &struct_type.fields {
        if field.name.contains(':') {
            return Err(not_expressible("a name with a colon in it"));
        }
        let padding = padding_between(end, field.offset)?;
        let axes: Vec<String> = field.shape.iter().map(usize::to_string).collect();
        let axes = if axes.is_empty() { String::new() } else { format!("({})", axes.join(",")) };
        let item = match &field.struct_type {
            Some(nested) => record_format(nested, field.dtype.packed_bits() / 8)?,
            None => format!("={}", scalar(field.dtype)?),
        };
        fields.push(format!("{padding}{axes}{item}:{}:", field.name));
        end = field.offset + field.size().unwrap_or(0);
    }
    fields.push(padding_between(end, size)?);
    Ok(format!("T{{{}}}", fields.concat()))
}

/// The padding between two fields.
fn padding_between(end: usize, next: usize) -> Result<String> {
    match next.checked_sub(end) {
        Some(0) => Ok(String::new()),
        Some(bytes) => Ok(format!("{bytes}x")),
        None => Err(not_expressible("fields that overlap")),
    }
}

#[cold]
fn not_expressible(found: &str) -> Error {
    let allowed = "fields in increasing order with names that a buffer protocol format can hold";
    Error::new(ErrorKind::DType, "record", found, allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::struct_type::StructField;

    fn field(name: &str, offset: usize, dtype: DType) -> StructField {
        StructField { name: name.into(), offset, dtype, shape: Vec::new(), struct_type: None }
    }

    #[test]
    fn every_type_with_a_typestr_has_a_format() {
        for code in 0..=u8::MAX {
            for bits in [4, 6, 8, 16, 32, 64, 128] {
                let dtype = DType::new(code, bits, 1);
                assert_eq!(dtype.typestr().is_some(), format_of(dtype, None).is_ok(), "{dtype}");
            }
        }
    }

    #[test]
    fn gaps_are_written_out() {
        let mut inner = field("a", 4, DType::F32);
        inner.shape = vec![2, 3];
        let struct_type =
            StructType { fields: vec![field("x", 0, DType::U8), inner, field("y", 32, DType::I64)] };
        let format = format_of(DType::opaque(48), Some(&struct_type)).unwrap();
        assert_eq!(format.to_str(), Ok("T{=B:x:3x(2,3)=f:a:4x=q:y:8x}"));
    }

    #[test]
    fn fields_without_a_format_are_refused() {
        for fields in [
            vec![field("a:b", 0, DType::U8)],
            vec![field("a\0b", 0, DType::U8)],
            vec![field("a", 0, DType::F64), field("b", 4, DType::F32)],
            vec![field("a", 0, DType::BF16)],
        ] {
            let refused = format_of(DType::opaque(8), Some(&StructType { fields })).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::DType, "{refused}");
        }
    }
}
