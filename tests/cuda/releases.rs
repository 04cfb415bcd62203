//! Exports of buffers that are freed in the current context: a drop elsewhere still frees them in their own context.

use std::thread;

use cudarc::driver::CudaContext;
use cust::context::{Context, CurrentContext};
use cust::device::Device as CustDevice;
use cust::memory::{DeviceBox, DeviceBuffer, LockedBuffer, UnifiedBuffer};
use cust::stream::{Stream, StreamFlags};
use interop_core::adapters::cust::InContext;
use interop_core::cuda::{finish_releases, pending_releases, pointer_attributes, set_blocking_hook};
use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::storage::Relabeled;
use interop_core::{CudaArray, Device, Import, Storage};

use crate::order_settings::Releases;
use crate::support::{Matrix, current_context, has_second_device, no_context, numbers, turn};

/// Exports the storage, calls `elsewhere` on another thread and drops the export there. Checks that the memory is
/// freed and that the thread's current context is unchanged.
fn freed_elsewhere<S: Storage + Send + 'static>(data: S, columns: usize, elsewhere: fn()) {
    let tensor = Matrix { data, rows: 1, columns }.into_dlpack().unwrap();
    let address = tensor.info().unwrap().address();
    assert!(pointer_attributes(address).unwrap().is_some());
    thread::scope(|scope| {
        scope.spawn(|| {
            elsewhere();
            let before = current_context();
            drop(tensor);
            assert_eq!(finish_releases(), 0);
            assert_eq!(current_context(), before);
        });
    });
    assert_eq!(pointer_attributes(address).unwrap(), None, "the memory was not freed");
}

fn every_buffer(elsewhere: fn()) {
    let _context = cust::quick_init().unwrap();
    freed_elsewhere(DeviceBuffer::from_slice(&numbers(6)).unwrap(), 6, elsewhere);
    freed_elsewhere(DeviceBox::new(&1.0_f32).unwrap(), 1, elsewhere);
    freed_elsewhere(LockedBuffer::from_slice(&numbers(6)).unwrap(), 6, elsewhere);
    freed_elsewhere(InContext::new(UnifiedBuffer::from_slice(&numbers(6)).unwrap()), 6, elsewhere);
    let context = CudaContext::new(0).unwrap();
    // On the default stream `cudarc` frees in the current context; on another stream any context will do.
    freed_elsewhere(context.default_stream().clone_htod(&numbers(6)).unwrap(), 6, elsewhere);
    freed_elsewhere(context.new_stream().unwrap().clone_htod(&numbers(6)).unwrap(), 6, elsewhere);
    // SAFETY: both buffers are written below or never read.
    let pinned = unsafe { context.alloc_pinned_with_flags::<f32>(6, 0) }.unwrap();
    freed_elsewhere(pinned, 6, elsewhere);
    // SAFETY: as above.
    let unified = unsafe { context.alloc_unified::<f32>(6, true) }.unwrap();
    freed_elsewhere(unified, 6, elsewhere);
}

/// The array has no elements, but the memory still exists and must be freed.
#[test]
fn memory_behind_an_array_without_elements_is_freed_in_its_context() {
    fn check<S: Storage + Send + 'static>(data: S) {
        let address = data.memory().unwrap().address;
        let tensor = Matrix { data, rows: 0, columns: 3 }.into_dlpack().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                no_context();
                drop(tensor);
                assert_eq!((finish_releases(), current_context()), (0, 0));
            });
        });
        assert_eq!(pointer_attributes(address).unwrap(), None, "the memory was not freed");
    }
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    check(DeviceBuffer::from_slice(&numbers(6)).unwrap());
    check(LockedBuffer::from_slice(&numbers(6)).unwrap());
    let context = CudaContext::new(0).unwrap();
    check(context.default_stream().clone_htod(&numbers(6)).unwrap());
}

/// The memory is exported as host memory, so the exporter does not know the context.
#[test]
fn memory_that_is_called_the_hosts_is_freed_in_its_context() {
    fn check<S: Storage + Send + 'static>(data: S) {
        let host = Relabeled::as_host(Matrix { data, rows: 2, columns: 3 })
            .map_err(|refused| refused.error)
            .unwrap();
        let tensor = host.into_dlpack().map_err(|refused| refused.error).unwrap();
        let info = tensor.info().unwrap();
        assert_eq!(info.device(), Device::CPU);
        thread::scope(|scope| {
            scope.spawn(|| {
                no_context();
                drop(tensor);
                assert_eq!(current_context(), 0);
            });
        });
        assert_eq!(pointer_attributes(info.address()).unwrap(), None, "the memory was not freed");
    }
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    check(LockedBuffer::from_slice(&numbers(6)).unwrap());
    check(InContext::new(UnifiedBuffer::from_slice(&numbers(6)).unwrap()));
    let context = CudaContext::new(0).unwrap();
    // SAFETY: never read.
    check(unsafe { context.alloc_pinned_with_flags::<f32>(6, 0) }.unwrap());
}

