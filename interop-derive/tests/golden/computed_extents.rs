#[derive(CudaArray)]
#[cuda_array(shape = [self.rows(), 1 << self.bits, self.sizes[0], 3], export)]
struct Planes {
    #[cuda_array(data)]
    values: Vec<f32>,
    bits: u32,
    sizes: [usize; 2],
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Planes {
        #[inline(always)]
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <Vec<f32> as __p::Storage>::describe(&self.values)?;
            let __described = __described
                .with_other_drops(
                    ::core::mem::needs_drop::<u32>()
                        || ::core::mem::needs_drop::<[usize; 2]>(),
                );
            __described
                .extents([
                    (|| -> __p::Result<_> {
                        __p::ComputedExtent::to_extent(self.rows(), 0, "self.rows()")
                    })()?,
                    (|| -> __p::Result<_> {
                        __p::ComputedExtent::to_extent(
                            1usize << self.bits,
                            1,
                            "1 << self.bits",
                        )
                    })()?,
                    (|| -> __p::Result<_> {
                        __p::ComputedExtent::to_extent(self.sizes[0], 2, "self.sizes[0]")
                    })()?,
                    3,
                ])
        }
        fn note_read(&self, __stream: __p::StreamHandle) -> ::core::primitive::bool {
            <Vec<f32> as __p::Storage>::note_read(&self.values, __stream)
        }
        fn note_write(
            &mut self,
            __stream: __p::StreamHandle,
        ) -> ::core::primitive::bool {
            <Vec<f32> as __p::Storage>::note_write(&mut self.values, __stream)
        }
        fn __is_only_handle(&mut self) -> ::core::primitive::bool {
            <Vec<f32> as __p::Storage>::is_only_handle(&mut self.values)
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
