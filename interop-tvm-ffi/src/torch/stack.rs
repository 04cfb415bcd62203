//! The arguments on the stack of a kernel, as those of a function of TVM FFI.
#![expect(unsafe_code, reason = "takes over what the dispatcher gives away")]

use core::ffi::c_void;
use core::ptr::null;

use interop_core::protocols::dlpack::DLTensor;

use crate::abi::{TVMFFIAny, TVMFFIByteArray, TVMFFIObject, TVMFFISeqCell, index};
use crate::error::CallError;
use crate::operator::signature::{Kind, Signature};
use crate::owned_object::OwnedObject;
use crate::torch::library::{TensorHandle, Torch, Value};
use crate::torch::tensor::{NOTHING, to_pointer, to_value};

/// The arguments of a call. It owns all that the dispatcher has given away.
pub(crate) struct Taken {
    torch: &'static Torch,
    /// Tensors, strings and lists are indices in the fields below, until nothing there moves any more.
    values: Vec<TVMFFIAny>,
    tensors: Vec<TakenTensor>,
    /// Each with the object that lends its bytes.
    strings: Vec<(OwnedObject, Object<TVMFFIByteArray>)>,
    lists: Vec<(Vec<TVMFFIAny>, Object<TVMFFISeqCell>)>,
    /// Whether all items of all lists were taken.
    outcome: Result<(), CallError>,
}

/// A tensor among the arguments.
struct TakenTensor {
    tensor: OwnedObject,
    described: DLTensor,
    parameter: usize,
    is_written: bool,
}

/// An object of TVM FFI that nobody counts: a function only reads it.
#[repr(C)]
struct Object<T> {
    header: TVMFFIObject,
    payload: T,
}

impl<T> Object<T> {
    fn new(payload: T) -> Self {
        let header = TVMFFIObject { combined_ref_count: 0, type_index: 0, padding: 0, deleter: null() };
        Self { header, payload }
    }
}

impl Taken {
    /// Takes all arguments.
    ///
    /// # Safety
    ///
    /// `stack` has a value for each parameter, of its kind, which nobody else releases.
    #[inline]
    pub(crate) unsafe fn new(torch: &'static Torch, signature: &Signature, stack: *const Value) -> Self {
        let count = signature.parameters.len();
        let (values, tensors) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut taken =
            Self { torch, values, tensors, strings: Vec::new(), lists: Vec::new(), outcome: Ok(()) };
        for (at, parameter) in signature.parameters.iter().enumerate() {
            // SAFETY: as the caller promises.
            let value = unsafe { stack.wrapping_add(at).read() };
            // SAFETY: as the caller promises.
            let value = unsafe { taken.take(parameter.kind, value, at) };
            taken.values.push(value);
        }
        taken
    }

    pub(crate) fn has_tensors(&self) -> bool {
        !self.tensors.is_empty()
    }

    /// The arguments, which are valid as long as `self`. Tells the library of the tensors that the function writes.
    ///
    /// # Errors
    ///
    /// If a tensor has no memory or has a tangent, or must not be written. An exception of C++ for a tensor of inference mode.
    ///
    /// # Safety
    ///
    /// The exception may unwind through the caller.
    #[inline]
    pub(crate) unsafe fn values(
        &mut self,
        signature: &Signature,
        operator: &str,
    ) -> Result<&[TVMFFIAny], CallError> {
        core::mem::replace(&mut self.outcome, Ok(()))?;
        for TakenTensor { tensor, described, is_written, .. } in &mut self.tensors {
            // SAFETY: a live tensor.
            unsafe { self.torch.check_tangent(tensor.object) }?;
            // SAFETY: a live tensor.
            *described = unsafe { self.torch.describe(tensor.object, *is_written) }?;
        }
        for taken in self.tensors.iter().filter(|taken| taken.is_written) {
            let place = signature.parameters[taken.parameter].name;
            // SAFETY: a live tensor. As the caller promises.
            unsafe { self.torch.announce_write(taken.tensor.object, place, operator) }?;
        }
        self.link();
        Ok(&self.values)
    }

