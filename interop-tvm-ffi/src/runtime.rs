//! The functions of `libtvm_ffi`, if the process has loaded it. Nothing is linked.
#![expect(unsafe_code, reason = "calls functions of a library that is found at run time")]

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::ffi::CString;
use std::sync::{Once, OnceLock};

#[cfg(unix)]
pub(crate) use libloading::os::unix::Library;
#[cfg(windows)]
pub(crate) use libloading::os::windows::Library;

use interop_core::protocols::dlpack::{DLTensor, ManagedTensor, Versioned};
use interop_core::{Device, StreamHandle};

use crate::abi::{TVMFFIAny, index};
use crate::error::CallError;
use crate::owned_object::OwnedObject;

static FOUND: OnceLock<Runtime> = OnceLock::new();

/// The functions of the library. They stay, because nobody unloads a library with thread-local state.
pub(crate) struct Runtime {
    /// Major, minor, patch.
    version: [u32; 3],
    set_raised: unsafe extern "C" fn(*const c_char, *const c_char),
    /// `None` for a version with other structs.
    functions: Option<Functions>,
}

/// Declares functions of a library, which are found by their symbols. Those with a comment may be missing. Each may unwind, because the
/// functions of C++ throw exceptions.
macro_rules! functions {
    ($(#[$doc:meta])* $of:ident { $($(#[doc = $why:literal])? $name:ident: $symbol:literal fn($($argument:ty),*) $(-> $result:ty)?;)* }) => {
        $(#[$doc])*
        pub(crate) struct $of {
            $(pub(crate) $name: functions!(@type $($why)? unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?),)*
        }

        impl $of {
            pub(crate) fn of_library(library: &$crate::runtime::Library) -> Option<Self> {
                Some(Self { $($name: functions!(@find $($why)? library, $symbol),)* })
            }
        }
    };
    (@type $type:ty) => { $type };
    (@type $why:literal $type:ty) => { Option<$type> };
    (@find $library:ident, $symbol:literal) => { $crate::runtime::function($library, $symbol)? };
    (@find $why:literal $library:ident, $symbol:literal) => { $crate::runtime::function($library, $symbol) };
}
pub(crate) use functions;

functions! {
    /// The functions that use structs of the ABI.
    Functions {
        get_stream: c"TVMFFIEnvGetStream" fn(i32, i32) -> *mut c_void;
        get_allocator: c"TVMFFIEnvGetDLPackManagedTensorAllocator" fn() -> *const c_void;
        tensor_alloc: c"TVMFFIEnvTensorAlloc" fn(*mut DLTensor, *mut *mut c_void) -> i32;
        from_dlpack: c"TVMFFITensorFromDLPackVersioned" fn(*mut Versioned, i32, i32, *mut *mut c_void) -> i32;
        dec_ref: c"TVMFFIObjectDecRef" fn(*mut c_void) -> i32;
    }
}

/// `TVMFFIGetVersion`. The version is major, minor, patch.
type GetVersion = unsafe extern "C" fn(*mut [u32; 3]);

impl Runtime {
    /// Finds the library. It may be loaded later, so only success is remembered.
    pub(crate) fn find() -> Option<&'static Self> {
        FOUND.get().or_else(|| Self::load().map(|found| FOUND.get_or_init(|| found)))
    }

    /// As [`find`](Self::find), but searches once for all calls without objects, because a search without success takes 20 µs.
    /// Another thread waits for that search. An object is of the library, which may have been loaded since.
    pub(crate) fn for_call(values: &[TVMFFIAny]) -> Option<&'static Self> {
        static SEARCHED: Once = Once::new();
        FOUND.get().or_else(|| {
            SEARCHED.call_once(|| {
                let _ = Self::find();
            });
            let is_object = |value: &TVMFFIAny| value.type_index >= index::FIRST_OBJECT;
            if values.iter().any(is_object) { Self::find() } else { FOUND.get() }
        })
    }

    /// The functions of the library, if its version is supported.
    pub(crate) fn functions() -> Option<&'static Functions> {
        Self::find()?.functions.as_ref()
    }

    #[cold]
    fn load() -> Option<Self> {
        let library = loaded("tvm_ffi", c"TVMFFIGetVersion")?;
        let get_version: GetVersion = function(&library, c"TVMFFIGetVersion")?;
        let mut version = [0; 3];
        // SAFETY: this is the function of `c_api.h`, and the version is valid for a write.
        unsafe { get_version(&raw mut version) };
        let set_raised = function(&library, c"TVMFFIErrorSetRaisedFromCStr")?;
        // Before 1.0, a minor version may change the structs of `abi`.
        let functions = if version[..2] == [0, 1] { Functions::of_library(&library) } else { None };
        core::mem::forget(library);
        Some(Self { version, set_raised, functions })
    }

    /// Returns an error for a version whose structs may differ.
    pub(crate) fn check(&self) -> Result<(), CallError> {
        if self.functions.is_some() {
            return Ok(());
        }
        let [major, minor, patch] = self.version;
        let text = format!("`tvm_ffi`: found version {major}.{minor}.{patch}, allowed: 0.1");
        Err(CallError::new(c"RuntimeError", text))
    }

    /// Sets the error that the caller takes.
    pub(crate) fn raise(&self, CallError { class, text, .. }: &CallError) {
        // An empty class: the library has set the error.
        if !class.is_empty() {
            let text = c_string(text);
            // SAFETY: two C strings, which the function copies.
            unsafe { (self.set_raised)(class.as_ptr(), text.as_ptr()) };
        }
    }
}

