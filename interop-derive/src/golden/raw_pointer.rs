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
            let __described = <Device as __p::DeviceField>::describe(
                &self.device,
                unsafe { <*mut f32 as __p::RawPointer>::memory(&self.pointer) },
            );
            let _ = &self.owner;
            <[usize; 1] as __p::ShapeField>::finish(&self.shape, __described)
        }
    }
    #[automatically_derived]
    impl __p::FromArray for Raw {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::None,
            order: __p::Some(__p::Order::C),
        };
        #[inline(always)]
        fn assemble(__arrival: &mut __p::Arrival<'_>) -> __p::Result<Self> {
            <*mut f32 as __p::RawPointer>::open(
                __arrival,
                <Self as __p::FromArray>::WANTED,
            );
            __p::Ok(Self {
                shape: <[usize; 1] as __p::ShapeField>::take(__arrival, "shape"),
                device: <Device as __p::DeviceField>::take(__arrival),
                pointer: <*mut f32 as __p::RawPointer>::take(__arrival),
                owner: match <Owner as __p::FromOwner>::take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
            })
        }
    }
};
