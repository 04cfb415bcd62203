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
    use __p::NeverCalled as _;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Samples {
        #[inline(always)]
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <Vec<f32> as __p::Storage>::describe(&self.values)?;
            let __described = __described
                .with_other_drops(::core::mem::needs_drop::<Option<Context>>());
            let __described = <Stream as __p::AsStream>::describe_field(
                &self.stream,
                __described,
            );
            let _ = &self.context;
            <Vec<usize> as __p::ShapeField>::finish(&self.shape, __described)
        }
        fn note_read(&self, __stream: __p::StreamHandle) -> ::core::primitive::bool {
            <Vec<f32> as __p::Storage>::note_read(&self.values, __stream)
        }
        fn note_write(
            &mut self,
            __stream: __p::StreamHandle,
        ) -> ::core::primitive::bool {
            <Vec<f32> as __p::Storage>::note_write(&mut self.values, __stream)
        }
        fn __is_only_handle(&mut self) -> ::core::primitive::bool {
            <Vec<f32> as __p::Storage>::is_only_handle(&mut self.values)
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
    impl __p::FromArray for Samples {
        const DATA_FIELD: __p::DataField = <__p::FieldProbe<Vec<f32>>>::DATA_FIELD;
        #[inline(always)]
        unsafe fn assemble(__extraction: &mut __p::Extraction<'_>) -> __p::Result<Self> {
            let __opened = <__p::FieldProbe<
                Vec<f32>,
            >>::open(
                __extraction,
                __p::Requirements {
                    axes: __p::None,
                    order: __p::Some(__p::Order::C),
                },
            );
            __p::Extraction::check(__extraction)?;
            __p::Ok(Self {
                shape: match <Vec<
                    usize,
                > as __p::ShapeField>::take(__extraction, "shape") {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
                stream: <Stream as __p::AsStream>::receive(
                    Stream::new().unwrap_or_else(|error| panic!("{error}")),
                    __extraction,
                    "stream",
                ),
                context: <Option<Context> as __p::Default>::default(),
                values: match unsafe { __opened(__extraction) } {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
            })
        }
    }
    #[automatically_derived]
    unsafe impl<'__borrow> __p::BorrowedFor<'__borrow> for Samples
    where
        Vec<f32>: __p::BorrowedFor<'__borrow>,
    {}
};
