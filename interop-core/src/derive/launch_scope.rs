//! `LaunchScope`: orders kernels that are launched by hand with the arrays that they use.
#![expect(unsafe_code, reason = "makes views of arrays that the scope borrows")]

use core::cell::{Cell, RefCell};
use core::ffi::c_void;
use core::marker::PhantomData;
use core::ops::Deref;
use core::{fmt, ptr};

use interop_kernel::{Arguments, InScope, Kernel, KernelView, KernelViewMut, LaunchSize};

use crate::array::element::Element;
use crate::array::stream_handle::StreamHandle;
use crate::derive::cuda_array::CudaArray;
use crate::derive::fields::stream::{AsStream, FromStream};
use crate::derive::scope_state::{ScopeState, ScopeStream, ScopeUse, unnamed_default_stream};
use crate::driver::kernel_module::{EntryPoint, KernelArgument, KernelModule};
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::raw_view::RawView;
use crate::order::array_info::ArrayInfo;

/// Orders the launch of kernels with the arrays that they use, whatever streams these are on.
///
/// A scope has one stream: that of the first array whose stream is known, or one that you name ([`on`](Self::on)). [`read`](Self::read) and
/// [`write`](Self::write) make that stream wait for an array and return the argument of a kernel. Launch on
/// [`stream`](Self::stream). At the end of the scope the streams of all its arrays wait for the work in it. The end comes
/// on every way out: [`finish`](Self::finish), an early return and a panic. A stream never waits for itself, so a function
/// of one array makes no driver call.
///
/// A scope that is leaked, by [`core::mem::forget`], has no end: no stream waits for its kernels.
///
/// An argument of a Python function is on the stream on which the caller works now. So a function that launches in a scope
/// is right on every stream, with arrays of several libraries, and in a CUDA graph.
///
/// # Arrays without a stream of their own
///
/// | the array | at its start | at the end |
/// | --- | --- | --- |
/// | its stream is unknown ([`ArrayInfo::stream`] is `None`) | the stream waits for all work of the memory's context | nothing: whoever uses it next waits for all work, too |
/// | its library works on streams that it does not name (DALI, `PyCUDA`, nanobind), or the array is [kept](crate::Kept) | as above | all later work of the context waits; for pinned and managed memory the host |
/// | it states that nothing is pending | nothing | the host waits, so that the statement is true |
/// | its storage is of another crate and states no stream (`cust`) | as the first | the host waits, unless the crate notes the work ([`Storage::note_read`](crate::Storage::note_read)) |
/// | a `stream` field names another stream than its storage | the stream waits for both | both wait |
///
/// During graph capture none of these waits is possible, and the scope leaves them out: the graph is ordered where it is
/// launched. Let pending work on such arrays end before the capture begins, as `torch.cuda.graph` does.
///
/// # Arrays of the CPU
///
/// If the arrays are in memory of the CPU, [`launch`](Self::launch) runs the kernel there, and returns when it is done. Results are those of
/// a GPU, bit for bit but for [`kernel::math`](crate::kernel::math). There is no stream, and the module is not loaded. A launch is as fast as
/// a loop in Rust, with the vector instructions of the CPU; large ones use the threads of `rayon` with that feature, and give up the lock of
/// a Python interpreter.
///
/// A kernel has to go over all of its own elements, as in `for at in thread.elements(shape)`: one thread has many. Kernels with a
/// [`BlockThread`](crate::kernel::BlockThread) or an array by [`Blocks`](crate::kernel::Blocks) run with the threads of a GPU, one after the
/// other: right, and a hundred times slower than a loop.
///
/// All arrays of a scope are on the CPU, or none: pinned and managed memory is that of a GPU. A scope on a stream refuses arrays of the CPU,
/// and a scope with them has no [`stream`](Self::stream) and no [`launch_unchecked`](Self::launch_unchecked), because only a GPU runs other
/// kernels. Without the feature `host-launch`, which is on by default, scopes refuse these arrays, and kernels are not compiled for the CPU.
///
/// # The arrays of one scope
///
/// The arrays outlive the scope, so declare them before it. Two arrays can share memory: two arguments that are imports of it,
/// two handles of an `Arc`, clones of a [`SharedBuffer`](crate::SharedBuffer). If one of them is written, the second one is
/// refused ([`ErrorKind::AlreadyBorrowed`]): if it has an element in common with another array of the scope, of an open scope on
/// another stream, or of a [`HostView`](crate::HostView). The second scope cannot wait for the first, because the kernels of an open
/// scope are not queued yet. So are copies and exports through the second handle, until the scope ends. Two scopes on one stream
/// are ordered by it. A scope that is leaked keeps its arrays borrowed.
///
/// A storage of another crate in an `Arc`, such as `Arc<CudaSlice<T>>`, is written only by its only handle: the functions of that
/// crate do not ask this one.
///
/// # Example
///
/// ```no_run
/// use std::sync::Arc;
///
/// use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
/// use interop_core::{CudaArray, LaunchScope, Lease, LeaseMut};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len], device = "cuda")]
/// struct Row<S> { #[cuda_array(data)] values: S, len: usize }
///
/// # fn kernel() -> CudaFunction { unimplemented!() }
/// fn add_(out: &mut Row<LeaseMut<f32>>, other: &Row<Lease<f32>>) -> Result<(), Box<dyn std::error::Error>> {
///     let config = LaunchConfig::for_num_elems(u32::try_from(out.len.max(1))?);
///     let scope = LaunchScope::new();
///     let out = scope.write::<f32, 1>(out)?;      // the scope is on the stream of this array
///     let other = scope.read::<f32, 1>(other)?;   // that stream waits for this one
///     let stream: Arc<CudaStream> = scope.stream()?;
///     // SAFETY: the kernel takes an `interop::view<float, 1>` and an `interop::view<const float, 1>`.
///     unsafe { stream.launch_builder(&kernel()).arg(&out).arg(&other).launch(config)? };
///     Ok(scope.finish()?)                         // the streams of both arrays wait for the kernel
/// }
/// ```
///
/// For `cust`, whose launches need a stream of its own, name the stream: `LaunchScope::on(&stream)`.
///
/// The kernel arguments borrow the scope, so they cannot be launched after its end.
pub struct LaunchScope<'a> {
    state: RefCell<ScopeState<'a>>,
    /// The arrays and the stream are borrowed, for a lifetime that cannot shrink: an array that is dropped before the scope
    /// does not compile. The scope stays on its thread, where default streams keep their meaning.
    borrows: PhantomData<(Cell<&'a mut ()>, *const ())>,
}

