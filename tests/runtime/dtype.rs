//! The table between typestr, name and DLPack's triple.

use interop_core::protocols::RawDescriptor;
use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::{DType, Device, ErrorKind, StreamHandle};
use proptest::prelude::*;

use crate::support::assert_told;
use crate::support::brute_force::settings;

/// The constant, its code and bits, its name, its typestr, and the size of an element in bytes.
type Row = (DType, u8, u8, &'static str, Option<&'static str>, usize);

const TABLE: [Row; 29] = [
    (DType::I4, 0, 4, "int4", None, 1),
    (DType::U4, 1, 4, "uint4", None, 1),
    (DType::I8, 0, 8, "int8", Some("|i1"), 1),
    (DType::I16, 0, 16, "int16", Some("<i2"), 2),
    (DType::I32, 0, 32, "int32", Some("<i4"), 4),
    (DType::I64, 0, 64, "int64", Some("<i8"), 8),
    (DType::U8, 1, 8, "uint8", Some("|u1"), 1),
    (DType::U16, 1, 16, "uint16", Some("<u2"), 2),
    (DType::U32, 1, 32, "uint32", Some("<u4"), 4),
    (DType::U64, 1, 64, "uint64", Some("<u8"), 8),
    (DType::F16, 2, 16, "float16", Some("<f2"), 2),
    (DType::F32, 2, 32, "float32", Some("<f4"), 4),
    (DType::F64, 2, 64, "float64", Some("<f8"), 8),
    (DType::BF16, 4, 16, "bfloat16", None, 2),
    (DType::new(5, 32, 1), 5, 32, "complex32", None, 4),
    (DType::COMPLEX64, 5, 64, "complex64", Some("<c8"), 8),
    (DType::COMPLEX128, 5, 128, "complex128", Some("<c16"), 16),
    (DType::BOOL, 6, 8, "bool", Some("|b1"), 1),
    (DType::F8_E3M4, 7, 8, "float8_e3m4", None, 1),
    (DType::F8_E4M3, 8, 8, "float8_e4m3", None, 1),
    (DType::F8_E4M3B11FNUZ, 9, 8, "float8_e4m3b11fnuz", None, 1),
    (DType::F8_E4M3FN, 10, 8, "float8_e4m3fn", None, 1),
    (DType::F8_E4M3FNUZ, 11, 8, "float8_e4m3fnuz", None, 1),
    (DType::F8_E5M2, 12, 8, "float8_e5m2", None, 1),
    (DType::F8_E5M2FNUZ, 13, 8, "float8_e5m2fnuz", None, 1),
    (DType::F8_E8M0FNU, 14, 8, "float8_e8m0fnu", None, 1),
    (DType::F6_E2M3FN, 15, 6, "float6_e2m3fn", None, 1),
    (DType::F6_E3M2FN, 16, 6, "float6_e3m2fn", None, 1),
    (DType::F4_E2M1FN, 17, 4, "float4_e2m1fn", None, 1),
];

/// R15, R16, R55, R61, R62, bugs 105, 111: one table, used in both directions.
#[test]
fn every_type_has_one_spelling() {
    for (dtype, code, bits, name, typestr, bytes) in TABLE {
        assert_eq!((dtype.code, dtype.bits, dtype.lanes), (code, bits, 1), "{name}");
        assert_eq!(dtype, DType::new(code, bits, 1));
        assert_eq!((dtype.to_string().as_str(), name.parse()), (name, Ok(dtype)));
        assert_eq!(dtype.item_bits(true), 8 * bytes, "{name}");
        assert_eq!(dtype.item_bits(false), usize::from(bits), "{name}");
        let own = dtype.typestr();
        assert_eq!(own.as_deref(), typestr, "{name}");
        if let Some(typestr) = typestr {
            assert_eq!(DType::from_typestr(typestr), Ok(dtype));
            assert!(typestr.ends_with(&bytes.to_string()), "bug 111: {typestr}");
        }
    }
    assert_eq!(format!("{:?}", DType::F32.typestr().unwrap()), "\"<f4\"", "a text, as in a dict");
}

