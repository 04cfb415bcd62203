//! Derived code causes no warning with every lint at level error. `cargo clippy --all-targets` checks this file.
#![deny(
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    nonstandard_style,
    rust_2018_idioms,
    unused,
    let_underscore,
    missing_debug_implementations,
    single_use_lifetimes,
    trivial_casts,
    trivial_numeric_casts,
    unit_bindings,
    unnameable_types,
    unused_import_braces,
    unused_lifetimes,
    unused_qualifications,
    unused_results,
    variant_size_differences,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::absolute_paths,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::default_numeric_fallback,
    clippy::exhaustive_structs,
    clippy::expect_used,
    clippy::impl_trait_in_params,
    clippy::indexing_slicing,
    clippy::min_ident_chars,
    clippy::missing_inline_in_public_items,
    clippy::missing_trait_methods,
    clippy::multiple_inherent_impl,
    clippy::multiple_unsafe_ops_per_block,
    clippy::panic,
    clippy::pattern_type_mismatch,
    clippy::pub_use,
    clippy::question_mark_used,
    clippy::shadow_reuse,
    clippy::shadow_same,
    clippy::shadow_unrelated,
    clippy::single_call_fn,
    clippy::std_instead_of_core,
    clippy::todo,
    clippy::undocumented_unsafe_blocks,
    clippy::unreachable,
    clippy::unwrap_used,
    clippy::wildcard_imports
)]
// These lints must never fire in derived code.
#![forbid(unsafe_op_in_unsafe_fn, private_interfaces, private_bounds, elided_lifetimes_in_paths)]

use core::marker::PhantomData;
use core::ptr::null;

use interop_core::storage::FromImport;
use interop_core::{CudaArray, Device, Element, FromArray, Lease, Storage, StreamHandle};

use crate::support::Foreign;

mod strict {
    #![forbid(unsafe_code)]

    use super::{CudaArray, Element, FromImport, Lease, PhantomData, Storage, StreamHandle};

    #[derive(CudaArray, Debug)]
    #[cuda_array(shape = [_height, width, 1000000, N], order = "C", readonly)]
    pub(super) struct Image<'tag, S, M, const N: usize>
    where
        S: Send,
    {
        #[cuda_array(data)]
        pub(super) pixels: S,
        pub(super) _height: usize,
        pub(super) width: u16,
        #[cuda_array(stream)]
        pub(super) stream: Option<StreamHandle>,
        #[cuda_array(owner, default)]
        pub(super) owner: Option<String>,
        #[cuda_array(default = PhantomData)]
        pub(super) marker: PhantomData<(&'tag (), M)>,
    }

    #[derive(CudaArray, Debug)]
    #[cuda_array(shape = [self.1, self.1])]
    pub(super) struct Tuple(
        #[cuda_array(data)] pub(super) Lease<f32>,
        pub(super) u8,
        #[cuda_array(strides(bytes))] pub(super) Option<[isize; 2]>,
    );

    const LANES: u8 = 4;

    /// A constant in `shape` is an item of its own, even if the struct has no import half that needs it.
    #[derive(CudaArray, Debug)]
    #[cuda_array(shape = [Self::ROWS, LANES], export)]
    pub(super) struct Fixed<'values> {
        #[cuda_array(data)]
        pub(super) values: &'values [f32],
    }

    impl Fixed<'_> {
        const ROWS: i16 = 2;
    }

    #[derive(CudaArray, Debug)]
    #[cuda_array(shape = [Self::ROWS, LANES])]
    pub(super) struct Tile {
        #[cuda_array(data)]
        pub(super) values: Lease<f32>,
    }

    impl Tile {
        const ROWS: u64 = 2;
    }

    /// The derive repeats the bounds that the user states on a parameter.
    #[derive(CudaArray, Debug)]
    #[cuda_array(shape = [len])]
    pub(super) struct Bounded<S: Storage + FromImport> {
        #[cuda_array(data)]
        pub(super) values: S,
        pub(super) len: usize,
    }

    /// The same for `Element`.
    #[derive(Clone, Copy, Debug, Element)]
    #[repr(transparent)]
    pub(super) struct Unit<T: Element>(pub(super) T);

    #[derive(Clone, Copy, Debug, Element)]
    #[repr(C)]
    pub(super) struct Particle<T, M> {
        pub(super) position: [T; 3],
        pub(super) charge: f32,
        pub(super) marker: PhantomData<M>,
    }

    #[derive(Clone, Copy, Debug, Element)]
    #[repr(transparent)]
    pub(super) struct Meters(pub(super) f32);
}

