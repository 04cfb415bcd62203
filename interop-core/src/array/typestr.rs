//! Typestrs: element types in the CUDA Array Interface.

use core::fmt;

use crate::array::dtype::{COMPLEX, DType, OPAQUE, Row, TABLE, list};
use crate::error::{Error, ErrorKind, Result};

/// A typestr of at most eight ASCII characters, stored inline.
///
/// ```
/// use interop_core::DType;
/// assert_eq!(DType::COMPLEX64.typestr().map(|typestr| typestr.to_string()).as_deref(), Some("<c8"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Typestr {
    text: [u8; 8],
    len: u8,
}

/// The byte order of this machine.
const NATIVE: char = if cfg!(target_endian = "big") { '>' } else { '<' };

impl Typestr {
    /// Sizes are below 65536, so byte order, kind and five digits fit.
    fn new(kind: char, bytes: usize) -> Self {
        let order = match (bytes, kind) {
            (1, _) | (_, 'V') => '|',
            _ => NATIVE,
        };
        let mut typestr = Self { text: [0; 8], len: 2 };
        (typestr.text[0], typestr.text[1]) = (order as u8, kind as u8);
        for power in (0..=bytes.checked_ilog10().unwrap_or(0)).rev() {
            typestr.text[usize::from(typestr.len)] = b"0123456789"[bytes / 10_usize.pow(power) % 10];
            typestr.len += 1;
        }
        typestr
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.text[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Display for Typestr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Typestr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl DType {
    /// The typestr, or `None` if the CUDA Array Interface cannot express the type.
    ///
    /// `None` for `bfloat16`, the floats of 8 bits and less, half-precision complex, and vector lanes.
    #[must_use]
    pub fn typestr(self) -> Option<Typestr> {
        self.kind_and_size().map(|(kind, bytes)| Typestr::new(kind, bytes))
    }

    /// The kind and the size in bytes, if they identify the type.
    fn kind_and_size(self) -> Option<(char, usize)> {
        let kind = self.row()?.kind?;
        let bytes = self.packed_bits() / 8;
        let fits = if self.is_opaque() {
            // `from_typestr` reads no larger size.
            u16::try_from(bytes).is_ok()
        } else {
            self.lanes == 1 && !(self.code == COMPLEX && self.bits == 32)
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
    pub fn from_typestr(typestr: &str) -> Result<Self> {
        let fail = |allowed: &str| {
            Error::new(ErrorKind::DType, "typestr", format_args!("{:?}", clip(typestr)), allowed)
        };
        let grammar =
            "a byte order (<, > or |), a kind (b, i, u, f, c or V) and a size in bytes, such as \"<f4\"";
        let (order, kind, digits) = match typestr.as_bytes() {
            [order @ (b'<' | b'>' | b'|'), kind, digits @ ..] => (*order, char::from(*kind), digits),
            _ => return Err(fail(grammar)),
        };
        if matches!(kind, 'M' | 'm') {
            let error = fail("one of the kinds b, i, u, f, c and V, which dates and times are not");
            return Err(error.with_python_hint("call `x.view(\"i8\")`, which has them as integers"));
        }
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(fail(grammar));
        }
        let bytes: usize = typestr[2..].parse().map_err(|_| fail("a size that fits the address space"))?;
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
            return Err(fail(&format!("the native byte order, \"{}\"", Typestr::new(kind, bytes))));
        }
        Ok(dtype)
    }
}

/// The sizes in bytes that a typestr can have for this kind.
fn allowed_sizes(row: &Row) -> String {
    let bytes: Vec<u8> =
        row.bits.iter().filter(|bits| row.code != COMPLEX || **bits > 32).map(|bits| bits / 8).collect();
    list(&bytes)
}

/// The start of a foreign text, short enough for a message.
pub(crate) fn clip(text: &str) -> String {
    const MOST: usize = 40;
    if text.chars().count() <= MOST {
        return text.into();
    }
    text.chars().take(MOST).chain("…".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
