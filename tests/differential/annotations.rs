//! Every kind of warning and info of Prometheus 3.5: both servers report the same text at the same
//! position.

use std::collections::BTreeSet;

use super::comparison::comparable;
use super::data::{BEGIN_MS, END_MS};
use super::servers::{EvalTimes, ServerPair};

/// A query, and a part of the annotation that it causes.
const ANNOTATIONS: [(&str, &str); 23] = [
    ("limit_ratio(1.5, temperature)", "ratio value should be between -1 and 1, got 1.5, capping to 1"),
    ("quantile(1.1, temperature)", "quantile value should be between 0 and 1, got 1.1"),
    ("quantile_over_time(-1, temperature[5m])", "quantile value should be between 0 and 1, got -1"),
    ("histogram_quantile(1e6 + 0.5, latency_seconds_bucket)", "got 1.0000005e+06"),
    ("histogram_quantile(0.5, latency_seconds_bucket)", "malformed value of \"much\""),
    (
        "1 + histogram_quantile(0.5, temperature)",
        "bucket label \"le\" is missing or has a malformed value of \"\"",
    ),
    ("rate(mixed[1h])", "encountered a mix of histograms and floats for metric name \"mixed\""),
    ("sum({__name__=~\"weight|depth\"})", "encountered a mix of histograms and floats for aggregation"),
    (
        "histogram_quantile(0.5, label_replace(latency_seconds_bucket, \"__name__\", \"x\", \"\", \"\") \
         or label_replace(size_bytes, \"__name__\", \"x\", \"\", \"\"))",
        "vector contains a mix of classic and native histograms",
    ),
    ("rate(depth[5m])", "this native histogram metric is not a counter: \"depth\""),
    ("  delta(size_bytes[5m])", "this native histogram metric is not a gauge: \"size_bytes\""),
    (
        "sum({__name__=~\"size_bytes|wait_seconds\"})",
        "a mix of histograms with exponential and custom buckets",
    ),
    ("size_bytes + on (job) wait_seconds", "incompatible bucket layout encountered for binary operator"),
    ("rate(temperature[5m])", "metric might not be a counter, name does not end in"),
    ("sum(\n  increase(level[5m])\n)", "metric might not be a counter, name does not end in"),
    (
        "histogram_quantile(1, sum without (job) (rate(latency_seconds_bucket[5m])))",
        "input to histogram_quantile needed to be fixed for monotonicity",
    ),
    ("size_bytes + on (job) weight", "incompatible sample types encountered for binary operator"),
    ("size_bytes > 1", "incompatible sample types encountered for binary operator"),
    ("min(size_bytes)", "ignored histogram in min aggregation"),
    ("stddev by (job) (depth)", "ignored histogram in stddev aggregation"),
    ("topk(2, depth)", "ignored histogram in topk aggregation"),
    ("quantile(0.5, depth)", "ignored histogram in quantile aggregation"),
    ("max_over_time(mixed[1h])", "ignored histograms in a range containing both floats and histograms"),
];

/// Returns the differences between the servers.
pub(super) fn compared(pair: &ServerPair) -> Vec<String> {
    let times = EvalTimes::From { start: BEGIN_MS + 600_000, end: END_MS, step: 60_000 };
    let mut wrong = Vec::new();
    for (query, expected) in ANNOTATIONS {
        let (theirs, ours) = (pair.prometheus(query, times), pair.promlet(query, times));
        let annotations = |body: &serde_json::Value| -> BTreeSet<String> {
            let kinds =
                ["warnings", "infos"].iter().flat_map(|kind| body[*kind].as_array().into_iter().flatten());
            kinds.filter_map(|text| text.as_str().map(comparable)).collect()
        };
        let (theirs, ours) = (annotations(&theirs.body), annotations(&ours.body));
        if theirs != ours || !ours.iter().any(|text| text.contains(expected)) {
            wrong.push(format!("{query}: wanted {expected:?}\n  theirs {theirs:?}\n  ours   {ours:?}"));
        }
    }
    wrong
}
