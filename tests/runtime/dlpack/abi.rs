//! R55: the constants of `dlpack.h` 1.3. The layouts of its structs are constant assertions in the core, and `c_library.rs` compares
//! them with those of a C compiler.

use interop_core::DType;
use interop_core::protocols::dlpack::{
    FLAG_IS_COPIED, FLAG_READ_ONLY, FLAG_SUBBYTE_PADDED, Legacy, MAJOR_VERSION, MINOR_VERSION, TensorAbi,
    Versioned,
};

/// The bytes of a type are those that a C compiler would produce.
#[test]
#[expect(unsafe_code, reason = "the bytes of a type are looked at")]
fn a_type_is_its_four_bytes() {
    let dtype = DType::new(5, 128, 0x0102);
    // SAFETY: both are four bytes without padding, and any bytes are valid.
    let bytes = unsafe { std::mem::transmute::<DType, [u8; 4]>(dtype) };
    assert_eq!(bytes[..2], [5, 128]);
    assert_eq!(u16::from_ne_bytes([bytes[2], bytes[3]]), 0x0102);
}

/// Versions, flags, and the names of capsules.
#[test]
fn constants_are_those_of_the_header() {
    assert_eq!((MAJOR_VERSION, MINOR_VERSION), (1, 3));
    assert_eq!((FLAG_READ_ONLY, FLAG_IS_COPIED, FLAG_SUBBYTE_PADDED), (1, 2, 4));
    assert_eq!(
        (Versioned::CAPSULE_NAME, Versioned::USED_CAPSULE_NAME),
        (c"dltensor_versioned", c"used_dltensor_versioned")
    );
    assert_eq!((Legacy::CAPSULE_NAME, Legacy::USED_CAPSULE_NAME), (c"dltensor", c"used_dltensor"));
    assert_eq!((Versioned::IS_VERSIONED, Legacy::IS_VERSIONED), (true, false));
}
