//! A foreign producer of managed tensors: structs made by hand whose deleters count.
#![expect(unsafe_code, reason = "foreign structs are raw pointers and C functions")]

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use interop_core::protocols::dlpack::{
    DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor, ManagedTensor, TensorAbi,
};
use interop_core::{DType, Device};

use super::counted_owners::Count;
use super::signed;

/// The deleter of a struct of the form `A`.
type Deleter<A> = Option<unsafe extern "C" fn(*mut A)>;

/// Major and minor version, and flags.
type Head = (u32, u32, u64);

/// The two forms, field by field.
pub(crate) trait Form: TensorAbi {
    fn fill(head: Head, dl_tensor: DLTensor, manager_ctx: *mut c_void, deleter: Deleter<Self>) -> Self;
    fn tensor(&self) -> DLTensor;
    fn context(&self) -> *mut c_void;
    fn has_deleter(&self) -> bool;
    fn head(&self) -> Option<Head>;
}

impl Form for DLManagedTensor {
    fn fill(_: Head, dl_tensor: DLTensor, manager_ctx: *mut c_void, deleter: Deleter<Self>) -> Self {
        Self { dl_tensor, manager_ctx, deleter }
    }

    fn tensor(&self) -> DLTensor {
        self.dl_tensor
    }

    fn context(&self) -> *mut c_void {
        self.manager_ctx
    }

    fn has_deleter(&self) -> bool {
        self.deleter.is_some()
    }

    fn head(&self) -> Option<Head> {
        None
    }
}

impl Form for DLManagedTensorVersioned {
    fn fill(head: Head, dl_tensor: DLTensor, manager_ctx: *mut c_void, deleter: Deleter<Self>) -> Self {
        let (major, minor, flags) = head;
        Self { version: DLPackVersion { major, minor }, manager_ctx, deleter, flags, dl_tensor }
    }

    fn tensor(&self) -> DLTensor {
        self.dl_tensor
    }

    fn context(&self) -> *mut c_void {
        self.manager_ctx
    }

    fn has_deleter(&self) -> bool {
        self.deleter.is_some()
    }

    fn head(&self) -> Option<Head> {
        Some((self.version.major, self.version.minor, self.flags))
    }
}

/// The description that the producer states, which may be wrong.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    /// The memory behind `data`; if `None`, `data` is `address`.
    pub(crate) memory: Option<Vec<i16>>,
    /// The value of `data` if there is no memory.
    pub(crate) address: usize,
    pub(crate) device: Device,
    /// The value of `ndim` if it differs from the number of extents.
    pub(crate) ndim: Option<i32>,
    pub(crate) dtype: DType,
    /// `None` is a null pointer.
    pub(crate) shape: Option<Vec<i64>>,
    /// `None` is a null pointer.
    pub(crate) strides: Option<Vec<i64>>,
    pub(crate) byte_offset: u64,
    pub(crate) version: (u32, u32),
    pub(crate) flags: u64,
    pub(crate) has_deleter: bool,
}

impl Claims {
    /// A contiguous, writable `int16` array of version 1.0 on the host, with the numbers 0, 1, 2, …
    pub(crate) fn new(shape: &[i64]) -> Self {
        let count = i16::try_from(shape.iter().product::<i64>()).expect("a small array");
        Self { memory: Some((0..count).collect()), ..Self::at(0, shape) }
    }

    /// Like [`new`](Self::new), at an address that must not be dereferenced.
    pub(crate) fn at(address: usize, shape: &[i64]) -> Self {
        Self {
            memory: None,
            address,
            device: Device::CPU,
            ndim: None,
            dtype: DType::I16,
            shape: Some(shape.to_vec()),
            strides: None,
            byte_offset: 0,
            version: (1, 0),
            flags: 0,
            has_deleter: true,
        }
    }

