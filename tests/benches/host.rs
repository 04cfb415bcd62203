//! Measures access to host elements for every layout: `cargo bench --package interop-benches --bench host`,
//! `-- <words>` for a part of it.
//!
//! It prints one table. The layout rows process about 16 MB of `f32`: with a loop over a slice (which is always
//! contiguous), with `ndarray` on the same layout, and with this crate. A cell is the best of several rounds in
//! milliseconds. The columns of a row take turns.
#![expect(clippy::cast_precision_loss, reason = "small whole numbers in floats")]

mod layouts;

use std::hint::black_box;
use std::time::{Duration, Instant};

use interop_core::view::ReadOnlyCell;
use interop_core::{CudaArray, Element, HostVec};
use layouts::{COLUMNS, COUNT, LAYOUTS, Layout, ROWS};
use ndarray::Zip;

const ROUNDS: usize = 15;

/// Returns the best time of each work in milliseconds. The works take turns.
fn best<const N: usize>(mut works: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut best = [Duration::MAX; N];
    for _ in 0..ROUNDS {
        for (work, best) in works.iter_mut().zip(&mut best) {
            let start = Instant::now();
            work();
            *best = start.elapsed().min(*best);
        }
    }
    best.map(|time| time.as_secs_f64() * 1e3)
}

fn print(work: &str, layout: &str, cells: [Option<f64>; 3]) {
    let [slice, ndarray, ours] = cells;
    let cell = |time: Option<f64>| time.map_or(String::new(), |time| format!("{time:.3}"));
    let ratio =
        |time: Option<f64>| time.map_or(String::new(), |time| format!("{:.2}", ours.unwrap_or(0.0) / time));
    println!(
        "{work:<26} {layout:<20} {:>9} {:>9} {:>9} {:>8} {:>8}",
        cell(slice),
        cell(ndarray),
        cell(ours),
        ratio(slice),
        ratio(ndarray)
    );
}

/// Prints a row with three columns.
fn row(work: &str, layout: &str, works: [&mut dyn FnMut(); 3]) {
    if wanted(work, layout) {
        print(work, layout, best(works).map(Some));
    }
}

/// Prints a row that compares only with a loop over a slice.
fn pair(work: &str, works: [&mut dyn FnMut(); 2]) {
    if wanted(work, "") {
        let [slice, ours] = best(works);
        print(work, "", [Some(slice), None, Some(ours)]);
    }
}

fn wanted(work: &str, layout: &str) -> bool {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    words.iter().all(|word| work.contains(word) || layout.contains(word))
}

fn bits(sum: u32, value: f32) -> u32 {
    sum.wrapping_add(value.to_bits())
}

