//! Structs that could outlive the call that lends their memory.

use interop_core::{CudaArray, Device, Kept, Lease, LeaseMut, SharedBuffer, lent::Borrowed, storage::Owner};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

#[derive(CudaArray)]
struct Named<S> {
    #[cuda_array(inner)]
    row: Row<S>,
    #[cuda_array(default)]
    name: String,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Pointer {
    #[cuda_array(data(unsafe_raw))]
    values: *mut f32,
    len: usize,
    #[cuda_array(device)]
    device: Device,
    #[cuda_array(owner)]
    owner: Owner,
}

fn leased(_: Row<LeaseMut<f32>>) {}
fn leased_inside(_: Named<Lease<f32>>) {}
fn shared(_: Row<SharedBuffer>) {}
fn pointer(_: Pointer) {}
fn kept(_: Kept<Row<Borrowed<'_, f32>>>) {}

interop_tvm_ffi::export! { leased(row) }
interop_tvm_ffi::export! { leased_inside(named) }
interop_tvm_ffi::export! { shared(row) }
interop_tvm_ffi::export! { pointer(row) }
interop_tvm_ffi::export! { kept(row) }

fn main() {}
