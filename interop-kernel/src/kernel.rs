//! What `#[kernel]` writes about a kernel for the host: its parameters, and what a launch passes for them.
#![expect(unsafe_code, reason = "reads arguments of a launch as what the kernel takes")]

use core::ffi::c_void;
use core::ops::RangeInclusive;

use crate::element::KernelElement;
use crate::elementwise::sealed::Located;
use crate::elementwise::{Arrays, Elementwise, KernelElementwise};
use crate::layout::{HasLayout, Layouts};
use crate::mapping::sealed::Rule;
use crate::thread::FirstParameter;
use crate::view::{KernelView, KernelViewMut, View, ViewMut, from_fields};

/// A type of parameters of kernels: [`View`], [`ViewMut`], [`Elementwise`] and each [`KernelElement`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a kernel",
    label = "not for a kernel",
    note = "parameters are `View`, `ViewMut`, `Elementwise`, and integers of 8 to 64 bits, `f32`, `f64` and arrays of them; \
            pass a `bool` as `u8`, a `usize` as `u64`, and a slice as a `View`"
)]
pub trait Parameter: HasLayout {
    /// What a launch passes for it: the same launched.
    type Launched;
    /// What `try_with` of a kernel takes for it: the result of a scope for arrays, or else the value.
    type Tried<E>;
    /// Whether each element is that of a block, and needs one.
    #[doc(hidden)]
    const IS_BY_BLOCK: bool = false;

    #[doc(hidden)]
    fn launched<E>(tried: Self::Tried<E>) -> Result<Self::Launched, E>;

    /// Replaces the device addresses of the arrays by pointers of the host.
    ///
    /// # Safety
    ///
    /// As [`simulate`](crate::host::simulate).
    #[doc(hidden)]
    unsafe fn located<M: Memory>(self) -> Option<Self>;

    /// The parameter of a kernel that runs in one thread, which needs no atomic additions.
    #[doc(hidden)]
    #[must_use]
    fn of_one_thread(self) -> Self {
        self
    }

    /// The extents, of a view.
    #[doc(hidden)]
    #[must_use]
    fn shape(_: &Self::Launched) -> Option<&[i64]> {
        None
    }

    /// Whether the arrays are those of this scope.
    #[doc(hidden)]
    #[must_use]
    fn is_in_scope(_: &Self::Launched, _scope: usize) -> bool {
        true
    }
}

/// The error of an argument, which can name the parameter: `interop_core::Error`.
pub trait OfArgument {
    /// Adds the kernel and the parameter to the error.
    #[must_use]
    fn of_argument(self, kernel: &'static str, parameter: &'static str) -> Self;
}

/// A parameter of which `same_shape` compares the shape.
#[diagnostic::on_unimplemented(
    message = "`same_shape` names a `{Self}`, which has no shape",
    label = "no view",
    note = "name a `View` or a `ViewMut`; the arrays of an `Elementwise` always have one shape"
)]
#[doc(hidden)]
pub trait HasShape {}

impl<T, const N: usize> HasShape for View<'_, T, N> {}

impl<T, const N: usize, M> HasShape for ViewMut<'_, T, N, M> {}

/// Compiles for a view.
#[doc(hidden)]
pub const fn assert_view<V: HasShape>() {}

/// An argument of a launch whose memory outlives the kernel: what a launch passes for an array.
///
/// `interop_core::LaunchScope` makes it, of an array with which it orders the launch. It begins with the bytes of `V`, a
/// [`KernelView`], a [`KernelViewMut`] or a [`KernelElementwise`], and derefs to it. What the kernel writes is not `Copy`: a
/// second argument with the same memory would be a race. [`reborrow`](Self::reborrow) it for a second launch, or
/// [`as_view`](Self::as_view) it for one that reads.
#[derive(Debug)]
#[repr(C)]
pub struct InScope<V> {
    /// It comes first: a launch passes a pointer to it.
    argument: V,
    scope: usize,
}

impl<V> InScope<V> {
    /// States that an argument can be passed to a kernel by safe code, in launches of one scope.
    ///
    /// # Safety
    ///
    /// 1. The kernel that gets it is queued by this scope, in an order in which, until it is done, the elements live and nobody else
    ///    writes them; for what the kernel writes, nobody else uses them, and each index has its own element.
    /// 2. No other scope has the number `scope` while the argument lives. It can be the address of a scope that the argument borrows.
    #[must_use]
    pub const unsafe fn new(argument: V, scope: usize) -> Self {
        Self { argument, scope }
    }