fn layout(layout: Layout) {
    let name = layout.name;
    let mut slice = vec![1.0_f32; COUNT];
    let other = vec![2.0_f32; COUNT];
    let mut memory: Vec<f32> = (0..layout.capacity).map(|at| (at % 1000) as f32).collect();
    let source = memory.clone();
    let (mut grid, from) = (layout.grid(), layout.grid());
    row(
        "in place",
        name,
        [
            &mut || slice.iter_mut().for_each(|value| *value = *value * 0.5 + 1.0),
            &mut || layout.view_mut(&mut memory).mapv_inplace(|value| value * 0.5 + 1.0),
            &mut || grid.map_inplace::<f32>(|value| value * 0.5 + 1.0).unwrap(),
        ],
    );
    row(
        "read",
        name,
        [
            &mut || _ = black_box(slice.iter().fold(0, |sum, value| bits(sum, *value))),
            &mut || _ = black_box(layout.view(&memory).fold(0, |sum, value| bits(sum, *value))),
            &mut || _ = black_box(grid.fold(0, bits).unwrap()),
        ],
    );
    row(
        "two arrays",
        name,
        [
            &mut || slice.iter_mut().zip(&other).for_each(|(y, x)| *y += 0.5 * x),
            &mut || {
                let (y, x) = (layout.view_mut(&mut memory), layout.view(&source));
                Zip::from(y).and(x).for_each(|y, x| *y += 0.5 * x);
            },
            &mut || grid.zip_map_inplace(&from, |y: f32, x: f32| 0.5 * x + y).unwrap(),
        ],
    );
    row(
        "copy",
        name,
        [
            &mut || _ = black_box(slice.clone()),
            // In C order, which `to_owned` does not guarantee.
            &mut || _ = black_box(layout.view(&memory).as_standard_layout().into_owned()),
            &mut || _ = black_box(grid.to_vec::<f32>().unwrap()),
        ],
    );
    row(
        "iter",
        name,
        [
            &mut || _ = black_box(slice.iter().map(|value| value.to_bits()).fold(0, u32::wrapping_add)),
            &mut || {
                let view = layout.view(&memory);
                _ = black_box(view.iter().map(|value| value.to_bits()).fold(0, u32::wrapping_add));
            },
            &mut || {
                let view = grid.view::<f32, 2>().unwrap().host_view().unwrap();
                _ = black_box(view.iter().map(f32::to_bits).fold(0, u32::wrapping_add));
            },
        ],
    );
    row(
        "index",
        name,
        [
            &mut || {
                let mut sum = 0;
                for y in 0..ROWS {
                    for x in 0..COLUMNS {
                        sum = bits(sum, slice[y * COLUMNS + x]);
                    }
                }
                _ = black_box(sum);
            },
            &mut || {
                let (view, mut sum) = (layout.view(&memory), 0);
                for y in 0..ROWS {
                    for x in 0..COLUMNS {
                        sum = bits(sum, view[[y, x]]);
                    }
                }
                _ = black_box(sum);
            },
            &mut || {
                let (view, mut sum) = (grid.view::<f32, 2>().unwrap().host_view().unwrap(), 0);
                for y in 0..ROWS {
                    for x in 0..COLUMNS {
                        sum = bits(sum, view.read([y, x]).unwrap());
                    }
                }
                _ = black_box(sum);
            },
        ],
    );
}

/// Benchmarks with only one layout: cells, indexed writes, elements of other types.
fn contiguous() {
    let mut slice = vec![1.0_f32; COUNT];
    let mut grid = LAYOUTS[0].grid();
    pair(
        "write by index",
        [
            &mut || {
                for y in 0..ROWS {
                    for x in 0..COLUMNS {
                        slice[y * COLUMNS + x] = x as f32;
                    }
                }
                _ = black_box(&slice);
            },
            &mut || {
                let mut view = grid.view_mut::<f32, 2>().unwrap().host_view_mut().unwrap();
                for y in 0..ROWS {
                    for x in 0..COLUMNS {
                        view.write([y, x], x as f32).unwrap();
                    }
                }
            },
        ],
    );
    pair(
        "cells, in place",
        [&mut || slice.iter_mut().for_each(|value| *value = *value * 0.5 + 1.0), &mut || {
            let mut view = grid.view_mut::<f32, 2>().unwrap().host_view_mut().unwrap();
            view.as_cells().unwrap().iter().for_each(|cell| cell.set(cell.get() * 0.5 + 1.0));
        }],
    );
    pair(
        "rows of cells, read",
        [&mut || _ = black_box(slice.iter().fold(0, |sum, value| bits(sum, *value))), &mut || {
            let view = grid.view::<f32, 2>().unwrap().host_view().unwrap();
            let sum = |row: &[ReadOnlyCell<f32>]| row.iter().fold(0, |sum, cell| bits(sum, cell.get()));
            _ = black_box(view.rows().unwrap().map(sum).fold(0, u32::wrapping_add));
        }],
    );
    pair(
        "chunks, sum in f64",
        [&mut || _ = black_box(lanes(&slice)), &mut || {
            let mut sum = 0.0;
            grid.for_each_chunk(|chunk: &[ReadOnlyCell<f32>]| sum += lanes_of(chunk)).unwrap();
            _ = black_box(sum);
        }],
    );
    pair("fill", [&mut || slice.fill(3.0), &mut || grid.fill(3.0_f32).unwrap()]);
}

