//! Floats of 4, 6 and 8 bits as element types: their bytes, without arithmetic.
#![expect(unsafe_code, reason = "implements an unsafe trait for byte types")]

use crate::array::dtype::DType;
use crate::array::element::elements;

use crate::array::element::{Element, ElementType};
macro_rules! bit_types {
    ($($(#[$doc:meta])* $name:ident => $dtype:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// The bits of the value. Use a crate for such numbers to compute with them.
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            #[repr(transparent)]
            pub struct $name(pub u8);
            elements! { $name => $dtype; }
        )*
    };
}

bit_types! {
    /// A `float8_e3m4`.
    Float8E3m4 => DType::F8_E3M4;
    /// A `float8_e4m3`.
    Float8E4m3 => DType::F8_E4M3;
    /// A `float8_e4m3b11fnuz`.
    Float8E4m3b11fnuz => DType::F8_E4M3B11FNUZ;
    /// A `float8_e4m3fn`.
    Float8E4m3fn => DType::F8_E4M3FN;
    /// A `float8_e4m3fnuz`.
    Float8E4m3fnuz => DType::F8_E4M3FNUZ;
    /// A `float8_e5m2`.
    Float8E5m2 => DType::F8_E5M2;
    /// A `float8_e5m2fnuz`.
    Float8E5m2fnuz => DType::F8_E5M2FNUZ;
    /// A `float8_e8m0fnu`.
    Float8E8m0fnu => DType::F8_E8M0FNU;
    /// A `float6_e2m3fn` in a byte of its own (the padded form).
    Float6E2m3fn => DType::F6_E2M3FN;
    /// A `float6_e3m2fn` in a byte of its own (the padded form).
    Float6E3m2fn => DType::F6_E3M2FN;
    /// Two `float4_e2m1fn` in one byte, the first in the low bits: `float4_e2m1fn_x2` of `PyTorch`.
    Float4E2m1fnX2 => DType::F4_E2M1FN.with_lanes(2);
}
