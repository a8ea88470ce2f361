//! PromQL tests through the public API, with scripts in Prometheus' test language.

#[path = "differential/chance.rs"]
#[expect(dead_code, reason = "parts of it are used by the comparison with Prometheus only")]
mod chance;
#[path = "differential/expressions.rs"]
#[expect(dead_code, reason = "parts of it are used by the comparison with Prometheus only")]
mod expressions;
#[path = "promql/fuzz.rs"]
mod fuzz;
#[path = "promql/laws.rs"]
#[expect(clippy::panic, reason = "test helpers may panic like tests")]
mod laws;
#[path = "promql/limits.rs"]
#[expect(clippy::panic, reason = "test helpers may panic like tests")]
mod limits;
#[path = "promql/runner/mod.rs"]
mod runner;

use std::path::Path;

use promlet::promql::syntax::tree::{AggregateOp, ValueType};
use promlet::promql::{FUNCTIONS, Function};
use runner::Mode;

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/promql"))
}

fn scripts() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder()).expect("tests/promql is there");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let mut scripts: Vec<(String, String)> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "test"))
        .map(|path| {
            let name = path.file_stem().expect("has a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("readable"))
        })
        .collect();
    scripts.sort();
    scripts
}

#[test]
fn every_script_holds_with_names_removed_at_once() {
    check(false);
}

#[test]
fn every_script_holds_with_names_removed_at_the_end() {
    check(true);
}

fn check(delayed_name_removal: bool) {
    let mut wrong = Vec::new();
    let mut evaluations = 0;
    for (name, text) in scripts() {
        let mode = Mode { delayed_name_removal };
        match runner::run(&text, mode) {
            Ok(outcomes) => {
                assert!(!outcomes.is_empty(), "{name}.test evaluates nothing");
                evaluations += outcomes.len();
                for outcome in outcomes {
                    if let Err(what) = outcome.result {
                        wrong.push(format!("{name}.test:{}: {}\n  {what}", outcome.line, outcome.query));
                    }
                }
            }
            Err(e) => wrong.push(format!("{name}.test:{}: {}", e.line, e.what)),
        }
    }
    assert!(wrong.is_empty(), "{} of {evaluations}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_function_has_a_script_that_calls_it() {
    let scripts = scripts();
    for row in FUNCTIONS {
        let called = evaluations(&scripts).any(|query| calls(query, row.name));
        assert!(called, "no script in tests/promql calls {}", row.name);
    }
}

/// The kinds of values. The scripts called `kinds_of_...` have a metric of each kind with this
/// name.
const KINDS: [&str; 6] = ["ordinary", "missing", "ended", "nans", "infinite", "histogram"];

#[test]
fn every_function_of_series_and_every_aggregation_is_tested_with_every_kind_of_value() {
    let scripts: Vec<_> = scripts().into_iter().filter(|(name, _)| name.starts_with("kinds_of_")).collect();
    // A function of scalars only reads no series, so no kind applies to it.
    let reads_series =
        |row: &&Function| row.args.iter().any(|kind| matches!(kind, ValueType::Vector | ValueType::Matrix));
    let functions = FUNCTIONS.iter().filter(reads_series).map(|row| row.name);
    let mut missing = Vec::new();
    for name in functions.chain(AggregateOp::ALL.map(AggregateOp::as_str)) {
        for kind in KINDS {
            if !evaluations(&scripts).any(|query| calls(query, name) && names(query, kind)) {
                missing.push(format!("{name} of {kind}"));
            }
        }
    }
    assert!(missing.is_empty(), "no script has: {}", missing.join(", "));
}

#[test]
fn every_modifier_has_a_script() {
    let modifiers = [
        " offset ",
        " offset -",
        " @ ",
        "@ start()",
        "@ end()",
        ":]",
        " bool ",
        " on",
        " ignoring",
        " group_left",
        " group_right",
        " fill ",
        " fill_left ",
        " fill_right ",
        " anchored",
        " smoothed",
        " </ ",
        " >/ ",
        " atan2 ",
        " and ",
        " or ",
        " unless ",
        " by ",
        " without ",
    ];
    let scripts = scripts();
    for modifier in modifiers {
        assert!(evaluations(&scripts).any(|query| query.contains(modifier)), "no script has {modifier:?}");
    }
}

/// Every kind of warning and info, by a part of its text.
#[test]
fn every_kind_of_annotation_is_expected_with_its_position() {
    let kinds = [
        "ratio value should be between -1 and 1, got",
        "quantile value should be between 0 and 1, got",
        "bucket label \"le\" is missing or has a malformed value of",
        "encountered a mix of histograms and floats for metric name",
        "encountered a mix of histograms and floats for aggregation",
        "vector contains a mix of classic and native histograms",
        "this native histogram metric is not a counter",
        "this native histogram metric is not a gauge",
        "vector contains a mix of histograms with exponential and custom buckets schemas for metric name",
        "incompatible bucket layout encountered for binary operator",
        "sort is ineffective for range queries since results are always ordered by labels",
        "conflicting counter resets during histogram addition",
        "conflicting counter resets during histogram subtraction",
        "conflicting counter resets during histogram aggregation",
        "sample has start time that overlaps with previous sample timestamp",
        "metric might not be a counter, name does not end in",
        "input to histogram_quantile needed to be fixed for monotonicity",
        "incompatible sample types encountered for binary operator",
        "ignored histogram in min aggregation",
        "ignored histograms in a range containing both floats and histograms",
        "input to histogram_quantile has NaN observations, result is NaN",
        "input to histogram_quantile has NaN observations, result is skewed higher",
        "input to histogram_fraction has NaN observations",
        "mismatched custom buckets were reconciled during addition",
        "mismatched custom buckets were reconciled during subtraction",
        "mismatched custom buckets were reconciled during aggregation",
    ];
    let scripts = scripts();
    let expected = || {
        let lines = scripts.iter().flat_map(|(_, text)| text.lines().map(str::trim));
        lines.filter(|line| line.starts_with("expect warn") || line.starts_with("expect info"))
    };
    for kind in kinds {
        let expected_with_position = expected().any(|line| {
            let line = line.replace('\\', "");
            line.contains(kind) && line.contains(" (1:") && line.trim_end_matches('$').ends_with(')')
        });
        assert!(expected_with_position, "no script expects {kind:?} with its position");
    }
}

/// Returns the lines that evaluate an expression.
fn evaluations(scripts: &[(String, String)]) -> impl Iterator<Item = &str> {
    scripts.iter().flat_map(|(_, text)| text.lines().map(str::trim)).filter(|line| line.starts_with("eval"))
}

/// Returns whether the line calls the function or aggregation.
fn calls(line: &str, name: &str) -> bool {
    ["(", " by (", " without ("].iter().any(|open| {
        let mut positions =
            line.match_indices(&format!("{name}{open}")).map(|(at, _)| at).collect::<Vec<_>>();
        positions.retain(|at| !line[..*at].ends_with(is_word_char));
        !positions.is_empty()
    })
}

/// Returns whether the line names the metric.
fn names(line: &str, metric: &str) -> bool {
    let mut positions = line.match_indices(metric).map(|(at, _)| at);
    positions
        .any(|at| !line[..at].ends_with(is_word_char) && !line[at + metric.len()..].starts_with(is_word_char))
}

fn is_word_char(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}