/// The interface names no context. The release uses the context that was current at the import, in which the owner
/// was usually created.
#[test]
#[expect(unsafe_code, reason = "an interface dict says nothing of its memory's life")]
fn the_owner_of_an_interface_is_freed_where_no_context_is_current() {
    fn check<S: Storage + Send + 'static>(data: S) {
        let memory = data.memory().unwrap();
        let interface = CudaArrayInterface {
            shape: vec![6],
            typestr: "<f4".into(),
            data: (memory.address, false),
            version: 3,
            ..CudaArrayInterface::default()
        };
        // SAFETY: the owner keeps the memory alive, and the memory is on the stated device.
        let import = unsafe { Import::from_cai_on_device(&interface, memory.device, data) }.unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                no_context();
                drop(import);
                assert_eq!((finish_releases(), current_context()), (0, 0));
            });
        });
        assert_eq!(pointer_attributes(memory.address).unwrap(), None, "the memory was not freed");
    }
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    check(DeviceBuffer::from_slice(&numbers(6)).unwrap());
    check(LockedBuffer::from_slice(&numbers(6)).unwrap());
}

#[test]
fn freed_where_no_context_is_current() {
    let _turn = turn();
    every_buffer(no_context);
}

/// The policy applies to pending work. It does not change where memory is freed.
#[test]
fn freed_at_once_where_no_context_is_current() {
    struct Policied;
    impl Drop for Policied {
        fn drop(&mut self) {
            Releases::AfterContext.set();
        }
    }
    let _turn = turn();
    let _policied = Policied;
    Releases::Unordered.set();
    let _context = cust::quick_init().unwrap();
    freed_elsewhere(DeviceBuffer::from_slice(&numbers(6)).unwrap(), 6, no_context);
    freed_elsewhere(LockedBuffer::from_slice(&numbers(6)).unwrap(), 6, no_context);
}

#[test]
fn freed_where_the_context_of_another_device_is_current() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    if has_second_device() {
        every_buffer(|| cudarc::driver::CudaContext::new(1).unwrap().bind_to_thread().unwrap());
    }
}

/// The export retains the primary context, which the last handle would otherwise destroy.
#[test]
fn an_export_outlives_the_handles_of_its_context() {
    let _turn = turn();
    let context = cust::quick_init().unwrap();
    let data = DeviceBuffer::from_slice(&numbers(6)).unwrap();
    let tensor = Matrix { data, rows: 2, columns: 3 }.into_dlpack().unwrap();
    drop(context);
    no_context();
    let address = tensor.info().unwrap().address();
    assert!(pointer_attributes(address).unwrap().is_some(), "the memory went with the context");
    drop(tensor);
    assert_eq!((finish_releases(), pending_releases()), (0, 0));
    assert_eq!(pointer_attributes(address).unwrap(), None);
}

/// With `InContext` this also holds without an export.
#[test]
fn a_buffer_in_its_context_is_freed_anywhere() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let buffer = InContext::new(DeviceBuffer::from_slice(&numbers(6)).unwrap());
    let address = buffer.memory().unwrap().address;
    thread::scope(|scope| {
        scope.spawn(|| {
            no_context();
            drop(buffer);
            assert_eq!(current_context(), 0);
        });
    });
    assert_eq!(pointer_attributes(address).unwrap(), None);
}

/// Pool memory belongs to a device, not to a context.
#[test]
#[expect(unsafe_code, reason = "memory that nothing was written to")]
fn a_buffer_from_a_pool_is_freed_on_its_device() {
    let _turn = turn();
    let first = cust::quick_init().unwrap();
    if !has_second_device() {
        return;
    }
    let second = Context::new(CustDevice::get_device(1).unwrap()).unwrap();
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    // SAFETY: never read.
    let buffer = InContext::new(unsafe { DeviceBuffer::<f32>::uninitialized_async(6, &stream) }.unwrap());
    stream.synchronize().unwrap();
    let address = buffer.memory().unwrap().address;
    CurrentContext::set_current(&first).unwrap();
    drop(buffer);
    assert_eq!(pointer_attributes(address).unwrap(), None, "the memory was not freed");
    CurrentContext::set_current(&second).unwrap();
    drop(stream);
}

/// The blocking hook runs around a free, so that the thread can release a lock there: the free waits for kernels,
/// which may wait for the lock.
#[test]
fn a_buffer_in_its_context_is_freed_without_a_lock() {
    use core::sync::atomic::{AtomicUsize, Ordering};
    static FREED: AtomicUsize = AtomicUsize::new(0);
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    set_blocking_hook(|free| {
        free();
        FREED.fetch_add(1, Ordering::Relaxed);
    });
    let buffer = || InContext::new(UnifiedBuffer::from_slice(&numbers(6)).unwrap());
    let address = buffer().memory().unwrap().address;
    assert_eq!((FREED.load(Ordering::Relaxed), pointer_attributes(address).unwrap()), (1, None));
    drop(Matrix { data: buffer(), rows: 2, columns: 3 }.into_dlpack().unwrap());
    assert_eq!((finish_releases(), FREED.load(Ordering::Relaxed)), (0, 2));
}

/// The ordinal comes from the driver, not from the current context.
#[test]
fn a_buffer_of_another_device_than_the_current_one() {
    let _turn = turn();
    let first = cust::quick_init().unwrap();
    if !has_second_device() {
        return;
    }
    let second = Context::new(CustDevice::get_device(1).unwrap()).unwrap();
    let data = DeviceBuffer::from_slice(&numbers(6)).unwrap();
    CurrentContext::set_current(&first).unwrap();
    let matrix = Matrix { data, rows: 2, columns: 3 };
    assert_eq!(matrix.info().unwrap().device(), interop_core::Device::cuda(1));
    assert_eq!(current_context(), first.as_raw() as usize);
    CurrentContext::set_current(&second).unwrap();
    drop(matrix);
}
