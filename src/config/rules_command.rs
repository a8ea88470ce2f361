//! The arguments of `promlet rules`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::DataDirArg;
use super::flags::duration;
use super::history_command::time;
use crate::model::Timestamp;

/// `promlet rules test`
#[derive(Args, Clone, Debug)]
pub struct RulesTestCommand {
    /// The files of tests
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Run only the tests with a match of this regular expression in their names; may be repeated
    #[arg(long = "run", value_name = "REGEX")]
    pub names: Vec<String>,
    /// Show the difference between expected and found alerts, in colours
    #[arg(long)]
    pub diff: bool,
    /// Print the duration of each test, and all samples at its end
    #[arg(long)]
    pub debug: bool,
    /// Write the results to a file, too, as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

/// `promlet rules backfill`
#[derive(Args, Clone, Debug)]
pub struct RulesBackfillCommand {
    /// The rule files and folders
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The organisation
    #[arg(long, value_name = "SLUG")]
    pub org: String,
    /// The first time: RFC 3339 or Unix seconds
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub start: Timestamp,
    /// The last time: RFC 3339 or Unix seconds [default: now]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub end: Option<Timestamp>,
    /// The time between two evaluations [default: the interval of the group]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub step: Option<Duration>,
    /// Only rules of this name; may be repeated
    #[arg(long = "rule", value_name = "NAME")]
    pub rules: Vec<String>,
}

/// `promlet rules`: commands on files
#[derive(Clone, Debug, Subcommand)]
pub enum RulesCommand {
    /// Check rule files as a server with --rules reads them; exit code 1 if one is wrong
    Check {
        /// The files and folders
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Run unit tests of rules, in promtool's files; exit code 1 if one fails
    Test(RulesTestCommand),
    /// Compare two rule files or folders, group by group; exit code 1 if they differ
    Diff {
        /// The files or folder before
        before: PathBuf,
        /// The files or folder after
        after: PathBuf,
    },
}

/// `promlet rules`, with the commands that need a data folder.
#[derive(Subcommand)]
pub(super) enum RulesSubcommand {
    #[command(flatten)]
    Files(RulesCommand),
    /// Write the series of recording rules for times before the rules existed, by the running
    /// server of the folder, or into the folder of a stopped server
    Backfill {
        #[command(flatten)]
        command: Box<RulesBackfillCommand>,
        #[command(flatten)]
        data_dir_arg: DataDirArg,
    },
}
