//! Controls and queries the simulated CUDA driver from the tests of any package.
//!
//! Call [`sim`] before anything that calls the driver. It loads the library into the process, so a later load of
//! `libcuda.so.1` by the program finds the same library. The page "Test without a GPU" of the guide describes it.
//!
//! ```no_run
//! use simulated_cuda::{Live, sim};
//!
//! let sim = sim();
//! // … the code to test …
//! sim.assert_no_reports();
//! assert_eq!(sim.live(Live::Allocations), 0);
//! ```
//!
//! # What is simulated
//!
//! - Memory: device, pinned, managed and registered memory, pools (a pool of device memory that the program creates without a type of
//!   handle is the device's own pool), and ranges that are mapped in pieces (`cuMemMap`). Without a type of handle the bytes belong to
//!   the mapping; with one, all mappings have the same bytes.
//! - Order: an operation is queued with those that it must come after: its predecessor on the stream, the records that its stream
//!   waits for, and what default streams and blocking streams require of each other. Nothing runs until a call waits for it or polls
//!   it four times. Then only the required operations run. An operation that may not access its memory is not performed.
//! - Races: vector clocks of every stream, host thread, node of a launched graph, and event. Order comes from streams, events,
//!   `cuCtxRecordEvent`, default streams, waits and successful polls of the host, and the dependencies of a graph. Host threads share
//!   what they know to be finished, unless [`Sim::set_threads_apart`] tracks them apart. [`Sim::run_all`] clears all histories.
//! - Waits: `cuMemFree` of `cuMemAlloc` or managed memory and `cuMemFreeHost` wait for the device; `cuMemFree` of pool memory and
//!   `cuMemFreeAsync` do not. Asynchronous copies from unknown host memory read it at once, copies to it make the host wait.
//! - Captures: which calls are refused and which spoil a capture, by its mode and the thread's. Captured graphs can be launched.
//! - Handles: every use of a destroyed stream is reported and returns 709; the real driver crashes in some of these calls. A destroyed
//!   context can be pushed, and popping it ends the process. With [`Sim::set_reuse`], handles and addresses are reused.
//! - Processes: the handles of `cuIpcGetMemHandle`, descriptors of mapped memory and of pools, and numbers in host memory that streams write and wait for (`cuStreamWriteValue64`,
//!   `cuStreamWaitValue64`). Clocks pass from process to process with both, so unordered uses of shared memory are reported in the
//!   process that runs second. A process that has ended uses nothing. A host that reads a number itself learns nothing from it.
//! - Kernels: the names after `.entry` in a PTX, each a host function. Parameters are copied at the launch.

#![expect(unsafe_code, reason = "the orders are functions of a library that is loaded at run time")]
#![expect(clippy::must_use_candidate, reason = "a test that asks and ignores the answer fails in review")]

mod kernel;
mod report;

pub use kernel::{Arguments, DeviceMemory, KernelFunction};
pub use report::{Mark, Mistake, NoWaits, Report};

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// The name under which programs load the driver.
const NAME: &str = "libcuda.so.1";
/// Linux's `RTLD_NOLOAD`: opens the library only if it is already loaded.
const RTLD_NOLOAD: i32 = 4;

/// What [`Sim::live`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Live {
    /// Allocations and registrations that have not been freed.
    Allocations = 0,
    /// Created streams that have not been destroyed.
    Streams = 1,
    /// Events that have not been destroyed.
    Events = 2,
    /// Contexts, including retained primary contexts.
    Contexts = 3,
    /// Operations that have not ended.
    Operations = 4,
    /// Loaded modules.
    Modules = 5,
    /// Captures under way.
    Captures = 6,
    /// Graphs and executable graphs.
    Graphs = 7,
}

/// When an operation runs if no call waits for it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Policy {
    /// Only when a call waits for it; other operations do not run then. Frees run as soon as they may. The default.
    Late = 0,
    /// As `Late`, but a wait may also run any other operation that is ready.
    Random = 1,
    /// Immediately.
    Eager = 2,
}

