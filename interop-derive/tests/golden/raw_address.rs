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
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let _ = <f32 as __p::Element>::TYPE;
            let __described = <Device as __p::DeviceField>::describe(
                &self.device,
                unsafe { <CUdeviceptr as __p::RawAddress>::memory::<f32>(&self.address) },
            );
            let _ = &self.owner;
            __described.extents([<usize as __p::Extent>::describe_field(&self.len)])
        }
        #[inline(always)]
        fn __relies_on(
            _: &dyn __p::Storage,
            _: &dyn __p::ShapeField,
            _: &dyn __p::StridesField,
            _: &dyn __p::AsStream,
        ) {}
    }
    #[automatically_derived]
    impl __p::FromArray for Raw {
        #[inline(always)]
        unsafe fn assemble(__extraction: &mut __p::Extraction<'_>) -> __p::Result<Self> {
            let _ = <f32 as __p::Element>::TYPE;
            <CUdeviceptr as __p::RawAddress>::open::<
                f32,
            >(
                __extraction,
                __p::Requirements {
                    axes: __p::Some(1),
                    order: __p::Some(__p::Order::C),
                },
            );
            __p::Ok(Self {
                len: <usize as __p::Extent>::take(__extraction, 0, "len"),
                device: <Device as __p::DeviceField>::take(__extraction),
                address: <CUdeviceptr as __p::RawAddress>::take(__extraction),
                owner: match <Owner as __p::FromOwner>::take(__extraction) {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
            })
        }
    }
};
