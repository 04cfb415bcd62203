//! Checks what the kernels compute, on the CPU, and what their PTX looks like.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "small numbers, of which all sums are exact"
)]

use interop_demo_kernels::host::{self, Host};
use interop_demo_kernels::kernels::{
    blur_f32, blur_pixels, blur_u8, fill_f32, histogram_f32, scale_f32, scale_packs, scale_row, scan_blocks,
    sum_f32, vector_add,
};
use interop_demo_kernels::{KERNELS_PTX, ORDER_PTX, blur_size, entries};
use interop_kernel::{Elementwise, LaunchSize, View, ViewMut};

const SMALL: LaunchSize = LaunchSize { grid: (2, 1, 1), block: (32, 1, 1) };

/// The parameter sizes of a kernel, from its PTX: `.param .align 8 .b8 name[24]` or `.param .f64 name`.
fn parameters(ptx: &str, name: &str) -> Vec<usize> {
    let (_, rest) = ptx.split_once(&format!(".entry {name}(")).expect("the PTX has the kernel");
    let (list, _) = rest.split_once(')').expect("a list of parameters ends");
    let size = |parameter: &str| {
        let words: Vec<_> = parameter.split_whitespace().collect();
        let count = parameter.split_once('[').and_then(|(_, count)| count.trim_end_matches(']').parse().ok());
        let bits = words.iter().find_map(|word| word.strip_prefix(['.'])?.get(1..)?.parse::<usize>().ok());
        bits.expect("a type of so many bits") / 8 * count.unwrap_or(1)
    };
    list.split(',').map(|parameter| size(parameter.trim())).collect()
}

#[test]
fn kernels_of_the_ptx_and_of_the_host_are_the_same() {
    for ptx in [KERNELS_PTX, ORDER_PTX] {
        for name in entries(ptx) {
            let kernel = host::find::<Host>(name).unwrap_or_else(|| panic!("the host has no {name}"));
            assert_eq!(kernel.sizes, parameters(ptx, name), "{name}");
        }
    }
    let expected = [
        "blur_f32",
        "blur_pixels",
        "blur_u8",
        "count_elements",
        "fill_f32",
        "histogram_f32",
        "scale_f32",
        "scale_packs",
        "scale_row",
        "scan_blocks",
        "sum_f32",
        "vector_add",
    ];
    assert_eq!(entries(KERNELS_PTX).collect::<Vec<_>>(), expected);
    for name in ["", "scale", "scale_", "scale_f16", "blur_f32_f32"] {
        assert!(host::find::<Host>(name).is_none(), "{name}");
    }
}

/// Drivers since 535 accept this PTX, for devices since Volta.
#[test]
fn ptx_is_old_enough() {
    for ptx in [KERNELS_PTX, ORDER_PTX] {
        let version = ptx.lines().find_map(|line| line.strip_prefix(".version ")).expect("a version");
        assert!(version.parse::<f32>().expect("a number") <= 8.2, "{version}");
        assert!(ptx.contains("\n.target sm_70\n"));
    }
}

/// Checks that memory is accessed in wide loads and stores, that no argument is copied to local memory, and that no message of a
/// panic is linked.
#[test]
fn ptx_is_what_a_device_needs() {
    assert!(!KERNELS_PTX.contains(".local") && !KERNELS_PTX.contains("call"), "local memory, or a call");
    let text = |name: &str| {
        let (_, rest) = KERNELS_PTX.split_once(&format!(".entry {name}(")).expect("the PTX has the kernel");
        rest.split(".entry").next().expect("its text").to_owned()
    };
    for name in ["scale_f32", "scale_packs", "sum_f32", "vector_add"] {
        let is_wide = text(name).contains("ld.v") || text(name).contains("ld.b64 \t%rd");
        assert!(is_wide, "{name}");
    }
    for kind in ["u32", "s32", "u64", "f32", "f64"] {
        assert!(text("count_elements").contains(&format!("atom.global.add.{kind} ")), "{kind}");
    }
    assert!(text("fill_f32").contains("st.v4."));
    let reads = |name: &str| {
        text(name).lines().any(|line| line.trim_start().starts_with("ld.b") || line.contains("ld.v"))
    };
    assert!(reads("scale_f32") && !reads("fill_f32"), "what is filled is not read");
}