/// Declares the table of the library's functions for tests.
macro_rules! hooks {
    ($($name:ident = $symbol:literal ($($type:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions for tests of the loaded library.
        struct Hooks {
            $($name: extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Hooks {
            fn find(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {$(
                    // SAFETY: only the simulated driver of this workspace has functions with these names. They have
                    // these types there and no preconditions beyond those of the methods below.
                    $name: *unsafe { library.get::<extern "C" fn($($type),*) $(-> $result)?>($symbol) }?,
                )*})
            }
        }
    };
}

hooks! {
    calls = b"simulated_cuda_calls\0" (*const c_char) -> u64;
    reset_calls = b"simulated_cuda_reset_calls\0" ();
    report_count = b"simulated_cuda_report_count\0" () -> u64;
    report = b"simulated_cuda_report\0" (u64, *mut u32, *mut u8, u64) -> u64;
    clear_reports = b"simulated_cuda_clear_reports\0" ();
    mark = b"simulated_cuda_mark\0" () -> u64;
    report_leaked_events = b"simulated_cuda_report_leaked_events\0" (u64, *const u64, u64);
    forbid_waits = b"simulated_cuda_forbid_waits\0" (u32);
    host_access = b"simulated_cuda_host_access\0" (u64, u64, u32);
    set_threads_apart = b"simulated_cuda_set_threads_apart\0" (u32);
    set_registered_apart = b"simulated_cuda_set_registered_apart\0" (u32);
    set_reuse = b"simulated_cuda_set_reuse\0" (u32);
    hand_over = b"simulated_cuda_hand_over\0" () -> u64;
    take_over = b"simulated_cuda_take_over\0" (u64);
    lose = b"simulated_cuda_lose\0" (*const c_char, u64);
    live = b"simulated_cuda_live\0" (u32) -> u64;
    set_policy = b"simulated_cuda_set_policy\0" (u32);
    set_seed = b"simulated_cuda_set_seed\0" (u64);
    run_all = b"simulated_cuda_run_all\0" ();
    step = b"simulated_cuda_step\0" () -> u32;
    fail_next = b"simulated_cuda_fail_next\0" (*const c_char, i32);
    fail_all = b"simulated_cuda_fail_all\0" (i32);
    clear_faults = b"simulated_cuda_clear_faults\0" ();
    spin = b"simulated_cuda_spin\0" (u64) -> u64;
    release_spin = b"simulated_cuda_release_spin\0" (u64);
    is_pending = b"simulated_cuda_is_pending\0" (u64) -> u32;
    register_kernel = b"simulated_cuda_register_kernel\0" (*const c_char, KernelFunction, *const usize, u64) -> u64;
    translate = b"simulated_cuda_translate\0" (u64, u64, u32) -> *mut u8;
}

/// The simulated driver of this process.
///
/// All tests of a process share it. Tests that count calls or control the driver must take turns or run in separate
/// processes.
pub struct Sim {
    hooks: Hooks,
    /// Never closed, so every later load of `libcuda.so.1` gets the same library.
    library: Library,
}

/// The work that a host thread knows to be finished, to be passed to another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandedOver(u64);

/// An operation that ends when the test releases it.
///
/// It also ends when a call must wait for it, unless the policy is [`Policy::Eager`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin(u64);

/// Returns the simulated driver.
///
/// # Panics
///
/// If the library was not found, or if the process has loaded another driver. The message says what to do.
pub fn sim() -> &'static Sim {
    find().unwrap_or_else(|why| panic!("{why}"))
}

/// Returns the simulated driver, or the reason why there is none, for tests that also run against a real driver.
///
/// # Errors
///
/// The library was not found, or the process has loaded another `libcuda.so.1`.
pub fn find() -> Result<&'static Sim, &'static str> {
    static SIM: OnceLock<Result<Sim, String>> = OnceLock::new();
    SIM.get_or_init(open).as_ref().map_err(String::as_str)
}

/// The environment variable that names another library file to load, for example one built with other flags.
const CHOSEN: &str = "SIMULATED_CUDA_DRIVER";

/// The name of the library that cargo builds.
const BUILT: &str = "libsimulated_cuda_driver";

/// The files to try: the one that `cargo xtask sim` has made in this repository, which programs that link libcuda use too, or
/// else the one that cargo has built for this crate, beside the test or one folder above.
fn places() -> Vec<PathBuf> {
    if let Some(chosen) = std::env::var_os(CHOSEN) {
        return vec![chosen.into()];
    }
    let program = std::env::current_exe().unwrap_or_default();
    let own = program.ancestors().skip(1).take(2).flat_map(built_in);
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/sim/lib64").join(NAME);
    // The driver's own tests are for what cargo has just built.
    let installed = workspace.exists() && !is_own_test(&program);
    if installed { vec![workspace] } else { own.collect() }
}

/// The libraries in a folder that cargo has built, with or without a hash in their names, the newest first.
fn built_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_driver = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let rest = name.strip_prefix(BUILT).and_then(|rest| rest.strip_suffix(".so"));
        rest.is_some_and(|hash| hash.is_empty() || hash.starts_with('-'))
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_driver).collect();
    found.sort_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    found.reverse();
    found
}

/// Whether a program is a test of the simulated driver itself, which must load the library that cargo has just built.
fn is_own_test(program: &Path) -> bool {
    let is_it = |name: &str| ["sim_driver-", "processes-"].iter().any(|own| name.starts_with(own));
    program.file_name().is_some_and(|name| is_it(&name.to_string_lossy()))
}

/// Opens the library that is loaded in the process, or else the one that was built.
fn open() -> Result<Sim, String> {
    let flags = RTLD_NOW | RTLD_LOCAL;
    // SAFETY: the library is already in the process, so no initializer runs.
    let loaded = unsafe { Library::open(Some(NAME), flags | RTLD_NOLOAD) }.ok();
    let library = loaded.or_else(|| {
        let known = places().into_iter().find(|place| place.exists());
        // Unless one was chosen, it may also be where the system looks: LD_LIBRARY_PATH.
        let place = known.or_else(|| std::env::var_os(CHOSEN).is_none().then(|| NAME.into()))?;
        // SAFETY: the simulated driver has no initializers, and the real one may be loaded at any time.
        unsafe { Library::open(Some(place), flags) }.ok()
    });
    let library = library.ok_or(
        "the simulated CUDA driver was not found beside this test: set LD_LIBRARY_PATH to a folder that `cargo xtask sim FOLDER` \
         has made",
    )?;
    let hooks = Hooks::find(&library).map_err(|error| {
        format!(
            "this process has loaded a libcuda.so.1 that is not the simulated one ({error}): set \
             LD_LIBRARY_PATH to the folder of the simulated one"
        )
    })?;
    Ok(Sim { hooks, library })
}

/// Converts a name to a C string.
fn text(name: &str) -> CString {
    CString::new(name).expect("names of functions have no zero in them")
}

impl Sim {
    /// The number of calls of a driver function, by its exported name such as `cuMemFree_v2`.
    pub fn calls(&self, name: &str) -> u64 {
        (self.hooks.calls)(text(name).as_ptr())
    }

    /// The number of calls of all functions together.
    pub fn all_calls(&self) -> u64 {
        (self.hooks.calls)(std::ptr::null())
    }

    /// Resets all call counts to zero.
    pub fn reset_calls(&self) {
        (self.hooks.reset_calls)();
    }

    /// Declares that the host program reads `bytes` now, at an address that devices use too. The driver cannot see such
    /// reads.
    pub fn host_reads(&self, address: u64, bytes: usize) {
        (self.hooks.host_access)(address, bytes as u64, 0);
    }

    /// Declares that the host program writes `bytes` now, as [`host_reads`](Self::host_reads) does for reads.
    pub fn host_writes(&self, address: u64, bytes: usize) {
        (self.hooks.host_access)(address, bytes as u64, 1);
    }

    /// Chooses whether the driver tracks host threads separately.
    ///
    /// If so, a thread knows of the work that it waited for itself, that was known when it started, that ended threads
    /// knew of, and that [`take_over`](Self::take_over) passes to it. By default all host threads share their
    /// knowledge, because threads synchronize in ways that no driver sees.
    pub fn set_threads_apart(&self, apart: bool) {
        (self.hooks.set_threads_apart)(apart.into());
    }

    /// Chooses whether host memory that is registered from now on has a different address on devices than on the host.
    ///
    /// Devices without `CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM` behave so. A kernel that uses the host's address is
    /// reported.
    pub fn set_registered_apart(&self, apart: bool) {
        (self.hooks.set_registered_apart)(apart.into());
    }

    /// Chooses whether the driver reuses handles and addresses from now on, as the real driver does.
    ///
    /// This applies to handles of destroyed contexts, streams and events, and to addresses of freed memory. The one
    /// that was released last is reused first. A use after destruction then refers to the new object and cannot be
    /// reported.
    pub fn set_reuse(&self, reuse: bool) {
        (self.hooks.set_reuse)(reuse.into());
    }

    /// Returns what this thread knows to be finished, for another thread to [take over](Self::take_over).
    pub fn hand_over(&self) -> HandedOver {
        HandedOver((self.hooks.hand_over)())
    }

    /// Adds to this thread the knowledge that another thread has handed over.
    pub fn take_over(&self, handed: HandedOver) {
        (self.hooks.take_over)(handed.0);
    }

    /// Makes one call of `cuStreamWaitEvent` or `cuCtxRecordEvent` return success without doing anything.
    ///
    /// It is the call after the next `before` calls of that function. An event whose record is lost counts as never
    /// recorded. A test uses this to show that the call is necessary.
    pub fn lose(&self, name: &str, before: u64) {
        (self.hooks.lose)(text(name).as_ptr(), before);
    }

    /// The number of live objects of one kind.
    pub fn live(&self, what: Live) -> u64 {
        (self.hooks.live)(what as u32)
    }

    /// Chooses when operations run.
    pub fn set_policy(&self, policy: Policy) {
        (self.hooks.set_policy)(policy as u32);
    }

    /// Restarts the scheduler's random choices from a seed.
    pub fn set_seed(&self, seed: u64) {
        (self.hooks.set_seed)(seed);
    }

    /// Runs everything to the end, including spins.
    ///
    /// Like a wait for all work, it puts everything that was queued before it before everything that comes after it.
    pub fn run_all(&self) {
        (self.hooks.run_all)();
    }

    /// Runs one operation that is ready. Returns `false` if there is none.
    pub fn step(&self) -> bool {
        (self.hooks.step)() != 0
    }

    /// Sets the result of the next call of a function whose result is not set yet.
    ///
    /// `name` is the exported name, with or without the version suffix. The call does nothing else, except that with
    /// code 0 the driver executes it normally.
    pub fn fail_next(&self, name: &str, code: i32) {
        (self.hooks.fail_next)(text(name).as_ptr(), code);
    }

    /// Makes every call return this code and do nothing from now on. Code 0 ends this.
    ///
    /// Functions that need no initialized driver still work. This simulates the end of the program (4), a forked
    /// process (3), or an unrecoverable error.
    pub fn fail_all(&self, code: i32) {
        (self.hooks.fail_all)(code);
    }

    /// Clears the results set by `fail_next` and `fail_all` and the calls chosen by [`lose`](Self::lose).
    pub fn clear_faults(&self) {
        (self.hooks.clear_faults)();
    }

    /// Queues a spin on a stream of the current context. `stream` is a handle, or 0, 1 or 2 for the default streams.
    ///
    /// # Panics
    ///
    /// If no context is current, or the stream is capturing.
    pub fn spin(&self, stream: u64) -> Spin {
        let spin = (self.hooks.spin)(stream);
        assert_ne!(spin, u64::MAX, "no spin can be queued on stream {stream:#x}");
        Spin(spin)
    }

    /// Lets a spin end.
    pub fn release(&self, spin: Spin) {
        (self.hooks.release_spin)(spin.0);
    }

    /// Whether a spin has not ended yet.
    pub fn is_pending(&self, spin: Spin) -> bool {
        (self.hooks.is_pending)(spin.0) != 0
    }

    /// Registers the host function that simulates every kernel with `.entry <name>` in its module's PTX.
    ///
    /// `sizes` holds the size of each parameter in bytes. The function reads the parameters with [`Arguments`].
    pub fn register_kernel(&self, name: &str, sizes: &[usize], run: KernelFunction) {
        (self.hooks.register_kernel)(text(name).as_ptr(), run, sizes.as_ptr(), sizes.len() as u64);
    }

    /// Returns a usable pointer to `count` elements at a device address.
    ///
    /// In a kernel or host function this also declares that the kernel reads them. Elsewhere the test inspects them,
    /// which does not count as an access by the program. Returns `None`, and adds a report, if the elements may not be
    /// accessed.
    pub fn read<T>(&self, address: u64, count: usize) -> Option<*const T> {
        self.place::<T>(address, count, false).map(<*mut T>::cast_const)
    }

    /// Returns a usable pointer for writing, as [`read`](Self::read) does for reading.
    pub fn write<T>(&self, address: u64, count: usize) -> Option<*mut T> {
        self.place(address, count, true)
    }

    fn place<T>(&self, address: u64, count: usize, write: bool) -> Option<*mut T> {
        let bytes = (count * size_of::<T>()) as u64;
        let place = (self.hooks.translate)(address, bytes, write.into());
        (!place.is_null()).then_some(place.cast())
    }

    /// Returns a driver function, to be called as C code would call it.
    ///
    /// # Safety
    ///
    /// `F` is the function's type in `cuda.h`.
    ///
    /// # Panics
    ///
    /// If the library has no such function.
    pub unsafe fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: forwarded to the caller.
        let found = unsafe { self.library.get::<F>(text(name).as_bytes_with_nul()) };
        *found.unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}
