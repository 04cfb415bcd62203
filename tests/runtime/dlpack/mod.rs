//! DLPack: structs of our own and of others, in both forms.

mod abi;
mod allocations;
#[cfg(unix)]
mod c_users;
mod chains;
mod export;
mod import;
mod panics;
mod refusals;
mod release;
mod writes;
