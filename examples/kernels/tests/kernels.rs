//! Checks that the PTX and the host versions contain the same kernels, and that the host versions compute correctly.
#![expect(unsafe_code, reason = "a storage implements `Storage`")]

use core::ffi::c_void;

use interop_core::{
    CudaArray, Device, HostVec, KernelArrays, KernelView, KernelViewMut, MemoryRegion, Storage,
};
use interop_demo_kernels::host::{self, Host};
use interop_demo_kernels::{
    Arrays, FILL_PTX, MODULES, Module, SCALE_PTX, SUM_PTX, VECTOR_ADD_PTX, blur, elementwise,
};

/// Host memory that reports itself as pinned.
struct Pinned<T>(HostVec<T>);

// SAFETY: as for a `HostVec`, because the kernels of these tests run on the host.
unsafe impl<T: interop_core::Element> Storage for Pinned<T> {
    fn memory(&self) -> interop_core::Result<MemoryRegion> {
        Ok(MemoryRegion { device: Device::CUDA_HOST, ..self.0.memory()? })
    }
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct Array<T> {
    #[cuda_array(data)]
    data: Pinned<T>,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(strides)]
    strides: Option<Vec<isize>>,
}

impl<T: interop_core::Element> Array<T> {
    fn new(items: &[T], shape: &[usize]) -> Self {
        Self { data: Pinned(HostVec::from_slice(items)), shape: shape.to_vec(), strides: None }
    }

    fn strided(items: &[T], shape: &[usize], strides: &[isize]) -> Self {
        Self { strides: Some(strides.to_vec()), ..Self::new(items, shape) }
    }

    fn read<const N: usize>(&self) -> KernelView<'_, T, N> {
        self.kernel_view().expect("pinned memory of this rank")
    }

    fn write<const N: usize>(&mut self) -> KernelViewMut<'_, T, N> {
        self.kernel_view_mut().expect("pinned memory of this rank")
    }

    fn alone<const N: usize>(&mut self) -> Arrays<'_, 1> {
        KernelArrays::new([&self.write::<N>()]).expect("few axes")
    }
}

/// Returns the pointer to an argument.
fn pass<A>(argument: &A) -> *const c_void {
    (&raw const *argument).cast()
}

fn launch(name: &str, grid: u32, threads: u32, params: &[*const c_void]) {
    let kernel = host::find::<Host>(name).expect(name);
    assert_eq!(kernel.sizes.len(), params.len(), "{name}");
    // Every test passes the arguments that the table of kernels lists, over its own arrays.
    (kernel.run)([grid, 1, 1].as_ptr(), [threads, 1, 1].as_ptr(), 0, params.as_ptr());
}

