//! PromQL against foreign scripts: those of Prometheus, and expectations recorded from a real
//! server.
//!
//! They are not part of this repository: `PROMLET_SHARED` names the folder that holds `promql/`
//! (default `../shared`). No script is skipped silently: each failure is listed with its reason,
//! and the list can only shrink.

#[path = "promql/runner/mod.rs"]
#[expect(dead_code, reason = "stores that are asked by hand are tests/promql/fuzz.rs' alone")]
mod runner;
#[path = "peers/shared_folder.rs"]
mod shared_folder;

use std::collections::{BTreeMap, BTreeSet};

use runner::Mode;
use shared_folder::shared_folder;

/// The scripts, and the modes in which each runs: delayed name removal on, and also off where the
/// answers come from a server.
const SCRIPTS: [(&str, &[bool]); 17] = [
    ("upstream/aggregators.test", &[true]),
    ("upstream/at_modifier.test", &[true]),
    ("upstream/duration_expression.test", &[true]),
    ("upstream/extended_vectors.test", &[true]),
    ("upstream/fill-modifier.test", &[true]),
    ("upstream/functions.test", &[true]),
    ("upstream/histograms.test", &[true]),
    ("upstream/info.test", &[true]),
    ("upstream/literals.test", &[true]),
    ("upstream/native_histograms.test", &[true]),
    ("upstream/operators.test", &[true]),
    ("upstream/range_queries.test", &[true]),
    ("upstream/start_timestamps.test", &[true]),
    ("upstream/trig_functions.test", &[true]),
    ("upstream/type_and_unit.test", &[true]),
    ("golden-compliance.test", &[true, false]),
    ("golden-random.test", &[true, false]),
];

/// Known failures, one `file:line reason` a line. The list can only shrink: a listed evaluation
/// that passes fails the test as well.
const KNOWN: &str = include_str!("promql/known_failures.txt");

#[test]
fn scripts_of_others_pass_but_for_what_is_listed() {
    let folder = shared_folder("promql");
    let known = known();
    let mut seen = BTreeSet::new();
    let (mut wrong, mut evaluations) = (Vec::new(), 0);
    for (file, modes) in SCRIPTS {
        let text = std::fs::read_to_string(folder.join(file)).expect("the script is there");
        let mut failed = BTreeMap::new();
        for delayed_name_removal in modes {
            match runner::run(&text, Mode { delayed_name_removal: *delayed_name_removal }) {
                Ok(outcomes) => {
                    evaluations += outcomes.len();
                    assert!(!outcomes.is_empty(), "{file} evaluates nothing");
                    for outcome in outcomes {
                        seen.insert(format!("{file}:{}", outcome.line));
                        if let Err(what) = outcome.result {
                            failed.insert(outcome.line, format!("{}\n    {what}", outcome.query));
                        }
                    }
                }
                Err(e) => wrong.push(format!("{file}:{}: cannot be read: {}", e.line, e.what)),
            }
        }
        println!("{file}: {} fail", failed.len());
        for (line, what) in &failed {
            if !known.contains(&format!("{file}:{line}")) {
                wrong.push(format!("{file}:{line}: {what}"));
            }
        }
        let passes = |place: &&String| {
            place
                .strip_prefix(file)
                .and_then(|rest| rest.strip_prefix(':'))
                .is_some_and(|line| line.parse().is_ok_and(|line: usize| !failed.contains_key(&line)))
        };
        for place in known.iter().filter(passes) {
            wrong.push(format!("{place} passes: take it off the list of known failures"));
        }
    }
    for place in known.iter().filter(|place| !seen.contains(*place)) {
        wrong.push(format!("{place} is on the list of known failures, and no evaluation"));
    }
    println!("{evaluations} evaluations, {} known failures", known.len());
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// The places of known failures, each of which must say why.
fn known() -> BTreeSet<String> {
    let lines = KNOWN.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let places = lines.map(|line| {
        let (place, reason) = line.split_once(' ').unwrap_or((line, ""));
        assert!(!reason.trim().is_empty(), "{place} is listed without a reason");
        place.to_owned()
    });
    places.collect()
}
