//! The rules that combine several attributes, one function each:
//!
//! 1. [`roles_once`]: no two fields have the same role, and the shape is not on both a field and the struct.
//! 2. [`data_is_present`]: one field is the data.
//! 3. [`shape_is_present`]: there is a shape.
//! 4. [`one_role_each`]: no field has two roles.
//! 5. [`default_is_needed`]: `default` is only on fields that an import does not fill itself.
//! 6. [`directions`]: `export`, `import` and the keywords that belong to one of them.
//! 7. [`everything_filled`]: an import can fill every field.
//! 8. [`python`]: the requirements of Python classes and objects.
//! 9. [`not_packed`]: an export can borrow the fields.
//! 10. [`sized`]: the memory, and all fields that an import fills, have a size.
//! 11. [`inner_is_alone`]: an inner array struct has the memory, the shape and all else.
//!
//! The rules about the list of `shape = [...]` are in `shape_rules`, those about raw pointers and owners in
//! `pointer_rules`.
//!
//! A rule about a missing keyword first calls [`Errors::is_absent`], because a misspelt keyword has already been
//! reported.

use proc_macro2::Ident;
use syn::{GenericParam, Type};

use crate::attributes::ROLES;
use crate::errors::Errors;
use crate::fields::{FieldSpec, bare};
use crate::keywords::{join, shown};
use crate::rejected_by_rustc::is_unsized;
use crate::struct_spec::StructSpec;
use crate::{pointer_rules, repr, shape_rules};

/// Applies every rule.
pub(crate) fn rules(spec: &StructSpec<'_>, errors: &mut Errors) {
    roles_once(spec, errors);
    data_is_present(spec, errors);
    shape_is_present(spec, errors);
    one_role_each(spec, errors);
    default_is_needed(spec, errors);
    shape_rules::rules(spec, errors);
    directions(spec, errors);
    pointer_rules::rules(spec, errors);
    everything_filled(spec, errors);
    python(spec, errors);
    not_packed(spec, errors);
    sized(spec, errors);
    inner_is_alone(spec, errors);
}

/// No two fields have the same role.
fn roles_once(spec: &StructSpec<'_>, errors: &mut Errors) {
    for (role, _) in ROLES {
        let help = match role {
            "data" | "inner" => {
                "keep it on one, because a struct is one array; for several arrays see the guide, `interop_core::guide::memory`"
            }
            "shape" => {
                "keep it on one; for one field per extent, write `shape = [height, width]` on the struct"
            }
            _ => "keep it on one",
        };
        once(spec, role, help, errors);
    }
    let list = spec.attrs.shape.as_ref();
    let field = spec.only(|attrs| attrs.shape.is_some()).and_then(|field| field.attrs.shape.as_ref());
    if let Some(field) = field.filter(|_| list.is_some()) {
        let found = "the shape is given twice: by this field and by `shape = [...]` on the struct";
        errors.push(&field.word, found, "remove one of the two");
        mark_roles_uncertain(errors);
    }
}

/// Reports every field with this role except the first. A field with several uses has its own error.
fn once(spec: &StructSpec<'_>, role: &str, help: &str, errors: &mut Errors) {
    let mut first: Option<&FieldSpec<'_>> = None;
    for field in spec.fields.iter().filter(|field| spec.has_one_use(field)) {
        let Some(word) = field.attrs.role(role) else { continue };
        match first {
            None => first = Some(field),
            Some(first) => {
                let found = format!("`{role}` is on two fields, `{}` and `{}`", first.name, field.name);
                errors.push(word, found, help);
                mark_roles_uncertain(errors);
            }
        }
    }
}

/// One of two fields with the same role may be intended for a role that is missing.
fn mark_roles_uncertain(errors: &mut Errors) {
    for (role, _) in ROLES {
        errors.mark_uncertain(Some(role));
    }
}

/// A struct is one array, so one field holds its memory.
fn data_is_present(spec: &StructSpec<'_>, errors: &mut Errors) {
    if spec.data().is_none()
        && spec.inner().is_none()
        && errors.is_absent("data")
        && errors.is_absent("inner")
    {
        // An `unsafe_raw` outside of `data(...)` marks that field, and has been reported.
        if errors.is_absent("unsafe_raw") {
            let help = "write `#[cuda_array(data)]` on the field that holds it, or `#[cuda_array(inner)]` on a field that is an array struct itself";
            errors.push(&spec.input.ident, "no field of the struct holds the memory", help);
        }
        // The fields that an import fills depend on the data, and the shape may be that of an inner struct.
        errors.mark_uncertain(Some("data"));
        errors.mark_uncertain(Some("inner"));
    }
}

