//! A machine without a driver: calls that need one return an error, and everything else works.

use std::env;
use std::fs;
use std::process::Command;
use std::sync::Arc;

use interop_core::cuda::{
    Context, CudaBuffer, HoldReleases, MemoryKind, device_address, device_count, finish_releases,
    is_available, pending_releases, pointer_attributes, poll_releases, stream_synchronize, stream_wait,
};
use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::protocols::dlpack::Versioned;
use interop_core::{
    CudaArray, DType, Device, Error, ErrorKind, FromArray, HostVec, Import, LeaseMut, StreamHandle,
};

use crate::counted_imports::claim;
use crate::support::arrays::{Array, Claimed, Matrix, Pinned};
use crate::support::foreign_tensors::Claims;
use crate::support::streams::stream as stream_of;

/// Runs `test` in a process whose first `libcuda` in the search path is a file that is no library.
fn without_driver(name: &str, test: impl FnOnce()) {
    const INSIDE: &str = "INTEROP_DRIVER_ABSENT";
    if env::var_os(INSIDE).is_some() {
        return test();
    }
    let folder = env::temp_dir().join(format!("interop-no-driver-{}-{}", std::process::id(), name.len()));
    fs::create_dir_all(&folder).expect("a folder");
    for library in ["libcuda.so.1", "libcuda.so"] {
        fs::write(folder.join(library), "").expect("a file");
    }
    let binary = env::current_exe().expect("the path of the test binary");
    let mut command = Command::new(binary);
    command.args([name, "--exact", "--test-threads=1"]).env(INSIDE, "1").env("LD_LIBRARY_PATH", &folder);
    let output = command.output().expect("the binary starts");
    fs::remove_dir_all(&folder).expect("the folder goes");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "no test is called {name}: {said}");
}

#[track_caller]
fn assert_absent(name: &str, error: &Error) {
    assert_eq!((error.kind(), error.location()), (ErrorKind::Driver, "libcuda"), "{name}: {error}");
    assert!(error.found().contains("libcuda.so.1"), "{name}: what was looked for: {error}");
    assert!(error.found().starts_with("no NVIDIA driver could be loaded"), "{name}: {error}");
}

#[test]
fn what_needs_a_driver_says_so() {
    without_driver("no_driver::what_needs_a_driver_says_so", || {
        let (legacy, other) = (StreamHandle::LegacyDefault, StreamHandle::PerThreadDefault);
        let errors = [
            ("order", stream_wait(other, legacy, Device::cuda(0)).unwrap_err()),
            ("wait", stream_synchronize(legacy, Device::cuda(0)).unwrap_err()),
            ("pointer_facts", pointer_attributes(0x1000).unwrap_err()),
            ("device_address", device_address(0x1000).unwrap_err()),
            ("Context", Context::primary(0).unwrap_err()),
            ("CudaBuffer", CudaBuffer::zeroed(MemoryKind::Device, 0, DType::F32, 3).unwrap_err()),
            ("to_vec", Array::new(Claimed::gpu::<f32>(4, 0), &[4]).to_vec::<f32>().unwrap_err()),
        ];
        for (name, error) in &errors {
            assert_absent(name, error);
        }
        assert_eq!((is_available(), device_count()), (false, 0));
    });
}

#[test]
fn what_needs_none_works() {
    without_driver("no_driver::what_needs_none_works", || {
        let nothing = StreamHandle::NothingPending;
        stream_wait(StreamHandle::LegacyDefault, nothing, Device::cuda(0)).unwrap();
        stream_wait(StreamHandle::LegacyDefault, StreamHandle::LegacyDefault, Device::cuda(0)).unwrap();
        stream_synchronize(nothing, Device::CUDA_HOST).unwrap();
        drop(HoldReleases::new());
        assert_eq!((poll_releases(), finish_releases(), pending_releases()), (0, 0, 0));

        let array = Arc::new(Array::new(HostVec::from([1_i16, 2, 3]), &[3]));
        let tensor = array.share_dlpack_as::<Versioned>(StreamHandle::LegacyDefault).unwrap();
        let back: Array<LeaseMut<i16>> = Array::from_dlpack(tensor).unwrap();
        assert_eq!(back.to_vec::<i16>().unwrap(), [1, 2, 3]);
        // Memory that is labelled pinned can still be read by the host.
        let pinned = Array::new(Pinned(HostVec::from([4_i16, 5])), &[2]);
        assert_eq!(pinned.to_vec::<i16>().unwrap(), [4, 5]);
    });
}

#[test]
fn claims_of_cuda_memory_stand_and_are_released_at_once() {
    without_driver("no_driver::claims_of_cuda_memory_stand_and_are_released_at_once", || {
        for device in [Device::cuda(0), Device::CUDA_HOST, Device::CUDA_MANAGED] {
            let (ledger, tensor) = claim(0x7F00_0000_0000, 4, device).send::<Versioned>();
            let import = Import::from_dlpack(tensor).unwrap();
            assert_eq!(import.info().device(), device);
            let again = Array::<LeaseMut<i16>>::from_import(import).unwrap().into_dlpack();
            // Producer and consumer both use the legacy stream, so no wait is needed.
            drop(again.unwrap());
            assert_eq!((ledger.released(), pending_releases()), (1, 0), "{device}");
        }
    });
}

#[test]
fn nothing_is_pending_on_what_is_used_in_place() {
    without_driver("no_driver::nothing_is_pending_on_what_is_used_in_place", || {
        let claims = Claims { device: Device::cuda(0), ..Claims::at(0x7F00_0000_0000, &[1, 4]) };
        let import = Import::from_dlpack(claims.send::<Versioned>().1).unwrap();
        let import = import.with_stream(stream_of(0x5000)).unwrap();
        let row: Matrix<LeaseMut<i16>> = Matrix::from_import(import).unwrap();
        assert_eq!(row.info().unwrap().stream(), Some(StreamHandle::NothingPending));
    });
}

#[test]
fn an_interface_needs_the_driver_unless_it_is_empty() {
    without_driver("no_driver::an_interface_needs_the_driver_unless_it_is_empty", || {
        let interface = |extent| CudaArrayInterface {
            shape: vec![extent],
            typestr: "<f4".into(),
            data: (0x7F00_0000_0000, false),
            version: 3,
            ..CudaArrayInterface::default()
        };
        #[expect(unsafe_code, reason = "an import is a promise")]
        // SAFETY: the address is never dereferenced.
        let import = |extent| unsafe {
            Import::from_cai_for_stream(&interface(extent), StreamHandle::LegacyDefault, ())
        };
        assert_absent("from_cai_for", &import(4).unwrap_err());
        assert_eq!(import(0).unwrap().info().device(), Device::cuda(0));
    });
}
