//! The functions of `libtorch`, if the process has loaded it.
#![expect(unsafe_code, reason = "calls functions of a library that is found at run time")]

use core::ffi::{CStr, c_char, c_void};
use core::ops::Deref;
use core::sync::atomic::AtomicI32;
use std::sync::OnceLock;

use interop_core::{DType, Device, DeviceType, StreamHandle};

use crate::error::CallError;
use crate::runtime::{Library, c_string, function, functions, loaded};

/// `AtenTensorHandle`: a pointer to a `Tensor` of C++, which is a pointer to a `TensorImpl`.
pub(crate) type TensorHandle = *mut c_void;
/// Zero for success.
pub(crate) type Status = i32;
/// `StableIValue`: a number, or a pointer.
pub(crate) type Value = u64;
/// What the dispatcher calls: the arguments are on the stack, and the result replaces them.
pub(crate) type Kernel = unsafe extern "C-unwind" fn(*mut Value, u64, u64);

/// The version of the ABI for which this crate is written: 2.10.
pub(crate) const ABI: u64 = 2 << 56 | 10 << 48;

/// A dtype that `PyTorch` does not know, or that DLPack does not.
pub(crate) const UNKNOWN: DType = DType::new(255, 0, 0);

functions! {
    /// The functions of `libtorch`, and what is not of its stable ABI but of C++: without that the dispatcher is asked.
    Functions {
        init_fragment: c"aoti_torch_library_init_fragment" fn(*const c_char, *const c_char, u32, *mut *mut c_void) -> Status;
        init_impl: c"aoti_torch_library_init_impl" fn(*const c_char, *const c_char, *const c_char, u32, *mut *mut c_void) -> Status;
        define: c"aoti_torch_library_def" fn(*mut c_void, *const c_char) -> Status;
        implement: c"torch_library_impl" fn(*mut c_void, *const c_char, Kernel, u64) -> Status;
        dispatch: c"torch_call_dispatcher" fn(*const c_char, *const c_char, *mut Value, u64) -> Status;
        delete_tensor: c"aoti_torch_delete_tensor_object" fn(TensorHandle) -> Status;
        new_handle: c"aoti_torch_new_tensor_handle" fn(TensorHandle, *mut TensorHandle) -> Status;
        dim: c"aoti_torch_get_dim" fn(TensorHandle, *mut i64) -> Status;
        sizes: c"aoti_torch_get_sizes" fn(TensorHandle, *mut *mut i64) -> Status;
        strides: c"aoti_torch_get_strides" fn(TensorHandle, *mut *mut i64) -> Status;
        dtype: c"aoti_torch_get_dtype" fn(TensorHandle, *mut i32) -> Status;
        device_type: c"aoti_torch_get_device_type" fn(TensorHandle, *mut i32) -> Status;
        device_index: c"aoti_torch_get_device_index" fn(TensorHandle, *mut i32) -> Status;
        is_defined: c"aoti_torch_is_defined" fn(TensorHandle, *mut bool) -> Status;
        storage_size: c"aoti_torch_get_storage_size" fn(TensorHandle, *mut i64) -> Status;
        const_data: c"torch_get_const_data_ptr" fn(TensorHandle, *mut *mut c_void) -> Status;
        mutable_data: c"torch_get_mutable_data_ptr" fn(TensorHandle, *mut *mut c_void) -> Status;
        empty_strided: c"aoti_torch_empty_strided" fn(i64, *const i64, *const i64, i32, i32, i32, *mut TensorHandle) -> Status;
        grad_mode: c"aoti_torch_grad_mode_is_enabled" fn() -> bool;
        list_size: c"torch_list_size" fn(*mut c_void, *mut usize) -> Status;
        list_get: c"torch_list_get_item" fn(*mut c_void, usize, *mut Value) -> Status;
        list_delete: c"torch_delete_list" fn(*mut c_void) -> Status;
        string_length: c"torch_string_length" fn(*mut c_void, *mut usize) -> Status;
        string_data: c"torch_string_c_str" fn(*mut c_void, *mut *const u8) -> Status;
        string_delete: c"torch_delete_string" fn(*mut c_void) -> Status;
        /// of libstdc++ or libc++
        cpp_delete: c"_ZdlPv" fn(*mut Value);
        /// 2.11
        from_blob: c"torch_from_blob" fn(*mut c_void, i64, *const i64, *const i64, i64, i32, i32, i32, *mut TensorHandle, i32, *const u8, i64, unsafe extern "C" fn(*mut c_void, *mut c_void), *mut c_void) -> Status;
        /// 2.12
        compliant_tag: c"torch_tag_pt2_compliant_tag" fn() -> i32;
        /// 2.12
        define_with_tags: c"torch_library_def_with_tags" fn(*mut c_void, *const c_char, *const i32, i32) -> Status;
        /// 2.13
        what: c"torch_exception_get_what_without_backtrace" fn() -> *const c_char;
        /// 2.13
        value_delete: c"torch_delete_stable_ivalue" fn(*mut Value) -> Status;
        check: c"aoti_torch_check" fn(bool, *const c_char, *const c_char, u32, *const c_char);
        /// `c10::TensorImpl::requires_grad() const`
        requires_grad: c"_ZNK3c1010TensorImpl13requires_gradEv" fn(*const c_void) -> bool;
        /// `torch::autograd::impl::bump_version(at::Tensor const&)`, which throws for a tensor of inference mode
        bump_version: c"_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE" fn(TensorHandle);
        /// `c10::TensorImpl::_fw_grad(uint64_t, at::TensorBase const&) const`: without it tangents are lost
        tangent: c"_ZNK3c1010TensorImpl8_fw_gradEmRKN2at10TensorBaseE" fn(*const c_void, u64, TensorHandle) -> TensorHandle;
    }
}

