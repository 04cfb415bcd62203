#[derive(CudaArray)]
#[cuda_array(shape = [r#loop, self.r#in])]
struct r#Struct {
    #[cuda_array(data)]
    r#type: Vec<f32>,
    r#loop: usize,
    r#in: usize,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::NeverCalled as _;
    #[automatically_derived]
    unsafe impl __p::CudaArray for r#Struct {
        #[inline(always)]
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <Vec<f32> as __p::Storage>::describe(&self.r#type)?;
            __described
                .extents([
                    <usize as __p::Extent>::describe_field(&self.r#loop),
                    <usize as __p::Extent>::describe_field(&self.r#in),
                ])
        }
        fn note_read(&self, __stream: __p::StreamHandle) -> ::core::primitive::bool {
            <Vec<f32> as __p::Storage>::note_read(&self.r#type, __stream)
        }
        fn note_write(
            &mut self,
            __stream: __p::StreamHandle,
        ) -> ::core::primitive::bool {
            <Vec<f32> as __p::Storage>::note_write(&mut self.r#type, __stream)
        }
        fn __is_only_handle(&mut self) -> ::core::primitive::bool {
            <Vec<f32> as __p::Storage>::is_only_handle(&mut self.r#type)
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
    impl __p::FromArray for r#Struct {
        const DATA_FIELD: __p::DataField = <__p::FieldProbe<Vec<f32>>>::DATA_FIELD;
        #[inline(always)]
        unsafe fn assemble(__extraction: &mut __p::Extraction<'_>) -> __p::Result<Self> {
            let __opened = <__p::FieldProbe<
                Vec<f32>,
            >>::open(
                __extraction,
                __p::Requirements {
                    axes: __p::Some(2),
                    order: __p::Some(__p::Order::C),
                },
            );
            __p::Ok(Self {
                r#loop: <usize as __p::Extent>::take(__extraction, 0, "loop"),
                r#in: <usize as __p::Extent>::take(__extraction, 1, "in"),
                r#type: match unsafe { __opened(__extraction) } {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
            })
        }
    }
    #[automatically_derived]
    unsafe impl<'__borrow> __p::BorrowedFor<'__borrow> for r#Struct
    where
        Vec<f32>: __p::BorrowedFor<'__borrow>,
    {}
};
