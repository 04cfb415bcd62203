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
    use __p::Unreached as _;
    const __EXTENT1: ::core::primitive::usize = __p::constant(CHANNELS).extent();
    const __EXTENT2: ::core::primitive::usize = __p::constant(Cells::SIDE).extent();
    const __EXTENT3: ::core::primitive::usize = __p::constant(sizes::DEPTH).extent();
    #[automatically_derived]
    unsafe impl __p::CudaArray for Cells {
        #[inline(always)]
        fn facts(&self) -> __p::Result<__p::Facts> {
            let __described = <Vec<f32> as __p::Storage>::describe(&self.values);
            __described
                .extents([
                    <usize as __p::Extent>::tell(&self.n),
                    __p::Extent::tell(&__EXTENT1),
                    __p::Extent::tell(&__EXTENT2),
                    __p::Extent::tell(&__EXTENT3),
                ])
        }
    }
    #[automatically_derived]
    impl __p::FromArray for Cells {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::Some(4),
            order: __p::Some(__p::Order::C),
        };
        #[inline(always)]
        fn assemble(__arrival: &mut __p::Arrival<'_>) -> __p::Result<Self> {
            let __opened = <__p::Gate<
                Vec<f32>,
            >>::open(__arrival, <Self as __p::FromArray>::WANTED);
            __p::Arrival::literal(__arrival, 1, __EXTENT1);
            __p::Arrival::literal(__arrival, 2, __EXTENT2);
            __p::Arrival::literal(__arrival, 3, __EXTENT3);
            __p::Ok(Self {
                n: <usize as __p::Extent>::take(__arrival, 0, "n"),
                values: match __opened.take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
            })
        }
    }
};
