//! DLPack: structs of our own and of others, in both forms.

mod abi;
mod allocations;
#[cfg(unix)]
mod c_library;
mod export;
mod import;
mod owner_chains;
mod panics;
mod read_only_flag;
mod refusals;
mod release;
