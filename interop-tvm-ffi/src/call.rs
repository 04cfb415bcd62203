//! A call: who calls, on which stream, and the tensors that live as long as it.
#![expect(unsafe_code, reason = "lends tensors of other libraries")]

use core::cell::RefCell;
use core::ffi::c_void;
use core::fmt;
use core::marker::PhantomData;

use interop_core::lent::{BorrowedFor, BorrowedTensor};
use interop_core::protocols::dlpack::DLTensor;
use interop_core::storage::Mutability;
use interop_core::{Device, FromArray, Result, StreamHandle};

use crate::owned_object::OwnedObject;
use crate::runtime::Runtime;
use crate::torch::library::Torch;

/// The call that a function answers. A function gets it as an argument besides those of its caller, at any place:
///
/// ```
/// use interop_core::CudaArray;
/// use interop_core::lent::{Borrowed, BorrowedMut};
/// use interop_tvm_ffi::{Call, CallError, NewArray};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len], device = "cpu")]
/// struct Row<S> { #[cuda_array(data)] values: S, len: usize }
///
/// type New<'c> = NewArray<Row<BorrowedMut<'c, f32>>>;
///
/// /// A new array of the caller's library.
/// fn doubled<'c>(call: &'c Call<'_>, row: Row<Borrowed<'_, f32>>) -> Result<New<'c>, CallError> {
///     let mut to: New<'_> = call.new_like(&row)?;
///     to.zip_map_inplace(&row, |_: f32, value: f32| 2.0 * value)?;
///     Ok(to)
/// }
///
/// interop_tvm_ffi::export! { doubled(call, row) }
/// ```
pub struct Call<'c> {
    pub(crate) function: &'static str,
    pub(crate) host: Host,
    /// The tensors that the function has made.
    new: RefCell<Vec<OwnedObject>>,
    /// The streams and the allocator are those of this thread.
    thread: PhantomData<(&'c (), *const ())>,
}

/// Who calls.
#[derive(Clone, Copy)]
pub(crate) enum Host {
    /// A library by the ABI of TVM FFI.
    TvmFfi,
    /// The dispatcher of `PyTorch`.
    Torch(&'static Torch),
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("function", &self.function).finish_non_exhaustive()
    }
}

impl Call<'_> {
    pub(crate) const fn new(function: &'static str, host: Host) -> Self {
        Self { function, host, new: RefCell::new(Vec::new()), thread: PhantomData }
    }

    /// The stream on which the caller works on a device. `None` if the caller does not tell it, and for host memory.
    ///
    /// Arrays among the arguments are on this stream already, and a [`LaunchScope`](interop_core::LaunchScope) uses it.
    #[must_use]
    pub fn stream(&self, device: Device) -> Option<StreamHandle> {
        match self.host {
            _ if device == Device::CPU => None,
            Host::TvmFfi => Runtime::functions()?.stream(device),
            Host::Torch(torch) => torch.stream(device),
        }
    }

    /// A struct over a tensor of the caller's library, on the caller's stream.
    ///
    /// # Errors
    ///
    /// As [`BorrowedTensor::new`] and [`FromArray::from_import`].
    ///
    /// # Safety
    ///
    /// `tensor` is null, or live with its lists during this function, and with its memory during the call. That may be written, and on
    /// the host it is initialized. `is_new` is true only for memory that the library has just allocated.
    pub(crate) unsafe fn array<'c, A: FromArray + BorrowedFor<'c>>(
        &'c self,
        tensor: *const DLTensor,
        is_new: bool,
    ) -> Result<A> {
        // SAFETY: 1 and 3: as the caller promises. 2: so too; the caller's library orders its next work after that on its stream. The
        // caller has told this stream for the call: it is live.
        unsafe { BorrowedTensor::array(tensor, Mutability::Writable, is_new, |device| self.stream(device)) }
    }

    /// Keeps a new tensor until the call ends.
    pub(crate) fn keep(&self, tensor: OwnedObject) {
        self.new.borrow_mut().push(tensor);
    }

    /// Gives up a tensor that was kept, for the caller.
    pub(crate) fn give_up(&self, tensor: *mut c_void) -> Option<OwnedObject> {
        let mut new = self.new.borrow_mut();
        let place = new.iter().position(|kept| kept.object == tensor)?;
        Some(new.swap_remove(place))
    }
}
