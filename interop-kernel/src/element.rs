//! Types that kernels read, write and take as arguments.
#![expect(unsafe_code, reason = "states what holds for the numbers of Rust")]

use crate::layout::{HasLayout, Layout};

/// A type whose values a kernel reads and writes in arrays, and takes as arguments.
///
/// All integers of 8 to 64 bits, `f32` and `f64` are elements, and so are arrays of elements; with the feature `half` also its `f16`
/// and `bf16`. `bool` is none: memory of another library may hold any byte. Read it as `u8`. `usize` is none: write `u64`. A
/// struct is one by `#[derive(KernelElement)]`.
///
/// # Safety
///
/// 1. Every pattern of bits is a valid value, so the type has no references, no `bool` and no enum.
/// 2. It has no padding: an argument is passed as bytes.
/// 3. It has a size, and the same layout on the host and on the device: `#[repr(C)]`, no `usize` and no pointer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a kernel",
    note = "elements are integers of 8 to 64 bits, `f32`, `f64` and arrays of them; read a `bool` as `u8`, write `u64` for `usize`",
    note = "for a struct of your own: `#[derive(Clone, Copy, KernelElement)] #[repr(C)]`; `f16` and `bf16` need the feature `half`"
)]
pub unsafe trait KernelElement: Copy + Send + Sync + 'static {
    /// What an element is in bytes. `#[derive(KernelElement)]` writes it with a method of the constant of another element, so that
    /// its checks are those of this crate, whatever the name of the crate leads to.
    #[doc(hidden)]
    const __LAYOUT: Layout = Layout::EMPTY.of_element::<Self>(&[]);
}

macro_rules! elements {
    ($($type:ty)*) => {
        $(
            // SAFETY: 1, 2, 3: a number of fixed size.
            unsafe impl KernelElement for $type {
                const __LAYOUT: Layout = Layout::new(size_of::<Self>(), stringify!($type));
            }
        )*
    };
}

elements!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);
#[cfg(feature = "half")]
elements!(half::f16 half::bf16);

/// Not for length 0, which has no size.
macro_rules! arrays {
    ($($length:literal)*) => {
        $(
            // SAFETY: 1, 2, 3: elements one after the other, and at least one.
            unsafe impl<T: KernelElement> KernelElement for [T; $length] {
                const __LAYOUT: Layout =
                    Layout::new(size_of::<Self>(), "[").layout(&T::__LAYOUT).text("; ").number($length).text("]");
            }
        )*
    };
}

arrays!(1 2 3 4 6 8 9 16);

impl<T: KernelElement> HasLayout for T {
    const LAYOUT: Layout = T::__LAYOUT;
}
