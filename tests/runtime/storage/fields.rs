//! Extents and strides in the fields of a struct, whose types may be too small for them.

use interop_core::element::{MiniFloat, Opaque, StructField, StructType};
use interop_core::protocols::dlpack::Versioned;
use interop_core::storage::{MemoryRegion, Mutability};
use interop_core::{CudaArray, DType, Device, ErrorKind, FromArray, Import, Lease, SharedBuffer, Storage};

use crate::support::arrays::Matrix;
use crate::support::assert_told;
use crate::support::foreign_tensors::{Claims, look};

#[derive(Debug, CudaArray)]
struct InBytes<S> {
    #[cuda_array(data)]
    data: S,
    #[cuda_array(shape)]
    shape: Vec<u64>,
    #[cuda_array(strides(bytes))]
    strides: Vec<i64>,
}

#[derive(Debug, CudaArray)]
struct Narrow {
    #[cuda_array(data)]
    data: Lease<i16>,
    #[cuda_array(shape)]
    shape: [u8; 2],
    #[cuda_array(strides)]
    strides: Option<[i8; 2]>,
}

#[derive(Debug, CudaArray)]
#[cuda_array(shape = [rows, columns], export)]
struct Table {
    #[cuda_array(data)]
    data: Vec<u8>,
    rows: usize,
    columns: u64,
}

#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns], export)]
struct Stepped {
    #[cuda_array(data)]
    data: Vec<u8>,
    rows: usize,
    columns: usize,
    #[cuda_array(strides)]
    strides: Vec<isize>,
}

#[derive(Debug, CudaArray)]
#[cuda_array(export)]
struct Unsigned {
    #[cuda_array(data)]
    data: Vec<u8>,
    #[cuda_array(shape)]
    shape: [u8; 1],
    #[cuda_array(strides)]
    strides: [u64; 1],
}

/// Six structs whose type is known only at run time.
struct Blobs(StructType);

// SAFETY: nothing is read at the address.
#[expect(unsafe_code, reason = "a storage promises what its memory is")]
unsafe impl Storage for Blobs {
    fn memory(&self) -> interop_core::Result<MemoryRegion> {
        Ok(MemoryRegion::new::<Opaque<4>>(0x1000, 6, Device::CPU, Mutability::ReadOnly))
    }

    fn struct_type(&self) -> Option<&StructType> {
        Some(&self.0)
    }
}

fn import(shape: &[i64], strides: &[i64], dtype: DType) -> Import {
    let strides = Some(strides.to_vec());
    let (ledger, tensor) = Claims { dtype, strides, ..Claims::at(0x10_0000, shape) }.send::<Versioned>();
    drop(ledger);
    Import::from_dlpack(tensor).unwrap()
}

