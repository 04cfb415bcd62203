//! Element types as data: DLPack's type code, bits and lanes, and the table that maps them to typestrs and names.
//!
//! To add a type, change these places. `cargo xtask guard lists` finds them by types that are there: `float8_e5m2` and
//! `float4_e2m1fn`, which have no Rust type; `complex64`, whose Rust type is of another crate; in kernels `bf16`.
//! * Here: a row of `TABLE` and a constant in `named!`; `is_in_typestrs` if the CUDA Array Interface lacks it; the last code of
//!   `minifloat` if it has at most a byte and no Rust type; `align` if it is a pair, as complex numbers are.
//! * `interop-core/src/protocols/dlpack/abi.rs`: the version of DLPack that brought its code. If that is newer than `MINOR_VERSION`, the list
//!   there applies, too.
//! * `interop-core/src/array/element.rs`: a line in `elements!`, behind a feature if the type belongs to another crate, and the notes
//!   above the trait `Element`. A `MiniFloat` needs no line: it is the bits of any type without a Rust type.
//! * `interop-core/src/array/dispatch.rs`: the type in the list of `dispatch`; one with a feature also in `optional` and `unlisted`.
//! * `interop-core/src/derive/expansion.rs`: the name in `optional` of a type with a feature.
//! * `interop-core/src/array/buffer_format.rs`: a row in `FORMATS`, if Python's module struct has a letter for the type.
//! * `interop-core/src/python/import/numpy_array.rs`: a row in `dtype_with_number`, if NumPy itself has the type. Types that another
//!   package adds to NumPy are looked up by name.
//! * `interop-kernel/src/element.rs`: a line in `elements!`, if kernels read and write it.
//! * `interop-kernel/src/real.rs`: a line in `elements!`, if rows compute with it.
//! * `interop-kernel/src/lib.rs`, `interop-kernel/Cargo.toml`, `interop-kernel/tests`: its crate, if that is new; tests on the host.
//! * `interop-core/Cargo.toml`, `interop-core/src/lib.rs`, `xtask/src/workspace.rs`, `.github/workflows/ci.yml`: a new feature.
//! * `interop-derive/manual.md`: the list of element types.
//! * `interop-core/src/guide/kernels.md`: the elements of kernels and rows.
//! * `interop-core/public-api.txt`: by `cargo xtask bless`.
//! * `examples/py-extension`: the matches over the type in its sources, if the example computes with it.
//! * `tests/runtime/dtype.rs`, `tests/runtime/elements.rs`: a row for the name, the typestr and the numbers; one for the Rust type.
//! * `tests/fuzz/src/types.rs`, `tests/python/test_capsule_fuzz.py`, `tests/python/test_capsules.py`: the tables of legal codes and bits,
//!   which are written apart from the one here on purpose.
//! * `tests/conformance/source/dlpack.py`: a legal case, and illegal ones of other sizes, in the place of those of a code that nobody knows;
//!   `tests/README.md` says how to make the corpus.
//! * `tests/python/test_numpy_struct.py`, `tests/python/test_numpy_types.py`, `tests/python/test_jax.py`: the types of `ml_dtypes` by name.
//! * `tests/runtime`, `tests/python`, `tests/driver`, `tests/functions`, `tests/gpu`, `tests/conformance/traceability.toml`: what is new
//!   about it, such as elements of less than a byte. Most types need nothing here.

use core::fmt;
use core::str::FromStr;

use crate::error::{Error, ErrorKind, Result};

/// An element type as in `DLDataType`: type code, bits of one lane, number of lanes.
///
/// The fields are plain numbers from foreign memory. An unknown code is kept and reported by its number.
///
/// Opaque bytes (`|Vn` in a typestr) have the code `OpaqueHandle` and `n` lanes of 8 bits.
///
/// ```
/// use interop_core::DType;
///
/// assert_eq!(DType::F32.typestr().as_deref(), Some("<f4"));
/// assert_eq!(("|b1".parse(), "bfloat16".parse()), (Ok(DType::BOOL), Ok(DType::BF16)));
/// assert_eq!(DType::BF16.typestr(), None); // the CUDA Array Interface has no code for it
/// assert_eq!(DType { lanes: 4, ..DType::F32 }.to_string(), "float32x4");
/// assert_eq!(DType::new(10, 8, 1).to_string(), "float8_e4m3fn");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct DType {
    /// The type code (`DLDataTypeCode`).
    pub code: u8,
    /// The bits of one lane.
    pub bits: u8,
    /// The number of lanes, which is 1 except for vector types.
    pub lanes: u16,
}

