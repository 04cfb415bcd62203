//! The `__cuda_array_interface__` of a struct.

use interop_core::element::{MiniFloat, Opaque};
use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::protocols::{RawDescriptor, Strides};
use interop_core::storage::Mutability;
use interop_core::{ArrayInfo, CudaArray, DType, Device, Element, ErrorKind, HostVec, StreamHandle};
use proptest::prelude::*;

use crate::support::arrays::{Array, Claimed, GPU_ADDRESS, Pinned};
use crate::support::assert_told;
use crate::support::brute_force::{settings, small_layouts};
use crate::support::signed;
use crate::support::streams::stream as stream_of;

type Float4E2m1fnX2 = MiniFloat<{ DType::F4_E2M1FN.code }>;
type Float6E2m3fn = MiniFloat<{ DType::F6_E2M3FN.code }>;
type Float8E4m3fn = MiniFloat<{ DType::F8_E4M3FN.code }>;

/// Memory on which no work is pending.
fn nothing_pending(address: usize, device: Device, shape: &[i64]) -> RawDescriptor<'_> {
    RawDescriptor { stream: Some(StreamHandle::NothingPending), ..RawDescriptor::new(address, device, shape) }
}

/// R1 to R5, R11: a contiguous array.
#[test]
fn a_compact_array_says_little() {
    let interface = Array::new(Claimed::gpu::<f32>(6, 0), &[2, 3]).to_cai().unwrap();
    let expected = CudaArrayInterface {
        shape: vec![2, 3],
        typestr: "<f4".into(),
        data: (GPU_ADDRESS, false),
        version: 3,
        strides: None,
        stream: StreamHandle::NothingPending,
        descr: None,
        mask: false,
    };
    assert_eq!(interface, expected);
}

