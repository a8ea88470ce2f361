//! The queries, and whether two servers answer them alike.

use std::collections::BTreeMap;

use promlet::model::Timestamp;
use serde_json::Value as Json;

use super::harness::percent;

/// The relative difference that is allowed between two values.
const TOLERANCE: f64 = 1e-9;
/// The same for rates of VictoriaMetrics, which does not extrapolate: it divides by the whole
/// window and includes the sample before it.
const RATE_TOLERANCE: f64 = 0.1;
/// The time that range queries cover, and their step.
const RANGE_S: i64 = 1_800;
const STEP_S: i64 = 60;

pub(crate) struct Query {
    pub(crate) name: &'static str,
    request: Request,
}

enum Request {
    Instant(&'static str),
    Range(&'static str),
    /// A listing: its path and selector.
    Listing(&'static str, &'static str),
}

use Request::{Instant, Listing, Range};

const fn query(name: &'static str, request: Request) -> Query {
    Query { name, request }
}

pub(crate) const QUERIES: &[Query] = &[
    query("one series, range", Range("node_load1{instance=\"host-7\"}")),
    query("one series, now", Instant("node_load1{instance=\"host-7\"}")),
    query(
        "rate of one host by mode, range",
        Range("sum by (mode) (rate(node_cpu_seconds_total{instance=\"host-7\"}[5m]))"),
    ),
    query("sum of rates over all hosts, range", Range("sum by (mode) (rate(node_cpu_seconds_total[5m]))")),
    query("sum of rates over all hosts, now", Instant("sum by (mode) (rate(node_cpu_seconds_total[5m]))")),
    query("top five by rate, range", Range("topk(5, sum by (namespace) (rate(requests_total[5m])))")),
    query(
        "99th percentile of a namespace, range",
        Range(
            "histogram_quantile(0.99, sum by (le) (rate(request_duration_seconds_bucket\
             {namespace=\"namespace-3\"}[5m])))",
        ),
    ),
    query(
        "90th percentile by namespace, range",
        Range("histogram_quantile(0.9, sum by (namespace, le) (rate(request_duration_seconds_bucket[5m])))"),
    ),
    query(
        "join on a label, range",
        Range("sum by (zone) (node_memory_free_bytes * on (instance) group_left (zone) node_info)"),
    ),
    query(
        "sum by host, pattern on a label, now",
        Instant("sum by (instance) (node_filesystem_free_bytes{mountpoint=~\"/(var|home).*\"})"),
    ),
    query("count by a pattern of names, now", Instant("count by (__name__) ({__name__=~\"node_.+\"})")),
    query("mean over half an hour, range", Range("sum by (job) (avg_over_time(node_load1[30m]))")),
    query("counters of all hosts, now", Instant("node_cpu_seconds_total")),
    query("label names", Listing("labels", "")),
    query("values of a label", Listing("label/instance/values", "")),
    query("series of a namespace", Listing("series", "requests_total{namespace=\"namespace-3\"}")),
];

impl Query {
    /// Returns the path below `/api/v1`. No server may use the result of an earlier query.
    pub(crate) fn path(&self, end: Timestamp) -> String {
        let end = end.as_ms() / 1_000;
        let start = end - RANGE_S;
        match self.request {
            Instant(expr) => format!("query?nocache=1&query={}&time={end}", percent(expr)),
            Range(expr) => {
                format!("query_range?nocache=1&query={}&start={start}&end={end}&step={STEP_S}", percent(expr))
            }
            Listing(path, "") => format!("{path}?nocache=1&start={start}&end={end}"),
            Listing(path, selector) => {
                format!("{path}?nocache=1&start={start}&end={end}&match[]={}", percent(selector))
            }
        }
    }

    /// Returns the first difference between two responses, if there is one. `extrapolates` is false
    /// if one of the servers is VictoriaMetrics.
    pub(crate) fn difference(&self, ours: &Json, theirs: &Json, extrapolates: bool) -> Option<String> {
        let (Instant(expr) | Range(expr)) = self.request else {
            let (ours, theirs) = (listed(ours), listed(theirs));
            return (ours.is_empty() || ours != theirs)
                .then(|| format!("{} entries against {} or other entries", ours.len(), theirs.len()));
        };
        let is_loose = !extrapolates && expr.contains("rate(");
        let tolerance = if is_loose { RATE_TOLERANCE } else { TOLERANCE };
        let (ours, theirs) = (series(ours), series(theirs));
        if ours.is_empty() || ours.keys().ne(theirs.keys()) {
            let missing = theirs.keys().find(|labels| !ours.contains_key(*labels));
            let extra = ours.keys().find(|labels| !theirs.contains_key(*labels));
            return Some(format!(
                "{} series against {}; missing {missing:?}, extra {extra:?}",
                ours.len(),
                theirs.len()
            ));
        }
        ours.iter().zip(theirs.values()).find_map(|((labels, ours), theirs)| {
            if ours.len() != theirs.len() {
                return Some(format!("{labels}: {} points against {}", ours.len(), theirs.len()));
            }
            let differs = |((at, ours), (their_at, theirs)): &(&(f64, f64), &(f64, f64))| {
                let near = (ours - theirs).abs() <= tolerance * ours.abs().max(theirs.abs());
                (at - their_at).abs() > 1e-3 || !near
            };
            let found = ours.iter().zip(theirs).find(differs);
            found.map(|(ours, theirs)| format!("{labels}: {ours:?} against {theirs:?}"))
        })
    }
}

/// Returns the entries of a listing in order.
fn listed(response: &Json) -> Vec<String> {
    let mut all: Vec<String> =
        response["data"].as_array().into_iter().flatten().map(Json::to_string).collect();
    all.sort_unstable();
    all
}

/// Returns the points of each series by its labels.
fn series(response: &Json) -> BTreeMap<String, Vec<(f64, f64)>> {
    let point = |point: &Json| {
        let value = point[1].as_str().and_then(|text| text.parse().ok());
        (point[0].as_f64().expect("a time"), value.expect("a number"))
    };
    let result = response["data"]["result"].as_array().into_iter().flatten();
    let points = |one: &Json| match &one["values"] {
        Json::Array(points) => points.iter().map(point).collect(),
        _ => vec![point(&one["value"])],
    };
    result.map(|one| (one["metric"].to_string(), points(one))).collect()
}

/// Returns the value of an instant query of one series without labels, or 0 for an empty result.
pub(crate) fn single(response: &Json) -> f64 {
    series(response).values().next().map_or(0.0, |points| points[0].1)
}
