//! Measures owned imports on a GPU, of 256 MB device arrays and of 64 MB host arrays, by layout:
//! `cargo bench --package interop-benches --bench device_copies`.
//!
//! It prints the milliseconds of each. `tests/gpu/copies.py` makes a table from them, next to PyTorch's.

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::CudaSlice;
use interop_core::cuda::{self, CudaBuffer, MemoryKind};
use interop_core::protocols::dlpack::Versioned;
use interop_core::{CudaArray, DType, Device, FromArray, HostVec, Import, Storage, StreamHandle};

const ROUNDS: usize = 7;
const COPIES: u32 = 20;

/// The memory of another library, in any layout.
#[derive(CudaArray)]
#[cuda_array(export)]
struct Source<S> {
    #[cuda_array(data)]
    data: S,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(strides)]
    strides: Vec<isize>,
    #[cuda_array(stream)]
    stream: StreamHandle,
}

/// An owned contiguous copy.
#[derive(CudaArray)]
struct Owned {
    #[cuda_array(data)]
    data: CudaSlice<f32>,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(stream)]
    stream: StreamHandle,
}

/// The layouts of device arrays, by the names that `tests/gpu/copies.py` uses.
const LAYOUTS: [(&str, &[usize], &[isize]); 8] = [
    ("contiguous", &[8192, 8192], &[8192, 1]),
    ("transposed, 2 axes", &[8192, 8192], &[1, 8192]),
    ("transposed, 3 axes", &[512, 512, 256], &[1, 512, 512 * 512]),
    ("transposed, 4 axes", &[128, 128, 64, 64], &[1, 128, 128 * 128, 128 * 128 * 64]),
    ("channels last to first", &[64, 4, 512, 512], &[4 * 512 * 512, 1, 4 * 512, 4]),
    ("every second column", &[8192, 8192], &[16384, 2]),
    ("padded rows", &[8192, 8192], &[8200, 1]),
    ("padded short rows", &[1 << 20, 64], &[72, 1]),
];

/// The layouts of host arrays.
const OF_THE_HOST: [(&str, &[usize], &[isize]); 4] = [
    ("from the host, contiguous", &[4096, 4096], &[4096, 1]),
    ("from the host, transposed", &[4096, 4096], &[1, 4096]),
    ("from the host, every second column", &[4096, 4096], &[8192, 2]),
    ("from the host, padded rows", &[4096, 4096], &[4104, 1]),
];

fn elements(shape: &[usize], strides: &[isize]) -> usize {
    let reach = |(extent, stride): (&usize, &isize)| (extent - 1) * stride.unsigned_abs();
    1 + shape.iter().zip(strides).map(reach).sum::<usize>()
}

/// The milliseconds per copy, averaged over many copies.
fn measure<S: Storage + Send + Sync + 'static>(data: S, shape: &[usize], strides: &[isize]) -> f64 {
    let stream = if data.memory().unwrap().device == Device::CPU {
        StreamHandle::NothingPending
    } else {
        StreamHandle::LegacyDefault
    };
    let source = Arc::new(Source { data, shape: shape.to_vec(), strides: strides.to_vec(), stream });
    let finish = || cuda::stream_synchronize(StreamHandle::LegacyDefault, Device::cuda(0)).expect("a wait");
    let copy = || {
        let tensor = source.share_dlpack_as::<Versioned>(stream).expect("an export");
        let import = Import::from_dlpack(tensor)
            .expect("an import")
            .with_stream(StreamHandle::LegacyDefault)
            .expect("a stream that waits");
        drop(Owned::from_import(import).expect("a copy"));
    };
    let round = || {
        copy();
        finish();
        let start = Instant::now();
        (0..COPIES).for_each(|_| copy());
        finish();
        start.elapsed().as_secs_f64() * 1e3 / f64::from(COPIES)
    };
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    rounds.sort_unstable_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn main() {
    if !cuda::is_available() {
        println!("skipped: no CUDA driver on this machine");
        return;
    }
    for (name, shape, strides) in LAYOUTS {
        let memory = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::F32, elements(shape, strides));
        println!("{:.4}\t{name}", measure(memory.expect("memory"), shape, strides));
        cuda::finish_releases();
    }
    for (name, shape, strides) in OF_THE_HOST {
        // Ones rather than zeros, so that every page is allocated.
        let memory: HostVec<f32> = std::iter::repeat_n(1.0, elements(shape, strides)).collect();
        println!("{:.4}\t{name}", measure(memory, shape, strides));
        cuda::finish_releases();
    }
}
