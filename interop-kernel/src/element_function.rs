//! What a function of elements may hold.

/// What a function of the elements of a row may hold: numbers and views, and no reference to a variable of the kernel.
///
/// Such a function runs in one thread of a team. If it could leave a value for the code around it, the threads of the team could make
/// different calls, and wait for each other for ever. Closures that are `Copy`, and live as long as the kernel, leave nothing: write
/// `move`. The compiler implements this trait for them.
#[diagnostic::on_unimplemented(
    message = "a function of the elements of a row holds something else than numbers and views",
    label = "this function runs in one thread of the team, of which the others must not learn anything",
    note = "it is `Copy`, and borrows no variable of the kernel: write `move`, as in `row.sum(&x, move |x| x - mean)`",
    note = "the threads of a team make `sum`, `max`, `write` and the other calls of a row together: call them outside, and use their results here"
)]
pub trait ElementFunction<'t>: Copy + Sync + 't {}

#[diagnostic::do_not_recommend]
impl<'t, F: Copy + Sync + 't> ElementFunction<'t> for F {}
