//! Views for reading: rank and element type are checked, and each index leads to the right element.

use interop_core::element::{MiniFloat, Opaque};
use interop_core::protocols::dlpack::{FLAG_SUBBYTE_PADDED, Versioned};
use interop_core::{
    CudaArray, DType, Device, Element, ErrorKind, FromArray, HostVec, Lease, SharedBuffer, StreamHandle,
};
use proptest::prelude::*;

use crate::support::arrays::{Array, Claimed, GPU_ADDRESS, Pinned};
use crate::support::brute_force::{indices, offset, offsets, settings};
use crate::support::foreign_tensors::Claims;
use crate::support::streams::stream as stream_of;
use crate::support::{Told, assert_told};

type Float4E2m1fnX2 = MiniFloat<{ DType::F4_E2M1FN.code }>;
type Float6E2m3fn = MiniFloat<{ DType::F6_E2M3FN.code }>;

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Point {
    x: f32,
    y: f32,
    id: u32,
}

/// A view has the description of its struct.
#[test]
fn a_view_is_what_its_struct_is() {
    let array = Array {
        stream: StreamHandle::PerThreadDefault,
        ..Array::strided(Claimed::gpu::<f64>(100, 2), &[4, 3], &[5, 1])
    };
    let view = array.view::<f64, 2>().unwrap();
    assert_eq!((view.address(), view.shape(), view.strides()), (GPU_ADDRESS, [4, 3], [5, 1]));
    let copy = view;
    assert_eq!(copy.shape(), view.shape(), "a view for reading may be copied");
}

/// The debug output of a view has the array's description, also for elements without `Debug`.
#[test]
fn a_view_prints_what_it_is_of() {
    #[derive(Clone, Copy, Element)]
    #[repr(transparent)]
    struct Silent(u16);
    let mut words = Array::new(HostVec::from([1_u16, 2, 3, 4, 5, 6]), &[2, 3]);
    let of = format!("Silent [2, 3] at {:#x}, strides [3, 1], CPU (1))", words.info().unwrap().address());
    let is_printed = |printed: String, name: &str| {
        assert!(printed.starts_with(&format!("{name}(")) && printed.ends_with(&of), "{printed}");
    };
    let view = words.view::<Silent, 2>().unwrap();
    is_printed(format!("{view:?}"), "ArrayView");
    is_printed(format!("{:?}", view.host_view().unwrap()), "HostView");
    assert_eq!(words.view::<Silent, 1>().unwrap_err().kind(), ErrorKind::Rank);
    let view = words.view_mut::<Silent, 2>().unwrap();
    is_printed(format!("{view:?}"), "ArrayViewMut");
    is_printed(format!("{:?}", view.host_view_mut().unwrap()), "HostViewMut");
    let array = Array {
        stream: StreamHandle::PerThreadDefault,
        ..Array::strided(Claimed::gpu::<f64>(100, 2), &[4, 3], &[5, 1])
    };
    assert_eq!(
        format!("{:?}", array.view::<f64, 2>().unwrap()),
        format!(
            "ArrayView(f64 [4, 3] at {GPU_ADDRESS:#x}, strides [5, 1], CUDA (2), ordinal 2, work pending on the {})",
            StreamHandle::PerThreadDefault
        )
    );
}

/// Bugs 63, 71, 107: other element types and ranks.
#[test]
fn element_and_rank_are_compared() {
    let words = Array::new(vec![0_u16; 12], &[2, 6]);
    let dtype = |allowed| -> Told { (ErrorKind::DType, "dtype", "uint16", allowed) };
    assert_told(&words.view::<i16, 2>().unwrap_err(), dtype("int16"));
    assert_told(&words.view::<u32, 2>().unwrap_err(), dtype("uint32"));
    assert_told(&words.view::<[i16; 6], 1>().unwrap_err(), dtype("int16 with trailing axes [6]"));
    assert_told(
        &words.view::<Point, 1>().unwrap_err(),
        dtype("struct {x: float32 @0, y: float32 @4, id: uint32 @8}"),
    );
    let rank = |allowed| -> Told { (ErrorKind::Rank, "shape", "2 axes, shape [2, 6]", allowed) };
    assert_told(&words.view::<u16, 0>().unwrap_err(), rank("0 axes"));
    assert_told(&words.view::<u16, 1>().unwrap_err(), rank("1 axis"));
    assert_told(&words.view::<u16, 3>().unwrap_err(), rank("3 axes"));
    let told = (ErrorKind::Rank, "shape", "1 axis, shape [2]", "2 axes");
    assert_told(&words.view::<[u16; 6], 2>().unwrap_err(), told);
    // All elements can be copied for any rank, but their type is still compared.
    assert_eq!(words.to_vec::<u16>().unwrap(), [0; 12]);
    assert_told(&words.to_vec::<i16>().unwrap_err(), dtype("int16"));
}

