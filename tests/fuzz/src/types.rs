//! Element types: typestrs, names, and DLPack's triples.

use interop_core::DType;

use crate::input::Input;
use crate::oracle::check_error;

/// The maximum length of a text.
pub const TEXT: u8 = 24;

/// Runs the target.
///
/// # Panics
///
/// If the crate's result differs from the grammar.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let text = input.text(TEXT);
    check_typestr(&text);
    if let Ok(dtype) = text.parse::<DType>() {
        assert!(dtype.to_string() == text || DType::from_typestr(&text) == Ok(dtype), "{text}");
    }
    let [code, bits, low, high] = input.bytes();
    check_triple(DType::new(code, bits, u16::from_le_bytes([low, high])));
}

/// Returns the size of the type that a legal typestr spells, by the grammar alone.
#[must_use]
pub fn size(typestr: &str) -> Option<usize> {
    let (order, rest) = typestr.split_at_checked(1)?;
    let (kind, digits) = rest.split_at_checked(1)?;
    let size: usize = digits.parse().ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    let native = if cfg!(target_endian = "little") { "<" } else { ">" };
    let ordered = match (kind, size) {
        ("V", _) => order == "|",
        (_, 1) => ["<", ">", "|"].contains(&order),
        _ => order == native,
    };
    let sized = match kind {
        "b" => size == 1,
        "i" | "u" => [1, 2, 4, 8].contains(&size),
        "f" => [2, 4, 8].contains(&size),
        "c" => [8, 16].contains(&size),
        "V" => (1..=65535).contains(&size),
        _ => false,
    };
    (ordered && sized).then_some(size)
}

fn check_typestr(text: &str) {
    let Some(size) = size(text) else {
        let error = DType::from_typestr(text).expect_err("outside the grammar");
        assert_eq!(error.location(), "typestr");
        return check_error(&error);
    };
    let dtype = DType::from_typestr(text).expect("within the grammar");
    assert_eq!(dtype.item_bits(false), 8 * size);
    let spelled = dtype.typestr().expect("what was read can be written");
    assert_eq!(DType::from_typestr(spelled.as_str()), Ok(dtype));
    assert_eq!(dtype.to_string().parse(), Ok(dtype));
}

/// Whether `dlpack.h` or NumPy (integers of 4 bits) defines such a type. For a code that it does not list, a whole number of bytes is enough.
#[must_use]
pub fn sized(code: u8, bits: u8, lanes: u16) -> bool {
    let allowed: &[u8] = match code {
        0 | 1 => &[4, 8, 16, 32, 64],
        2 => &[16, 32, 64],
        4 => &[16],
        5 => &[32, 64, 128],
        6..=14 => &[8],  // `bool`, `float8_e3m4` to `float8_e8m0fnu`
        15 | 16 => &[6], // `float6_e2m3fn`, `float6_e3m2fn`
        17 => &[4],      // `float4_e2m1fn`
        _ => return lanes > 0 && bits > 0 && bits % 8 == 0,
    };
    lanes > 0 && allowed.contains(&bits)
}

fn check_triple(dtype: DType) {
    let whole = dtype.item_bits(true);
    assert!(whole >= dtype.item_bits(false) && whole % 8 == 0);
    assert!(!dtype.to_string().is_empty());
    let legal = sized(dtype.code, dtype.bits, dtype.lanes);
    if let Some(typestr) = dtype.typestr() {
        assert!(legal, "{dtype}");
        assert_eq!(size(typestr.as_str()), Some(dtype.item_bits(false) / 8), "{dtype}");
    }
    if let Some(named) = dtype.to_string().parse::<DType>().ok().filter(|_| legal) {
        // The name of opaque bytes contains only their size.
        assert!(
            named == dtype || (named.item_bits(false) == dtype.item_bits(false) && dtype.code == 3),
            "{dtype}"
        );
    }
}
