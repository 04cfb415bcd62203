//! Orders and questions to the simulated CUDA driver, for tests of any package.
//!
//! [`sim`] finds the library and, because the program's own loading of `libcuda.so.1` finds what is loaded already,
//! also decides that the program uses it: a test calls it before anything that calls the driver. What the driver
//! simulates is told in `sim-driver/README.md`.
//!
//! ```no_run
//! use interop_sim_client::{Live, sim};
//!
//! let sim = sim();
//! // … what is to be tested …
//! sim.assert_no_reports();
//! assert_eq!(sim.live(Live::Allocations), 0);
//! ```

#![expect(unsafe_code, reason = "the orders are functions of a library that is loaded at run time")]
#![expect(clippy::must_use_candidate, reason = "a test that asks and ignores the answer fails in review")]

mod kernel;
mod report;

pub use kernel::{Arguments, KernelFunction};
pub use report::{Mark, Mistake, NoWaits, Report};

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// The name under which programs load the driver.
const NAME: &str = "libcuda.so.1";
/// `RTLD_NOLOAD` of Linux: only what is loaded already.
const RTLD_NOLOAD: i32 = 4;

/// What [`Sim::live`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Live {
    /// Allocations and registrations that were not freed.
    Allocations = 0,
    /// Streams that were created and not destroyed.
    Streams = 1,
    /// Events that were not destroyed.
    Events = 2,
    /// Contexts, primary ones that are retained among them.
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

/// When operations run that nobody has to wait for yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Policy {
    /// Only when a call waits for them, and then nothing else; frees as soon as they may. The default.
    Late = 0,
    /// As late, but a wait may also run any other operation that could run.
    Random = 1,
    /// At once.
    Eager = 2,
}

/// Declares the table of hooks.
macro_rules! hooks {
    ($($name:ident = $symbol:literal ($($type:ty),*) $(-> $result:ty)?;)*) => {
        /// The hooks of the loaded library.
        struct Hooks {
            $($name: extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Hooks {
            fn find(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {$(
                    // SAFETY: a library that has functions with these names is the simulated driver of this workspace,
                    // where they have these types and no conditions beyond those of the methods below.
                    $name: *unsafe { library.get::<extern "C" fn($($type),*) $(-> $result)?>($symbol) }?,
                )*})
            }
        }
    };
}

hooks! {
    calls = b"interop_sim_calls\0" (*const c_char) -> u64;
    reset_calls = b"interop_sim_reset_calls\0" ();
    report_count = b"interop_sim_report_count\0" () -> u64;
    report = b"interop_sim_report\0" (u64, *mut u32, *mut u8, u64) -> u64;
    clear_reports = b"interop_sim_clear_reports\0" ();
    mark = b"interop_sim_mark\0" () -> u64;
    report_leaked_events = b"interop_sim_report_leaked_events\0" (u64, *const u64, u64);
    forbid_waits = b"interop_sim_forbid_waits\0" (u32);
    host_access = b"interop_sim_host_access\0" (u64, u64, u32);
    set_threads_apart = b"interop_sim_set_threads_apart\0" (u32);
    set_registered_apart = b"interop_sim_set_registered_apart\0" (u32);
    set_reuse = b"interop_sim_set_reuse\0" (u32);
    hand_over = b"interop_sim_hand_over\0" () -> u64;
    take_over = b"interop_sim_take_over\0" (u64);
    lose = b"interop_sim_lose\0" (*const c_char, u64);
    live = b"interop_sim_live\0" (u32) -> u64;
    set_policy = b"interop_sim_set_policy\0" (u32);
    set_seed = b"interop_sim_set_seed\0" (u64);
    run_all = b"interop_sim_run_all\0" ();
    step = b"interop_sim_step\0" () -> u32;
    fail_next = b"interop_sim_fail_next\0" (*const c_char, i32);
    fail_all = b"interop_sim_fail_all\0" (i32);
    clear_faults = b"interop_sim_clear_faults\0" ();
    spin = b"interop_sim_spin\0" (u64) -> u64;
    release_spin = b"interop_sim_release_spin\0" (u64);
    is_pending = b"interop_sim_is_pending\0" (u64) -> u32;
    register_kernel = b"interop_sim_register_kernel\0" (*const c_char, KernelFunction, *const usize, u64) -> u64;
    translate = b"interop_sim_translate\0" (u64, u64, u32) -> *mut u8;
}

/// The simulated driver of this process. All tests of a process share it: tests that count or order something take
/// turns, or run in processes of their own.
pub struct Sim {
    hooks: Hooks,
    /// Never closed: whoever loads `libcuda.so.1` after us gets the same library.
    library: Library,
}

/// What a host thread knows to be done, on its way to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandedOver(u64);

/// An operation that ends when the test says so, or when something must wait for it unless the policy is
/// [`Policy::Eager`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin(u64);

/// The simulated driver.
///
/// # Panics
///
/// If it is not there, or if the process has loaded another driver; the message says what to do.
pub fn sim() -> &'static Sim {
    find().unwrap_or_else(|why| panic!("{why}"))
}