/// The shape is a field, or a list on the struct.
fn shape_is_present(spec: &StructSpec<'_>, errors: &mut Errors) {
    let is_there = spec.attrs.shape.is_some() || spec.with(|attrs| attrs.shape.is_some()).is_some();
    if !is_there && spec.inner().is_none() && errors.is_absent("shape") && errors.is_absent("inner") {
        let help = "write `#[cuda_array(shape)]` on the field that holds it, or `#[cuda_array(shape = [height, \
                    width])]` on the struct, with the names of its integer fields";
        errors.push(&spec.input.ident, "the struct has no shape", help);
        errors.mark_uncertain(Some("shape"));
    }
}

/// A field has one role. Only the first pair is reported, because the others have the same cause.
fn one_role_each(spec: &StructSpec<'_>, errors: &mut Errors) {
    for field in spec.fields {
        let mut roles = field.attrs.roles();
        if let (Some((first, _)), Some((second, word))) = (roles.next(), roles.next()) {
            let found = format!("the field `{}` is `{first}` and `{second}`", field.name);
            errors.push(word, found, "keep one of the two, and add a field for the other");
            // The intended role of the field is not known, so the other roles may be present.
            field.attrs.roles().for_each(|(role, _)| errors.mark_uncertain(Some(role)));
        }
    }
}

/// An import provides memory, shape, strides and device. Streams and owners can be the struct's own.
fn default_is_needed(spec: &StructSpec<'_>, errors: &mut Errors) {
    if !spec.is_imported() {
        return;
    }
    for field in spec.fields.iter().filter(|field| spec.has_one_use(field)) {
        let Some(default) = field.attrs.default.as_ref().filter(|default| !default.is_reported) else {
            continue;
        };
        let filled = field.attrs.roles().find(|(role, _)| !matches!(*role, "stream" | "owner"));
        if let Some((role, _)) = filled {
            let is_first =
                spec.with(|attrs| attrs.role(role).is_some()).is_some_and(|first| std::ptr::eq(first, field));
            // A second field with the role, a second shape, a role beside `inner`, and a device next to a storage have their
            // own errors.
            let is_beside_inner = spec.inner().is_some() && (role != "inner" || spec.data().is_some());
            let is_second = !is_first || is_beside_inner || role == "shape" && spec.attrs.shape.is_some();
            if is_second || role == "device" && !spec.is_raw() {
                continue;
            }
            let found = format!("`default` on the `{role}` field, which an import fills itself");
            errors.push(&default.word, found, "remove `default`");
        } else if spec.is_extent(field) {
            let found = format!("`default` on `{}`, which an import fills with an extent", field.name);
            errors.push(&default.word, found, "remove `default`");
            // The intended field may be another one, which seems to have no role.
            errors.mark_uncertain(Some("shape"));
        }
    }
}

/// A struct supports both directions unless it names one; keywords about exports need an export. All keywords with one
/// cause share one message.
fn directions(spec: &StructSpec<'_>, errors: &mut Errors) {
    let attrs = spec.attrs;
    let (misplaced, half, own) = match (&attrs.export, &attrs.import) {
        (Some(_), Some(import)) => {
            let help = "remove both to generate imports and exports";
            return errors.push(&import.word, "`export` and `import` each exclude the other", help);
        }
        (Some(_), None) => {
            let default = first_default(spec).map(|word| (word, "default", "every `default`"));
            let devices = attrs.devices.as_ref().map(|set| (&set.word, "device = ...", "`device`"));
            (default.or(devices), "imports", "export")
        }
        (None, Some(_)) => {
            let readonly = attrs.readonly.as_ref().map(|set| (&set.word, "readonly", "`readonly`"));
            let pyclass = attrs.pyclass.as_ref().map(|set| (&set.word, "pyclass", "`pyclass`"));
            (readonly.or(pyclass), "exports", "import")
        }
        (None, None) => return,
    };
    if let Some((word, shown, removed)) = misplaced {
        let found = format!("`{shown}` is for {half}, but the struct has `{own}`");
        errors.push(
            word,
            found,
            format_args!("remove {removed}, or `{own}` to generate imports and exports"),
        );
    }
}

/// The first `default`. All of them are wrong for the same reason and share one message.
fn first_default<'a>(spec: &StructSpec<'a>) -> Option<&'a Ident> {
    let mut defaults = spec.fields.iter().filter_map(|field| field.attrs.default.as_ref());
    defaults.find(|default| !default.is_reported).map(|default| &default.word)
}

