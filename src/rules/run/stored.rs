//! Samples of single series, as the store has them.

use crate::model::{HistogramColumns, LabelRef, Labels, MatchOp, Matcher, TimeRange};
use crate::tsdb::{SampleColumns, Snapshot};

/// Returns the samples of the series with exactly these labels in a range, staleness markers among
/// them.
pub(in crate::rules) fn stored_samples(
    snapshot: &Snapshot,
    labels: &Labels,
    range: TimeRange,
) -> (SampleColumns, HistogramColumns) {
    let equal = |label: LabelRef<'_>| Matcher::new(label.name, MatchOp::Equal, label.value).ok();
    let matchers: Vec<Matcher> = labels.iter().filter_map(equal).collect();
    let (mut columns, mut histograms) = (SampleColumns::default(), HistogramColumns::default());
    let found = snapshot.select(&matchers, range);
    if let Some(series) = found.iter().find(|series| series.labels == *labels) {
        snapshot.read_both(series.id, range, range.start, &mut columns, &mut histograms);
    }
    (columns, histograms)
}
