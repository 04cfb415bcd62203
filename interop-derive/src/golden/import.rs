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
        fn assemble(__a: &mut __p::Arrival) -> __p::Result<Self> {
            let __s = <Lease<
                f32,
            > as __p::FromImport>::open(__a, <Self as __p::FromArray>::WANTED);
            __p::Ok(Self {
                shape: <Vec<usize> as __p::ShapeField>::take(__a, "shape"),
                strides: <Vec<isize> as __p::StridesField>::take(__a, "strides"),
                stream: match <StreamHandle as __p::FromStream>::take(__a) {
                    __p::Some(__v) => __v,
                    _ => return __a.refused(),
                },
                values: match __s.take(__a) {
                    __p::Some(__v) => __v,
                    _ => return __a.refused(),
                },
            })
        }
    }
};
