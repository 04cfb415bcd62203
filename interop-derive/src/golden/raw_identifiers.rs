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
    use __p::Unreached as _;
    #[automatically_derived]
    unsafe impl __p::CudaArray for r#Struct {
        #[inline(always)]
        fn facts(&self) -> __p::Result<__p::Facts> {
            let __described = <Vec<f32> as __p::Storage>::describe(&self.r#type);
            __described
                .extents([
                    <usize as __p::Extent>::tell(&self.r#loop),
                    <usize as __p::Extent>::tell(&self.r#in),
                ])
        }
    }
    #[automatically_derived]
    impl __p::FromArray for r#Struct {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::Some(2),
            order: __p::Some(__p::Order::C),
        };
        #[inline(always)]
        fn assemble(__arrival: &mut __p::Arrival<'_>) -> __p::Result<Self> {
            let __opened = <__p::Gate<
                Vec<f32>,
            >>::open(__arrival, <Self as __p::FromArray>::WANTED);
            __p::Ok(Self {
                r#loop: <usize as __p::Extent>::take(__arrival, 0, "loop"),
                r#in: <usize as __p::Extent>::take(__arrival, 1, "in"),
                r#type: match __opened.take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
            })
        }
    }
};
