//! `KernelModule`: PTX that is loaded once for each context, launches of its kernels, and `KernelArgument`.

use core::ffi::c_void;
use core::{fmt, ptr};
use std::ffi::CString;

use interop_kernel::host::{layout, sizes};
use interop_kernel::{InScope, Kernel, KernelArrays, LaunchSize};

use crate::array::element::Element;
use crate::driver::context::{Context, PerContext, Relaxed};
use crate::driver::functions::{Driver, DriverError, Outcome, code, driver};
use crate::driver::ptx_text::{first_difference, layout_in, sizes_in, written_variable};
use crate::driver::stream::{LocatedStream, Stream};
use crate::error::{Error, ErrorKind, Result, text};

/// The PTX of kernels, for [`LaunchScope::launch`](crate::LaunchScope::launch) if they are in Rust, and for
/// [`LaunchScope::launch_unchecked`](crate::LaunchScope::launch_unchecked) in any language.
///
/// The first launch in a context loads it, and the driver compiles it for its device. It is never unloaded, so keep it in a
/// `static`. Launch once before a graph is captured.
///
/// ```
/// use interop_core::KernelModule;
///
/// # const PTX: &str = "";
/// // In a program: `const PTX: &str = include_str!("kernels.ptx");`
/// // SAFETY: this PTX is compiled from the kernels of this program.
/// static KERNELS: KernelModule = unsafe { KernelModule::new(PTX) };
/// ```
pub struct KernelModule {
    ptx: &'static str,
    loaded: PerContext<Loaded>,
}

/// The module in a context, or why the driver cannot load it, and those of its functions that were launched.
struct Loaded {
    module: Outcome<usize>,
    functions: Vec<Function>,
}

/// A kernel as the program knows it.
#[derive(Clone, Copy)]
pub(crate) struct EntryPoint<'a> {
    pub(crate) name: &'static str,
    /// The sizes of its parameters in bytes.
    pub(crate) sizes: &'a [usize],
    /// What its parameters are in bytes, one a line, as the PTX of a kernel in Rust has it. Empty if that is not compared.
    pub(crate) layout: &'static [u8],
    /// Whether its threads must make the same calls.
    pub(crate) is_team: bool,
}

impl EntryPoint<'_> {
    /// Describes a kernel in Rust.
    pub(crate) fn from_kernel<K: Kernel>() -> Self {
        Self { name: K::NAME, sizes: sizes::<K>(), layout: layout::<K>(), is_team: K::IS_TEAM }
    }
}

/// A kernel of a module, whose parameters were compared with those of the program.
struct Function {
    name: &'static str,
    sizes: Vec<usize>,
    layout: &'static [u8],
    handle: usize,
}

impl Function {
    fn is_for(&self, kernel: EntryPoint<'_>) -> bool {
        self.name == kernel.name && self.sizes == kernel.sizes && self.layout == kernel.layout
    }
}

/// An argument of a kernel in any language, which the kernel gets by value, with the bytes that it has here:
///
/// - an array, as [`LaunchScope::read`](crate::LaunchScope::read) and [`write`](crate::LaunchScope::write) return it: an
///   `interop::view` in C++;
/// - arrays, as [`LaunchScope::elementwise`](crate::LaunchScope::elementwise) returns them: an `interop::elementwise` in C++;
/// - a number, or another [`Element`](trait@Element); a `size_t` of C++ is a `u64`;
/// - a pointer, such as `array.address() as *const f32` of an [`ArrayInScope`](crate::launch::ArrayInScope);
/// - [`KernelArrays`], which are addresses of arrays: of which scope is not checked;
/// - a `#[repr(C)]` struct of your own, for which you implement this trait. It holds the view, `*array`, and not the [`InScope`].
pub trait KernelArgument {
    /// The size of what the kernel gets, in bytes.
    #[doc(hidden)]
    fn size(&self) -> usize {
        size_of_val(self)
    }

    /// Whether the kernel gets arrays of this scope, or none.
    #[doc(hidden)]
    fn is_in_scope(&self, _scope: usize) -> bool {
        true
    }
}

impl<T: Element> KernelArgument for T {}

impl<T> KernelArgument for *const T {}

impl<T> KernelArgument for *mut T {}

impl<const K: usize, const N: usize> KernelArgument for KernelArrays<'_, K, N> {}

impl<V> KernelArgument for InScope<V> {
    fn size(&self) -> usize {
        size_of::<V>()
    }

    fn is_in_scope(&self, scope: usize) -> bool {
        Self::is_in_scope(self, scope)
    }
}

/// Stands for a kernel that is another one in the PTX than in the program.
const MISMATCH: DriverError = DriverError { symbol: "", code: code::INVALID_VALUE };

impl KernelModule {
    /// Names the PTX.
    ///
    /// # Safety
    ///
    /// An entry point of the PTX that has the name of a kernel in Rust which is launched from this module was compiled from that
    /// kernel.
    #[must_use]
    pub const unsafe fn new(ptx: &'static str) -> Self {
        Self { ptx, loaded: PerContext::new() }
    }

