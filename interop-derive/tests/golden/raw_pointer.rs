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
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <Device as __p::DeviceField>::describe(
                &self.device,
                unsafe { <*mut f32 as __p::RawPointer>::memory(&self.pointer) },
            );
            let _ = &self.owner;
            <[usize; 1] as __p::ShapeField>::finish(&self.shape, __described)
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
            <*mut f32 as __p::RawPointer>::open(
                __extraction,
                __p::Requirements {
                    axes: __p::None,
                    order: __p::Some(__p::Order::C),
                },
            );
            __p::Ok(Self {
                shape: match <[usize; 1] as __p::ShapeField>::take(
                    __extraction,
                    "shape",
                ) {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
                device: <Device as __p::DeviceField>::take(__extraction),
                pointer: <*mut f32 as __p::RawPointer>::take(__extraction),
                owner: match <Owner as __p::FromOwner>::take(__extraction) {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
            })
        }
    }
};