/// The library that calls.
pub(crate) struct Torch {
    functions: Functions,
    /// What the library writes to stderr.
    pub(crate) log_level: Option<&'static AtomicI32>,
    get_stream: Option<unsafe extern "C" fn(i32, *mut *mut c_void) -> Status>,
    pub(crate) cpu: i32,
    pub(crate) cuda: i32,
    /// By the codes of `PyTorch`.
    dtypes: [DType; 64],
}

impl Deref for Torch {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

/// The library that has been found. It is never unloaded.
static FOUND: OnceLock<Torch> = OnceLock::new();

/// A symbol that only `PyTorch` has, in every version.
const ANY_VERSION: &CStr = c"aoti_torch_device_type_cpu";

impl Torch {
    fn new(library: &Library) -> Option<Self> {
        Some(Self {
            functions: Functions::of_library(library)?,
            log_level: function(library, c"FLAGS_caffe2_log_level"),
            get_stream: loaded("torch_cuda", c"aoti_torch_get_current_cuda_stream")
                .and_then(|cuda| function(&cuda, c"aoti_torch_get_current_cuda_stream")),
            cpu: number(library, c"aoti_torch_device_type_cpu")?,
            cuda: number(library, c"aoti_torch_device_type_cuda")?,
            dtypes: dtypes(library),
        })
    }

    /// Whether the process has loaded `PyTorch`, of any version.
    pub(crate) fn is_loaded() -> bool {
        FOUND.get().is_some() || loaded("torch_cpu", ANY_VERSION).is_some()
    }

    /// Finds the library.
    ///
    /// # Errors
    ///
    /// If it is not loaded, or too old.
    pub(crate) fn find() -> Result<&'static Self, CallError> {
        if let Some(found) = FOUND.get() {
            return Ok(found);
        }
        let error = |found: &str| {
            let text = format!("operators: found {found}, allowed: PyTorch 2.10 or newer");
            CallError::new(c"RuntimeError", text)
        };
        let library = loaded("torch_cpu", ANY_VERSION).ok_or_else(|| error("no PyTorch in this process"))?;
        let torch = Self::new(&library).ok_or_else(|| error("an older PyTorch"))?;
        core::mem::forget(library);
        Ok(FOUND.get_or_init(|| torch))
    }

