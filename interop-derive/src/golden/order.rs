#[derive(CudaArray)]
#[cuda_array(order = "F", shape = [rows, columns])]
struct Matrix {
    #[cuda_array(data)]
    values: Vec<f64>,
    rows: usize,
    columns: usize,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::Unreached as _;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Matrix {
        #[inline(always)]
        fn facts(&self) -> __p::Result<__p::Facts> {
            let __described = <Vec<f64> as __p::Storage>::describe(&self.values);
            let __described = __described.order(__p::Order::F);
            __described
                .extents([
                    <usize as __p::Extent>::tell(&self.rows),
                    <usize as __p::Extent>::tell(&self.columns),
                ])
        }
    }
    #[automatically_derived]
    impl __p::FromArray for Matrix {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::Some(2),
            order: __p::Some(__p::Order::F),
        };
        #[inline(always)]
        fn assemble(__arrival: &mut __p::Arrival<'_>) -> __p::Result<Self> {
            let __opened = <__p::Gate<
                Vec<f64>,
            >>::open(__arrival, <Self as __p::FromArray>::WANTED);
            __p::Ok(Self {
                rows: <usize as __p::Extent>::take(__arrival, 0, "rows"),
                columns: <usize as __p::Extent>::take(__arrival, 1, "columns"),
                values: match __opened.take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
            })
        }
    }
};
