//! Element types as format strings of the buffer protocol (PEP 3118), and struct elements as `T{...}`: written and read.

use core::ffi::c_long;
use std::ffi::CString;

use crate::array::dims::MAX_NDIM;
use crate::array::dtype::{COMPLEX, DType, clip};
use crate::array::struct_type::{MAX_DEPTH, StructField, StructType};
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

/// The element type of a format, for elements of `itemsize` bytes.
///
/// The format of a struct does not say everything. `NumPy` writes padding as `x` between fields, but not at the end of a
/// struct, even of a nested one. `ctypes` of Python 3.11 writes no padding. A format is refused if the place of the
/// padding is not certain.
///
/// # Errors
///
/// [`ErrorKind::DType`] for elements that are not numbers, opaque bytes or structs of these in the native byte order.
pub(crate) fn read_format(format: &[u8], itemsize: usize) -> Result<Item> {
    let mut reader = Reader { format, itemsize, at: 0, order: b'@', offset: 0, start: 0, is_open: false };
    let (dtype, struct_type) = reader.item(MAX_DEPTH)?;
    if reader.at != format.len() {
        return Err(reader.refusal("a single item, such as `f` or `T{...}`"));
    }
    let size = dtype.packed_bits() / 8;
    let Some(mut struct_type) = struct_type else {
        return if size == itemsize { Ok((dtype, None)) } else { Err(reader.wrong_size(size)) };
    };
    let gap = itemsize - size;
    if gap > 0 && format.contains(&b'<') {
        let hint = "add the padding to the fields, such as `(\"_pad\", ctypes.c_uint8 * 7)`";
        return Err(reader.wrong_size(size).with_python_hint(hint));
    }
    reader.close(&mut struct_type.fields, gap)?;
    Ok((reader.opaque(itemsize)?, Some(struct_type)))
}

/// A format that is being read.
struct Reader<'a> {
    format: &'a [u8],
    itemsize: usize,
    at: usize,
    /// The last character that states the byte order, the sizes and the alignment.
    order: u8,
    /// The offset in the element of the next item, and of the struct that is being read.
    offset: usize,
    start: usize,
    /// Whether the last item was an array of structs. The bytes after it may be padding of each of these.
    is_open: bool,
}

/// The items that are read.
const ITEMS: &str = "numbers, bools, opaque bytes (`4x`), structs of these, and in structs arrays (`(3)f`)";

/// Of `long double` no protocol has a type: it differs between processors.
const LONG_DOUBLE: &str = "call `x.astype(\"float64\")`, which rounds a `longdouble`";

/// The type of an item, and the fields of one that is a struct.
type Item = (DType, Option<StructType>);