/// The simulated driver, or why there is none: for tests that also run against a real driver.
///
/// # Errors
///
/// The library was not built, or the process has loaded another `libcuda.so.1`.
pub fn find() -> Result<&'static Sim, &'static str> {
    static SIM: OnceLock<Result<Sim, String>> = OnceLock::new();
    SIM.get_or_init(open).as_ref().map_err(String::as_str)
}

/// A file that is taken instead, for a library that was built in another way.
const CHOSEN: &str = "INTEROP_SIM_DRIVER";

/// Where `cargo xtask sim` puts the library, and where cargo does when it builds the tests of the library itself.
fn places() -> Vec<PathBuf> {
    if let Some(chosen) = std::env::var_os(CHOSEN) {
        return vec![chosen.into()];
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let beside = std::env::current_exe().ok().and_then(|program| {
        program
            .parent()
            .map(|folder| folder.join("libinterop_sim_driver.so"))
            .filter(|_| is_own_test(&program))
    });
    beside.into_iter().chain([root.join("target/sim/lib64").join(NAME)]).collect()
}

/// Whether a program is a test of the simulated driver, which must run against the library as it was just built.
fn is_own_test(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sim_driver-"))
}

/// Finds the library: the one in the process, else the one that was built.
fn open() -> Result<Sim, String> {
    let flags = RTLD_NOW | RTLD_LOCAL;
    // SAFETY: the library is in the process already, so that nothing is initialised.
    let loaded = unsafe { Library::open(Some(NAME), flags | RTLD_NOLOAD) }.ok();
    let library = loaded.or_else(|| {
        let place = places().into_iter().find(|place| place.exists())?;
        // SAFETY: the simulated driver has no initialisers.
        unsafe { Library::open(Some(place), flags) }.ok()
    });
    let library = library.ok_or("the simulated CUDA driver was not built: run `cargo xtask sim`")?;
    let hooks = Hooks::find(&library).map_err(|error| {
        format!(
            "this process has loaded a libcuda.so.1 that is not the simulated one ({error}): set \
             LD_LIBRARY_PATH=target/sim/lib64"
        )
    })?;
    Ok(Sim { hooks, library })
}

/// A name as C code reads it.
fn text(name: &str) -> CString {
    CString::new(name).expect("names of functions have no zero in them")
}

impl Sim {
    /// How often a function of the driver was called, by its exported name such as `cuMemFree_v2`.
    pub fn calls(&self, name: &str) -> u64 {
        (self.hooks.calls)(text(name).as_ptr())
    }

    /// How many calls of any function there were.
    pub fn all_calls(&self) -> u64 {
        (self.hooks.calls)(std::ptr::null())
    }

    /// Starts all counts of calls at zero.
    pub fn reset_calls(&self) {
        (self.hooks.reset_calls)();
    }

    /// The program on the host reads `bytes` at an address that devices reach too, now: the driver cannot see it.
    pub fn host_reads(&self, address: u64, bytes: usize) {
        (self.hooks.host_access)(address, bytes as u64, 0);
    }

    /// The same for bytes that are written.
    pub fn host_writes(&self, address: u64, bytes: usize) {
        (self.hooks.host_access)(address, bytes as u64, 1);
    }

    /// Whether each host thread knows only what it waited for itself, what was known when it began, what threads knew
    /// that have ended, and what is declared by [`hand_over`](Self::hand_over). Otherwise the host is one, because
    /// threads hand things over in ways that no driver sees.
    pub fn set_threads_apart(&self, apart: bool) {
        (self.hooks.set_threads_apart)(apart.into());
    }

    /// Whether host memory that is registered from now on has another address for devices than for the host, as where
    /// devices lack `CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM`. A kernel that uses the host's address is reported.
    pub fn set_registered_apart(&self, apart: bool) {
        (self.hooks.set_registered_apart)(apart.into());
    }

    /// Whether the handles of contexts, streams and events that are destroyed from now on, and the addresses of memory that is
    /// freed, are given out again, as the real driver does: the last that was given up is the first that is used again. A
    /// use of what is gone is then one of what came after it, and cannot be reported.
    pub fn set_reuse(&self, reuse: bool) {
        (self.hooks.set_reuse)(reuse.into());
    }

    /// What this thread knows to be done, for another to take over.
    pub fn hand_over(&self) -> HandedOver {
        HandedOver((self.hooks.hand_over)())
    }

    /// From now on this thread knows what another has handed over.
    pub fn take_over(&self, handed: HandedOver) {
        (self.hooks.take_over)(handed.0);
    }

    /// Has one call of `cuStreamWaitEvent` or `cuCtxRecordEvent` do nothing but answer success: the one after `before`
    /// more. The event of a record that is lost counts as never recorded. What it takes to see that the call matters.
    pub fn lose(&self, name: &str, before: u64) {
        (self.hooks.lose)(text(name).as_ptr(), before);
    }

    /// How many there are of something.
    pub fn live(&self, what: Live) -> u64 {
        (self.hooks.live)(what as u32)
    }

    /// Chooses when operations run.
    pub fn set_policy(&self, policy: Policy) {
        (self.hooks.set_policy)(policy as u32);
    }

    /// Starts the choices of the scheduler again, from a seed.
    pub fn set_seed(&self, seed: u64) {
        (self.hooks.set_seed)(seed);
    }

    /// Runs everything to the end, spins included, as a wait for all that there is: what was before and what comes after
    /// is ordered by it.
    pub fn run_all(&self) {
        (self.hooks.run_all)();
    }

    /// Runs one operation that may run now; `false` if there is none.
    pub fn step(&self) -> bool {
        (self.hooks.step)() != 0
    }

    /// Orders the answer of the next call of a function for which none is ordered yet, by its name with or without the
    /// version. The call does nothing else; a call that is to succeed is made.
    pub fn fail_next(&self, name: &str, code: i32) {
        (self.hooks.fail_next)(text(name).as_ptr(), code);
    }

    /// Has every call answer this code and do nothing from now on, but for those that need no start of the driver: as at the
    /// end of the program (4), in a process that was forked (3), or after an error that ends all. 0 takes it back.
    pub fn fail_all(&self, code: i32) {
        (self.hooks.fail_all)(code);
    }

    /// Forgets the answers that were ordered, and the calls that were to be lost.
    pub fn clear_faults(&self) {
        (self.hooks.clear_faults)();
    }

    /// Queues a spin on a stream of the current context: a handle, or 0, 1 and 2 for the default streams.
    ///
    /// # Panics
    ///
    /// If no context is current, or the stream captures.
    pub fn spin(&self, stream: u64) -> Spin {
        let spin = (self.hooks.spin)(stream);
        assert_ne!(spin, u64::MAX, "no spin can be queued on stream {stream:#x}");
        Spin(spin)
    }

    /// Lets a spin end.
    pub fn release(&self, spin: Spin) {
        (self.hooks.release_spin)(spin.0);
    }

    /// Whether a spin has not ended.
    pub fn is_pending(&self, spin: Spin) -> bool {
        (self.hooks.is_pending)(spin.0) != 0
    }

    /// Registers the host function behind a kernel of any module whose PTX has `.entry <name>`, with the sizes of its
    /// parameters in bytes. [`Arguments`] tells how the function reads them.
    pub fn register_kernel(&self, name: &str, sizes: &[usize], run: KernelFunction) {
        (self.hooks.register_kernel)(text(name).as_ptr(), run, sizes.as_ptr(), sizes.len() as u64);
    }

    /// The usable address of `count` elements that a kernel reads at a device address, which is how it says that it does;
    /// outside a kernel or host function the test looks at them, and that is no access of the program. `None`, and a
    /// report, if they may not be touched.
    pub fn read<T>(&self, address: u64, count: usize) -> Option<*const T> {
        self.place::<T>(address, count, false).map(<*mut T>::cast_const)
    }

    /// The same for elements that are written.
    pub fn write<T>(&self, address: u64, count: usize) -> Option<*mut T> {
        self.place(address, count, true)
    }

    fn place<T>(&self, address: u64, count: usize, write: bool) -> Option<*mut T> {
        let bytes = (count * size_of::<T>()) as u64;
        let place = (self.hooks.translate)(address, bytes, write.into());
        (!place.is_null()).then_some(place.cast())
    }

    /// A function of the driver, to be called as C code would.
    ///
    /// # Safety
    ///
    /// `F` is the type that the function has by `cuda.h`.
    ///
    /// # Panics
    ///
    /// If the library has no such function.
    pub unsafe fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the caller's promise.
        let found = unsafe { self.library.get::<F>(text(name).as_bytes_with_nul()) };
        *found.unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}
