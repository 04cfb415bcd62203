//! Random kernels, which the build script writes, and their PTX.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![allow(clippy::all, clippy::pedantic, missing_docs, unused, reason = "no person reads these kernels")]

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// The kernels for a GPU. Without the variable `RANDOM_KERNELS_PTX`, which names the file, there is none.
#[cfg(not(target_arch = "nvptx64"))]
pub const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));
