//! One array in five layouts: as a struct of this crate, and as an `ndarray` view.

use interop_core::{CudaArray, HostVec, SharedBuffer};
use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder, s};

pub(crate) const ROWS: usize = 1000;
pub(crate) const COLUMNS: usize = 4000;
pub(crate) const COUNT: usize = ROWS * COLUMNS;
/// The number of elements from one row to the next in the layout with padded rows.
const PADDED: usize = COLUMNS + 24;

#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns])]
pub(crate) struct Grid {
    #[cuda_array(data)]
    memory: SharedBuffer,
    #[cuda_array(strides)]
    strides: [isize; 2],
    rows: usize,
    columns: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    strides: [isize; 2],
    /// The index of the first element in the memory.
    first: usize,
    /// The number of elements of the memory.
    pub(crate) capacity: usize,
}

const fn signed(length: usize) -> isize {
    length as isize
}

pub(crate) const LAYOUTS: [Layout; 5] = [
    Layout { name: "contiguous", strides: [signed(COLUMNS), 1], first: 0, capacity: COUNT },
    Layout { name: "F order", strides: [1, signed(ROWS)], first: 0, capacity: COUNT },
    Layout { name: "every second column", strides: [2 * signed(COLUMNS), 2], first: 0, capacity: 2 * COUNT },
    Layout { name: "padded rows", strides: [signed(PADDED), 1], first: 0, capacity: ROWS * PADDED },
    Layout { name: "backwards", strides: [-signed(COLUMNS), -1], first: COUNT - 1, capacity: COUNT },
];

macro_rules! view {
    ($View:ident, $name:expr, $memory:expr) => {{
        let columns = match $name {
            "every second column" => 2 * COLUMNS,
            "padded rows" => PADDED,
            _ => COLUMNS,
        };
        match $name {
            "F order" => $View::from_shape((ROWS, COLUMNS).f(), $memory).expect("as much memory"),
            name => {
                let view = $View::from_shape((ROWS, columns), $memory).expect("as much memory");
                match name {
                    "every second column" => view.slice_move(s![.., ..;2]),
                    "backwards" => view.slice_move(s![..;-1, ..;-1]),
                    _ => view.slice_move(s![.., ..COLUMNS]),
                }
            }
        }
    }};
}

impl Layout {
    #[expect(clippy::cast_precision_loss, reason = "small whole numbers")]
    pub(crate) fn grid(self) -> Grid {
        let elements: HostVec<f32> = (0..self.capacity).map(|at| (at % 1000) as f32).collect();
        let memory =
            SharedBuffer::new(elements).byte_offset(4 * signed(self.first)).expect("within the memory");
        Grid { memory, strides: self.strides, rows: ROWS, columns: COLUMNS }
    }

    pub(crate) fn view(self, memory: &[f32]) -> ArrayView2<'_, f32> {
        view!(ArrayView2, self.name, memory)
    }

    pub(crate) fn view_mut(self, memory: &mut [f32]) -> ArrayViewMut2<'_, f32> {
        view!(ArrayViewMut2, self.name, memory)
    }
}