/// A sum with several accumulators, which the compiler vectorizes.
fn lanes(values: &[f32]) -> f64 {
    let mut sums = [0.0; 16];
    let mut parts = values.chunks_exact(16);
    for part in &mut parts {
        sums.iter_mut().zip(part).for_each(|(sum, value)| *sum += f64::from(*value));
    }
    sums.iter().sum::<f64>() + parts.remainder().iter().map(|value| f64::from(*value)).sum::<f64>()
}

/// The same over cells.
fn lanes_of(values: &[ReadOnlyCell<f32>]) -> f64 {
    let mut sums = [0.0; 16];
    let mut parts = values.chunks_exact(16);
    for part in &mut parts {
        sums.iter_mut().zip(part).for_each(|(sum, value)| *sum += f64::from(value.get()));
    }
    sums.iter().sum::<f64>() + parts.remainder().iter().map(|value| f64::from(value.get())).sum::<f64>()
}

fn elements() {
    let flags = vec![true; 4 * COUNT];
    let array = flat(HostVec::from(&flags[..]));
    pair(
        "copy of bool, checked",
        [&mut || _ = black_box(flags.clone()), &mut || _ = black_box(array.to_vec::<bool>().unwrap())],
    );
    pair(
        "read bool, checked",
        [&mut || _ = black_box(flags.iter().filter(|flag| **flag).count()), &mut || {
            _ = black_box(array.fold(0, |sum, flag: bool| sum + usize::from(flag)).unwrap());
        }],
    );
    let points: Vec<[f32; 4]> = (0..COUNT).map(|at| [at as f32; 4]).collect();
    let array = flat(HostVec::from(&points[..]));
    let sum = |sum: [u32; 4], point: [f32; 4]| [0, 1, 2, 3].map(|at| bits(sum[at], point[at]));
    pair(
        "fold of four floats",
        [&mut || _ = black_box(points.iter().fold([0; 4], |all, point| sum(all, *point))), &mut || {
            let mut all = [0; 4];
            array.fold((), |(), point: [f32; 4]| all = sum(all, point)).unwrap();
            _ = black_box(all);
        }],
    );
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Flat<T: Element> {
    #[cuda_array(data)]
    values: HostVec<T>,
    len: usize,
}

fn flat<T: Element>(values: HostVec<T>) -> Flat<T> {
    Flat { len: values.len(), values }
}

/// Compares `HostVec` with `Vec`, for 64 MB.
fn vectors() {
    const LEN: usize = 1 << 24;
    let numbers = vec![1.0_f32; LEN];
    pair(
        "HostVec::zeroed",
        [&mut || _ = black_box(vec![0.0_f32; LEN]), &mut || _ = black_box(HostVec::<f32>::zeroed(LEN))],
    );
    pair(
        "HostVec::from",
        [&mut || _ = black_box(numbers.clone()), &mut || _ = black_box(HostVec::from(&numbers[..]))],
    );
    let ramp = || (0..LEN).map(|at| at as f32);
    pair(
        "HostVec, collected",
        [&mut || _ = black_box(ramp().collect::<Vec<_>>()), &mut || {
            _ = black_box(ramp().collect::<HostVec<_>>());
        }],
    );
    // The number of elements is known only at the end.
    let some = || (0..LEN).filter(|at| at % 2 == 0).map(|at| at as f32);
    pair(
        "HostVec, filtered",
        [&mut || _ = black_box(some().collect::<Vec<_>>()), &mut || {
            _ = black_box(some().collect::<HostVec<_>>());
        }],
    );
}

fn threads() {
    let mut grid = LAYOUTS[0].grid();
    let mut other = LAYOUTS[0].grid();
    pair(
        "par_map_inplace, of sqrt",
        [&mut || grid.map_inplace::<f32>(|value| (value.abs() + 1.0).sqrt().ln()).unwrap(), &mut || {
            other.par_map_inplace::<f32>(|value| (value.abs() + 1.0).sqrt().ln()).unwrap();
        }],
    );
}

fn main() {
    println!(
        "{:<26} {:<20} {:>9} {:>9} {:>9} {:>8} {:>8}",
        "milliseconds", "", "slice", "ndarray", "ours", "/slice", "/ndarray"
    );
    LAYOUTS.into_iter().for_each(layout);
    contiguous();
    elements();
    vectors();
    threads();
}
