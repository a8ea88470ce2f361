//! The command line: reads what is wanted, starts logging, hands over, and turns the outcome into an exit code.
//!
//! Exit codes: 0 done (also after SIGTERM), 1 the work failed, 2 the command line or the environment is wrong.

use std::process::ExitCode;

use crate::config::{self, Invocation};

mod demo;
mod serve;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let invocation = match config::from_process() {
        Ok(invocation) => invocation,
        Err(error) => return ExitCode::from(error.report()),
    };
    let outcome = match invocation {
        Invocation::Serve(settings) => serve::run(settings),
        Invocation::Demo(settings) => demo::run(settings),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("promlet: {error:#}");
            ExitCode::FAILURE
        }
    }
}