#[test]
fn vector_add_adds() {
    let mut sum = [0.0; 3];
    let arrays = Elementwise::new((
        ViewMut::<_, 1>::new(&mut sum, [3]),
        View::new(&[1.0, 2.0, 3.0], [3]),
        View::strided(&[10.0, 0.0, 20.0, 0.0, 30.0], 0, [3], [2]),
    ));
    vector_add::run(SMALL, arrays.unwrap());
    assert_eq!(sum, [11.0, 22.0, 33.0]);
}

#[test]
fn scale_touches_nothing_between_the_elements() {
    let mut floats = [-3.0_f32, 9.0, f32::MAX, 9.0, 0.5, 9.0];
    let array = Elementwise::new((ViewMut::<_, 2>::strided(&mut floats, 0, [3, 1], [2, 1]),));
    scale_f32::run(SMALL, array.unwrap(), -1.5);
    assert_eq!(floats, [4.5, 9.0, f32::NEG_INFINITY, 9.0, -0.75, 9.0]);
}

/// Rows that end in the middle of a pack, and rows whose elements do not lie next to each other.
#[test]
fn rows_are_scaled_by_elements_and_by_packs() {
    for (len, stride) in [(1, 1), (4, 1), (11, 1), (5, 2)] {
        let mut rows = [[1.0_f32; 12]; 2];
        let [elements, packs] = &mut rows;
        scale_row::run(SMALL, ViewMut::strided(elements, 1, [len], [stride]), 3.0);
        scale_packs::run(SMALL, ViewMut::strided(packs, 1, [len], [stride]), 3.0);
        let is_scaled = |number: usize| {
            number % stride as usize == 1 % stride as usize && number >= 1 && number <= len * stride as usize
        };
        let expected: [f32; 12] = core::array::from_fn(|number| if is_scaled(number) { 3.0 } else { 1.0 });
        assert_eq!(rows, [expected; 2], "{len} {stride}");
    }
}

#[test]
fn fill_fills_the_elements_alone() {
    let mut array = [0.0_f32; 9];
    let view = ViewMut::<_, 4>::strided(&mut array, 0, [2, 2, 1, 1], [4, 2, 1, 1]);
    fill_f32::run(SMALL, Elementwise::new((view,)).unwrap(), 7.0);
    assert_eq!(array, [7.0, 0.0, 7.0, 0.0, 7.0, 0.0, 7.0, 0.0, 0.0]);
}

#[test]
fn sums_of_a_block_stay_in_it() {
    let numbers: Vec<f32> = (1..=70).map(|number| number as f32).collect();
    let mut sums = [0.0; 70];
    let size = LaunchSize { grid: (3, 1, 1), block: (32, 1, 1) };
    scan_blocks::run(size, View::new(&numbers, [70]), ViewMut::new(&mut sums, [70]));
    let expected = numbers.chunks(32).flat_map(|block| {
        block.iter().scan(0.0, |sum, number| {
            *sum += number;
            Some(*sum)
        })
    });
    assert!(expected.eq(sums), "{sums:?}");
}

#[test]
fn sum_leaves_a_part_for_each_block() {
    let items: Vec<f32> = (0..100_u8).map(f32::from).collect();
    let mut parts = [-1.0; 3];
    let array = Elementwise::new((View::new(&items, [10, 10]),)).unwrap();
    let size = LaunchSize { grid: (3, 1, 1), block: (32, 1, 1) };
    sum_f32::run(size, array, ViewMut::new(&mut parts, [3]));
    assert!(!parts.contains(&-1.0), "{parts:?}");
    assert_eq!(parts.iter().sum::<f64>(), 4950.0);
}

