//! Typestrs: element types in the CUDA Array Interface.

use crate::array::dtype::{COMPLEX, DType, OPAQUE, Row, TABLE, list};
use crate::error::{Error, ErrorKind, Result};

/// The byte order of this machine.
const NATIVE: char = if cfg!(target_endian = "big") { '>' } else { '<' };

fn typestr(kind: char, bytes: usize) -> String {
    let order = match (bytes, kind) {
        (1, _) | (_, 'V') => '|',
        _ => NATIVE,
    };
    format!("{order}{kind}{bytes}")
}

impl DType {
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

/// Whether a typestr can express this number of bits: not integers of 4 bits, and not complex numbers of two halves.
fn is_in_typestrs(code: u8, bits: u8) -> bool {
    bits >= 8 && (code != COMPLEX || bits > 32)
}

/// The sizes in bytes that a typestr can have for this kind.
fn allowed_sizes(row: &Row) -> String {
    let bits = row.bits().iter().filter(|bits| is_in_typestrs(row.code, **bits));
    list(&bits.map(|bits| bits / 8).collect::<Vec<_>>())
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
