//! The rules about raw pointers and owners:
//!
//! 1. [`pointers_have_unsafe_raw`]: a pointer or an address as the data needs `unsafe_raw`.
//! 2. [`storages_have_no_unsafe_raw`]: a storage must not have it; the other rules then do not apply.
//! 3. [`pointee_is_given_once`]: the element type is given by the pointer's type or by `element`.
//! 4. [`device_with_raw`]: a raw pointer needs a device field; a storage knows its device.
//! 5. [`owner_is_filled`]: an import stores the owner of the memory in exactly one field.

use syn::{Type, TypePtr};

use crate::errors::Errors;
use crate::fields::{FieldSpec, bare};
use crate::keyword_options::DataOptions;
use crate::keywords::shown;
use crate::struct_spec::StructSpec;

pub(crate) fn rules(spec: &StructSpec<'_>, errors: &mut Errors) {
    let Some((field, data)) = spec.data().and_then(|field| Some((field, &field.attrs.data.as_ref()?.value)))
    else {
        return;
    };
    // It has been reported beside the data, and it is not known which one is intended.
    if spec.inner().is_some() {
        return;
    }
    pointers_have_unsafe_raw(field, data, errors);
    if storages_have_no_unsafe_raw(field, data, errors) {
        return;
    }
    pointee_is_given_once(field, data, errors);
    device_with_raw(spec, field, data, errors);
    owner_is_filled(spec, data, errors);
}

/// The kind of a field type, judged by its tokens. An alias counts as `Storage`; the compiler checks it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PointerKind {
    /// `*mut f32`, `NonNull<f32>`.
    Pointer,
    /// `*mut c_void`, `usize`, `u64`, `CUdeviceptr`: an address without an element type.
    Address,
    Storage,
}

impl PointerKind {
    fn from_type(ty: &Type) -> Self {
        match bare(ty) {
            Type::Ptr(TypePtr { elem, .. }) if last_name(elem).is_some_and(|name| name == "c_void") => {
                Self::Address
            }
            Type::Ptr(_) => Self::Pointer,
            _ => match last_name(ty).as_deref() {
                Some("NonNull") => Self::Pointer,
                Some("usize" | "u64" | "i64" | "isize" | "CUdeviceptr") => Self::Address,
                _ => Self::Storage,
            },
        }
    }
}

