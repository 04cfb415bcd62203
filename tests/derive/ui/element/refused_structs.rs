use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct AttributeOnAField {
    #[cuda_array(data)]
    x: f32,
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct BoolField {
    x: f32,
    valid: bool,
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
#[cuda_array(crate = "interop core")]
struct CrateNoPath {
    x: f32,
}

#[derive(Clone, Copy, Element)]
#[repr(u8)]
enum EnumOfNumbers {
    Red,
    Green,
}

#[derive(Element)]
#[repr(C)]
struct FieldWithoutSize {
    len: u8,
    text: [u8],
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct LifetimeStruct<'a> {
    x: &'a f32,
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct ListOfNothing {
    x: f32,
    rest: [[f32; 0]; 2],
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct ListsInEachOther {
    values: [[[[[f32; 2]; 2]; 2]; 2]; 2],
}

#[derive(Clone, Copy, Element)]
struct NoRepr {
    x: f32,
    y: f32,
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct NothingButMarkers {
    marker: std::marker::PhantomData<f32>,
}

#[derive(Clone, Copy, Element)]
#[repr(align(16))]
struct OnlyAlign {
    x: f32,
    y: f32,
}

#[derive(Clone, Copy, Element)]
#[repr(C, packed)]
struct PackedStruct {
    tag: u8,
    x: f32,
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
#[repr(packed(2))]
struct PackedToTwo {
    tag: u8,
    x: f32,
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct PointerField {
    value: f32,
    next: *const PointerField,
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct PointerThatMayBeNull {
    next: Option<std::ptr::NonNull<u8>>,
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct PointersInAList {
    columns: [*mut u8; 2],
}

#[derive(Element)]
#[repr(C)]
struct TraitObject {
    x: f32,
    label: Box<dyn std::fmt::Display>,
}

#[derive(Clone, Copy, Element)]
#[repr(transparent)]
struct TransparentWithNothing(std::marker::PhantomData<f32>);

#[derive(Clone, Copy, Element)]
#[repr(C)]
union UnionOfNumbers {
    float: f32,
    bits: u32,
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct UnitStruct;

#[derive(Clone, Copy, Element)]
#[repr(C)]
#[cuda_array(readonly)]
struct WordOfTheOtherDerive {
    x: f32,
}

fn main() {}
