use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct DataIsASlice {
    len: usize,
    #[cuda_array(data)]
    values: [f32],
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct DataIsAStr {
    len: usize,
    #[cuda_array(data)]
    bytes: str,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct DefaultUnsized {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    #[cuda_array(default)]
    title: str,
}

#[derive(CudaArray)]
enum EnumOfNumbers {
    #[cuda_array(data)]
    Host(Vec<f32>),
    Empty,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
enum EnumWithExtents {
    Host {
        #[cuda_array(data)]
        values: Vec<f32>,
        len: usize,
    },
}

mod __p {
    pub type Values = Vec<f32>;
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct NameOfTheRuntime {
    #[cuda_array(data)]
    values: __p::Values,
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(readonly)]
struct StructWithoutFields {}

#[derive(CudaArray)]
union UnionOfNumbers {
    pixels: std::mem::ManuallyDrop<Vec<f32>>,
    nothing: (),
}

#[derive(CudaArray)]
struct UnitStruct;

fn main() {}
