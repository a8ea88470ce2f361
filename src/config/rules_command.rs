//! The arguments of `promlet rules`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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

/// `promlet rules`
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
