//! The command line: parses it, starts logging, runs the command, and maps its result to an exit
//! code.
//!
//! Exit codes: 0 for success (also after SIGTERM), 1 for a failure, 2 for a wrong command line or
//! environment. `check` returns 0 for no damage, 1 for damage that the next start repairs, 2 for
//! loss, a folder that the server refuses, or one that cannot be read. `doctor` returns 0 if
//! everything is in order, 1 for warnings, 2 for a part that does not work.

// The macros of the standard library panic when the output is closed; `output` has functions that
// do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use crate::config::{self, Invocation};

mod accounts;
mod agent;
mod backup;
mod check;
mod connect;
mod dashboards;
mod demo;
mod doctor;
mod follow;
mod history;
mod moves;
mod output;
mod progress;
mod rules;
mod rules_backfill;
mod rules_test;
mod scrape;
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
        Invocation::Agent { settings, agent } => done(agent::run(settings, &agent)),
        Invocation::Demo(settings) => done(demo::run(settings)),
        Invocation::Accounts { settings, command, json } => done(accounts::run(&settings, command, json)),
        Invocation::Doctor { settings, json } => doctor::run(&settings, json),
        Invocation::Rules(command) => rules::run(&command),
        Invocation::RulesBackfill { settings, command } => done(rules_backfill::run(&settings, &command)),
        Invocation::Follow(settings) => done(follow::run(settings)),
        Invocation::Promote { dir, accepts_loss } => done(follow::promote(&dir, accepts_loss)),
        Invocation::Seal { dir } => done(seal::run(&dir)),
        Invocation::Import { settings, command, verify } => history::import(&settings, &command, verify),
        Invocation::Export { settings, command } => done(history::export(&settings, &command)),
        Invocation::Backup { dir, out, with_key } => done(backup::run(&dir, &out, with_key)),
        Invocation::Restore { dir, from } => done(backup::restore(&dir, &from)),
        Invocation::RestoreOne { dir, from, file, scratch } => {
            done(backup::restore_one(&dir, &from, &file, &scratch))
        }
        Invocation::Check { dir, deep, json, master_key, scratch } => {
            let outcome = check::run(&dir, deep, json, master_key.as_ref(), &scratch);
            Ok(outcome.unwrap_or_else(|error| check::cannot(&error)))
        }
        Invocation::ScrapeCheck { file, json } => done(scrape::check(&file, json)),
        Invocation::Repair { dir, to, scratch } => done(check::repair(&dir, &to, &scratch)),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            output::remark_line(format_args!("promlet: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
