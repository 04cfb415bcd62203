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
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::None,
            order: __p::None,
        };
        #[inline(always)]
        fn assemble(__arrival: &mut __p::Arrival<'_>) -> __p::Result<Self> {
            let __opened = <Lease<
                f32,
            > as __p::FromImport>::open(__arrival, <Self as __p::FromArray>::WANTED);
            __p::Ok(Self {
                shape: <Vec<usize> as __p::ShapeField>::take(__arrival, "shape"),
                strides: <Vec<isize> as __p::StridesField>::take(__arrival, "strides"),
                stream: match <StreamHandle as __p::FromStream>::take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
                values: match __opened.take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
            })
        }
    }
};
