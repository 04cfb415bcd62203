//! `same_extent!`: the check of two arrays whose extents must agree.

use core::fmt::Display;

use crate::derive::fields::axes::Extent;
use crate::error::{Error, ErrorKind, Result, text};

/// Checks that an extent of one array is that of another: `same_extent!(weights.len, points.columns)?`.
///
/// The value is a `Result`. Its error, of the kind [`ErrorKind::Shape`](crate::error::ErrorKind::Shape), names both
/// expressions.
///
/// ```
/// use interop_core::{CudaArray, Result, same_extent};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [rows, columns])]
/// struct Points { #[cuda_array(data)] values: Vec<f32>, rows: usize, columns: usize }
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Weights { #[cuda_array(data)] values: Vec<f32>, len: usize }
///
/// fn weighted(points: &Points, weights: &Weights) -> Result<Vec<f32>> {
///     same_extent!(weights.len, points.columns)?;
///     let row = |row: usize| points.values[row * weights.len..].iter().zip(&weights.values).map(|(x, w)| x * w).sum();
///     Ok((0..points.rows).map(row).collect())
/// }
///
/// let points = Points { values: vec![1.0, 2.0, 3.0, 4.0], rows: 2, columns: 2 };
/// assert_eq!(weighted(&points, &Weights { values: vec![1.0, 0.5], len: 2 })?, [2.0, 5.0]);
/// let error = weighted(&points, &Weights { values: vec![1.0; 3], len: 3 }).unwrap_err();
/// assert_eq!(error.to_string(), "`weights.len`: found 3, allowed: 2, as `points.columns`");
/// # Ok::<(), interop_core::Error>(())
/// ```
#[macro_export]
macro_rules! same_extent {
    ($found:expr, $allowed:expr $(,)?) => {
        $crate::__private::compare_extents(
            &$found,
            &$allowed,
            ::core::stringify!($found),
            ::core::stringify!($allowed),
        )
    };
}

/// The expansion of `same_extent!`.
///
/// # Errors
///
/// [`ErrorKind::Shape`] if the extents differ.
#[inline]
pub fn compare_extents(
    found: &(impl Extent + Display),
    allowed: &(impl Extent + Display),
    location: &'static str,
    other: &'static str,
) -> Result<()> {
    if found.describe_field() == allowed.describe_field() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Shape, location, found, text!("{allowed}, as `{other}`")))
}
