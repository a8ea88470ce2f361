//! The samples of a test after its evaluations, as promtool prints them with `--debug`.

use super::expression::labels_text;
use crate::promql::MatrixSeries;

/// Returns each series with its samples, a line each: the numbers, then the histograms.
pub(super) fn series_dump(series: &[MatrixSeries]) -> String {
    let texts: Vec<String> = series.iter().map(series_text).collect();
    texts.join("\n")
}

fn series_text(series: &MatrixSeries) -> String {
    let labels = labels_text(series.labels.iter().map(|label| (label.name, label.value)));
    let numbers = series.samples.iter().map(|s| format!("{} @[{}]", plain(s.value), s.at.as_ms()));
    let histograms = series.histograms.iter().map(|h| format!("{} @[{}]", h.value, h.at.as_ms()));
    let lines: Vec<String> = numbers.chain(histograms).collect();
    format!("{labels} =>\n{}", lines.join("\n"))
}

/// Returns a number without an exponent.
fn plain(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string().replace("inf", "Inf") }
}
