//! Code from the model. Nothing here can fail or choose a default.
//!
//! The code is a list of calls into `__private`, one for each role:
//!
//! ```text
//! const _: () = {
//!     use ::interop_core::__interop_core as __p;
//!     unsafe impl __p::CudaArray for Image {
//!         fn info(&self) -> __p::Result<__p::ArrayInfo> {
//!             let __described = <Vec<f32> as __p::Storage>::describe(&self.pixels);
//!             __described.extents([<usize as __p::Extent>::describe_field(&self.height), 3])
//!         }
//!     }
//!     impl __p::FromArray for Image { .. }
//!     unsafe impl<'__borrow> __p::BorrowedFor<'__borrow> for Image where Vec<f32>: __p::BorrowedFor<'__borrow> {}
//! };
//! ```
//!
//! The runtime stores the first error until the last call. So no other call branches, and the code compiles faster.
//! Both functions are `#[inline(always)]`: checks of constants of the struct, such as rank and element type, then
//! disappear at compile time.
//!
//! The `unsafe impl` relies on what the traits of the runtime promise. Safe code can write a module for `crate = "path"`
//! with other traits of these names, so a hidden function of `CudaArray` has them in its signature: with any other trait,
//! it is not the function of `CudaArray` and does not compile. An import gives its memory to `unsafe` code only, so no such
//! trait gets it.
//!
//! Each call names the field's type as `<Type as __p::Role>`, with the user's tokens. If the type does not implement
//! the trait, the compiler's error points to it. Both halves name the same bound, and the compiler prints equal errors
//! once.

