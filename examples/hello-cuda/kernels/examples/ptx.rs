//! Compiles the kernels to `kernels.ptx`: `cargo ptx`.

fn main() -> std::process::ExitCode {
    interop_kernel::ptx::main(env!("CARGO_MANIFEST_DIR"), "kernels.ptx")
}
