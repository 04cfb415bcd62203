//! Contexts in which derives often fail: no prelude, shadowed names, other derives, a renamed runtime crate.

/// The runtime crate under another name and path, with nothing in scope.
mod renamed {
    #![no_implicit_prelude]

    mod deep {
        pub(in crate::hygiene) mod vendored {
            pub(in crate::hygiene) use ::interop_core::*;
        }
    }

    const TWO: u8 = 2;

    #[derive(deep::vendored::CudaArray)]
    #[cuda_array(crate = "self::deep::vendored", shape = [n, n, TWO])]
    pub(super) struct Samples {
        #[cuda_array(data)]
        pub(super) values: ::std::vec::Vec<f32>,
        pub(super) n: usize,
        #[cuda_array(stream)]
        pub(super) stream: ::core::option::Option<deep::vendored::StreamHandle>,
        #[cuda_array(default)]
        pub(super) name: ::std::string::String,
    }

    #[derive(::core::clone::Clone, ::core::marker::Copy, deep::vendored::Element)]
    #[cuda_array(crate = "crate::hygiene::renamed::deep::vendored")]
    #[repr(C)]
    pub(super) struct Point {
        pub(super) x: f32,
        pub(super) y: f32,
    }
}

/// Each name of the prelude, and some others, means something else.
mod shadowed {
    #![expect(non_camel_case_types, dead_code, unused_macros, reason = "hostile on purpose")]
    #![allow(unsafe_code, reason = "a raw pointer is among the fields")]

    use ::interop_core::storage::Owner as Keeper;
    use ::interop_core::{CudaArray as Derive, Device as Place, Element as Part};

    pub(super) struct Result;
    pub(super) struct Option;
    pub(super) struct Default;
    pub(super) struct Ok;
    pub(super) struct Err;
    pub(super) struct Some;
    pub(super) struct None;
    pub(super) struct Vec;
    pub(super) struct Self_;
    pub(super) struct Copy;
    pub(super) struct Send;
    pub(super) struct Sync;
    pub(super) struct CudaArray;
    pub(super) struct FromArray;
    pub(super) struct ArrayInfo;
    pub(super) struct Order;
    pub(super) struct Element;
    pub(super) struct str;
    pub(super) struct bool;
    pub(super) struct N;
    pub(super) struct L;
    pub(super) mod core {}
    pub(super) mod std {}
    pub(super) mod interop_core {}

    macro_rules! unreachable {
        () => {
            compile_error!("a macro of the user was called")
        };
    }
    macro_rules! offset_of {
        () => {
            compile_error!("a macro of the user was called")
        };
    }

    /// A trait that gives each value methods with the same names as those that the expansion calls.
    pub(super) trait Everywhere {
        fn literal(self) -> u8;
        fn same_extent(self) -> u8;
        fn extents(self) -> u8;
        fn finish(self) -> u8;
        fn tell(self) -> u8;
        fn take(self) -> u8;
        fn open(self) -> u8;
        fn describe(self) -> u8;
        fn order(self) -> u8;
        fn rank(self) -> u8;
    }

    impl<T> Everywhere for T {
        fn literal(self) -> u8 {
            0
        }
        fn same_extent(self) -> u8 {
            0
        }
        fn extents(self) -> u8 {
            0
        }
        fn finish(self) -> u8 {
            0
        }
        fn tell(self) -> u8 {
            0
        }
        fn take(self) -> u8 {
            0
        }
        fn open(self) -> u8 {
            0
        }
        fn describe(self) -> u8 {
            0
        }
        fn order(self) -> u8 {
            0
        }
        fn rank(self) -> u8 {
            0
        }
    }

    // SAFETY: the owner keeps the memory alive.
    #[derive(Derive)]
    #[cuda_array(shape = [n, n, 3, N], order = "C", readonly)]
    pub(super) struct Hostile<const N: usize> {
        // SAFETY: as above.
        #[cuda_array(data(unsafe_raw))]
        pub(super) pointer: *const f32,
        pub(super) n: usize,
        #[cuda_array(stream)]
        pub(super) stream: super::StreamHandle,
        #[cuda_array(device)]
        pub(super) device: Place,
        #[cuda_array(owner)]
        pub(super) owner: Keeper,
        #[cuda_array(default)]
        pub(super) unit: (),
    }