/// The properties of one type code.
struct Row {
    code: u8,
    /// The name. If `sized`, the number of bits is appended.
    name: &'static str,
    sized: bool,
    /// The kind character of a typestr, or `None` if the interface cannot express the type.
    kind: Option<char>,
    /// The numbers of bits that a lane may have. Empty: any multiple of 8.
    bits: &'static [u8],
}

const fn row(code: u8, name: &'static str, sized: bool, kind: Option<char>, bits: &'static [u8]) -> Row {
    Row { code, name, sized, kind, bits }
}

/// The codes of `DLDataTypeCode` (`dlpack.h` 1.3) and the kinds of NumPy's array interface.
const TABLE: [Row; 18] = [
    row(0, "int", true, Some('i'), &[4, 8, 16, 32, 64]),
    row(1, "uint", true, Some('u'), &[4, 8, 16, 32, 64]),
    row(2, "float", true, Some('f'), &[16, 32, 64]),
    row(3, "opaque", true, Some('V'), &[]),
    row(4, "bfloat", true, None, &[16]),
    row(5, "complex", true, Some('c'), &[32, 64, 128]),
    row(6, "bool", false, Some('b'), &[8]),
    row(7, "float8_e3m4", false, None, &[8]),
    row(8, "float8_e4m3", false, None, &[8]),
    row(9, "float8_e4m3b11fnuz", false, None, &[8]),
    row(10, "float8_e4m3fn", false, None, &[8]),
    row(11, "float8_e4m3fnuz", false, None, &[8]),
    row(12, "float8_e5m2", false, None, &[8]),
    row(13, "float8_e5m2fnuz", false, None, &[8]),
    row(14, "float8_e8m0fnu", false, None, &[8]),
    row(15, "float6_e2m3fn", false, None, &[6]),
    row(16, "float6_e3m2fn", false, None, &[6]),
    row(17, "float4_e2m1fn", false, None, &[4]),
];

const _: () = {
    let mut code = 0;
    while code < TABLE.len() {
        assert!(TABLE[code].code as usize == code, "a code is the index of its row");
        code += 1;
    }
};

#[cfg(feature = "python")]
pub(crate) const INT: u8 = 0;

#[cfg(feature = "python")]
pub(crate) const UINT: u8 = 1;

#[cfg(feature = "python")]
pub(crate) const FLOAT: u8 = 2;

const OPAQUE: u8 = 3;

pub(crate) const COMPLEX: u8 = 5;