impl Functions {
    /// The functions with which results are made.
    pub(crate) fn of_results() -> Result<&'static Self, CallError> {
        let missing = "`libtvm_ffi`: not loaded; an array as a result needs it";
        Runtime::functions().ok_or_else(|| CallError::new(c"RuntimeError", missing))
    }

    /// A new tensor of the caller's library, whose elements are not initialized.
    pub(crate) fn allocate(&self, like: &mut DLTensor) -> Result<OwnedObject, CallError> {
        // SAFETY: a description without memory, whose lists are live.
        self.made(|object| unsafe { (self.tensor_alloc)(like, object) })
    }

    /// A tensor that owns the memory of an array of Rust.
    pub(crate) fn adopt(&self, tensor: ManagedTensor) -> Result<OwnedObject, CallError> {
        let tensor = tensor.into_raw();
        // SAFETY: an owned tensor, without requirements.
        self.made(|object| unsafe { (self.from_dlpack)(tensor, 0, 0, object) }).inspect_err(|_| {
            // SAFETY: the library has not taken the tensor.
            drop(unsafe { ManagedTensor::from_raw(tensor) });
        })
    }

    /// The object that a function makes, to whose place it writes.
    fn made(&self, make: impl FnOnce(*mut *mut c_void) -> i32) -> Result<OwnedObject, CallError> {
        let mut object = core::ptr::null_mut();
        if make(&raw mut object) != 0 || object.is_null() {
            return Err(CallError::RAISED);
        }
        // SAFETY: the library has made this object, and given the reference away.
        Ok(unsafe { OwnedObject::new(object, self.dec_ref) })
    }

    /// The function with which the caller's library allocates new tensors, or null.
    pub(crate) fn allocator(&self) -> *const c_void {
        // SAFETY: the function has no preconditions.
        unsafe { (self.get_allocator)() }
    }

    /// The stream that the caller has set for a device. It is live during the call.
    ///
    /// Null is the default stream of `PyTorch`, which sets its allocator with it. From anybody else it means that no stream
    /// was set, or that the library knows none.
    pub(crate) fn stream(&self, device: Device) -> Option<StreamHandle> {
        // SAFETY: the function takes any numbers.
        let stream = unsafe { (self.get_stream)(device.device_type.0, device.device_id) };
        if stream.is_null() && !is_of_torch(self.allocator()) {
            return None;
        }
        // SAFETY: the caller has set this stream for the call.
        Some(unsafe { StreamHandle::from_raw(stream.addr()) })
    }
}

