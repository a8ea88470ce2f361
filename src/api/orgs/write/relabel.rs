//! Relabelling of a decoded batch before it is stored, in an agent.

use std::borrow::Cow;
use std::sync::Arc;

use crate::model::{
    BatchBuilder, HistogramSample, Refusal, WriteBatch, WriteExemplar, WriteSeries, WriteStart,
};
use crate::tsdb::Appending;

/// The refusals of one batch that are reported.
const REFUSALS_MAX: usize = 10;

/// The labels of a series, in the sender's order.
pub type LabelList<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// A change of the labels of a series: `false` drops the series.
type RelabelFn = dyn Fn(&mut LabelList<'_>) -> bool + Send + Sync;

/// The rules of an agent.
#[derive(Clone)]
pub struct Relabel(Arc<RelabelFn>);

impl std::fmt::Debug for Relabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Relabel")
    }
}

impl Relabel {
    /// Creates the rules from a function that changes the labels of one series, and returns whether
    /// the series is kept.
    pub fn by(change: impl Fn(&mut LabelList<'_>) -> bool + Send + Sync + 'static) -> Relabel {
        Relabel(Arc::new(change))
    }

    /// Changes the labels of each series of a batch. A series whose labels cannot be parsed is
    /// refused.
    pub(super) fn apply(&self, batch: &WriteBatch<'_>) -> Relabelled {
        let mut relabelled = Relabelled::default();
        let mut pairs = Vec::new();
        let mut labels = LabelList::new();
        for (place, series) in batch.series.iter().enumerate() {
            pairs.clear();
            let parsed = (batch.parse_labels)(series.raw_labels, &mut pairs);
            labels.clear();
            let texts = pairs.iter().map(|(name, value)| Some((text(name)?, text(value)?)));
            let refused = match parsed {
                Err(reason) => Some(("invalid_encoding", reason)),
                Ok(()) => {
                    labels.extend(texts.map_while(|pair| pair));
                    (labels.len() < pairs.len()).then_some(("invalid_utf8", "a label is not UTF-8"))
                }
            };
            let fate = match refused {
                Some((code, reason)) => {
                    relabelled.refuse(code, reason);
                    SeriesFate::Refused
                }
                None if (self.0)(&mut labels) => {
                    let pairs = labels.iter().map(|(name, value)| (&**name, &**value));
                    relabelled.builder.series_of(pairs, []);
                    SeriesFate::Kept(relabelled.builder.series_len() - 1)
                }
                None => SeriesFate::Dropped,
            };
            let samples = batch.samples.get(series.samples.clone()).unwrap_or_default().len() as u64;
            relabelled.count(fate, samples);
            debug_assert_eq!(relabelled.fates.len(), place);
            relabelled.fates.push(fate);
        }
        for histogram in &batch.histograms {
            let fate = relabelled.fate(histogram.series);
            relabelled.count(fate, 1);
            relabelled.dropped.histograms += u64::from(fate == SeriesFate::Dropped);
        }
        let dropped = |exemplar: &&WriteExemplar| relabelled.fate(exemplar.series) == SeriesFate::Dropped;
        relabelled.dropped.exemplars = batch.exemplars.iter().filter(dropped).count() as u64;
        relabelled
    }
}

fn text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    std::str::from_utf8(bytes).ok().map(Cow::Borrowed)
}

/// The outcome of relabelling a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeriesFate {
    /// The series has this place in the new batch.
    Kept(usize),
    Dropped,
    Refused,
}

/// The numbers of dropped items. `samples` includes the histograms.
#[derive(Clone, Copy, Debug, Default)]
struct DroppedCounts {
    samples: u64,
    histograms: u64,
    exemplars: u64,
}

/// The changed labels of a batch.
#[derive(Debug, Default)]
pub(super) struct Relabelled {
    builder: BatchBuilder,
    fates: Vec<SeriesFate>,
    dropped: DroppedCounts,
    refused: u64,
    refusals: Vec<Refusal>,
}

