#[derive(CudaArray)]
#[cuda_array(shape = [])]
struct Scalar {
    #[cuda_array(data)]
    value: Box<[f32]>,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::Unreached as _;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Scalar {
        #[inline(always)]
        fn facts(&self) -> __p::Result<__p::Facts> {
            let __described = <Box<[f32]> as __p::Storage>::describe(&self.value);
            __described.extents([])
        }
    }
    #[automatically_derived]
    impl __p::FromArray for Scalar {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::Some(0),
            order: __p::Some(__p::Order::C),
        };
        #[inline(always)]
        fn assemble(__arrival: &mut __p::Arrival<'_>) -> __p::Result<Self> {
            let __opened = <__p::Gate<
                Box<[f32]>,
            >>::open(__arrival, <Self as __p::FromArray>::WANTED);
            __p::Ok(Self {
                value: match __opened.take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
            })
        }
    }
};
