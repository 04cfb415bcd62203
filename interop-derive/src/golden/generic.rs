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
        Lease<T>: __p::Storage,
        L: __p::Extent,
    {
        #[inline(always)]
        fn facts(&self) -> __p::Result<__p::Facts> {
            let __described = <Lease<T> as __p::Storage>::describe(&self.values);
            __described
                .extents([
                    <L as __p::Extent>::tell(&self.n),
                    <L as __p::Extent>::tell(&self.n),
                    __p::Extent::tell(&C),
                    <usize as __p::Extent>::tell(&self.len),
                ])
        }
    }
    #[automatically_derived]
    impl<'a, T: Element, L, M, const C: usize> __p::FromArray
    for Generic<'a, T, L, M, { C }>
    where
        L: Copy,
        Lease<T>: __p::FromImport,
        L: __p::Extent,
        PhantomData<&'a M>: __p::Default,
    {
        const WANTED: __p::Wanted = __p::Wanted {
            axes: __p::Some(4),
            order: __p::Some(__p::Order::C),
        };
        #[inline(always)]
        fn assemble(__arrival: &mut __p::Arrival<'_>) -> __p::Result<Self> {
            let __opened = <Lease<
                T,
            > as __p::FromImport>::open(__arrival, <Self as __p::FromArray>::WANTED);
            __p::Arrival::same_extent(__arrival, 0, 1, "n");
            __p::Arrival::constant(__arrival, 2, __p::Extent::tell(&C));
            __p::Arrival::check(__arrival)?;
            __p::Ok(Self {
                n: <L as __p::Extent>::take(__arrival, 0, "n"),
                len: <usize as __p::Extent>::take(__arrival, 3, "len"),
                marker: <PhantomData<&'a M> as __p::Default>::default(),
                values: match __opened.take(__arrival) {
                    __p::Some(__value) => __value,
                    _ => return __arrival.refused(),
                },
            })
        }
    }
};
