#[derive(CudaArray)]
#[cuda_array(shape = [self.1, self.2])]
struct Grid(#[cuda_array(data)] Vec<u8>, usize, usize, #[cuda_array(default = (1, 2))] (u8, u8));

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::Unreached as _;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Grid {
        #[inline(always)]
        fn facts(&self) -> __p::Result<__p::Facts> {
            let __described = <Vec<u8> as __p::Storage>::describe(&self.0);
            __described
                .extents([
                    <usize as __p::Extent>::tell(&self.1),
                    <usize as __p::Extent>::tell(&self.2),
                ])
        }
    }
    #[automatically_derived]
    impl __p::FromArray for Grid {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::Some(2),
            order: __p::Some(__p::Order::C),
        };
        #[inline(always)]
        fn assemble(__arrival: &mut __p::Arrival<'_>) -> __p::Result<Self> {
            let __opened = <__p::Gate<
                Vec<u8>,
            >>::open(__arrival, <Self as __p::FromArray>::WANTED);
            __p::Arrival::check(__arrival)?;
            __p::Ok(Self {
                1: <usize as __p::Extent>::take(__arrival, 0, "1"),
                2: <usize as __p::Extent>::take(__arrival, 1, "2"),
                3: (1, 2),
                0: match __opened.take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
            })
        }
    }
};
