//! `shape` and `strides` fields, and `order`.

use interop_core::arrays::Dims;
use interop_core::{CudaArray, ErrorKind, FromArray, Lease, SharedBuffer};

use crate::support::{Foreign, count};

#[derive(CudaArray)]
struct Fixed {
    #[cuda_array(data)]
    values: Vec<f32>,
    #[cuda_array(shape)]
    shape: [u32; 2],
}

#[derive(CudaArray)]
struct Strided {
    #[cuda_array(data)]
    values: Lease<f32>,
    #[cuda_array(shape)]
    shape: Dims<usize>,
    #[cuda_array(strides)]
    strides: [isize; 2],
}

#[derive(CudaArray)]
struct InBytes {
    #[cuda_array(data)]
    values: Lease<f32>,
    #[cuda_array(shape)]
    shape: Box<[i64]>,
    #[cuda_array(strides(bytes))]
    strides: Dims<i32>,
}

#[derive(CudaArray)]
struct Perhaps {
    #[cuda_array(data)]
    values: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(strides)]
    strides: Option<[isize; 2]>,
}

#[derive(CudaArray)]
#[cuda_array(order = "F")]
struct Columns<S> {
    #[cuda_array(data)]
    values: S,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(order = "C")]
struct Rows {
    #[cuda_array(data)]
    values: Lease<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(strides)]
    strides: Vec<isize>,
}

#[derive(CudaArray)]
struct Backwards {
    #[cuda_array(data)]
    values: SharedBuffer,
    #[cuda_array(shape)]
    shape: [usize; 1],
    #[cuda_array(strides)]
    strides: [i8; 1],
}

fn transposed() -> Foreign<f32> {
    Foreign { strides: Some(vec![1, 2]), ..Foreign::new(&count(6), &[2, 3]) }
}

#[test]
fn any_integer_type_holds_a_shape() {
    let (import, _) = Foreign::new(&count(6), &[2, 3]).send();
    let fixed = Fixed::from_import(import).unwrap();
    assert_eq!(fixed.shape, [2, 3]);
    assert_eq!(fixed.info().unwrap().shape(), [2, 3]);
    assert_eq!(fixed.values, count(6));
}

#[test]
fn a_shape_of_another_rank_is_refused_before_anything_is_taken() {
    let (import, receipt) = Foreign::new(&count(6), &[6]).send();
    let refused = Fixed::from_import(import).err().unwrap();
    assert_eq!(refused.error.kind(), ErrorKind::Rank);
    assert_eq!(receipt.releases(), 0);
}

#[test]
fn strides_are_filled_in_elements() {
    let (import, receipt) = transposed().send();
    let strided = Strided::from_import(import).unwrap();
    assert_eq!(strided.strides, [1, 2]);
    assert_eq!(strided.info().unwrap().strides(), [1, 2]);
    assert_eq!(strided.info().unwrap().address(), receipt.address);
    assert_eq!(*strided.shape, [2, 3]);
}

#[test]
fn strides_in_bytes_are_those_of_the_elements_times_their_size() {
    let (import, _) = transposed().send();
    let in_bytes = InBytes::from_import(import).unwrap();
    assert_eq!(*in_bytes.strides, [4, 8]);
    assert_eq!(*in_bytes.shape, [2, 3]);
    assert_eq!(in_bytes.info().unwrap().strides(), [1, 2]);
    drop(in_bytes.values);
}

#[test]
fn strides_that_are_none_are_compact() {
    let perhaps = Perhaps { values: count(6), shape: [2, 3], strides: None };
    assert_eq!(perhaps.info().unwrap().strides(), [3, 1]);
    let perhaps = Perhaps { strides: Some([1, 2]), ..perhaps };
    assert_eq!(perhaps.info().unwrap().strides(), [1, 2]);
    let (import, _) = transposed().send();
    let copied = Perhaps::from_import(import).unwrap();
    assert_eq!(copied.strides, Some([3, 1]), "a copy is compact");
    assert_eq!(copied.values, [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
}

#[test]
fn negative_strides_come_through() {
    let (import, receipt) = Foreign { strides: Some(vec![-1]), ..Foreign::new(&[1_u8, 2, 3], &[3]) }.send();

    let backwards = Backwards::from_import(import).unwrap();
    assert_eq!((backwards.strides, backwards.shape), ([-1], [3]));
    let info = backwards.info().unwrap();
    assert_eq!((info.address(), info.byte_range().start), (receipt.address, receipt.address - 2));
    drop(backwards.values);
}

#[test]
fn order_f_is_the_order_of_exports_and_the_demand_of_imports() {
    let columns = Columns { values: count(6), shape: [2, 3] };
    assert_eq!(columns.info().unwrap().strides(), [1, 2]);

    let (import, _) = transposed().send();
    let taken = Columns::<Lease<f32>>::from_import(import).unwrap();
    assert_eq!(taken.shape, [2, 3]);
    assert_eq!(taken.info().unwrap().strides(), [1, 2]);

    let (import, receipt) = Foreign::new(&count(6), &[2, 3]).send();
    let refused = Columns::<Lease<f32>>::from_import(import).err().unwrap();
    assert_eq!(refused.error.kind(), ErrorKind::Strides);
    assert_eq!(receipt.releases(), 0);
}

#[test]
fn a_copy_is_laid_out_in_the_order_of_the_struct() {
    let (import, _) = Foreign::new(&count(6), &[2, 3]).send();
    let columns = Columns::<Vec<f32>>::from_import(import).unwrap();
    assert_eq!(columns.values, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
}

#[test]
fn without_a_strides_field_a_lease_demands_c_order() {
    #[derive(CudaArray)]
    struct Compact {
        #[cuda_array(data)]
        values: Lease<f32>,
        #[cuda_array(shape)]
        shape: [usize; 2],
    }

    let (import, _) = transposed().send();
    assert_eq!(Compact::from_import(import).err().unwrap().error.kind(), ErrorKind::Strides);
    let (import, _) = Foreign::new(&count(6), &[2, 3]).send();
    let compact = Compact::from_import(import).unwrap();
    assert_eq!(compact.shape, [2, 3]);
    drop(compact.values);
}

#[test]
fn a_written_order_is_demanded_although_there_are_strides() {
    let (import, _) = transposed().send();
    assert_eq!(Rows::from_import(import).err().unwrap().error.kind(), ErrorKind::Strides);
    let (import, _) = Foreign::new(&count(6), &[2, 3]).send();
    let rows = Rows::from_import(import).unwrap();
    assert_eq!((rows.strides.as_slice(), rows.shape), (&[3, 1][..], [2, 3]));
    drop(rows.values);
}
