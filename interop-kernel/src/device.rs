//! What the device has: the numbers of a thread, barriers, shuffles, atomics, and the end of a kernel that fails.
#![expect(unsafe_code, reason = "instructions of the device")]

use core::arch::asm;
use core::arch::nvptx::{
    _block_dim_x, _block_dim_y, _block_dim_z, _block_idx_x, _block_idx_y, _block_idx_z, _grid_dim_x,
    _grid_dim_y, _grid_dim_z, _thread_idx_x, _thread_idx_y, _thread_idx_z,
};

/// Ends the kernel with an error of the launch.
#[inline(always)]
pub(crate) fn trap() -> ! {
    // SAFETY: it has no preconditions.
    unsafe { core::arch::nvptx::trap() }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    trap()
}

macro_rules! extents {
    ($($name:ident: $x:ident $y:ident $z:ident;)*) => {
        $(
            #[inline(always)]
            pub(crate) fn $name() -> [u32; 3] {
                // SAFETY: it reads a register.
                let x = unsafe { $x() };
                // SAFETY: as above.
                let y = unsafe { $y() };
                // SAFETY: as above.
                let z = unsafe { $z() };
                [x as u32, y as u32, z as u32]
            }
        )*
    };
}

extents! {
    thread: _thread_idx_x _thread_idx_y _thread_idx_z;
    block: _block_idx_x _block_idx_y _block_idx_z;
    block_size: _block_dim_x _block_dim_y _block_dim_z;
    grid_size: _grid_dim_x _grid_dim_y _grid_dim_z;
}

unsafe extern "C" {
    #[link_name = "llvm.nvvm.barrier0"]
    fn barrier0();
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    fn shuffle_down(mask: u32, value: u32, distance: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn shuffle_across(mask: u32, value: u32, distance: u32, clamp: u32) -> u32;
    // Not the aligned barrier, which needs whole warps: the threads of a warp may come one by one.
    #[link_name = "llvm.nvvm.barrier.cta.sync.all"]
    fn barrier_of_threads(number: u32);
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn barrier_of_warp(mask: u32);
}

/// Returns a number of which the compiler forgets where it comes from, so that it keeps nothing that depends on it in registers.
/// Without `pure` it stays where it is.
#[inline(always)]
pub(crate) fn forget(number: u32) -> u32 {
    let same: u32;
    // SAFETY: it copies a number.
    unsafe { asm!("mov.u32 {}, {};", out(reg32) same, in(reg32) number, options(nomem, nostack)) };
    same
}

/// Returns the word of the lane whose number differs in one bit.
///
/// # Safety
///
/// All threads of the mask, of which the caller is one, make this call.
#[inline(always)]
pub(crate) unsafe fn word_across(mask: u32, word: u32, distance: u32) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { shuffle_across(mask, word, distance, 31) }
}

/// Returns a number that the compiler does not know, so that it does not unroll a loop.
#[inline(always)]
pub(crate) fn opaque(number: u32) -> u32 {
    let same: u32;
    // SAFETY: it copies a number.
    unsafe { asm!("mov.u32 {}, {};", out(reg32) same, in(reg32) number, options(pure, nomem, nostack)) };
    same
}

/// Returns a place of which the compiler forgets what it is.
#[inline(always)]
pub(crate) fn forget_place<T>(place: *mut T) -> *mut T {
    let same: *mut T;
    // SAFETY: it copies a pointer.
    unsafe { asm!("mov.u64 {}, {};", out(reg64) same, in(reg64) place, options(pure, nomem, nostack)) };
    same
}

/// Waits for all threads of the block.
#[inline(always)]
pub(crate) fn meet() {
    // SAFETY: it has no preconditions: without the others it waits.
    unsafe { barrier_of_threads(0) }
}

/// Waits for the threads of a mask in the warp, of which the caller is one.
#[inline(always)]
pub(crate) fn meet_in_warp(mask: u32) {
    // SAFETY: it has no preconditions: without the others it waits.
    unsafe { barrier_of_warp(mask) }
}

/// Waits for all threads of the block.
///
/// # Safety
///
/// All threads of the block make this call.
#[inline(always)]
pub(crate) unsafe fn barrier() {
    // SAFETY: as the caller promises.
    unsafe { barrier0() }
}

/// Returns the value of the lane `distance` further on in the warp.
///
/// # Safety
///
/// All 32 threads of the warp make this call.
#[inline(always)]
pub(crate) unsafe fn value_of_lane(value: u64, distance: u32) -> u64 {
    const ALL: u32 = u32::MAX;
    // SAFETY: as the caller promises.
    let low = unsafe { shuffle_down(ALL, value as u32, distance, 31) };
    // SAFETY: as above.
    let high = unsafe { shuffle_down(ALL, (value >> 32) as u32, distance, 31) };
    u64::from(high) << 32 | u64::from(low)
}

core::arch::global_asm!(".shared .align 8 .b8 interop_kernel_words[768];");

/// Returns the shared memory that a sum uses: of a block 32 words, of a team twice three halves of one for each of 32 warps.
#[inline(always)]
pub(crate) fn shared_words() -> *mut u64 {
    let shared: u64;
    // SAFETY: it converts the address of the variable above, which every block has, to one that plain loads use.
    unsafe {
        asm!("cvta.shared.u64 {}, interop_kernel_words;", out(reg64) shared, options(pure, nomem, nostack))
    };
    core::ptr::with_exposed_provenance_mut(shared as usize)
}

macro_rules! shared_values {
    ($($size:literal $bytes:literal;)*) => {
        $(
            core::arch::global_asm!(concat!(".shared .align ", $size, " .b8 interop_kernel_shared_", $size, "[", $bytes, "];"));
        )*

        /// Returns shared memory for 1024 values of this size, a power of two up to 16.
        #[inline(always)]
        pub(crate) fn shared_values(size: usize) -> *mut u8 {
            let shared: u64;
            match size {
                $(
                    $size => {
                        // SAFETY: as in `shared_words`.
                        unsafe {
                            asm!(concat!("cvta.shared.u64 {}, interop_kernel_shared_", $size, ";"), out(reg64) shared, options(pure, nomem, nostack))
                        }
                    }
                )*
                _ => trap(),
            }
            core::ptr::with_exposed_provenance_mut(shared as usize)
        }
    };
}

shared_values! {
    1 1024;
    2 2048;
    4 4096;
    8 8192;
    16 16384;
}