/// The shape, the strides in elements, the type, and the strides in bytes.
type Row = (&'static [i64], &'static [i64], DType, &'static [i64]);

/// Strides in bytes are the strides in elements times the element size, exported and imported.
#[test]
fn strides_in_bytes_make_the_round_trip() {
    let rows: [Row; 6] = [
        (&[2, 3], &[1, 2], DType::I16, &[2, 4]),
        (&[2, 3], &[-3, 0], DType::F64, &[-24, 0]),
        (&[4], &[2], DType::opaque(12), &[24]),
        (&[4], &[2], DType { lanes: 2, ..DType::F4_E2M1FN }, &[2]),
        (&[], &[], DType::U8, &[]),
        (&[0, 2], &[9, 1], DType::I16, &[18, 2]),
    ];
    for (shape, strides, dtype, bytes) in rows {
        let array: InBytes<SharedBuffer> = InBytes::from_import(import(shape, strides, dtype)).unwrap();
        assert_eq!(array.strides, bytes, "{shape:?} {strides:?}");
        let again = look(&array.into_dlpack().unwrap());
        assert_eq!(again.strides.unwrap_or_default(), strides, "{shape:?} {strides:?}");
    }
}

/// The strides of array elements count whole elements; the axes of the element follow.
#[test]
fn strides_in_bytes_count_whole_lists() {
    let array = InBytes { data: vec![[0_u16; 3]; 6], shape: vec![2, 2], strides: vec![18, 6] };
    let info = array.info().unwrap();
    assert_eq!((info.shape(), info.strides()), (&[2, 2, 3][..], &[9, 3, 1][..]));
}

/// A stride without meaning does not cause a refusal, even if its value in bytes overflows.
#[test]
fn idle_strides_fit_in_bytes() {
    let array: InBytes<Lease<f64>> =
        InBytes::from_import(import(&[1, 3], &[i64::MAX / 2, 1], DType::F64)).unwrap();
    assert_eq!(array.strides, [24, 8]);
    assert!(array.info().is_ok());
}

/// Packed elements share bytes, so they have no strides in bytes.
#[test]
fn packed_elements_have_no_byte_strides() {
    for lanes in [1, 3] {
        let packed = DType { lanes, ..DType::F4_E2M1FN };
        let refused = InBytes::<SharedBuffer>::from_import(import(&[4], &[1], packed)).unwrap_err();
        let told = (ErrorKind::Strides, "strides", "packed below the byte", "elements of whole bytes");
        assert_told(&refused.error, told);
        assert_eq!(refused.value.info().shape(), [4]);
    }
}

/// Numbers that a field cannot hold are refused and never truncated.
#[test]
fn numbers_that_do_not_fit_their_field() {
    let refused = |shape: &[i64], strides: &[i64], told| {
        let refused = Narrow::from_import(import(shape, strides, DType::I16)).unwrap_err();
        assert_told(&refused.error, told);
        assert_eq!(refused.value.info().shape().len(), shape.len(), "the import comes back");
    };
    refused(&[256, 1], &[1, 1], (ErrorKind::Overflow, "shape", "256", "`u8`"));
    refused(&[2, 2], &[128, 1], (ErrorKind::Overflow, "strides[0]", "128", "`strides`"));
    refused(&[2, 2], &[1, -129], (ErrorKind::Overflow, "strides[1]", "-129", "`strides`"));
    refused(&[2, 2, 2], &[4, 2, 1], (ErrorKind::Rank, "shape", "3 axes", "2 axes"));
    let fits = Narrow::from_import(import(&[255, 2], &[127, -128], DType::I16)).unwrap();
    assert_eq!((fits.shape, fits.strides), ([255, 2], Some([127, -128])));

    let far = InBytes { data: vec![1_u8], shape: vec![1 << 63], strides: vec![1] };
    let told = (ErrorKind::Overflow, "shape[0]", "9223372036854775808", "64-bit");
    assert_told(&far.info().unwrap_err(), told);
    let far = Table { data: vec![1], rows: 1, columns: u64::MAX };
    let told = (ErrorKind::Overflow, "shape[1]", "18446744073709551615", "64-bit");
    assert_told(&far.info().unwrap_err(), told);
    // Truncated, it would become a negative stride.
    let far = Unsigned { data: vec![1, 2], shape: [2], strides: [u64::MAX] };
    let told = (ErrorKind::Overflow, "strides[0]", "18446744073709551615", "64-bit");
    assert_told(&far.info().unwrap_err(), told);
}

/// Arrays of a constant rank outside the common case: a separate check covers that case, and these pass too.
#[test]
fn unusual_arrays_of_a_constant_rank() {
    #[derive(CudaArray)]
    #[cuda_array(shape = [1, 1, 1, 1, 2, 3], export)]
    struct Deep(#[cuda_array(data)] Vec<u8>);
    // As many axes as fit in place.
    #[derive(CudaArray)]
    #[cuda_array(shape = [1, 1, 1, 1, 1], export)]
    struct Point(#[cuda_array(data)] Vec<u8>, #[cuda_array(strides)] [isize; 5]);
    assert_eq!(Deep(vec![0; 6]).info().unwrap().strides(), [6, 6, 6, 6, 3, 1]);
    assert_eq!(Point(vec![0], [-1; 5]).info().unwrap().strides(), [1; 5], "idle axes do not run backwards");

    let small = Matrix { data: vec![MiniFloat::<15>(1); 6], rows: 2, columns: 3 };
    assert_eq!((small.info().unwrap().is_padded(), small.info().unwrap().nbytes()), (true, 6));

    let turned = Narrow::from_import(import(&[2, 3], &[3, -1], DType::I16)).unwrap().info().unwrap();
    assert_eq!((turned.strides(), turned.address() - turned.byte_range().start), (&[3, -1][..], 4));

    let stepped = |strides: &[isize]| {
        Stepped { data: vec![0; 6], rows: 2, columns: 3, strides: strides.to_vec() }.info()
    };
    assert_eq!(stepped(&[1, 2]).unwrap().strides(), [1, 2]);
    for (strides, found) in [(&[3, 1, 1][..], "3 strides"), (&[3], "1 stride"), (&[], "0 strides")] {
        let told = (ErrorKind::Strides, "strides", found, "2, one for each axis");
        assert_told(&stepped(strides).unwrap_err(), told);
    }

    let field = |name: &str, offset| StructField {
        name: name.into(),
        offset,
        dtype: DType::I16,
        shape: Vec::new(),
        struct_type: None,
    };
    let spins = StructType { fields: vec![field("up", 0), field("down", 2)] };
    let array = Matrix { data: Blobs(spins.clone()), rows: 2, columns: 3 };
    assert_eq!(array.info().unwrap().struct_type(), Some(&spins));
}

/// In DLPack a struct of one scalar type becomes a trailing axis. Fields of size zero do not count.
#[test]
fn fields_without_items_take_no_part() {
    let empty =
        |dtype| StructField { name: "none".into(), offset: 0, dtype, shape: vec![0, 3], struct_type: None };
    let pair = StructField { shape: vec![2], name: "pair".into(), ..empty(DType::I16) };
    let spins = StructType { fields: vec![empty(DType::U8), pair] };
    let array = Matrix { data: Blobs(spins), rows: 2, columns: 3 };
    let info = array.into_dlpack().unwrap().info().unwrap();
    assert_eq!((info.dtype(), info.shape()), (DType::I16, &[2, 3, 2][..]));
}
