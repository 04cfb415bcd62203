//! Imports any Python object. `pipeline.rs` lists the steps in their order.

pub(crate) mod argument;
pub(crate) mod array_interface;
pub(crate) mod capsule;
pub(crate) mod capture_watch;
pub(crate) mod cuda_array_interface;
pub(crate) mod direct_call;
pub(crate) mod dlpack_call;
pub(crate) mod dlpack_method;
pub(crate) mod exchange_table;
pub(crate) mod from_exchange_table;
pub(crate) mod interface_dict;
pub(crate) mod kept;
pub(crate) mod kind;
pub(crate) mod lazy_values;
pub(crate) mod legacy_writable;
pub(crate) mod library_kind;
pub(crate) mod package;
pub(crate) mod pipeline;
pub(crate) mod producer_wait;
pub(crate) mod receive;
pub(crate) mod step;
pub(crate) mod type_cache;
