//! Foreign arrays for the tests: they check the values that a struct is filled with and count releases.
#![expect(unsafe_code, reason = "creates imports of memory whose lifetime the caller promises")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use interop_core::protocols::{RawDescriptor, Strides};
use interop_core::storage::{Mutability, Owner};
use interop_core::{Device, Element, Import, StreamHandle};

/// An array that another library is about to hand over.
pub(crate) struct Foreign<T> {
    pub(crate) elements: Vec<T>,
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Option<Vec<i64>>,
    pub(crate) device: Device,
    pub(crate) mutability: Mutability,
    pub(crate) stream: StreamHandle,
}

/// What the other library still knows about the array.
pub(crate) struct Receipt {
    pub(crate) address: usize,
    releases: Arc<AtomicUsize>,
}

impl Receipt {
    /// The number of times that the memory was released.
    pub(crate) fn releases(&self) -> usize {
        self.releases.load(Ordering::SeqCst)
    }
}

/// Owns the elements and counts its drops.
struct Keeper<T> {
    _elements: Vec<T>,
    releases: Arc<AtomicUsize>,
}

impl<T> Drop for Keeper<T> {
    fn drop(&mut self) {
        self.releases.fetch_add(1, Ordering::SeqCst);
    }
}

impl<T: Element> Foreign<T> {
    /// A contiguous, writable array on the host without pending work.
    pub(crate) fn new(elements: &[T], shape: &[i64]) -> Self {
        Self {
            elements: elements.to_vec(),
            shape: shape.to_vec(),
            strides: None,
            device: Device::CPU,
            mutability: Mutability::Writable,
            stream: StreamHandle::NothingPending,
        }
    }

    pub(crate) fn send(self) -> (Import, Receipt) {
        let Self { elements, shape, strides, device, mutability, stream } = self;
        let backwards = |(extent, stride): (&i64, &i64)| (extent - 1) * -stride.min(&0);
        let first: i64 = shape.iter().zip(strides.iter().flatten()).map(backwards).sum();
        let address = elements.as_ptr().wrapping_add(usize::try_from(first).unwrap()).expose_provenance();
        let claims = RawDescriptor {
            dtype: T::TYPE.dtype(),
            strides: strides
                .as_deref()
                .map_or(Strides::Contiguous(interop_core::Order::C), Strides::Elements),
            mutability,
            stream: Some(stream),
            ..RawDescriptor::new(address, device, &shape)
        };
        let info = claims.validate().unwrap();
        let releases = Arc::new(AtomicUsize::new(0));
        let owner = Owner::new(Keeper { _elements: elements, releases: releases.clone() });
        // SAFETY: the owner keeps the elements alive. Their heap memory does not move with the vector.
        (unsafe { Import::from_parts(info, owner) }, Receipt { address, releases })
    }
}

/// 0, 1, 2, …
pub(crate) fn count(len: u8) -> Vec<f32> {
    (0..len).map(f32::from).collect()
}

/// Returns a stream handle that is never dereferenced.
pub(crate) fn handle(value: usize) -> StreamHandle {
    // SAFETY: the handle is never passed to a driver.
    unsafe { StreamHandle::from_raw(value) }
}

/// An alias that macros refer to as `$crate::support::Stream`.
pub(crate) type Stream = StreamHandle;
