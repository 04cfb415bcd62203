use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len], strides)]
struct StridesOnTheStruct {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    steps: [isize; 1],
    name: String,
    rate: u32,
}

#[derive(CudaArray)]
#[cuda_array(shape = [hight, width])]
struct MisspeltExtent {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
    title: &'static str,
    rate: u32,
}

#[derive(CudaArray)]
#[cuda_array(shape = [count])]
struct UnknownExtent {
    #[cuda_array(data)]
    values: Vec<f32>,
    n: usize,
    scale: f32,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct NoData {
    values: Vec<f32>,
    len: usize,
    name: String,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], stream)]
struct MisspeltDefault {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    #[cuda_array(defualt)]
    name: String,
}

fn main() {}
