//! The kernels with which `interop-core` copies arrays on a device, one for each size of a unit in bytes.
//!
//! `cargo xtask ptx` compiles them to `interop-core/src/memory/copy/copy.ptx`.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![allow(unsafe_code, reason = "copies between addresses")]
#![allow(clippy::missing_errors_doc, reason = "what the macro writes for the host is not used")]

use interop_kernel::copy::{CopyPart, copy};
use interop_kernel::{Thread, kernel};

macro_rules! copies {
    ($($name:ident: $unit:ty, $width:literal;)*) => {$(
        /// Copies units of this many bytes.
        ///
        /// `interop-core` launches it with addresses and a part for which [`copy`] is safe.
        #[kernel]
        #[allow(clippy::cast_possible_truncation, reason = "addresses of the device have 64 bits")]
        pub fn $name(thread: Thread<'_>, to: u64, from: u64, part: CopyPart) {
            let (to, from) = (to as usize, from as usize);
            let (to, from) = (core::ptr::with_exposed_provenance_mut(to), core::ptr::with_exposed_provenance(from));
            // SAFETY: as the launch promises.
            unsafe { copy::<$unit, $width>(thread.number(), to, from, &part) };
        }
    )*};
}

interop_kernel::copy_kernels!(copies);
