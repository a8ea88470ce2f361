//! Files of unit tests of rules under promtool of Prometheus 3.5: the same verdicts, and the same
//! messages about alerts and samples that differ. Under `vmalert-tool unittest` they have the same
//! verdicts, except for the files that it does not support.
//!
//! Both are unpacked below `target/`; if they are unavailable, the test fails and reports it.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "differential/chance.rs"]
#[expect(dead_code, reason = "shared: random expressions use more of it")]
mod chance;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;
#[path = "peers/random_rules.rs"]
mod random_rules;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Files whose failures promtool words in another way: it gives no position, or another one.
const WORDED_DIFFERENTLY: [&str; 13] = [
    "alertname_is_missing",
    "expected_labels_do_not_parse",
    "group_order_is_repeated",
    "many_to_many_matching_fails_the_rule",
    "query_does_not_parse",
    "recording_rule_with_for",
    "rule_file_with_a_repeated_group",
    "rule_file_with_an_error",
    "series_does_not_parse",
    "template_that_does_not_parse",
    "template_with_an_unknown_function",
    "unknown_key",
    "values_do_not_parse",
];

fn files() -> Vec<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rules");
    let mut files: Vec<PathBuf> = ["succeed", "fail"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(fixtures.join(folder)).expect("the fixtures are there"))
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.to_string_lossy().ends_with(".test.yml"))
        .collect();
    files.sort();
    files
}

/// Returns whether a program takes the file for succeeding, and its messages without empty lines.
fn verdict(program: &Path, words: &[&str], file: &Path) -> (bool, Vec<String>) {
    let output = Command::new(program).args(words).arg(file).env_clear().output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    let lines = String::from_utf8_lossy(&text).lines().map(str::to_owned).collect::<Vec<_>>();
    let is_compared = |line: &String| !line.trim().is_empty() && !line.contains(" finished, took ");
    (output.status.success(), lines.into_iter().filter(is_compared).collect())
}