/// The parameter sizes of a kernel, from its PTX: `.param .align 8 .b8 name[24]` or `.param .f64 name`.
fn parameters(module: &Module, name: &str) -> Vec<usize> {
    let (_, rest) = module.ptx.split_once(&format!(".entry {name}(")).expect("the PTX has the kernel");
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
fn every_kernel_has_a_reference_and_no_name_is_lost() {
    for module in MODULES {
        for name in module.kernels() {
            let kernel = host::find::<Host>(name).unwrap_or_else(|| panic!("{name} has no reference"));
            assert_eq!(kernel.sizes, parameters(module, name), "{name}");
        }
    }
    let found: Vec<_> = MODULES.iter().flat_map(Module::kernels).collect();
    let mut expected: Vec<String> =
        ["blur_f32", "blur_u8", "consume", "produce", "spin", "vector_add"].map(String::from).to_vec();
    for stem in ["fill", "scale", "sum"] {
        expected.extend(["f32", "u8"].map(|element| format!("{stem}_{element}")));
    }
    expected.push("sum_f64".into());
    let mut found: Vec<_> = found.into_iter().map(String::from).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    for name in ["", "scale", "scale_", "scale_f16", "scale_f64", "f32", "blur_f32_f32", "sum_f32_1"] {
        assert!(host::find::<Host>(name).is_none(), "{name}");
    }
}

/// Drivers since 535 accept this PTX, for devices since Volta.
#[test]
fn the_ptx_is_old_enough() {
    for Module { name, ptx } in MODULES {
        assert!(ptx.contains("\n.version 8.2\n") && ptx.contains("\n.target sm_70\n"), "{name}");
    }
}

/// Checks that memory is accessed in wide loads and stores, and that no argument is copied to local memory.
#[test]
fn elements_are_loaded_in_wide_pieces() {
    for Module { name, ptx } in MODULES {
        assert!(!ptx.contains(".local"), "{name}");
    }
    assert!(SCALE_PTX.contains("ld.global.v4") && SCALE_PTX.contains("st.global.v4"));
    assert!(VECTOR_ADD_PTX.contains("ld.global.v4") && SUM_PTX.contains("ld.global.v4"));
    assert!(
        FILL_PTX.contains("st.global.v4") && !FILL_PTX.contains("ld.global"),
        "what is filled is not read"
    );
}

#[test]
fn vector_add_adds() {
    let (left, right) = (
        Array::new(&[1.0_f32, 2.0, 3.0], &[3]),
        Array::strided(&[10.0, 0.0, 20.0, 0.0, 30.0_f32], &[3], &[2]),
    );
    let mut sum = Array::new(&[0.0_f32; 3], &[3]);
    let arrays: Arrays<'_, 3> =
        KernelArrays::new([&sum.write::<1>(), &left.read::<1>(), &right.read::<1>()]).unwrap();
    launch("vector_add", 1, 32, &[pass(&arrays)]);
    assert_eq!(sum.to_vec::<f32>().unwrap(), [11.0, 22.0, 33.0]);
}

#[test]
fn scale_rounds_towards_zero_and_to_the_limits() {
    let mut bytes = Array::strided(&[1_u8, 9, 3, 9, 200, 9], &[3, 1], &[2, 1]);
    launch("scale_u8", 1, 32, &[pass(&bytes.alone::<2>()), pass(&1.5_f64)]);
    assert_eq!(bytes.to_vec::<u8>().unwrap(), [1, 4, 255]);
    assert_eq!(
        bytes.data.0.as_mut_slice().unwrap(),
        [1, 9, 4, 9, 255, 9],
        "nothing between the elements is touched"
    );
    launch("scale_u8", 1, 32, &[pass(&bytes.alone::<2>()), pass(&-0.5_f64)]);
    assert_eq!(bytes.to_vec::<u8>().unwrap(), [0, 0, 0]);
    let mut floats = Array::new(&[-3.0_f32, f32::MAX], &[2]);
    launch("scale_f32", 1, 32, &[pass(&floats.alone::<1>()), pass(&-1.5_f64)]);
    assert_eq!(floats.to_vec::<f32>().unwrap(), [4.5, f32::NEG_INFINITY]);
    let mut bytes = Array::new(&[7_u8, 0], &[2]);
    launch("scale_u8", 1, 32, &[pass(&bytes.alone::<1>()), pass(&f64::NAN)]);
    assert_eq!(bytes.to_vec::<u8>().unwrap(), [0, 0]);
}

#[test]
fn fill_fills_the_elements_alone() {
    let mut array = Array::strided(&[0.0_f32; 9], &[2, 2, 1, 1], &[4, 2, 1, 1]);
    launch("fill_f32", 1, 32, &[pass(&array.alone::<4>()), pass(&7.0_f32)]);
    let expected = [7.0, 0.0, 7.0, 0.0, 7.0, 0.0, 7.0, 0.0, 0.0];
    assert_eq!(array.data.0.as_mut_slice().unwrap(), expected);
}

#[test]
fn sum_leaves_a_part_for_each_block() {
    let items: Vec<f32> = (0..100_u8).map(f32::from).collect();
    let mut array = Array::new(&items, &[10, 10]);
    let mut parts = Array::new(&[-1.0_f64; 3], &[3]);
    launch("sum_f32", 3, 16, &[pass(&array.alone::<2>()), pass(&parts.write::<1>())]);
    assert!(parts.to_vec::<f64>().unwrap().iter().all(|part| *part > 0.0));
    let mut sum = Array::new(&[-1.0_f64], &[1]);
    launch("sum_f64", 1, 32, &[pass(&parts.alone::<1>()), pass(&sum.write::<1>())]);
    assert_eq!(sum.to_vec::<f64>().unwrap(), [4950.0]);
}

#[test]
fn blur_repeats_the_edges() {
    let image = Array::new(&[0_u8, 90, 0, 0, 0, 0], &[2, 3, 1]);
    let mut blurred = Array::new(&[7_u8; 6], &[2, 3, 1]);
    let (from, to) = (image.read::<3>(), blurred.write::<3>());
    launch("blur_u8", 1, 32, &[pass(&from), pass(&to)]);
    // The row above the first row is the first row itself, so its 90 counts twice there.
    assert_eq!(blurred.to_vec::<u8>().unwrap(), [20, 20, 20, 10, 10, 10]);
    let channels = Array::new(&[1.0_f32, 100.0, 2.0, 200.0, 3.0, 300.0], &[1, 3, 2]);
    let mut blurred = Array::new(&[0.0_f32; 6], &[1, 3, 2]);
    let (from, to) = (channels.read::<3>(), blurred.write::<3>());
    launch("blur_f32", 1, 32, &[pass(&from), pass(&to)]);
    for (found, expected) in blurred.to_vec::<f32>().unwrap().iter().zip([4.0, 400.0, 6.0, 600.0, 8.0, 800.0])
    {
        assert!((found * 3.0 - expected).abs() < 1e-3, "{found} is not a third of {expected}");
    }
}

#[test]
fn a_consumer_counts_what_is_missing() {
    let mut values = Array::new(&[0_u32; 5], &[5]);
    launch("spin", 1, 1, &[pass(&1000_u64)]);
    launch("produce", 1, 32, &[pass(&values.write::<1>()), pass(&(u32::MAX - 1))]);
    assert_eq!(values.to_vec::<u32>().unwrap(), [u32::MAX - 1, u32::MAX, 0, 1, 2]);
    let mut mismatches = Array::new(&[10_u64], &[]);
    for (value, expected) in [(u32::MAX - 1, 10), (u32::MAX, 15)] {
        let (from, count) = (values.read::<1>(), mismatches.write::<0>());
        launch("consume", 1, 32, &[pass(&from), pass(&value), pass(&count)]);
        assert_eq!(mismatches.to_vec::<u64>().unwrap(), [expected]);
    }
}

#[test]
fn launches_cover_the_array_and_fit_the_device() {
    assert_eq!(elementwise(1024).grid, (1, 1, 1));
    assert_eq!(elementwise(1025).grid, (2, 1, 1));
    assert_eq!(blur(0, 0, 0, 1).grid, (1, 1, 1));
    let huge = blur(10_000_000, usize::MAX / 4, 4, 1);
    assert_eq!(huge.grid, (0x7FFF_FFFF, 65_535, 1));
    // 30 of 32 lanes of 16 bytes, in 4 warps.
    assert_eq!(blur(12, 30 * 16 * 4, 1, 1).grid, (1, 1, 1));
    assert_eq!(blur(13, 30 * 16 * 4 + 1, 1, 1).grid, (2, 2, 1));
}