    /// Replaces indices by pointers.
    fn link(&mut self) {
        let Self { values, tensors, strings, lists, .. } = self;
        let link = |value: &mut TVMFFIAny| {
            let at = usize::try_from(value.value).unwrap_or(usize::MAX);
            match value.type_index {
                index::DL_TENSOR_PTR => value.value = address(&tensors[at].described),
                index::STR => value.value = address(&strings[at].1),
                _ => {}
            }
        };
        values.iter_mut().for_each(link);
        for (items, object) in lists.iter_mut() {
            items.iter_mut().for_each(link);
            object.payload.data = items.as_ptr();
        }
        for value in values.iter_mut().filter(|value| value.type_index == index::ARRAY) {
            value.value = address(&lists[usize::try_from(value.value).unwrap_or(usize::MAX)].1);
        }
    }

    /// Takes a value of the parameter at a position.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new).
    unsafe fn take(&mut self, kind: Kind, value: Value, parameter: usize) -> TVMFFIAny {
        match kind {
            Kind::Tensor { is_written } => {
                // SAFETY: as the caller promises.
                let tensor = unsafe { OwnedObject::new(to_pointer(value), self.torch.delete_tensor) };
                self.tensors.push(TakenTensor { tensor, described: NOTHING, parameter, is_written });
                TVMFFIAny::new(index::DL_TENSOR_PTR, self.tensors.len() as u64 - 1)
            }
            Kind::Int => TVMFFIAny::new(index::INT, value),
            Kind::Float => TVMFFIAny::new(index::FLOAT, value),
            Kind::Bool => TVMFFIAny::new(index::BOOL, value & 0xff),
            Kind::DType => {
                let dtype = self.torch.dtype_of(halves(value)[0]);
                let [x, y] = dtype.lanes.to_ne_bytes();
                TVMFFIAny::new(
                    index::DATA_TYPE,
                    u64::from_ne_bytes([dtype.code, dtype.bits, x, y, 0, 0, 0, 0]),
                )
            }
            Kind::Device => {
                // The lower half is the index, or -1.
                let [index, device_type] = halves(value);
                let device = self.torch.device_of(device_type, index);
                let mut bytes = [0; 8];
                bytes[..4].copy_from_slice(&device.device_type.0.to_ne_bytes());
                bytes[4..].copy_from_slice(&device.device_id.to_ne_bytes());
                TVMFFIAny::new(index::DEVICE, u64::from_ne_bytes(bytes))
            }
            // SAFETY: as the caller promises.
            Kind::Str => unsafe { self.take_string(to_pointer(value)) },
            Kind::Optional(_) if value == 0 => TVMFFIAny::NONE,
            Kind::Optional(kind) => {
                // SAFETY: as the caller promises.
                let value = unsafe { unwrap(self.torch, to_pointer(value)) };
                // SAFETY: as the caller promises.
                unsafe { self.take(*kind, value, parameter) }
            }
            // SAFETY: as the caller promises.
            Kind::List(kind) => unsafe { self.take_list(*kind, to_pointer(value), parameter) },
            Kind::None => TVMFFIAny::NONE,
        }
    }

    /// # Safety
    ///
    /// `handle` is an owned string.
    unsafe fn take_string(&mut self, handle: *mut c_void) -> TVMFFIAny {
        let (mut data, mut size) = (null(), 0);
        // SAFETY: as the caller promises, and a place that is valid for a write.
        unsafe { (self.torch.string_length)(handle, &raw mut size) };
        // SAFETY: as above.
        unsafe { (self.torch.string_data)(handle, &raw mut data) };
        // SAFETY: as the caller promises.
        let string = unsafe { OwnedObject::new(handle, self.torch.string_delete) };
        self.strings.push((string, Object::new(TVMFFIByteArray { data, size })));
        TVMFFIAny::new(index::STR, self.strings.len() as u64 - 1)
    }

