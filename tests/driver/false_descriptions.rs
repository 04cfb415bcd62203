//! Arrays that describe their memory wrongly: they are refused with the driver's answer and released once.

use interop_core::protocols::RawDescriptor;
use interop_core::protocols::dlpack::Versioned;
use interop_core::storage::{Owner, Relabeled};
use interop_core::{CudaArray, DType, Device, ErrorKind, FromArray, HostVec, Import, LeaseMut};

use crate::counted_imports::{ReadyOn, arrive, claim, drained, tell};
use crate::cuda_program::{Place, current};
use crate::exclusive_driver::{first_gpu, turn};
use crate::support::arrays::Array;
use crate::support::assert_told;
use crate::support::counted_owners::{Count, Counted};
use crate::support::foreign_tensors::Claims;

/// Checks that a description is refused with this error and that the tensor is released once.
#[track_caller]
pub(crate) fn assert_refused(claims: Claims, told: (ErrorKind, &str, &str, &str)) {
    let (ledger, tensor) = claims.send::<Versioned>();
    let refused = Import::from_dlpack(tensor).expect_err("the claim is a lie");
    assert_told(&refused.error, told);
    assert_eq!(ledger.released(), 0, "a refusal gives the tensor back");
    drop(refused);
    assert_eq!((ledger.released(), drained(), current()), (1, 0, None));
}

#[test]
fn host_memory_that_is_called_cuda_is_refused() {
    let _turn = turn();
    let host = HostVec::<i16>::zeroed(8);
    let address = interop_core::Storage::memory(&host).unwrap().address;
    let unknown = "which the driver does not know: a plain host address, or freed memory";
    for (device, allowed) in [
        (Device::cuda(0), "an address of CUDA (2), ordinal 0"),
        (Device::CUDA_HOST, "an address of CUDAHost (3)"),
        (Device::CUDA_MANAGED, "an address of CUDAManaged (13)"),
    ] {
        assert_refused(claim(address, 8, device), (ErrorKind::Device, "data", unknown, allowed));
    }
    let found = format!("{address:#x}, which");
    assert_refused(claim(address, 8, Device::cuda(1)), (ErrorKind::Device, "data", &found, "ordinal 1"));
}

/// Tensors with more axes than common are compared with the driver's answer like any other.
#[test]
fn host_memory_of_many_axes_is_asked_about() {
    let _turn = turn();
    let (host, gpu) = (HostVec::<i16>::zeroed(8), Place::primary(0).bytes(0, 16));
    let claims = |address| Claims { device: Device::CPU, ..Claims::at(address, &[1, 2, 1, 2, 1, 2, 1]) };
    let (ledger, tensor) = claims(interop_core::Storage::memory(&host).unwrap().address).send::<Versioned>();
    drop(Import::from_dlpack(tensor).unwrap());
    assert_eq!(ledger.released(), 1);
    let told = (ErrorKind::Device, "device", "memory of CPU (1)", "CUDA (2), ordinal 0, which the driver");
    assert_refused(claims(gpu.at()), told);
}

#[test]
fn freed_memory_is_refused() {
    let (_turn, place) = first_gpu();
    for freed in [place.bytes(0, 16), place.pool(0, 16), place.pinned(0, 16), place.managed(0, 16)] {
        let address = freed.at();
        drop(freed);
        let told = (ErrorKind::Device, "data", "or freed memory", "CUDA (2), ordinal 0");
        assert_refused(claim(address, 4, Device::cuda(0)), told);
    }
}