#[test]
fn files_of_unit_tests_have_the_verdicts_and_messages_of_promtool() {
    let promtool = packages::prometheus().join("promtool");
    let ours = Path::new(env!("CARGO_BIN_EXE_promlet"));
    let mut wrong = Vec::new();
    let files = files();
    let options: [&[&str]; 4] = [&[], &["--diff"], &["--run", "a", "--run", "^$"], &["--debug"]];
    for (file, options) in files.iter().flat_map(|file| options.map(|options| (file, options))) {
        let (expected, expected_lines) = verdict(&promtool, &[&["test", "rules"], options].concat(), file);
        let (found, found_lines) = verdict(ours, &[&["rules", "test"], options].concat(), file);
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        let worded_differently = WORDED_DIFFERENTLY.iter().any(|known| name.starts_with(known));
        if expected != found || (expected_lines != found_lines && !worded_differently) {
            let (expected, found) = (expected_lines.join("\n"), found_lines.join("\n"));
            wrong.push(format!("{name} {options:?}\npromtool:\n{expected}\npromlet:\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), files.len(), wrong.join("\n\n"));
}

/// Files with another verdict under vmalert-tool, by the reason.
const NOT_OF_VMALERT: [(&str, &[&str]); 9] = [
    (
        "alerts have the label `alertgroup`, also in the series ALERTS",
        &["a_gap_restarts_for", "alert_without_for_fires_at_once", "for_delays_firing"],
    ),
    (
        "a label of the series does not give way to that of the alert",
        &["alertname_of_the_series_is_replaced"],
    ),
    (
        "rules of a group do not see the samples of this evaluation",
        &["alerts_on_alerts", "chained_rules_see_the_same_evaluation"],
    ),
    (
        "functions of MetricsQL, such as round, keep the name of a metric",
        &["classic_histogram_quantile", "counter_rates"],
    ),
    (
        "lookback and steps of MetricsQL",
        &["samples_behind_the_last_evaluation_are_not_loaded", "subqueries_use_the_evaluation_interval"],
    ),
    ("a file of tests needs a rule", &["pattern_without_files"]),
    (
        "there are no native histograms",
        &[
            "histogram_alerts_have_the_histogram_as_value",
            "histogram_literals",
            "histograms_are_recorded",
            "histograms_of_later_samples_have_a_hint",
            "histograms_with_custom_buckets",
            "histograms_with_offsets_zero_and_negative_buckets",
        ],
    ),
    (
        "keys and templates of Prometheus that it does not know",
        &[
            "fuzzy_comparison_allows_the_last_bit",
            "query_offset_reads_the_past",
            "template_of_labels_and_values",
            "template_that_fails_still_fires",
        ],
    ),
    (
        "rules are not checked as promtool checks them",
        &["recording_rule_with_for", "template_that_does_not_parse", "template_with_an_unknown_function"],
    ),
];

#[test]
fn files_of_unit_tests_have_the_verdicts_of_vmalert_tool() {
    let programs = packages::latest_debian("victoria", &["victoria-metrics"]).join("usr/bin");
    let theirs = programs.join("vmalert-tool");
    let folder = tempfile::tempdir().expect("a folder");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rules");
    // vmalert-tool needs a group, and has its own name for tests of expressions.
    let group = "groups: [{name: any, rules: [{record: any, expr: vector(1)}]}]\n";
    for part in ["succeed", "fail", "shared"] {
        std::fs::create_dir(folder.path().join(part)).expect("made");
        std::fs::write(folder.path().join(part).join("any.yml"), group).expect("written");
        for file in std::fs::read_dir(fixtures.join(part)).expect("the fixtures are there") {
            let path = file.expect("readable").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let mut text = std::fs::read_to_string(&path).expect("readable");
            text = text.replace("promql_expr_test", "metricsql_expr_test");
            if name.ends_with(".test.yml") && !text.contains("rule_files:") {
                text.push_str("rule_files: [any.yml]\n");
            }
            std::fs::write(folder.path().join(part).join(name), text).expect("written");
        }
    }
    let (mut different, mut compared) = (Vec::new(), 0);
    for file in files() {
        let copy = folder.path().join(file.strip_prefix(&fixtures).expect("a fixture"));
        let flag = format!("--files={}", copy.display());
        let output = Command::new(&theirs).args(["unittest", "--disableAlertgroupLabel", &flag]).output();
        let output = output.expect("it runs");
        let expected = file.parent().is_some_and(|folder| folder.ends_with("succeed"));
        compared += 1;
        if output.status.success() != expected {
            let name = file.file_name().expect("a name").to_string_lossy().into_owned();
            different.push(name.trim_end_matches(".test.yml").to_owned());
        }
    }
    let mut known: Vec<&str> = NOT_OF_VMALERT.iter().flat_map(|(_, names)| *names).copied().collect();
    known.sort_unstable();
    different.sort();
    assert_eq!(different, known, "of {compared} files");
    println!("{} of {compared} files have the same verdict", compared - different.len());
}

/// The numbers of random rule files.
const SEEDS: std::ops::Range<u64> = 0..60;

#[test]
fn random_groups_raise_the_alerts_and_write_the_series_of_prometheus() {
    let promtool = packages::prometheus().join("promtool");
    let ours = Path::new(env!("CARGO_BIN_EXE_promlet"));
    let folder = tempfile::tempdir().expect("a folder");
    let mut wrong = Vec::new();
    for seed in SEEDS {
        let random = random_rules::random_rules(seed);
        let file = folder.path().join("rules.test.yml");
        std::fs::write(folder.path().join("rules.yml"), &random.rules).expect("written");
        std::fs::write(&file, &random.tests).expect("written");
        let (_, expected) = verdict(&promtool, &["test", "rules"], &file);
        let (_, found) = verdict(ours, &["rules", "test"], &file);
        assert!(!expected.is_empty(), "seed {seed}: {}\n{}", expected.join("\n"), random.rules);
        if expected != found {
            let differing = expected.iter().zip(&found).find(|(expected, found)| expected != found);
            wrong.push(format!("seed {seed}: {differing:#?}\n{}", random.rules));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