#[test]
fn blur_repeats_the_edges() {
    let mut blurred = [7_u8; 6];
    let (from, to) = (View::new(&[0, 90, 0, 0, 0, 0], [2, 3, 1]), ViewMut::new(&mut blurred, [2, 3, 1]));
    blur_u8::run(SMALL, from, to);
    // The row above the first row is the first row itself, so its 90 counts twice there.
    assert_eq!(blurred, [20, 20, 20, 10, 10, 10]);
    let mut blurred = [0.0_f32; 6];
    let from = View::new(&[1.0, 100.0, 2.0, 200.0, 3.0, 300.0], [1, 3, 2]);
    blur_f32::run(SMALL, from, ViewMut::new(&mut blurred, [1, 3, 2]));
    for (found, expected) in blurred.iter().zip([4.0, 400.0, 6.0, 600.0, 8.0, 800.0]) {
        assert!((found * 3.0 - expected).abs() < 1e-3, "{found} is not a third of {expected}");
    }
}

/// Tiles that are cut off, and more tiles than threads.
#[test]
fn blur_covers_every_pixel() {
    let (height, width) = (37, 5);
    let from: Vec<f32> = (0..height * width).map(|number| (number % 11) as f32).collect();
    let mut blurred = vec![-1.0; height * width];
    let shape = [height, width, 1];
    let mut by_pixel = blurred.clone();
    blur_pixels::run(SMALL, View::new(&from, shape), ViewMut::new(&mut by_pixel, shape));
    for size in [blur_size(height, width, 1), LaunchSize { grid: (1, 1, 1), block: (2, 1, 1) }] {
        blurred.fill(-1.0);
        blur_f32::run(size, View::new(&from, shape), ViewMut::new(&mut blurred, shape));
        for y in 0..height {
            for x in 0..width {
                let at = |y: usize, x: usize| from[y.min(height - 1) * width + x.min(width - 1)];
                let rows = [y.saturating_sub(1), y, y + 1];
                let columns = [x.saturating_sub(1), x, x + 1];
                let sum: f32 = rows.iter().flat_map(|y| columns.map(|x| at(*y, x))).sum();
                for found in [&blurred, &by_pixel] {
                    assert!((found[y * width + x] - sum / 9.0).abs() < 1e-4, "{y} {x}");
                }
            }
        }
    }
}

#[test]
fn empty_arrays_have_nothing_to_do() {
    let none: [f32; 0] = [];
    blur_f32::run(blur_size(0, 3, 1), View::new(&none, [0, 3, 1]), ViewMut::new(&mut [], [0, 3, 1]));
    fill_f32::run(SMALL, Elementwise::new((ViewMut::<_, 2>::new(&mut [], [4, 0]),)).unwrap(), 1.0);
    let (mut sum, none) = ([-1.0], Elementwise::new((View::new(&none, [0]),)).unwrap());
    sum_f32::run(LaunchSize { grid: (1, 1, 1), block: (32, 1, 1) }, none, ViewMut::new(&mut sum, [1]));
    assert_eq!(sum, [0.0]);
}

#[test]
fn histogram_counts_each_element_once() {
    let elements = [0.5, -3.0, 0.0, 2.9, 1.0, 99.0, f32::NAN, 1.5];
    let count = |counts: &mut [u32]| {
        let array = Elementwise::new((View::strided(&elements, 7, [2, 4], [-1, -2]),)).unwrap();
        let bins = counts.len();
        histogram_f32::run(SMALL, array, 0.0, 1.0, ViewMut::new(counts, [bins]));
    };
    let mut counts = [10, 0, 0];
    count(&mut counts);
    assert_eq!(counts, [14, 2, 2], "NaN is in the first bin");
    count(&mut []);
}
