//! Kernels: host functions that a test registers, found by the names in a module's PTX.

#![expect(unsafe_code, reason = "kernels are functions of the test, and parameters are bytes of the program")]

use std::ffi::c_void;
use std::ptr;

use crate::handle::Handle;
use crate::status::{Answer, Status};

/// The host function that simulates a kernel.
///
/// It receives three extents of the grid, three of the block, the bytes of dynamic shared memory, and pointers to the
/// parameter values. It runs once per launch and loops over the threads itself.
pub(crate) type KernelFunction = unsafe extern "C" fn(*const u32, *const u32, u32, *const *const c_void);

/// A registered kernel.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) run: KernelFunction,
    /// The size of each parameter in bytes.
    pub(crate) sizes: Vec<usize>,
}

/// A loaded module.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: Handle,
    /// The names after `.entry` in its PTX.
    pub(crate) entries: Vec<String>,
}

/// A kernel of a module.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) module: Handle,
    pub(crate) name: String,
}

/// A launch, with copies of its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    run: KernelFunction,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    /// Each parameter, in words that are aligned for any type.
    parameters: Vec<Box<[u128]>>,
}

/// Returns the names after `.entry` in a PTX text. Fails if the text is not PTX.
pub(crate) fn entries(text: &str) -> Answer<Vec<String>> {
    if !text.contains(".version") || !text.contains(".target") {
        return Err(Status::INVALID_IMAGE);
    }
    let name = |rest: &str| {
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        rest.trim_start().split(|c| !is_name(c)).next().unwrap_or("").to_owned()
    };
    Ok(text.split(".entry").skip(1).map(name).collect())
}

/// Runs a launched kernel.
pub(crate) fn run(launch: &Launch) {
    let pointers: Vec<*const c_void> = launch.parameters.iter().map(|words| words.as_ptr().cast()).collect();
    // SAFETY: the extents and the parameters live during the call, and have the sizes that were registered with the function.
    unsafe { (launch.run)(launch.grid.as_ptr(), launch.block.as_ptr(), launch.shared, pointers.as_ptr()) };
}

impl Kernel {
    /// Copies the parameters of a launch.
    pub(crate) fn launch(
        &self,
        [grid, block]: [[u32; 3]; 2],
        shared: u32,
        values: impl Fn(usize) -> Answer<u64>,
    ) -> Answer<Launch> {
        let copy = |(index, size): (usize, &usize)| {
            let value = values(index)?;
            if value == 0 {
                return Err(Status::INVALID_VALUE);
            }
            let mut words = vec![0_u128; size.div_ceil(16)].into_boxed_slice();
            let source = ptr::with_exposed_provenance::<u8>(value as usize);
            // SAFETY: the caller of the launch promises a pointer to each parameter, of the registered size. The words
            // are large enough for it.
            unsafe { ptr::copy_nonoverlapping(source, words.as_mut_ptr().cast(), *size) };
            Ok(words)
        };
        let parameters = self.sizes.iter().enumerate().map(copy).collect::<Answer<_>>()?;
        Ok(Launch { run: self.run, grid, block, shared, parameters })
    }
}

impl Launch {
    /// Returns the words of the parameters, some of which are addresses.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        let halves = |word: &u128| [*word as u64, (word >> 64) as u64];
        self.parameters.iter().flatten().flat_map(halves)
    }
}
