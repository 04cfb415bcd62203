//! Owned copies of an array on the stream on which its caller works: the copy comes before the caller's next operation.

use cudarc::driver::CudaSlice;
use cust::memory::DeviceBuffer;
use cust::stream::{Stream, StreamFlags};
use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases, pending_releases};
use interop_core::launch::AsStream;
use interop_core::protocols::RawDescriptor;
use interop_core::{CudaArray, DType, Device, FromArray, Import, Kept, Storage, StreamHandle};

use crate::support::{Matrix, Streamed, turn};

/// A struct whose copy is made on a stream of its own.
#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns])]
struct OnItsOwn<S> {
    #[cuda_array(data)]
    data: S,
    rows: usize,
    columns: usize,
    #[cuda_array(stream, default = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap())]
    stream: Stream,
}

/// Memory of a library, and the stream on which that works.
struct Library {
    memory: CudaBuffer,
    stream: Stream,
}

impl Library {
    fn new() -> Self {
        let memory = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::F32, 6).unwrap();
        Self { memory, stream: Stream::new(StreamFlags::NON_BLOCKING, None).unwrap() }
    }

    /// Fills the memory. The work is pending on the library's stream.
    fn fill(&self, value: f32) {
        let (address, stream) = (self.memory.memory().unwrap().address as u64, self.stream.as_inner());
        // SAFETY: the memory has room for six elements, and it and the stream are live.
        let code = unsafe { cust::sys::cuMemsetD32Async(address, value.to_bits(), 6, stream) };
        assert_eq!(code as u32, 0);
    }

    fn import(&self, is_callers: bool) -> Import {
        let claims = RawDescriptor {
            dtype: DType::F32,
            stream: Some(self.stream.as_stream()),
            ..RawDescriptor::new(self.memory.memory().unwrap().address, Device::cuda(0), &[2, 3])
        };
        // SAFETY: the memory lives longer than the import.
        let import =
            unsafe { Import::from_parts(claims.validate().unwrap(), interop_core::storage::Owner::new(())) };
        if !is_callers {
            return import;
        }
        // SAFETY: the stream is live, and the memory is used on it alone.
        unsafe { import.with_callers_stream(self.stream.as_stream()) }
    }
}

/// The memory is filled before the import and again after it. `is_own` states that the copy must not be on the stream of
/// the library, which may be destroyed.
fn copies<A: FromArray, C: CudaArray>(array: fn(&A) -> &C, is_own: bool) {
    for is_callers in [true, false] {
        let library = Library::new();
        library.fill(1.0);
        let copy = A::from_import(library.import(is_callers)).unwrap();
        if is_callers {
            library.fill(2.0);
            let stream = array(&copy).info().unwrap().stream();
            assert!(!is_own || stream != Some(library.stream.as_stream()));
        }
        assert_eq!(array(&copy).to_vec::<f32>().unwrap(), [1.0; 6]);
        drop(copy);
        finish_releases();
        library.stream.synchronize().unwrap();
    }
    assert_eq!(pending_releases(), 0);
}

fn argument<A: FromArray + CudaArray>(is_own: bool) {
    copies::<A, A>(|array| array, is_own);
}

fn kept<A: FromArray + CudaArray>() {
    copies::<Kept<A>, A>(|array| array, true);
}

#[test]
fn a_copy_is_made_before_the_next_operation() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    argument::<Matrix<DeviceBuffer<f32>>>(true);
    argument::<Matrix<CudaSlice<f32>>>(true);
    argument::<Streamed<DeviceBuffer<f32>, StreamHandle>>(false);
    // `cudarc` frees the copy on the default stream.
    argument::<Streamed<CudaSlice<f32>, StreamHandle>>(true);
    argument::<OnItsOwn<DeviceBuffer<f32>>>(true);
    argument::<OnItsOwn<CudaSlice<f32>>>(true);
}

#[test]
fn a_copy_that_is_kept_is_on_no_stream_of_the_caller() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    kept::<Matrix<DeviceBuffer<f32>>>();
    kept::<Matrix<CudaSlice<f32>>>();
    kept::<Streamed<DeviceBuffer<f32>, StreamHandle>>();
    kept::<Streamed<CudaSlice<f32>, StreamHandle>>();
}
