//! What a kernel does with an index that it must not use.

/// The mistakes that end a kernel.
#[cfg_attr(target_arch = "nvptx64", allow(dead_code, reason = "a device has no text"))]
#[derive(Clone, Copy)]
pub(crate) enum Mistake<'a> {
    /// An index outside of the shape.
    Outside(&'a [usize], &'a [usize]),
    /// The index of another shape.
    OtherShape(&'a [usize], &'a [usize]),
    /// The nearest element of an array that has none.
    Empty(&'a [usize]),
    /// The row and the number of columns that a team needs, and the rows and columns that an array has.
    OtherRows([usize; 2], [usize; 2]),
    /// What the first row keeps is read by the second one.
    KeptByAnotherRow(u64, u64),
    /// A block of this size has no teams.
    NoTeam([u32; 3]),
}

/// Panics on the CPU, with the name of the kernel.
#[cfg(not(target_arch = "nvptx64"))]
#[cold]
#[track_caller]
pub(crate) fn fail(mistake: Mistake<'_>) -> ! {
    let text = match mistake {
        Mistake::Outside(at, shape) => format!("the index {at:?} is outside of the shape {shape:?}"),
        Mistake::OtherShape(made, own) => {
            format!("the index was made for the shape {made:?}, and the array has {own:?}")
        }
        Mistake::Empty(shape) => format!("an array of the shape {shape:?} has no nearest element"),
        Mistake::OtherRows([_, columns], [_, others]) if columns != others => {
            format!("found {columns} columns, allowed: the {others} of the array")
        }
        Mistake::OtherRows([row, _], [rows, _]) => {
            format!("found row {row}, allowed: the {rows} of the array")
        }
        Mistake::KeptByAnotherRow(kept, row) => {
            format!("row {row} reads what row {kept} keeps; keep the array in row {row}, too")
        }
        Mistake::NoTeam(block) => {
            format!("found blocks of {block:?} threads, allowed: {}", crate::launch_size::TEAMS)
        }
    };
    match crate::host::kernel() {
        Some(kernel) => panic!("kernel `{kernel}`: {text}"),
        None => panic!("{text}"),
    }
}

/// Traps on the device: the launch fails, and with it all later work of the context.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(crate) fn fail(_: Mistake<'_>) -> ! {
    crate::device::trap()
}
