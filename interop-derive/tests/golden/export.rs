#[derive(CudaArray)]
#[cuda_array(export, readonly)]
struct Table<'a> {
    #[cuda_array(data)]
    cells: &'static [f32],
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(stream)]
    stream: Stream,
    #[cuda_array(owner)]
    context: Arc<Context>,
    name: &'a str,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    #[automatically_derived]
    unsafe impl<'a> __p::CudaArray for Table<'a> {
        #[inline(always)]
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <&'static [f32] as __p::Storage>::describe(&self.cells)?;
            let __described = __described
                .with_other_drops(
                    ::core::mem::needs_drop::<Arc<Context>>()
                        || ::core::mem::needs_drop::<&'a str>(),
                );
            let __described = <Stream as __p::AsStream>::describe_field(
                &self.stream,
                __described,
            );
            let __described = __described.readonly();
            let _ = &self.context;
            <[usize; 2] as __p::ShapeField>::finish(&self.shape, __described)
        }
        fn note_read(&self, __stream: __p::StreamHandle) -> ::core::primitive::bool {
            <&'static [f32] as __p::Storage>::note_read(&self.cells, __stream)
        }
        fn note_write(
            &mut self,
            __stream: __p::StreamHandle,
        ) -> ::core::primitive::bool {
            <&'static [f32] as __p::Storage>::note_write(&mut self.cells, __stream)
        }
        fn __is_only_handle(&mut self) -> ::core::primitive::bool {
            <&'static [f32] as __p::Storage>::is_only_handle(&mut self.cells)
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
