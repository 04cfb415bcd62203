//! The arguments of a launch: what is compared of them, and how they run on the CPU.
#![expect(unsafe_code, reason = "runs a kernel with the arrays of a launch")]

use core::ffi::c_void;
use core::fmt;

use crate::LaunchSize;
use crate::error::{ArgumentError, MistakeKind};
use crate::host_launch::HostMemory;
use crate::kernel::{Kernel, OfArgument, Parameters};

/// The maximum number of parameters after the thread.
const MAX_PARAMETERS: usize = 12;

/// The arguments of a launch of `K`: what its function `with` returns.
///
/// They have the types of the kernel's parameters. `interop_core::LaunchScope::launch` takes them.
pub struct Arguments<'a, K: Kernel>(<K::Parameters<'a> as Parameters>::Launched);

impl<'a, K: Kernel> Arguments<'a, K> {
    /// Called by the function `with` of a kernel.
    #[doc(hidden)]
    pub fn new(launched: <K::Parameters<'a> as Parameters>::Launched) -> Self {
        Self(launched)
    }

    /// Called by the function `try_with` of a kernel.
    #[doc(hidden)]
    pub fn try_new<E: OfArgument>(tried: <K::Parameters<'a> as Parameters>::Tried<E>) -> Result<Self, E> {
        K::Parameters::launched::<K, E>(tried).map(Self)
    }

    /// Checks what the compiler cannot: that arrays have the same shape, rows or columns where the kernel says so, that there is a
    /// block for each element of a [`ViewMut`](crate::ViewMut) by [`Blocks`](crate::Blocks), and that a block
    /// consists of teams if they own rows.
    ///
    /// # Errors
    ///
    /// [`MistakeKind::Shape`], with the name of the argument or `block`; [`MistakeKind::Overflow`] for 2^31 columns of a team.
    pub fn check(&self, LaunchSize { grid: (x, y, z), block }: LaunchSize) -> Result<(), ArgumentError> {
        let blocks = u128::from(x) * u128::from(y) * u128::from(z);
        for (number, name) in
            K::PARAMETERS.iter().enumerate().filter(|(number, _)| K::Parameters::ARE_BY_BLOCK[*number])
        {
            let Some([elements]) = K::Parameters::shape(&self.0, number) else { continue };
            if u128::from(elements.unsigned_abs()) > blocks {
                let found = format!("{elements} elements for {blocks} blocks");
                let allowed = format!("a block for each element, as in `LaunchSize::for_blocks({elements})`");
                return Err(ArgumentError::new(MistakeKind::Shape, name, found, allowed));
            }
        }
        self.check_team(block)?;
        self.compare(K::SAME_SHAPE, |shape| Shape(Some(shape), "elements"))?;
        self.compare(K::SAME_ROWS, |shape| Shape(shape.get(..1), "rows"))?;
        self.compare(K::SAME_COLUMNS, |shape| {
            Shape(shape.len().checked_sub(1).map(|last| &shape[last..]), "columns")
        })
    }

    /// Checks a launch of teams.
    fn check_team(&self, (width, height, depth): (u32, u32, u32)) -> Result<(), ArgumentError> {
        const COLUMNS: i64 = 1 << 31;
        if !K::IS_TEAM {
            return Ok(());
        }
        if !crate::launch_size::is_team([width, height, depth]) {
            let found = format!("{width} x {height} x {depth} threads");
            return Err(ArgumentError::new(MistakeKind::Shape, "block", found, crate::launch_size::TEAMS));
        }
        for (number, name) in K::PARAMETERS.iter().enumerate() {
            let Some([_, columns]) = K::Parameters::shape(&self.0, number) else { continue };
            if *columns >= COLUMNS {
                let found = format!("{columns} columns");
                return Err(ArgumentError::new(
                    MistakeKind::Overflow,
                    name,
                    found,
                    "fewer than 2^31 in a row of a team",
                ));
            }
        }
        Ok(())
    }

    /// Compares a part of the shapes in each group.
    fn compare<'s>(
        &'s self,
        groups: &[&[usize]],
        part: impl Fn(&'s [i64]) -> Shape<'s>,
    ) -> Result<(), ArgumentError> {
        let part = |number| K::Parameters::shape(&self.0, number).map_or(Shape(None, ""), &part);
        for group in groups {
            let Some((first, others)) = group.split_first() else { continue };
            let expected = part(*first);
            if let Some(other) = others.iter().find(|other| part(**other) != expected) {
                let allowed = format!("{expected}, as in `{}`", K::PARAMETERS[*first]);
                return Err(ArgumentError::new(
                    MistakeKind::Shape,
                    K::PARAMETERS[*other],
                    part(*other),
                    allowed,
                ));
            }
        }
        Ok(())
    }

    /// Whether all arrays are those of this scope: `scope` is the number that [`InScope::new`](crate::InScope::new)
    /// got.
    #[must_use]
    pub fn are_in_scope(&self, scope: usize) -> bool {
        K::Parameters::are_in_scope(&self.0, scope)
    }

    /// Runs the kernel on the CPU, as [`host::launch`](crate::host::launch).
    ///
    /// # Errors
    ///
    /// [`MistakeKind::Shape`] for a launch that no device takes.
    ///
    /// # Safety
    ///
    /// 1. The arrays are in memory of the host. Until this returns they live, nobody else writes their elements, and nobody else uses those
    ///    that the kernel writes.
    /// 2. `spread` is as in [`host::launch`](crate::host::launch).
    #[track_caller]
    pub unsafe fn run_on_host(
        &self,
        size: LaunchSize,
        workers: u32,
        spread: impl FnOnce(u32, &(dyn Fn(u32) + Sync)),
    ) -> Result<(), ArgumentError> {
        if !size.is_launchable() {
            let found = format!("{size:?}");
            return Err(ArgumentError::new(
                MistakeKind::Shape,
                "size",
                found,
                crate::launch_size::LAUNCHABLE,
            ));
        }
        let (mut pointers, mut count) = ([core::ptr::null(); MAX_PARAMETERS], 0);
        self.for_each_pointer(|argument| {
            pointers[count] = argument;
            count += 1;
        });
        // SAFETY: these are the arguments of the kernel, whose arrays are in memory of the host, as the caller promises.
        let parameters = unsafe { K::Parameters::<'_>::located::<HostMemory>(pointers.as_ptr()) };
        let parameters = parameters.unwrap_or_else(|| unreachable!("the host reaches its own memory"));
        // SAFETY: 2 of the caller.
        unsafe { crate::host::launch::<K>(size, parameters, workers, spread) };
        Ok(())
    }

    /// Calls `to` with a pointer to each argument, in the order of the parameters, as `cuLaunchKernel` needs them. They live as
    /// long as `self`.
    pub fn for_each_pointer(&self, mut to: impl FnMut(*const c_void)) {
        K::Parameters::pointers(&self.0, &mut to);
    }
}

impl<K: Kernel> fmt::Debug for Arguments<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arguments of {}{:?}", K::NAME, K::PARAMETERS)
    }
}

/// What is compared of the extents of an array, and what one of them counts.
#[derive(PartialEq)]
struct Shape<'a>(Option<&'a [i64]>, &'static str);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some([extent]) => write!(f, "{extent} {}", self.1),
            Some(shape) => write!(f, "the shape {shape:?}"),
            None => f.write_str("no axis"),
        }
    }
}
