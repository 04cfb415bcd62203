#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Raw {
    #[cuda_array(data(unsafe_raw, element = f32))]
    address: CUdeviceptr,
    len: usize,
    #[cuda_array(device)]
    device: Device,
    #[cuda_array(owner)]
    owner: Owner,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Raw {
        #[inline(always)]
        fn facts(&self) -> __p::Result<__p::Facts> {
            let _ = <f32 as __p::Element>::TYPE;
            let __described = <Device as __p::DeviceField>::describe(
                &self.device,
                unsafe { <CUdeviceptr as __p::RawAddress>::memory::<f32>(&self.address) },
            );
            let _ = &self.owner;
            __described.extents([<usize as __p::Extent>::tell(&self.len)])
        }
    }
    #[automatically_derived]
    impl __p::FromArray for Raw {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::Some(1),
            order: __p::Some(__p::Order::C),
        };
        #[inline(always)]
        fn assemble(__arrival: &mut __p::Arrival<'_>) -> __p::Result<Self> {
            let _ = <f32 as __p::Element>::TYPE;
            <CUdeviceptr as __p::RawAddress>::open::<
                f32,
            >(__arrival, <Self as __p::FromArray>::WANTED);
            __p::Ok(Self {
                len: <usize as __p::Extent>::take(__arrival, 0, "len"),
                device: <Device as __p::DeviceField>::take(__arrival),
                address: <CUdeviceptr as __p::RawAddress>::take(__arrival),
                owner: match <Owner as __p::FromOwner>::take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
            })
        }
    }
};