/// An import makes a whole struct. All fields that it cannot fill share one message.
fn everything_filled(spec: &StructSpec<'_>, errors: &mut Errors) {
    let unfilled = spec.unfilled(errors);
    let Some(first) = unfilled.first() else { return };
    let names: Vec<&str> = unfilled.iter().map(|field| field.name.as_str()).collect();
    let (noun, each) = if names.len() == 1 { ("field", "it") } else { ("fields", "each") };
    let found = format!("an import cannot fill the {noun} {}", join(names.iter().copied(), "and"));
    let help = format!(
        "write `#[cuda_array(default)]` or `#[cuda_array(default = expression)]` on {each}, or `#[cuda_array(export)]` on \
         a struct that is never imported{}",
        shape_rules::hint_about_index(spec, first)
    );
    errors.push(first.blame(), found, help);
}

/// A Python object can live for any time, and a Python class is one type.
fn python(spec: &StructSpec<'_>, errors: &mut Errors) {
    let generics = spec.generics();
    if let (Some(_), Some(python)) = (&spec.attrs.pyclass, &spec.attrs.python) {
        let found = "`python` and `pyclass` on one struct: PyO3 already converts classes";
        errors.push(
            &python.word,
            found,
            "write `pyclass` for a class, or `python` for conversions of any struct",
        );
    } else if let (Some(pyclass), Some(parameter)) = (&spec.attrs.pyclass, generics.params.first()) {
        let help = match parameter {
            GenericParam::Lifetime(_) => "own the memory instead of borrowing it",
            _ => "use concrete types in place of the parameters, such as `Vec<f32>` for `Vec<T>`",
        };
        let found = "`pyclass` on a struct with generic parameters: a Python class is one type";
        errors.push(&pyclass.word, found, help);
    } else if let (Some(python), Some(lifetime)) = (&spec.attrs.python, generics.lifetimes().next()) {
        let found = format!("`python` on a struct that borrows for `{}`", lifetime.lifetime);
        let help = "remove `python`, or own the memory: a Python object can live longer than any borrow";
        errors.push(&python.word, found, help);
    }
}

/// An export borrows the fields, which are not aligned in a packed struct.
fn not_packed(spec: &StructSpec<'_>, errors: &mut Errors) {
    let Some(packed) = repr::find(spec.input, "packed") else { return };
    if spec.attrs.import.is_none() {
        let found = "`#[derive(CudaArray)]` on a packed struct, whose fields cannot be borrowed";
        errors.push(packed, found, "remove `packed`: the layout of the struct does not affect the array");
    }
}

/// A value without a size can neither hold array memory nor be made by an import. In the middle of a struct the
/// compiler rejects it.
fn sized(spec: &StructSpec<'_>, errors: &mut Errors) {
    let Some(field) = spec.fields.last().filter(|field| is_unsized(field.ty)) else { return };
    let role = field.attrs.roles().next().map_or("", |(role, _)| role);
    if !spec.is_imported() && matches!(role, "" | "owner") {
        return;
    }
    let help = match (role, bare(field.ty)) {
        ("data", Type::Slice(slice)) => {
            let item = shown(&slice.elem);
            format!("write `Vec<{item}>` or `Box<[{item}]>`, or `&'a [{item}]` on a struct with `export`")
        }
        ("data", _) => "write a storage, such as `Vec<f32>`".to_string(),
        (_, ty) => format!("write `Box<{}>`", shown(ty)),
    };
    let found = format!("a `{}` in the field `{}`, which has no size", shown(field.ty), field.name);
    errors.push(field.ty, found, help);
}

/// The struct in the `inner` field has its own memory, shape, strides, stream, device and owner.
fn inner_is_alone(spec: &StructSpec<'_>, errors: &mut Errors) {
    let Some(inner) = spec.only(|attrs| attrs.inner.is_some()) else { return };
    let Some(word) = &inner.attrs.inner else { return };
    if let Some(data) = spec.only(|attrs| attrs.data.is_some()) {
        let found = format!("`inner` beside the `data` field `{}`: a struct is one array", data.name);
        errors.push(&word.word, found, "remove one of the two");
        return;
    }
    let roles =
        spec.fields.iter().filter(|field| spec.has_one_use(field)).flat_map(|field| field.attrs.roles());
    let roles = roles.filter(|(role, _)| !matches!(*role, "data" | "inner"));
    let on_struct = [
        ("shape", spec.attrs.shape.as_ref().map(|set| &set.word)),
        ("order", spec.attrs.order.as_ref().map(|set| &set.word)),
    ];
    let on_struct = on_struct.into_iter().filter_map(|(role, word)| Some((role, word?)));
    for (role, other) in roles.chain(on_struct) {
        let found = format!("`{role}` beside `inner`, the field `{}`, whose struct has its own", inner.name);
        errors.push(other, found, format_args!("remove `{role}`, or write `data` in place of `inner`"));
    }
}
