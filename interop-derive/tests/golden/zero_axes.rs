#[derive(CudaArray)]
#[cuda_array(shape = [])]
struct Scalar {
    #[cuda_array(data)]
    value: Box<[f32]>,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::NeverCalled as _;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Scalar {
        #[inline(always)]
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <Box<[f32]> as __p::Storage>::describe(&self.value)?;
            __described.extents([])
        }
        fn note_read(&self, __stream: __p::StreamHandle) -> ::core::primitive::bool {
            <Box<[f32]> as __p::Storage>::note_read(&self.value, __stream)
        }
        fn note_write(
            &mut self,
            __stream: __p::StreamHandle,
        ) -> ::core::primitive::bool {
            <Box<[f32]> as __p::Storage>::note_write(&mut self.value, __stream)
        }
        fn __is_only_handle(&mut self) -> ::core::primitive::bool {
            <Box<[f32]> as __p::Storage>::is_only_handle(&mut self.value)
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
    impl __p::FromArray for Scalar {
        const DATA_FIELD: __p::DataField = <__p::FieldProbe<Box<[f32]>>>::DATA_FIELD;
        #[inline(always)]
        unsafe fn assemble(__extraction: &mut __p::Extraction<'_>) -> __p::Result<Self> {
            let __opened = <__p::FieldProbe<
                Box<[f32]>,
            >>::open(
                __extraction,
                __p::Requirements {
                    axes: __p::Some(0),
                    order: __p::Some(__p::Order::C),
                },
            );
            __p::Ok(Self {
                value: match unsafe { __opened(__extraction) } {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
            })
        }
    }
    #[automatically_derived]
    unsafe impl<'__borrow> __p::BorrowedFor<'__borrow> for Scalar
    where
        Box<[f32]>: __p::BorrowedFor<'__borrow>,
    {}
};