    #[derive(Derive)]
    #[cuda_array(shape = [n, 3])]
    pub(super) struct Stored {
        #[cuda_array(data)]
        pub(super) values: super::Lease<f32>,
        pub(super) n: usize,
    }

    #[derive(Clone, Part)]
    #[repr(C)]
    pub(super) struct Pixel {
        pub(super) red: u8,
        pub(super) green: u8,
    }

    impl ::core::marker::Copy for Pixel {}

    #[derive(Clone, Copy, Part)]
    #[repr(C)]
    pub(super) struct Lanes<const L: usize> {
        pub(super) lanes: [u8; L],
    }

    const _: () = {
        let (_, _) = (Result, Option);
    };
}

/// Constants and statics, which no `let` can shadow, with names that a macro is likely to use.
#[allow(non_upper_case_globals, dead_code, reason = "the names are what is tried")]
mod constants {
    use interop_core::{CudaArray, Element, StreamHandle};

    static __s: u8 = 0;
    static __f: u8 = 0;
    static __d: u8 = 0;
    const __a: u8 = 0;
    const __v: u8 = 0;
    const __f0: u8 = 0;
    const __f1: u8 = 0;

    #[derive(Clone, Copy, Debug, PartialEq, Element)]
    #[repr(C)]
    pub(super) struct Pixel {
        pub(super) red: f32,
        pub(super) green: f32,
    }

    #[derive(CudaArray)]
    #[cuda_array(shape = [len])]
    pub(super) struct Pixels {
        #[cuda_array(data)]
        pub(super) values: Vec<Pixel>,
        pub(super) len: usize,
        #[cuda_array(stream)]
        pub(super) stream: StreamHandle,
    }
}

/// Fields and types with the names that the expansion itself uses.
mod same_names {
    use interop_core::{CudaArray, Lease};

    #[derive(CudaArray)]
    #[cuda_array(shape = [__arrival, __described, __opened])]
    pub(super) struct SameNames {
        #[cuda_array(data)]
        pub(super) __field0: Lease<f32>,
        pub(super) __arrival: usize,
        pub(super) __described: usize,
        pub(super) __opened: usize,
        #[cuda_array(default = { let __arrival = 1; __arrival + 1 })]
        pub(super) __p: u8,
        #[cuda_array(default)]
        pub(super) info: u8,
        #[cuda_array(default)]
        pub(super) assemble: u8,
    }

    /// Inherent items take precedence over items of traits.
    impl SameNames {
        pub(super) const REQUIREMENTS: u8 = 1;
        pub(super) const TYPE: u8 = 2;

        pub(super) fn assemble() -> u8 {
            Self::REQUIREMENTS + Self::TYPE
        }
    }
}

/// Attributes of other derives keep their meaning.
mod beside_others {
    use interop_core::{CudaArray, Element};

    #[derive(Clone, CudaArray, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
    #[cuda_array(shape = [len])]
    #[must_use]
    #[non_exhaustive]
    pub(super) struct Samples {
        /// Documented.
        #[cuda_array(data)]
        pub(super) values: Vec<u8>,
        #[doc(hidden)]
        pub(super) len: usize,
        #[cfg(test)]
        #[cuda_array(default)]
        pub(super) kind: Kind,
        #[cfg(not(test))]
        #[cuda_array(nonsense)]
        pub(super) kind: u8,
    }

    #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub(super) enum Kind {
        #[default]
        Raw,
    }

    #[derive(Clone, Copy, Debug, Default, Element, Eq, Hash, Ord, PartialEq, PartialOrd)]
    #[repr(transparent)]
    #[cfg_attr(test, must_use)]
    pub(super) struct Code(pub(super) u16);
}

/// A derive inside a function sees the types of the function.
fn local() -> interop_core::ArrayInfo {
    type Buffer = Vec<u8>;

    #[derive(CudaArray)]
    struct Local {
        #[cuda_array(data)]
        bytes: Buffer,
        #[cuda_array(shape)]
        shape: [usize; 1],
    }

    let (import, _) = Foreign::new(&[1_u8, 2], &[2]).send();
    let local = Local::from_import(import).unwrap();
    assert_eq!((local.bytes.len(), local.shape), (2, [2]));
    local.info().unwrap()
}

