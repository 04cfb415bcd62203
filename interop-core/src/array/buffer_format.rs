//! Element types as format strings of the buffer protocol (PEP 3118): written, and scalars read. Structs `T{...}` are only written:
//! where the padding is cannot always be read from a format.

use core::ffi::c_long;
use std::ffi::CString;

use crate::array::dtype::{DType, clip};
use crate::array::struct_type::StructType;
use crate::error::{Error, ErrorKind, Result, text};

/// The format characters of Python's module `struct`.
const FORMATS: [(DType, &str); 14] = [
    (DType::BOOL, "?"),
    (DType::I8, "b"),
    (DType::I16, "h"),
    (DType::I32, "i"),
    (DType::I64, "q"),
    (DType::U8, "B"),
    (DType::U16, "H"),
    (DType::U32, "I"),
    (DType::U64, "Q"),
    (DType::F16, "e"),
    (DType::F32, "f"),
    (DType::F64, "d"),
    (DType::COMPLEX64, "Zf"),
    (DType::COMPLEX128, "Zd"),
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
    CString::new(format).map_err(|_| no_format("a name with a NUL in it"))
}

fn scalar(dtype: DType) -> Result<String> {
    if dtype.is_opaque() && dtype.typestr().is_some() {
        return Ok(format!("{}x", dtype.packed_bits() / 8));
    }
    let row = FORMATS.iter().find(|(listed, _)| *listed == dtype);
    row.map(|(_, format)| (*format).to_owned()).ok_or_else(|| {
        let allowed = "a type with a buffer protocol format; use DLPack for other types";
        Error::new(ErrorKind::DType, "dtype", dtype, allowed)
    })
}