/// The description of an array in a [`LaunchScope`], for launches in that scope. Do not use the address of a copy of it after
/// the scope, which has ordered only what came before its end.
#[derive(Clone, Debug)]
pub struct ArrayInScope<'s> {
    info: ArrayInfo,
    scope: PhantomData<&'s ()>,
}

impl Deref for ArrayInScope<'_> {
    type Target = ArrayInfo;

    fn deref(&self) -> &ArrayInfo {
        &self.info
    }
}

impl<'a> LaunchScope<'a> {
    /// Starts a scope on the stream of the first array that has one, or else on the legacy default stream.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a guard that is made by mistake should not be easy to make"
    )]
    pub fn new() -> Self {
        Self::with(ScopeState::default())
    }

    /// Starts a scope on a stream of your own. It waits for each array, and the streams of the arrays for it. `on` with
    /// [`NothingPending`](StreamHandle::NothingPending), which is no stream, is as [`new`](Self::new).
    ///
    /// During graph capture a stream that waits for an array on the capturing stream becomes part of the graph, and the end
    /// of the scope joins it again. It stays in the capture until that ends: what you queue on it meanwhile is captured, too, and has to
    /// be joined by you.
    #[must_use]
    pub fn on<S: AsStream + ?Sized>(stream: &'a S) -> Self {
        match stream.as_stream() {
            StreamHandle::LegacyDefault | StreamHandle::PerThreadDefault => {
                Self::with(ScopeState::on_default(Box::new(|device| stream.as_stream_on(device))))
            }
            stream => Self::on_handle(stream),
        }
    }

    /// As [`on`](Self::on), for a stream that the caller keeps for longer than the scope.
    pub(crate) fn on_handle(stream: StreamHandle) -> Self {
        Self::with(ScopeState::on(stream))
    }

    fn with(state: ScopeState<'a>) -> Self {
        Self { state: RefCell::new(state), borrows: PhantomData }
    }

    /// Allows arrays on several devices. The kernels reach the memory of the others by peer access, which the program has
    /// enabled.
    #[must_use]
    pub fn across_devices(self) -> Self {
        self.state.borrow_mut().across_devices = true;
        self
    }

    /// Adds an array that the kernels read, and returns it as a kernel argument.
    ///
    /// # Errors
    ///
    /// As [`ArrayView::kernel_view`](crate::view::ArrayView::kernel_view) and [`cuda::stream_wait`](crate::cuda::stream_wait()); [`ErrorKind::Device`] for an array of another device than
    /// that of the stream or of the arrays before it, unless [`across_devices`](Self::across_devices) allows it.
    pub fn read<'s, T: Element, const N: usize>(
        &'s self,
        array: &'a (impl CudaArray + ?Sized),
    ) -> Result<InScope<KernelView<'s, T, N>>> {
        let info = array.info()?;
        // SAFETY: rule 1 of `CudaArray`, for the lifetime of the borrow, which the scope does not outlive: it is invariant.
        let (pointer, shape, strides) = unsafe { RawView::<N>::new::<T>(&info) }?.launch_argument::<T>()?;
        // SAFETY: as above.
        let view = unsafe { KernelView::<'s>::from_raw_parts(pointer, shape, strides) };
        self.add(&info, ScopeUse::read(array, &info))?;
        // SAFETY: the array is borrowed, and one of the scope now.
        Ok(unsafe { self.argument(view) })
    }

    /// Adds an array that the kernels write, and returns it as a kernel argument.
    ///
    /// # Errors
    ///
    /// As [`ArrayViewMut::kernel_view_mut`](crate::view::ArrayViewMut::kernel_view_mut), and as [`read`](Self::read).
    pub fn write<'s, T: Element, const N: usize>(
        &'s self,
        array: &'a mut (impl CudaArray + ?Sized),
    ) -> Result<InScope<KernelViewMut<'s, T, N>>> {
        let info = array.info()?;
        info.check_writable()?;
        // SAFETY: as in `read`.
        let (pointer, shape, strides) = unsafe { RawView::<N>::new::<T>(&info) }?.launch_argument::<T>()?;
        // SAFETY: as in `read`; the borrow is exclusive, and each index has its own element.
        let view = unsafe { KernelViewMut::<'s>::from_raw_parts(pointer, shape, strides) };
        self.add(&info, ScopeUse::write(array, &info)?)?;
        // SAFETY: as in `read`; the borrow is exclusive.
        Ok(unsafe { self.argument(view) })
    }

    /// Adds an array of any element type and rank that the kernels read, and returns its description.
    ///
    /// With [`write_any`](Self::write_any) and [`stream`](Self::stream) it has what a function of C takes, which queues kernels:
    ///
    /// ```no_run
    /// use core::ffi::c_void;
    ///
    /// use interop_core::{CudaArray, LaunchScope, Lease, LeaseMut, StreamHandle};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len], device = "cuda")]       // without a `strides` field: no gaps
    /// struct Row<S> { #[cuda_array(data)] values: S, len: usize }
    ///
    /// /// `void advance(const float *samples, float *state, size_t len, cudaStream_t stream)`
    /// type Advance = unsafe extern "C" fn(*const f32, *mut f32, usize, *mut c_void);
    ///
    /// fn advance_(advance: Advance, state: &mut Row<LeaseMut<f32>>, samples: &Row<Lease<f32>>) -> interop_core::Result<()> {
    ///     let len = state.len.min(samples.len);
    ///     let scope = LaunchScope::new();
    ///     let out = scope.write_any(state)?;
    ///     let input = scope.read_any(samples)?;
    ///     let stream = scope.stream::<StreamHandle>()?.to_raw().unwrap_or(0);     // a `cudaStream_t` or `CUstream`
    ///     // SAFETY: the function stays within `len` elements, and queues its work on this stream.
    ///     unsafe { advance(input.address() as *const f32, out.address() as *mut f32, len, stream as *mut c_void) };
    ///     scope.finish()
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`CudaArray::info`], and as [`read`](Self::read).
    pub fn read_any(&self, array: &'a (impl CudaArray + ?Sized)) -> Result<ArrayInScope<'_>> {
        let info = array.info()?;
        let scope_use = ScopeUse::read(array, &info);
        self.describe(info, scope_use)
    }

    /// As [`read_any`](Self::read_any), for an array that the kernels write.
    ///
    /// # Errors
    ///
    /// As [`read_any`](Self::read_any), and as [`CudaArray::view_mut`] for an array that must not be written.
    pub fn write_any(&self, array: &'a mut (impl CudaArray + ?Sized)) -> Result<ArrayInScope<'_>> {
        let info = array.info()?;
        info.check_writable()?;
        let scope_use = ScopeUse::write(array, &info)?;
        self.describe(info, scope_use)
    }

    /// Launches a kernel in Rust on the stream of the scope, or, over arrays of the CPU, [there](Self#arrays-of-the-cpu). `arguments` is what the
    /// kernel's function `with` or `try_with` returns,
    /// so an argument that does not fit the kernel does not compile. `try_with` takes what [`read`](Self::read) and
    /// [`write`](Self::write) return, and its error names the parameter of the kernel.
    ///
    /// Any stream does: one of `cust`, of `cudarc`, or of a Python library.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Shape`] if arrays do not have one shape, although the kernel says `same_shape`, or if there are more elements by
    /// [`Blocks`](crate::kernel::Blocks) than blocks; [`ErrorKind::Stream`] for an
    /// argument of another scope; as [`cuda::stream_wait`](crate::cuda::stream_wait()); and
    /// [`ErrorKind::Driver`] with the driver's answer.
    ///
    /// # Panics
    ///
    /// Over arrays of the CPU: as the kernel, and with its name if it leaves elements of its own, or asks for the number of its thread.
    ///
    /// # Example
    ///
    /// The crate of a kernel depends on `interop-kernel`, too.
    ///
    /// ```no_run
    /// use interop_core::kernel::{Thread, View, ViewMut, kernel};
    /// use interop_core::{CudaArray, KernelModule, LaunchScope, LaunchSize, Lease, LeaseMut};
    ///
    /// #[kernel(same_shape(row, other))]
    /// fn add(thread: Thread<'_>, mut row: ViewMut<'_, f32, 1>, other: View<'_, f32, 1>) {
    ///     for at in thread.elements(row.shape()) {
    ///         row.set(at, row.get(at) + other.get(at));
    ///     }
    /// }
    ///
    /// # const PTX: &str = "";
    /// // SAFETY: the PTX is compiled from the kernel above.
    /// static KERNELS: KernelModule = unsafe { KernelModule::new(PTX) };
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len], device = "cuda")]
    /// struct Row<S> { #[cuda_array(data)] values: S, len: usize }
    ///
    /// fn add_(row: &mut Row<LeaseMut<f32>>, other: &Row<Lease<f32>>) -> interop_core::Result<()> {
    ///     let size = LaunchSize::for_units(row.len);
    ///     let scope = LaunchScope::new();
    ///     scope.launch(&KERNELS, size, add::try_with(scope.write(row), scope.read(other))?)?;
    ///     scope.finish()
    /// }
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "`InScope` is for one launch")]
    pub fn launch<K: Kernel>(
        &self,
        module: &KernelModule,
        size: LaunchSize,
        arguments: Arguments<'_, K>,
    ) -> Result<()> {
        arguments
            .check(size)
            .map_err(|error| Error::from(error).with_origin(text!("kernel `{}`", K::NAME)))?;
        check_scope(arguments.are_in_scope(self.number()))?;
        #[cfg(feature = "host-launch")]
        if self.state.borrow().is_on_host() {
            // SAFETY: the arrays are `InScope`, so this scope borrows them, and no two share an element of which one is written. The first
            // one is on the host, so all are, and nothing is pending in them.
            return unsafe { crate::derive::host_launch::run(size, &arguments) };
        }
        let stream = self.state.borrow_mut().stream_on_device()?.stream;
        let mut parameters = Vec::new();
        arguments.for_each_pointer(|argument| parameters.push(argument.cast_mut()));
        // SAFETY: the module has the kernel `K`, whose arguments these are. Their arrays are `InScope`.
        unsafe { module.queue(stream, EntryPoint::from_kernel::<K>(), size, &mut parameters) }
    }

    /// Launches a kernel in any language on the stream of the scope, by its name in the PTX: one in CUDA C++ is `extern "C"`.
    ///
    /// The number of the arguments and their sizes are compared with the PTX, but not their types. The launch has no dynamic
    /// shared memory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stream`] for an argument of another scope; [`ErrorKind::Driver`] if the PTX has no kernel of this name, or one
    /// with parameters of other sizes, and with the driver's answer.
    ///
    /// # Safety
    ///
    /// 1. The arguments are of the types of the kernel's parameters, in their order. Pointers are addresses of arrays of this scope.
    /// 2. With this launch size the kernel stays within its arrays. It writes only to arrays from [`write`](Self::write) and
    ///    [`write_any`](Self::write_any), and leaves valid values in them.
    ///
    /// # Example
    ///
    /// ```no_run
    /// use interop_core::{CudaArray, KernelModule, LaunchScope, LaunchSize, LeaseMut};
    ///
    /// # const PTX: &str = "";
    /// // SAFETY: it has no kernels in Rust. In a program, `PTX` is `include_str!("brighten.ptx")`.
    /// static KERNELS: KernelModule = unsafe { KernelModule::new(PTX) };
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len], device = "cuda")]
    /// struct Row<S> { #[cuda_array(data)] values: S, len: usize }
    ///
    /// /// Launches `extern "C" __global__ void brighten(interop::view<float, 1> row, float by)`, which loops from its thread's
    /// /// number in steps of the grid.
    /// fn brighten(row: &mut Row<LeaseMut<f32>>, by: f32) -> interop_core::Result<()> {
    ///     let size = LaunchSize::for_units(row.len);
    ///     let scope = LaunchScope::new();
    ///     let row = scope.write::<f32, 1>(row)?;
    ///     // SAFETY: the kernel has these parameters, and stays within the view, which it writes.
    ///     unsafe { scope.launch_unchecked(&KERNELS, "brighten", size, &[&row, &by]) }?;
    ///     scope.finish()
    /// }
    /// ```
    pub unsafe fn launch_unchecked(
        &self,
        module: &KernelModule,
        kernel: &'static str,
        size: LaunchSize,
        arguments: &[&dyn KernelArgument],
    ) -> Result<()> {
        check_scope(arguments.iter().all(|argument| argument.is_in_scope(self.number())))?;
        let stream = self.state.borrow_mut().stream_on_device()?.stream;
        let sizes: Vec<usize> = arguments.iter().map(|argument| argument.size()).collect();
        let mut parameters: Vec<_> =
            arguments.iter().map(|argument| ptr::from_ref(*argument).cast::<c_void>().cast_mut()).collect();
        let kernel = EntryPoint { name: kernel, sizes: &sizes, layout: &[], is_team: false };
        // SAFETY: the sizes are those of the arguments. The rest is as the caller promises.
        unsafe { module.queue(stream, kernel, size, &mut parameters) }
    }

    /// The number that tells this scope from all others: an argument borrows the scope, which does not move meanwhile.
    fn number(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Makes an argument for launches in this scope.
    ///
    /// # Safety
    ///
    /// The arrays of `view` are borrowed for `'s`, exclusively if the kernel writes them, and were added to this scope. `view` is not
    /// used after `'s`.
    pub(crate) unsafe fn argument<'s, V: 's>(&'s self, view: V) -> InScope<V> {
        // SAFETY: kernels of the scope run after the work on its arrays, and before what comes after the scope. The argument
        // borrows the scope, so no other one has its number.
        unsafe { InScope::new(view, self.number()) }
    }

    fn describe(&self, mut info: ArrayInfo, scope_use: ScopeUse<'a>) -> Result<ArrayInScope<'_>> {
        self.add(&info, scope_use)?;
        // Code that reads the address of this description is in the scope.
        info.state.uses = None;
        Ok(ArrayInScope { info, scope: PhantomData })
    }

    /// Adds the array of a description.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub(crate) fn add(&self, info: &ArrayInfo, scope_use: ScopeUse<'a>) -> Result<()> {
        self.state.borrow_mut().add(info, scope_use)
    }

    /// The stream on which the kernels are launched: an `Arc<CudaStream>` of `cudarc`, a [`StreamHandle`], or your own type.
    ///
    /// It is borrowed: do not use it after the end of the scope.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stream`] for a default stream of a context that is not current, which no handle means here; as
    /// [`cuda::stream_wait`](crate::cuda::stream_wait()), and as [`FromStream::from_stream`].
    pub fn stream<S: FromStream>(&self) -> Result<S> {
        let ScopeStream { stream, device } = self.state.borrow_mut().stream_on_device()?;
        let handle = stream.handle_here(device).ok_or_else(unnamed_default_stream)?;
        S::from_stream(handle, device)
    }

    /// Ends the scope: the streams of its arrays wait for the work that was launched in it.
    ///
    /// Dropping the scope does the same, without an error.
    ///
    /// # Errors
    ///
    /// As [`cuda::stream_synchronize`](crate::cuda::stream_synchronize), if a stream cannot wait for the scope and the host cannot wait instead. The arrays
    /// are then released like those that were used on other streams.
    pub fn finish(self) -> Result<()> {
        self.state.borrow_mut().join()
    }
}

/// Returns an error for arguments of which one is of another scope.
fn check_scope(are_own: bool) -> Result<()> {
    if are_own {
        return Ok(());
    }
    let allowed =
        "arguments that this scope has returned: with the arrays of another scope the launch is not ordered";
    Err(Error::new(ErrorKind::Stream, "arguments", "an array of another scope", allowed))
}

impl Drop for LaunchScope<'_> {
    fn drop(&mut self) {
        // An array that could not be joined stays used, so its release waits for all work.
        let _ = self.state.get_mut().join();
    }
}

impl fmt::Debug for LaunchScope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.borrow();
        f.debug_struct("LaunchScope").field("stream", &state.stream()).field("arrays", &state.len()).finish()
    }
}
