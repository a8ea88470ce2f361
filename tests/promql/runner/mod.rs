//! Runs scripts in Prometheus' `load`/`eval` language over an in-memory store.
//!
//! Every instant query is evaluated again, pinned with `@` at other times, and as a range query.
//! All results must agree.

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

/// The mode of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    /// Upstream's scripts expect names to be removed at the end of a query; its server removes them
    /// at once.
    pub(crate) delayed_name_removal: bool,
}

/// The time at which samples are stored, the year 2100: no sample is in the future then.
const STORED_AT: Timestamp = Timestamp::from_s(4_102_444_800);

const ORG: OrgId = OrgId(1);

/// The outcome of one evaluation.
#[derive(Debug)]
pub(crate) struct ScriptOutcome {
    /// The line of the evaluation, counted from one.
    pub(crate) line: usize,
    /// The query.
    pub(crate) query: String,
    /// The difference, if there is one.
    pub(crate) result: Result<(), String>,
}

/// Stores the samples of a script that only loads.
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
pub(crate) fn run(text: &str, mode: Mode) -> Result<Vec<ScriptOutcome>, ScriptError> {
    let mut store = Tsdb::scaffold();
    let mut outcomes = Vec::new();
    for command in parse(text)? {
        match command {
            Command::Clear => store = Tsdb::scaffold(),
            Command::Load { line, interval_ms, series } => load(&store, line, interval_ms, series)?,
            Command::Eval(eval) => {
                let snapshot = store.snapshot(&Access::whole(ORG));
                let result = evaluate::check(&eval, &snapshot, mode);
                outcomes.push(ScriptOutcome { line: eval.line, query: eval.query, result });
            }
        }
    }
    Ok(outcomes)
}

fn load(store: &Tsdb, line: usize, interval_ms: i64, series: Vec<SeriesLine>) -> Result<(), ScriptError> {
    let mut batch = BatchBuilder::default();
    let script_error = |what: String| ScriptError { line, what };
    for line in series {
        let (samples, histograms) = samples(&line, interval_ms).map_err(script_error)?;
        batch.series(&line.labels, samples);
        batch.histograms(histograms);
        for (start, i) in line.starts.iter().zip(0i64..) {
            // Zero means unknown. It must be given explicitly, or the start timestamp before it
            // would continue.
            let at = Timestamp::from_ms(i * interval_ms);
            batch.start(at, start.map_or(Timestamp::from_ms(0), |offset| at.plus_ms(offset)));
        }
    }
    let report = store.append(ORG, &batch.batch(), STORED_AT).map_err(|e| script_error(e.to_string()))?;
    if report.refused > 0 {
        return Err(script_error(format!("the store refuses {:?}", report.refusals)));
    }
    Ok(())
}

/// The samples of a described series.
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
