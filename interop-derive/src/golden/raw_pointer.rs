#[derive(CudaArray)]
struct Raw {
    #[cuda_array(owner)]
    owner: Owner,
    #[cuda_array(data(unsafe_raw))]
    pointer: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 1],
    #[cuda_array(device)]
    device: Device,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Raw {
        #[inline(always)]
        fn facts(&self) -> __p::Result<__p::Facts> {
            let __d = <Device as __p::DeviceField>::describe(
                &self.device,
                unsafe { <*mut f32 as __p::RawPointer>::memory(&self.pointer) },
            );
            let _ = &self.owner;
            <[usize; 1] as __p::ShapeField>::finish(&self.shape, __d)
        }
    }
    #[automatically_derived]
    impl __p::FromArray for Raw {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::None,
            order: __p::Some(__p::Order::C),
        };
        #[inline(always)]
        fn assemble(__a: &mut __p::Arrival) -> __p::Result<Self> {
            <*mut f32 as __p::RawPointer>::open(__a, <Self as __p::FromArray>::WANTED);
            __p::Ok(Self {
                shape: <[usize; 1] as __p::ShapeField>::take(__a, "shape"),
                device: <Device as __p::DeviceField>::take(__a),
                pointer: <*mut f32 as __p::RawPointer>::take(__a),
                owner: match <Owner as __p::FromOwner>::take(__a) {
                    __p::Some(__v) => __v,
                    _ => return __a.refused(),
                },
            })
        }
    }
};
