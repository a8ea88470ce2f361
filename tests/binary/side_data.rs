//! Side data for tests that kill: each step sends a native histogram with an exemplar, and a
//! description. [`check`] compares a stopped folder with what was sent.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use promlet::clock::Clock;
use promlet::entropy::Entropy;
use promlet::kv::{Control, ControlOptions, DataFolder};
use promlet::model::{
    Access, HistogramColumns, HistogramCounts, Labels, Matcher, OrgId, Pace, Sample, TimeRange, Timestamp,
};
use promlet::tsdb::{Home, Options, Tsdb};
use serde_json::json;

use crate::harness::{ORG, Server, field, request, varint};

const NAME: &str = "beside_native";
const HELP: &str = "counts its steps";
/// The number of exemplars that are kept for a series.
const RING: usize = 100;

fn label(name: &str, value: &str) -> Vec<u8> {
    let mut pair = Vec::new();
    field(&mut pair, 1, name.as_bytes());
    field(&mut pair, 2, value.as_bytes());
    pair
}

fn time(out: &mut Vec<u8>, number: u8, at: Timestamp) {
    out.push(number << 3);
    varint(out, at.as_ms().cast_unsigned());
}

fn double(out: &mut Vec<u8>, number: u8, value: f64) {
    out.push(number << 3 | 1);
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Adds a step to a remote write request: a histogram of `step + 1` observations, all of them
/// zeros.
pub(crate) fn add(request: &mut Vec<u8>, base: Timestamp, step: i64) {
    let at = base.plus_ms(step);
    let mut histogram = Vec::new();
    for number in [1, 6] {
        histogram.push(number << 3);
        varint(&mut histogram, step.cast_unsigned() + 1);
    }
    double(&mut histogram, 3, 0.5);
    double(&mut histogram, 5, 0.001);
    time(&mut histogram, 15, at);
    let mut exemplar = Vec::new();
    field(&mut exemplar, 1, &label("trace_id", &step.to_string()));
    double(&mut exemplar, 2, 0.5);
    time(&mut exemplar, 3, at);
    let mut series = Vec::new();
    field(&mut series, 1, &label("__name__", NAME));
    field(&mut series, 3, &exemplar);
    field(&mut series, 4, &histogram);
    field(request, 1, &series);
    // The metric is described as a gauge histogram.
    let mut described = vec![1 << 3, 4];
    field(&mut described, 2, NAME.as_bytes());
    field(&mut described, 4, HELP.as_bytes());
    field(request, 3, &described);
}

/// A step of a cycle in which retention drops a sample. The cycle sets a long retention, writes a
/// sample of 80 days ago, seals it, sets a retention of one day, and seals and merges, which
/// removes the expired sample. The retention clock begins on the day of the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CycleStep {
    Keep(u32),
    Write,
    Seal,
}

/// The number of steps in a cycle.
pub(crate) const STEPS: i64 = 5;

impl CycleStep {
    pub(crate) const fn of(n: i64) -> CycleStep {
        match n % STEPS {
            0 => CycleStep::Keep(90),
            1 => CycleStep::Write,
            3 => CycleStep::Keep(1),
            _ => CycleStep::Seal,
        }
    }
}

/// Performs step `n` and returns the status.
pub(crate) fn perform_step(server: &Server, cookie: &str, secret: &str, base: Timestamp, n: i64) -> u16 {
    let cookie = ("Cookie", cookie);
    match CycleStep::of(n) {
        CycleStep::Keep(days) => {
            let url = format!("{}/api/v1/orgs/{ORG}", server.url);
            let body = json!({ "settings": { "retention_days": days } }).to_string();
            let headers = [cookie, ("Content-Type", "application/json")];
            request("PATCH", &url, &headers, Some(body.as_bytes())).status
        }
        CycleStep::Write => {
            let old = Sample { at: base.plus_ms(n - 80 * 86_400_000), value: n as f64 };
            server.write(secret, &[(Labels::from_pairs([("__name__", "old")]), vec![old])]).status
        }
        CycleStep::Seal => server.post_json("/api/v1/admin/seal", &[cookie], &json!({})).status,
    }
}

/// Opens the stopped folder and compares: every acknowledged step, the newest exemplars and the
/// description are there, and nothing that was never sent. Returns the number of histograms.
pub(crate) fn check(
    dir: &Path,
    base: Timestamp,
    acknowledged: &BTreeSet<i64>,
    sent: impl Fn(i64) -> bool,
) -> usize {
    let (now, mut rng) = (Clock::System.now(), Entropy::seeded(1));
    let folder = DataFolder::open(dir, now, &mut rng).expect("opens");
    let options = ControlOptions { now, users_table: promlet::identity::USERS_TABLE };
    let (control, _) = Control::open(&folder, &options).expect("opens");
    let home = Home { dir, store: folder.store_id(), control: Arc::new(control) };
    let (tsdb, report) = Tsdb::open(home, Options::default(), &mut rng, now).expect("opens");
    assert_eq!((report.read_only, report.notes), (None, Vec::new()));
    let snapshot = tsdb.snapshot(&Access::whole(OrgId(1)));
    let found = snapshot.select(&[Matcher::equal("__name__", NAME)], TimeRange::ALL);
    assert_eq!(found.len(), 1, "the series is there");
    let mut columns = HistogramColumns::default();
    snapshot.read_histograms(found[0].id, TimeRange::ALL, &mut columns);
    let mut steps = BTreeSet::new();
    for (at, histogram) in columns.times.iter().zip(&columns.histograms) {
        let step = at - base.as_ms();
        let count = match histogram.counts() {
            HistogramCounts::Integer { count, .. } => *count,
            HistogramCounts::Float { .. } => 0,
        };
        assert!(sent(step) && count == step.cast_unsigned() + 1, "invented: {count} observations at {step}");
        steps.insert(step);
    }
    let lost: Vec<_> = acknowledged.difference(&steps).collect();
    assert!(lost.is_empty(), "{} acknowledged histograms are lost: {lost:?}", lost.len());
    let listed = snapshot
        .paced(&Pace::endless())
        .exemplars(&[&[]], TimeRange::ALL, usize::MAX)
        .expect("no deadline")
        .items;
    let traces: Vec<i64> =
        listed.iter().flat_map(|series| &series.exemplars).map(|one| one.at.as_ms() - base.as_ms()).collect();
    assert!(traces.is_sorted_by(|a, b| a < b) && traces.iter().all(|step| sent(*step)), "{traces:?}");
    let newest = acknowledged.iter().rev().take(RING / 2);
    let lost: Vec<_> = newest.filter(|step| !traces.contains(step)).collect();
    assert!(lost.is_empty(), "{} of the newest exemplars are lost: {lost:?}", lost.len());
    let known = snapshot.paced(&Pace::endless()).metadata(None, 9).expect("no deadline").items;
    assert!(known.iter().any(|known| &*known.name == NAME && &*known.help == HELP), "{known:?}");
    tsdb.close();
    columns.len()
}
