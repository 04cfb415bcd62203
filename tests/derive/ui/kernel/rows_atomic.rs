//! Threads of a team would each learn another number of an `Atomic`, and part.

use interop_kernel::{Atomic, Team, View, ViewMut, kernel};

type Counts<'a> = ViewMut<'a, u32, 1, Atomic>;

#[kernel]
fn count(mut team: Team<'_>, x: View<'_, f32, 2>, counts: ViewMut<'_, u32, 1, Atomic>) {
    for row in team.rows(&x) {
        counts.add([row.number()], 1);
    }
}

#[kernel]
fn count_by_another_name(mut team: Team<'_>, x: View<'_, f32, 2>, counts: Counts<'_>) {
    for row in team.rows(&x) {
        counts.add([row.number()], 1);
    }
}

fn main() {}
