//! Rust types as elements: numbers, arrays of numbers, structs, blobs.

use std::mem::{align_of, size_of};

use interop_core::element::{ElementType, MiniFloat, Opaque, StructField, StructType};
use interop_core::{CudaArray, DType, Element, ErrorKind, HostVec, SharedBuffer, Storage};

use crate::support::arrays::Array;
use crate::support::assert_told;

type Float4E2m1fnX2 = MiniFloat<{ DType::F4_E2M1FN.code }>;
type Float6E2m3fn = MiniFloat<{ DType::F6_E2M3FN.code }>;
type Float6E3m2fn = MiniFloat<{ DType::F6_E3M2FN.code }>;
type Float8E3m4 = MiniFloat<{ DType::F8_E3M4.code }>;
type Float8E4m3 = MiniFloat<{ DType::F8_E4M3.code }>;
type Float8E4m3b11fnuz = MiniFloat<{ DType::F8_E4M3B11FNUZ.code }>;
type Float8E4m3fn = MiniFloat<{ DType::F8_E4M3FN.code }>;
type Float8E4m3fnuz = MiniFloat<{ DType::F8_E4M3FNUZ.code }>;
type Float8E5m2 = MiniFloat<{ DType::F8_E5M2.code }>;
type Float8E5m2fnuz = MiniFloat<{ DType::F8_E5M2FNUZ.code }>;
type Float8E8m0fnu = MiniFloat<{ DType::F8_E8M0FNU.code }>;

/// Compares the description of a type with the type.
fn check<T: Element>(dtype: DType, axes: &[usize]) {
    let name = std::any::type_name::<T>();
    let said: ElementType = T::TYPE;
    assert_eq!((said.dtype(), said.axes()), (dtype, axes), "{name}");
    assert_eq!((said.size(), said.align()), (size_of::<T>(), align_of::<T>()), "{name}");
    // A single element of less than a byte takes a byte.
    let items: usize = axes.iter().product();
    assert_eq!(items * dtype.item_bits(dtype.lanes == 1), 8 * size_of::<T>(), "{name}");
}

/// Bugs 103, 111: the size, type and trailing axes of each element type.
#[test]
fn every_element_is_what_it_says() {
    check::<i8>(DType::I8, &[]);
    check::<i16>(DType::I16, &[]);
    check::<i32>(DType::I32, &[]);
    check::<i64>(DType::I64, &[]);
    check::<isize>(DType::I64, &[]);
    check::<u8>(DType::U8, &[]);
    check::<u16>(DType::U16, &[]);
    check::<u32>(DType::U32, &[]);
    check::<u64>(DType::U64, &[]);
    check::<usize>(DType::U64, &[]);
    check::<f32>(DType::F32, &[]);
    check::<f64>(DType::F64, &[]);
    check::<bool>(DType::BOOL, &[]);
    check::<Float8E3m4>(DType::F8_E3M4, &[]);
    check::<Float8E4m3>(DType::F8_E4M3, &[]);
    check::<Float8E4m3b11fnuz>(DType::F8_E4M3B11FNUZ, &[]);
    check::<Float8E4m3fn>(DType::F8_E4M3FN, &[]);
    check::<Float8E4m3fnuz>(DType::F8_E4M3FNUZ, &[]);
    check::<Float8E5m2>(DType::F8_E5M2, &[]);
    check::<Float8E5m2fnuz>(DType::F8_E5M2FNUZ, &[]);
    check::<Float8E8m0fnu>(DType::F8_E8M0FNU, &[]);
    check::<Float6E2m3fn>(DType::F6_E2M3FN, &[]);
    check::<Float6E3m2fn>(DType::F6_E3M2FN, &[]);
    check::<Float4E2m1fnX2>(DType { lanes: 2, ..DType::F4_E2M1FN }, &[]);
    check::<[f32; 3]>(DType::F32, &[3]);
    check::<[[[[u8; 5]; 4]; 3]; 2]>(DType::U8, &[2, 3, 4, 5]);
    check::<[Float6E2m3fn; 4]>(DType::F6_E2M3FN, &[4]);
    check::<Opaque<1>>(DType::opaque(1), &[]);
    check::<[Opaque<65_535>; 2]>(DType::opaque(65_535), &[2]);
    check::<Particle>(DType::opaque(32), &[]);
    check::<[Particle; 2]>(DType::opaque(32), &[2]);
    check::<Metres>(DType::F32, &[]);
    check::<Pair>(DType::U16, &[2]);
}

