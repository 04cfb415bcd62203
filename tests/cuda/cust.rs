//! Features of `cust` only: exports of its buffers, its streams, and `launch!`.

use std::mem::swap;
use std::rc::Rc;
use std::sync::Arc;

use cust::context::{Context, CurrentContext};
use cust::device::Device as CustDevice;
use cust::launch;
use cust::memory::{DeviceBox, DeviceBuffer, LockedBuffer, UnifiedBuffer};
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use interop_core::adapters::cust::InContext;
use interop_core::cuda::MemoryKind;
use interop_core::launch::AsStream;
use interop_core::protocols::dlpack::Versioned;
use interop_core::storage::{FromImport, Mutability};
use interop_core::{CudaArray, Device, ErrorKind, FromArray, Import, LeaseMut, Storage, StreamHandle};
use interop_demo_kernels as kernels;
use simulated_cuda::Policy;

use crate::support::{
    Matrix, ReadyOn, Streamed, Strided, has_second_device, no_context, numbers, read, send, simulated,
    source, turn,
};

fn stream() -> Stream {
    Stream::new(StreamFlags::DEFAULT, None).unwrap()
}

fn handle(stream: &Stream) -> StreamHandle {
    stream.as_stream()
}

#[test]
fn every_buffer_is_exported_in_place() {
    fn check<S: Storage + Send + 'static>(data: S, device: Device, mutability: Mutability) {
        let memory = data.memory().unwrap();
        assert_eq!((memory.device, memory.mutability), (device, mutability));
        let import = send(Matrix { data, rows: 2, columns: 3 });
        assert_eq!((import.info().address(), import.info().device()), (memory.address, device));
        assert_eq!(read(import), numbers(6));
    }
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let values = numbers(6);
    check(DeviceBuffer::from_slice(&values).unwrap(), Device::cuda(0), Mutability::Writable);
    check(LockedBuffer::from_slice(&values).unwrap(), Device::CUDA_HOST, Mutability::UniqueOwner);
    let unified = UnifiedBuffer::from_slice(&values).unwrap();
    check(InContext::new(unified), Device::CUDA_MANAGED, Mutability::Writable);
    let unified = Matrix { data: UnifiedBuffer::from_slice(&values).unwrap(), rows: 2, columns: 3 };
    assert_eq!(unified.info().unwrap().device(), Device::CUDA_MANAGED);
    assert_eq!(unified.data.memory().unwrap().mutability, Mutability::UniqueOwner);
    assert_eq!(unified.to_vec::<f32>().unwrap(), values);
    let boxed = Matrix { data: DeviceBox::new(&2.5_f32).unwrap(), rows: 1, columns: 1 };
    assert_eq!(read(send(boxed)), [2.5]);
}

#[test]
fn an_array_of_one_element_becomes_a_box() {
    fn boxed<S: FromImport>(rows: usize, columns: usize) -> Result<Matrix<S>, interop_core::Error> {
        let import = send(Matrix { data: vec![2.5_f32; rows * columns], rows, columns });
        Matrix::from_import(import).map_err(|refused| refused.error)
    }
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let one: Matrix<DeviceBox<f32>> = boxed(1, 1).unwrap();
    assert_eq!((one.data.as_host_value().unwrap(), one.to_vec::<f32>().unwrap()), (2.5, vec![2.5]));
    let one: Matrix<InContext<DeviceBox<f32>>> = boxed(1, 1).unwrap();
    assert_eq!(read(send(one)), [2.5]);
    for (rows, columns, found) in [(2, 3, "[2, 3]"), (0, 3, "[0, 3]")] {
        let error = boxed::<DeviceBox<f32>>(rows, columns).err().unwrap();
        assert_eq!((error.kind(), error.found()), (ErrorKind::Shape, found));
    }
}

/// `get_mut` lends the buffer, so safe code can exchange it: nothing about it is noted.
#[test]
fn an_exchanged_buffer_is_described_anew() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let mut data = InContext::new(DeviceBuffer::from_slice(&numbers(6)).unwrap());
    let mut other = DeviceBuffer::from_slice(&[7.0_f32; 6]).unwrap();
    let address = other.memory().unwrap().address;
    swap(data.get_mut(), &mut other);
    drop(other);
    let import = send(Matrix { data, rows: 2, columns: 3 });
    assert_eq!(import.info().address(), address);
    assert_eq!(read(import), [7.0; 6]);
}

/// A `LockedBuffer` can be borrowed as a slice while it is exported; device memory cannot.
#[test]
fn shared_exports_are_writable_unless_rust_may_read_meanwhile() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let device = Matrix { data: DeviceBuffer::from_slice(&numbers(6)).unwrap(), rows: 2, columns: 3 };
    let import = Import::from_dlpack(Arc::new(device).share_dlpack().unwrap()).unwrap();
    assert!(!import.info().is_read_only());
    let pinned = Matrix { data: LockedBuffer::from_slice(&numbers(6)).unwrap(), rows: 2, columns: 3 };
    let import = Import::from_dlpack(Arc::new(pinned).share_dlpack().unwrap()).unwrap();
    assert!(import.info().is_read_only());
}

