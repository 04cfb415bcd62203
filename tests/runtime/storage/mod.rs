//! What the `data` field can be: what each storage says, and what an import makes of it.

mod copies;
mod fields;
mod host_vec;
mod lease_from_owner;
mod leases;
mod memory_of_each;
mod raw;
mod shared_buffer;
mod taken_once;