impl Reader<'_> {
    fn item(&mut self, depth: usize) -> Result<Item> {
        self.eat_order();
        if self.eat(b'T') {
            return self.structure(depth);
        }
        let dtype = match self.number()? {
            Some(bytes) if self.eat(b'x') => self.opaque(bytes)?,
            Some(_) => return Err(self.refusal(ITEMS)),
            None => match self.format[self.at..].iter().take_while(|byte| **byte == b'x').count() {
                0 => self.scalar()?,
                bytes => {
                    self.at += bytes;
                    self.opaque(bytes)?
                }
            },
        };
        self.advance(dtype.packed_bits() / 8)?;
        Ok((dtype, None))
    }

    /// Reads a struct after its `T`.
    fn structure(&mut self, depth: usize) -> Result<Item> {
        let depth = depth.checked_sub(1).filter(|_| self.eat(b'{'));
        let depth = depth.ok_or_else(|| self.refusal("structs `T{...}`, nested at most 16 deep"))?;
        let outer = core::mem::replace(&mut self.start, self.offset);
        let mut fields = Vec::new();
        while !self.eat(b'}') {
            self.field(&mut fields, depth)?;
        }
        let dtype = self.opaque(self.offset - self.start)?;
        self.start = outer;
        let struct_type = StructType { fields };
        struct_type.check_names("format")?;
        Ok((dtype, Some(struct_type)))
    }

    /// Reads a field, or padding.
    fn field(&mut self, fields: &mut Vec<StructField>, depth: usize) -> Result<()> {
        self.eat_order();
        let (first, offset) = (self.at, self.offset);
        let was_open = core::mem::take(&mut self.is_open);
        let shape = if self.eat(b'(') { self.shape()? } else { Vec::new() };
        let (dtype, struct_type) = self.item(depth)?;
        let Some(name) = self.name()? else {
            let is_padding = dtype.is_opaque() && struct_type.is_none() && shape.is_empty();
            // `NumPy` alone writes padding as `xxx`, and leaves out the padding at the end of nested structs.
            if is_padding && self.format[first] == b'x' {
                self.is_open = was_open;
                return self.close(fields, dtype.packed_bits() / 8);
            }
            let allowed = "fields with names, such as `f:x:`";
            return if is_padding { Ok(()) } else { Err(self.refusal(allowed)) };
        };
        self.is_open |= struct_type.is_some() && !shape.is_empty();
        let field = StructField { name, offset: offset - self.start, dtype, shape, struct_type };
        self.offset = offset;
        self.advance(field.size().unwrap_or(usize::MAX))?;
        fields.push(field);
        Ok(())
    }

    /// Reads the extents of a field that is an array, up to the parenthesis.
    fn shape(&mut self) -> Result<Vec<usize>> {
        let mut shape = Vec::new();
        while let Some(extent) = self.number()? {
            shape.push(extent);
            if shape.len() > MAX_NDIM || !self.eat(b',') {
                break;
            }
        }
        if self.eat(b')') { Ok(shape) } else { Err(self.refusal("a shape of numbers, such as `(2,3)`")) }
    }

    /// Reads the name after a field.
    fn name(&mut self) -> Result<Option<String>> {
        if !self.eat(b':') {
            return Ok(None);
        }
        let rest = &self.format[self.at..];
        let end = rest.iter().position(|byte| *byte == b':');
        let name = end.and_then(|end| core::str::from_utf8(&rest[..end]).ok());
        let name = name.ok_or_else(|| self.refusal("names in UTF-8 between colons"))?;
        self.at += name.len() + 1;
        Ok(Some(name.to_owned()))
    }

    fn scalar(&mut self) -> Result<DType> {
        let (rest, native) = (&self.format[self.at..], matches!(self.order, b'@' | b'^'));
        let bytes = match rest.first() {
            Some(b'l' | b'L') if native => size_of::<c_long>(),
            Some(b'n' | b'N') if native => size_of::<usize>(),
            Some(b'l' | b'L') => 4,
            _ => 0,
        };
        let dtype = match bytes {
            0 => FORMATS
                .iter()
                .find(|(_, format)| rest.starts_with(format.as_bytes()))
                .map(|(dtype, _)| *dtype),
            _ if rest[0].is_ascii_lowercase() => Some(if bytes == 8 { DType::I64 } else { DType::I32 }),
            _ => Some(if bytes == 8 { DType::U64 } else { DType::U32 }),
        };
        let dtype = dtype.ok_or_else(|| match rest {
            [b'g', ..] => self.refusal(ITEMS).with_python_hint(LONG_DOUBLE),
            _ => self.refusal(ITEMS),
        })?;
        self.at += if dtype.code == COMPLEX { 2 } else { 1 };
        self.check_order(dtype)?;
        Ok(dtype)
    }

    /// Refuses the other byte order, and a scalar that is not aligned where `@` asks for alignment: the padding would
    /// not be in the format.
    fn check_order(&self, dtype: DType) -> Result<()> {
        let is_foreign = match self.order {
            b'<' => cfg!(target_endian = "big"),
            b'>' | b'!' => cfg!(target_endian = "little"),
            _ => false,
        };
        if is_foreign && dtype.packed_bits() > 8 {
            let error = self.refusal("the byte order of this machine");
            return Err(error.with_python_hint("call `x.astype(x.dtype.newbyteorder(\"=\"))`"));
        }
        let align = dtype.align();
        if self.order == b'@' && (self.offset % align != 0 || (self.offset - self.start) % align != 0) {
            return Err(self.refusal("padding that is written as `x`"));
        }
        Ok(())
    }

    /// Assigns bytes of padding to the struct that ends before them, up to a multiple of its alignment.
    fn close(&mut self, fields: &mut [StructField], gap: usize) -> Result<()> {
        if gap > 0 && core::mem::take(&mut self.is_open) {
            return Err(
                self.refusal("no padding after an array of structs, because its place is not certain")
            );
        }
        extend_last(fields, gap);
        Ok(())
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.format.get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn eat_order(&mut self) {
        while let Some(order) = self.format.get(self.at).filter(|byte| b"@=<>!^".contains(byte)) {
            self.order = *order;
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<Option<usize>> {
        let digits = self.format[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = core::str::from_utf8(&self.format[self.at..][..digits]).unwrap_or_default();
        self.at += digits;
        let number = (digits > 0).then(|| number.parse());
        number.transpose().map_err(|_| self.wrong_size(usize::MAX))
    }

    fn advance(&mut self, bytes: usize) -> Result<()> {
        let end = self.offset.checked_add(bytes).filter(|end| *end <= self.itemsize);
        self.offset = end.ok_or_else(|| self.wrong_size(self.offset.saturating_add(bytes)))?;
        Ok(())
    }

    fn opaque(&self, bytes: usize) -> Result<DType> {
        u16::try_from(bytes).map(DType::opaque).map_err(|_| self.wrong_size(bytes))
    }

    #[cold]
    fn refusal(&self, allowed: &str) -> Error {
        let found = text!("{:?}", clip(&String::from_utf8_lossy(self.format)));
        Error::new(ErrorKind::DType, "format", found, allowed)
    }

    #[cold]
    fn wrong_size(&self, bytes: usize) -> Error {
        let allowed = text!("{} bytes, the size of an item, and at most {}", self.itemsize, u16::MAX);
        let format = clip(&String::from_utf8_lossy(self.format));
        Error::new(ErrorKind::DType, "format", format_args!("{format:?} of {bytes} bytes"), allowed)
    }
}

/// Extends the last field, if it is a struct whose size is not a multiple of its alignment, and the padding suffices.
fn extend_last(fields: &mut [StructField], gap: usize) {
    let Some(StructField { dtype, struct_type: Some(nested), shape, .. }) = fields.last_mut() else { return };
    let size = dtype.packed_bits() / 8;
    let missing = size.next_multiple_of(alignment_of(nested)) - size;
    if let (true, true, Ok(extended)) = (shape.is_empty(), missing <= gap, u16::try_from(size + missing)) {
        extend_last(&mut nested.fields, missing);
        *dtype = DType::opaque(extended);
    }
}

fn alignment_of(struct_type: &StructType) -> usize {
    let field =
        |field: &StructField| field.struct_type.as_ref().map_or_else(|| field.dtype.align(), alignment_of);
    struct_type.fields.iter().map(field).max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn read_text(format: &str, itemsize: usize) -> Result<String> {
        let (dtype, struct_type) = read_format(format.as_bytes(), itemsize)?;
        Ok(struct_type.map_or_else(|| dtype.name(), |struct_type| struct_type.to_string()))
    }

    #[test]
    fn written_formats_are_read_back() {
        for code in [0, 1, 2, 5, 6] {
            for bits in [8, 16, 32, 64, 128] {
                let dtype = DType::new(code, bits, 1);
                let Ok(format) = format_of(dtype, None) else { continue };
                assert_eq!(read_format(format.as_bytes(), usize::from(bits) / 8), Ok((dtype, None)));
            }
        }
        let mut nested = field("n", 8, DType::opaque(16));
        nested.struct_type =
            Some(StructType { fields: vec![field("x", 0, DType::F64), field("y", 8, DType::U8)] });
        nested.shape = vec![2];
        let fields = vec![field("a", 0, DType::U8), nested, field("b", 40, DType::COMPLEX64)];
        let (dtype, written) = (DType::opaque(56), StructType { fields });
        let format = format_of(dtype, Some(&written)).unwrap();
        assert_eq!(read_format(format.as_bytes(), 56), Ok((dtype, Some(written))));
    }

    #[test]
    fn formats_of_numpy_and_ctypes() {
        for (format, itemsize, found) in [
            ("<i", 4, "int32"),
            (">B", 1, "uint8"),
            ("=l", 4, "int32"),
            ("4x", 4, "opaque32"),
            ("xxx", 3, "opaque24"),
            ("T{B:a:=d:b:}", 9, "{a: uint8 @0, b: float64 @1}"),
            ("T{B:a:xxxxxxxd:b:}", 16, "{a: uint8 @0, b: float64 @8}"),
            ("T{d:b:B:a:}", 16, "{b: float64 @0, a: uint8 @8}"),
            (
                "T{4x:v:(2,3)=q:x:Zf:c:?:q:}",
                61,
                "{v: opaque32 @0, x: int64[2, 3] @4, c: complex64 @52, q: bool @60}",
            ),
            ("T{<f:a:(3)<i:b:}", 16, "{a: float32 @0, b: int32[3] @4}"),
            ("^T{B:a:7xd:b:}", 16, "{a: uint8 @0, b: float64 @8}"),
        ] {
            assert_eq!(read_text(format, itemsize).as_deref(), Ok(found), "{format}");
        }
    }

    #[test]
    fn padding_at_the_end_of_nested_structs() {
        let hit = "{h: {e: float64 @0, k: uint8 @8} @0, w: float32 @16}";
        for (format, itemsize, size) in [
            ("T{T{d:e:B:k:}:h:xxxxxxxf:w:}", 24, 16),
            ("T{T{=d:e:=B:k:7x}:h:=f:w:4x}", 24, 16),
            ("T{T{=d:e:=B:k:}:h:7x=f:w:4x}", 24, 9),
        ] {
            let struct_type = read_format(format.as_bytes(), itemsize).unwrap().1.unwrap();
            assert_eq!(struct_type.to_string(), hit, "{format}");
            assert_eq!(struct_type.fields[0].dtype, DType::opaque(size), "{format}");
        }
        let last = read_format(b"T{f:w:xxxxT{d:e:T{H:k:B:l:}:i:}:h:}", 32).unwrap().1.unwrap();
        assert_eq!(last.fields[1].dtype, DType::opaque(16));
        assert_eq!(last.fields[1].struct_type.as_ref().unwrap().fields[1].dtype, DType::opaque(4));
        for (format, itemsize) in [
            ("T{(2)T{d:e:B:k:}:h:xxxxxxxxxxxxxxf:w:}", 40),
            ("T{T{(2)T{B:r:B:g:B:b:}:c:}:n:xxI:o:}", 12),
            ("T{I:o:(2)T{B:r:B:g:B:b:}:c:}", 12),
        ] {
            let refused = read_text(format, itemsize).unwrap_err();
            assert!(refused.allowed().contains("array of structs"), "{format}: {refused}");
        }
        assert!(read_text("T{(2)T{B:r:B:g:}:c:I:o:}", 8).is_ok());
    }

    #[test]
    fn unclear_formats_are_refused() {
        for (format, itemsize, words) in [
            (">f", 4, "byte order"),
            ("!q", 8, "byte order"),
            ("T{>f:x:}", 4, "byte order"),
            ("T{B:a:d:b:}", 16, "written as `x`"),
            ("T{<B:a:<d:b:}", 16, "16 bytes"),
            ("T{<i:a:<i:b:}", 4, "4 bytes"),
            ("B", 9, "9 bytes"),
            ("f", 8, "8 bytes"),
            ("2f", 8, "numbers"),
            ("ff", 8, "a single item"),
            ("", 1, "numbers"),
            ("c", 1, "numbers"),
            ("5s", 5, "numbers"),
            ("w", 4, "numbers"),
            ("O", 8, "numbers"),
            ("&<i", 8, "numbers"),
            ("=n", 8, "numbers"),
            ("g", 16, "numbers"),
            ("Zg", 32, "numbers"),
            ("T{ff:x:}", 8, "names"),
            ("T{f:x:f:x:}", 8, "different names"),
            ("T{f:x}", 4, "colons"),
            ("T{f:x:", 4, "numbers"),
            ("T{(f:x:}", 4, "a shape"),
            ("T{(2,f:x:}", 4, "a shape"),
            ("T{(99999999999999999999)f:x:}", 4, "bytes"),
            ("T{(9999999999,9999999999)f:x:}", 4, "bytes"),
            ("70000x", 70000, "65535"),
        ] {
            let refused = read_text(format, itemsize).unwrap_err();
            assert_eq!((refused.kind(), refused.location()), (ErrorKind::DType, "format"));
            assert!(refused.to_string().contains(words), "{format}: {refused}");
        }
        let deep = format!("{}f:x:{}", "T{".repeat(20_000), "}:x:".repeat(20_000));
        assert!(read_text(&deep, 4).unwrap_err().allowed().contains("16 deep"));
    }

    #[test]
    fn no_text_panics() {
        let alphabet = b"T{}():,x3fdZB@=<0:a";
        let mut state = 1_u64;
        for _ in 0..200_000 {
            let mut format = Vec::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                format.push(alphabet[(state >> 33) as usize % alphabet.len()]);
            }
            if let Ok((dtype, Some(struct_type))) = read_format(&format, 24) {
                struct_type.check(dtype).unwrap();
            }
        }
    }
}
