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
            let __described = <Vec<f32> as __p::Storage>::describe(&self.values);
            let __described = <Stream as __p::AsStream>::tell(&self.stream, __described);
            let _ = &self.context;
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
            __p::Arrival::check(__arrival)?;
            __p::Ok(Self {
                shape: <Vec<usize> as __p::ShapeField>::take(__arrival, "shape"),
                stream: <Stream as __p::AsStream>::receive(
                    Stream::new().unwrap_or_else(|error| panic!("{error}")),
                    __arrival,
                    "stream",
                ),
                context: <Option<Context> as __p::Default>::default(),
                values: match __opened.take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
            })
        }
    }
};
