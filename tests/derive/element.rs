//! `#[derive(Element)]`: structs and newtypes as the elements of arrays.

use std::marker::PhantomData;

use interop_core::{CudaArray, DType, Element, ErrorKind, FromArray, HostVec, Lease};

use crate::support::{Foreign, count};

#[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    r#type: u16,
    charge: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Complex(f32, f32);

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(transparent)]
struct Meters<U = ()>(f32, PhantomData<U>);

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Pair<T, const N: usize, M> {
    first: [T; N],
    second: T,
    marker: PhantomData<M>,
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C, align(16))]
struct Segment {
    from: Complex,
    to: Complex,
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(transparent)]
struct Flag {
    set: bool,
}

trait Format {
    type Scalar: Element;
}

#[derive(Clone, Copy)]
struct Wide;

impl Format for Wide {
    type Scalar = f64;
}

/// Fields of types that use a parameter. The parameter itself need not be an `Element`.
#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Pixel<F: Format, T> {
    red: F::Scalar,
    rest: [<F as Format>::Scalar; 2],
    mask: T,
}

#[derive(CudaArray)]
struct Cloud<T> {
    #[cuda_array(data)]
    points: HostVec<T>,
    #[cuda_array(shape)]
    shape: Vec<usize>,
}

#[test]
fn a_record_has_the_fields_of_the_struct_where_they_are() {
    let cloud = Cloud { points: HostVec::from([Particle::default(); 2]), shape: vec![2] };
    let info = cloud.info().unwrap();
    let struct_type = info.struct_type().unwrap();
    let fields: Vec<_> =
        struct_type.fields.iter().map(|field| (field.name.as_str(), field.offset, field.dtype)).collect();
    assert_eq!(fields, [("position", 0, DType::F32), ("type", 12, DType::U16), ("charge", 16, DType::F64)]);
    assert_eq!(struct_type.fields[0].shape, [3]);
    assert_eq!(Particle::TYPE.size(), 24);
    assert_eq!((info.shape(), info.strides()), (&[2][..], &[1][..]));
}

#[test]
fn fields_without_names_have_those_of_numpy() {
    let cloud = Cloud { points: HostVec::from([Complex(1.0, 2.0)]), shape: vec![1] };
    let info = cloud.info().unwrap();
    let names: Vec<&str> =
        info.struct_type().unwrap().fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["f0", "f1"]);
}

#[test]
fn a_newtype_is_what_it_holds() {
    assert_eq!(Meters::<u8>::TYPE.dtype(), DType::F32);
    assert_eq!(Flag::TYPE.dtype(), DType::BOOL);
    let (import, _) = Foreign::new(&count(3), &[3]).send();
    let mut cloud = Cloud::<Meters>::from_import(import).unwrap();
    let meters = |value| Meters(value, PhantomData);
    assert_eq!(cloud.points.as_mut_slice().unwrap(), [meters(0.0), meters(1.0), meters(2.0)]);
    assert_eq!(cloud.shape, [3]);
}

#[test]
fn markers_and_parameters_are_no_parts() {
    let cloud = Cloud {
        points: HostVec::from([Pair::<i32, 2, f64> { first: [1, 2], second: 3, marker: PhantomData }]),
        shape: vec![1],
    };
    let info = cloud.info().unwrap();
    let fields: Vec<_> =
        info.struct_type().unwrap().fields.iter().map(|field| (field.name.clone(), field.offset)).collect();
    assert_eq!(fields, [("first".to_string(), 0), ("second".to_string(), 8)]);
}

#[test]
fn parts_can_be_of_types_that_a_parameter_names() {
    let pixel = Pixel::<Wide, u8> { red: 1.0, rest: [2.0, 3.0], mask: 4 };
    let cloud = Cloud { points: HostVec::from([pixel]), shape: vec![1] };
    let struct_type = cloud.info().unwrap().struct_type().unwrap().to_string();
    assert_eq!(struct_type, "{red: float64 @0, rest: float64[2] @8, mask: uint8 @24}");
    assert_eq!((pixel.red, pixel.rest[1], pixel.mask), (1.0, 3.0, 4));
}

#[test]
fn records_nest() {
    let cloud = Cloud {
        points: HostVec::from([Segment { from: Complex(0.0, 1.0), to: Complex(2.0, 3.0) }]),
        shape: vec![1],
    };
    let info = cloud.info().unwrap();
    let fields = &info.struct_type().unwrap().fields;
    assert_eq!((fields[0].name.as_str(), fields[1].offset), ("from", 8));
    assert_eq!(fields[1].struct_type.as_ref().unwrap().fields[1].name, "f1");
    assert_eq!(Segment::TYPE.align(), 16);
}

#[test]
fn equal_fields_arrive_from_a_trailing_axis() {
    // DLPack has no record types: a struct of equal scalars is exported as one more axis and imported from one.
    #[derive(CudaArray)]
    #[cuda_array(shape = [len])]
    struct Signal {
        #[cuda_array(data)]
        values: Lease<Complex>,
        len: usize,
    }

    let (import, receipt) = Foreign::new(&count(6), &[3, 2]).send();
    let signal = Signal::from_import(import).unwrap();
    assert_eq!(signal.len, 3);
    assert_eq!(signal.info().unwrap().address(), receipt.address);
    assert_eq!(
        signal.view::<Complex, 1>().unwrap().host_view().unwrap().read([2]).unwrap(),
        Complex(4.0, 5.0)
    );
    drop(signal.values);

    let (import, _) = Foreign::new(&count(6), &[2, 3]).send();
    assert_ne!(Signal::from_import(import).err().unwrap().error.kind(), ErrorKind::Device);
}
