//! Imports of a `__cuda_array_interface__`: a description, or an error that names the key.

use std::cell::Cell;

use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::{CudaArray, DType, Device, ErrorKind, FromArray, Import, Lease, LeaseMut, StreamHandle};

use crate::support::arrays::Array;
use crate::support::counted_owners::{Count, Counted};
use crate::support::streams::stream as stream_of;
use crate::support::{Told, assert_told};

const ADDRESS: usize = 0x7F00_0000_0000;

/// The interface of a contiguous `float32` array.
fn plain(shape: &[i64]) -> CudaArrayInterface {
    CudaArrayInterface {
        shape: shape.to_vec(),
        typestr: "<f4".into(),
        data: (ADDRESS, false),
        version: 3,
        ..CudaArrayInterface::default()
    }
}

/// R25 and others: an invalid value is refused with the name of the key. The corpus has more of them, and what is legal.
#[test]
fn refusals() {
    let strides = |strides: &[i64]| CudaArrayInterface { strides: Some(strides.to_vec()), ..plain(&[2, 3]) };
    let typed = |typestr: &str| CudaArrayInterface { typestr: typestr.into(), ..plain(&[2, 3]) };
    let rows: Vec<(CudaArrayInterface, Told)> = vec![
        (CudaArrayInterface { version: 4, ..plain(&[2]) }, (ErrorKind::Version, "version", "4", "0 to 3")),
        (CudaArrayInterface { mask: true, ..plain(&[2]) }, (ErrorKind::Mask, "mask", "a mask", "None")),
        (plain(&[2, -3]), (ErrorKind::Shape, "shape[1]", "-3", "0 or greater")),
        (plain(&[1; 65]), (ErrorKind::Rank, "shape", "65", "64")),
        (plain(&[1 << 32, 1 << 32, 16]), (ErrorKind::Overflow, "shape", "4294967296", "address space")),
        (strides(&[12]), (ErrorKind::Strides, "strides", "1 stride", "2, one for each axis")),
        (strides(&[]), (ErrorKind::Strides, "strides", "0 strides", "2, one for each axis")),
        (strides(&[12, 6]), (ErrorKind::Strides, "strides[1]", "6 bytes", "4 bytes")),
        (strides(&[i64::MAX - 3, 4]), (ErrorKind::Overflow, "strides", "", "address space")),
        (typed(""), (ErrorKind::DType, "typestr", "\"\"", "such as \"<f4\"")),
        (typed(">f4"), (ErrorKind::DType, "typestr", "\">f4\"", "native byte order")),
        (typed("<V2"), (ErrorKind::DType, "typestr", "\"<V2\"", "DLPack")),
        (typed("|O8"), (ErrorKind::DType, "typestr", "\"|O8\"", "kinds b, i, u, f, c and V")),
        (
            CudaArrayInterface { data: (0, false), ..plain(&[2]) },
            (ErrorKind::NullPointer, "data", "null", "an address"),
        ),
        (
            CudaArrayInterface { data: (usize::MAX - 2, false), ..plain(&[2]) },
            (ErrorKind::Overflow, "shape", "", ""),
        ),
    ];
    for (interface, told) in rows {
        assert_told(&interface.info().unwrap_err(), told);
    }
}

/// The interface states no device: the caller does, and only one that CUDA can access (R34, R36, bug 119).
#[test]
#[expect(unsafe_code, reason = "an interface owns nothing, so importing it is a promise")]
fn the_caller_knows_the_device() {
    let import = |interface: CudaArrayInterface, device, owner: Counted| {
        // SAFETY: nothing is read at the address.
        unsafe { Import::from_cai_on_device(&interface, device, owner) }
    };
    assert!(
        !plain(&[2]).info().unwrap().device().device_type.is_cuda_accessible(),
        "nobody asked the driver"
    );
    for device in [Device::cuda(0), Device::cuda(3), Device::CUDA_HOST, Device::CUDA_MANAGED] {
        let dropped = Count::default();
        let imported = import(plain(&[2]), device, Counted(dropped.clone(), ())).unwrap();
        assert_eq!((imported.info().device(), dropped.get()), (device, 0));
        drop(imported);
        assert_eq!(dropped.get(), 1, "R49: the owner is kept as long as the import");
    }
    let elsewhere = Device { device_id: 3, ..Device::CUDA_HOST };
    let imported = import(plain(&[2]), elsewhere, Counted::default()).unwrap();
    assert_eq!(imported.info().device(), Device::CUDA_HOST, "R90: pinned memory is of no ordinal");
    let told = (ErrorKind::Device, "device", "CPU (1)", "CUDA (2), CUDAHost (3) or CUDAManaged (13)");
    assert_told(&import(plain(&[2]), Device::CPU, Counted::default()).unwrap_err(), told);
    let told = (ErrorKind::Device, "device_id", "-1", "0 or greater");
    assert_told(&import(plain(&[2]), Device::cuda(-1), Counted::default()).unwrap_err(), told);
    let dropped = Count::default();
    assert!(import(plain(&[-2]), Device::cuda(0), Counted(dropped.clone(), ())).is_err());
    assert_eq!(dropped.get(), 1, "a refused import drops its owner");
}

