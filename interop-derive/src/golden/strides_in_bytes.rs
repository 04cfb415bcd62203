#[derive(CudaArray)]
#[cuda_array(order = "F")]
struct Strided {
    #[cuda_array(data)]
    values: Vec<f64>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(strides(bytes))]
    strides: [i64; 2],
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::Unreached as _;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Strided {
        #[inline(always)]
        fn facts(&self) -> __p::Result<__p::Facts> {
            let __described = <Vec<f64> as __p::Storage>::describe(&self.values);
            let __described = <[i64; 2] as __p::StridesField>::tell_in_bytes(
                &self.strides,
                __described,
            );
            let __described = __described.order(__p::Order::F);
            <[usize; 2] as __p::ShapeField>::finish(&self.shape, __described)
        }
    }
    #[automatically_derived]
    impl __p::FromArray for Strided {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::None,
            order: __p::Some(__p::Order::F),
        };
        #[inline(always)]
        fn assemble(__arrival: &mut __p::Arrival<'_>) -> __p::Result<Self> {
            let __opened = <__p::Gate<
                Vec<f64>,
            >>::open(__arrival, <Self as __p::FromArray>::WANTED);
            __p::Ok(Self {
                shape: <[usize; 2] as __p::ShapeField>::take(__arrival, "shape"),
                strides: <[i64; 2] as __p::StridesField>::take_in_bytes(
                    __arrival,
                    "strides",
                ),
                values: match __opened.take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
            })
        }
    }
};
