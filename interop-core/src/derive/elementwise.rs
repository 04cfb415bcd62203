//! Arrays of one shape as the argument of an elementwise kernel in Rust.
#![expect(unsafe_code, reason = "makes arguments of arrays that the scope borrows")]

use core::mem::{align_of, size_of};

use interop_kernel::{
    Arrays, DynKernelView, In, InScope, KernelArrays, KernelElement, KernelElementwise, Out,
};

use crate::array::element::Element;
use crate::array::layout::Layout;
use crate::derive::cuda_array::CudaArray;
use crate::derive::launch_scope::LaunchScope;
use crate::derive::scope_state::ScopeUse;
use crate::error::Result;
use crate::order::array_info::{ArrayInfo, launch_address};

/// An array of a [`LaunchScope::elementwise`]: `&mut` for one that the kernel writes, `&` for one that it reads.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an array for `{O}` of the kernel",
    note = "pass `&mut array` for `Out<T>` and `&array` for `In<T>`"
)]
pub trait ElementwiseOperand<'a, O>: sealed::Operand<'a, O> {}

mod sealed {
    use super::{Arrays, KernelElementwise, LaunchScope, OperandArray, Result};

    /// A tuple of arrays, all of which the scope must hear of.
    pub trait Tuple<'a, A: Arrays> {
        /// Adds the arrays to a scope, and merges their axes.
        fn merge<'s, const N: usize>(self, scope: &'s LaunchScope<'a>) -> Result<KernelElementwise<'s, A, N>>
        where
            'a: 's;
    }

    pub trait Operand<'a, O> {
        /// Describes the array in elements of the kernel. In place, because a description is long.
        fn describe(self, to: &mut Option<OperandArray<'a>>) -> Result<()>;
    }
}

/// An array in elements of a kernel.
#[doc(hidden)]
pub struct OperandArray<'a> {
    info: ArrayInfo,
    scope_use: ScopeUse<'a>,
    /// In elements of the kernel, if these are not those of the array.
    joined: Option<Layout>,
    size: usize,
    align: usize,
}

impl<'a> OperandArray<'a> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is written in place")]
    fn new<T: Element>(info: ArrayInfo, scope_use: ScopeUse<'a>) -> Result<Self> {
        let (joined, size, align) = (info.joined_layout(&T::TYPE)?, size_of::<T>(), align_of::<T>());
        Ok(Self { info, scope_use, joined, size, align })
    }

    fn view(&self) -> Result<DynKernelView<'_>> {
        let layout = self.joined.as_ref().unwrap_or(&self.info.layout);
        let address = launch_address(self.info.unwatched_address, self.info.device(), self.align)?;
        Ok(DynKernelView::new(address, self.size, layout.shape(), layout.strides())?)
    }
}

impl<'a, T: Element + KernelElement, S: CudaArray + ?Sized> ElementwiseOperand<'a, In<T>> for &'a S {}

impl<'a, T: Element + KernelElement, S: CudaArray + ?Sized> sealed::Operand<'a, In<T>> for &'a S {
    fn describe(self, to: &mut Option<OperandArray<'a>>) -> Result<()> {
        let info = CudaArray::info(self)?;
        let scope_use = ScopeUse::read(self, &info);
        *to = Some(OperandArray::new::<T>(info, scope_use)?);
        Ok(())
    }
}

impl<'a, T: Element + KernelElement, S: CudaArray + ?Sized> ElementwiseOperand<'a, Out<T>> for &'a mut S {}

impl<'a, T: Element + KernelElement, S: CudaArray + ?Sized> sealed::Operand<'a, Out<T>> for &'a mut S {
    fn describe(self, to: &mut Option<OperandArray<'a>>) -> Result<()> {
        let info = CudaArray::info(self)?;
        info.check_writable()?;
        let scope_use = ScopeUse::write(self, &info)?;
        *to = Some(OperandArray::new::<T>(info, scope_use)?);
        Ok(())
    }
}

/// The arrays of a [`LaunchScope::elementwise`], as a tuple.
#[diagnostic::on_unimplemented(
    message = "`{Self}` are not the arrays of the kernel",
    note = "pass a tuple with `&mut array` for each `Out<T>` and `&array` for each `In<T>` of the kernel, in its order"
)]
pub trait ElementwiseArrays<'a, A: Arrays>: sealed::Tuple<'a, A> {}

