#[derive(CudaArray)]
#[cuda_array(python)]
struct Samples<T: Clone> {
    #[cuda_array(dta)]
    values: Vec<T>,
    #[cuda_array(shape)]
    shape: Vec<usize>,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    #[automatically_derived]
    unsafe impl<T: Clone> __p::CudaArray for Samples<T> {
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            ::core::unreachable!()
        }
    }
    #[automatically_derived]
    impl<T: Clone> __p::FromArray for Samples<T> {
        unsafe fn assemble(_: &mut __p::Extraction<'_>) -> __p::Result<Self> {
            ::core::unreachable!()
        }
    }
    __p::python_conversions! {
        export : true, import : true, generics : [T], type : Samples < T >, bounds : [T :
        Clone, Samples < T > : 'static + __p::Send + __p::Sync,]
    }
};
::core::compile_error! {
    "unknown keyword `dta` on a field\n= help: write `data`; a field takes `data`, `inner`, `shape`, `strides`, `stream`, `device`, `owner` or `default`"
}
