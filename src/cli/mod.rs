//! The command line: reads what is wanted, starts logging, hands over, and turns the outcome into an exit code.
//!
//! Exit codes: 0 done (also after SIGTERM), 1 the work failed, 2 the command line or the environment is wrong. `check`
//! answers 0 nothing to do, 1 what the next start puts right, 2 loss, a folder that the server refuses, or one that cannot be
//! read; `doctor` 0 nothing, 1 something to look at, 2
//! something that does not work.

use std::process::ExitCode;

use crate::config::{self, Invocation};

mod accounts;
mod backup;
mod check;
mod demo;
mod doctor;
mod progress;
mod seal;
mod serve;
mod table;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let invocation = match config::from_process() {
        Ok(invocation) => invocation,
        Err(error) => return ExitCode::from(error.report()),
    };
    let done = |outcome: anyhow::Result<()>| outcome.map(|()| ExitCode::SUCCESS);
    let outcome = match invocation {
        Invocation::Serve(settings) => done(serve::run(settings)),
        Invocation::Demo(settings) => done(demo::run(settings)),
        Invocation::Accounts { settings, command } => done(accounts::run(&settings, command)),
        Invocation::Doctor { settings, json } => doctor::run(&settings, json),
        Invocation::Seal { dir } => done(seal::run(&dir)),
        Invocation::Backup { dir, out, with_key } => done(backup::run(&dir, &out, with_key)),
        Invocation::Restore { dir, from } => done(backup::restore(&dir, &from)),
        Invocation::RestoreOne { dir, from, file, scratch } => {
            done(backup::restore_one(&dir, &from, &file, &scratch))
        }
        Invocation::Check { dir, deep, json, master_key, scratch } => {
            let outcome = check::run(&dir, deep, json, master_key.as_ref(), &scratch);
            Ok(outcome.unwrap_or_else(|error| check::cannot(&error)))
        }
        Invocation::Repair { dir, to, scratch } => done(check::repair(&dir, &to, &scratch)),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("promlet: {error:#}");
            ExitCode::FAILURE
        }
    }
}
