use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(order = "K", readonly = true, pythn, export, export)]
struct Image {
    #[cuda_array(data, data)]
    pixels: Vec<f32>,
    #[cuda_array(shape(2))]
    shape: [usize; 2],
    #[cuda_array(strides(byte), strem)]
    strides: [isize; 2],
    #[cuda_array("stream")]
    stream: interop_core::StreamHandle,
}

fn main() {}
