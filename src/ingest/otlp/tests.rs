//! Translates requests that an independent encoder writes in both encodings, and compares them with
//! the expected samples of the store.

mod json;
mod laws;
mod message;
mod refusals;
mod translation;

use self::message::Message;
use super::*;
use crate::model::{Histogram, HistogramCounts, is_stale};

fn both(request: &Message) -> Translated {
    let limits = DecodeLimits::default();
    let protobuf = decode(&request.protobuf, Encoding::Protobuf, &limits).expect("valid protobuf");
    let json = decode(&request.json_bytes(), Encoding::Json, &limits).expect("valid JSON");
    assert_eq!(format!("{protobuf:?}"), format!("{json:?}"), "both encodings give the same result");
    protobuf
}

/// Renders each series as a line: labels, then value, time and start in milliseconds, then
/// exemplars.
fn lines(translated: &Translated) -> Vec<String> {
    let batch = translated.batch.batch();
    let start_of = |index: usize, at| {
        let start = batch.starts.iter().find(|start| start.series == index && start.at == at);
        start.map_or(String::new(), |start| format!(" since {}", start.start.as_ms()))
    };
    let mut lines = Vec::new();
    for (index, series) in batch.series.iter().enumerate() {
        let mut pairs = Vec::new();
        (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels");
        pairs.sort();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let labels: Vec<String> =
            pairs.iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect();
        let mut line = labels.join(" ");
        for sample in &batch.samples[series.samples.clone()] {
            let value = if is_stale(sample.value) { "stale".to_owned() } else { sample.value.to_string() };
            line += &format!(" | {value} @{}{}", sample.at.as_ms(), start_of(index, sample.at));
        }
        for sample in batch.histograms.iter().filter(|sample| sample.series == index) {
            let histogram = sample.value.as_ref().expect("a histogram");
            line += &format!(
                " | {} @{}{}",
                render_histogram(histogram),
                sample.at.as_ms(),
                start_of(index, sample.at)
            );
        }
        for exemplar in batch.exemplars.iter().filter(|exemplar| exemplar.series == index) {
            let labels: Vec<String> = batch.exemplar_labels[exemplar.labels.clone()]
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            line += &format!(" # {} {} @{}", labels.join(" "), exemplar.value, exemplar.at.as_ms());
        }
        lines.push(line);
    }
    lines
}

fn render_histogram(histogram: &Histogram) -> String {
    if histogram.is_stale() {
        return "stale".to_owned();
    }
    let shape = histogram.shape();
    let HistogramCounts::Integer { count, zero, buckets } = histogram.counts() else {
        return "of floats".to_owned();
    };
    let spans = |spans: &[crate::model::BucketSpan]| {
        spans.iter().map(|span| format!("{}+{}", span.offset, span.length)).collect::<Vec<_>>().join(",")
    };
    format!(
        "schema {} count {count} sum {} zero {zero} to {:e} positive {} negative {} buckets {buckets:?}",
        shape.schema(),
        histogram.sum(),
        shape.zero_threshold(),
        spans(shape.positive()),
        spans(shape.negative()),
    )
}

/// Returns code, series and reason of each refusal.
fn refused(translated: &Translated) -> Vec<(&'static str, &str, &str)> {
    let refusals = translated.refusals.iter();
    refusals.map(|refusal| (refusal.code, refusal.series.as_str(), refusal.reason.as_str())).collect()
}
