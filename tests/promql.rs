//! PromQL through its front door: scripts of our own, in Prometheus' test language.

#[path = "promql/laws.rs"]
#[expect(clippy::panic, reason = "helpers of tests give up as tests do")]
mod laws;
#[path = "promql/limits.rs"]
#[expect(clippy::panic, reason = "helpers of tests give up as tests do")]
mod limits;
#[path = "promql/runner/mod.rs"]
mod runner;

use std::path::Path;

use promlet::promql::FUNCTIONS;
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
        let call = format!("{}(", row.name);
        let called = scripts.iter().any(|(_, text)| {
            let lines = text.lines().map(str::trim).filter(|line| line.starts_with("eval"));
            lines.into_iter().any(|line| {
                let mut places = line.match_indices(&call).map(|(at, _)| at);
                places.any(|at| !line[..at].ends_with(|c: char| c == '_' || c.is_ascii_alphanumeric()))
            })
        });
        assert!(called, "no script in tests/promql calls {}", row.name);
    }
}
