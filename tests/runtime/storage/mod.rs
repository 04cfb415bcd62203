//! The types of the `data` field: how each storage describes its memory, and how an import creates it.

mod copies;
mod fields;
mod host_vec;
mod lease_from_owner;
mod leases;
mod memory_of_each;
mod raw;
mod refusing;
mod runtime_types;
mod shared_buffer;
