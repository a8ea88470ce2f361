//! PromQL against scripts of others: upstream's own, and expectations that a real Prometheus answered.
//!
//! They are not part of this repository: `PROMLET_SHARED` names the folder that holds `promql/` (default `../shared`).
//! Nothing is skipped silently: each file has the number of evaluations that must pass, and why the rest cannot yet.

#[path = "promql/runner/mod.rs"]
mod runner;

use std::path::PathBuf;

use runner::Mode;

/// A file, how many of its evaluations must pass, and what the others need. Where that is nothing, all must.
struct Floor {
    file: &'static str,
    /// Whether names are removed at the end of the query.
    delayed: bool,
    passes: usize,
    lacks: &'static str,
}

const NOTHING: &str = "nothing";

const FLOORS: &[Floor] = &[
    Floor {
        file: "upstream/aggregators.test",
        delayed: true,
        passes: 114,
        lacks: "a label name that is not UTF-8",
    },
    Floor { file: "upstream/at_modifier.test", delayed: true, passes: 60, lacks: NOTHING },
    Floor {
        file: "upstream/duration_expression.test",
        delayed: true,
        passes: 14,
        lacks: "step() and range() inside durations",
    },
    Floor {
        file: "upstream/extended_vectors.test",
        delayed: true,
        passes: 20,
        lacks: "anchored and smoothed selectors",
    },
    Floor { file: "upstream/fill-modifier.test", delayed: true, passes: 34, lacks: NOTHING },
    Floor { file: "upstream/functions.test", delayed: true, passes: 303, lacks: NOTHING },
    Floor { file: "upstream/histograms.test", delayed: true, passes: 173, lacks: NOTHING },
    Floor { file: "upstream/info.test", delayed: true, passes: 1, lacks: "info()" },
    Floor { file: "upstream/literals.test", delayed: true, passes: 25, lacks: NOTHING },
    Floor { file: "upstream/native_histograms.test", delayed: true, passes: 256, lacks: "trimming" },
    Floor { file: "upstream/operators.test", delayed: true, passes: 167, lacks: NOTHING },
    Floor { file: "upstream/range_queries.test", delayed: true, passes: 12, lacks: NOTHING },
    Floor { file: "upstream/start_timestamps.test", delayed: true, passes: 1, lacks: "start timestamps" },
    Floor { file: "upstream/trig_functions.test", delayed: true, passes: 19, lacks: NOTHING },
    Floor { file: "upstream/type_and_unit.test", delayed: true, passes: 58, lacks: NOTHING },
    Floor { file: "golden-compliance.test", delayed: true, passes: 441, lacks: NOTHING },
    Floor { file: "golden-compliance.test", delayed: false, passes: 441, lacks: NOTHING },
    Floor { file: "golden-random.test", delayed: true, passes: 498, lacks: NOTHING },
    Floor { file: "golden-random.test", delayed: false, passes: 498, lacks: NOTHING },
];

#[expect(clippy::disallowed_methods, reason = "a test finds its foreign scripts by the environment")]
fn folder() -> PathBuf {
    let shared = std::env::var_os("PROMLET_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")), PathBuf::from);
    shared.join("promql")
}

#[test]
fn scripts_of_others_pass_as_far_as_recorded() {
    let folder = folder();
    assert!(folder.is_dir(), "{} is no folder: set PROMLET_SHARED", folder.display());
    let mut short = Vec::new();
    for floor in FLOORS {
        let text = std::fs::read_to_string(folder.join(floor.file)).expect("the script is there");
        let outcomes =
            match runner::run(&text, Mode { leaves_out: true, delayed_name_removal: floor.delayed }) {
                Ok(outcomes) => outcomes,
                Err(e) => {
                    short.push(format!("{}:{}: cannot be read: {}", floor.file, e.line, e.what));
                    continue;
                }
            };
        let failed: Vec<_> =
            outcomes.iter().filter_map(|o| o.result.as_ref().err().map(|e| (o, e))).collect();
        let passes = outcomes.len() - failed.len();
        println!("{}: {passes} of {} pass, the rest lacks: {}", floor.file, outcomes.len(), floor.lacks);
        for (outcome, what) in &failed {
            println!("  {}:{}: {}\n    {what}", floor.file, outcome.line, outcome.query);
        }
        if floor.lacks == NOTHING && !failed.is_empty() {
            short.push(format!("{}: {} fail, none may", floor.file, failed.len()));
        }
        if passes < floor.passes {
            short.push(format!("{}: {passes} pass, {} must", floor.file, floor.passes));
        }
    }
    assert!(short.is_empty(), "{}", short.join("\n"));
}