/// `=` selects standard sizes without implicit padding, so offsets are exactly those of the struct.
fn record_format(struct_type: &StructType, size: usize) -> Result<String> {
    let mut end = 0;
    let mut fields = Vec::with_capacity(struct_type.fields.len() + 1);
    for field in &struct_type.fields {
        if field.name.contains(':') {
            return Err(no_format("a name with a colon in it"));
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
        None => Err(no_format("fields that overlap")),
    }
}

#[cold]
fn no_format(found: &str) -> Error {
    let allowed = "fields in increasing order with names that a buffer protocol format can hold";
    Error::new(ErrorKind::DType, "record", found, allowed)
}

/// Whether a format is that of a struct.
pub(crate) fn is_struct(format: &[u8]) -> bool {
    after_order(format).1.first() == Some(&b'T')
}

/// The element type of a format that is no struct, for elements of `itemsize` bytes.
///
/// # Errors
///
/// [`ErrorKind::DType`] for elements that are not numbers, bools or opaque bytes in the native byte order.
pub(crate) fn read_format(format: &[u8], itemsize: usize) -> Result<DType> {
    let (order, item) = after_order(format);
    let dtype = match opaque_bytes(item) {
        Some(bytes) => u16::try_from(bytes).ok().map(DType::opaque),
        None => Some(read_scalar(format, order, item)?),
    };
    dtype.filter(|dtype| dtype.packed_bits() / 8 == itemsize).ok_or_else(|| {
        let allowed = text!("the {itemsize} bytes of an item, and at most {}", u16::MAX);
        let found = text!("{:?}, which has other bytes", clip(&String::from_utf8_lossy(format)));
        Error::new(ErrorKind::DType, "format", found, allowed)
    })
}

/// The last character that states the byte order and the sizes, and what follows.
fn after_order(format: &[u8]) -> (u8, &[u8]) {
    let count = format.iter().take_while(|byte| b"@=<>!^".contains(byte)).count();
    (format[..count].last().copied().unwrap_or(b'@'), &format[count..])
}

/// The number of opaque bytes, as in `4x` and `xxxx`. A number that is too large stands for all that are.
fn opaque_bytes(item: &[u8]) -> Option<usize> {
    let (number, last) = item.split_at(item.len().checked_sub(1)?);
    match (core::str::from_utf8(number).ok()?, last) {
        (digits, b"x") if !digits.is_empty() && number.iter().all(u8::is_ascii_digit) => {
            Some(digits.parse().unwrap_or(usize::MAX))
        }
        _ => item.iter().all(|byte| *byte == b'x').then_some(item.len()),
    }
}

fn read_scalar(format: &[u8], order: u8, item: &[u8]) -> Result<DType> {
    let signed = |bytes| if bytes == 8 { DType::I64 } else { DType::I32 };
    let unsigned = |bytes| if bytes == 8 { DType::U64 } else { DType::U32 };
    let is_native = matches!(order, b'@' | b'^');
    let long = if is_native { size_of::<c_long>() } else { 4 };
    let dtype = match item {
        b"l" => Some(signed(long)),
        b"L" => Some(unsigned(long)),
        b"n" if is_native => Some(signed(size_of::<usize>())),
        b"N" if is_native => Some(unsigned(size_of::<usize>())),
        _ => FORMATS.iter().find(|(_, listed)| listed.as_bytes() == item).map(|(dtype, _)| *dtype),
    };
    let refusal = |allowed| {
        let found = text!("{:?}", clip(&String::from_utf8_lossy(format)));
        Error::new(ErrorKind::DType, "format", found, allowed)
    };
    let dtype = dtype.ok_or_else(|| {
        let error = refusal("numbers, bools, opaque bytes (`4x`), and structs of these");
        if item == b"g" { error.with_python_hint(LONG_DOUBLE) } else { error }
    })?;
    let is_foreign = match order {
        b'<' => cfg!(target_endian = "big"),
        b'>' | b'!' => cfg!(target_endian = "little"),
        _ => false,
    };
    if is_foreign && dtype.packed_bits() > 8 {
        let error = refusal("the byte order of this machine");
        let hint = "pass `y.astype(y.dtype.newbyteorder(\"=\"))` of `y = numpy.asarray(x)`";
        return Err(error.with_python_hint(hint));
    }
    Ok(dtype)
}

/// Of `long double` no protocol has a type: it differs between processors.
const LONG_DOUBLE: &str = "pass `numpy.asarray(x).astype(\"float64\")`, which rounds a `longdouble`";

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

    #[test]
    fn written_formats_are_read_back() {
        for code in [0, 1, 2, 5, 6] {
            for bits in [8, 16, 32, 64, 128] {
                let dtype = DType::new(code, bits, 1);
                let Ok(format) = format_of(dtype, None) else { continue };
                assert_eq!(read_format(format.as_bytes(), usize::from(bits) / 8), Ok(dtype));
            }
        }
    }

    #[test]
    fn formats_of_numpy_and_ctypes() {
        for (format, itemsize, found) in [
            ("<i", 4, "int32"),
            (">B", 1, "uint8"),
            ("=l", 4, "int32"),
            ("<L", 4, "uint32"),
            ("n", size_of::<usize>(), if size_of::<usize>() == 8 { "int64" } else { "int32" }),
            ("4x", 4, "opaque32"),
            ("x", 1, "opaque8"),
            ("xxx", 3, "opaque24"),
            ("=Zd", 16, "complex128"),
        ] {
            assert_eq!(read_format(format.as_bytes(), itemsize).map(DType::name).as_deref(), Ok(found));
            assert!(!is_struct(format.as_bytes()));
        }
        for format in ["T{f:x:}", "^T{B:a:7xd:b:}", "<T{<f:a:}"] {
            assert!(is_struct(format.as_bytes()), "{format}");
        }
    }

    #[test]
    fn other_formats_are_refused() {
        for (format, itemsize, words) in [
            (">f", 4, "byte order"),
            ("!q", 8, "byte order"),
            ("B", 9, "9 bytes"),
            ("f", 8, "8 bytes"),
            ("2f", 8, "numbers"),
            ("ff", 8, "numbers"),
            ("", 1, "numbers"),
            ("c", 1, "numbers"),
            ("5s", 5, "numbers"),
            ("w", 4, "numbers"),
            ("O", 8, "numbers"),
            ("&<i", 8, "numbers"),
            ("=n", 8, "numbers"),
            ("g", 16, "numbers"),
            ("Zg", 32, "numbers"),
            ("(2)f", 8, "numbers"),
            ("0x", 1, "1 bytes"),
            ("70000x", 70000, "65535"),
            ("99999999999999999999x", 1, "65535"),
        ] {
            let refused = read_format(format.as_bytes(), itemsize).unwrap_err();
            assert_eq!((refused.kind(), refused.location()), (ErrorKind::DType, "format"));
            assert!(refused.to_string().contains(words), "{format}: {refused}");
        }
    }

    #[test]
    fn no_text_panics() {
        let alphabet = b"T{}():,x3fdZB@=<0:a\xff";
        let mut state = 1_u64;
        for _ in 0..200_000 {
            let mut format = Vec::new();
            for _ in 0..5 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                format.push(alphabet[(state >> 33) as usize % alphabet.len()]);
            }
            let _ = (is_struct(&format), read_format(&format, 4));
        }
    }
}
