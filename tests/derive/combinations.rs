//! Attributes in combination: each data × shape × strides × order × stream, exported and imported again.
//!
//! `interop-derive` checks that all other combinations expand; that is faster.

use interop_core::{CudaArray, FromArray, HostVec, Lease, SharedBuffer, StreamHandle};

use crate::support::count;

/// Defines a struct with these attributes and a test that sends it through DLPack.
macro_rules! combination {
    ($name:ident, [$($word:tt)*], $data:ty, { $($field:tt)* }, [$($value:tt)*], $strides:expr) => {
        #[test]
        fn $name() {
            #[derive(CudaArray)]
            #[cuda_array($($word)*)]
            struct Samples<S> {
                #[cuda_array(data)]
                values: S,
                $($field)*
            }

            let samples: Samples<HostVec<f32>> =
                Samples { values: HostVec::from(count(6)), $($value)* };
            let info = samples.info().unwrap();
            assert_eq!((info.shape(), info.strides()), (&[2, 3][..], &$strides[..]));
            let address = info.address();
            let tensor = samples.into_dlpack().unwrap();
            let back = Samples::<$data>::from_dlpack(tensor).unwrap();
            let again = back.info().unwrap();
            assert_eq!((again.shape(), again.strides(), again.dtype()), (info.shape(), info.strides(), info.dtype()));
            assert_eq!(again.address() == address, !<$data as interop_core::storage::FromImport>::COPIES);
            let elements = |view: interop_core::view::ArrayView<'_, f32, 2>| view.host_view().unwrap().iter().collect::<Vec<_>>();
            let expected: Vec<f32> = (0..2)
                .flat_map(|row| (0..3).map(move |column| row * $strides[0] + column * $strides[1]))
                .map(|offset: isize| count(6)[usize::try_from(offset).unwrap()])
                .collect();
            assert_eq!(elements(back.view::<f32, 2>().unwrap()), expected);
        }
    };
}

/// Repeats the attributes for each kind of data and stream.
macro_rules! combinations {
    ($($name:ident: [$($word:tt)*], { $($field:tt)* }, [$($value:tt)*], $strides:expr;)*) => {
        $(
            mod $name {
                use super::*;

                combination!(copied, [$($word)*], Vec<f32>, { $($field)* }, [$($value)*], $strides);
                combination!(leased, [$($word)*], Lease<f32>, { $($field)* }, [$($value)*], $strides);
                combination!(shared, [$($word)*], SharedBuffer, {
                    #[cuda_array(stream)]
                    stream: StreamHandle,
                    $($field)*
                }, [stream: StreamHandle::NothingPending, $($value)*], $strides);
                combination!(on_its_own_stream, [$($word)*], HostVec<f32>, {
                    #[cuda_array(stream, default = Some(StreamHandle::NothingPending))]
                    stream: Option<StreamHandle>,
                    #[cuda_array(owner, default)]
                    owner: Option<u8>,
                    $($field)*
                }, [stream: None, owner: Some(1), $($value)*], $strides);
            }
        )*
    };
}

combinations! {
    shape_field: [],
        { #[cuda_array(shape)] shape: [usize; 2], }, [shape: [2, 3]], [3, 1];
    shape_field_order_c: [order = "C"],
        { #[cuda_array(shape)] shape: Vec<i32>, }, [shape: vec![2, 3]], [3, 1];
    shape_field_order_f: [order = "F"],
        { #[cuda_array(shape)] shape: [u8; 2], }, [shape: [2, 3]], [1, 2];
    extents: [shape = [rows, columns]],
        { rows: usize, columns: i64, }, [rows: 2, columns: 3], [3, 1];
    extents_order_f: [shape = [rows, 3], order = "F"],
        { rows: usize, }, [rows: 2], [1, 2];
    literals: [shape = [2, 3], order = "C"],
        { #[cuda_array(default)] _note: String, }, [_note: String::new()], [3, 1];
    strides: [shape = [2, columns]],
        { columns: usize, #[cuda_array(strides)] strides: Vec<isize>, }, [columns: 3, strides: vec![3, 1]], [3, 1];
    perhaps_strides: [],
        { #[cuda_array(shape)] shape: [usize; 2], #[cuda_array(strides)] strides: Option<[i32; 2]>, },
        [shape: [2, 3], strides: None], [3, 1];
    perhaps_strides_order_f: [order = "F"],
        { #[cuda_array(shape)] shape: [usize; 2], #[cuda_array(strides)] strides: Option<Vec<i64>>, },
        [shape: [2, 3], strides: None], [1, 2];
    strides_in_bytes: [shape = [rows, 3], order = "F"],
        { rows: u16, #[cuda_array(strides(bytes))] strides: [isize; 2], }, [rows: 2, strides: [4, 8]], [1, 2];
    perhaps_strides_in_bytes: [shape = [rows, 3]],
        { rows: u16, #[cuda_array(strides(bytes))] strides: Option<Box<[isize]>>, },
        [rows: 2, strides: Some([12, 4].into())], [3, 1];
}