/// A struct whose parts are all deprecated and that allows deprecated items.
mod outdated {
    use super::{CudaArray, Element};

    #[deprecated]
    pub(super) type Buffer = Vec<f32>;

    #[deprecated = "as a whole"]
    #[derive(CudaArray)]
    #[cuda_array(export)]
    #[expect(deprecated, reason = "a field has an old type, and the derived code names it once more")]
    pub(super) struct Samples {
        #[cuda_array(data)]
        pub(super) values: Buffer,
        #[deprecated]
        #[cuda_array(shape)]
        pub(super) shape: [usize; 1],
    }

    #[deprecated]
    #[derive(Clone, Copy, Element)]
    #[repr(C)]
    pub(super) struct Point {
        #[deprecated]
        pub(super) x: f32,
    }
}

/// Names that the naming lints refuse and that the impls repeat.
mod named {
    use super::{CudaArray, PhantomData};

    #[derive(CudaArray)]
    #[cuda_array(shape = [len, lanes])]
    #[expect(nonstandard_style, reason = "the names are those of a C header")]
    pub(super) struct Rows<'Tag, item, const lanes: usize> {
        #[cuda_array(data)]
        pub(super) values: Vec<item>,
        pub(super) len: usize,
        #[cuda_array(default)]
        pub(super) marker: PhantomData<&'Tag ()>,
    }
}

/// A raw pointer under lints against unsafe code, which only the struct allows.
mod promised {
    #![deny(unsafe_code)]

    use interop_core::{CudaArray, Device};

    #[derive(CudaArray)]
    #[cuda_array(export)]
    #[allow(unsafe_code, reason = "the memory is that of the program")]
    #[expect(clippy::allow_attributes, reason = "an `expect` would have to be met on the struct itself")]
    pub(super) struct Raw {
        // SAFETY: the code that makes the struct guarantees that the pointer is valid.
        #[cuda_array(data(unsafe_raw))]
        pub(super) pointer: *const f32,
        #[cuda_array(shape)]
        pub(super) shape: [usize; 1],
        #[cuda_array(device)]
        pub(super) device: Device,
    }
}

#[test]
fn derived_code_is_silent() {
    let image = strict::Image::<'_, Vec<f32>, u8, 2> {
        pixels: vec![],
        _height: 0,
        width: 1,
        stream: None,
        owner: None,
        marker: PhantomData,
    };
    assert_eq!(image.info().map(|info| info.numel()), Ok(0), "{image:?}");
    let (import, _) = Foreign::new(&[0.0_f32; 4], &[2, 2]).send();
    let tuple = strict::Tuple::from_import(import).map(|tuple| (tuple.1, tuple.2));
    assert!(matches!(tuple, Ok((2, Some([8, 4])))), "{tuple:?}");
    assert_eq!((strict::Meters::TYPE.size(), strict::Particle::<f32, u8>::TYPE.size()), (4, 16));
    let bounded = strict::Bounded { values: vec![strict::Unit(0.0_f32)], len: 1 };
    assert_eq!(bounded.info().map(|info| info.numel()), Ok(1), "{bounded:?}");
    assert_eq!((bounded.len, bounded.values.first().map(|unit| unit.0.to_bits())), (1, Some(0)));
    let fixed = strict::Fixed { values: &[0.0; 8] };
    assert_eq!(fixed.info().map(|info| info.shape().to_vec()), Ok(vec![2, 4]));
    let (tile, _) = Foreign::new(&[0.0_f32; 8], &[2, 4]).send();
    assert!(strict::Tile::from_import(tile).is_ok_and(|filled| filled.info().is_ok()));
    let rows = named::Rows::<'_, _, 2> { values: vec![0.0_f32; 6], len: 3, marker: PhantomData };
    assert_eq!(rows.info().map(|info| info.numel()), Ok(6));
    assert_eq!((rows.len, rows.values.len(), rows.marker), (3, 6, PhantomData));
    let raw = promised::Raw { pointer: null(), shape: [0], device: Device::CPU };
    assert_eq!(raw.info().map(|info| info.shape().len()), Ok(1));
    assert_eq!((raw.shape, raw.device, raw.pointer.is_null()), ([0], Device::CPU, true));
}

#[test]
#[expect(deprecated, reason = "to use what was derived")]
fn deprecated_structs_are_silent() {
    let samples = outdated::Samples { values: vec![1.0], shape: [1] };
    assert_eq!(samples.info().map(|info| info.numel()), Ok(1));
    let point = outdated::Point { x: 1.0 };
    assert_eq!((outdated::Point::TYPE.size(), point.x.to_bits()), (4, 1.0_f32.to_bits()));
}
