//! Types that kernels read, write and take as arguments.
#![expect(unsafe_code, reason = "states what holds for the numbers of Rust")]

/// A type whose values a kernel reads and writes in arrays, and takes as arguments.
///
/// All integers of 8 to 64 bits, `f32` and `f64` are elements, and so are arrays of elements. `bool` is none: memory of
/// another library may hold any byte. Read it as `u8`. `usize` is none: write `u64`. A 16-bit float is none: convert
/// the array to `f32` first.
///
/// ```
/// use interop_kernel::KernelElement;
///
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Point { x: f32, y: f32 }
///
/// // SAFETY: two floats without padding, for which all bits are valid.
/// unsafe impl KernelElement for Point {}
/// ```
///
/// # Safety
///
/// 1. Every pattern of bits is a valid value, so the type has no references, no `bool` and no enum.
/// 2. It has no padding: an argument is passed as bytes.
/// 3. It has a size, and the same layout on the host and on the device: `#[repr(C)]`, no `usize` and no pointer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a kernel",
    note = "elements are integers of 8 to 64 bits, `f32`, `f64` and arrays of them; read a `bool` as `u8`, write `u64` for `usize`"
)]
pub unsafe trait KernelElement: Copy + Send + Sync + 'static {}

macro_rules! elements {
    ($($type:ty)*) => {
        $(
            // SAFETY: 1, 2, 3: a number of fixed size.
            unsafe impl KernelElement for $type {}
        )*
    };
}

elements!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

/// Not for length 0, which has no size.
macro_rules! arrays {
    ($($length:literal)*) => {
        $(
            // SAFETY: 1, 2, 3: elements one after the other, and at least one.
            unsafe impl<T: KernelElement> KernelElement for [T; $length] {}
        )*
    };
}

arrays!(1 2 3 4 6 8 9 16);
