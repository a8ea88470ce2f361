//! Converts the histograms, exemplars and start timestamps of a request to log records.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use crate::model::{Exemplar, Histogram, Labels, Refusal, Timestamp, WriteBatch, WriteExemplar};
use crate::tsdb::append::AcceptedTimes;
use crate::tsdb::report::AppendReport;
use crate::tsdb::side_data::record::{LogStart, RecordBody};
use crate::tsdb::store::OrgStore;
use crate::tsdb::wal::log::Draft;
use crate::tsdb::wal::record::RecordKind;

/// A record is closed once its body has this many bytes. One more part, of at most 250 kB, always
/// fits.
const BODY_BYTES_SOFT: usize = 256 << 10;

/// Log records of a request, and the series that they concern.
pub(in crate::tsdb) struct AdmittedRecords {
    /// Start timestamps. They are logged before their samples, so that a reader of the log knows
    /// them in time.
    pub(in crate::tsdb) starts: Vec<Draft>,
    pub(in crate::tsdb) others: Vec<Draft>,
    /// Ascending, without duplicates.
    pub(in crate::tsdb) series: Vec<u32>,
}

/// Returns whether a batch has anything for [`admit`].
pub(in crate::tsdb) fn concerns(batch: &WriteBatch<'_>) -> bool {
    !(batch.histograms.is_empty() && batch.exemplars.is_empty() && batch.starts.is_empty())
}

/// Checks times, and puts the samples that may be stored into records. `ids` has the id of each
/// series, or `None` for a refused one.
#[cold]
pub(in crate::tsdb) fn admit(
    store: &OrgStore,
    batch: &WriteBatch<'_>,
    ids: &[Option<u32>],
    window: &AcceptedTimes,
    report: &mut AppendReport,
    name: impl Fn(u32, &'static str, String) -> Refusal,
) -> AdmittedRecords {
    let id = |series: usize| ids.get(series).copied().flatten();
    let mut histograms: Vec<(u32, i64, &Histogram)> = Vec::with_capacity(batch.histograms.len());
    let mut refused = BTreeSet::new();
    for sample in &batch.histograms {
        // The samples of a refused series have been counted with it.
        let Some(series) = id(sample.series) else { continue };
        match window.code_of_histogram(sample) {
            Ok(histogram) => histograms.push((series, sample.at.as_ms(), histogram)),
            Err(code) => {
                refused.insert((series, sample.at));
                report.refuse(1, code, || name(series, code, window.reason_of_histogram(sample)));
            }
        }
    }
    // The sort is stable, so samples of one series keep the order of the sender.
    histograms.sort_by_key(|(series, ..)| *series);

    let mut exemplars = Vec::with_capacity(batch.exemplars.len());
    let mut dropped = 0;
    for written in &batch.exemplars {
        let admitted =
            id(written.series).and_then(|series| Some((series, exemplar(batch, written, window)?)));
        match admitted {
            Some(admitted) => exemplars.push(admitted),
            None => dropped += 1,
        }
    }
    store.side.counters.exemplars_dropped.fetch_add(dropped, Ordering::Relaxed);

    let mut starts = Vec::with_capacity(batch.starts.len());
    for written in &batch.starts {
        // Stored as the sender reported it: a start after its sample is returned by
        // `start_timestamp` and ignored elsewhere, and a start of 0 means that the start is no
        // longer known.
        if let (Some(series), None) = (id(written.series), window.code(written.at))
            && !refused.contains(&(series, written.at))
        {
            starts.push(LogStart { series, at_ms: written.at.as_ms(), start_ms: written.start.as_ms() });
        }
    }
    starts.sort_by_key(|start| (start.series, start.at_ms));

    let mut series: Vec<u32> = histograms.iter().map(|(series, ..)| *series).collect();
    series.extend(exemplars.iter().map(|(series, _)| *series));
    series.extend(starts.iter().map(|start| start.series));
    series.sort_unstable();
    series.dedup();

    let mut records = RecordBatcher { store, drafts: Vec::new() };
    let mut body = RecordBody::default();
    for start in starts {
        body.start(start);
        records.close_full(RecordKind::Starts, &mut body);
    }
    records.close(RecordKind::Starts, &mut body);
    let starts = std::mem::take(&mut records.drafts);
    for group in histograms.chunk_by(|a, b| a.0 == b.0) {
        // Few samples at a time, so that a body exceeds the bound only slightly.
        for part in group.chunks(4) {
            let samples: Vec<(i64, &Histogram)> = part.iter().map(|(_, at, h)| (*at, *h)).collect();
            if let Some((series, ..)) = part.first() {
                body.histograms(*series, &samples);
            }
            records.close_full(RecordKind::Histograms, &mut body);
        }
    }
    records.close(RecordKind::Histograms, &mut body);
    for (series, exemplar) in &exemplars {
        body.exemplar(*series, exemplar);
        records.close_full(RecordKind::Exemplars, &mut body);
    }
    records.close(RecordKind::Exemplars, &mut body);
    AdmittedRecords { starts, others: records.drafts, series }
}

/// Converts an exemplar. `None` where Prometheus would drop it as well: too long, or without a
/// usable time.
fn exemplar(batch: &WriteBatch<'_>, written: &WriteExemplar, window: &AcceptedTimes) -> Option<Exemplar> {
    let pairs = batch.exemplar_labels.get(written.labels.clone())?;
    let chars: usize = pairs.iter().map(|(name, value)| name.chars().count() + value.chars().count()).sum();
    if chars > Exemplar::LABEL_CHARS_MAX || window.code(written.at).is_some() {
        return None;
    }
    let named = pairs.iter().filter(|(name, _)| !name.is_empty());
    let labels = Labels::from_pairs(named.copied());
    Some(Exemplar { labels, value: written.value, at: Timestamp::from_ms(written.at.as_ms()) })
}

/// Collects the records of a request.
struct RecordBatcher<'s> {
    store: &'s OrgStore,
    drafts: Vec<Draft>,
}

impl RecordBatcher<'_> {
    /// Closes the record if its body has reached the bound.
    fn close_full(&mut self, kind: RecordKind, body: &mut RecordBody) {
        if body.bytes() >= BODY_BYTES_SOFT {
            self.close(kind, body);
        }
    }

    /// Closes the record, unless its body is empty.
    fn close(&mut self, kind: RecordKind, body: &mut RecordBody) {
        if !body.is_empty() {
            let (body, greatest_ms) = std::mem::take(body).finish();
            self.drafts.push(Draft { greatest_ms, ..Draft::new(self.store.org, kind, body) });
        }
    }
}
