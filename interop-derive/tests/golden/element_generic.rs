#[derive(Clone, Copy, Element)]
#[repr(C)]
#[cuda_array(crate = "renamed")]
struct Vector<T, const N: usize> {
    parts: [T; N],
    norm: T,
}

// ---- expands to ----

const _: () = {
    use renamed::__interop_core as __p;
    #[automatically_derived]
    unsafe impl<T, const N: usize> __p::Element for Vector<T, { N }>
    where
        T: __p::Element,
    {
        const FIELDS: &'static [__p::Field] = &[
            __p::Field::new(
                "parts",
                ::core::mem::offset_of!(Self, parts),
                __p::ElementType::of::<[T; N]>(),
            ),
            __p::Field::new(
                "norm",
                ::core::mem::offset_of!(Self, norm),
                __p::ElementType::of::<T>(),
            ),
        ];
        const TYPE: __p::ElementType = {
            let _: fn(Self) -> ([T; N], T) = |Self { parts: __field0, norm: __field1 }| (
                __field0,
                __field1,
            );
            __p::ElementType::of_struct::<Self>()
        };
    }
};
