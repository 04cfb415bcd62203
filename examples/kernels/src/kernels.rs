//! Kernels in Rust.
#![allow(unsafe_code, reason = "the threads of a block work together")]

use core::ops::Add;

use interop_kernel::{
    Atomic, BlockThread, Blocks, Elementwise, In, KernelElement, Out, Packs, Thread, Tiles, View, ViewMut,
    kernel,
};

/// Adds two arrays.
#[kernel]
pub fn vector_add(thread: Thread<'_>, arrays: Elementwise<'_, (Out<f32>, In<f32>, In<f32>)>) {
    arrays.map(&thread, |left, right| left + right);
}

/// Multiplies in place. The product is rounded once.
#[kernel]
#[expect(clippy::cast_possible_truncation, reason = "rounds")]
pub fn scale_f32(thread: Thread<'_>, array: Elementwise<'_, (Out<f32>,)>, factor: f64) {
    array.map_inplace(&thread, |element| (f64::from(element) * factor) as f32);
}

/// Sets every element to a value.
#[kernel]
pub fn fill_f32(thread: Thread<'_>, array: Elementwise<'_, (Out<f32>,)>, value: f32) {
    array.map(&thread, || value);
}

/// Leaves the sum of each block's part of an array in `parts`. The same grid gives the same bits every time.
#[kernel]
pub fn sum_f32(
    thread: BlockThread<'_>,
    array: Elementwise<'_, (In<f32>,)>,
    mut parts: ViewMut<'_, f64, 1, Blocks>,
) {
    let mut sum = 0.0;
    array.for_each(&thread, |element| sum += f64::from(element));
    // SAFETY: all threads of the block get here, once; blocks have 256 threads.
    let sum = unsafe { thread.sum_of_block(sum) };
    if let Some(at) = thread.of_block(parts.shape()) {
        parts.set(at, sum);
    }
}

/// The rows of a tile. With more rows, fewer are read twice where tiles meet; with fewer, there is work for more threads.
pub const ROWS: usize = 16;

/// The mean of the 3 × 3 neighbourhood of every pixel of an image of height × width × channels.
#[kernel(same_shape(from, to))]
pub fn blur_f32(thread: Thread<'_>, from: View<'_, f32, 3>, to: ViewMut<'_, f32, 3, Tiles<ROWS>>) {
    blur(&thread, from, to, |pixel| pixel, |sum| sum * (1.0 / 9.0));
}

/// As [`blur_f32()`], rounded to the nearest byte.
#[kernel(same_shape(from, to))]
#[expect(clippy::cast_possible_truncation, reason = "a mean of bytes is a byte")]
pub fn blur_u8(thread: Thread<'_>, from: View<'_, u8, 3>, to: ViewMut<'_, u8, 3, Tiles<ROWS>>) {
    blur(&thread, from, to, u32::from, |sum| ((sum + 4) / 9) as u8);
}

/// As [`blur_f32()`], one pixel at a time: shorter, and each element is loaded nine times.
#[kernel(same_shape(from, to))]
#[expect(clippy::cast_possible_wrap, reason = "extents are below 2^63")]
pub fn blur_pixels(thread: Thread<'_>, from: View<'_, f32, 3>, mut to: ViewMut<'_, f32, 3>) {
    for at in thread.elements(to.shape()) {
        let [y, x, channel] = at.at().map(|index| index as isize);
        let mut sum = 0.0;
        // `-1..=1` would not be unrolled.
        for dy in -1..2 {
            for dx in -1..2 {
                sum += from.nearest([y + dy, x + dx, channel]);
            }
        }
        to.set(at, sum * (1.0 / 9.0));
    }
}

/// Multiplies a row in place, one element at a time.
#[kernel]
pub fn scale_row(thread: Thread<'_>, mut row: ViewMut<'_, f32, 1>, factor: f32) {
    for at in thread.elements(row.shape()) {
        row.set(at, row.get(at) * factor);
    }
}

