//! The rules that need more than one attribute, one function each:
//!
//! 1. [`data_once`]: one field is the data.
//! 2. [`shape_once`]: the shape is said, and said once.
//! 3. [`roles_once`]: no other role is on two fields.
//! 4. [`one_role_each`]: no field has two roles.
//! 5. [`default_is_needed`]: `default` is on fields that an import does not fill by itself.
//! 6. [`directions`]: `export`, `import` and the words that go with one of them.
//! 7. [`everything_filled`]: an import can fill every field.
//! 8. [`python`]: what a Python class or object can be.
//! 9. [`not_packed`]: an export can borrow the fields.
//! 10. [`sized`]: memory and what an import makes have a size.
//!
//! The rules about the list of `shape = [...]` are in `axes`, those about raw pointers and owners in `raw`.
//!
//! A rule about an absent word asks [`Errors::is_absent`] first: a word that is there but misspelt was reported before.

use proc_macro2::Ident;
use syn::{DeriveInput, GenericParam, Generics, Type};

use crate::attrs::{ContainerAttrs, FieldAttrs};
use crate::errors::Errors;
use crate::fields::{Field, bare};
use crate::ill_formed::is_unsized;
use crate::words::{join, shown};
use crate::{axes, raw, repr};

/// All that the user claims about a struct.
pub(crate) struct Claims<'a> {
    pub(crate) input: &'a DeriveInput,
    pub(crate) attrs: &'a ContainerAttrs,
    pub(crate) fields: &'a [Field<'a>],
}

impl<'a> Claims<'a> {
    pub(crate) fn generics(&self) -> &'a Generics {
        &self.input.generics
    }

    pub(crate) fn is_imported(&self) -> bool {
        self.attrs.export.is_none()
    }

    /// The first field with this word.
    pub(crate) fn with(&self, has: impl Fn(&FieldAttrs) -> bool) -> Option<&'a Field<'a>> {
        self.fields.iter().find(|field| has(&field.attrs))
    }

    /// The first field with this word, if it is the only one that the field has.
    pub(crate) fn only(&self, has: impl Fn(&FieldAttrs) -> bool) -> Option<&'a Field<'a>> {
        self.with(has).filter(|field| field.attrs.roles().nth(1).is_none())
    }

    pub(crate) fn data(&self) -> Option<&'a Field<'a>> {
        self.with(|attrs| attrs.data.is_some())
    }

    /// Whether `shape = [...]` names the field.
    pub(crate) fn is_extent(&self, field: &Field<'_>) -> bool {
        self.extents().any(|named| std::ptr::eq(named, field))
    }

    /// The fields that `shape = [...]` names.
    pub(crate) fn extents(&self) -> impl Iterator<Item = &'a Field<'a>> {
        let list = self.attrs.shape.iter().flat_map(|shape| &shape.value);
        list.filter_map(|extent| axes::field_of(extent, self.fields))
    }
}

/// Applies every rule.
pub(crate) fn rules(claims: &Claims<'_>, errors: &mut Errors) {
    data_once(claims, errors);
    shape_once(claims, errors);
    roles_once(claims, errors);
    one_role_each(claims, errors);
    default_is_needed(claims, errors);
    axes::rules(claims, errors);
    directions(claims, errors);
    raw::rules(claims, errors);
    everything_filled(claims, errors);
    python(claims, errors);
    not_packed(claims, errors);
    sized(claims, errors);
}

/// A struct is one array, so one field holds its memory.
fn data_once(claims: &Claims<'_>, errors: &mut Errors) {
    once(claims, "data", "keep it on one: a struct is one array", errors);
    if claims.data().is_none() && errors.is_absent("data") {
        // An `unsafe_raw` that stands outside of `data(...)` is on that field, and was reported there.
        if errors.is_absent("unsafe_raw") {
            let help = "write `#[cuda_array(data)]` on the field that holds it";
            errors.push(&claims.input.ident, "no field of the struct holds the memory", help);
        }
        // Which fields an import has to fill, and with what, depends on it.
        errors.lose(Some("data"));
    }
}