#[test]
fn the_wrong_kind_is_refused_with_the_driver_s_answer() {
    let (_turn, place) = first_gpu();
    let (device, pinned, managed) = (place.bytes(0, 16), place.pinned(0, 16), place.managed(0, 16));
    let cases = [
        (&pinned, Device::cuda(0), "CUDA (2), ordinal 0", "CUDAHost (3), which the driver"),
        (&pinned, Device::CUDA_MANAGED, "CUDAManaged (13)", "CUDAHost (3), which the driver"),
        (&device, Device::CUDA_HOST, "CUDAHost (3)", "CUDA (2), ordinal 0, which the driver"),
        (&device, Device::CUDA_MANAGED, "CUDAManaged (13)", "CUDA (2), ordinal 0, which the driver"),
        (&managed, Device::CUDA_HOST, "CUDAHost (3)", "CUDAManaged (13), which the driver"),
        (&managed, Device::cuda(1), "CUDA (2), ordinal 1", "CUDAManaged (13), which the driver"),
    ];
    for (bytes, claimed, found, allowed) in cases {
        let claims = claim(bytes.at(), 8, claimed);
        assert_refused(claims, (ErrorKind::Device, "device", &format!("memory of {found}"), allowed));
    }
    let address = format!("reports for {:#x}", device.at());
    let claims = claim(device.at(), 8, Device::CUDA_HOST);
    assert_refused(claims, (ErrorKind::Device, "device", "CUDAHost", &address));
}

#[test]
fn the_wrong_device_is_refused() {
    let _turn = turn();
    for (here, there) in [(0, 1), (1, 0), (0, 7)] {
        let bytes = Place::primary(here).bytes(0, 16);
        let (found, allowed) =
            (format!("ordinal {there}"), format!("ordinal {here}, which the driver reports"));
        let claims = claim(bytes.at(), 8, Device::cuda(there));
        assert_refused(claims, (ErrorKind::Device, "device", &found, &allowed));
    }
}

#[test]
fn device_memory_that_is_called_host_memory_is_refused() {
    let _turn = turn();
    let place = Place::primary(1);
    for bytes in [place.bytes(0, 16), place.pool(0, 16)] {
        let told =
            (ErrorKind::Device, "device", "memory of CPU (1)", "CUDA (2), ordinal 1, which the driver");
        assert_refused(claim(bytes.at(), 8, Device::CPU), told);
        assert_refused(claim(bytes.at() + 4, 2, Device::CPU), told);
    }
}

#[test]
fn pinned_and_managed_memory_may_be_called_host_memory() {
    let (_turn, place) = first_gpu();
    for bytes in [place.pinned(0, 16), place.managed(0, 16)] {
        let (ledger, import) = arrive(&bytes, Device::CPU);
        assert_eq!(import.info().device(), Device::CPU);
        drop(import);
        assert_eq!(ledger.released(), 1);
    }
}

#[test]
fn managed_memory_may_be_called_memory_of_its_device() {
    let _turn = turn();
    for ordinal in [0, 1] {
        let bytes = Place::primary(ordinal).managed(0, 16);
        let (ledger, import) = arrive(&bytes, Device::cuda(ordinal));
        assert_eq!(import.info().device(), Device::cuda(ordinal));
        drop(import);
        assert_eq!((drained(), ledger.released()), (0, 1));
    }
}

#[test]
fn the_ordinal_of_pinned_and_managed_memory_means_nothing() {
    let _turn = turn();
    let place = Place::primary(1);
    for (bytes, device) in
        [(place.pinned(0, 16), Device::CUDA_HOST), (place.managed(0, 16), Device::CUDA_MANAGED)]
    {
        let (ledger, import) = arrive(&bytes, Device { device_id: 5, ..device });
        assert_eq!(import.info().device(), device);
        drop(import);
        assert_eq!((drained(), ledger.released()), (0, 1), "{device}");
    }
}

/// R91: the device of managed memory is the driver's answer, whatever device number the tensor states.
#[test]
fn the_place_of_managed_memory_is_the_drivers_answer() {
    let _turn = turn();
    for ordinal in [0, 1] {
        let bytes = Place::primary(ordinal).managed(0, 16);
        let (ledger, import) = arrive(&bytes, Device { device_id: 5, ..Device::CUDA_MANAGED });
        let array = Relabeled::as_device(Array::<LeaseMut<i16>>::from_import(import).unwrap()).unwrap();
        assert_eq!(array.info().unwrap().device(), Device::cuda(ordinal));
        drop(array);
        assert_eq!((drained(), ledger.released()), (0, 1));
    }
}

