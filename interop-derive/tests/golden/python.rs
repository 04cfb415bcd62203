#[derive(CudaArray)]
#[cuda_array(python)]
struct Samples<S: Clone, const N: usize>
where
    Vec<S>: Default,
{
    #[cuda_array(data)]
    values: S,
    #[cuda_array(shape)]
    shape: [usize; N],
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    #[automatically_derived]
    unsafe impl<S: Clone, const N: usize> __p::CudaArray for Samples<S, { N }>
    where
        Vec<S>: Default,
        S: __p::Storage,
        [usize; N]: __p::ShapeField,
    {
        #[inline(always)]
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <S as __p::Storage>::describe(&self.values)?;
            <[usize; N] as __p::ShapeField>::finish(&self.shape, __described)
        }
        fn note_read(&self, __stream: __p::StreamHandle) -> ::core::primitive::bool {
            <S as __p::Storage>::note_read(&self.values, __stream)
        }
        fn note_write(
            &mut self,
            __stream: __p::StreamHandle,
        ) -> ::core::primitive::bool {
            <S as __p::Storage>::note_write(&mut self.values, __stream)
        }
        fn __is_only_handle(&mut self) -> ::core::primitive::bool {
            <S as __p::Storage>::is_only_handle(&mut self.values)
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
    impl<S: Clone, const N: usize> __p::FromArray for Samples<S, { N }>
    where
        Vec<S>: Default,
        S: __p::FromImport,
        [usize; N]: __p::ShapeField,
    {
        const DATA_FIELD: __p::DataField = <S as __p::FromImport>::DATA_FIELD;
        #[inline(always)]
        unsafe fn assemble(__extraction: &mut __p::Extraction<'_>) -> __p::Result<Self> {
            let __opened = <S as __p::FromImport>::open(
                __extraction,
                __p::Requirements {
                    axes: __p::None,
                    order: __p::Some(__p::Order::C),
                },
            );
            __p::Ok(Self {
                shape: match <[usize; N] as __p::ShapeField>::take(
                    __extraction,
                    "shape",
                ) {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
                values: match unsafe { __opened(__extraction) } {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
            })
        }
    }
    #[automatically_derived]
    unsafe impl<'__borrow, S: Clone, const N: usize> __p::BorrowedFor<'__borrow>
    for Samples<S, { N }>
    where
        Vec<S>: Default,
        S: __p::BorrowedFor<'__borrow>,
    {}
    __p::python_conversions! {
        export : true, import : true, generics : [S, const N : usize], type : Samples <
        S, { N } >, bounds : [S : Clone, Vec < S > : Default, Samples < S, { N } > :
        'static + __p::Send + __p::Sync,]
    }
};