macro_rules! named {
    ($($name:ident = ($code:literal, $bits:literal), $doc:literal;)*) => {
        $(#[doc = $doc] pub const $name: DType = DType::new($code, $bits, 1);)*
    };
}

impl DType {
    named! {
        I4 = (0, 4), "`int4`; DLPack only.";
        I8 = (0, 8), "`int8`, `|i1`.";
        I16 = (0, 16), "`int16`, `<i2`.";
        I32 = (0, 32), "`int32`, `<i4`.";
        I64 = (0, 64), "`int64`, `<i8`.";
        U4 = (1, 4), "`uint4`; DLPack only.";
        U8 = (1, 8), "`uint8`, `|u1`.";
        U16 = (1, 16), "`uint16`, `<u2`.";
        U32 = (1, 32), "`uint32`, `<u4`.";
        U64 = (1, 64), "`uint64`, `<u8`.";
        F16 = (2, 16), "`float16`, `<f2`.";
        F32 = (2, 32), "`float32`, `<f4`.";
        F64 = (2, 64), "`float64`, `<f8`.";
        BF16 = (4, 16), "`bfloat16`; DLPack only.";
        COMPLEX64 = (5, 64), "`complex64`, two `float32`, `<c8`.";
        COMPLEX128 = (5, 128), "`complex128`, two `float64`, `<c16`.";
        BOOL = (6, 8), "`bool`, one byte, `|b1`.";
        F8_E3M4 = (7, 8), "`float8_e3m4`; DLPack only.";
        F8_E4M3 = (8, 8), "`float8_e4m3`; DLPack only.";
        F8_E4M3B11FNUZ = (9, 8), "`float8_e4m3b11fnuz`; DLPack only.";
        F8_E4M3FN = (10, 8), "`float8_e4m3fn`; DLPack only.";
        F8_E4M3FNUZ = (11, 8), "`float8_e4m3fnuz`; DLPack only.";
        F8_E5M2 = (12, 8), "`float8_e5m2`; DLPack only.";
        F8_E5M2FNUZ = (13, 8), "`float8_e5m2fnuz`; DLPack only.";
        F8_E8M0FNU = (14, 8), "`float8_e8m0fnu`; DLPack only.";
        F6_E2M3FN = (15, 6), "`float6_e2m3fn`; DLPack only.";
        F6_E3M2FN = (16, 6), "`float6_e3m2fn`; DLPack only.";
        F4_E2M1FN = (17, 4), "`float4_e2m1fn`; DLPack only.";
    }

    /// Creates a type from any type code, bits of one lane and number of lanes, without checks.
    #[must_use]
    pub const fn new(code: u8, bits: u8, lanes: u16) -> Self {
        Self { code, bits, lanes }
    }

    /// The float of at most a byte with this type code, in whole bytes: two lanes of 4 bits.
    pub(crate) const fn minifloat(code: u8) -> Self {
        assert!(
            code >= Self::F8_E3M4.code && code <= Self::F4_E2M1FN.code,
            "the code of a float of 8, 6 or 4 bits"
        );
        let bits = TABLE[code as usize].bits[0];
        Self::new(code, bits, if bits == 4 { 2 } else { 1 })
    }

    /// Opaque bytes, `|V` in a typestr.
    #[must_use]
    pub const fn opaque(bytes: u16) -> Self {
        Self::new(OPAQUE, 8, bytes)
    }

    /// The bits of one element when elements are packed.
    pub(crate) const fn packed_bits(self) -> usize {
        self.bits as usize * self.lanes as usize
    }

    /// The bits of one element in memory. `padded` means that each lane takes whole bytes
    /// (`DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED`).
    #[must_use]
    pub const fn item_bits(self, padded: bool) -> usize {
        if padded { self.bits.div_ceil(8) as usize * 8 * self.lanes as usize } else { self.packed_bits() }
    }

    /// Whether the type has the code of opaque bytes.
    pub(crate) const fn is_opaque(self) -> bool {
        self.code == OPAQUE
    }

    /// The alignment in bytes of one item, or of one part of a complex number. Opaque bytes need none.
    pub(crate) const fn align(self) -> usize {
        let bits = if self.code == COMPLEX { self.bits / 2 } else { self.bits } as usize;
        if bits > 8 && bits.is_power_of_two() { bits / 8 } else { 1 }
    }

    #[inline]
    fn row(self) -> Option<&'static Row> {
        // The codes are 0, 1, 2, … without a gap (asserted below the table), so a code is the index of its row.
        TABLE.get(usize::from(self.code))
    }

    /// Whether the type can exist: it has bits and lanes, and its code allows that number of bits. An unknown code must
    /// have whole bytes.
    #[inline]
    pub(crate) fn is_valid(self) -> bool {
        let fits = match self.row().map(|row| row.bits) {
            None | Some([]) => self.bits % 8 == 0,
            Some(bits) => bits.contains(&self.bits),
        };
        fits && self.bits > 0 && self.lanes > 0
    }

    /// Returns an error for a type that is not [valid](Self::is_valid).
    #[inline]
    pub(crate) fn check(self) -> Result<()> {
        if self.is_valid() { Ok(()) } else { Err(self.refusal()) }
    }

    #[cold]
    fn refusal(self) -> Error {
        let allowed = match self.row() {
            _ if self.lanes == 0 => "1 lane or more".into(),
            // Before DLPack had a code for bool, some producers wrote uint with 1 bit.
            Some(row) if row.code == 1 && self.bits == 1 => {
                "uint of 8, 16, 32 or 64 bits; a bool is code 6 with 8 bits".into()
            }
            Some(row) => format!("{} of {} bits", row.name, alternatives(row.bits)),
            None => "whole bytes for an unknown type code".into(),
        };
        Error::new(ErrorKind::DType, "dtype", self, allowed)
    }

    /// The name, such as `float32`, `bfloat16`, `float8_e4m3fn`, or `float32x4` for four lanes. An unknown code prints
    /// its numbers.
    pub(crate) fn name(self) -> String {
        let Some(row) = self.row() else {
            return format!("dlpack_code{}_bits{}_lanes{}", self.code, self.bits, self.lanes);
        };
        if self.is_opaque() {
            return format!("opaque{}", self.packed_bits());
        }
        let bits = if row.sized { self.bits.to_string() } else { String::new() };
        let lanes = if self.lanes == 1 { String::new() } else { format!("x{}", self.lanes) };
        format!("{}{bits}{lanes}", row.name)
    }

    /// The type of this [name](Self::name); `None` for any other text.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let sizes = |row: &'static Row| row.bits.iter().map(|bits| Self::new(row.code, *bits, 1));
        let scalar_named = |text: &str| TABLE.iter().flat_map(sizes).find(|dtype| dtype.name() == text);
        let number = |text: &str| {
            let is_decimal = !text.starts_with('0') && text.bytes().all(|digit| digit.is_ascii_digit());
            text.parse::<u32>().ok().filter(|_| is_decimal)
        };
        if let Some(bits) = name.strip_prefix("opaque").and_then(number) {
            return u16::try_from(bits / 8).ok().filter(|_| bits % 8 == 0).map(Self::opaque);
        }
        scalar_named(name).or_else(|| {
            let (scalar, lanes) = name.rsplit_once('x')?;
            let lanes = u16::try_from(number(lanes)?).ok().filter(|lanes| *lanes > 1)?;
            Some(Self { lanes, ..scalar_named(scalar)? })
        })
    }

    /// The typestr, or `None` if the CUDA Array Interface cannot express the type.
    ///
    /// `None` for `bfloat16`, the floats of 8 bits and less, integers of 4 bits, half-precision complex, and vector lanes.
    #[must_use]
    pub fn typestr(self) -> Option<String> {
        self.kind_and_size().map(|(kind, bytes)| typestr(kind, bytes))
    }

    /// The kind and the size in bytes, if they identify the type.
    fn kind_and_size(self) -> Option<(char, usize)> {
        let kind = self.row()?.kind?;
        let bytes = self.packed_bits() / 8;
        let fits = if self.is_opaque() {
            // `from_typestr` reads no larger size.
            u16::try_from(bytes).is_ok()
        } else {
            self.lanes == 1 && is_in_typestrs(self.code, self.bits)
        };
        (fits && self.is_valid()).then_some((kind, bytes))
    }

    /// Parses a typestr: byte order, kind, size in bytes.
    ///
    /// One-byte kinds accept any byte order character; wider ones need the native one. Opaque bytes are `|V`. `<V2` is
    /// rejected: PyTorch writes it for `bfloat16`, which a reader cannot know.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`], with the allowed values. NumPy's kinds `O`, `S`, `U`, `M`, `m` and `t` are not numbers,
    /// `=` is not in the grammar, and foreign byte order is not supported.
    pub fn from_typestr(text: &str) -> Result<Self> {
        let fail = |allowed: &str| {
            Error::new(ErrorKind::DType, "typestr", format_args!("{:?}", clip(text)), allowed)
        };
        let grammar =
            "a byte order (<, > or |), a kind (b, i, u, f, c or V) and a size in bytes, such as \"<f4\"";
        let (order, kind, digits) = match text.as_bytes() {
            [order @ (b'<' | b'>' | b'|'), kind, digits @ ..] => (*order, char::from(*kind), digits),
            _ => return Err(fail(grammar)),
        };
        if matches!(kind, 'M' | 'm') {
            let error = fail("one of the kinds b, i, u, f, c and V; dates and times are none of these");
            return Err(error.with_python_hint("call `x.view(\"i8\")`, which has them as integers"));
        }
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(fail(grammar));
        }
        let bytes: usize = text[2..].parse().map_err(|_| fail("a size that fits the address space"))?;
        let row = TABLE
            .iter()
            .find(|row| row.kind == Some(kind))
            .ok_or_else(|| fail("one of the kinds b, i, u, f, c and V"))?;
        if row.code == OPAQUE {
            if order != b'|' {
                return Err(fail("|V for opaque bytes; use DLPack for a bfloat16 array"));
            }
            let bytes = u16::try_from(bytes).ok().filter(|bytes| *bytes > 0);
            return bytes.map(Self::opaque).ok_or_else(|| fail("1 to 65535 opaque bytes"));
        }
        let bits = u8::try_from(bytes.saturating_mul(8)).unwrap_or(0);
        let dtype = Self::new(row.code, bits, 1);
        if dtype.kind_and_size().is_none() {
            return Err(fail(&format!("kind {kind} of {} bytes", allowed_sizes(row))));
        }
        if bytes > 1 && order != NATIVE as u8 {
            return Err(fail(&format!("the native byte order, \"{}\"", typestr(kind, bytes))));
        }
        Ok(dtype)
    }
}

