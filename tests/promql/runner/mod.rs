//! Runs scripts in Prometheus' `load`/`eval` language over an in-memory store: floats only, histogram items are told.
//!
//! Every instant evaluation runs again pinned with `@` at other times, and again as a range query; all must agree.

mod evaluate;
mod expect;
mod script;
mod series;

use promlet::model::{Access, BatchBuilder, OrgId, Sample, Timestamp};
use promlet::tsdb::Tsdb;

use script::{Command, ScriptError, parse};
use series::Item;

/// What a script may contain that is left out rather than refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Our own scripts: a histogram is an error of the script.
    Refuse,
    /// Upstream's scripts: series with histograms are left out, evaluations that need them fail and are counted.
    #[cfg_attr(not(feature = "peers"), expect(dead_code, reason = "only the peers tier reads foreign scripts"))]
    Skip,
}

/// How one evaluation went.
#[derive(Debug)]
pub struct Outcome {
    /// The line it stands on, from one.
    pub line: usize,
    /// Its query.
    pub query: String,
    /// What was wrong.
    pub result: Result<(), String>,
}

/// Runs a whole script.
pub fn run(text: &str, foreign: Foreign) -> Result<Vec<Outcome>, ScriptError> {
    let org = OrgId(1);
    let mut store = Tsdb::scaffold();
    let mut outcomes = Vec::new();
    for command in parse(text, foreign)? {
        match command {
            Command::Clear => store = Tsdb::scaffold(),
            Command::Load { interval_ms, series } => {
                let mut batch = BatchBuilder::default();
                for line in series {
                    let samples = line.items.iter().zip(0i64..).filter_map(|(item, i)| match item {
                        Item::Value(value) => {
                            Some(Sample { at: Timestamp::from_ms(i * interval_ms), value: *value })
                        }
                        Item::Missing | Item::Histogram => None,
                    });
                    batch.series(&line.labels, samples);
                }
                store.append(org, &batch.batch(), Timestamp::from_ms(0)).map_err(|e| ScriptError {
                    line: 0,
                    what: e.to_string(),
                })?;
            }
            Command::Eval(eval) => {
                let snapshot = store.snapshot(&Access::whole(org));
                let result = evaluate::check(&eval, &snapshot);
                outcomes.push(Outcome { line: eval.line, query: eval.query, result });
            }
        }
    }
    Ok(outcomes)
}
