#[derive(CudaArray)]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(stream, default = Stream::new().unwrap_or_else(|error| panic!("{error}")))]
    stream: Stream,
    #[cuda_array(owner, default)]
    context: Option<Context>,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::Unreached as _;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Samples {
        #[inline(always)]
        fn facts(&self) -> __p::Result<__p::Facts> {
            let __d = <Vec<f32> as __p::Storage>::describe(&self.values);
            let __d = <Stream as __p::AsStream>::tell(&self.stream, __d);
            let _ = &self.context;
            <Vec<usize> as __p::ShapeField>::finish(&self.shape, __d)
        }
    }
    #[automatically_derived]
    impl __p::FromArray for Samples {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::None,
            order: __p::Some(__p::Order::C),
        };
        #[inline(always)]
        fn assemble(__a: &mut __p::Arrival) -> __p::Result<Self> {
            let __s = <__p::Gate<Vec<f32>>>::open(__a, <Self as __p::FromArray>::WANTED);
            __p::Arrival::check(__a)?;
            __p::Ok(Self {
                shape: <Vec<usize> as __p::ShapeField>::take(__a, "shape"),
                stream: <Stream as __p::AsStream>::receive(
                    Stream::new().unwrap_or_else(|error| panic!("{error}")),
                    __a,
                    "stream",
                ),
                context: <Option<Context> as __p::Default>::default(),
                values: match __s.take(__a) {
                    __p::Some(__v) => __v,
                    _ => return __a.refused(),
                },
            })
        }
    }
};
