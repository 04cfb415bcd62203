use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct DataThatIsTheShape {
    #[cuda_array(data, shape)]
    values: Vec<f32>,
    len: usize,
}

#[derive(CudaArray)]
struct TwoRoles {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape, strides)]
    dims: [usize; 2],
}

#[derive(CudaArray)]
struct TwoRolesInTwoAttributes {
    #[cuda_array(data)]
    #[cuda_array(owner)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct ThreeRoles {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape, strides, stream)]
    dims: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct ExtentWithARole {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    #[cuda_array(stream)]
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [size, 3])]
struct ShapeThatIsAnExtent {
    #[cuda_array(data)]
    values: Vec<f32>,
    #[cuda_array(shape)]
    size: [usize; 2],
}

fn main() {}
