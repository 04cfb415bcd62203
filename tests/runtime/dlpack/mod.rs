//! DLPack: our structs and foreign ones, in both forms.

mod abi;
mod allocations;
#[cfg(unix)]
mod borrowed;
mod c_library;
mod export;
mod import;
mod owner_chains;
mod panics;
mod read_only_flag;
mod refusals;
mod release;
