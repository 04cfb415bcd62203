#[derive(CudaArray)]
#[cuda_array(pyclass)]
struct PyImage {
    #[cuda_array(inner)]
    image: core_crate::Image,
    #[cuda_array(default)]
    mode: String,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    use __p::NeverCalled as _;
    #[automatically_derived]
    unsafe impl __p::CudaArray for PyImage {
        #[inline(always)]
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <core_crate::Image as __p::CudaArray>::info(&self.image)?;
            let __described = __described
                .with_other_drops(::core::mem::needs_drop::<String>());
            __described.finish()
        }
        fn note_read(&self, __stream: __p::StreamHandle) -> ::core::primitive::bool {
            <core_crate::Image as __p::CudaArray>::note_read(&self.image, __stream)
        }
        fn note_write(
            &mut self,
            __stream: __p::StreamHandle,
        ) -> ::core::primitive::bool {
            <core_crate::Image as __p::CudaArray>::note_write(&mut self.image, __stream)
        }
        fn __is_only_handle(&mut self) -> ::core::primitive::bool {
            <core_crate::Image as __p::CudaArray>::__is_only_handle(&mut self.image)
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
    impl __p::FromArray for PyImage {
        const DATA_FIELD: __p::DataField = <__p::FieldProbe<
            core_crate::Image,
        >>::INNER_FIELD;
        #[inline(always)]
        unsafe fn assemble(__extraction: &mut __p::Extraction<'_>) -> __p::Result<Self> {
            __p::Extraction::keep(__extraction);
            __p::Extraction::check(__extraction)?;
            __p::Ok(Self {
                mode: <String as __p::Default>::default(),
                image: unsafe {
                    <__p::FieldProbe<core_crate::Image>>::assemble(__extraction)
                }?,
            })
        }
    }
    #[automatically_derived]
    unsafe impl<'__borrow> __p::BorrowedFor<'__borrow> for PyImage
    where
        core_crate::Image: __p::BorrowedFor<'__borrow>,
    {}
    __p::python_class! {
        type : PyImage, pyo3 : "::interop_core::__interop_core::python::pyo3"
    }
};