    /// Queues a kernel.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Driver`] with the driver's answer, without a driver, or if the PTX has no such kernel.
    ///
    /// # Safety
    ///
    /// `parameters` are pointers to the arguments of the kernel with this name, which have these sizes in bytes. The arrays are
    /// what the kernel may use, at its place in the order of the stream, which is live.
    pub(crate) unsafe fn queue(
        &self,
        stream: Stream,
        kernel: EntryPoint<'_>,
        size: LaunchSize,
        parameters: &mut [*mut c_void],
    ) -> Result<()> {
        let driver = driver()?;
        let stream = stream.in_context(driver)?;
        let _entered = stream.context.enter(driver)?;
        // SAFETY: as the caller promises.
        let queued = unsafe { self.launch(driver, stream, kernel, size, parameters) };
        queued.map_err(|failure| match failure.symbol {
            "cuLaunchKernel" => failure.into(),
            _ if failure == MISMATCH => self.mismatch(kernel).unwrap_or_else(|| failure.into()),
            _ => failure.expecting(text!("PTX that the driver can compile, with the kernel {}", kernel.name)),
        })
    }

    /// As [`queue`](Self::queue), on a stream of a context that is current.
    ///
    /// # Safety
    ///
    /// As [`queue`](Self::queue).
    pub(crate) unsafe fn launch(
        &self,
        driver: &Driver,
        LocatedStream { context, raw }: LocatedStream,
        kernel: EntryPoint<'_>,
        LaunchSize { grid, block }: LaunchSize,
        parameters: &mut [*mut c_void],
    ) -> Outcome {
        let ((x, y, z), (width, height, depth)) = (grid, block);
        let (parameters, none) = (parameters.as_mut_ptr(), ptr::null_mut());
        // SAFETY: the parameters have the number and the types of the kernel's. The driver copies them during the call.
        let launch = |function| unsafe {
            driver.launch(function, x, y, z, width, height, depth, 0, raw, parameters, none)
        };
        match launch(self.function(driver, context, kernel)?) {
            Err(failure) if failure.is_about_handles() => {
                // The primary context was reset, which destroyed the module.
                self.loaded.forget(context);
                launch(self.function(driver, context, kernel)?)
            }
            queued => queued,
        }
    }

    /// Returns the kernel in a context, which is current. The first call in a context loads the module.
    fn function(&self, driver: &Driver, context: Context, kernel: EntryPoint<'_>) -> Outcome<usize> {
        let make = || match load(driver, self.ptx) {
            Err(failure) if !failure.is_about_modules() => Err(failure),
            module => Ok(Loaded { module, functions: Vec::new() }),
        };
        self.loaded.with(driver, context, make, |_, loaded| {
            // Other parameters under the same name are compared with the PTX, too.
            if let Some(function) = loaded.functions.iter().find(|function| function.is_for(kernel)) {
                return Ok(function.handle);
            }
            let (module, mut function) = (loaded.module?, 0);
            if self.mismatch(kernel).is_some() {
                return Err(MISMATCH);
            }
            let entry = CString::new(kernel.name).unwrap_or_default();
            // SAFETY: `function` is valid for a write, the module belongs to this context, and the name is a C string.
            unsafe { driver.module_function(&raw mut function, module, entry.as_ptr()) }?;
            let EntryPoint { name, sizes, layout, .. } = kernel;
            loaded.functions.push(Function { name, sizes: sizes.to_vec(), layout, handle: function });
            Ok(function)
        })?
    }

    /// Compares the kernel of the PTX with that of the program: another one would read other bytes, or compute something else.
    fn mismatch(&self, EntryPoint { name, sizes, layout, is_team }: EntryPoint<'_>) -> Option<Error> {
        let (found, allowed) = match (sizes_in(self.ptx, name), layout_in(self.ptx, name)) {
            (None, _) => ("no kernel of this name in the PTX".to_owned(), String::new()),
            (Some(_), Some(found)) if !layout.is_empty() && found != layout => {
                let [found, layout] = [&found, layout].map(String::from_utf8_lossy);
                let (found, own) = first_difference(&found, &layout);
                (format!("{found} in the PTX"), format!("{own}, as in the program; "))
            }
            (Some(found), _) if found != sizes => {
                let found =
                    format!("parameters of {found:?} bytes in the PTX, and of {sizes:?} in the program");
                (found, String::new())
            }
            _ if is_team => {
                let found = format!(
                    "the variable `{}`, which a kernel of the PTX writes",
                    written_variable(self.ptx)?
                );
                let allowed = "no `static` that kernels change, beside a kernel of a team: its threads could tell each other apart by it, and they \
                               must all make the same calls";
                return Some(Error::new(ErrorKind::Driver, name, found, allowed));
            }
            _ => return None,
        };
        let allowed = format!(
            "{allowed}PTX of the kernels that are launched from it, with their types: compile it again"
        );
        Some(Error::new(ErrorKind::Driver, name, found, allowed))
    }
}

fn load(driver: &Driver, ptx: &str) -> Outcome<usize> {
    let (mut module, text) = (0, CString::new(ptx).unwrap_or_default());
    let _relaxed = Relaxed::new(driver);
    // SAFETY: `module` is valid for a write, and the text ends with a zero.
    unsafe { driver.module_load(&raw mut module, text.as_ptr()) }?;
    Ok(module)
}

impl fmt::Debug for KernelModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelModule").field("ptx", &self.ptx.len()).finish_non_exhaustive()
    }
}