/// The last axes may be the parts of an element if their layout matches.
#[test]
fn trailing_axes_are_parts() {
    let cells = Array::new((0..24_u16).collect::<Vec<_>>(), &[2, 3, 4]);
    let rows = cells.view::<[u16; 4], 2>().unwrap();
    assert_eq!((rows.shape(), rows.strides()), ([2, 3], [3, 1]));
    assert_eq!(rows.host_view().unwrap().read([1, 2]).unwrap(), [20, 21, 22, 23]);
    let planes = cells.view::<[[u16; 4]; 3], 1>().unwrap().host_view().unwrap();
    assert_eq!(planes.read([1]).unwrap(), [[12, 13, 14, 15], [16, 17, 18, 19], [20, 21, 22, 23]]);
    let all = cells.view::<[[[u16; 4]; 3]; 2], 0>().unwrap().host_view().unwrap();
    assert_eq!(all.read([]).unwrap()[1][0][3], 15);
    let told = (ErrorKind::Shape, "shape", "[4] as the last axes of [2, 3, 4]", "[3]");
    assert_told(&cells.view::<[u16; 3], 2>().unwrap_err(), told);
    let told = (ErrorKind::Rank, "shape", "3 axes", "4 axes or more, of which the last are [2, 2, 3, 4]");
    assert_told(&cells.view::<[[[[u16; 4]; 3]; 2]; 2], 0>().unwrap_err(), told);

    let turned = Array::strided(vec![0_u16; 24], &[6, 4], &[1, 6]);
    let told = (
        ErrorKind::Strides,
        "strides",
        "[6] for the last axes",
        "contiguous axes [4], which are one element",
    );
    assert_told(&turned.view::<[u16; 4], 1>().unwrap_err(), told);
    let stepped = Array::strided(vec![0_u16; 24], &[3, 4], &[6, 1]);
    let told =
        (ErrorKind::Strides, "strides[0]", "6", "a multiple of 4, the number of items in an element [4]");
    assert_told(&stepped.view::<[u16; 4], 1>().unwrap_err(), told);
    // Axes of extent 1 do not matter.
    assert!(Array::strided(vec![0_u16; 4], &[1, 4], &[7, 1]).view::<[u16; 4], 1>().is_ok());
    assert!(Array::strided(vec![0_u16; 4], &[3, 1], &[1, 9]).view::<[u16; 1], 1>().is_ok());
    assert!(Array::strided(vec![0_u16; 4], &[0, 4], &[7, 3]).view::<[u16; 4], 1>().is_ok());
}

/// R67: parts of less than a byte are parts of an element only if each has its own byte, as in Rust.
#[test]
fn parts_that_are_packed_are_no_parts() {
    let padded = Array::new(vec![[MiniFloat::<15>(5); 4]; 2], &[2]);
    assert_eq!(padded.to_vec::<[Float6E2m3fn; 4]>().unwrap(), [[MiniFloat(5); 4]; 2]);
    assert_eq!(padded.info().unwrap().shape(), [2, 4]);
    let packed = Claims { dtype: DType::F6_E2M3FN, ..Claims::at(0x1_0000, &[2, 4]) };
    let packed: Array<SharedBuffer> = Array::from_dlpack(packed.send::<Versioned>().1).unwrap();
    let error = packed.view::<[Float6E2m3fn; 4], 1>().unwrap_err();
    assert_told(&error, (ErrorKind::DType, "dtype", "float6_e2m3fn", "float6_e2m3fn with trailing axes [4]"));
}

