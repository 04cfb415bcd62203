//! The attributes that the driver reports for an address: memory type, ordinal, context, range.

use interop_core::cuda::{
    Context, CudaBuffer, MemoryKind, PointerAttributes, device_address, pointer_attributes,
};
use interop_core::{DType, Device, ErrorKind, Storage};

use crate::cuda_program::{Bytes, Place, current};
use crate::exclusive_driver::{first_gpu, turn};
use crate::registered_memory::Registered;
use crate::support::assert_told;

#[track_caller]
fn known(address: usize) -> PointerAttributes {
    pointer_attributes(address).expect("the driver answers").expect("it knows the address")
}

/// A context as the library represents it.
fn context(place: Place) -> Option<Context> {
    // SAFETY: the handle comes from the driver.
    #[expect(unsafe_code, reason = "the handle comes from the driver")]
    unsafe {
        Context::from_raw(crate::support::signed(place.0))
    }
}

#[test]
fn every_kind_is_told_apart_in_one_call() {
    let turn = turn();
    let place = Place::primary(1);
    let memory: [(Bytes, Device, Option<Context>); 4] = [
        (place.bytes(0, 96), Device::cuda(1), context(place)),
        (place.pool(0, 96), Device::cuda(1), None),
        (place.pinned(0, 96), Device::CUDA_HOST, context(place)),
        (place.managed(0, 96), Device::CUDA_MANAGED, context(place)),
    ];
    for (bytes, device, context) in &memory {
        let (known, calls) = turn.count(|| known(bytes.at()));
        assert_eq!((known.device, known.ordinal, known.context), (*device, 1, *context));
        assert_eq!(known.range, bytes.at()..bytes.at() + 96);
        assert_eq!((calls, turn.calls("cuPointerGetAttributes")), (1, 1), "{device}");
    }
}

#[test]
fn registered_memory_is_pinned() {
    let _turn = turn();
    let registered = Registered::new(128);
    let known = known(registered.at() + 100);
    assert_eq!((known.device, known.ordinal), (Device::CUDA_HOST, 0));
    assert_eq!(known.range, registered.at()..registered.at() + 128);
    assert_eq!(device_address(registered.at() + 5).unwrap(), registered.at() + 5);
}

#[test]
fn an_interior_address_has_the_facts_of_the_whole_and_the_end_has_none() {
    let _turn = turn();
    let bytes = Place::primary(0).bytes(0, 64);
    for inside in [0, 1, 33, 63] {
        assert_eq!(known(bytes.at() + inside), known(bytes.at()));
    }
    assert_eq!(pointer_attributes(bytes.at() + 64).unwrap(), None);
    assert_eq!(pointer_attributes(bytes.at() - 1).unwrap(), None);
}

#[test]
fn what_is_none_of_cudas_is_known_to_nobody() {
    let _turn = turn();
    let host = [0_u8; 16];
    let freed = Place::primary(0).bytes(0, 16).at();
    let unregistered = Registered::new(16).at();
    for address in [0, 1, usize::MAX, host.as_ptr().addr(), freed, unregistered] {
        assert_eq!(pointer_attributes(address).unwrap(), None, "{address:#x}");
        let error = device_address(address).unwrap_err();
        let found = "which the driver does not know: a plain host address, or freed memory";
        assert_told(&error, (ErrorKind::Device, "data", found, "memory that a device can reach"));
        assert!(error.found().starts_with(&format!("{address:#x}")), "{error}");
    }
}

#[test]
fn pool_memory_is_known_as_such() {
    let (_turn, place) = first_gpu();
    assert_eq!(known(place.pool(0, 16).at() + 7).context, None);
    for bytes in [place.bytes(0, 16), place.pinned(0, 16), place.managed(0, 16)] {
        assert_ne!(known(bytes.at()).context, None);
        assert_eq!(device_address(bytes.at() + 9).unwrap(), bytes.at() + 9);
    }
}

#[test]
fn memory_of_a_context_of_its_own_says_so() {
    let _turn = turn();
    let own = Place::foreign(1);
    {
        let bytes = own.bytes(0, 16);
        assert_eq!((known(bytes.at()).context, known(bytes.at()).ordinal), (context(own), 1));
    }
    own.destroy();
}

#[test]
fn buffers_of_the_core_are_what_they_say() {
    let _turn = turn();
    for kind in [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Pinned, MemoryKind::Managed] {
        for ordinal in [0, 1] {
            let buffer = CudaBuffer::zeroed(kind, ordinal, DType::F64, 5).unwrap();
            let known = known(buffer.memory().unwrap().address);
            assert_eq!((known.device, known.ordinal), (buffer.memory().unwrap().device, ordinal), "{kind:?}");
            assert_eq!(known.range, buffer.memory().unwrap().range, "{kind:?}");
            assert_eq!(known.context.is_none(), kind == MemoryKind::Pool, "{kind:?}");
        }
    }
    assert_eq!(interop_core::cuda::finish_releases(), 0);
}

#[test]
fn the_primary_context_is_that_of_every_library() {
    let _turn = turn();
    for ordinal in [0, 1] {
        assert_eq!(Some(Context::primary(ordinal).unwrap()), context(Place::primary(ordinal)));
    }
    for ordinal in [-1, 2, i32::MAX] {
        let error = Context::primary(ordinal).unwrap_err();
        let found = "CUDA_ERROR_INVALID_DEVICE (101)";
        assert_told(
            &error,
            (ErrorKind::Driver, "cuDevicePrimaryCtxRetain", found, "a device of this machine"),
        );
        assert!(error.allowed().contains(&ordinal.to_string()), "{error}");
    }
    assert_eq!((interop_core::cuda::device_count(), current()), (2, None));
}
