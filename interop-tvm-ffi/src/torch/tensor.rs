//! Tensors of `PyTorch`: described, made, and asked about their gradients.
#![expect(unsafe_code, reason = "passes handles of tensors to functions of the library")]

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;

use interop_core::protocols::dlpack::{DLTensor, ManagedTensor, Versioned};
use interop_core::{DType, Device};

use crate::error::CallError;
use crate::owned_object::OwnedObject;
use crate::torch::library::{ABI, Status, TensorHandle, Torch, Value};

/// The description of a tensor with one element that is nowhere.
pub(crate) const NOTHING: DLTensor = DLTensor {
    data: null_mut(),
    device: Device::CPU,
    ndim: 0,
    dtype: DType::F32,
    shape: null_mut(),
    strides: null_mut(),
    byte_offset: 0,
};

/// A pointer as a value on a stack.
pub(crate) fn to_value<T>(pointer: *mut T) -> Value {
    pointer.expose_provenance() as Value
}

/// A value on a stack as a pointer.
pub(crate) fn to_pointer<T>(value: Value) -> *mut T {
    core::ptr::with_exposed_provenance_mut(usize::try_from(value).unwrap_or(0))
}

/// The `TensorImpl` of a tensor: a `Tensor` is a pointer to it.
///
/// # Safety
///
/// `handle` is a live tensor.
unsafe fn implementation(handle: TensorHandle) -> *const c_void {
    // SAFETY: as the caller promises.
    unsafe { handle.cast::<*const c_void>().read() }
}

impl Torch {
    /// A description of a tensor on the host or on a CUDA device, whose lists belong to the tensor.
    ///
    /// # Errors
    ///
    /// If the tensor has no memory for its elements.
    ///
    /// # Safety
    ///
    /// `handle` is a live tensor.
    #[inline]
    pub(crate) unsafe fn describe(
        &self,
        handle: TensorHandle,
        is_written: bool,
    ) -> Result<DLTensor, CallError> {
        let (mut data, mut shape, mut strides) = (null_mut(), null_mut(), null_mut());
        let (mut ndim, mut dtype, mut device_type, mut index, mut bytes) = (0, 0, 0, 0, 0);
        let get_data = if is_written { self.mutable_data } else { self.const_data };
        // SAFETY: as the caller promises, and the places are valid for a write. So it is below.
        let mut status = unsafe { (self.dim)(handle, &raw mut ndim) };
        // SAFETY: as above.
        status |= unsafe { (self.sizes)(handle, &raw mut shape) };
        // SAFETY: as above.
        status |= unsafe { (self.strides)(handle, &raw mut strides) };
        // SAFETY: as above.
        status |= unsafe { (self.dtype)(handle, &raw mut dtype) };
        // SAFETY: as above.
        status |= unsafe { (self.device_type)(handle, &raw mut device_type) };
        // SAFETY: as above.
        status |= unsafe { (self.storage_size)(handle, &raw mut bytes) };
        // SAFETY: as above.
        status |= unsafe { get_data(handle, &raw mut data) };
        if device_type == self.cuda {
            // SAFETY: as above.
            status |= unsafe { (self.device_index)(handle, &raw mut index) };
        }
        self.check(status, "torch_get_const_data_ptr")?;
        if bytes == 0 {
            // A storage may have been freed under its tensor. The offset of a view is in the address all the same.
            data = null_mut();
        }
        let device = self.device_of(device_type, index);
        let dtype = self.dtype_of(dtype);
        Ok(DLTensor {
            data,
            device,
            ndim: i32::try_from(ndim).unwrap_or(i32::MAX),
            dtype,
            shape,
            strides,
            byte_offset: 0,
        })
    }

    /// A new tensor of the library's allocator, whose elements are not initialized.
    pub(crate) fn allocate(&'static self, like: &DLTensor) -> Result<OwnedObject, CallError> {
        let (code, (device_type, index)) = (self.code_of(like.dtype)?, self.device_codes(like.device));
        let (ndim, shape, strides) = (like.ndim.into(), like.shape, like.strides);
        self.made("aoti_torch_empty_strided", |place| {
            // SAFETY: lists of `ndim` numbers, and a place that is valid for a write.
            unsafe { (self.empty_strided)(ndim, shape, strides, code, device_type, index, place) }
        })
    }

    /// The tensor that a function makes, to whose place it writes.
    fn made(
        &self,
        called: &str,
        make: impl FnOnce(*mut TensorHandle) -> Status,
    ) -> Result<OwnedObject, CallError> {
        let mut handle = null_mut();
        self.check(make(&raw mut handle), called)?;
        // SAFETY: the library has made this tensor.
        Ok(unsafe { OwnedObject::new(handle, self.delete_tensor) })
    }

    /// The address of the first element of a tensor, which may be written.
    ///
    /// # Safety
    ///
    /// `handle` is a live tensor.
    pub(crate) unsafe fn address(&self, handle: TensorHandle) -> Result<*mut c_void, CallError> {
        let mut data = null_mut();
        // SAFETY: as the caller promises, and a place that is valid for a write.
        self.check(unsafe { (self.mutable_data)(handle, &raw mut data) }, "torch_get_mutable_data_ptr")?;
        Ok(data)
    }

    /// Another reference to a tensor.
    ///
    /// # Safety
    ///
    /// `handle` is a live tensor.
    pub(crate) unsafe fn another(&'static self, handle: TensorHandle) -> Result<OwnedObject, CallError> {
        // SAFETY: as the caller promises, and a place that is valid for a write.
        self.made("aoti_torch_new_tensor_handle", |place| unsafe { (self.new_handle)(handle, place) })
    }

