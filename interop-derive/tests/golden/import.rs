#[derive(CudaArray)]
#[cuda_array(import)]
struct Batch {
    #[cuda_array(data)]
    values: Lease<f32>,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(strides)]
    strides: Vec<isize>,
    #[cuda_array(stream)]
    stream: StreamHandle,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    #[automatically_derived]
    impl __p::FromArray for Batch {
        const DATA_FIELD: __p::DataField = <Lease<f32> as __p::FromImport>::DATA_FIELD;
        #[inline(always)]
        unsafe fn assemble(__extraction: &mut __p::Extraction<'_>) -> __p::Result<Self> {
            let __opened = <Lease<
                f32,
            > as __p::FromImport>::open(
                __extraction,
                __p::Requirements {
                    axes: __p::None,
                    order: __p::None,
                },
            );
            __p::Ok(Self {
                shape: match <Vec<
                    usize,
                > as __p::ShapeField>::take(__extraction, "shape") {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
                strides: match <Vec<
                    isize,
                > as __p::StridesField>::take(__extraction, "strides", false) {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
                stream: match <StreamHandle as __p::FromStream>::take(__extraction) {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
                values: match unsafe { __opened(__extraction) } {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
            })
        }
    }
    #[automatically_derived]
    unsafe impl<'__borrow> __p::BorrowedFor<'__borrow> for Batch
    where
        Lease<f32>: __p::BorrowedFor<'__borrow>,
    {}
};
