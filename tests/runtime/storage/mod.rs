//! What the `data` field can be: what each storage says, and what an import makes of it.

mod copies;
mod fields;
mod host_vec;
mod kinds;
mod leases;
mod lent;
mod raw;
mod shared;
mod taken;