#[test]
fn empty_buffers_have_no_address() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let empty = Matrix { data: DeviceBuffer::<f32>::from_slice(&[]).unwrap(), rows: 0, columns: 3 };
    assert_eq!(empty.info().unwrap().address(), 0);
    assert_eq!(send(empty).info().shape(), [0, 3]);
    let empty = Matrix { data: LockedBuffer::<f32>::from_slice(&[]).unwrap(), rows: 0, columns: 3 };
    assert_eq!(read(send(empty)), [0.0; 0]);
}

/// The device is that of the current context, because an empty buffer has no address to query.
#[test]
fn an_empty_buffer_is_on_the_device_that_is_current() {
    let _turn = turn();
    let first = cust::quick_init().unwrap();
    if !has_second_device() {
        return;
    }
    let second = Context::new(CustDevice::get_device(1).unwrap()).unwrap();
    for (context, ordinal) in [(&first, 0), (&second, 1)] {
        CurrentContext::set_current(context).unwrap();
        let empty = Matrix { data: DeviceBuffer::<f32>::from_slice(&[]).unwrap(), rows: 0, columns: 3 };
        assert_eq!(empty.info().unwrap().device(), Device::cuda(ordinal));
    }
    no_context();
}

/// Uses the CUDA Array Interface in both directions. The driver reports the device of the address.
#[test]
fn the_interface_dict_of_a_buffer() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let stream = stream();
    let data = DeviceBuffer::from_slice(&numbers(6)).unwrap();
    let matrix = Streamed { data, rows: 2, columns: 3, stream: handle(&stream) };
    let interface = matrix.to_cai().unwrap();
    assert_eq!(interface.stream, handle(&stream));
    // SAFETY: the owner keeps the memory alive, and the stream is live.
    let import =
        unsafe { Import::from_cai_for_stream(&interface, StreamHandle::LegacyDefault, matrix) }.unwrap();
    assert_eq!(import.info().device(), Device::cuda(0));
    let copy: Matrix<DeviceBuffer<f32>> = Matrix::from_import(import).unwrap();
    assert_eq!(copy.data.as_host_vec().unwrap(), numbers(6));
}

/// A buffer at an address that CUDA does not know, for example of a context that is gone.
#[test]
fn an_address_that_nobody_knows_is_not_exported() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let host = [0.0_f32; 6];
    let address = host.as_ptr().addr() as u64;
    // SAFETY: the buffer is forgotten below, and nothing dereferences the address.
    let data =
        unsafe { DeviceBuffer::<f32>::from_raw_parts(cust::memory::DevicePointer::from_raw(address), 6) };
    let matrix = Matrix { data, rows: 2, columns: 3 };
    let refused = matrix.into_dlpack().unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::Device);
    assert!(refused.error.found().contains("which the driver does not know"), "{}", refused.error);
    assert!(refused.error.allowed().contains("keep the context"), "{}", refused.error);
    std::mem::forget(refused);
}

#[test]
fn streams_are_named_by_their_handle() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let stream = stream();
    let named = handle(&stream);
    assert_eq!(<&Stream>::as_stream(&&stream), named);
    let data = DeviceBuffer::from_slice(&numbers(6)).unwrap();
    let streamed = Streamed { data, rows: 2, columns: 3, stream: Rc::new(stream) };
    assert_eq!(streamed.info().unwrap().stream(), Some(named));
    let Streamed { data, stream, .. } = streamed;
    let stream = Arc::new(Rc::into_inner(stream).unwrap());
    assert_eq!(
        Streamed { data, rows: 2, columns: 3, stream: stream.clone() }.info().unwrap().stream(),
        Some(named)
    );
    let streamed = Streamed {
        data: DeviceBuffer::from_slice(&numbers(6)).unwrap(),
        rows: 2,
        columns: 3,
        stream: None::<Stream>,
    };
    assert_eq!(streamed.info().unwrap().stream(), None, "nobody knows what is pending");
}

/// A `cust` stream cannot be made from the caller's handle. The struct creates its own, which waits for pending work.
#[test]
fn an_import_into_a_struct_with_its_own_stream() {
    #[derive(CudaArray)]
    #[cuda_array(shape = [len])]
    struct Own {
        #[cuda_array(data)]
        data: DeviceBuffer<f32>,
        len: usize,
        #[cuda_array(stream, default = stream())]
        stream: Stream,
    }

    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let data = DeviceBuffer::from_slice(&numbers(6)).unwrap();
    let first = Own { data, len: 6, stream: stream() };
    let second = Own::from_import(send(first)).unwrap();
    assert_eq!(second.info().unwrap().stream(), Some(handle(&second.stream)));
    assert_eq!((second.len, second.to_vec::<f32>().unwrap()), (6, numbers(6)));
}