    /// A tensor that owns the memory of an array of Rust.
    pub(crate) fn adopt(&'static self, tensor: ManagedTensor) -> Result<OwnedObject, CallError> {
        unsafe extern "C" fn release(_: *mut c_void, tensor: *mut c_void) {
            // SAFETY: the tensor that was given to the library, whose only release this is.
            drop(unsafe { ManagedTensor::from_raw(tensor.cast::<Versioned>()) });
        }
        let missing = "`result`: found memory of Rust, which needs PyTorch 2.11; allowed: a `NewArray`";
        let from_blob = self.from_blob.ok_or_else(|| CallError::new(c"RuntimeError", missing))?;
        let raw = tensor.into_raw();
        // SAFETY: a live tensor.
        let DLTensor { data, device, ndim, dtype, shape, strides, byte_offset } = unsafe { (*raw).dl_tensor };
        let made = self.code_of(dtype).and_then(|code| {
            let data = data.wrapping_byte_add(usize::try_from(byte_offset).unwrap_or(0));
            let (device_type, index) = self.device_codes(device);
            // The library wants no index of the host here.
            let index = if device == Device::CPU { -1 } else { index };
            let (ndim, none, tensor) = (i64::from(ndim), core::ptr::null(), raw.cast());
            self.made("torch_from_blob", |place| {
                // SAFETY: lists of `ndim` numbers, memory that lives until `release` is called, and a place that is valid for a write.
                unsafe {
                    from_blob(
                        data,
                        ndim,
                        shape,
                        strides,
                        0,
                        code,
                        device_type,
                        index,
                        place,
                        0,
                        none,
                        0,
                        release,
                        tensor,
                    )
                }
            })
        });
        made.inspect_err(|_| {
            // SAFETY: the library has not taken the tensor.
            drop(unsafe { ManagedTensor::from_raw(raw) });
        })
    }

    /// Calls an operator of `PyTorch` with values that it takes.
    fn call<const N: usize>(&self, name: &CStr, mut stack: [Value; N]) -> Result<Value, CallError> {
        // SAFETY: an operator of every version, and the values of its parameters.
        let status = unsafe { (self.dispatch)(name.as_ptr(), c"".as_ptr(), stack.as_mut_ptr(), ABI) };
        self.check(status, &name.to_string_lossy())?;
        Ok(stack[0])
    }

    /// Whether gradients are recorded, and the tensor requires one.
    ///
    /// # Safety
    ///
    /// `handle` is a live tensor.
    pub(crate) unsafe fn needs_gradient(&'static self, handle: TensorHandle) -> Result<bool, CallError> {
        // SAFETY: the function has no preconditions.
        if !unsafe { (self.grad_mode)() } {
            return Ok(false);
        }
        if let Some(requires_grad) = self.requires_grad {
            // SAFETY: a live tensor.
            let tensor = unsafe { implementation(handle) };
            // SAFETY: the same.
            return Ok(unsafe { requires_grad(tensor) });
        }
        // An alias of what requires a gradient is no leaf.
        // SAFETY: as the caller promises.
        let alias = self.call(c"aten::alias", [to_value(unsafe { self.another(handle) }?.into_raw())])?;
        Ok(self.call(c"aten::is_leaf", [alias])?.to_le_bytes()[0] == 0)
    }

    /// Refuses a tensor with a tangent, which a function would lose.
    ///
    /// # Safety
    ///
    /// `handle` is a live tensor.
    #[inline]
    pub(crate) unsafe fn check_tangent(&self, handle: TensorHandle) -> Result<(), CallError> {
        let Some(tangent) = self.tangent else { return Ok(()) };
        let mut is_defined = false;
        // SAFETY: a live tensor.
        let tensor = unsafe { implementation(handle) };
        // SAFETY: the same, and the first level, which is the only one.
        let tangent = unsafe { tangent(tensor, 0, handle) };
        // SAFETY: a reference to a tensor of C++, which lives as long as the first one, and a place that is valid for a write.
        self.check(unsafe { (self.is_defined)(tangent, &raw mut is_defined) }, "aoti_torch_is_defined")?;
        if is_defined {
            let text = "found a tensor with a tangent: operators have no gradients in forward mode (`torch.func.jvp`, `forward_ad`)";
            return Err(CallError::new(c"RuntimeError", text));
        }
        Ok(())
    }

    /// Tells the library that a tensor is written: increments its version.
    ///
    /// # Errors
    ///
    /// If the tensor requires a gradient. An exception of C++ for a tensor of inference mode.
    ///
    /// # Safety
    ///
    /// `handle` is a live tensor. The exception may unwind through the caller.
    pub(crate) unsafe fn announce_write(
        &'static self,
        handle: TensorHandle,
        place: &str,
        operator: &str,
    ) -> Result<(), CallError> {
        let refused = |why: &str| {
            let text = format!("`{place}`: found a tensor that {why} (argument of `{operator}`)");
            Err(CallError::new(c"RuntimeError", text))
        };
        // SAFETY: as the caller promises.
        if unsafe { self.needs_gradient(handle) }? {
            return refused("requires a gradient, which a write would lose: call it under torch.no_grad()");
        }
        if let Some(bump_version) = self.bump_version {
            // SAFETY: as the caller promises.
            unsafe { bump_version(handle) };
            return Ok(());
        }
        // This changes no element, and increments the version. It fails for a tensor of inference mode.
        // SAFETY: as the caller promises.
        let other = to_value(unsafe { self.another(handle) }?.into_raw());
        match self.call(c"aten::transpose_", [other, 0, 0]) {
            Ok(same) => {
                // SAFETY: a reference that was given to this function.
                drop(unsafe { OwnedObject::new(to_pointer(same), self.delete_tensor) });
                Ok(())
            }
            Err(_) => refused("must not be written, because it was made in inference mode"),
        }
    }
}
