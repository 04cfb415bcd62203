//! The roles that the type of a field suggests.

use syn::Type;

use crate::fields::bare;

/// Types of the standard library that are neither memory nor a part of its description.
const NO_ROLE: [&str; 12] = [
    "String",
    "str",
    "char",
    "bool",
    "f32",
    "f64",
    "PhantomData",
    "PathBuf",
    "OsString",
    "Duration",
    "Instant",
    "SystemTime",
];

const INTEGERS: [&str; 12] =
    ["usize", "isize", "u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128"];

/// Whether a field of this type can have the role. A type that is not known here can have any.
pub(crate) fn can_have_role(ty: &Type, role: &str) -> bool {
    match bare(ty) {
        Type::Path(path) => path.path.segments.last().is_none_or(|last| {
            let is_in = |names: &[&str]| names.iter().any(|name| last.ident == name);
            // An integer is an extent or an address, or names a device.
            let is_number = is_in(&INTEGERS) && matches!(role, "strides" | "stream" | "owner");
            !is_in(&NO_ROLE) && !is_number
        }),
        Type::Reference(reference) => match bare(&reference.elem) {
            Type::Path(path) => !path.path.is_ident("str"),
            _ => true,
        },
        Type::Tuple(tuple) => !tuple.elems.is_empty(),
        _ => true,
    }
}
