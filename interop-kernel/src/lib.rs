#![doc = include_str!("../README.md")]
#![cfg_attr(target_arch = "nvptx64", no_std)]
// Barriers and shuffles are intrinsics of LLVM.
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch, link_llvm_intrinsics, stdarch_nvptx))]
#![expect(clippy::inline_always, reason = "a call costs a device more than the work of most functions here")]

// `#[kernel]` emits paths that begin with `interop_kernel`, also in the tests and examples of this crate.
extern crate self as interop_kernel;

#[cfg(all(any(feature = "cust", feature = "cudarc"), not(target_arch = "nvptx64")))]
mod adapters;
mod arrays;
mod atomic;
#[doc(hidden)]
pub mod copy;
#[cfg(target_arch = "nvptx64")]
mod device;
mod element;
mod elementwise;
#[cfg(not(target_arch = "nvptx64"))]
mod error;
mod fail;
#[cfg(not(target_arch = "nvptx64"))]
pub mod host;
#[cfg(not(target_arch = "nvptx64"))]
mod kernel;
mod launch_size;
mod layout;
mod mapping;
pub mod math;
#[cfg(not(target_arch = "nvptx64"))]
mod merge;
mod real;
mod row;
mod row_source;
mod shared;
mod team;
mod thread;
mod view;
mod wide;

#[doc(hidden)]
pub mod __private {
    //! Items that expanded code uses. The interface is not stable: the macro is pinned to the same version.

    use crate::thread::Thread;

    #[cfg(not(target_arch = "nvptx64"))]
    pub use crate::host::{run, run_in_threads};
    #[cfg(not(target_arch = "nvptx64"))]
    pub use crate::kernel::assert_view;
    pub use crate::layout::Layout;
    pub use crate::math::MethodsOfStd;

    /// Converts the thread to the type of a kernel's first parameter.
    #[inline(always)]
    #[must_use]
    pub fn first_parameter<'t, F: crate::FirstParameter<'t>>(thread: Thread<'t>) -> F {
        F::from_thread(thread)
    }

    /// Whether a type of threads is a team.
    #[must_use]
    pub const fn is_team<'t, F: crate::FirstParameter<'t>>() -> bool {
        F::IS_TEAM
    }

    /// Compiles if the threads of a kernel can have its parameters.
    #[cfg(not(target_arch = "nvptx64"))]
    pub const fn assert_beside<K: crate::Kernel>() {
        crate::layout::assert_beside(
            K::IS_TEAM,
            <K::Parameters<'static> as crate::layout::Layouts>::HAS_ATOMIC,
        );
    }

    /// Whether a type of threads works together with others.
    #[must_use]
    pub const fn needs_block<'t, F: crate::FirstParameter<'t>>() -> bool {
        F::NEEDS_BLOCK
    }
}

pub use arrays::KernelArrays;
pub use atomic::AtomicElement;
pub use element::KernelElement;
pub use elementwise::{Arrays, Elementwise, In, KernelElementwise, Out};
#[cfg(not(target_arch = "nvptx64"))]
pub use error::{ArgumentError, MistakeKind};
/// The crate with `f16` and `bf16`, as a device has it: without `std`.
#[cfg(feature = "half")]
pub use half;
#[cfg(feature = "derive")]
pub use interop_derive::{KernelElement, kernel};
#[cfg(not(target_arch = "nvptx64"))]
pub use kernel::{Arguments, Compiled, InScope, Kernel, OfArgument, Parameter, Parameters};
pub use launch_size::LaunchSize;
pub use mapping::{Atomic, Blocks, Elements, Mapping, Packs, Rows, Tiles};
#[cfg(not(target_arch = "nvptx64"))]
pub use merge::{DynKernelView, KernelOperand, Views};
pub use real::{Real, RowElement};
pub use row::{OwnRows, Row};
pub use row_source::{Kept, RowArray, Source};
pub use shared::Shared;
pub use team::Team;
pub use thread::{BlockThread, FirstParameter, Index, Own, OwnIndex, Position, Thread, TileRows};
pub use view::{KernelView, KernelViewMut, View, ViewMut};