/// Runs the example of the documentation.
#[test]
fn a_kernel_takes_views_of_every_kind() {
    fn scaled(stream: &Stream, module: &Module, matrix: &mut impl CudaArray) {
        let view = matrix.view_mut::<f32, 2>().unwrap().kernel_view_mut().unwrap();
        let array: kernels::Arrays<'_, 1> = kernels::Arrays::new([&view]).unwrap();
        let launch = array.launch_size();
        let (grid, block) = (launch.grid, launch.block);
        // SAFETY: the kernel takes an array of any rank and a factor. The matrix lives until the stream has been
        // synchronized.
        unsafe { launch!(module.scale_f32<<<grid, block, 0, stream>>>(array, 2.0_f64)) }.unwrap();
        stream.synchronize().unwrap();
    }

    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let module = Module::from_ptx(kernels::KERNELS_PTX, &[]).unwrap();
    let stream = stream();
    let twice: Vec<f32> = numbers(12).iter().map(|value| 2.0 * value).collect();
    let mut matrix = Matrix { data: DeviceBuffer::from_slice(&numbers(12)).unwrap(), rows: 3, columns: 4 };
    scaled(&stream, &module, &mut matrix);
    assert_eq!(matrix.to_vec::<f32>().unwrap(), twice);
    let mut matrix = Matrix { data: LockedBuffer::from_slice(&numbers(12)).unwrap(), rows: 3, columns: 4 };
    scaled(&stream, &module, &mut matrix);
    assert_eq!(*matrix.data, *twice);
    let mut matrix = Matrix { data: UnifiedBuffer::from_slice(&numbers(12)).unwrap(), rows: 3, columns: 4 };
    scaled(&stream, &module, &mut matrix);
    assert_eq!(*matrix.data, *twice);
    // An imported array is a kernel argument too, here transposed.
    let (info, owner) = send(source(MemoryKind::Device, 0, 3, 4)).into_parts();
    // SAFETY: the description is that of the memory that the owner keeps alive.
    let import = unsafe { Import::from_parts(info, owner) };
    let mut lease: Strided<LeaseMut<f32>> = Strided::from_import(import).unwrap();
    (lease.shape, lease.strides) = (vec![4, 3], vec![1, 4]);
    scaled(&stream, &module, &mut lease);
    (lease.shape, lease.strides) = (vec![3, 4], vec![4, 1]);
    assert_eq!(lease.to_vec::<f32>().unwrap(), twice);
}

/// Exports after a kernel on one stream and copies on another: the copy sees what the kernel wrote.
#[test]
fn pending_work_comes_before_the_copy() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let module = Module::from_ptx(kernels::KERNELS_PTX, &[]).unwrap();
    let (writer, reader) = (stream(), stream());
    for _ in 0..20 {
        let data = DeviceBuffer::from_slice(&vec![1.0_f32; 1 << 16]).unwrap();
        let mut matrix = Streamed { data, rows: 256, columns: 256, stream: handle(&writer) };
        let view = matrix.view_mut::<f32, 2>().unwrap().kernel_view_mut().unwrap();
        let array: kernels::Arrays<'_, 1> = kernels::Arrays::new([&view]).unwrap();
        let launch = array.launch_size();
        let (grid, block) = (launch.grid, launch.block);
        for _ in 0..4 {
            // SAFETY: as above; the export keeps the matrix alive until the work of the context has finished.
            unsafe { launch!(module.scale_f32<<<grid, block, 0, writer>>>(array, 2.0_f64)) }.unwrap();
        }
        let tensor = matrix.into_dlpack_as::<Versioned>(handle(&reader)).unwrap();
        let import = Import::from_dlpack(tensor).unwrap().ready_on(handle(&reader));
        let copy: Streamed<DeviceBuffer<f32>, StreamHandle> = Streamed::from_import(import).unwrap();
        assert_eq!(copy.stream, handle(&reader));
        assert_eq!(copy.to_vec::<f32>().unwrap(), vec![16.0; 1 << 16]);
    }
}

/// A struct with a `stream` field receives its copy while the work is pending. Without that field the import waits
/// for it.
#[test]
fn sim_only_a_copy_without_a_stream_is_waited_for() {
    let _turn = turn();
    let Some(sim) = simulated() else { return };
    let _context = cust::quick_init().unwrap();
    let stream = stream();
    sim.set_policy(Policy::Late);
    let import = || {
        let import = send(source(MemoryKind::Device, 0, 2, 3)).ready_on(handle(&stream));
        (sim.spin(stream.as_inner() as u64), import)
    };
    let (spin, from) = import();
    let copy: Streamed<DeviceBuffer<f32>, StreamHandle> = Streamed::from_import(from).unwrap();
    assert!(sim.is_pending(spin), "the import waited on the host");
    assert_eq!(copy.to_vec::<f32>().unwrap(), numbers(6));
    let (spin, from) = import();
    let copy: Matrix<DeviceBuffer<f32>> = Matrix::from_import(from).unwrap();
    assert!(!sim.is_pending(spin), "nothing says that the copy is pending");
    assert_eq!(copy.data.as_host_vec().unwrap(), numbers(6));
}
