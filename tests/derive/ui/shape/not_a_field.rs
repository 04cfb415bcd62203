use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [heigth, width])]
struct MisspeltField {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, channels])]
struct UnknownField {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [self.height, self.widht])]
struct UnknownFieldWithSelf {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, 3])]
struct NameInATupleStruct(#[cuda_array(data)] Vec<f32>, usize);

#[derive(CudaArray)]
#[cuda_array(shape = [self.2, 3])]
struct IndexBeyondATupleStruct(#[cuda_array(data)] Vec<f32>, usize);

// `1` is the literal one here, so the field `1` is not an extent.
#[derive(CudaArray)]
#[cuda_array(shape = [1, 3])]
struct IndexOfATupleStructWithoutSelf(#[cuda_array(data)] Vec<f32>, usize);

#[derive(CudaArray)]
#[cuda_array(shape = [height])]
struct NoFieldToName {
    #[cuda_array(data)]
    pixels: Vec<f32>,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, pixels])]
struct DataInPlaceOfAField {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, Self::width])]
struct FieldAsAConstant {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

fn main() {}