use proc_macro2::{Delimiter, Group, Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::Type;

use crate::generics;
use crate::hygiene::{self, own};
use crate::model::{
    ArrayModel, Data, Fill, Initial, MemoryOrder, MemoryType, RoleField, Shape, ShapeEntry, TraitAccess, With,
};
use crate::python;
use crate::shape_constants::{check_constant, constant_name, constants};

/// The impls for a struct.
pub(crate) fn expand(model: &ArrayModel<'_>) -> TokenStream {
    let runtime = hygiene::runtime(&model.krate);
    let export = model.exports.then(|| export(model));
    let import = model.imports.then(|| import(model));
    let borrow = model.imports.then(|| borrow(model));
    let storage = match &model.data {
        Data::Storage(role, _) => Some(role.ty),
        Data::Inner(..) | Data::Raw { .. } => None,
    };
    let halves = (model.exports, model.imports);
    let python = python::calls(&model.krate, model.ident, &model.generics, &model.python, storage, halves);
    let constants = constants(&model.shape);
    let unreached = (model.needs_probe() || !constants.is_empty()).then(|| {
        own!(
            use __p::NeverCalled as _;
        )
    });
    own! {
        const _: () = {
            #runtime
            #unreached
            #(#constants)*
            #export
            #import
            #borrow
            #(#python)*
        };
    }
}

/// `unsafe impl CudaArray`.
fn export(model: &ArrayModel<'_>) -> TokenStream {
    let ArrayModel { ident, lints, .. } = model;
    let generics = generics::bounded(&model.generics, &generics::export_bounds(model));
    let (parameters, arguments, clause) = generics::split(&generics);
    let describe = describe(&model.data);
    let beside = other_drops(model);
    let info = info(&model.shape);
    let strides = model.strides.as_ref().map(|(RoleField { member, ty, .. }, in_bytes)| {
        own!(let __described = <#ty as __p::StridesField>::describe_field(&self.#member, __described, #in_bytes);)
    });
    let order = model.order.map(order);
    let order = order.map(|order| own!(let __described = __described.order(__p::Order::#order);));
    let stream = model.stream.as_ref().map(|RoleField { member, ty, .. }| {
        own!(let __described = <#ty as __p::AsStream>::describe_field(&self.#member, __described);)
    });
    let access = model.is_readonly.then(|| own!(let __described = __described.readonly();));
    let notices = notices(&model.data);
    // The owner field exists to be dropped. Naming it here prevents the compiler's dead code warning.
    let owner = model.owner.as_ref().map(|RoleField { member, .. }| own!(let _ = &self.#member;));
    own! {
        #[automatically_derived]
        #lints
        unsafe impl #parameters __p::CudaArray for #ident #arguments #clause {
            #[inline(always)]
            fn info(&self) -> __p::Result<__p::ArrayInfo> {
                #describe
                #beside
                #strides
                #order
                #stream
                #access
                #owner
                #info
            }

            #notices

            #[inline(always)]
            fn __relies_on(
                _: &dyn __p::Storage,
                _: &dyn __p::ShapeField,
                _: &dyn __p::StridesField,
                _: &dyn __p::AsStream,
            ) {
            }
        }
    }
}

/// `impl FromArray`.
fn import(model: &ArrayModel<'_>) -> TokenStream {
    let ArrayModel { ident, lints, .. } = model;
    let generics = generics::bounded(&model.generics, &generics::import_bounds(model));
    let (parameters, arguments, clause) = generics::split(&generics);
    let devices = model.devices.as_deref().map(devices);
    let (data, open) = (data(model), open(model));
    let literals = literals(&model.shape);
    // The instances of a class outlive the call that imports them.
    let keep = model.python.class.map(|_| own!(__p::Extraction::keep(__extraction);));
    let check = model.runs_user_code().then(|| own!(__p::Extraction::check(__extraction)?;));
    let fills = model.fills.iter().map(fill);
    own! {
        #[automatically_derived]
        #lints
        impl #parameters __p::FromArray for #ident #arguments #clause {
            #data

            #[inline(always)]
            unsafe fn assemble(__extraction: &mut __p::Extraction<'_>) -> __p::Result<Self> {
                #devices
                #keep
                #open
                #(#literals)*
                #check
                __p::Ok(Self { #(#fills,)* })
            }
        }
    }
}

/// `unsafe impl BorrowedFor`: what an import fills keeps its memory in the data field alone. A raw pointer keeps it for any
/// time.
fn borrow(model: &ArrayModel<'_>) -> Option<TokenStream> {
    let (Data::Storage(RoleField { ty, .. }, _) | Data::Inner(RoleField { ty, .. }, _)) = &model.data else {
        return None;
    };
    let ArrayModel { ident, lints, .. } = model;
    let arguments = generics::arguments(&model.generics);
    let generics = generics::borrowed(&model.generics, ty);
    let (parameters, _, clause) = generics::split(&generics);
    Some(own! {
        #[automatically_derived]
        #lints
        unsafe impl #parameters __p::BorrowedFor<'__borrow> for #ident #arguments #clause {}
    })
}

/// The start of the description, from the data field.
///
/// The `unsafe` block of a raw pointer has the span of the user's keyword `unsafe_raw`, so that
/// `#![forbid(unsafe_code)]` reports only that.
fn describe(data: &Data<'_>) -> TokenStream {
    match data {
        Data::Storage(RoleField { member, ty, .. }, _) => {
            own!(let __described = <#ty as __p::Storage>::describe(&self.#member)?;)
        }
        Data::Inner(RoleField { member, ty, .. }, _) => {
            own!(let __described = <#ty as __p::CudaArray>::info(&self.#member)?;)
        }
        Data::Raw { pointer: RoleField { member, ty, .. }, element, device, unsafe_raw } => {
            let memory = match element {
                None => own!(<#ty as __p::RawPointer>::memory),
                Some(element) => own!(<#ty as __p::RawAddress>::memory::<#element>),
            };
            let memory = own!(#memory(&self.#member));
            let memory = quote_spanned!(*unsafe_raw=> unsafe { #memory });
            let element = element.map(check_element);
            let RoleField { member, ty, .. } = device;
            own!(#element let __described = <#ty as __p::DeviceField>::describe(&self.#member, #memory);)
        }
    }
}

/// Passes on to the storage that the memory is used.
fn notices(data: &Data<'_>) -> Option<TokenStream> {
    let (RoleField { member, ty, .. }, role, [read, write, is_only_handle]) = match data {
        Data::Storage(role, _) => {
            (role, own!(__p::Storage), [own!(note_read), own!(note_write), own!(is_only_handle)])
        }
        Data::Inner(role, _) => {
            (role, own!(__p::CudaArray), [own!(note_read), own!(note_write), own!(__is_only_handle)])
        }
        Data::Raw { .. } => return None,
    };
    Some(own! {
        fn note_read(&self, __stream: __p::StreamHandle) -> ::core::primitive::bool {
            <#ty as #role>::#read(&self.#member, __stream)
        }

        fn note_write(&mut self, __stream: __p::StreamHandle) -> ::core::primitive::bool {
            <#ty as #role>::#write(&mut self.#member, __stream)
        }

        fn __is_only_handle(&mut self) -> ::core::primitive::bool {
            <#ty as #role>::#is_only_handle(&mut self.#member)
        }
    })
}

/// States whether other fields than those of the array have a drop.
fn other_drops(model: &ArrayModel<'_>) -> Option<TokenStream> {
    let others = &model.others;
    let matters = !matches!(model.data, Data::Raw { .. }) && !others.is_empty();
    matters.then(
        || own!(let __described = __described.with_other_drops(#(::core::mem::needs_drop::<#others>())||*);),
    )
}

/// The last call, with the shape.
fn info(shape: &Shape<'_>) -> TokenStream {
    match shape {
        Shape::Field(RoleField { member, ty, .. }) => {
            own!(<#ty as __p::ShapeField>::finish(&self.#member, __described))
        }
        // A method, because `crate = "path"` may have another function `Ok`.
        Shape::OfInner => own!(__described.finish()),
        Shape::Extents(axes) => {
            let axes = axes.iter().enumerate().map(|(at, axis)| match axis {
                ShapeEntry::Field(RoleField { member, ty, .. }) => {
                    own!(<#ty as __p::Extent>::describe_field(&self.#member))
                }
                ShapeEntry::Const(constant) => check_constant(constant),
                ShapeEntry::Known(_) => {
                    let constant = constant_name(at);
                    own!(__p::Extent::describe_field(&#constant))
                }
                ShapeEntry::Literal(extent) => self::extent(*extent),
                ShapeEntry::Computed(expression, text) => {
                    let at = Literal::usize_unsuffixed(at);
                    // A closure, because a `return` in the expression would leave `info` with the description of another array.
                    own!((|| -> __p::Result<_> { __p::ComputedExtent::to_extent(#expression, #at, #text) })()?)
                }
            });
            own!(__described.extents([#(#axes),*]))
        }
    }
}

/// The requirements on an import.
fn requirements(model: &ArrayModel<'_>) -> TokenStream {
    let axes = match &model.shape {
        Shape::Field(_) | Shape::OfInner => own!(__p::None),
        Shape::Extents(axes) => {
            let count = Literal::usize_unsuffixed(axes.len());
            own!(__p::Some(#count))
        }
    };
    let order = match model.required_order().map(order) {
        None => own!(__p::None),
        Some(order) => own!(__p::Some(__p::Order::#order)),
    };
    own!(__p::Requirements { axes: #axes, order: #order })
}

/// The constant for arguments that are only read. Raw pointers have the default.
fn data(model: &ArrayModel<'_>) -> Option<TokenStream> {
    let data = match &model.data {
        Data::Storage(RoleField { ty, .. }, TraitAccess::ThroughProbe) => {
            own!(<__p::FieldProbe<#ty>>::DATA_FIELD)
        }
        Data::Storage(RoleField { ty, .. }, TraitAccess::Directly) => {
            own!(<#ty as __p::FromImport>::DATA_FIELD)
        }
        Data::Inner(RoleField { ty, .. }, TraitAccess::ThroughProbe) => {
            own!(<__p::FieldProbe<#ty>>::INNER_FIELD)
        }
        Data::Inner(RoleField { ty, .. }, TraitAccess::Directly) => own!(<#ty as __p::FromArray>::DATA_FIELD),
        Data::Raw { .. } => return None,
    };
    let order =
        matches!(model.required_order(), Some(MemoryOrder::F)).then(|| own!(.in_order(__p::Order::F)));
    Some(own!(const DATA_FIELD: __p::DataField = #data #order;))
}

/// The call that checks the device, before all other checks.
fn devices(devices: &[MemoryType]) -> TokenStream {
    let devices = devices.iter().map(|device| match device {
        MemoryType::Cpu => word("CPU"),
        MemoryType::Cuda => word("CUDA"),
        MemoryType::CudaHost => word("CUDA_HOST"),
        MemoryType::CudaManaged => word("CUDA_MANAGED"),
    });
    own!(__p::Extraction::on_one_of(__extraction, &[#(__p::DeviceType::#devices),*]);)
}

/// The call that checks whether the import can be the data of this struct.
fn open(model: &ArrayModel<'_>) -> TokenStream {
    let requirements = requirements(model);
    match &model.data {
        Data::Inner(..) => TokenStream::new(),
        Data::Storage(RoleField { ty, .. }, TraitAccess::ThroughProbe) => {
            let open = probed(ty, "open", own!(__extraction, #requirements));
            own!(let __opened = #open;)
        }
        Data::Storage(RoleField { ty, .. }, TraitAccess::Directly) => {
            own!(let __opened = <#ty as __p::FromImport>::open(__extraction, #requirements);)
        }
        Data::Raw { pointer: RoleField { ty, .. }, element: None, .. } => {
            own!(<#ty as __p::RawPointer>::open(__extraction, #requirements);)
        }
        Data::Raw { pointer: RoleField { ty, .. }, element: Some(element), .. } => {
            let check = check_element(element);
            own!(#check <#ty as __p::RawAddress>::open::<#element>(__extraction, #requirements);)
        }
    }
}

/// Names the `element` of an address like every other type, before a call uses it. The error about a wrong type is then
/// the same in both halves.
fn check_element(element: &Type) -> TokenStream {
    own!(let _ = <#element as __p::Element>::TYPE;)
}

/// `<__p::FieldProbe<Type>>::verb(arguments)`, with the span of the type.
///
/// `FieldProbe<T>` has two functions of this name. One requires the import trait, and exists only if `T` implements the
/// export trait. The other always exists, requires nothing and is never called: the compiler selects it if `T` does not
/// implement the export trait either, which the export half reports. So a wrong type causes one error, and a type that
/// can only be exported gets advice.
fn probed(ty: &Type, verb: &str, arguments: TokenStream) -> TokenStream {
    let (start, end) = generics::ends(ty);
    let verb = Ident::new(verb, end);
    let mut arguments = Group::new(Delimiter::Parenthesis, arguments);
    arguments.set_span(end);
    let mut call = quote_spanned!(start=> <__p::FieldProbe<);
    ty.to_tokens(&mut call);
    call.extend(quote_spanned!(end=> >>::#verb #arguments));
    call
}

/// The extents that an import does not store in a field.
fn literals(shape: &Shape<'_>) -> Vec<TokenStream> {
    let Shape::Extents(axes) = shape else { return Vec::new() };
    let is_named =
        |other: &ShapeEntry<'_>, name: &str| matches!(other, ShapeEntry::Field(field) if field.name == name);
    let literals = axes.iter().enumerate().filter_map(|(at, axis)| {
        let index = Literal::usize_unsuffixed(at);
        match axis {
            ShapeEntry::Literal(extent) => {
                let extent = self::extent(*extent);
                Some(own!(__p::Extraction::literal(__extraction, #index, #extent);))
            }
            ShapeEntry::Known(_) => {
                let extent = constant_name(at);
                Some(own!(__p::Extraction::literal(__extraction, #index, #extent);))
            }
            ShapeEntry::Const(constant) => {
                let extent = check_constant(constant);
                Some(own!(__p::Extraction::constant(__extraction, #index, #extent);))
            }
            ShapeEntry::Computed(..) => None,
            ShapeEntry::Field(RoleField { name, .. }) => {
                let first = axes[..at].iter().position(|other| is_named(other, name))?;
                let first = Literal::usize_unsuffixed(first);
                Some(own!(__p::Extraction::same_extent(__extraction, #first, #index, #name);))
            }
        }
    });
    literals.collect()
}

/// `field: value`.
fn fill(Fill { member, with }: &Fill<'_>) -> TokenStream {
    let value = value(with);
    own!(#member: #value)
}

fn value(with: &With<'_>) -> TokenStream {
    match with {
        With::Extent(RoleField { ty, name, .. }, axis) => {
            let axis = Literal::usize_unsuffixed(*axis);
            own!(<#ty as __p::Extent>::take(__extraction, #axis, #name))
        }
        With::Shape(RoleField { ty, name, .. }) => {
            unless_refused(&own!(<#ty as __p::ShapeField>::take(__extraction, #name)))
        }
        With::Strides(RoleField { ty, name, .. }, in_bytes) => {
            unless_refused(&own!(<#ty as __p::StridesField>::take(__extraction, #name, #in_bytes)))
        }
        With::Stream(RoleField { ty, .. }, TraitAccess::ThroughProbe) => {
            unless_refused(&probed(ty, "stream", own!(__extraction)))
        }
        With::Stream(RoleField { ty, .. }, TraitAccess::Directly) => {
            unless_refused(&own!(<#ty as __p::FromStream>::take(__extraction)))
        }
        With::OwnStream(RoleField { ty, name, .. }, value) => {
            let value = initial(value);
            own!(<#ty as __p::AsStream>::receive(#value, __extraction, #name))
        }
        With::Device(RoleField { ty, .. }) => own!(<#ty as __p::DeviceField>::take(__extraction)),
        With::Initial(value) => initial(value),
        With::Storage => unless_refused(&own!(unsafe { __opened(__extraction) })),
        With::Inner(RoleField { ty, .. }, TraitAccess::ThroughProbe) => {
            let inner = probed(ty, "assemble", own!(__extraction));
            own!(unsafe { #inner }?)
        }
        With::Inner(RoleField { ty, .. }, TraitAccess::Directly) => {
            own!(unsafe { <#ty as __p::FromArray>::assemble(__extraction) }?)
        }
        With::Pointer(RoleField { ty, .. }, None) => own!(<#ty as __p::RawPointer>::take(__extraction)),
        With::Pointer(RoleField { ty, .. }, Some(_)) => own!(<#ty as __p::RawAddress>::take(__extraction)),
        With::Owner(RoleField { ty, .. }) => {
            unless_refused(&own!(<#ty as __p::FromOwner>::take(__extraction)))
        }
    }
}

/// The value of a step. One that returns `None` has stored an error; `?` would take longer to compile.
fn unless_refused(step: &TokenStream) -> TokenStream {
    own!(match #step { __p::Some(__value) => __value, _ => return __extraction.refused() })
}

fn initial(initial: &Initial<'_>) -> TokenStream {
    match initial {
        Initial::Default(ty) => own!(<#ty as __p::Default>::default()),
        Initial::Expression(expression) => expression.clone(),
    }
}

fn order(order: MemoryOrder) -> Ident {
    match order {
        MemoryOrder::C => word("C"),
        MemoryOrder::F => word("F"),
    }
}

/// A literal extent, with a span of the macro, so that lints about long numbers do not apply.
fn extent(extent: u64) -> TokenStream {
    let mut literal = Literal::u64_unsuffixed(extent);
    literal.set_span(Span::mixed_site());
    literal.into_token_stream()
}

fn word(word: &str) -> Ident {
    Ident::new(word, Span::mixed_site())
}