/// R40, R41, bugs 101, 104, 105, 109: the accepted typestrs, and the errors for the others.
#[test]
fn typestrs_are_read_by_the_letter() {
    let legal = [
        ("<b1", DType::BOOL),
        (">b1", DType::BOOL),
        ("<i1", DType::I8),
        (">u1", DType::U8),
        ("|V1", DType::opaque(1)),
        ("|V65535", DType::opaque(65_535)),
    ];
    for (text, dtype) in legal {
        assert_eq!(DType::from_typestr(text), Ok(dtype), "{text}");
    }
    let refused: [(&[&str], &str); 8] = [
        (
            &[
                "", "<", "f", "<f", "f4", "=f4", "=u1", "4f<", "<f4 ", " <f4", "<f+4", "<f-4", "<f0x4",
                "<f٤", "é4", "<é", "<é4",
            ],
            "\"<f4\"",
        ),
        (&["|O8", "|S4", "<U4", "<M8", "<m8", "|t1", "<F4", "<g16"], "one of the kinds b, i, u, f, c and V"),
        (&[">f4", ">i2", ">c16", "|f4", "|u8"], "the native byte order"),
        (&["<f1", "<f3", "<f16", "<f0", "<f256"], "kind f of 2, 4 or 8 bytes"),
        (&["<c4", "<c24"], "kind c of 8 or 16 bytes"),
        (&["<b2", "|b0"], "kind b of 1 bytes"),
        (&["<V2", ">V2", "<V4"], "DLPack"),
        (&["|V0", "|V65536"], "1 to 65535 opaque bytes"),
    ];
    for (texts, allowed) in refused {
        for text in texts {
            let error = DType::from_typestr(text).unwrap_err();
            assert_told(&error, (ErrorKind::DType, "typestr", "", allowed));
            assert_eq!(error.found(), format!("{text:?}"));
        }
    }
    let endless = format!("<f{}", "9".repeat(10_000));
    let error = DType::from_typestr(&endless).unwrap_err();
    assert!(error.to_string().len() < 200, "a message is short: {error}");
}

/// R64, R67, bug 110: vector types have names and no typestr.
#[test]
fn lanes_are_part_of_the_name() {
    let vector = DType { lanes: 4, ..DType::F32 };
    assert_eq!((vector.to_string(), vector.lanes, vector.item_bits(false)), ("float32x4".into(), 4, 128));
    assert_eq!((vector.typestr(), "float32x4".parse()), (None, Ok(vector)));
    let torch = DType { lanes: 2, ..DType::F4_E2M1FN };
    assert_eq!(
        (torch.to_string(), torch.item_bits(false), torch.item_bits(true)),
        ("float4_e2m1fnx2".into(), 8, 16)
    );
    assert_eq!("float4_e2m1fnx2".parse(), Ok(torch));
    for (dtype, .., name, _, _) in TABLE {
        for lanes in [2, 3, 65_535] {
            let name = format!("{name}x{lanes}");
            assert_eq!(
                ((DType { lanes, ..dtype }).to_string(), name.parse()),
                (name, Ok(DType { lanes, ..dtype }))
            );
        }
    }
}

/// A string that is no name of a type is refused.
#[test]
fn other_names_name_nothing() {
    let rows = [
        "",
        "x",
        "x4",
        "float",
        "float33",
        "float32x",
        "float32x0",
        "float32x1",
        "float32x65536",
        "float32x-4",
        "float32x4x4",
        "Float32",
        "float32 ",
        "f4",
        "bool8",
        "bfloat",
        "float8",
        "uint1",
    ];
    for name in rows {
        assert_eq!(name.parse::<DType>().ok(), None, "{name:?}");
    }
    for name in ["float32x+4", "float32x04"] {
        assert_eq!(name.parse::<DType>().ok(), None, "no type has the name {name:?}");
    }
}

/// The name of a blob can be parsed again, like those of the other types.
#[test]
fn blobs_have_names() {
    let blob = DType::opaque(12);
    assert_eq!((blob.to_string(), blob.typestr().unwrap()), ("opaque96".into(), "|V12".into()));
    assert_eq!("opaque96".parse(), Ok(blob));
    assert_eq!("opaque97".parse::<DType>().ok(), None);
}

