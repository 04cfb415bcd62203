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
            let __d = <Box<[f32]> as __p::Storage>::describe(&self.value);
            __d.extents([])
        }
    }
    #[automatically_derived]
    impl __p::FromArray for Scalar {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::Some(0),
            order: __p::Some(__p::Order::C),
        };
        #[inline(always)]
        fn assemble(__a: &mut __p::Arrival) -> __p::Result<Self> {
            let __s = <__p::Gate<
                Box<[f32]>,
            >>::open(__a, <Self as __p::FromArray>::WANTED);
            __p::Ok(Self {
                value: match __s.take(__a) {
                    __p::Some(__v) => __v,
                    _ => return __a.refused(),
                },
            })
        }
    }
};
