#[derive(Clone, Copy, Element)]
#[repr(transparent)]
struct Meters<U>(f32, core::marker::PhantomData<U>);

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::NeverCalled as _;
    #[automatically_derived]
    unsafe impl<U> __p::Element for Meters<U>
    where
        U: 'static,
        Self: __p::Copy + __p::Send + __p::Sync,
    {
        const TYPE: __p::ElementType = {
            let _: fn(Self) -> (f32, ::core::marker::PhantomData<_>) = |
                Self { 0: __field0, 1: __field1 }|
            (__field0, __field1);
            __p::ElementType::newtype::<
                Self,
            >(__p::ElementType::of_field::<f32, _>(<__p::FieldProbe<f32>>::FIELD))
        };
    }
};
