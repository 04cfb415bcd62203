#[derive(CudaArray)]
#[cuda_array(pyclass, export)]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    #[cuda_array(shape)]
    shape: Vec<usize>,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    #[automatically_derived]
    unsafe impl __p::CudaArray for Samples {
        #[inline(always)]
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <Vec<f32> as __p::Storage>::describe(&self.values)?;
            <Vec<usize> as __p::ShapeField>::finish(&self.shape, __described)
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
    __p::python_class! {
        type : Samples, pyo3 : "::interop_core::__interop_core::python::pyo3", storage :
        Vec < f32 >
    }
};
