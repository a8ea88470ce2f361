//! Unit tests of rules in promtool's files: those of `tests/fixtures/rules/succeed` succeed and
//! those of `fail` fail. `tests/peers_rules_test.rs` runs the same files with promtool.

use std::path::{Path, PathBuf};
use std::process::Command;

use promlet::rules::unit_test::run_unit_test_file;

/// Returns the files of tests in a folder of the fixtures, sorted.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rules").join(folder);
    let entries = std::fs::read_dir(folder).expect("the fixtures are there");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.to_string_lossy().ends_with(".test.yml"))
        .collect();
    files.sort();
    files
}

#[test]
fn files_of_unit_tests_succeed_or_fail_as_their_folder_says() {
    let mut wrong = Vec::new();
    let (succeeding, failing) = (files("succeed"), files("fail"));
    for file in &succeeding {
        let report = run_unit_test_file(file);
        if !report.failures.is_empty() {
            wrong.push(format!("{}:\n{}", file.display(), report.failures.join("\n")));
        }
    }
    for file in &failing {
        if run_unit_test_file(file).failures.is_empty() {
            wrong.push(format!("{} succeeds", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(succeeding.len() + failing.len() >= 60);
}

#[test]
fn a_failure_names_test_alert_time_and_both_sides() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rules/fail/alert_is_missing.test.yml");
    let expected = [
        "    name: down,",
        "    alertname: Down, time: 0s, ",
        "        exp:[",
        "            0:",
        "              Labels:{alertname=\"Down\", job=\"a\"}",
        "              Annotations:{}",
        "            ], ",
        "        got:[]",
    ];
    assert_eq!(run_unit_test_file(&file).failures, [expected.join("\n")]);
}

#[test]
fn the_command_prints_verdicts_and_returns_1_for_a_failure() {
    let run = |files: &[PathBuf]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_promlet"));
        let output = command.args(["rules", "test"]).args(files).env_clear().output().expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (succeeding, failing) = (files("succeed"), files("fail"));
    assert_eq!(run(&succeeding[..2]), (Some(0), "  SUCCESS\n\n  SUCCESS\n\n".into(), String::new()));
    let (code, out, errors) = run(&[succeeding[0].clone(), failing[0].clone()]);
    assert_eq!((code, out.as_str()), (Some(1), "  SUCCESS\n\n\n"));
    assert!(errors.starts_with("  FAILED:\n"), "{errors}");
    let missing = run(&[PathBuf::from("missing.yml")]);
    assert_eq!(missing.0, Some(1));
    assert!(missing.2.contains("missing.yml: "), "{}", missing.2);
}
