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
    use ::interop_core::__private as __p;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Samples {
        fn facts(&self) -> __p::Result<__p::Facts> {
            let __d = <Vec<f32> as __p::Storage>::describe(&self.values);
            let __d = <Vec<usize> as __p::ShapeField>::tell(&self.shape, __d);
            let __d = <Stream as __p::AsStream>::tell(&self.stream, __d);
            let _ = &self.context;
            __d.finish()
        }
    }
    #[automatically_derived]
    impl __p::FromArray for Samples {
        fn assemble(__a: &mut __p::Arrival) -> __p::Result<Self> {
            let __s = {
                use __p::Unreached as _;
                <__p::Gate<
                    Vec<f32>,
                >>::open(__a, &__p::Wanted::new().order(__p::Order::C))?
            };
            __p::Ok(Self {
                shape: <Vec<usize> as __p::ShapeField>::take(__a, "shape")?,
                stream: <Stream as __p::AsStream>::receive(
                    Stream::new().unwrap_or_else(|error| panic!("{error}")),
                    __a,
                    "stream",
                )?,
                context: <Option<Context> as __p::Default>::default(),
                values: __s.take(__a)?,
            })
        }
    }
};
