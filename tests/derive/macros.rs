//! Structs that come from a macro: names, types, literals, expressions, whole attributes.

use std::marker::PhantomData;

use interop_core::{CudaArray, Element, FromArray, Lease, StreamHandle};

use crate::support::{Foreign, count};

macro_rules! array {
    (
        $(#[$attr:meta])*
        $name:ident<$parameter:ident> { $data:ident: $ty:ty, $($extent:ident: $int:ty),* }
        $last:literal, $default:expr, $order:literal
    ) => {
        #[derive(interop_core::CudaArray)]
        #[cuda_array(shape = [$($extent,)* $last], order = $order)]
        $(#[$attr])*
        struct $name<$parameter> {
            #[cuda_array(data)]
            $data: $ty,
            $($extent: $int,)*
            #[cuda_array(default = $default)]
            note: &'static str,
            // A name that only the macro has.
            #[cuda_array(stream)]
            stream: $crate::support::Stream,
        }
    };
}

array! {
    #[cuda_array(crate = "interop_core", readonly)]
    Image<S> { pixels: S, height: u32, width: usize }
    3, if true { "made" } else { "up" }, "C"
}

macro_rules! expressions {
    ($name:ident, $extent:expr, $count:expr, $ty:ty) => {
        #[derive(interop_core::CudaArray)]
        #[cuda_array(shape = [$extent, $count])]
        struct $name {
            #[cuda_array(data)]
            values: $ty,
            rows: usize,
        }
    };
}

expressions!(Table, rows, 2, Vec<f32>);
expressions!(Selfish, self.rows, (2), Vec<f32>);

macro_rules! element {
    ($name:ident { $($field:ident: $ty:ty),* }) => {
        #[derive(Clone, Copy, Debug, PartialEq, interop_core::Element)]
        #[repr(C)]
        struct $name {
            $($field: $ty),*
        }
    };
}

element!(Point { x: f32, y: f32, unit: ::core::marker::PhantomData<Expressed> });

#[derive(Clone, Copy, Debug, PartialEq)]
struct Expressed;

/// What a crate does that hands the runtime on under a name of its own: its macros name it by `$crate`, since whoever uses
/// them need not have that crate by any other name.
mod facade {
    pub(crate) use interop_core as arrays;
}

macro_rules! through_a_facade {
    ($runtime:path, $name:ident of $element:ident) => {
        #[derive($crate::macros::facade::arrays::CudaArray)]
        #[cuda_array(crate = $crate::macros::facade::arrays, shape = [len])]
        struct $name {
            #[cuda_array(data)]
            values: Vec<$element>,
            len: usize,
        }

        #[derive(Clone, Copy, Debug, PartialEq, $crate::macros::facade::arrays::Element)]
        #[cuda_array(crate = $runtime)]
        #[repr(transparent)]
        struct $element(f32);
    };
}

through_a_facade!(crate::macros::facade::arrays, Volts of Volt);

#[test]
fn structs_of_macros() {
    let (import, _) = Foreign::new(&count(24), &[2, 4, 3]).send();
    let image = Image::<Lease<f32>>::from_import(import).unwrap();
    assert_eq!(
        (image.height, image.width, image.note, image.stream),
        (2, 4, "made", StreamHandle::NothingPending)
    );
    assert!(image.info().unwrap().is_read_only());
    drop(image.pixels);

    let (import, _) = Foreign::new(&count(6), &[3, 2]).send();
    let table = Table::from_import(import).unwrap();
    assert_eq!((table.rows, table.values), (3, count(6)));
    let (import, _) = Foreign::new(&count(6), &[3, 2]).send();
    let table = Selfish::from_import(import).unwrap();
    assert_eq!((table.rows, table.values), (3, count(6)));

    assert_eq!(Point::TYPE.size(), 8);
    let point = Point { x: 1.0, y: 2.0, unit: PhantomData };
    assert_eq!((point.x + point.y).to_bits(), 3.0_f32.to_bits());
}

#[test]
fn structs_of_the_macro_of_a_facade() {
    let (import, _) = Foreign::new(&count(2), &[2]).send();
    let volts = Volts::from_import(import).unwrap();
    assert_eq!((volts.len, volts.values), (2, vec![Volt(0.0), Volt(1.0)]));
}
