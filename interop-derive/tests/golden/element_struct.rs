#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    r#type: u32,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::NeverCalled as _;
    #[automatically_derived]
    unsafe impl __p::Element for Particle {
        const FIELDS: &'static [__p::Field] = &[
            __p::Field::new(
                "position",
                ::core::mem::offset_of!(Self, position),
                __p::ElementType::of_field::<
                    [f32; 3],
                    _,
                >(<__p::FieldProbe<[f32; 3]>>::FIELD),
            ),
            __p::Field::new(
                "type",
                ::core::mem::offset_of!(Self, r#type),
                __p::ElementType::of_field::<u32, _>(<__p::FieldProbe<u32>>::FIELD),
            ),
        ];
        const TYPE: __p::ElementType = {
            let _: fn(Self) -> ([f32; 3], u32) = |
                Self { position: __field0, r#type: __field1 }|
            (__field0, __field1);
            __p::ElementType::of_struct::<Self>()
        };
    }
};
