#[derive(CudaArray)]
#[cuda_array(order = "F", shape = [rows, columns], device = ["cuda", "cuda_managed"], crate = "crate::vendored::interop")]
struct Matrix {
    #[cuda_array(data)]
    values: Vec<f64>,
    rows: usize,
    columns: usize,
}

// ---- expands to ----

const _: () = {
    use crate::vendored::interop::__interop_core as __p;
    use __p::NeverCalled as _;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Matrix {
        #[inline(always)]
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <Vec<f64> as __p::Storage>::describe(&self.values)?;
            let __described = __described.order(__p::Order::F);
            __described
                .extents([
                    <usize as __p::Extent>::describe_field(&self.rows),
                    <usize as __p::Extent>::describe_field(&self.columns),
                ])
        }
        fn note_read(&self, __stream: __p::StreamHandle) -> ::core::primitive::bool {
            <Vec<f64> as __p::Storage>::note_read(&self.values, __stream)
        }
        fn note_write(
            &mut self,
            __stream: __p::StreamHandle,
        ) -> ::core::primitive::bool {
            <Vec<f64> as __p::Storage>::note_write(&mut self.values, __stream)
        }
        fn __is_only_handle(&mut self) -> ::core::primitive::bool {
            <Vec<f64> as __p::Storage>::is_only_handle(&mut self.values)
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
    impl __p::FromArray for Matrix {
        const DATA_FIELD: __p::DataField = <__p::FieldProbe<Vec<f64>>>::DATA_FIELD
            .in_order(__p::Order::F);
        #[inline(always)]
        unsafe fn assemble(__extraction: &mut __p::Extraction<'_>) -> __p::Result<Self> {
            __p::Extraction::on_one_of(
                __extraction,
                &[__p::DeviceType::CUDA, __p::DeviceType::CUDA_MANAGED],
            );
            let __opened = <__p::FieldProbe<
                Vec<f64>,
            >>::open(
                __extraction,
                __p::Requirements {
                    axes: __p::Some(2),
                    order: __p::Some(__p::Order::F),
                },
            );
            __p::Ok(Self {
                rows: <usize as __p::Extent>::take(__extraction, 0, "rows"),
                columns: <usize as __p::Extent>::take(__extraction, 1, "columns"),
                values: match unsafe { __opened(__extraction) } {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
            })
        }
    }
    #[automatically_derived]
    unsafe impl<'__borrow> __p::BorrowedFor<'__borrow> for Matrix
    where
        Vec<f64>: __p::BorrowedFor<'__borrow>,
    {}
};