#[test]
fn elements_outside_the_allocation_are_refused() {
    let _turn = turn();
    let bytes = Place::primary(0).bytes(0, 64);
    let (gpu, start) = (Device::cuda(0), bytes.at());
    let found = |from: usize, to: usize| format!("elements at {from:#x} to {to:#x}");
    let allowed = format!("{start:#x} to {:#x}, the allocation of 64 bytes", start + 64);
    let cases = [
        (claim(start, 33, gpu), found(start, start + 66)),
        (claim(start + 2, 32, gpu), found(start + 2, start + 66)),
        (claim(start + 62, 2, gpu), found(start + 62, start + 66)),
        (Claims { byte_offset: 62, ..claim(start, 2, gpu) }, found(start + 62, start + 66)),
        (Claims { dtype: DType::F64, ..claim(start, 9, gpu) }, found(start, start + 72)),
        // Below the start of the allocation, and beyond its end in the middle of a stride.
        (Claims { strides: Some(vec![-1]), ..claim(start, 2, gpu) }, found(start - 2, start + 2)),
        (Claims { strides: Some(vec![-16]), ..claim(start + 30, 2, gpu) }, found(start - 2, start + 32)),
        (Claims { strides: Some(vec![31]), ..claim(start, 3, gpu) }, found(start, start + 126)),
    ];
    for (claims, found) in cases {
        assert_refused(claims, (ErrorKind::OutOfBounds, "data", &found, &allowed));
    }
}

#[test]
fn elements_up_to_both_ends_are_accepted() {
    let turn = turn();
    let bytes = Place::primary(0).bytes(0, 64);
    let (gpu, start) = (Device::cuda(0), bytes.at());
    let cases = [
        claim(start, 32, gpu),
        claim(start + 62, 1, gpu),
        Claims { strides: Some(vec![-1]), ..claim(start + 62, 32, gpu) },
        Claims { strides: Some(vec![31]), ..claim(start, 2, gpu) },
        Claims { strides: Some(vec![0]), ..claim(start + 62, 100, gpu) },
        // The stride of an axis of extent 1 does not matter.
        Claims { strides: Some(vec![1 << 40]), ..claim(start + 2, 1, gpu) },
    ];
    for claims in cases {
        let (ledger, tensor) = claims.send::<Versioned>();
        let (import, calls) = turn.count(|| Import::from_dlpack(tensor).unwrap());
        assert_eq!(calls, 1);
        drop(import);
        assert_eq!((drained(), ledger.released()), (0, 1));
    }
}

#[test]
fn arrays_without_elements_are_never_asked_about() {
    let turn = turn();
    for device in [Device::cuda(0), Device::cuda(1), Device::CUDA_HOST, Device::CUDA_MANAGED, Device::CPU] {
        for address in [0, 0x1000, usize::MAX] {
            let (ledger, tensor) = claim(address, 0, device).send::<Versioned>();
            let ((), calls) = turn.count(|| drop(Import::from_dlpack(tensor).unwrap()));
            assert_eq!((calls, ledger.released()), (0, 1), "{device} at {address:#x}");
        }
    }
}

/// Their release waits for nothing either, whichever constructor was used.
#[test]
#[expect(unsafe_code, reason = "the promises about memory that is not there")]
fn arrays_without_elements_are_released_at_once() {
    let turn = turn();
    let spin = Place::primary(0).non_blocking().spin();
    for device in [Device::cuda(0), Device::CUDA_HOST, Device::CUDA_MANAGED] {
        let (ledger, tensor) = claim(0x1000, 0, device).send::<Versioned>();
        // SAFETY: the tensor has no elements and refers to no memory.
        drop(unsafe { Import::from_dlpack_unchecked(tensor) }.unwrap());
        let (info, count) = (RawDescriptor::new(0x1000, device, &[0]).validate().unwrap(), Count::default());
        // SAFETY: as above.
        drop(unsafe { Import::from_parts(info, Owner::new(Counted(count.clone(), ()))) });
        assert_eq!((ledger.released(), count.get()), (1, 1), "{device}");
    }
    turn.release(spin);
}

