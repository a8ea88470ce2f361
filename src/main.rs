//! The binary: hands over to [`promlet::cli`].

fn main() -> std::process::ExitCode {
    promlet::cli::main()
}
