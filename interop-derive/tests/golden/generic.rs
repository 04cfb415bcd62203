#[derive(CudaArray)]
#[cuda_array(shape = [n, n, C, len])]
pub struct Generic<'a, T: Element, L, M = (), const C: usize = 3>
where
    L: Copy,
{
    #[cuda_array(data)]
    values: Lease<T>,
    n: L,
    len: usize,
    #[cuda_array(default)]
    marker: PhantomData<&'a M>,
}

// ---- expands to ----

const _: () = {
    use ::interop_core::__interop_core as __p;
    #[automatically_derived]
    unsafe impl<'a, T: Element, L, M, const C: usize> __p::CudaArray
    for Generic<'a, T, L, M, { C }>
    where
        L: Copy,
        T: __p::Element,
        Lease<T>: __p::Storage,
        L: __p::Extent,
    {
        #[inline(always)]
        fn info(&self) -> __p::Result<__p::ArrayInfo> {
            let __described = <Lease<T> as __p::Storage>::describe(&self.values)?;
            let __described = __described
                .with_other_drops(::core::mem::needs_drop::<PhantomData<&'a M>>());
            __described
                .extents([
                    <L as __p::Extent>::describe_field(&self.n),
                    <L as __p::Extent>::describe_field(&self.n),
                    __p::Extent::describe_field(&C),
                    <usize as __p::Extent>::describe_field(&self.len),
                ])
        }
        fn note_read(&self, __stream: __p::StreamHandle) -> ::core::primitive::bool {
            <Lease<T> as __p::Storage>::note_read(&self.values, __stream)
        }
        fn note_write(
            &mut self,
            __stream: __p::StreamHandle,
        ) -> ::core::primitive::bool {
            <Lease<T> as __p::Storage>::note_write(&mut self.values, __stream)
        }
        fn __is_only_handle(&mut self) -> ::core::primitive::bool {
            <Lease<T> as __p::Storage>::is_only_handle(&mut self.values)
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
    impl<'a, T: Element, L, M, const C: usize> __p::FromArray
    for Generic<'a, T, L, M, { C }>
    where
        L: Copy,
        T: __p::Element,
        Lease<T>: __p::FromImport,
        L: __p::Extent,
        PhantomData<&'a M>: __p::Default,
    {
        const DATA_FIELD: __p::DataField = <Lease<T> as __p::FromImport>::DATA_FIELD;
        #[inline(always)]
        unsafe fn assemble(__extraction: &mut __p::Extraction<'_>) -> __p::Result<Self> {
            let __opened = <Lease<
                T,
            > as __p::FromImport>::open(
                __extraction,
                __p::Requirements {
                    axes: __p::Some(4),
                    order: __p::Some(__p::Order::C),
                },
            );
            __p::Extraction::same_extent(__extraction, 0, 1, "n");
            __p::Extraction::constant(__extraction, 2, __p::Extent::describe_field(&C));
            __p::Extraction::check(__extraction)?;
            __p::Ok(Self {
                n: <L as __p::Extent>::take(__extraction, 0, "n"),
                len: <usize as __p::Extent>::take(__extraction, 3, "len"),
                marker: <PhantomData<&'a M> as __p::Default>::default(),
                values: match unsafe { __opened(__extraction) } {
                    __p::Some(__value) => __value,
                    _ => return __extraction.refused(),
                },
            })
        }
    }
    #[automatically_derived]
    unsafe impl<
        '__borrow,
        'a,
        T: Element,
        L,
        M,
        const C: usize,
    > __p::BorrowedFor<'__borrow> for Generic<'a, T, L, M, { C }>
    where
        L: Copy,
        Lease<T>: __p::BorrowedFor<'__borrow>,
    {}
};
