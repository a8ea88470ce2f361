//! PromQL against scripts of others: upstream's own, and expectations that a real Prometheus answered.
//!
//! They are not part of this repository: `PROMLET_SHARED` names the folder that holds `promql/` (default `../shared`).
//! Nothing is skipped silently: each file has the number of evaluations that must pass, and why the rest cannot yet.

#[path = "promql/runner/mod.rs"]
mod runner;

use std::path::PathBuf;

use runner::Foreign;

/// A file, how many of its evaluations must pass, and what the others need.
struct Floor {
    file: &'static str,
    passes: usize,
    lacks: &'static str,
}

const FLOORS: &[Floor] = &[
    Floor { file: "upstream/aggregators.test", passes: 0, lacks: "" },
    Floor { file: "upstream/at_modifier.test", passes: 0, lacks: "" },
    Floor { file: "upstream/duration_expression.test", passes: 0, lacks: "" },
    Floor { file: "upstream/extended_vectors.test", passes: 0, lacks: "" },
    Floor { file: "upstream/fill-modifier.test", passes: 0, lacks: "" },
    Floor { file: "upstream/functions.test", passes: 0, lacks: "" },
    Floor { file: "upstream/histograms.test", passes: 0, lacks: "" },
    Floor { file: "upstream/info.test", passes: 0, lacks: "" },
    Floor { file: "upstream/literals.test", passes: 0, lacks: "" },
    Floor { file: "upstream/native_histograms.test", passes: 0, lacks: "" },
    Floor { file: "upstream/operators.test", passes: 0, lacks: "" },
    Floor { file: "upstream/range_queries.test", passes: 0, lacks: "" },
    Floor { file: "upstream/start_timestamps.test", passes: 0, lacks: "" },
    Floor { file: "upstream/trig_functions.test", passes: 0, lacks: "" },
    Floor { file: "upstream/type_and_unit.test", passes: 0, lacks: "" },
    Floor { file: "golden-compliance.test", passes: 0, lacks: "" },
    Floor { file: "golden-random.test", passes: 0, lacks: "" },
];

#[expect(clippy::disallowed_methods, reason = "a test finds its foreign scripts by the environment")]
fn folder() -> PathBuf {
    let shared = std::env::var_os("PROMLET_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")),
        PathBuf::from,
    );
    shared.join("promql")
}

#[test]
fn scripts_of_others_pass_as_far_as_recorded() {
    let folder = folder();
    assert!(folder.is_dir(), "{} is no folder: set PROMLET_SHARED", folder.display());
    let mut short = Vec::new();
    for floor in FLOORS {
        let text = std::fs::read_to_string(folder.join(floor.file)).expect("the script is there");
        let outcomes = match runner::run(&text, Foreign::Skip) {
            Ok(outcomes) => outcomes,
            Err(e) => {
                short.push(format!("{}:{}: cannot be read: {}", floor.file, e.line, e.what));
                continue;
            }
        };
        let failed: Vec<_> = outcomes.iter().filter_map(|o| o.result.as_ref().err().map(|e| (o, e))).collect();
        let passes = outcomes.len() - failed.len();
        println!("{}: {passes} of {} pass; {}", floor.file, outcomes.len(), floor.lacks);
        for (outcome, what) in &failed {
            println!("  {}:{}: {}\n    {what}", floor.file, outcome.line, outcome.query);
        }
        if passes < floor.passes {
            short.push(format!("{}: {passes} pass, {} must", floor.file, floor.passes));
        }
    }
    assert!(short.is_empty(), "{}", short.join("\n"));
}