use interop_core::{CudaArray, Element, FromArray, Import, Lease, StreamHandle};

use crate::support::{Foreign, count};

#[test]
fn a_renamed_runtime_without_a_prelude() {
    let (import, _) = Foreign::new(&count(8), &[2, 2, 2]).send();
    let samples = renamed::Samples::from_import(import).unwrap();
    assert_eq!((samples.n, samples.stream, samples.name.as_str()), (2, None, ""));
    assert_eq!(samples.values, count(8));
    assert_eq!(samples.info().unwrap().shape(), [2, 2, 2]);
    let point = renamed::Point { x: 1.0, y: 2.0 };
    assert_eq!((point.x.to_bits(), point.y.to_bits()), (1.0_f32.to_bits(), 2.0_f32.to_bits()));
    assert_eq!(renamed::Point::TYPE.size(), 8);
}

#[test]
fn shadowed_names() {
    let (import, receipt) = Foreign::new(&count(24), &[2, 2, 3, 2]).send();
    let hostile = shadowed::Hostile::<2>::from_import(import).unwrap();
    assert_eq!(hostile.pointer.addr(), receipt.address);
    assert_eq!((hostile.n, hostile.stream, hostile.unit), (2, StreamHandle::NothingPending, ()));
    assert_eq!(hostile.info().unwrap().shape(), [2, 2, 3, 2]);
    assert_eq!(hostile.device, interop_core::Device::CPU);
    drop(hostile.owner);
    assert_eq!(receipt.releases(), 1);

    let (import, receipt) = Foreign::new(&count(6), &[2, 3]).send();
    let stored = shadowed::Stored::from_import(import).unwrap();
    assert_eq!((stored.n, stored.info().unwrap().address()), (2, receipt.address));
    drop(stored.values);

    let pixel = shadowed::Pixel { red: 1, green: 2 };
    assert_eq!((pixel.red, pixel.green, shadowed::Pixel::TYPE.size()), (1, 2, 2));
    let lanes = shadowed::Lanes { lanes: [1, 2, 3] };
    assert_eq!((lanes.lanes[2], shadowed::Lanes::<3>::TYPE.size()), (3, 3));
}

#[test]
fn the_names_of_the_expansion_are_free() {
    let (import, _) = Foreign::new(&count(6), &[1, 2, 3]).send();
    let same = same_names::SameNames::from_import(import).unwrap();
    assert_eq!((same.__arrival, same.__described, same.__opened, same.__p), (1, 2, 3, 2));
    assert_eq!((same.info, same.assemble, same_names::SameNames::assemble()), (0, 0, 3));
    assert_eq!(same.info().unwrap().shape(), [1, 2, 3]);
    drop(same.__field0);
}

#[test]
fn other_derives_and_attributes() {
    let (import, _) = Foreign::new(&[1_u8, 2], &[2]).send();
    let samples = beside_others::Samples::from_import(import).unwrap();
    assert_eq!(samples.clone(), samples);
    assert_eq!(
        (samples.len, samples.values.as_slice(), samples.kind),
        (2, &[1, 2][..], beside_others::Kind::Raw)
    );
    assert_eq!(beside_others::Samples::default().info().unwrap().numel(), 0);
    assert_eq!((beside_others::Code(3).0, beside_others::Code::TYPE.size()), (3, 2));
}

#[test]
fn structs_of_functions() {
    assert_eq!(local().shape(), [2]);
}

#[test]
fn constants_beside_a_struct_are_not_those_of_the_expansion() {
    let values = vec![constants::Pixel { red: 1.0, green: 2.0 }; 3];
    let pixels = constants::Pixels { values, len: 3, stream: StreamHandle::NothingPending };
    let tensor = pixels.into_dlpack().unwrap();
    let pixels = Import::from_dlpack(tensor).unwrap();
    assert_eq!(pixels.info().shape(), [3, 2]);
}