impl Relabelled {
    /// Returns `batch` with the changed labels.
    pub(super) fn batch<'s>(&'s self, batch: WriteBatch<'s>) -> WriteBatch<'s> {
        let kept = |series: usize| match self.fate(series) {
            SeriesFate::Kept(place) => Some(place),
            SeriesFate::Dropped | SeriesFate::Refused => None,
        };
        let changed = self.builder.batch();
        let mut samples = Vec::with_capacity(batch.samples.len());
        let mut series = Vec::with_capacity(changed.series.len());
        for (place, old) in batch.series.iter().enumerate() {
            let Some(new) = kept(place).and_then(|place| changed.series.get(place)) else { continue };
            let first = samples.len();
            samples.extend_from_slice(batch.samples.get(old.samples.clone()).unwrap_or_default());
            series.push(WriteSeries { raw_labels: new.raw_labels, samples: first..samples.len() });
        }
        let histograms = batch.histograms.into_iter();
        let exemplars = batch.exemplars.into_iter();
        let starts = batch.starts.into_iter();
        WriteBatch {
            series,
            samples,
            histograms: histograms
                .filter_map(|one| Some(HistogramSample { series: kept(one.series)?, ..one }))
                .collect(),
            exemplars: exemplars
                .filter_map(|one| Some(WriteExemplar { series: kept(one.series)?, ..one }))
                .collect(),
            starts: starts.filter_map(|one| Some(WriteStart { series: kept(one.series)?, ..one })).collect(),
            metadata: batch.metadata,
            exemplar_labels: batch.exemplar_labels,
            forced_labels: batch.forced_labels,
            encoding: changed.encoding,
            parse_labels: changed.parse_labels,
            is_labels: changed.is_labels,
        }
    }

    /// Adds the dropped and the refused samples to the report of the batch. To their sender,
    /// dropped samples count as stored.
    pub(super) fn report(self, appending: Appending) -> Appending {
        let DroppedCounts { samples, histograms, exemplars } = self.dropped;
        appending.with_dropped(samples, histograms, exemplars).with_unreadable(self.refused, self.refusals)
    }

    fn fate(&self, series: usize) -> SeriesFate {
        self.fates.get(series).copied().unwrap_or(SeriesFate::Refused)
    }

    fn count(&mut self, fate: SeriesFate, samples: u64) {
        match fate {
            SeriesFate::Kept(_) => {}
            SeriesFate::Dropped => self.dropped.samples += samples,
            SeriesFate::Refused => self.refused += samples,
        }
    }

    fn refuse(&mut self, code: &'static str, reason: &str) {
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push(Refusal { series: String::new(), code, reason: reason.to_owned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Exemplar, Labels, OrgId, Sample, Timestamp};
    use crate::tsdb::Tsdb;

    const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

    fn rules() -> Relabel {
        Relabel::by(|labels| {
            labels.retain(|(name, _)| name != "pod");
            labels.push((Cow::Borrowed("site"), Cow::Borrowed("b")));
            !labels.iter().any(|(_, value)| value == "debug")
        })
    }

    #[test]
    fn kept_series_keep_their_samples_exemplars_and_starts_under_changed_labels() {
        let mut builder = BatchBuilder::default();
        let at = |ms: i64, value: f64| Sample { at: NOW.plus_ms(ms), value };
        builder.series_of([("__name__", "debug"), ("pod", "1")], [at(0, 1.0), at(1, 2.0)]);
        builder.exemplar(Exemplar { labels: Labels::default(), value: 1.0, at: NOW });
        builder.series_of([("__name__", "up"), ("pod", "2")], [at(0, 3.0), at(1, 4.0)]);
        builder.exemplar(Exemplar { labels: Labels::default(), value: 2.0, at: NOW });
        builder.start(NOW, NOW.plus_ms(-5));
        let relabelled = rules().apply(&builder.batch());
        let batch = relabelled.batch(builder.batch());
        let mut pairs = Vec::new();
        (batch.parse_labels)(batch.series[0].raw_labels, &mut pairs).expect("labels");
        assert_eq!(pairs, [(&b"__name__"[..], &b"up"[..]), (b"site", b"b")]);
        assert_eq!(batch.series.len(), 1);
        assert_eq!(batch.samples[batch.series[0].samples.clone()], [at(0, 3.0), at(1, 4.0)]);
        assert_eq!(batch.samples.len(), 2, "samples of dropped series decide nothing");
        assert_eq!(batch.exemplars.iter().map(|one| (one.series, one.value)).collect::<Vec<_>>(), [(0, 2.0)]);
        assert_eq!(batch.starts[0].series, 0);
        let tsdb = Tsdb::scaffold();
        let appending = tsdb.prepare(OrgId(1), &batch, NOW).expect("prepared");
        let appending = relabelled.report(appending);
        let (sender, receiver) = std::sync::mpsc::channel();
        tsdb.commit_then(appending, move |done| drop(sender.send(done)));
        let report = receiver.recv().expect("answered").expect("stored").report();
        assert_eq!((report.stored, report.refused), (4, 0), "dropped samples count as stored");
    }

    #[test]
    fn a_batch_whose_series_are_all_dropped_is_a_success() {
        let mut builder = BatchBuilder::default();
        builder.series_of([("__name__", "debug")], [Sample { at: NOW, value: 1.0 }]);
        let relabelled = rules().apply(&builder.batch());
        assert!(relabelled.batch(builder.batch()).series.is_empty());
        assert_eq!(relabelled.dropped.samples, 1);
    }
}
