//! Structs for arrays that need no name of their own.

use interop_derive::CudaArray;

use crate::array::dims::Dims;
use crate::array::element::Element;
use crate::memory::host_vec::HostVec;

/// A vector: one axis, without gaps between the elements.
///
/// ```
/// use interop_core::arrays::Array1;
/// use interop_core::{CudaArray, FromArray, HostVec, LeaseMut};
///
/// let tensor = Array1::from(HostVec::from([1.0_f32, 2.0])).into_dlpack()?;
/// let mut row: Array1<LeaseMut<f32>> = Array1::from_dlpack(tensor)?;
/// row.map_inplace(|value: f32| value * 10.0)?;
/// assert_eq!((row.len, row.to_vec::<f32>()?), (2, vec![10.0, 20.0]));
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug, CudaArray)]
#[cuda_array(shape = [len])]
#[cfg_attr(feature = "python", cuda_array(python))]
pub struct Array1<S> {
    /// The elements.
    #[cuda_array(data)]
    pub values: S,
    /// The number of elements.
    pub len: usize,
}

/// A matrix: two axes, row after row, without gaps between the elements.
///
/// ```
/// use interop_core::arrays::Array2;
/// use interop_core::{CudaArray, FromArray};
///
/// let matrix = Array2 { values: vec![1.0_f64, 2.0, 3.0, 4.0, 5.0, 6.0], rows: 2, columns: 3 };
/// let copy: Array2<Vec<f64>> = Array2::from_dlpack(matrix.into_dlpack()?)?;
/// assert_eq!(copy.values[copy.columns], 4.0);
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug, CudaArray)]
#[cuda_array(shape = [rows, columns])]
#[cfg_attr(feature = "python", cuda_array(python))]
pub struct Array2<S> {
    /// The elements.
    #[cuda_array(data)]
    pub values: S,
    /// The extent of the first axis.
    pub rows: usize,
    /// The extent of the second axis.
    pub columns: usize,
}

/// An array of any rank and layout, also a slice or a transpose of another one.
///
/// ```
/// use interop_core::arrays::ArrayD;
/// use interop_core::{CudaArray, HostVec};
///
/// let mut images = ArrayD { values: HostVec::<f32>::zeroed(24), shape: [2, 3, 4].into(), strides: None };
/// images.map_inplace(|value: f32| value + 1.0)?;
/// let columns = ArrayD { values: vec![1_u8, 2, 3, 4], shape: [2, 2].into(), strides: Some([1, 2].into()) };
/// assert_eq!(columns.to_vec::<u8>()?, [1, 3, 2, 4]);
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug, CudaArray)]
#[cfg_attr(feature = "python", cuda_array(python))]
pub struct ArrayD<S> {
    /// The elements.
    #[cuda_array(data)]
    pub values: S,
    /// The extents.
    #[cuda_array(shape)]
    pub shape: Dims<usize>,
    /// The strides in elements. `None` is row after row, without gaps; an import always writes them.
    #[cuda_array(strides)]
    pub strides: Option<Dims<isize>>,
}

impl<T> From<Vec<T>> for Array1<Vec<T>> {
    fn from(values: Vec<T>) -> Self {
        Self { len: values.len(), values }
    }
}

impl<T: Element> From<HostVec<T>> for Array1<HostVec<T>> {
    fn from(values: HostVec<T>) -> Self {
        Self { len: values.len(), values }
    }
}