/// A struct made from an interface has its memory, its strides and its stream; the pending data is not read.
#[test]
#[expect(unsafe_code, reason = "an interface owns nothing, so importing it is a promise")]
fn an_interface_becomes_a_struct() {
    let interface = CudaArrayInterface {
        stream: stream_of(0x77),
        strides: Some(vec![4, 8]),
        typestr: "<i4".into(),
        ..plain(&[2, 3])
    };
    // SAFETY: nothing is read at the address.
    let import = || unsafe { Import::from_cai_on_device(&interface, Device::cuda(1), ()) }.unwrap();
    let array: Array<LeaseMut<i32>> = Array::from_import(import()).unwrap();
    assert_eq!((array.shape.as_slice(), array.strides.as_deref()), (&[2, 3][..], Some(&[1, 2][..])));
    assert_eq!(array.stream, stream_of(0x77));
    let info = array.info().unwrap();
    assert_eq!((info.address(), info.device(), info.dtype()), (ADDRESS, Device::cuda(1), DType::I32));
    assert_eq!(array.to_cai().unwrap(), interface, "out again as it came in");

    let refused = Array::<Vec<i32>>::from_import(import()).unwrap_err();
    assert_told(
        &refused.error,
        (ErrorKind::Device, "device", "CUDA (2), ordinal 1", "use `Lease<T>` for memory of any device"),
    );
    let readonly = CudaArrayInterface { data: (ADDRESS, true), ..interface.clone() };
    // SAFETY: nothing is read at the address.
    let import = unsafe { Import::from_cai_on_device(&readonly, Device::cuda(1), ()) }.unwrap();
    let refused = Array::<LeaseMut<i32>>::from_import(import).unwrap_err();
    assert_told(&refused.error, (ErrorKind::ReadOnly, "readonly", "a read-only array", "`Lease<T>`"));
    let lease: Array<Lease<i32>> = Array::from_import(*refused.value).unwrap();
    assert!(lease.to_cai().unwrap().data.1, "R72: still read-only");
}

/// A struct with its own stream accepts data that is ready on that stream or everywhere. For another stream the
/// driver must make the struct's stream wait; without a driver the import is refused and returned.
#[test]
#[cfg_attr(miri, ignore = "asks for the driver's library, and Miri loads none")]
#[expect(unsafe_code, reason = "an interface owns nothing, so importing it is a promise")]
fn a_struct_with_its_own_stream_takes_what_is_ready_there() {
    let import = |stream| {
        let interface = CudaArrayInterface { stream, ..plain(&[2]) };
        // SAFETY: nothing is read at the address.
        unsafe { Import::from_cai_on_device(&interface, Device::cuda(0), ()) }.unwrap()
    };
    let own = StreamHandle::LegacyDefault;
    OWN.set(own);
    for ready in [StreamHandle::NothingPending, own] {
        assert_eq!(OnItsOwnStream::from_import(import(ready)).unwrap().stream, own);
    }
    let refused = OnItsOwnStream::from_import(import(stream_of(7))).unwrap_err();
    let told = (ErrorKind::Driver, "libcuda", "no NVIDIA driver could be loaded", "");
    assert_told(&refused.error, told);
    assert_eq!(refused.value.info().stream(), Some(stream_of(7)));
}

thread_local! {
    static OWN: Cell<StreamHandle> = const { Cell::new(StreamHandle::NothingPending) };
}

#[derive(Debug, CudaArray)]
struct OnItsOwnStream {
    #[cuda_array(data)]
    data: Lease<f32>,
    #[cuda_array(shape)]
    shape: [usize; 1],
    #[cuda_array(stream, default = OWN.get())]
    stream: StreamHandle,
}