/// Bug 98, R56, R57, R65: each triple is a type, or an error with its numbers; nothing panics.
#[test]
#[cfg_attr(miri, ignore = "327 680 triples are too many for an interpreter")]
fn every_triple_is_answered() {
    let known = |code, bits| match code {
        3 => bits > 0 && bits % 8 == 0,
        0..=17 => TABLE.iter().any(|row| (row.1, row.2) == (code, bits)),
        _ => bits > 0 && bits % 8 == 0,
    };
    for (code, bits) in (0..=u8::MAX).flat_map(|code| (0..=u8::MAX).map(move |bits| (code, bits))) {
        for lanes in [0, 1, 2, 4, u16::MAX] {
            let dtype = DType::new(code, bits, lanes);
            let claims = RawDescriptor {
                dtype,
                stream: Some(StreamHandle::NothingPending),
                ..RawDescriptor::new(0x1000, Device::cuda(0), &[2])
            };
            let answer = claims.validate();
            assert_eq!(answer.is_ok(), lanes > 0 && known(code, bits), "{dtype}");
            match answer {
                Err(error) => {
                    let numbers = format!("code {code}, {bits} bits, lanes {lanes}");
                    assert_eq!((error.kind(), error.location()), (ErrorKind::DType, "dtype"));
                    assert!(error.found().contains(&numbers), "{error}");
                }
                Ok(info) => {
                    let said =
                        CudaArrayInterface::try_from(&info).map(|said| DType::from_typestr(&said.typestr));
                    match said {
                        Err(error) => assert_eq!(error.kind(), ErrorKind::DType, "{dtype}"),
                        Ok(back) => {
                            assert_eq!(back.unwrap().item_bits(false), dtype.item_bits(false), "{dtype}");
                        }
                    }
                }
            }
        }
    }
}

/// The error messages of the hard cases (R57, R63, R65, bug 99).
#[test]
fn errors_say_what_a_code_allows() {
    let rows = [
        (DType::new(1, 1, 1), "uint1 (code 1, 1 bits", "a bool is code 6 with 8 bits"),
        (DType::new(6, 1, 1), "bool (code 6, 1 bits", "bool of 8 bits"),
        (DType::new(4, 32, 1), "bfloat32 (code 4", "bfloat of 16 bits"),
        (DType::new(15, 8, 1), "code 15, 8 bits", "float6_e2m3fn of 6 bits"),
        (DType::new(16, 4, 1), "code 16, 4 bits", "float6_e3m2fn of 6 bits"),
        (DType::new(17, 8, 1), "code 17, 8 bits", "float4_e2m1fn of 4 bits"),
        (DType::new(2, 128, 1), "float128", "float of 16, 32 or 64 bits"),
        (DType::new(5, 16, 1), "complex16", "complex of 32, 64 or 128 bits"),
        (DType::new(0, 2, 1), "int2", "int of 4, 8, 16, 32 or 64 bits"),
        (DType::new(200, 4, 1), "code 200, 4 bits", "whole bytes"),
        (DType::new(2, 32, 0), "lanes 0", "1 lane or more"),
    ];
    for (dtype, found, allowed) in rows {
        let claims = RawDescriptor { dtype, ..RawDescriptor::new(0x1000, Device::CPU, &[1]) };
        assert_told(&claims.validate().unwrap_err(), (ErrorKind::DType, "dtype", found, allowed));
    }
    // A code that is too new for the table is kept as its numbers (R57).
    let newer = DType::new(200, 32, 1);
    let info =
        RawDescriptor { dtype: newer, ..RawDescriptor::new(0x1000, Device::CPU, &[3]) }.validate().unwrap();
    assert_eq!((info.dtype(), info.nbytes()), (newer, 12));
    assert_eq!((newer.to_string(), newer.typestr()), ("dlpack_code200_bits32_lanes1".into(), None));
}

proptest! {
    #![proptest_config(settings())]

    /// Bug 109: any string is a type or an error about the typestr; a parsed type has the same typestr again.
    #[test]
    fn any_text_is_read_or_refused(text in "[<>|=]?[biufcVOStmM?é]{0,2}[0-9]{0,6}.{0,2}") {
        match DType::from_typestr(&text) {
            Ok(dtype) => prop_assert_eq!(DType::from_typestr(&dtype.typestr().unwrap()), Ok(dtype)),
            Err(error) => prop_assert_eq!((error.kind(), error.location()), (ErrorKind::DType, "typestr")),
        }
    }

    /// Any string is the name of a type, or none.
    #[test]
    fn any_text_is_a_name_or_none(text in "(u?int|float|bool|complex|opaque)?[0-9]{0,3}(x[+0-9]{0,3})?") {
        if let Ok(dtype) = text.parse::<DType>() {
            prop_assert_eq!(dtype.to_string(), text);
        }
    }
}
