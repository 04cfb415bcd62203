#[derive(CudaArray)]
#[cuda_array(shape = [height, width, 3])]
struct Image<S = Vec<f32>> {
    #[cuda_array(data)]
    pixels: S,
    height: usize,
    width: u32,
    #[cuda_array(stream)]
    stream: StreamHandle,
    #[cuda_array(default)]
    title: String,
    #[cuda_array(default = Instant::now())]
    taken: Instant,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::Unreached as _;
    #[automatically_derived]
    unsafe impl<S> __p::CudaArray for Image<S>
    where
        S: __p::Storage,
    {
        #[inline(always)]
        fn facts(&self) -> __p::Result<__p::Facts> {
            let __described = <S as __p::Storage>::describe(&self.pixels);
            let __described = <StreamHandle as __p::AsStream>::tell(
                &self.stream,
                __described,
            );
            __described
                .extents([
                    <usize as __p::Extent>::tell(&self.height),
                    <u32 as __p::Extent>::tell(&self.width),
                    3,
                ])
        }
    }
    #[automatically_derived]
    impl<S> __p::FromArray for Image<S>
    where
        S: __p::FromImport,
    {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::Some(3),
            order: __p::Some(__p::Order::C),
        };
        #[inline(always)]
        fn assemble(__arrival: &mut __p::Arrival<'_>) -> __p::Result<Self> {
            let __opened = <S as __p::FromImport>::open(
                __arrival,
                <Self as __p::FromArray>::WANTED,
            );
            __p::Arrival::literal(__arrival, 2, 3);
            __p::Arrival::check(__arrival)?;
            __p::Ok(Self {
                height: <usize as __p::Extent>::take(__arrival, 0, "height"),
                width: <u32 as __p::Extent>::take(__arrival, 1, "width"),
                stream: match <__p::Gate<StreamHandle>>::stream(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
                title: <String as __p::Default>::default(),
                taken: Instant::now(),
                pixels: match __opened.take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
            })
        }
    }
};
