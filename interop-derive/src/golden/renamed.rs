#[derive(CudaArray)]
#[cuda_array(crate = "crate::vendored::interop")]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    #[cuda_array(shape)]
    shape: Vec<usize>,
}

// ---- expands to ----

const _: () = {
    use crate::vendored::interop::__private as __p;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Samples {
        fn facts(&self) -> __p::Result<__p::Facts> {
            let __d = <Vec<f32> as __p::Storage>::describe(&self.values);
            let __d = <Vec<usize> as __p::ShapeField>::tell(&self.shape, __d);
            __d.finish()
        }
    }
    #[automatically_derived]
    impl __p::FromArray for Samples {
        fn assemble(__a: &mut __p::Arrival) -> __p::Result<Self> {
            let __s = {
                use __p::Unreached as _;
                <__p::Gate<
                    Vec<f32>,
                >>::open(__a, &__p::Wanted::new().order(__p::Order::C))?
            };
            __p::Ok(Self {
                shape: <Vec<usize> as __p::ShapeField>::take(__a, "shape")?,
                values: __s.take(__a)?,
            })
        }
    }
};
