//! How the elements of an array that a kernel writes are shared among its threads.

/// A rule that gives each element of an array to one thread.
///
/// The rule is part of the type of an argument, [`ViewMut`](crate::ViewMut), so all threads follow the same one.
pub trait Mapping<const N: usize>: sealed::Mapping<N> {}

pub(crate) mod sealed {
    use crate::layout::Layout;

    /// What a launch has to know about the rule of a `ViewMut`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is no rule of a `ViewMut`",
        note = "the rules are `Elements`, `Packs<W>`, `Tiles<R>`, `Rows`, `Blocks` and `Atomic`"
    )]
    pub trait Rule {
        /// Whether each element is that of a block.
        const IS_BY_BLOCK: bool = false;
        /// Whether threads learn of each other through elements.
        const IS_ATOMIC: bool = false;
        /// The rule, as the end of the list of parameters of a `ViewMut`.
        const LAYOUT: Layout;
    }

    impl Rule for super::Elements {
        const LAYOUT: Layout = Layout::new(0, "");
    }

    impl<const W: usize> Rule for super::Packs<W> {
        const LAYOUT: Layout = Layout::new(0, ", Packs<").number(W).text(">");
    }

    impl<const R: usize> Rule for super::Tiles<R> {
        const LAYOUT: Layout = Layout::new(0, ", Tiles<").number(R).text(">");
    }

    impl Rule for super::Blocks {
        const IS_BY_BLOCK: bool = true;
        const LAYOUT: Layout = Layout::new(0, ", Blocks");
    }

    impl Rule for super::Rows {
        const LAYOUT: Layout = Layout::new(0, ", Rows");
    }

    impl Rule for super::Atomic {
        const IS_ATOMIC: bool = true;
        const LAYOUT: Layout = Layout::new(0, ", Atomic");
    }

    pub trait Mapping<const N: usize> {
        /// Returns the number of units along each axis.
        fn units(shape: [usize; N]) -> [usize; N];
        /// Returns the first element of a unit.
        fn first(unit: [usize; N]) -> [usize; N];
    }
}

/// Element by element: [`Thread::elements`](crate::Thread::elements).
#[derive(Clone, Copy, Debug)]
pub struct Elements;

/// Packs of `W` elements along the last axis: [`Thread::packs`](crate::Thread::packs). The last pack of a row may have
/// fewer.
///
/// ```
/// use interop_kernel::{LaunchSize, Packs, Thread, ViewMut, kernel};
///
/// /// Turns each two neighbours around.
/// #[kernel]
/// fn swap(thread: Thread<'_>, mut numbers: ViewMut<'_, u8, 1, Packs<2>>) {
///     for at in thread.packs(numbers.shape()) {
///         let [left, right] = numbers.pack(at, 0);
///         numbers.set_pack(at, [right, left]);
///     }
/// }
///
/// let mut numbers = [1, 2, 3, 4, 5];
/// swap::run(LaunchSize::for_units(3), ViewMut::new(&mut numbers, [5]));
/// // Beside the last number there is no element, so it was swapped with 0.
/// assert_eq!(numbers, [2, 1, 4, 3, 0]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Packs<const W: usize>;

/// Tiles of `R` rows along the first axis: [`Thread::tiles`](crate::Thread::tiles). A thread has one element of each of
/// these rows.
#[derive(Clone, Copy, Debug)]
pub struct Tiles<const R: usize>;

/// One element for each block: [`Thread::of_block`](crate::Thread::of_block).
#[derive(Clone, Copy, Debug)]
pub struct Blocks;

/// Rows along the last axis, each for a team of threads: [`Team::rows`](crate::Team::rows). Of an array with one axis, the element with the
/// number of the row.
#[derive(Clone, Copy, Debug)]
pub struct Rows;

/// Every element for all threads, which can only add to it: [`ViewMut::add`](crate::ViewMut::add).
///
/// ```
/// use interop_kernel::{Atomic, LaunchSize, Thread, View, ViewMut, kernel};
///
/// /// Counts how often each byte occurs.
/// #[kernel]
/// fn histogram(thread: Thread<'_>, bytes: View<'_, u8, 1>, counts: ViewMut<'_, u32, 1, Atomic>) {
///     for at in thread.elements(bytes.shape()) {
///         counts.add([bytes.get(at).into()], 1);
///     }
/// }
///
/// let mut counts = [0; 256];
/// histogram::run(LaunchSize::for_units(5), View::new(b"abaca", [5]), ViewMut::new(&mut counts, [256]));
/// assert_eq!(counts[97..100], [3, 1, 1]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Atomic;

impl<const N: usize> Mapping<N> for Elements {}

impl<const N: usize> sealed::Mapping<N> for Elements {
    #[inline(always)]
    fn units(shape: [usize; N]) -> [usize; N] {
        shape
    }

    #[inline(always)]
    fn first(unit: [usize; N]) -> [usize; N] {
        unit
    }
}

impl<const N: usize, const W: usize> Mapping<N> for Packs<W> {}

impl<const N: usize, const W: usize> sealed::Mapping<N> for Packs<W> {
    #[inline(always)]
    fn units(mut shape: [usize; N]) -> [usize; N] {
        const { assert!(N > 0 && W > 0, "packs need an axis, and a width") };
        shape[N - 1] = shape[N - 1].div_ceil(W);
        shape
    }

    #[inline(always)]
    fn first(mut unit: [usize; N]) -> [usize; N] {
        unit[N - 1] *= W;
        unit
    }
}

impl<const N: usize, const R: usize> Mapping<N> for Tiles<R> {}

impl<const N: usize, const R: usize> sealed::Mapping<N> for Tiles<R> {
    #[inline(always)]
    fn units(mut shape: [usize; N]) -> [usize; N] {
        const { assert!(N > 0 && R > 0, "tiles need an axis, and a row") };
        shape[0] = shape[0].div_ceil(R);
        shape
    }

    #[inline(always)]
    fn first(mut unit: [usize; N]) -> [usize; N] {
        unit[0] *= R;
        unit
    }
}