    /// Whether the argument is of this scope.
    #[must_use]
    pub const fn is_in_scope(&self, scope: usize) -> bool {
        self.scope == scope
    }
}

impl<T, const N: usize> InScope<KernelViewMut<'_, T, N>> {
    /// Returns the argument for one launch. `self` can be used again after it.
    #[must_use]
    pub fn reborrow(&mut self) -> InScope<KernelViewMut<'_, T, N>> {
        InScope { argument: self.argument.reborrowed(), scope: self.scope }
    }

    /// Returns the argument for a kernel that reads what an earlier launch in the scope has written. It can be used until `self` is
    /// used again.
    #[must_use]
    pub fn as_view(&self) -> InScope<KernelView<'_, T, N>> {
        InScope { argument: self.argument.as_view(), scope: self.scope }
    }
}

impl<V> core::ops::Deref for InScope<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.argument
    }
}

#[expect(clippy::expl_impl_clone_on_copy, reason = "only what the kernel reads is `Copy`")]
impl<T: Copy, const N: usize> Clone for InScope<KernelView<'_, T, N>> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Copy, const N: usize> Copy for InScope<KernelView<'_, T, N>> {}

/// Memory that a kernel knows by its device address, for [`simulate`](crate::host::simulate).
///
/// # Safety
///
/// `place` returns a pointer to what a launch names by this address. If an array of the launch is there, the pointer is good for
/// its bytes until the kernel has run.
pub unsafe trait Memory: 'static {
    /// Returns a pointer of the host to the `bytes` bytes at `address`, or `None` if a kernel may not access them. The kernel
    /// then does nothing.
    fn place(address: u64, bytes: usize, writes: bool) -> Option<*mut u8>;
}

/// Finds the place of element \[0, …, 0\] for the addresses from `low` to `high`, which are offsets in elements.
fn place<M: Memory>(address: u64, size: usize, span: RangeInclusive<i64>, writes: bool) -> Option<*mut u8> {
    let size = size as i64;
    let bytes = usize::try_from((span.end() - span.start() + 1) * size).ok()?;
    let low = span.start() * size;
    let lowest = M::place(address.wrapping_add_signed(low), bytes, writes)?;
    Some(lowest.wrapping_offset(isize::try_from(-low).ok()?))
}

impl<'a, T: KernelElement, const N: usize> Parameter for View<'a, T, N> {
    type Launched = InScope<KernelView<'a, T, N>>;
    type Tried<E> = Result<Self::Launched, E>;

    fn launched<E>(tried: Self::Tried<E>) -> Result<Self::Launched, E> {
        tried
    }

    unsafe fn located<M: Memory>(self) -> Option<Self> {
        located::<T, N, M>(&self.fields, false).map(from_fields::view)
    }

    fn shape(launched: &Self::Launched) -> Option<&[i64]> {
        Some(&launched.argument.fields.shape)
    }

    fn is_in_scope(launched: &Self::Launched, scope: usize) -> bool {
        launched.is_in_scope(scope)
    }
}

fn located<T, const N: usize, M: Memory>(
    fields: &crate::fields::Fields<N>,
    writes: bool,
) -> Option<crate::fields::Fields<N>> {
    let mut fields = *fields;
    if !fields.shape.contains(&0) {
        let (low, high) = fields.span();
        let pointer = place::<M>(fields.pointer.low.addr() as u64, size_of::<T>(), low..=high, writes)?;
        fields.pointer = crate::fields::Pointer::new(pointer);
    }
    Some(fields)
}

impl<'a, T: KernelElement, const N: usize, M: Rule> Parameter for ViewMut<'a, T, N, M> {
    type Launched = InScope<KernelViewMut<'a, T, N>>;
    type Tried<E> = Result<Self::Launched, E>;
    const IS_BY_BLOCK: bool = M::IS_BY_BLOCK;

    fn launched<E>(tried: Self::Tried<E>) -> Result<Self::Launched, E> {
        tried
    }

    unsafe fn located<P: Memory>(self) -> Option<Self> {
        located::<T, N, P>(&self.fields, true).map(from_fields::view_mut)
    }

    fn of_one_thread(self) -> Self {
        if M::IS_ATOMIC { self.for_one_thread() } else { self }
    }

    fn shape(launched: &Self::Launched) -> Option<&[i64]> {
        Some(&launched.argument.fields.shape)
    }

