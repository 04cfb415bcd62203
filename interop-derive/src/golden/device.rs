#[derive(CudaArray)]
#[cuda_array(device = ["cuda", "cuda_managed"])]
struct OnDevice {
    #[cuda_array(data)]
    values: Lease<f32>,
    #[cuda_array(shape)]
    shape: Vec<usize>,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::Unreached as _;
    #[automatically_derived]
    unsafe impl __p::CudaArray for OnDevice {
        #[inline(always)]
        fn facts(&self) -> __p::Result<__p::Facts> {
            let __described = <Lease<f32> as __p::Storage>::describe(&self.values);
            <Vec<usize> as __p::ShapeField>::finish(&self.shape, __described)
        }
    }
    #[automatically_derived]
    impl __p::FromArray for OnDevice {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::None,
            order: __p::Some(__p::Order::C),
        };
        #[inline(always)]
        fn assemble(__arrival: &mut __p::Arrival<'_>) -> __p::Result<Self> {
            __p::Arrival::on_one_of(
                __arrival,
                &[__p::DeviceType::CUDA, __p::DeviceType::CUDA_MANAGED],
            );
            let __opened = <__p::Gate<
                Lease<f32>,
            >>::open(__arrival, <Self as __p::FromArray>::WANTED);
            __p::Ok(Self {
                shape: <Vec<usize> as __p::ShapeField>::take(__arrival, "shape"),
                values: match __opened.take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
            })
        }
    }
};