/// The shape is a field, or a list on the struct.
fn shape_once(claims: &Claims<'_>, errors: &mut Errors) {
    once(
        claims,
        "shape",
        "keep it on one; for one field per extent, write `shape = [height, width]` on the struct",
        errors,
    );
    let field = claims.with(|attrs| attrs.shape.is_some()).and_then(|field| field.attrs.shape.as_ref());
    let is_shape_alone =
        claims.only(|attrs| attrs.shape.is_some()).is_some_and(|field| !claims.is_extent(field));
    match (&claims.attrs.shape, field) {
        // A field with another role too, or one that is an extent, has a message of its own.
        (Some(_), Some(field)) if is_shape_alone => {
            let found = "the shape is said twice: by this field and by `shape = [...]` on the struct";
            errors.push(&field.word, found, "remove one of the two");
        }
        (None, None) if errors.is_absent("shape") => {
            let help = "write `#[cuda_array(shape)]` on the field that holds it, or `#[cuda_array(shape = [height, \
                        width])]` on the struct, with the names of its integer fields";
            errors.push(&claims.input.ident, "nothing says the shape of the array", help);
            errors.lose(Some("shape"));
        }
        _ => {}
    }
}

fn roles_once(claims: &Claims<'_>, errors: &mut Errors) {
    for role in ["strides", "stream", "device", "owner"] {
        once(claims, role, "keep it on one", errors);
    }
}

/// Reports every field but the first that has this role.
fn once(claims: &Claims<'_>, role: &str, help: &str, errors: &mut Errors) {
    let mut first: Option<&Field<'_>> = None;
    for field in claims.fields {
        let Some(word) = field.attrs.role(role) else { continue };
        match first {
            None => first = Some(field),
            Some(first) => {
                let found = format!("`{role}` is on two fields, `{}` and `{}`", first.name, field.name);
                errors.push(word, found, help);
            }
        }
    }
}

/// A field is one thing. Only the first pair is reported: the others have the same cause.
fn one_role_each(claims: &Claims<'_>, errors: &mut Errors) {
    for field in claims.fields {
        let mut roles = field.attrs.roles();
        if let (Some((first, _)), Some((second, word))) = (roles.next(), roles.next()) {
            let found = format!("the field `{}` is `{first}` and `{second}` at once", field.name);
            errors.push(word, found, "keep one of the two, and give the other a field of its own");
            // What the field is, and whether the roles have fields, is open.
            field.attrs.roles().for_each(|(role, _)| errors.lose(Some(role)));
        }
    }
}

/// What arrives brings memory, shape, strides and device. Streams and owners can be the struct's own.
fn default_is_needed(claims: &Claims<'_>, errors: &mut Errors) {
    if !claims.is_imported() {
        return;
    }
    for field in claims.fields {
        let Some(default) = field.attrs.default.as_ref().filter(|default| !default.is_reported) else {
            continue;
        };
        let filled = field.attrs.roles().find(|(role, _)| !matches!(*role, "stream" | "owner"));
        if let Some((role, _)) = filled {
            let found = format!("`default` on the `{role}` field, which an import fills with what arrives");
            errors.push(&default.word, found, "remove `default`");
        } else if claims.is_extent(field) {
            let found = format!("`default` on `{}`, which an import fills with an extent", field.name);
            errors.push(&default.word, found, "remove `default`");
        }
    }
}

/// A struct goes both ways unless it says one, and words about exports need an export.
fn directions(claims: &Claims<'_>, errors: &mut Errors) {
    let attrs = claims.attrs;
    if let (Some(export), Some(default)) = (&attrs.export, first_default(claims)) {
        let found = "`default` is about imports, and the struct says `export`";
        let help = format!("remove every `{default}`, or `{}` to go both ways", export.word);
        errors.push(default, found, help);
    }
    if let (Some(export), Some(devices)) = (&attrs.export, &attrs.devices) {
        let found = "`device = ...` is about imports, and the struct says `export`";
        let help = format!("remove `{}`, or `{}` to go both ways", devices.word, export.word);
        errors.push(&devices.word, found, help);
    }
    let Some(import) = &attrs.import else { return };
    if attrs.export.is_some() {
        let help = "remove both: a struct that says neither goes both ways";
        errors.push(&import.word, "`export` and `import` each exclude the other", help);
        return;
    }
    if let Some(readonly) = &attrs.readonly {
        let found = "`readonly` is about exports, and the struct says `import`";
        errors.push(&readonly.word, found, "remove `readonly`, or `import` to go both ways");
    }
    if let Some(pyclass) = &attrs.pyclass {
        let found = "`pyclass` adds methods that export, and the struct says `import`";
        errors.push(&pyclass.word, found, "remove `pyclass`, or `import` to go both ways");
    }
}