    fn is_in_scope(launched: &Self::Launched, scope: usize) -> bool {
        launched.is_in_scope(scope)
    }
}

impl<'a, A: Arrays, const N: usize> Parameter for Elementwise<'a, A, N> {
    type Launched = InScope<KernelElementwise<'a, A, N>>;
    type Tried<E> = Result<Self::Launched, E>;

    fn launched<E>(tried: Self::Tried<E>) -> Result<Self::Launched, E> {
        tried
    }

    unsafe fn located<M: Memory>(self) -> Option<Self> {
        let find = &mut |array: usize, address, span| {
            place::<M>(address, A::SIZES[array], span, A::WRITES && array == 0)
        };
        self.0.located(find).map(|arrays| Elementwise(arrays, core::marker::PhantomData))
    }

    fn is_in_scope(launched: &Self::Launched, scope: usize) -> bool {
        launched.is_in_scope(scope)
    }
}

impl<T: KernelElement> Parameter for T {
    type Launched = T;
    type Tried<E> = T;

    fn launched<E>(tried: T) -> Result<T, E> {
        Ok(tried)
    }

    unsafe fn located<M: Memory>(self) -> Option<Self> {
        Some(self)
    }
}

/// A kernel, as the host knows it: `#[kernel]` makes a type of its name, which implements this.
///
/// # Safety
///
/// 1. The PTX of the kernel's crate has an entry point `NAME`, which takes `Parameters` in this order.
/// 2. It is `call`, compiled for the device.
/// 3. `NEEDS_BLOCK` and `IS_TEAM` are those of the type of its thread.
pub unsafe trait Kernel: Sized {
    /// The name of the entry point.
    const NAME: &'static str;
    /// The names of the parameters after the thread.
    const PARAMETERS: &'static [&'static str];
    /// A checksum of the function, by which a launch tells PTX that was compiled before it changed.
    #[doc(hidden)]
    const CODE: &'static str;
    /// Groups of parameters, by number, that must have one shape.
    const SAME_SHAPE: &'static [&'static [usize]] = &[];
    /// Groups that must have the same first extent.
    const SAME_ROWS: &'static [&'static [usize]] = &[];
    /// Groups that must have the same last extent.
    const SAME_COLUMNS: &'static [&'static [usize]] = &[];
    /// Whether the threads of a block work together.
    const NEEDS_BLOCK: bool;
    /// Whether a block consists of teams, which own rows.
    const IS_TEAM: bool;
    /// The parameters after the thread.
    type Parameters<'a>: Parameters;
    /// The first parameter.
    type First<'t>: FirstParameter<'t>;

    /// Runs the kernel in a thread.
    fn call<'t, 'a: 't>(first: Self::First<'t>, parameters: Self::Parameters<'a>);
}

/// A generic kernel, `#[kernel(T = [f32, f64])]`, for types of its list: what a generic function that launches it needs.
///
/// ```
/// use core::ops::Add;
///
/// use interop_kernel::{Compiled, KernelElement, LaunchSize, Thread, ViewMut, kernel};
///
/// #[kernel(T = [f32, i64])]
/// fn double<T: KernelElement + Add<Output = T>>(thread: Thread<'_>, mut numbers: ViewMut<'_, T, 1>) {
///     for at in thread.elements(numbers.shape()) {
///         numbers.set(at, numbers.get(at) + numbers.get(at));
///     }
/// }
///
/// fn doubled<T: KernelElement + Add<Output = T>>(mut numbers: [T; 2]) -> [T; 2]
/// where
///     double<T>: Compiled,
/// {
///     double::<T>::run(LaunchSize::for_units(2), ViewMut::new(&mut numbers, [2]));
///     numbers
/// }
///
/// assert_eq!((doubled([1.0_f32, 2.0]), doubled([3_i64, 4])), ([2.0, 4.0], [6, 8]));
/// ```
///
/// # Safety
///
/// As 1 and 2 of [`Kernel`].
#[diagnostic::on_unimplemented(
    message = "there is no kernel `{Self}`",
    label = "not for this type",
    note = "`#[kernel(T = [f32, f64])]` lists the types for which a generic kernel is compiled; add this one to the list",
    note = "a generic function that launches the kernel needs a bound: `where name_of_the_kernel<T>: Compiled`"
)]
pub unsafe trait Compiled {
    /// The name of the entry point.
    const NAME: &'static str;
}

