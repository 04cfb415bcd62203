#[derive(CudaArray)]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    #[cuda_array(shape)]
    shape: Vec<usize>,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::Unreached as _;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Samples {
        #[inline(always)]
        fn facts(&self) -> __p::Result<__p::Facts> {
            let __described = <Vec<f32> as __p::Storage>::describe(&self.values);
            <Vec<usize> as __p::ShapeField>::finish(&self.shape, __described)
        }
    }
    #[automatically_derived]
    impl __p::FromArray for Samples {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::None,
            order: __p::Some(__p::Order::C),
        };
        #[inline(always)]
        fn assemble(__arrival: &mut __p::Arrival<'_>) -> __p::Result<Self> {
            let __opened = <__p::Gate<
                Vec<f32>,
            >>::open(__arrival, <Self as __p::FromArray>::WANTED);
            __p::Ok(Self {
                shape: <Vec<usize> as __p::ShapeField>::take(__arrival, "shape"),
                values: match __opened.take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
            })
        }
    }
};
