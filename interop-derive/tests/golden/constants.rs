#[derive(CudaArray)]
#[cuda_array(shape = [n, CHANNELS, Self::SIDE, sizes::DEPTH])]
pub struct Cells {
    #[cuda_array(data)]
    values: Vec<f32>,
    n: usize,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::NeverCalled as _;
    const __EXTENT1: ::core::primitive::usize = __p::constant(CHANNELS).extent();
    const __EXTENT2: ::core::primitive::usize = __p::constant(Cells::SIDE).extent();
    const __EXTENT3: ::core::primitive::usize = __p::constant(sizes::DEPTH).extent();
    #[automatically_derived]
    unsafe impl __p::CudaArray for Cells {
        #[inline(always)]
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <Vec<f32> as __p::Storage>::describe(&self.values)?;
            __described
                .extents([
                    <usize as __p::Extent>::describe_field(&self.n),
                    __p::Extent::describe_field(&__EXTENT1),
                    __p::Extent::describe_field(&__EXTENT2),
                    __p::Extent::describe_field(&__EXTENT3),
                ])
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
    impl __p::FromArray for Cells {
        const DATA_FIELD: __p::DataField = <__p::FieldProbe<Vec<f32>>>::DATA_FIELD;
        #[inline(always)]
        unsafe fn assemble(__extraction: &mut __p::Extraction<'_>) -> __p::Result<Self> {
            let __opened = <__p::FieldProbe<
                Vec<f32>,
            >>::open(
                __extraction,
                __p::Requirements {
                    axes: __p::Some(4),
                    order: __p::Some(__p::Order::C),
                },
            );
            __p::Extraction::literal(__extraction, 1, __EXTENT1);
            __p::Extraction::literal(__extraction, 2, __EXTENT2);
            __p::Extraction::literal(__extraction, 3, __EXTENT3);
            __p::Ok(Self {
                n: <usize as __p::Extent>::take(__extraction, 0, "n"),
                values: match unsafe { __opened(__extraction) } {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
            })
        }
    }
    #[automatically_derived]
    unsafe impl<'__borrow> __p::BorrowedFor<'__borrow> for Cells
    where
        Vec<f32>: __p::BorrowedFor<'__borrow>,
    {}
};
