//! The structs of both processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use interop_core::{CudaArray, Lease};
use interop_ipc::SharedVec;

/// Longer than any step takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

#[derive(CudaArray)]
#[cuda_array(shape = [height, width, 3])]
pub(crate) struct Image<S = SharedVec<f32>> {
    #[cuda_array(data)]
    pub(crate) pixels: S,
    pub(crate) height: usize,
    pub(crate) width: usize,
    #[cuda_array(default)]
    _counted: Option<Counted>,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width, 4])]
pub(crate) struct Rgba<S = Lease<f32>> {
    #[cuda_array(data)]
    pub(crate) pixels: S,
    pub(crate) height: usize,
    pub(crate) width: usize,
}

/// Counts the structs that exist.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The number of images of a test that exist.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    /// An image of 2 × 5 pixels with the values 0, 1, 2, …
    pub(crate) fn image(&self) -> Image {
        self.image_of(2, 5)
    }

    /// An image of this size, with the values 0, 1, 2, …
    pub(crate) fn image_of(&self, height: usize, width: usize) -> Image {
        self.0.fetch_add(1, Ordering::SeqCst);
        let pixels = SharedVec::<f32>::zeroed(height * width * 3).expect("memory");
        let mut image = Image { pixels, height, width, _counted: Some(Counted(self.0.clone())) };
        let mut next = -1.0;
        let count = |_: f32| {
            next += 1.0;
            next
        };
        image.map_inplace(count).expect("an image of this process");
        image
    }

    /// Waits until all images were dropped, as the office does it on its thread.
    #[track_caller]
    pub(crate) fn expect_dropped(&self) {
        wait_for("the images are dropped", || self.0.load(Ordering::SeqCst) == 0);
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

/// Waits for a condition that another thread or process makes true.
#[track_caller]
pub(crate) fn wait_for(what: &str, is_true: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < LONG, "not true after {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
