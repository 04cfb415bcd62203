#[derive(Clone, Copy, Element)]
#[repr(C, align(8))]
struct Pair(f32, f32);

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::NeverCalled as _;
    #[automatically_derived]
    unsafe impl __p::Element for Pair {
        const FIELDS: &'static [__p::Field] = &[
            __p::Field::new(
                "f0",
                ::core::mem::offset_of!(Self, 0),
                __p::ElementType::of_field::<f32, _>(<__p::FieldProbe<f32>>::FIELD),
            ),
            __p::Field::new(
                "f1",
                ::core::mem::offset_of!(Self, 1),
                __p::ElementType::of_field::<f32, _>(<__p::FieldProbe<f32>>::FIELD),
            ),
        ];
        const TYPE: __p::ElementType = {
            let _: fn(Self) -> (f32, f32) = |Self { 0: __field0, 1: __field1 }| (
                __field0,
                __field1,
            );
            __p::ElementType::of_struct::<Self>()
        };
    }
};
