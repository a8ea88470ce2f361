//! `promlet rules test`: unit tests of rules, with the output of `promtool test rules`.

use std::path::PathBuf;

use crate::rules::unit_test::run_unit_test_file;

/// Runs files of unit tests. Returns whether all of them succeeded.
pub(super) fn run(files: &[PathBuf]) -> bool {
    let mut is_fine = true;
    for file in files {
        let report = run_unit_test_file(file);
        for warning in &report.warnings {
            eprintln!("  WARNING: {warning}");
        }
        if report.failures.is_empty() {
            println!("  SUCCESS");
        } else {
            eprintln!("  FAILED:");
            for failure in &report.failures {
                eprintln!("{failure}\n");
            }
            is_fine = false;
        }
        println!();
    }
    is_fine
}
