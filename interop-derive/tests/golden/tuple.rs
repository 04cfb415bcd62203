#[derive(CudaArray)]
#[cuda_array(shape = [self.1, self.2])]
struct Grid(#[cuda_array(data)] Vec<u8>, usize, usize, #[cuda_array(default = (1, 2))] (u8, u8));

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::NeverCalled as _;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Grid {
        #[inline(always)]
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <Vec<u8> as __p::Storage>::describe(&self.0)?;
            let __described = __described
                .with_other_drops(::core::mem::needs_drop::<(u8, u8)>());
            __described
                .extents([
                    <usize as __p::Extent>::describe_field(&self.1),
                    <usize as __p::Extent>::describe_field(&self.2),
                ])
        }
        fn note_read(&self, __stream: __p::StreamHandle) -> ::core::primitive::bool {
            <Vec<u8> as __p::Storage>::note_read(&self.0, __stream)
        }
        fn note_write(
            &mut self,
            __stream: __p::StreamHandle,
        ) -> ::core::primitive::bool {
            <Vec<u8> as __p::Storage>::note_write(&mut self.0, __stream)
        }
        fn __is_only_handle(&mut self) -> ::core::primitive::bool {
            <Vec<u8> as __p::Storage>::is_only_handle(&mut self.0)
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
    impl __p::FromArray for Grid {
        const DATA_FIELD: __p::DataField = <__p::FieldProbe<Vec<u8>>>::DATA_FIELD;
        #[inline(always)]
        unsafe fn assemble(__extraction: &mut __p::Extraction<'_>) -> __p::Result<Self> {
            let __opened = <__p::FieldProbe<
                Vec<u8>,
            >>::open(
                __extraction,
                __p::Requirements {
                    axes: __p::Some(2),
                    order: __p::Some(__p::Order::C),
                },
            );
            __p::Extraction::check(__extraction)?;
            __p::Ok(Self {
                1: <usize as __p::Extent>::take(__extraction, 0, "1"),
                2: <usize as __p::Extent>::take(__extraction, 1, "2"),
                3: (1, 2),
                0: match unsafe { __opened(__extraction) } {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
            })
        }
    }
    #[automatically_derived]
    unsafe impl<'__borrow> __p::BorrowedFor<'__borrow> for Grid
    where
        Vec<u8>: __p::BorrowedFor<'__borrow>,
    {}
};