    /// The library that calls a kernel.
    pub(crate) fn of_kernel() -> &'static Self {
        FOUND.get().unwrap_or_else(|| unreachable!("a kernel is registered with the library"))
    }

    /// Success, or the error that the library has set.
    pub(crate) fn check(&self, status: Status, called: &str) -> Result<(), CallError> {
        if status == 0 { Ok(()) } else { Err(self.failed(called)) }
    }

    /// The error of a function that has failed.
    #[cold]
    pub(crate) fn failed(&self, called: &str) -> CallError {
        // SAFETY: the function has no preconditions.
        let text = self.what.map(|what| unsafe { what() }).filter(|text| !text.is_null());
        // SAFETY: a C string, which is valid until the next error of this thread.
        let text = text.map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        CallError::new(
            c"RuntimeError",
            text.unwrap_or_else(|| format!("`{called}` of PyTorch failed; its message is on stderr")),
        )
    }

    /// The stream on which `PyTorch` works now.
    pub(crate) fn stream(&self, device: Device) -> Option<StreamHandle> {
        let mut stream = core::ptr::null_mut();
        // SAFETY: the function takes any index, and `stream` is valid for a write.
        let status = unsafe { (self.get_stream?)(device.device_id, &raw mut stream) };
        // SAFETY: the stream is current, so it is live during the call.
        (status == 0).then(|| unsafe { StreamHandle::from_raw(stream.addr()) })
    }

    /// The dtype with a code of `PyTorch`.
    pub(crate) fn dtype_of(&self, code: i32) -> DType {
        usize::try_from(code).ok().and_then(|code| self.dtypes.get(code)).copied().unwrap_or(UNKNOWN)
    }

    /// The code of a dtype.
    pub(crate) fn code_of(&self, dtype: DType) -> Result<i32, CallError> {
        let code =
            self.dtypes.iter().position(|other| *other == dtype).and_then(|code| i32::try_from(code).ok());
        code.ok_or_else(|| {
            CallError::new(
                c"TypeError",
                format!("`dtype`: found {dtype}, allowed: an element type of PyTorch"),
            )
        })
    }

    /// A device of `PyTorch`. One that is neither the host nor CUDA has the type 0.
    pub(crate) fn device_of(&self, device_type: i32, index: i32) -> Device {
        if device_type == self.cpu {
            Device::CPU
        } else if device_type == self.cuda {
            Device::cuda(index.max(0))
        } else {
            Device { device_type: DeviceType(0), device_id: index }
        }
    }

    /// The type and the index of a device in `PyTorch`.
    pub(crate) fn device_codes(&self, device: Device) -> (i32, i32) {
        if device == Device::CPU { (self.cpu, 0) } else { (self.cuda, device.device_id) }
    }
}

/// The result of a function without arguments.
fn number(library: &Library, name: &CStr) -> Option<i32> {
    let function: unsafe extern "C" fn() -> i32 = function(library, name)?;
    // SAFETY: a function of `shim.h` that returns a constant.
    Some(unsafe { function() })
}

/// The dtypes by their codes: a type of DLPack has the name that it has here.
fn dtypes(library: &Library) -> [DType; 64] {
    let mut table = [UNKNOWN; 64];
    let all = (0..18).flat_map(|code| [8, 16, 32, 64, 128].map(|bits| DType::new(code, bits, 1)));
    for dtype in all {
        let code = ["aoti_torch_dtype", "torch_dtype"]
            .iter()
            .find_map(|prefix| number(library, &c_string(&format!("{prefix}_{dtype}"))));
        if let Some(place) = code.and_then(|code| table.get_mut(usize::try_from(code).ok()?)) {
            *place = dtype;
        }
    }
    table
}