/// Up to twelve parameters, as a tuple.
pub trait Parameters: Layouts + Sized {
    /// What a launch passes for them.
    type Launched;
    /// What `try_with` of a kernel takes for them.
    type Tried<E>;
    /// The size of each in bytes.
    const SIZES: &'static [usize];
    /// Which of them have elements that are those of blocks.
    #[doc(hidden)]
    const ARE_BY_BLOCK: &'static [bool];

    #[doc(hidden)]
    fn launched<K: Kernel, E: OfArgument>(tried: Self::Tried<E>) -> Result<Self::Launched, E>;

    #[doc(hidden)]
    fn pointers(launched: &Self::Launched, to: &mut dyn FnMut(*const c_void));

    /// # Safety
    ///
    /// As [`simulate`](crate::host::simulate).
    #[doc(hidden)]
    unsafe fn located<M: Memory>(pointers: *const *const c_void) -> Option<Self>;

    #[doc(hidden)]
    #[must_use]
    fn of_one_thread(self) -> Self;

    #[doc(hidden)]
    fn shape(launched: &Self::Launched, number: usize) -> Option<&[i64]>;

    #[doc(hidden)]
    fn are_in_scope(launched: &Self::Launched, scope: usize) -> bool;
}

macro_rules! tuples {
    ($($parameter:ident $number:tt)*) => {
        impl<$($parameter: Parameter),*> Parameters for ($($parameter,)*) {
            type Launched = ($($parameter::Launched,)*);
            type Tried<Z> = ($($parameter::Tried<Z>,)*);
            const SIZES: &'static [usize] = &[$(size_of::<$parameter>()),*];
            const ARE_BY_BLOCK: &'static [bool] = &[$($parameter::IS_BY_BLOCK),*];

            #[expect(clippy::allow_attributes, reason = "a kernel without parameters has none to use")]
            #[allow(clippy::unused_unit, unused_variables, reason = "as above")]
            fn launched<Y: Kernel, Z: OfArgument>(tried: Self::Tried<Z>) -> Result<Self::Launched, Z> {
                Ok(($(
                    $parameter::launched(tried.$number)
                        .map_err(|error: Z| error.of_argument(Y::NAME, Y::PARAMETERS[$number]))?,
                )*))
            }

            #[expect(clippy::allow_attributes, reason = "as above")]
            #[allow(unused_variables, reason = "as above")]
            fn pointers(launched: &Self::Launched, to: &mut dyn FnMut(*const c_void)) {
                $(to((&raw const launched.$number).cast());)*
            }

            #[expect(clippy::allow_attributes, reason = "as above")]
            #[allow(unused_variables, clippy::multiple_unsafe_ops_per_block, reason = "as above; one step for each parameter")]
            unsafe fn located<Z: Memory>(pointers: *const *const c_void) -> Option<Self> {
                Some(($(
                    // SAFETY: the caller promises that many pointers, each to an argument with the bytes of its parameter, and the
                    // memory of it.
                    unsafe { pointers.add($number).read().cast::<$parameter>().read_unaligned().located::<Z>() }?,
                )*))
            }

            #[expect(clippy::allow_attributes, reason = "as above")]
            #[allow(clippy::unused_unit, reason = "as above")]
            fn of_one_thread(self) -> Self {
                ($(self.$number.of_one_thread(),)*)
            }

            #[expect(clippy::allow_attributes, reason = "as above")]
            #[allow(unused_variables, reason = "as above")]
            fn shape(launched: &Self::Launched, number: usize) -> Option<&[i64]> {
                match number {
                    $($number => $parameter::shape(&launched.$number),)*
                    _ => None,
                }
            }

            #[expect(clippy::allow_attributes, reason = "as above")]
            #[allow(unused_variables, reason = "as above")]
            fn are_in_scope(launched: &Self::Launched, scope: usize) -> bool {
                true $(&& $parameter::is_in_scope(&launched.$number, scope))*
            }
        }
    };
}

tuples!();
tuples!(A 0);
tuples!(A 0 B 1);
tuples!(A 0 B 1 C 2);
tuples!(A 0 B 1 C 2 D 3);
tuples!(A 0 B 1 C 2 D 3 E 4);
tuples!(A 0 B 1 C 2 D 3 E 4 F 5);
tuples!(A 0 B 1 C 2 D 3 E 4 F 5 G 6);
tuples!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7);
tuples!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8);
tuples!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9);
tuples!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10);
tuples!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11);