/// The shape and the strides in elements, and the strides in the interface.
type Row = (&'static [usize], &'static [isize], Option<&'static [i64]>);

/// R6, R8, bugs 66, 67, 73, 83, 84: strides in bytes if they are needed; the address of the first element.
#[test]
fn strides_are_bytes() {
    let rows: [Row; 7] = [
        (&[2, 3], &[3, 1], None),
        (&[2, 3], &[1, 2], Some(&[8, 16])),
        (&[2, 2], &[0, 1], Some(&[0, 8])),
        (&[2, 1, 3], &[4, 999, 1], Some(&[32, 7992, 8])),
        (&[1, 1, 5], &[7, 5, 1], None),
        (&[3, 0], &[-1, 77], None),
        (&[], &[], None),
    ];
    for (shape, strides, expected) in rows {
        let array = Array::strided(Claimed::gpu::<f64>(6000, 0), shape, strides);
        let said = array.to_cai().unwrap().strides;
        assert_eq!(said.as_deref(), expected, "{shape:?} {strides:?}");
    }
    let claims =
        RawDescriptor { strides: Strides::Elements(&[-1]), ..nothing_pending(0x1010, Device::cuda(0), &[3]) };
    let reversed = CudaArrayInterface::try_from(&claims.validate().unwrap()).unwrap();
    assert_eq!((reversed.data.0, reversed.strides), (0x1010, Some(vec![-4])));
}

/// The stride of an axis of extent 1 has no meaning, but must still be valid (R6: a multiple of the item size).
#[test]
fn strides_of_idle_axes_fit() {
    let strides = Strides::Elements(&[i64::MAX / 2, 1, 5]);
    let claims = RawDescriptor { strides, ..nothing_pending(0x1000, Device::cuda(0), &[1, 3, 4]) };
    let said = CudaArrayInterface::try_from(&claims.validate().unwrap()).unwrap().strides.unwrap();
    assert_eq!(said[1..], [4, 20]);
    assert_eq!(said[0] % 4, 0, "{said:?}");
}

/// R7, and like R77: an array without elements has address 0.
#[test]
fn an_empty_array_has_address_0() {
    let interface = Array::new(Claimed::gpu::<f32>(6, 0), &[2, 0]).to_cai().unwrap();
    assert_eq!((interface.data, interface.strides, interface.shape), ((0, false), None, vec![2, 0]));
}

/// R9, R10, R11, R14: the stream on which the data was written, and no stream in version 2.
#[test]
fn streams_and_versions() {
    let rows = [
        StreamHandle::NothingPending,
        StreamHandle::LegacyDefault,
        StreamHandle::PerThreadDefault,
        stream_of(usize::MAX),
    ];
    for stream in rows {
        let array = Array { stream, ..Array::new(Claimed::gpu::<u8>(4, 0), &[4]) };
        let interface = array.to_cai().unwrap();
        assert_eq!((interface.version, interface.stream), (3, stream));
        let legacy =
            CudaArrayInterface { version: 2, stream: StreamHandle::NothingPending, ..interface.clone() };
        assert_eq!(
            legacy,
            CudaArrayInterface { version: 2, stream: StreamHandle::NothingPending, ..interface }
        );
    }
}

/// R19, bugs 131, 140: whether a consumer may write.
#[test]
fn the_readonly_flag() {
    for (mutability, readonly) in
        [(Mutability::Writable, false), (Mutability::UniqueOwner, true), (Mutability::ReadOnly, true)]
    {
        let claims = RawDescriptor { mutability, ..nothing_pending(0x1000, Device::cuda(0), &[1]) };
        assert_eq!(
            CudaArrayInterface::try_from(&claims.validate().unwrap()).unwrap().data.1,
            readonly,
            "{mutability:?}"
        );
    }
}

/// A dict without a stream states that nothing is pending, so a description whose stream is unknown has no interface.
#[test]
fn an_unknown_stream_is_an_error() {
    let unknown = RawDescriptor::new(0x1000, Device::cuda(0), &[1]).validate().unwrap();
    let error = CudaArrayInterface::try_from(&unknown).unwrap_err();
    assert_eq!((error.kind(), error.location()), (ErrorKind::Stream, "stream"));
}

/// R18, R21, bugs 118, 128: only memory that CUDA can access is exported.
#[test]
fn memory_kinds() {
    let pinned = Array::new(Pinned(HostVec::from([1_i32, 2])), &[2]);
    assert_eq!(pinned.to_cai().unwrap().data.0, pinned.info().unwrap().address());
    let managed = nothing_pending(0x1000, Device::CUDA_MANAGED, &[1]).validate().unwrap();
    assert!(CudaArrayInterface::try_from(&managed).is_ok());
    let told = (ErrorKind::Device, "device", "CPU (1)", "use DLPack for host memory");
    assert_told(&Array::new(vec![1_i32; 2], &[2]).to_cai().unwrap_err(), told);
    let unknown =
        RawDescriptor { device: None, ..RawDescriptor::new(0x1000, Device::CPU, &[1]) }.validate().unwrap();
    assert_eq!(CudaArrayInterface::try_from(&unknown).unwrap_err().kind(), ErrorKind::Device);
}

fn facts_of<T: Element>() -> ArrayInfo {
    Array::new(Claimed::gpu::<T>(2, 0), &[2]).info().unwrap()
}

/// R17, bugs 101, 102: types without a typestr are refused; the error names the alternative.
#[test]
fn types_without_a_typestr() {
    let vector = DType { lanes: 4, ..DType::F32 };
    let claimed = |dtype| {
        RawDescriptor { dtype, ..RawDescriptor::new(0x1000, Device::cuda(0), &[2]) }.validate().unwrap()
    };
    let rows = [
        (claimed(DType::BF16), "bfloat16"),
        (claimed(DType::new(5, 32, 1)), "complex32"),
        (claimed(vector), "float32x4"),
        (claimed(DType::new(200, 32, 1)), "code200"),
        (facts_of::<Float8E4m3fn>(), "float8_e4m3fn"),
        (facts_of::<Float6E2m3fn>(), "float6_e2m3fn"),
        (facts_of::<Float4E2m1fnX2>(), "float4_e2m1fnx2"),
    ];
    for (info, found) in rows {
        let error = CudaArrayInterface::try_from(&info).unwrap_err();
        assert_told(&error, (ErrorKind::DType, "typestr", found, "DLPack"));
    }
}

/// The trailing axes of `[T; N]` become axes.
#[test]
fn parts_are_axes() {
    let pixels = Array::strided(Claimed::gpu::<[u8; 3]>(100, 0), &[4, 5], &[10, 1]).to_cai().unwrap();
    assert_eq!((pixels.shape, pixels.typestr), (vec![4, 5, 3], "|u1".to_string()));
    assert_eq!(pixels.strides, Some(vec![30, 3, 1]));
    let blobs = Array::new(Claimed::gpu::<Opaque<12>>(4, 0), &[4]).to_cai().unwrap();
    assert_eq!((blobs.typestr.as_str(), blobs.descr), ("|V12", None));
}

proptest! {
    #![proptest_config(settings())]

    /// Export and import: each layout of each type with a typestr is preserved.
    #[test]
    fn what_goes_out_comes_back(
        (shape, strides) in small_layouts(),
        typestr in prop::sample::select(vec![
            "|b1", "|i1", "|u1", "<i2", "<u2", "<f2", "<f4", "<i8", "<f8", "<c8", "<c16", "|V3", "|V12",
        ]),
        stream in prop::sample::select(vec![0_usize, 1, 2, 3, 0x7F00_0000]),
        writable in any::<bool>(),
    ) {
        let shape: Vec<i64> = shape.iter().copied().map(signed).collect();
        let strides: Vec<i64> = strides.iter().map(|stride| *stride as i64).collect();
        let stream = if stream == 0 { StreamHandle::NothingPending } else { stream_of(stream) };
        let claims = RawDescriptor {
            dtype: DType::from_typestr(typestr).unwrap(),
            strides: Strides::Elements(&strides),
            stream: Some(stream),
            mutability: if writable { Mutability::Writable } else { Mutability::ReadOnly },
            ..RawDescriptor::new(0x1_0000, Device::cuda(0), &shape)
        };
        let info = claims.validate().unwrap();
        let interface = CudaArrayInterface::try_from(&info).unwrap();
        prop_assert_eq!(&interface.typestr, typestr);
        let back = interface.info().unwrap();
        prop_assert_eq!((back.address(), back.byte_range()), (info.address(), info.byte_range()));
        prop_assert_eq!((back.dtype(), back.shape(), back.mutability()), (info.dtype(), info.shape(), info.mutability()));
        prop_assert_eq!(back.stream(), info.stream());
        if interface.strides.is_some() {
            prop_assert_eq!(back.strides(), info.strides());
        }
        prop_assert_eq!(CudaArrayInterface::try_from(&ArrayInfo::clone(&info)).unwrap(), interface);
    }
}
