//! Unit tests of rules, in the files that promtool reads (`promtool test rules`).
//!
//! A test loads series into a store in memory, evaluates the groups of its rule files step by step,
//! and compares alerts and results of queries with the expected ones. Verdicts and messages are
//! those of promtool 3.5.

mod compare;
mod decode;
mod difference;
mod dump;
mod expression;
mod files;
mod glob;
mod run;
pub mod series;
#[cfg(test)]
mod tests;

pub use files::{UnitTestOptions, UnitTestReport, UnitTestResult, run_unit_test_file};

/// The most bytes of a file of tests, inclusive.
pub const UNIT_TEST_FILE_BYTES_MAX: usize = 10 << 20;
/// The most tests of a file, inclusive.
pub const UNIT_TESTS_MAX: usize = 10_000;
/// The most evaluations of one test, inclusive: steps times groups.
pub const UNIT_TEST_EVALUATIONS_MAX: u64 = 1_000_000;
/// The most samples that the input series of one test describe, inclusive.
pub const UNIT_TEST_SAMPLES_MAX: usize = 2_000_000;
/// The most rule files of a file of tests, after their patterns are expanded, inclusive.
pub const UNIT_TEST_RULE_FILES_MAX: usize = 1_000;