/// The strides of elements that are arrays are multiplied by their number of parts, if the axis has a stride.
#[test]
fn strides_of_parts_that_do_not_fit() {
    let of = |shape: &[usize], strides: &[isize]| {
        let buffer = Array::strided(vec![[0_u8; 4]; 8], shape, strides).info()?;
        Ok::<_, interop_core::Error>((buffer.shape().to_vec(), buffer.strides().to_vec()))
    };
    assert_eq!(of(&[2, 3], &[3, 1]).unwrap(), (vec![2, 3, 4], vec![12, 4, 1]));
    for far in [isize::MAX, isize::MAX / 2] {
        assert_eq!(of(&[1, 2], &[far, 1]).unwrap(), (vec![1, 2, 4], vec![0, 4, 1]), "an axis of 1");
        assert_eq!(of(&[0, 2], &[far, far]).unwrap().0, [0, 2, 4], "no elements");
        assert_eq!(of(&[2, 1], &[far, 1]).unwrap_err().kind(), ErrorKind::Overflow, "a stride that is used");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    kind: u8,
    mass: f64,
    spin: Spin,
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Spin {
    up: i16,
    down: i16,
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(transparent)]
struct Metres(f32);

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(transparent)]
struct Pair([u16; 2]);

fn field(name: &str, offset: usize, dtype: DType) -> StructField {
    StructField { name: name.into(), offset, dtype, shape: Vec::new(), struct_type: None }
}

/// A struct is a blob together with its fields, at the offsets that rustc chose.
#[test]
fn a_struct_is_a_record() {
    let nothing = Particle { position: [0.0; 3], kind: 0, mass: 0.0, spin: Spin { up: 0, down: 0 } };
    let info = Array::new(vec![nothing; 6], &[2, 3]).info().unwrap();
    let spin = StructType { fields: vec![field("up", 0, DType::I16), field("down", 2, DType::I16)] };
    let fields = vec![
        StructField { shape: vec![3], ..field("position", 0, DType::F32) },
        field("kind", 12, DType::U8),
        field("mass", 16, DType::F64),
        StructField { struct_type: Some(spin), ..field("spin", 24, DType::opaque(4)) },
    ];
    assert_eq!(info.struct_type(), Some(&StructType { fields }));
    assert_eq!((info.dtype(), info.shape(), info.nbytes()), (DType::opaque(32), &[2, 3][..], 192));
}

/// The parts of an element are the last axes and count in the strides.
#[test]
fn parts_are_trailing_axes() {
    let pixels = Array::strided(vec![[0_u8; 4]; 12], &[3, 2], &[-4, 2]);
    // The first element lies behind the others, which are then outside the vector.
    assert_eq!(pixels.info().unwrap_err().kind(), ErrorKind::OutOfBounds);
    let pixels = Array::strided(vec![[[0_u16; 2]; 5]; 12], &[3, 2], &[4, 2]);
    let info = pixels.info().unwrap();
    assert_eq!((info.shape(), info.strides()), (&[3, 2, 5, 2][..], &[40, 20, 2, 1][..]));
    assert_eq!((info.dtype(), info.nbytes()), (DType::U16, 120));
    assert_eq!(info.byte_range().len(), (2 * 4 + 2 + 1) * 20);
    // The limit of 64 axes includes the parts.
    let told = (ErrorKind::Rank, "shape", "65 axes", "64");
    assert_told(&Array::new(vec![[1_u8; 1]], &[1; 64]).info().unwrap_err(), told);
    assert_eq!(Array::new(vec![[1_u8; 1]], &[1; 63]).info().unwrap().shape().len(), 64);
}

/// A struct without padding is exported through both protocols; padding bytes are never exposed.
#[test]
fn padding_is_never_read() {
    let spins = Array::new(vec![Spin { up: 1, down: -2 }; 3], &[3]);
    assert_eq!(spins.to_vec::<Spin>().unwrap(), [Spin { up: 1, down: -2 }; 3]);
    for bytes in [
        spins.view::<[Opaque<1>; 4], 1>().map(|_| ()),
        spins.view::<Opaque<4>, 1>().map(|_| ()),
        spins.view::<u32, 1>().map(|_| ()),
        spins.view::<[u8; 4], 1>().map(|_| ()),
    ] {
        assert_told(
            &bytes.unwrap_err(),
            (ErrorKind::DType, "dtype", "struct {up: int16 @0, down: int16 @2}", ""),
        );
    }
}

/// The alignment of the Rust type counts, whatever its `TYPE` states, because the address becomes a typed pointer.
#[test]
#[expect(unsafe_code, reason = "an element of which less is said than there is")]
fn the_alignment_is_that_of_the_rust_type() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C, align(8))]
    struct Pixel([f32; 2]);
    // SAFETY: two consecutive `f32`. The alignment is larger than that of `f32`, which deliberately violates the
    // first rule.
    unsafe impl Element for Pixel {
        const TYPE: interop_core::element::ElementType = <[f32; 2]>::TYPE;
    }
    // One of the two halves is not aligned to 8 bytes.
    let all = SharedBuffer::new(vec![0_f32; 4]);
    for bytes in [0, 4] {
        let part = all.byte_offset(bytes).unwrap();
        let aligned = Storage::memory(&part).unwrap().address % 8 == 0;
        let array = Array::new(part, &[1, 2]);
        let host = array.view::<Pixel, 1>().unwrap().host_view();
        assert_eq!(
            host.as_ref().err().map(interop_core::Error::kind),
            (!aligned).then_some(ErrorKind::Alignment)
        );
        assert_eq!(host.map_or(Pixel([0.0; 2]), |view| view.read([0]).unwrap()), Pixel([0.0; 2]));
        assert_eq!(array.to_vec::<Pixel>().unwrap(), [Pixel([0.0; 2])], "copied byte by byte");
    }
    assert_eq!(HostVec::<Pixel>::zeroed(3).as_mut_slice().unwrap().as_ptr().addr() % 8, 0);
}

