#[derive(CudaArray)]
#[allow(dead_code, unsafe_code, reason = "the memory is that of a C library")]
#[cuda_array(export)]
struct Raw {
    #[allow(deprecated)]
    #[cuda_array(data(unsafe_raw))]
    pointer: *const f32,
    #[cuda_array(shape)]
    shape: [usize; 1],
    #[cuda_array(device)]
    device: Device,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    #[automatically_derived]
    #[allow(dead_code, unsafe_code, deprecated)]
    unsafe impl __p::CudaArray for Raw {
        #[inline(always)]
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <Device as __p::DeviceField>::describe(
                &self.device,
                unsafe { <*const f32 as __p::RawPointer>::memory(&self.pointer) },
            );
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
};