/// R67: two lanes in one byte are a field of a struct; two lanes with a byte each are not.
#[test]
fn lanes_that_are_padded_are_no_fields() {
    #[derive(Clone, Copy, Debug, PartialEq, Element)]
    #[repr(C)]
    struct Scales {
        low: Float4E2m1fnX2,
        high: Float4E2m1fnX2,
    }

    let lanes = DType { lanes: 2, ..DType::F4_E2M1FN };
    for (flags, fits) in [(0, true), (FLAG_SUBBYTE_PADDED, false)] {
        let claims = Claims { dtype: lanes, flags, ..Claims::at(0x1_0000, &[3, 2]) };
        let scales: Array<SharedBuffer> = Array::from_dlpack(claims.send::<Versioned>().1).unwrap();
        assert_eq!(scales.info().unwrap().nbytes(), if fits { 6 } else { 12 });
        let view = scales.view::<Scales, 1>().map(|view| view.shape()).map_err(|error| error.kind());
        assert_eq!(view, if fits { Ok([3]) } else { Err(ErrorKind::DType) });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Renamed {
    x: f32,
    z: f32,
    id: u32,
}

/// Structs are read as a whole and only as their own type.
#[test]
fn structs_are_elements() {
    let point = |id: u8| Point { x: f32::from(id), y: -f32::from(id), id: id.into() };
    let points = Array::strided((0..6).map(point).collect::<Vec<_>>(), &[3], &[2]);
    let view = points.view::<Point, 1>().unwrap().host_view().unwrap();
    assert_eq!(view.iter().collect::<Vec<_>>(), [point(0), point(2), point(4)]);
    assert_eq!(view.read([1]).unwrap(), point(2));

    let told =
        (ErrorKind::DType, "dtype", "struct {x: float32 @0, y: float32 @4, id: uint32 @8}", "z: float32");
    assert_told(&points.view::<Renamed, 1>().unwrap_err(), told);
    for bytes in [points.view::<Opaque<12>, 1>().map(drop), points.view::<f32, 2>().map(drop)] {
        assert_eq!(bytes.unwrap_err().kind(), ErrorKind::DType);
    }
    let pairs = Array::new(vec![[point(1), point(2)]; 3], &[3]);
    let told = (ErrorKind::Rank, "shape", "2 axes, shape [3, 2]", "1 axis");
    assert_told(&pairs.view::<Point, 1>().unwrap_err(), told);
    assert_eq!(pairs.view::<[Point; 2], 1>().unwrap().host_view().unwrap().read([2]).unwrap()[1], point(2));
}

/// Bugs 114, 117, 118, 119: the host reads only host-accessible memory.
#[test]
#[cfg_attr(miri, ignore = "asks for the driver's library, and Miri loads none")]
fn the_host_reads_what_it_reaches() {
    let gpu = Array::new(Claimed::gpu::<f32>(4, 1), &[4]);
    let told =
        (ErrorKind::Device, "device", "CUDA (2), ordinal 1", "CPU (1), CUDAHost (3) or CUDAManaged (13)");
    assert_told(&gpu.view::<f32, 1>().unwrap().host_view().unwrap_err(), told);
    let told_to_copy = (ErrorKind::Driver, "libcuda", "no NVIDIA driver could be loaded", "");
    assert_told(&gpu.to_vec::<f32>().unwrap_err(), told_to_copy);
    assert_told(&gpu.fold((), |(), _: f32| ()).unwrap_err(), told);
    let pinned = Array::new(Pinned(HostVec::from([1_i16, 2])), &[2]);
    assert!(pinned.view::<i16, 1>().unwrap().host_view().unwrap().iter().eq([1, 2]));
    let (_ledger, tensor) = Claims { device: Device::CUDA_MANAGED, ..Claims::new(&[2]) }.send::<Versioned>();
    let managed: Array<Lease<i16>> = Array::from_dlpack(tensor).unwrap();
    assert_eq!(managed.view::<i16, 1>().unwrap().host_view().unwrap().read([1]).unwrap(), 1);
}

/// No stream works on ordinary host memory. (The tests with a driver cover waiting for pinned and managed memory.)
#[test]
fn pending_work_is_not_overtaken() {
    for stream in [StreamHandle::LegacyDefault, StreamHandle::PerThreadDefault, stream_of(0xAB)] {
        let array = Array { stream, ..Array::new(HostVec::from([1_i16, 2]), &[2]) };
        let error = array.view::<i16, 1>().unwrap().host_view().unwrap_err();
        let found = format!("work pending on the {stream}");
        assert_told(&error, (ErrorKind::Stream, "stream", &found, "CPU memory has no pending work"));
    }
}

/// An index out of range is an error that names the axis; in an empty view each index is out of range.
#[test]
fn indices_are_checked() {
    let array = Array::new((0..6_u8).collect::<Vec<_>>(), &[2, 3]);
    let view = array.view::<u8, 2>().unwrap().host_view().unwrap();
    let told = |place, found, allowed| (ErrorKind::IndexOutOfBounds, place, found, allowed);
    assert_told(&view.read([2, 0]).unwrap_err(), told("index[0]", "2", "less than the extent 2"));
    assert_told(&view.read([1, 3]).unwrap_err(), told("index[1]", "3", "less than the extent 3"));
    assert_told(&view.read([usize::MAX; 2]).unwrap_err(), told("index[0]", "18446744073709551615", "2"));
    let empty = Array::new(Vec::<u8>::new(), &[2, 0]);
    let view = empty.view::<u8, 2>().unwrap().host_view().unwrap();
    assert_told(&view.read([0, 0]).unwrap_err(), told("index[1]", "0", "less than the extent 0"));
    assert_eq!((view.iter().next(), view.shape()), (None, [2, 0]));
    let scalar = Array::new(vec![7_u8], &[]);
    assert_eq!(scalar.view::<u8, 0>().unwrap().host_view().unwrap().read([]).unwrap(), 7);
}

/// Bug 87: a misaligned address cannot be referenced, so views that could return a reference are refused.
#[test]
fn odd_addresses() {
    let words = SharedBuffer::new(HostVec::from([0x0201_u16, 0x0403, 0x0605]));
    let odd = Array::new(words.byte_offset(1).unwrap(), &[2]);
    let told = (ErrorKind::Alignment, "data", "address 0x", "a multiple of 2, the alignment of the element");
    assert_told(&odd.view::<u16, 1>().unwrap().host_view().unwrap_err(), told);
    assert_eq!(odd.to_vec::<u16>().unwrap(), [0x0302, 0x0504].map(u16::from_le));
    assert_eq!(odd.info().unwrap().dtype(), DType::U16);
}

/// R33: an array without elements may have any strides, whatever the element type.
#[test]
fn no_elements_of_any_strides() {
    let far = isize::MAX;
    for strides in [[far, far], [1, far], [far / 2, isize::MIN]] {
        let empty = Array::strided(Vec::<f32>::new(), &[0, 3], &strides);
        let view = empty.view::<[f32; 3], 1>().unwrap();
        assert_eq!(view.shape(), [0], "{strides:?}");
        assert_eq!(empty.to_vec::<[f32; 3]>().unwrap(), [[0.0; 3]; 0]);
    }
}

/// R33: an index into an empty array is refused, however large the axes before the empty one are.
#[test]
fn no_index_into_the_empty() {
    let far = isize::MAX.unsigned_abs();
    for strides in [[isize::MAX, 1], [isize::MIN, 1], [-1, -1]] {
        let empty = Array::strided(Vec::<f32>::new(), &[far, 0], &strides);
        let view = empty.view::<f32, 2>().unwrap().host_view().unwrap();
        for at in [0, 1, far - 1] {
            let told = (ErrorKind::IndexOutOfBounds, "index[1]", "0", "less than the extent 0");
            assert_told(&view.read([at, 0]).unwrap_err(), told);
        }
    }
}

proptest! {
    #![proptest_config(settings())]

    /// Each index of a strided view leads to the element found by brute force, also with negative and zero strides.
    #[test]
    fn elements_are_where_the_indices_say(
        shape in prop::array::uniform3(0_usize..5),
        strides in prop::array::uniform3(-9_isize..10),
    ) {
        let visited = offsets(&shape, &strides);
        let low = visited.iter().min().copied().unwrap_or(0);
        let len = usize::try_from(visited.iter().max().copied().unwrap_or(0) - low + 1).unwrap();
        let all: Vec<u32> = (0..).take(len).collect();
        let first = SharedBuffer::new(HostVec::from(all)).byte_offset(isize::try_from(-low).unwrap() * 4).unwrap();
        let array = Array::strided(first, &shape, &strides);
        let view = array.view::<u32, 3>().unwrap().host_view().unwrap();
        let value = |offset: i128| u32::try_from(offset - low).unwrap();
        for index in indices(&shape) {
            let expected = value(offset(&index, &strides));
            prop_assert_eq!(view.read(index.try_into().unwrap()).unwrap(), expected);
        }
        prop_assert_eq!(view.iter().collect::<Vec<_>>(), visited.into_iter().map(value).collect::<Vec<_>>());
    }
}