impl FromStr for DType {
    type Err = Error;

    /// Parses a name or a typestr: `"float32"`, `"bfloat16"`, `"float32x4"`, `"<f4"`.
    fn from_str(text: &str) -> Result<Self> {
        if text.starts_with(['<', '>', '|']) {
            return Self::from_typestr(text);
        }
        Self::from_name(text).ok_or_else(|| {
            let allowed = "a name such as `float32` or `bfloat16`, or a typestr such as `<f4`";
            Error::new(ErrorKind::DType, "dtype", format_args!("{:?}", clip(text)), allowed)
        })
    }
}

/// The byte order of this machine.
const NATIVE: char = if cfg!(target_endian = "big") { '>' } else { '<' };

fn typestr(kind: char, bytes: usize) -> String {
    let order = match (bytes, kind) {
        (1, _) | (_, 'V') => '|',
        _ => NATIVE,
    };
    format!("{order}{kind}{bytes}")
}

/// Whether a typestr can express this number of bits: not integers of 4 bits, and not complex numbers of two halves.
fn is_in_typestrs(code: u8, bits: u8) -> bool {
    bits >= 8 && (code != COMPLEX || bits > 32)
}

/// The sizes in bytes that a typestr can have for this kind.
fn allowed_sizes(row: &Row) -> String {
    let bits = row.bits.iter().filter(|bits| is_in_typestrs(row.code, **bits));
    alternatives(&bits.map(|bits| bits / 8).collect::<Vec<_>>())
}