    /// # Safety
    ///
    /// `handle` is an owned list with items of this kind.
    unsafe fn take_list(&mut self, kind: Kind, handle: *mut c_void, parameter: usize) -> TVMFFIAny {
        let (torch, mut items) = (self.torch, Vec::new());
        let take = |item| {
            // SAFETY: as the caller promises, for the items too.
            items.push(unsafe { self.take(kind, item, parameter) });
            Ok(())
        };
        // SAFETY: as the caller promises.
        let taken = unsafe { each_item(torch, handle, take) };
        self.outcome = core::mem::replace(&mut self.outcome, Ok(())).and(taken);
        // It does not release its items.
        // SAFETY: as the caller promises.
        unsafe { (torch.list_delete)(handle) };
        let size = i64::try_from(items.len()).unwrap_or(0);
        self.lists.push((items, Object::new(TVMFFISeqCell { data: null(), size })));
        TVMFFIAny::new(index::ARRAY, self.lists.len() as u64 - 1)
    }
}

/// The address of what a value points to.
fn address<T>(of: &T) -> u64 {
    (&raw const *of).expose_provenance() as u64
}

/// The lower and the upper half of a value.
fn halves(value: Value) -> [i32; 2] {
    let bytes = value.to_le_bytes();
    [0, 4].map(|at| i32::from_le_bytes([0, 1, 2, 3].map(|byte: usize| bytes[at + byte])))
}

/// Calls a function with each item of a list until one is an error. The list lends its items, and never releases them.
///
/// # Safety
///
/// `handle` is a live list.
unsafe fn each_item(
    torch: &Torch,
    handle: *mut c_void,
    mut visit: impl FnMut(Value) -> Result<(), CallError>,
) -> Result<(), CallError> {
    let mut size = 0;
    // SAFETY: as the caller promises, and a place that is valid for a write.
    unsafe { (torch.list_size)(handle, &raw mut size) };
    for at in 0..size {
        let mut item = 0;
        // SAFETY: as above.
        torch.check(unsafe { (torch.list_get)(handle, at, &raw mut item) }, "torch_list_get_item")?;
        visit(item)?;
    }
    Ok(())
}

/// Moves the value out of the cell of an option.
///
/// # Safety
///
/// `cell` is an owned cell.
unsafe fn unwrap(torch: &Torch, cell: *mut Value) -> Value {
    // SAFETY: as the caller promises.
    let value = unsafe { cell.read() };
    if let Some(delete) = torch.value_delete {
        // SAFETY: as the caller promises.
        unsafe { delete(cell) };
    } else if let Some(delete) = torch.cpp_delete {
        // Before 2.13 the library uses `new` and `delete` itself. Without them the cell stays.
        // SAFETY: as the caller promises.
        unsafe { delete(cell) };
    }
    value
}

/// Whether a test is true for a tensor in a value, which stays with the caller.
///
/// # Safety
///
/// `value` is a live value of this kind.
pub(crate) unsafe fn any_tensor(
    torch: &Torch,
    kind: Kind,
    value: Value,
    test: &dyn Fn(TensorHandle) -> Result<bool, CallError>,
) -> Result<bool, CallError> {
    match kind {
        Kind::Tensor { .. } => test(to_pointer(value)),
        Kind::Optional(kind) if value != 0 && kind.has_tensors() => {
            // SAFETY: a live cell.
            let value = unsafe { to_pointer::<Value>(value).read() };
            // SAFETY: as the caller promises.
            unsafe { any_tensor(torch, *kind, value, test) }
        }
        Kind::List(kind) if kind.has_tensors() => {
            let mut is_true = false;
            let visit = |item| {
                // SAFETY: an item of this kind.
                is_true = is_true || unsafe { any_tensor(torch, *kind, item, test) }?;
                Ok(())
            };
            // SAFETY: a live list.
            unsafe { each_item(torch, to_pointer(value), visit) }?;
            Ok(is_true)
        }
        _ => Ok(false),
    }
}

/// A value of a result on a stack. A tensor is given away.
pub(crate) fn result_value(result: TVMFFIAny) -> Value {
    if result.type_index == index::TENSOR {
        to_value(result.pointer::<c_void>().cast_mut())
    } else {
        result.value
    }
}