macro_rules! tuples {
    ($($count:literal: $($array:ident $operand:ident $number:tt)*;)*) => {
        $(
            tuples!(@ $count Out $($array $operand $number)*);
            tuples!(@ $count In $($array $operand $number)*);
        )*
    };
    (@ $count:literal $wrapper:ident $first:ident $first_operand:ident 0 $($other:ident $operand:ident $number:tt)*) => {
        impl<'a, $first_operand: KernelElement, $($operand: KernelElement,)* $first, $($other),*>
            ElementwiseArrays<'a, ($wrapper<$first_operand>, $(In<$operand>,)*)> for ($first, $($other,)*)
        where
            $first: ElementwiseOperand<'a, $wrapper<$first_operand>>,
            $($other: ElementwiseOperand<'a, In<$operand>>,)*
        {
        }

        impl<'a, $first_operand: KernelElement, $($operand: KernelElement,)* $first, $($other),*>
            sealed::Tuple<'a, ($wrapper<$first_operand>, $(In<$operand>,)*)> for ($first, $($other,)*)
        where
            $first: ElementwiseOperand<'a, $wrapper<$first_operand>>,
            $($other: ElementwiseOperand<'a, In<$operand>>,)*
        {
            fn merge<'s, const N: usize>(
                self,
                scope: &'s LaunchScope<'a>,
            ) -> Result<KernelElementwise<'s, ($wrapper<$first_operand>, $(In<$operand>,)*), N>>
            where
                'a: 's,
            {
                let mut arrays = [const { None }; $count];
                self.0.describe(&mut arrays[0])?;
                $(self.$number.describe(&mut arrays[$number])?;)*
                let merged = merge::<$count, N>(scope, &mut arrays)?;
                // SAFETY: the arrays have these element types, at addresses aligned for them; the scope borrows them, and the
                // first one was checked to have an element for each index.
                Ok(unsafe { KernelElementwise::from_arrays(merged) })
            }
        }
    };
}

tuples! {
    1: S A 0;
    2: S A 0 T B 1;
    3: S A 0 T B 1 U C 2;
    4: S A 0 T B 1 U C 2 V D 3;
}

/// Adds arrays, all of which are described, to a scope, and merges their axes.
fn merge<'s, 'a, const K: usize, const N: usize>(
    scope: &'s LaunchScope<'a>,
    arrays: &mut [Option<OperandArray<'a>>; K],
) -> Result<KernelArrays<'s, K, N>> {
    let mut views = [None; K];
    for (view, array) in views.iter_mut().zip(arrays.iter().flatten()) {
        *view = Some(array.view()?);
    }
    let view = |view| Option::as_ref(view).unwrap_or_else(|| unreachable!("each array is described")) as _;
    let merged = KernelArrays::new(views.each_ref().map(view))?.unbound();
    for OperandArray { info, scope_use, .. } in arrays.iter_mut().flatten() {
        scope.add(info, scope_use.take())?;
    }
    Ok(merged)
}

impl<'a> LaunchScope<'a> {
    /// Adds arrays of one shape, of any rank and any layouts, and returns them as one argument of a kernel in Rust, a
    /// [`kernel::Elementwise`](crate::kernel::Elementwise). The kernel decides how many there are, their types, and which one it
    /// writes: pass `(&mut sum, &left, &right)` for `(Out<f32>, In<f32>, In<f32>)`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), [`write_any`](Self::write_any) and [`KernelArrays::new`].
    ///
    /// # Example
    ///
    /// The crate of a kernel depends on `interop-kernel`, too.
    ///
    /// ```no_run
    /// use interop_core::kernel::{Elementwise, In, Out, Thread, kernel};
    /// use interop_core::arrays::Dims;
    /// use interop_core::{CudaArray, KernelModule, LaunchScope, Lease, LeaseMut};
    ///
    /// #[kernel]
    /// fn add(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>, In<f32>)>) {
    ///     arrays.map_inplace(&thread, |sum, other| sum + other);
    /// }
    ///
    /// /// An array of any rank.
    /// #[derive(CudaArray)]
    /// struct Tensor<S> {
    ///     #[cuda_array(data)]
    ///     elements: S,
    ///     #[cuda_array(shape)]
    ///     shape: Dims<usize>,
    ///     #[cuda_array(strides)]
    ///     strides: Option<Dims<isize>>,
    /// }
    ///
    /// # const PTX: &str = "";
    /// // SAFETY: the PTX is compiled from the kernel above.
    /// static KERNELS: KernelModule = unsafe { KernelModule::new(PTX) };
    ///
    /// fn add_(sum: &mut Tensor<LeaseMut<f32>>, other: &Tensor<Lease<f32>>) -> interop_core::Result<()> {
    ///     let scope = LaunchScope::new();
    ///     let arrays = scope.elementwise((sum, other))?;
    ///     scope.launch(&KERNELS, arrays.launch_size(), add::with(arrays))?;
    ///     scope.finish()
    /// }
    /// ```
    pub fn elementwise<'s, A: Arrays, const N: usize>(
        &'s self,
        arrays: impl ElementwiseArrays<'a, A>,
    ) -> Result<InScope<KernelElementwise<'s, A, N>>> {
        let merged: KernelElementwise<'s, A, N> = arrays.merge(self)?;
        // SAFETY: the arrays are borrowed, the one that is written exclusively, and `merge` has added them to the scope.
        Ok(unsafe { self.argument(merged) })
    }
}