#[test]
#[expect(unsafe_code, reason = "the promise of who trusts")]
fn a_trusted_import_asks_nothing_and_is_released_in_order() {
    let turn = turn();
    let (first, second) = (Place::primary(0), Place::primary(1));
    let cases = [
        (first, first.bytes(0, 64), Device::cuda(0)),
        (second, second.bytes(0, 64), Device::cuda(1)),
        (first, first.pinned(0, 64), Device::CUDA_HOST),
        (second, first.managed(0, 64), Device::CUDA_MANAGED),
    ];
    for (place, bytes, device) in cases {
        let (ledger, tensor) = tell(&bytes, device);
        // SAFETY: the tensor describes its memory correctly.
        let (import, calls) = turn.count(|| unsafe { Import::from_dlpack_unchecked(tensor) }.unwrap());
        assert_eq!(calls, 0, "{device}");
        let spin = place.non_blocking().spin();
        drop(import);
        assert_eq!((drained(), ledger.released()), (1, 0), "{device}");
        turn.release(spin);
        assert_eq!((drained(), ledger.released()), (0, 1), "{device}");
    }
}

/// Host memory is used in the context that is current at the import, on any device.
#[test]
#[expect(unsafe_code, reason = "creates imports of memory whose lifetime the caller promises")]
fn host_memory_is_released_after_the_context_that_was_current() {
    let turn = turn();
    let own = Place::foreign(1);
    let (bytes, count) = (own.pinned(0, 64), Count::default());
    let claims =
        RawDescriptor { dtype: DType::U8, ..RawDescriptor::new(bytes.at(), Device::CUDA_HOST, &[64]) };
    let info = claims.validate().unwrap();
    // SAFETY: the memory outlives the import and is on the stated device.
    let import = own.with(|| unsafe { Import::from_parts(info, Owner::new(Counted(count.clone(), ()))) });
    let spin = own.non_blocking().spin();
    drop(import);
    assert_eq!((drained(), count.get()), (1, 0));
    turn.release(spin);
    assert_eq!((drained(), count.get()), (0, 1));
    drop(bytes);
    own.destroy();
}

/// Imports that came through no protocol, or through one of the user's own.
#[test]
#[expect(unsafe_code, reason = "creates imports of memory whose lifetime the caller promises")]
fn an_import_of_facts_and_an_owner_is_released_in_order() {
    let (turn, place) = first_gpu();
    let cases = [
        (place.bytes(0, 64), Device::cuda(0)),
        (place.pool(0, 64), Device::cuda(0)),
        (place.pinned(0, 64), Device::CUDA_HOST),
        (place.managed(0, 64), Device::CUDA_MANAGED),
    ];
    for (bytes, device) in cases {
        let claims = RawDescriptor { dtype: DType::U8, ..RawDescriptor::new(bytes.at(), device, &[64]) };
        let (info, count) = (claims.validate().unwrap(), Count::default());
        // SAFETY: the memory outlives the import and is on the stated device.
        let import = unsafe { Import::from_parts(info, Owner::new(Counted(count.clone(), ()))) };
        let spin = place.non_blocking().spin();
        drop(import);
        assert_eq!((drained(), count.get()), (1, 0), "{device}");
        turn.release(spin);
        assert_eq!((drained(), count.get()), (0, 1), "{device}");
    }
    // Host memory needs no query and does not load the driver.
    let (host, count) = ([0_u8; 64], Count::default());
    let claims =
        RawDescriptor { dtype: DType::U8, ..RawDescriptor::new(host.as_ptr().addr(), Device::CPU, &[64]) };
    let info = claims.validate().unwrap();
    // SAFETY: as above.
    let import = || unsafe { Import::from_parts(info, Owner::new(Counted(count.clone(), ()))) };
    let ((), calls) = turn.count(|| drop(import()));
    assert_eq!((calls, count.get()), (0, 1));
    // A graph synchronizes its own work: rebuilding an import that was made for a capture makes no other stream wait.
    let (data, captures) = (place.bytes(0, 64), place.non_blocking());
    let (ledger, import) = arrive(&data, Device::cuda(0));
    captures.begin();
    let (info, owner) = import.ready_on(captures.handle()).into_parts();
    // SAFETY: as above.
    drop(unsafe { Import::from_parts(info, owner) });
    assert_eq!((drained(), ledger.released(), captures.end()), (0, 1, true));
}
