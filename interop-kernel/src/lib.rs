//! CUDA kernels in Rust, compiled by stock `rustc`. The same function runs on a GPU and, under `cargo test`, on the CPU.
//!
//! ```rust
//! use interop_kernel::{LaunchSize, Thread, View, ViewMut, kernel};
//!
//! /// Multiplies every element by a factor and adds the element of another array.
//! #[kernel(same_shape(to, from))]
//! pub fn axpy(thread: Thread<'_>, mut to: ViewMut<'_, f32, 1>, from: View<'_, f32, 1>, factor: f32) {
//!     for at in thread.elements(to.shape()) {
//!         to.set(at, to.get(at) * factor + from.get(at));
//!     }
//! }
//!
//! let mut to = [1.0, 2.0, 3.0];
//! axpy::run(LaunchSize::for_units(3), ViewMut::new(&mut to, [3]), View::new(&[0.5; 3], [3]), 2.0);
//! assert_eq!(to, [2.5, 4.5, 6.5]);
//! ```
//!
//! * **One definition for both sides.** The launch is checked at compile time, because `axpy::with` has the parameters of the
//!   kernel.
//! * **No races in safe code.** A thread writes only the elements at its own indices. Your code cannot create an index, keep it,
//!   or pass it to another thread. The type of an argument decides which thread has which elements.
//! * **Full speed.** `Elementwise` merges the axes of all arrays and moves 16 bytes at a time. With `Packs` and `Tiles` you
//!   choose the access yourself.
//!
//! `interop-core` re-exports this crate as `interop_core::kernel`, and launches kernels over arrays of PyTorch, CuPy, `cust` and
//! `cudarc`. The page [Write a kernel](https://docs.rs/interop-core/latest/interop_core/guide/kernels) of its guide
//! starts with an empty folder.
//!
//! | item | purpose |
//! | --- | --- |
//! | [`kernel`](macro@kernel) | makes a function a kernel |
//! | [`Thread`], [`BlockThread`], [`Team`] | the thread that runs, alone or with its block; the threads that own rows together |
//! | [`View`], [`ViewMut`], [`Elementwise`] | arrays as parameters |
//! | [`Elements`], [`Packs`], [`Tiles`], [`Rows`], [`Blocks`] | decide which thread has which elements of a `ViewMut` |
//! | [`KernelView`], [`KernelViewMut`], [`KernelArrays`], [`InScope`] | arguments of a launch |
//! | [`math`] | `sqrt`, `exp2`, `floor` and others, which are not in `core` |
//! | [`host`] | runs and launches on the CPU, for a library that launches kernels, and for a simulated driver |
//! | [`ptx`] | compiles kernels, and says when their PTX is old |
//!
//! On the device, the crate is `no_std` and needs unstable features of the compiler (`RUSTC_BOOTSTRAP=1`, or a nightly). On the
//! host, stable Rust is enough. Its only dependency is the macro. The features `cust` and `cudarc` are for launches that you
//! write by hand with these crates.
#![cfg_attr(target_arch = "nvptx64", no_std)]
// Barriers and shuffles are intrinsics of LLVM.
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch, link_llvm_intrinsics, stdarch_nvptx))]
#![expect(clippy::inline_always, reason = "a call costs a device more than the work of most functions here")]

// `#[kernel]` emits paths that begin with `interop_kernel`, also in the tests and examples of this crate.
extern crate self as interop_kernel;

#[cfg(all(any(feature = "cust", feature = "cudarc"), not(target_arch = "nvptx64")))]
mod adapters;
#[cfg(not(target_arch = "nvptx64"))]
mod arguments;
mod arrays;
mod atomic;
#[cfg(not(target_arch = "nvptx64"))]
#[doc(hidden)]
pub mod axes;
#[doc(hidden)]
pub mod copy;
#[cfg(not(target_arch = "nvptx64"))]
#[doc(hidden)]
pub mod copy_plan;
#[cfg(target_arch = "nvptx64")]
mod device;
mod element;
mod element_function;
mod elementwise;
#[cfg(not(target_arch = "nvptx64"))]
mod elementwise_on_host;
#[cfg(not(target_arch = "nvptx64"))]
mod error;
mod fail;
mod fields;
#[cfg(not(target_arch = "nvptx64"))]
pub mod host;
#[cfg(not(target_arch = "nvptx64"))]
mod host_launch;
#[cfg(not(target_arch = "nvptx64"))]
mod host_part;
mod index;
#[cfg(not(target_arch = "nvptx64"))]
mod kernel;
#[cfg(not(target_arch = "nvptx64"))]
mod lanes;
mod launch_size;
mod layout;
mod mapping;
pub mod math;
#[cfg(not(target_arch = "nvptx64"))]
mod math_on_host;
#[cfg(not(target_arch = "nvptx64"))]
mod merge;
mod own;
#[cfg(not(target_arch = "nvptx64"))]
mod place;
#[cfg(not(target_arch = "nvptx64"))]
pub mod ptx;
mod real;
mod row;
#[cfg(not(target_arch = "nvptx64"))]
mod row_on_host;
mod row_source;
mod shared;
mod team;
mod team_threads;
mod thread;
mod view;
mod wide;

#[doc(hidden)]
pub mod __private {
    //! Items that expanded code uses. The interface is not stable: the macro is pinned to the same version.

    #[cfg(not(target_arch = "nvptx64"))]
    pub use crate::host::{run, run_in_threads};
    #[cfg(not(target_arch = "nvptx64"))]
    pub use crate::kernel::assert_view;
    pub use crate::layout::Layout;
    pub use crate::math::MethodsOfStd;

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

#[cfg(not(target_arch = "nvptx64"))]
pub use arguments::Arguments;
pub use arrays::KernelArrays;
pub use atomic::AtomicElement;
pub use element::KernelElement;
pub use element_function::ElementFunction;
pub use elementwise::{Arrays, Elementwise, In, KernelElementwise, Out};
#[cfg(not(target_arch = "nvptx64"))]
pub use error::{ArgumentError, MistakeKind};
/// The crate with `f16` and `bf16`, as a device has it: without `std`.
#[cfg(feature = "half")]
pub use half;
pub use index::{Index, OwnIndex, Position, TileRows};
#[cfg(feature = "derive")]
pub use interop_derive::{KernelElement, kernel};
#[cfg(not(target_arch = "nvptx64"))]
pub use kernel::{Compiled, InScope, Kernel, OfArgument, Parameter, Parameters};
pub use launch_size::LaunchSize;
pub use mapping::{Atomic, Blocks, Elements, Mapping, Packs, Rows, Tiles};
#[cfg(not(target_arch = "nvptx64"))]
pub use merge::{DynKernelView, KernelOperand, Views};
pub use own::Own;
pub use real::{Real, RowElement};
pub use row::{OwnRows, Row};
pub use row_source::{ArrayOfRows, KeptRow, RowArray, Source};
pub use shared::Shared;
pub use team::Team;
pub use thread::{BlockThread, FirstParameter, Thread};
pub use view::{KernelView, KernelViewMut, View, ViewMut};
