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
            let __d = <S as __p::Storage>::describe(&self.pixels);
            let __d = <StreamHandle as __p::AsStream>::tell(&self.stream, __d);
            __d.extents([
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
        fn assemble(__a: &mut __p::Arrival) -> __p::Result<Self> {
            let __s = <S as __p::FromImport>::open(
                __a,
                <Self as __p::FromArray>::WANTED,
            );
            __p::Arrival::literal(__a, 2, 3);
            __p::Arrival::check(__a)?;
            __p::Ok(Self {
                height: <usize as __p::Extent>::take(__a, 0, "height"),
                width: <u32 as __p::Extent>::take(__a, 1, "width"),
                stream: match <__p::Gate<StreamHandle>>::stream(__a) {
                    __p::Some(__v) => __v,
                    _ => return __a.refused(),
                },
                title: <String as __p::Default>::default(),
                taken: Instant::now(),
                pixels: match __s.take(__a) {
                    __p::Some(__v) => __v,
                    _ => return __a.refused(),
                },
            })
        }
    }
};