/// Multiplies a row in place, 16 bytes at a time.
#[kernel]
pub fn scale_packs(thread: Thread<'_>, mut row: ViewMut<'_, f32, 1, Packs<4>>, factor: f32) {
    for at in thread.packs(row.shape()) {
        row.set_pack(at, row.pack(at, 0.0).map(|element| element * factor));
    }
}

/// Counts the elements of each bin. Bin 0 begins at `first`, and a bin has the width 1 / `bins_per_unit`. What is below the first bin or
/// above the last one is counted in that bin.
#[kernel]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounds and saturates")]
pub fn histogram_f32(
    thread: Thread<'_>,
    array: Elementwise<'_, (In<f32>,)>,
    first: f32,
    bins_per_unit: f32,
    counts: ViewMut<'_, u32, 1, Atomic>,
) {
    let Some(last) = counts.shape()[0].checked_sub(1) else { return };
    array.for_each(&thread, |element| {
        let bin = ((element - first) * bins_per_unit) as u32;
        counts.add([last.min(bin as usize)], 1);
    });
}

/// Adds to a number of each type to which threads can add, once for each element of `before`, and leaves there what the first number
/// was: each value once.
#[kernel]
pub fn count_elements(
    thread: Thread<'_>,
    unsigned: ViewMut<'_, u32, 0, Atomic>,
    signed: ViewMut<'_, i32, 0, Atomic>,
    large: ViewMut<'_, u64, 0, Atomic>,
    large_signed: ViewMut<'_, i64, 0, Atomic>,
    floats: ViewMut<'_, f32, 0, Atomic>,
    doubles: ViewMut<'_, f64, 0, Atomic>,
    mut before: ViewMut<'_, u32, 1>,
) {
    for at in thread.elements(before.shape()) {
        before.set(at, unsigned.add([], 1));
        signed.add([], -1);
        large.add([], 1);
        large_signed.add([], -1);
        floats.add([], 1.0);
        doubles.add([], 0.5);
    }
}

/// Adds to each number those before it in its block. The grid has a thread for each number.
#[kernel(same_shape(numbers, sums))]
pub fn scan_blocks(mut thread: BlockThread<'_>, numbers: View<'_, f32, 1>, mut sums: ViewMut<'_, f32, 1>) {
    let (own, mut distance) = (thread.number_in_block(), 1);
    let mut sum = thread.elements(numbers.shape()).next().map_or(0.0, |at| numbers.get(at));
    while distance < thread.block_size() {
        // SAFETY: all threads of the block make the same turns.
        let shared = unsafe { thread.share(sum) };
        if own >= distance {
            sum += shared.get(own - distance);
        }
        distance *= 2;
    }
    if let Some(at) = thread.elements(sums.shape()).next() {
        sums.set(at, sum);
    }
}

/// Walks down tiles, and keeps the sums of two rows while it reads the next one: an element is loaded three times, not nine.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a part of kernels")]
#[expect(clippy::cast_possible_wrap, reason = "extents are below 2^63")]
fn blur<T: KernelElement, S: Copy + Add<Output = S>>(
    thread: &Thread<'_>,
    from: View<'_, T, 3>,
    mut to: ViewMut<'_, T, 3, Tiles<ROWS>>,
    widen: impl Fn(T) -> S,
    mean: impl Fn(S) -> T,
) {
    for tile in thread.tiles(to.shape()) {
        let [top, x, channel] = tile.at().map(|index| index as isize);
        let row = |y| {
            let pixel = |x| widen(from.nearest([y, x, channel]));
            pixel(x - 1) + pixel(x) + pixel(x + 1)
        };
        let (mut above, mut here) = (row(top - 1), row(top));
        for at in tile.rows() {
            let below = row(at.at()[0] as isize + 1);
            to.set(at, mean(above + here + below));
            (above, here) = (here, below);
        }
    }
}
