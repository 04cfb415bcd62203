//! `shape = [...]`: extents from fields, literals, const generics and constants, in both directions.

use interop_core::{CudaArray, ErrorKind, FromArray, Lease};

use crate::support::{Foreign, count};

#[derive(CudaArray)]
#[cuda_array(shape = [height, self.width, 3])]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: u8,
}

#[derive(CudaArray)]
#[cuda_array(shape = [n, n, 2usize, n])]
struct Cube {
    #[cuda_array(data)]
    cells: Vec<f32>,
    n: i16,
}

#[derive(CudaArray)]
#[cuda_array(shape = [rows, COLUMNS])]
struct Table<const COLUMNS: usize> {
    #[cuda_array(data)]
    cells: Lease<f32>,
    rows: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [])]
struct Scalar {
    #[cuda_array(data)]
    value: Vec<f32>,
}

#[derive(CudaArray, Debug)]
#[cuda_array(shape = [self.1, 2, self.2])]
struct Tuple(#[cuda_array(data)] Vec<f32>, usize, u64, #[cuda_array(default = "new".into())] String);

#[derive(CudaArray)]
#[cuda_array(shape = [r#type, self.r#in, r#while,])]
struct RawNames {
    #[cuda_array(data)]
    r#data: Vec<f32>,
    r#type: usize,
    r#in: usize,
    r#while: usize,
}

#[test]
fn fields_and_literals_make_the_shape() {
    let image = Image { pixels: count(24), height: 2, width: 4 };
    assert_eq!(image.info().unwrap().shape(), [2, 4, 3]);
    assert_eq!(image.info().unwrap().strides(), [12, 3, 1]);
}

#[test]
fn an_import_fills_the_fields() {
    let (import, receipt) = Foreign::new(&count(24), &[4, 2, 3]).send();
    let image = Image::from_import(import).unwrap();
    assert_eq!((image.height, image.width), (4, 2));
    assert_eq!(image.pixels, count(24));
    assert_eq!(receipt.releases(), 1);
}

#[test]
fn an_import_is_compared_with_the_literals() {
    let (import, receipt) = Foreign::new(&count(24), &[3, 2, 4]).send();
    let refused = Image::from_import(import).err().unwrap();
    assert_eq!(refused.error.kind(), ErrorKind::Shape);
    assert_eq!(refused.error.location(), "shape[2]");
    assert_eq!(receipt.releases(), 0);
}

#[test]
fn the_number_of_extents_is_the_rank() {
    let (import, _) = Foreign::new(&count(24), &[8, 3]).send();
    assert_eq!(Image::from_import(import).err().unwrap().error.kind(), ErrorKind::Rank);
}

#[test]
fn an_extent_beyond_its_field_is_refused_by_name() {
    let (import, receipt) = Foreign::new(&vec![0.0_f32; 900], &[1, 300, 3]).send();
    let refused = Image::from_import(import).err().unwrap();
    assert_eq!(refused.error.kind(), ErrorKind::Overflow);
    assert_eq!(refused.error.location(), "width");
    assert_eq!(receipt.releases(), 0);
}

#[test]
fn a_negative_extent_is_refused() {
    let error = Cube { cells: count(8), n: -2 }.info().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
}

#[test]
fn a_field_named_twice_is_two_equal_extents() {
    let cube = Cube { cells: count(16), n: 2 };
    assert_eq!(cube.info().unwrap().shape(), [2, 2, 2, 2]);
    let (import, _) = Foreign::new(&count(54), &[3, 3, 2, 3]).send();
    assert_eq!(Cube::from_import(import).unwrap().n, 3);
    for shape in [[3, 2, 2, 3], [3, 3, 2, 2]] {
        let (import, receipt) = Foreign::new(&count(54), &shape).send();
        assert_eq!(Cube::from_import(import).err().unwrap().error.kind(), ErrorKind::Shape);
        assert_eq!(receipt.releases(), 1, "the refused import was dropped");
    }
}

#[test]
fn const_generics_are_extents() {
    let (import, receipt) = Foreign::new(&count(6), &[2, 3]).send();
    let refused = Table::<4>::from_import(import).err().unwrap();
    assert_eq!(refused.error.kind(), ErrorKind::Shape);
    let table = Table::<3>::from_import(*refused.value).unwrap();
    assert_eq!(table.rows, 2);
    assert_eq!(table.info().unwrap().shape(), [2, 3]);
    assert_eq!(table.info().unwrap().address(), receipt.address);
    drop(table.cells);
    assert_eq!(receipt.releases(), 1);
}

mod sizes {
    pub(super) const LANES: u8 = 2;
}

const SIDES: i64 = 3;

/// A trait with an associated constant.
trait Tile {
    const SIDE: usize;
}

/// Each way to name a constant, with each integer type.
#[derive(CudaArray)]
#[cuda_array(shape = [SIDES, sizes::LANES, Self::DEPTH, <Self as Tile>::SIDE, BITS, rows])]
struct Constants<const BITS: u32> {
    #[cuda_array(data)]
    cells: Lease<f32>,
    rows: usize,
}

impl<const BITS: u32> Constants<BITS> {
    const DEPTH: u16 = 1;
}

impl<const BITS: u32> Tile for Constants<BITS> {
    const SIDE: usize = 2;
}

#[test]
fn constants_are_extents() {
    let shape = [3, 2, 1, 2, 4, 1];
    for axis in 0..5 {
        let mut other = shape;
        other[axis] += 1;
        let (import, _) = Foreign::new(&count(200), &other).send();
        let refused = Constants::<4>::from_import(import).err().unwrap();
        assert_eq!(
            (refused.error.kind(), refused.error.location()),
            (ErrorKind::Shape, &*format!("shape[{axis}]"))
        );
    }
    let (import, receipt) = Foreign::new(&count(48), &shape).send();
    let constants = Constants::<4>::from_import(import).unwrap();
    assert_eq!((constants.rows, constants.info().unwrap().address()), (1, receipt.address));
    assert_eq!(constants.info().unwrap().shape(), [3, 2, 1, 2, 4, 1]);
    drop(constants.cells);
    assert_eq!(receipt.releases(), 1);
}

/// Such constants are evaluated in an item next to the struct and not in its impls, so `Self` is replaced there.
#[test]
fn constants_of_a_struct_without_parameters_are_extents() {
    #[derive(CudaArray)]
    #[cuda_array(shape = [r#in, Self::DEPTH, <Self as Tile>::SIDE, SIDES, u8::MIN])]
    #[allow(non_camel_case_types, reason = "the name is one that Rust keeps for itself")]
    struct r#struct {
        #[cuda_array(data)]
        cells: Vec<f32>,
        r#in: usize,
    }

    impl r#struct {
        const DEPTH: i16 = 4;
    }

    impl Tile for r#struct {
        const SIDE: usize = 5;
    }

    let info = r#struct { cells: vec![], r#in: 2 }.info().unwrap();
    assert_eq!(info.shape(), [2, 4, 5, 3, 0]);
    let (import, _) = Foreign::new(&[0.0_f32; 0], &[2, 4, 5, 3, 0]).send();
    assert_eq!(r#struct::from_import(import).unwrap().r#in, 2);
    let (import, _) = Foreign::new(&[0.0_f32; 0], &[2, 4, 6, 3, 0]).send();
    assert_eq!(r#struct::from_import(import).err().unwrap().error.location(), "shape[2]");
}

#[test]
fn constants_of_a_struct_that_borrows_are_extents() {
    #[derive(CudaArray)]
    #[cuda_array(shape = [Self::ROWS, Borrowed::ROWS, SIDES], export)]
    struct Borrowed<'a> {
        #[cuda_array(data)]
        cells: &'a [f32],
    }

    impl Borrowed<'_> {
        const ROWS: u8 = 2;
    }

    assert_eq!(Borrowed { cells: &count(12) }.info().unwrap().shape(), [2, 2, 3]);
}