/// Whether a function is of `PyTorch`, or of the library that TVM FFI compiles for its older versions.
fn is_of_torch(function: *const c_void) -> bool {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    if function.is_null() || KNOWN.load(Ordering::Relaxed) == function.addr() {
        return !function.is_null();
    }
    let is_of_torch =
        file_of(function).is_some_and(|path| path.rsplit('/').next().unwrap_or("").contains("torch"));
    if is_of_torch {
        KNOWN.store(function.addr(), Ordering::Relaxed);
    }
    is_of_torch
}

/// The path of the library with a function. It is not asked for on Windows, so work on a default stream is ordered with all
/// other there.
#[cfg_attr(windows, expect(unused_variables, reason = "not asked"))]
pub(crate) fn file_of(function: *const c_void) -> Option<String> {
    #[cfg(unix)]
    {
        unsafe extern "C" {
            /// The first pointer of the `Dl_info` receives the path.
            fn dladdr(address: *const c_void, info: *mut [*const c_char; 4]) -> i32;
        }
        let mut info = [core::ptr::null(); 4];
        // SAFETY: the function takes any address, and `info` is valid for a write.
        let found = unsafe { dladdr(function, &raw mut info) } != 0 && !info[0].is_null();
        // SAFETY: the path of a loaded library.
        found.then(|| unsafe { CStr::from_ptr(info[0]) }.to_string_lossy().into_owned())
    }
    #[cfg(windows)]
    None
}

/// A C string with `\0` in place of each NUL.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default()
}

/// Finds a library that the process has loaded, by the middle of its file's name and by a symbol of it.
#[cfg(unix)]
pub(crate) fn loaded(name: &str, symbol: &CStr) -> Option<Library> {
    use libloading::os::unix::{RTLD_LAZY, RTLD_LOCAL};

    let has_it = |library: &Library| function::<*const c_void>(library, symbol).is_some();
    let global = Library::this();
    if has_it(&global) {
        return Some(global);
    }
    // A library that was loaded with `RTLD_LOCAL` is found by its name only.
    let name = format!("{}{name}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    // SAFETY: the library is already loaded, so no initializer runs.
    let local = unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD) };
    local.ok().filter(has_it)
}

#[cfg(unix)]
const RTLD_NOLOAD: i32 = if cfg!(target_os = "macos") { 0x10 } else { 4 };

#[cfg(windows)]
pub(crate) fn loaded(name: &str, _: &CStr) -> Option<Library> {
    Library::open_already_loaded(format!("{name}.dll")).ok()
}

/// The global symbols of the process.
#[cfg_attr(unix, expect(clippy::unnecessary_wraps, reason = "as on Windows"))]
pub(crate) fn program() -> Option<Library> {
    #[cfg(unix)]
    return Some(Library::this());
    #[cfg(windows)]
    return Library::this().ok();
}

/// Keeps this library loaded until the process ends: others have its functions.
pub(crate) fn stay_loaded() {
    #[cfg(unix)]
    if let Some(path) = file_of(stay_loaded as *const c_void) {
        // SAFETY: the library is already loaded, so no initializer runs.
        let this = unsafe { Library::open(Some(path), libloading::os::unix::RTLD_LAZY | RTLD_NOLOAD) };
        core::mem::forget(this);
    }
}

/// Finds a function, or the place of a constant, whose type in its header the caller names.
pub(crate) fn function<F: Copy>(library: &Library, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    // SAFETY: the type is that of the function.
    unsafe { library.get::<F>(name.to_bytes_with_nul()) }.ok().map(|symbol| *symbol)
}