/// The last segment of a path: `NonNull` of `core::ptr::NonNull<f32>`.
fn last_name(ty: &Type) -> Option<String> {
    match bare(ty) {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

/// A pointer cannot be checked, so the user must guarantee its validity by the keyword `unsafe_raw`.
fn pointers_have_unsafe_raw(field: &FieldSpec<'_>, data: &DataOptions, errors: &mut Errors) {
    let kind = PointerKind::from_type(field.ty);
    if data.unsafe_raw.is_none() && kind != PointerKind::Storage && errors.is_absent("unsafe_raw") {
        let form =
            if kind == PointerKind::Address { "data(unsafe_raw, element = f32)" } else { "data(unsafe_raw)" };
        let found = format!("a `{}` does not prove that its memory is live", shown(field.ty));
        let help = format!(
            "write `{form}` if you guarantee that, and `#[cuda_array(device)]` on a field that says where it is; or use a \
             type that owns its memory"
        );
        errors.push(field.ty, found, help);
        // The rules below would otherwise treat the pointer as a storage.
        errors.mark_uncertain(Some("unsafe_raw"));
    }
}

/// Names of known storages. The compiler checks aliases.
const STORAGES: [&str; 21] = [
    "Arc",
    "Box",
    "CudaBuffer",
    "CudaSlice",
    "CudaView",
    "CudaViewMut",
    "DeviceBox",
    "DeviceBuffer",
    "DeviceBufferView",
    "HostBuffer",
    "HostVec",
    "ImportedBuffer",
    "InContext",
    "Lease",
    "LeaseMut",
    "LockedBuffer",
    "PinnedHostSlice",
    "SharedBuffer",
    "UnifiedBuffer",
    "UnifiedSlice",
    "Vec",
];

/// A storage knows the location and lifetime of its memory. Returns whether one with `unsafe_raw` was reported.
fn storages_have_no_unsafe_raw(field: &FieldSpec<'_>, data: &DataOptions, errors: &mut Errors) -> bool {
    let is_storage = matches!(bare(field.ty), Type::Reference(_))
        || last_name(field.ty).is_some_and(|name| STORAGES.contains(&name.as_str()));
    let Some(raw) = data.unsafe_raw.as_ref().filter(|_| is_storage) else { return false };
    let found = format!("`unsafe_raw` on a `{}`, which is not a raw pointer", shown(field.ty));
    errors.push(&raw.word, found, "write `data`, or make the field a raw pointer or an address");
    true
}

fn pointee_is_given_once(field: &FieldSpec<'_>, data: &DataOptions, errors: &mut Errors) {
    let shown = || shown(field.ty);
    match (&data.unsafe_raw, &data.element, PointerKind::from_type(field.ty)) {
        (None, Some(element), PointerKind::Storage) if errors.is_absent("unsafe_raw") => {
            let help = "remove it: the element type is that of the storage; for an address, write `data(unsafe_raw, \
                        element = f32)`";
            errors.push(&element.word, "`element` without `unsafe_raw`", help);
        }
        (Some(_), Some(element), PointerKind::Pointer) => {
            let found = format!("`element` with a `{}`, which has an element type", shown());
            errors.push(&element.word, found, "remove `element`, or change the type of the pointer");
        }
        (Some(raw), None, PointerKind::Address) if errors.is_absent("element") => {
            let found = format!("a `{}` has no element type", shown());
            errors.push(&raw.word, found, "write `data(unsafe_raw, element = f32)`, with the element type");
        }
        _ => {}
    }
}

fn device_with_raw(
    spec: &StructSpec<'_>,
    data_field: &FieldSpec<'_>,
    data: &DataOptions,
    errors: &mut Errors,
) {
    let device = spec.only(|attrs| attrs.device.is_some()).and_then(|field| field.attrs.device.as_ref());
    match (&data.unsafe_raw, device) {
        (Some(raw), None) if errors.is_absent("device") => {
            let found = "a raw pointer needs a device";
            let help = "write `#[cuda_array(device)]` on a field of type `Device`";
            errors.push(&raw.word, found, help);
            errors.mark_uncertain(Some("device"));
        }
        (None, Some(device))
            if PointerKind::from_type(data_field.ty) == PointerKind::Storage
                && errors.is_absent("unsafe_raw") =>
        {
            let found = format!("`device` with the storage `{}`, which knows its device", data_field.name);
            let help = "remove `device`; only a raw pointer, `data(unsafe_raw)`, takes one";
            errors.push(&device.word, found, help);
        }
        _ => {}
    }
}

/// A storage takes the owner of the import. A raw pointer cannot, so another field must.
fn owner_is_filled(spec: &StructSpec<'_>, data: &DataOptions, errors: &mut Errors) {
    if !spec.is_imported() {
        return;
    }
    let owner = spec.only(|attrs| attrs.owner.is_some());
    let word = owner.and_then(|field| field.attrs.owner.as_ref());
    let default = owner.and_then(|field| field.attrs.default.as_ref());
    match (&data.unsafe_raw, word, default) {
        (Some(raw), None, _) if errors.is_absent("owner") && errors.is_absent("export") => {
            let found = "no field keeps the memory of an import alive";
            let help = "add a field `#[cuda_array(owner)] owner: Owner`, or write `#[cuda_array(export)]` on a struct that \
                        is never imported";
            errors.push(&raw.word, found, help);
            // The intended owner may be a field without a keyword.
            errors.mark_uncertain(Some("owner"));
        }
        (Some(_), Some(_), Some(default)) if !default.is_reported => {
            let found = "`default` on the owner of a raw pointer, which keeps the memory of an import alive";
            errors.push(&default.word, found, "remove `default`");
        }
        (None, Some(owner), None)
            if ["unsafe_raw", "export", "default", "owner"]
                .into_iter()
                .all(|word| errors.is_absent(word))
                && spec.unfilled(errors).is_empty() =>
        {
            let found = "an import moves the memory's owner into the `data` field, not into `owner`";
            let help = "write `owner, default` or `owner, default = expression`, or `#[cuda_array(export)]` on a struct that \
                        is never imported";
            errors.push(&owner.word, found, help);
        }
        _ => {}
    }
}