/// If the field cannot be meant, or is in the list itself, its name in capitals refers to a constant.
#[test]
fn a_constant_may_have_the_name_of_a_field_in_capitals() {
    const N: usize = 2;
    const ROWS: u8 = 3;

    #[derive(CudaArray)]
    #[cuda_array(shape = [n, N, ROWS])]
    struct Samples {
        #[cuda_array(data)]
        cells: Vec<f32>,
        n: usize,
        #[cuda_array(default)]
        rows: u8,
    }

    let (import, _) = Foreign::new(&count(6), &[1, 2, 3]).send();
    let samples = Samples::from_import(import).unwrap();
    assert_eq!((samples.n, samples.rows, samples.cells.len()), (1, 0, 6));
    assert_eq!(samples.info().unwrap().shape(), [1, 2, 3]);
}

#[test]
fn a_constant_below_zero_is_refused() {
    #[derive(CudaArray)]
    #[cuda_array(shape = [BELOW])]
    struct Below<const BELOW: i8> {
        #[cuda_array(data)]
        cells: Vec<f32>,
    }

    assert_eq!(Below::<-1> { cells: vec![] }.info().unwrap_err().kind(), ErrorKind::Shape);
    let (import, receipt) = Foreign::new(&count(1), &[1]).send();
    let refused = Below::<-1>::from_import(import).err().unwrap();
    assert_eq!((refused.error.kind(), refused.error.location()), (ErrorKind::Shape, "shape[0]"));
    assert_eq!((refused.error.found(), refused.error.allowed()), ("-1 in the struct", "0 or greater"));
    assert_eq!(receipt.releases(), 0);
    assert_eq!(Below::<1>::from_import(*refused.value).unwrap().cells, [0.0]);
}