/// The start of a foreign text, short enough for a message.
pub(crate) fn clip(text: &str) -> String {
    const MOST: usize = 40;
    if text.chars().count() <= MOST {
        return text.into();
    }
    text.chars().take(MOST).chain("…".chars()).collect()
}

/// Formats `8, 16 or 32`. An empty list stands for any multiple of 8.
fn alternatives(numbers: &[u8]) -> String {
    let words: Vec<String> = numbers.iter().map(u8::to_string).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => "a multiple of 8".into(),
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self { code, bits, lanes }, name) = (self, self.name());
        // A type that does not exist is printed with its numbers.
        if self.is_valid() {
            f.write_str(&name)
        } else {
            write!(f, "{name} (code {code}, {bits} bits, lanes {lanes})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every triple with codes 0..24 is in the table or is refused with its numbers; its typestr reads back.
    #[test]
    fn every_triple_is_named_or_refused() {
        for (code, bits, lanes) in (0..24_u8)
            .flat_map(|c| (0..=255_u8).map(move |b| (c, b)))
            .flat_map(|(c, b)| (0..5_u16).map(move |l| (c, b, l)))
        {
            let dtype = DType::new(code, bits, lanes);
            if let Err(error) = dtype.check() {
                assert!(error.found().contains(&format!("code {code}, {bits} bits, lanes {lanes}")));
                continue;
            }
            assert!(lanes > 0 && bits > 0);
            if let Some(typestr) = dtype.typestr() {
                let back = DType::from_typestr(&typestr).unwrap();
                assert_eq!(back.packed_bits(), dtype.packed_bits(), "{dtype}");
                assert!(back == dtype || dtype.is_opaque());
            }
        }
    }

    #[test]
    fn known_codes_take_their_own_bits_only() {
        let refused = [
            (15, 8),
            (17, 8),
            (4, 32),
            (6, 1),
            (1, 1),
            (2, 8),
            (0, 128),
            (2, 128),
            (5, 16),
            (200, 4),
            (7, 16),
        ];
        for (code, bits) in refused {
            assert!(DType::new(code, bits, 1).check().is_err(), "code {code} bits {bits}");
        }
        assert!(DType::new(200, 32, 1).check().is_ok(), "an unknown code of whole bytes stays a fact");
        assert_eq!(DType::new(200, 32, 1).name(), "dlpack_code200_bits32_lanes1");
    }

    #[test]
    fn typestr_grammar() {
        let legal = [("<f4", DType::F32), ("|u1", DType::U8), ("<u1", DType::U8), (">i1", DType::I8)];
        for (text, dtype) in legal {
            assert_eq!(DType::from_typestr(text), Ok(dtype), "{text}");
        }
        assert_eq!(DType::from_typestr("|V12"), Ok(DType::opaque(12)));
        let illegal = [
            "",
            "<",
            "<f",
            "f4",
            "=f4",
            ">f4",
            "|f4",
            "<f3",
            "<f16",
            "<c4",
            "<V2",
            "|V0",
            "|V65536",
            "|O8",
            "|S4",
            "<U4",
            "<M8",
            "<m8",
            "|t1",
            "<f 4",
            "<f+4",
            "<f-4",
            "<f4 ",
            "<b4",
            "<f99999999999999999999",
            "é4",
            "<é4",
        ];
        for text in illegal {
            let error = DType::from_typestr(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DType, "{text}");
            assert_eq!(error.location(), "typestr");
        }
    }
}
