//! Unit tests of rules in promtool's files: those of `tests/fixtures/rules/succeed` succeed and
//! those of `fail` fail. `tests/peers_rules_test.rs` runs the same files with promtool.

use std::path::{Path, PathBuf};
use std::process::Command;

use promlet::rules::unit_test::{UnitTestOptions, UnitTestReport};

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

fn run_unit_test_file(file: &Path) -> UnitTestReport {
    promlet::rules::unit_test::run_unit_test_file(file, &UnitTestOptions::default())
}

#[test]
fn files_of_unit_tests_succeed_or_fail_as_their_folder_says() {
    let mut wrong = Vec::new();
    let (succeeding, failing) = (files("succeed"), files("fail"));
    for file in &succeeding {
        let report = run_unit_test_file(file);
        if !report.failures().is_empty() {
            wrong.push(format!("{}:\n{}", file.display(), report.failures().join("\n")));
        }
    }
    for file in &failing {
        if run_unit_test_file(file).failures().is_empty() {
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
    assert_eq!(run_unit_test_file(&file).failures(), [expected.join("\n")]);
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

/// Three tests in a folder with their rules: the first and the last one fail.
const THREE_TESTS: &str = "
rule_files: [rules.yml]
tests:
- interval: 1m
  name: first & best
  input_series: [{series: 'up{job=\"a\"}', values: '0 0 0'}, {series: x, values: '1 2.5 1e30'}]
  alert_rule_test:
  - {eval_time: 1m, alertname: Down, exp_alerts: [{exp_labels: {job: b, x: y}}]}
  - {eval_time: 1m, alertname: Down, exp_alerts: []}
  - eval_time: 1m
    alertname: Down
    exp_alerts: [{exp_labels: {job: a}, exp_annotations: {text: it <is>}}, {exp_labels: {job: c}}]
- interval: 1m
  name: second
  promql_expr_test: [{expr: '1', eval_time: 0m, exp_samples: [{value: 1}]}]
- interval: 1m
  promql_expr_test: [{expr: '1', eval_time: 0m, exp_samples: [{value: 2}]}]
";
const RULES: &str =
    "groups: [{name: g, rules: [{alert: Down, expr: up == 0, annotations: {text: it <is>}}]}]";

/// Runs the three tests. Returns the exit code, standard output and standard error.
fn three_tests(folder: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    std::fs::write(folder.join("three.test.yml"), THREE_TESTS).expect("written");
    std::fs::write(folder.join("rules.yml"), RULES).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_promlet"));
    command.args(["rules", "test"]).args(words).arg("three.test.yml").current_dir(folder).env_clear();
    let output = command.output().expect("it runs");
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), out, err)
}

#[test]
fn tests_are_selected_by_their_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |words: &[&str]| three_tests(folder.path(), words);
    assert_eq!(run(&["--run", "sec"]), (Some(0), "  SUCCESS\n\n".to_owned(), String::new()));
    assert_eq!(run(&["--run", "sec", "--run", "none"]).0, Some(0));
    assert_eq!(run(&["--run", "none"]).0, Some(0), "rules of tests that do not run are not read");
    let (code, _, unnamed) = run(&["--run", "^$"]);
    assert_eq!((code, unnamed.matches("exp:").count()), (Some(1), 1), "{unnamed}");
    let (code, _, wrong) = run(&["--run", "("]);
    assert!(code == Some(1) && wrong.contains("--run ("), "{wrong}");
}

#[test]
fn alerts_that_differ_are_shown_as_a_difference_in_colours() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, _, found) = three_tests(folder.path(), &["--diff", "--run", "first"]);
    let expected = r#"  FAILED:
    name: first & best,
    alertname: Down, time: 1m, 
        diff: [
                {
                    "Annotations": {
                        <G"text": "it <is>">
                    },
                    "Labels": {
                        "alertname": "Down",
                        "job": <Y"b" => "a">,
                        <R"x": "y">
                    }
                }
            ]

    name: first & best,
    alertname: Down, time: 1m, 
        diff: [
                {
                    "Annotations": {
                        <G"text": "it <is>">
                    },
                    "Labels": {
                        <G"alertname": "Down">,
                        <G"job": "a">
                    }
                }
            ]

    name: first & best,
    alertname: Down, time: 1m, 
        diff: [
                {
                    "Annotations": {
                        "text": "it <is>"
                    },
                    "Labels": {
                        "alertname": "Down",
                        "job": "a"
                    }
                },
                <R{>
                    <R"Annotations": {},>
                    <R"Labels": {>
                        <R"alertname": "Down",>
                        <R"job": "c">
                    <R}>
                <R}>
            ]

"#;
    let mut plain = found;
    for (code, mark) in [("32", "<G"), ("31", "<R"), ("33", "<Y")] {
        plain = plain.replace(&format!("\u{1b}[0;{code}m"), mark);
    }
    assert_eq!((code, plain.replace("\u{1b}[0m", ">").as_str()), (Some(1), expected));
}

#[test]
fn all_samples_of_a_test_are_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, out, _) = three_tests(folder.path(), &["--debug"]);
    let lines: Vec<&str> = out.lines().filter(|line| !line.contains("finished, took")).collect();
    let expected = [
        "DEBUG: Starting test first & best",
        "DEBUG: Dump of all data (input_series and rules) at 1m1s:",
        "{__name__=\"ALERTS\", alertname=\"Down\", alertstate=\"firing\", job=\"a\"} =>",
        "1 @[60000]",
        "{__name__=\"ALERTS_FOR_STATE\", alertname=\"Down\", job=\"a\"} =>",
        "0 @[60000]",
        "{__name__=\"up\", job=\"a\"} =>",
        "0 @[60000]",
        "{__name__=\"x\"} =>",
        "2.5 @[60000]",
        "DEBUG: Starting test second",
        "DEBUG: Dump of all data (input_series and rules) at 1s:",
        "",
        "DEBUG: Starting test unnamed#2",
        "DEBUG: Dump of all data (input_series and rules) at 1s:",
        "",
        "",
    ];
    assert_eq!(lines, expected);
    assert_eq!(out.matches("finished, took").count(), 3);
}

#[test]
fn results_are_written_as_junit_xml() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("wrong.yml"), "tests: 1\n").expect("written");
    let (code, ..) = three_tests(folder.path(), &["--junit", "out.xml", "wrong.yml"]);
    assert_eq!(code, Some(1));
    let text = std::fs::read_to_string(folder.path().join("out.xml")).expect("written");
    for part in [
        "<testsuites><testsuite name=\"wrong.yml\" tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\" timestamp=\"2",
        "<testcase name=\"unknown\"><error>wrong.yml: ",
        "<testsuite name=\"three.test.yml\" tests=\"3\" failures=\"4\" errors=\"0\" skipped=\"0\" ",
        "<testcase name=\"first &amp; best\"><failure>    name: first &amp; best,&#xA;    alertname: Down",
        "Annotations:{text=&#34;it &lt;is&gt;&#34;}",
        "<testcase name=\"second\"></testcase><testcase name=\"unnamed#2\"><failure>    expr: &#34;1&#34;, time: 0s,",
        "</failure></testcase></testsuite></testsuites>",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let (code, _, error) = three_tests(folder.path(), &["--junit", "none/out.xml"]);
    assert!(code == Some(1) && error.contains("cannot write none/out.xml"), "{error}");
}