/// The first word `default`: all of them have no meaning for one reason, so they are one message.
fn first_default<'a>(claims: &Claims<'a>) -> Option<&'a Ident> {
    claims.fields.iter().find_map(|field| field.attrs.default.as_ref()).map(|default| &default.word)
}

/// The words that say how an import fills a field, or that there is none.
const FILLING: [&str; 9] =
    ["data", "unsafe_raw", "shape", "strides", "stream", "device", "owner", "default", "export"];

/// An import makes a whole struct. All fields that it cannot fill have one cause, so they are one message.
fn everything_filled(claims: &Claims<'_>, errors: &mut Errors) {
    if !claims.is_imported() || !FILLING.iter().all(|word| errors.is_absent(word)) {
        return;
    }
    let has_role = |field: &&Field<'_>| field.attrs.roles().next().is_some() || field.attrs.default.is_some();
    let unfilled: Vec<&Field<'_>> =
        claims.fields.iter().filter(|field| !has_role(field) && !claims.is_extent(field)).collect();
    let Some(first) = unfilled.first() else { return };
    let names: Vec<&str> = unfilled.iter().map(|field| field.name.as_str()).collect();
    let (noun, each) = if names.len() == 1 { ("field", "it") } else { ("fields", "each") };
    let found = format!("an import cannot fill the {noun} {}", join(names.iter().copied(), "and"));
    let help = format!(
        "write `#[cuda_array(default)]` or `#[cuda_array(default = expression)]` on {each}, or `#[cuda_array(export)]` on \
         a struct that is never imported{}",
        axes::hint_about_index(claims, first)
    );
    errors.push(first.blame(), found, help);
}

/// Python objects live as long as Python likes, and a Python class is one type.
fn python(claims: &Claims<'_>, errors: &mut Errors) {
    let generics = claims.generics();
    if let (Some(_), Some(python)) = (&claims.attrs.pyclass, &claims.attrs.python) {
        let found = "`python` and `pyclass` on one struct, and PyO3 converts a class already";
        errors.push(
            &python.word,
            found,
            "write `pyclass` for a class, or `python` for conversions of any struct",
        );
    } else if let (Some(pyclass), Some(parameter)) = (&claims.attrs.pyclass, generics.params.first()) {
        let help = match parameter {
            GenericParam::Lifetime(_) => "own the memory in place of borrowing it",
            _ => "name the types in place of the parameters, as in `Vec<f32>` for `Vec<T>`",
        };
        let found = "`pyclass` on a struct with generic parameters, and a Python class is one type";
        errors.push(&pyclass.word, found, help);
    } else if let (Some(python), Some(lifetime)) = (&claims.attrs.python, generics.lifetimes().next()) {
        let found = format!("`python` on a struct that borrows for `{}`", lifetime.lifetime);
        let help = "remove `python`, or own the memory: a Python object can live longer than any borrow";
        errors.push(&python.word, found, help);
    }
}

/// An export looks at the fields by reference, which those of a packed struct are not aligned for.
fn not_packed(claims: &Claims<'_>, errors: &mut Errors) {
    let Some(packed) = repr::find(claims.input, "packed") else { return };
    if claims.attrs.import.is_none() {
        let found = "`#[derive(CudaArray)]` on a packed struct, whose fields cannot be borrowed";
        errors.push(packed, found, "remove `packed`: the layout of the struct says nothing about its array");
    }
}

/// A value without a size can neither hold the memory of an array nor be made by an import. In the middle of a struct rustc
/// refuses it.
fn sized(claims: &Claims<'_>, errors: &mut Errors) {
    let Some(field) = claims.fields.last().filter(|field| is_unsized(field.ty)) else { return };
    let role = field.attrs.roles().next().map_or("", |(role, _)| role);
    if !claims.is_imported() && matches!(role, "" | "owner") {
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