/// A `HostVec` can hold elements with an alignment of more than 128 bytes.
#[test]
fn over_aligned_elements_are_aligned() {
    #[derive(Clone, Copy, Element)]
    #[repr(C, align(512))]
    struct Block {
        words: [u64; 64],
    }
    for len in 0..9 {
        let mut blocks = HostVec::<Block>::zeroed(len);
        let first = blocks.as_mut_slice().unwrap();
        assert_eq!((first.as_ptr().addr() % 512, first.len()), (0, len));
        assert!(first.iter().all(|block| block.words == [0; 64]));
    }
}

/// What an attribute below the derive may do to a newtype with `#[repr(transparent)]`.
#[test]
#[should_panic(expected = "the struct is not transparent")]
fn a_newtype_has_the_layout_of_its_part() {
    #[repr(C, align(16))]
    struct Aligned(f32);
    let _ = ElementType::newtype::<Aligned>(f32::TYPE);
}

/// A type of another crate, such as `glam::Vec4`: more aligned than its parts, and neither an array nor a derived
/// struct.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(16))]
struct Vec4([f32; 4]);

// SAFETY: four consecutive `f32`.
#[expect(unsafe_code, reason = "states what a type is that no derive can be put on")]
unsafe impl Element for Vec4 {
    const TYPE: ElementType = ElementType::same_as::<Self, [f32; 4]>();
}

/// It is described by its memory layout, and views require its own alignment.
#[test]
fn a_type_of_another_crate_is_like_an_element() {
    check::<Vec4>(DType::F32, &[4]);
    let planes = HostVec::from([Vec4([1.0, 2.0, 3.0, 4.0]), Vec4([5.0, 6.0, 7.0, 8.0])]);
    let array = Array::new(planes, &[2]);
    assert_eq!(array.info().unwrap().shape(), [2, 4]);
    assert_eq!(
        array.view::<Vec4, 1>().unwrap().host_view().unwrap().read([1]).unwrap(),
        Vec4([5.0, 6.0, 7.0, 8.0])
    );
    // There is a whole element from the second number on, but its address is only a multiple of 4.
    let numbers = Array::new(HostVec::from([0.0_f32, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0]), &[2, 4]);
    assert_eq!(
        numbers.view::<Vec4, 1>().unwrap().host_view().unwrap().read([0]).unwrap(),
        Vec4([0.0, 1.0, 2.0, 3.0])
    );
    let shifted = SharedBuffer::new(numbers.data).byte_offset(4).unwrap();
    let shifted = Array::new(shifted, &[1, 4]);
    let error = shifted.view::<Vec4, 1>().unwrap().host_view().unwrap_err();
    let told = (ErrorKind::Alignment, "data", "address", "a multiple of 16, the alignment of the element");
    assert_told(&error, told);
    assert_eq!(shifted.to_vec::<Vec4>().unwrap(), [Vec4([1.0, 2.0, 3.0, 4.0])]);
}

/// It must have the size of the type that it is declared like.
#[test]
#[should_panic(expected = "the size of the Rust type is not that of the element")]
fn a_type_of_another_size_is_not_like_an_element() {
    let _ = ElementType::same_as::<Vec4, [f32; 3]>();
}