    /// Returns the tensor and the ledger of its release. The ledger must be dropped later than the tensor.
    pub(crate) fn send<A: Form>(mut self) -> (Ledger, ManagedTensor<A>) {
        fn start<T>(items: Option<&mut Vec<T>>) -> *mut T {
            items.map_or(ptr::null_mut(), Vec::as_mut_ptr)
        }
        let data = match &mut self.memory {
            Some(memory) => memory.as_mut_ptr().cast(),
            None => ptr::without_provenance_mut(self.address),
        };
        let tensor = DLTensor {
            data,
            device: self.device,
            ndim: self.ndim.unwrap_or_else(|| signed(self.shape.as_ref().map_or(0, Vec::len))),
            dtype: self.dtype,
            shape: start(self.shape.as_mut()),
            strides: start(self.strides.as_mut()),
            byte_offset: self.byte_offset,
        };
        let (major, minor) = self.version;
        let head = (major, minor, self.flags);
        let mut ledger = Ledger::default();
        let context =
            Context { claims: self, released: ledger.released.clone(), thread: ledger.thread.clone() };
        let deleter = context.claims.has_deleter.then_some(release::<A> as unsafe extern "C" fn(*mut A));
        let managed = A::fill(head, tensor, Box::into_raw(Box::new(context)).cast(), deleter);
        let managed = Box::into_raw(Box::new(managed));
        if deleter.is_none() {
            // SAFETY: nothing else frees a struct without a deleter, and the ledger outlives the tensor.
            ledger.rest = Some(Box::new(move || unsafe { free(managed) }));
        }
        // SAFETY: the struct is complete and boxed. Its description is correct where a test reads the memory.
        (ledger, unsafe { ManagedTensor::from_raw(managed) })
    }
}

/// The producer's data behind `manager_ctx`.
struct Context {
    claims: Claims,
    released: Count,
    thread: Arc<Mutex<Option<ThreadId>>>,
}

/// Frees the struct and the producer's data.
///
/// # Safety
///
/// `managed` was made by [`Claims::send`] and is not used afterwards.
unsafe fn free<A: Form>(managed: *mut A) {
    // SAFETY: `send` boxed the struct.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(managed.context().cast::<Context>()) });
}

/// The deleter.
///
/// # Safety
///
/// As for [`free`].
unsafe extern "C" fn release<A: Form>(managed: *mut A) {
    // SAFETY: the struct lives until `free`.
    let context = unsafe { (*managed).context() }.cast::<Context>();
    // SAFETY: `send` boxed the context, and nothing else uses it.
    let Context { released, thread, .. } = unsafe { &*context };
    released.add();
    *thread.lock().expect("nobody panics with the lock") = Some(thread::current().id());
    // SAFETY: as the caller promises.
    unsafe { free(managed) };
}

/// Records what happened to a struct.
#[derive(Default)]
pub(crate) struct Ledger {
    released: Count,
    thread: Arc<Mutex<Option<ThreadId>>>,
    rest: Option<Box<dyn FnOnce()>>,
}

impl Ledger {
    /// The number of times that the deleter ran.
    pub(crate) fn released(&self) -> usize {
        self.released.get()
    }

    /// The thread on which the deleter ran.
    pub(crate) fn thread(&self) -> Option<ThreadId> {
        *self.thread.lock().expect("nobody panics with the lock")
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            rest();
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "released {} times", self.released())
    }
}

/// The fields of a struct as a C consumer reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) data: usize,
    pub(crate) device: Device,
    pub(crate) dtype: DType,
    /// `None` is a null pointer.
    pub(crate) shape: Option<Vec<i64>>,
    /// `None` is a null pointer.
    pub(crate) strides: Option<Vec<i64>>,
    pub(crate) byte_offset: u64,
    /// `None` in the legacy form.
    pub(crate) head: Option<Head>,
    pub(crate) has_deleter: bool,
}

/// Reads a struct like a C consumer.
pub(crate) fn look<A: Form>(tensor: &ManagedTensor<A>) -> Seen {
    // SAFETY: the struct lives as long as the handle.
    let managed = unsafe { &*tensor.as_ptr() };
    let DLTensor { data, device, ndim, dtype, shape, strides, byte_offset } = managed.tensor();
    let numbers = |first: *mut i64| {
        // SAFETY: the pointer is not null, so it points to `ndim` numbers.
        (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, signed(ndim)) }.to_vec())
    };
    Seen {
        data: data.addr(),
        device,
        dtype,
        shape: numbers(shape),
        strides: numbers(strides),
        byte_offset,
        head: managed.head(),
        has_deleter: managed.has_deleter(),
    }
}

/// The flags of a struct; `None` in the legacy form.
pub(crate) fn flags<A: Form>(tensor: &ManagedTensor<A>) -> Option<u64> {
    look(tensor).head.map(|(_, _, flags)| flags)
}
