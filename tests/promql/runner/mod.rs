//! Runs scripts in Prometheus' `load`/`eval` language over an in-memory store.
//!
//! Every instant evaluation runs again pinned with `@` at other times, and again as a range query; all must agree.

mod classic;
mod evaluate;
mod expect;
mod native;
mod script;
mod series;

use promlet::model::{Access, BatchBuilder, Histogram, OrgId, Sample, Timestamp, stale_nan};
use promlet::tsdb::Tsdb;

use script::{Command, ScriptError, parse};
use series::{Item, SeriesLine};

/// How a script is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    /// Upstream's scripts expect names to be removed at the end of a query; its server removes them at once.
    pub(crate) delayed_name_removal: bool,
}

/// When scripts are stored: long after their samples, none of which is in the future then. The year 2100.
const LATE: Timestamp = Timestamp::from_s(4_102_444_800);

const ORG: OrgId = OrgId(1);

/// How one evaluation went.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The line it stands on, from one.
    pub(crate) line: usize,
    /// Its query.
    pub(crate) query: String,
    /// What was wrong.
    pub(crate) result: Result<(), String>,
}

/// What a script loads, which does nothing else.
pub(crate) fn store(text: &str) -> Result<promlet::tsdb::Snapshot, ScriptError> {
    let store = Tsdb::scaffold();
    for command in parse(text)? {
        if let Command::Load { line, interval_ms, series } = command {
            load(&store, line, interval_ms, series)?;
        }
    }
    Ok(store.snapshot(&Access::whole(ORG)))
}

/// Runs a whole script.
pub(crate) fn run(text: &str, mode: Mode) -> Result<Vec<Outcome>, ScriptError> {
    let mut store = Tsdb::scaffold();
    let mut outcomes = Vec::new();
    for command in parse(text)? {
        match command {
            Command::Clear => store = Tsdb::scaffold(),
            Command::Load { line, interval_ms, series } => load(&store, line, interval_ms, series)?,
            Command::Eval(eval) => {
                let snapshot = store.snapshot(&Access::whole(ORG));
                let result = evaluate::check(&eval, &snapshot, mode);
                outcomes.push(Outcome { line: eval.line, query: eval.query, result });
            }
        }
    }
    Ok(outcomes)
}

fn load(store: &Tsdb, line: usize, interval_ms: i64, series: Vec<SeriesLine>) -> Result<(), ScriptError> {
    let mut batch = BatchBuilder::default();
    let broken = |what: String| ScriptError { line, what };
    for line in series {
        let (samples, histograms) = samples(&line, interval_ms).map_err(broken)?;
        batch.series(&line.labels, samples);
        batch.histograms(histograms);
        for (start, i) in line.starts.iter().zip(0i64..) {
            // Zero is unknown; it has to be said, or the start before would go on.
            let at = Timestamp::from_ms(i * interval_ms);
            batch.start(at, start.map_or(Timestamp::from_ms(0), |offset| at.plus_ms(offset)));
        }
    }
    let report = store.append(ORG, &batch.batch(), LATE).map_err(|e| broken(e.to_string()))?;
    if report.refused > 0 {
        return Err(broken(format!("the store refuses {:?}", report.refusals)));
    }
    Ok(())
}

/// What a described series is made of.
type Described = (Vec<Sample>, Vec<(Timestamp, Histogram)>);

fn samples(line: &SeriesLine, interval_ms: i64) -> Result<Described, String> {
    let (mut samples, mut histograms) = (Vec::new(), Vec::new());
    let mut last_is_histogram = false;
    for (item, i) in line.items.iter().zip(0i64..) {
        let at = Timestamp::from_ms(i * interval_ms);
        match item {
            Item::Missing => {}
            Item::Value(value) => {
                last_is_histogram = false;
                samples.push(Sample { at, value: *value });
            }
            Item::Histogram(literal) => {
                last_is_histogram = true;
                histograms.push((at, literal.stored()?));
            }
            Item::Stale if last_is_histogram => histograms.push((at, Histogram::stale())),
            Item::Stale => samples.push(Sample { at, value: stale_nan() }),
        }
    }
    Ok((samples, histograms))
}