#[test]
fn no_extents_are_an_array_of_one_element() {
    let scalar = Scalar { value: vec![7.0] };
    let info = scalar.info().unwrap();
    assert_eq!((info.shape().len(), info.numel()), (0, 1));
    let (import, _) = Foreign::new(&[7.0_f32], &[]).send();
    assert_eq!(Scalar::from_import(import).unwrap().value, [7.0]);
    let (import, _) = Foreign::new(&[7.0_f32], &[1]).send();
    assert_eq!(Scalar::from_import(import).err().unwrap().error.kind(), ErrorKind::Rank);
}

#[test]
fn tuple_structs_have_numbers_for_names() {
    let tuple = Tuple(count(12), 3, 2, String::new());
    assert_eq!(tuple.info().unwrap().shape(), [3, 2, 2]);
    let (import, _) = Foreign::new(&count(4), &[1, 2, 2]).send();
    let tuple = Tuple::from_import(import).unwrap();
    assert_eq!((tuple.1, tuple.2, tuple.3.as_str()), (1, 2, "new"));
    assert_eq!(tuple.0, count(4));
}

#[test]
fn keywords_are_names_of_fields() {
    let names = RawNames { r#data: count(6), r#type: 1, r#in: 2, r#while: 3 };
    assert_eq!(names.info().unwrap().shape(), [1, 2, 3]);
    let (import, _) = Foreign::new(&count(6), &[3, 2, 1]).send();
    let names = RawNames::from_import(import).unwrap();
    assert_eq!((names.r#type, names.r#in, names.r#while), (3, 2, 1));
}

/// An export can compute extents from any fields.
#[derive(Debug, CudaArray)]
#[cuda_array(shape = [self.grid.rows, 1 << self.bits, self.sizes[0], self.last(), 1], export)]
struct Computed {
    #[cuda_array(data)]
    cells: Vec<f32>,
    grid: Grid,
    bits: u32,
    sizes: [i64; 2],
}

#[derive(Debug)]
struct Grid {
    rows: u8,
}

impl Computed {
    fn last(&self) -> Option<usize> {
        self.cells.len().checked_div(usize::from(self.grid.rows) * 12)
    }
}

#[test]
fn expressions_are_extents_of_an_export() {
    let computed =
        |rows, first| Computed { cells: count(24), grid: Grid { rows }, bits: 2, sizes: [first, 0] };
    assert_eq!(computed(1, 3).info().unwrap().shape(), [1, 4, 3, 2, 1]);
    let refused = |array: Computed| array.into_dlpack().unwrap_err();
    let none = refused(computed(0, 3));
    assert_eq!(none.error.to_string(), "`shape[3]`: found `None` from `self.last()`, allowed: an extent");
    assert_eq!(none.value.bits, 2);
    assert_eq!(refused(computed(1, -1)).error.location(), "shape[2]");
    assert_eq!(refused(computed(1, 100)).error.kind(), ErrorKind::OutOfBounds);
}

/// The memory is too small for these extents. A literal alone would be an `i32`.
#[test]
fn shifts_of_literals_are_wide() {
    #[derive(CudaArray)]
    #[cuda_array(shape = [1 << self.bits, 2 * (1 << self.bits), (1 << self.bits) - 1], export)]
    struct States {
        #[cuda_array(data)]
        cells: Vec<u8>,
        bits: u32,
    }

    let states = |bits| States { cells: vec![0; 12], bits }.info();
    assert_eq!(states(1).unwrap().shape(), [2, 4, 1]);
    for bits in [20, 31, 32, 40] {
        let error = states(bits).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::OutOfBounds | ErrorKind::Overflow), "{bits}: {error}");
    }
}

/// Expressions that `syn` reads only with a feature. A `return` leaves the expression alone.
#[test]
fn any_expression_is_an_extent() {
    macro_rules! leave {
        ($me:ident) => {
            match &$me.other {
                Some(other) => return interop_core::Result::Ok(other.len() as i128),
                None => 1_usize,
            }
        };
    }

    #[derive(CudaArray)]
    #[cuda_array(shape = [if self.len > 1 { 2_usize } else { 1 }, match self.len { 0 => 0, _ => 1_u8 }, leave!(self)], export)]
    struct Chosen {
        #[cuda_array(data)]
        cells: Vec<u8>,
        len: usize,
        other: Option<Vec<u8>>,
    }

    let shape = |len, other| Chosen { cells: vec![0; 6], len, other }.info().unwrap().shape().to_vec();
    assert_eq!((shape(2, None), shape(1, None)), (vec![2, 1, 1], vec![1, 1, 1]));
    assert_eq!(shape(2, Some(vec![0; 3])), [2, 1, 3]);
}
