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
    use __p::NeverCalled as _;
    #[automatically_derived]
    unsafe impl<S> __p::CudaArray for Image<S>
    where
        S: __p::Storage,
    {
        #[inline(always)]
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <S as __p::Storage>::describe(&self.pixels)?;
            let __described = __described
                .with_other_drops(
                    ::core::mem::needs_drop::<String>()
                        || ::core::mem::needs_drop::<Instant>(),
                );
            let __described = <StreamHandle as __p::AsStream>::describe_field(
                &self.stream,
                __described,
            );
            __described
                .extents([
                    <usize as __p::Extent>::describe_field(&self.height),
                    <u32 as __p::Extent>::describe_field(&self.width),
                    3,
                ])
        }
        fn note_read(&self, __stream: __p::StreamHandle) -> ::core::primitive::bool {
            <S as __p::Storage>::note_read(&self.pixels, __stream)
        }
        fn note_write(
            &mut self,
            __stream: __p::StreamHandle,
        ) -> ::core::primitive::bool {
            <S as __p::Storage>::note_write(&mut self.pixels, __stream)
        }
        fn __is_only_handle(&mut self) -> ::core::primitive::bool {
            <S as __p::Storage>::is_only_handle(&mut self.pixels)
        }
        #[inline(always)]
        fn __relies_on(
            _: &dyn __p::Storage,
            _: &dyn __p::ShapeField,
            _: &dyn __p::StridesField,
            _: &dyn __p::AsStream,
        ) {}
    }
    #[automatically_derived]
    impl<S> __p::FromArray for Image<S>
    where
        S: __p::FromImport,
    {
        const DATA_FIELD: __p::DataField = <S as __p::FromImport>::DATA_FIELD;
        #[inline(always)]
        unsafe fn assemble(__extraction: &mut __p::Extraction<'_>) -> __p::Result<Self> {
            let __opened = <S as __p::FromImport>::open(
                __extraction,
                __p::Requirements {
                    axes: __p::Some(3),
                    order: __p::Some(__p::Order::C),
                },
            );
            __p::Extraction::literal(__extraction, 2, 3);
            __p::Extraction::check(__extraction)?;
            __p::Ok(Self {
                height: <usize as __p::Extent>::take(__extraction, 0, "height"),
                width: <u32 as __p::Extent>::take(__extraction, 1, "width"),
                stream: match <__p::FieldProbe<StreamHandle>>::stream(__extraction) {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
                title: <String as __p::Default>::default(),
                taken: Instant::now(),
                pixels: match unsafe { __opened(__extraction) } {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
            })
        }
    }
    #[automatically_derived]
    unsafe impl<'__borrow, S> __p::BorrowedFor<'__borrow> for Image<S>
    where
        S: __p::BorrowedFor<'__borrow>,
    {}
};
