//! The binary, which calls [`promlet::cli`].

fn main() -> std::process::ExitCode {
    promlet::cli::main()
}
