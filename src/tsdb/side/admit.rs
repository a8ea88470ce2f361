//! From the histograms, exemplars and start timestamps of a request to log records.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::record::{Body, LogStart};
use crate::model::{Exemplar, Histogram, Labels, Refusal, Timestamp, WriteBatch, WriteExemplar};
use crate::tsdb::append::Window;
use crate::tsdb::report::AppendReport;
use crate::tsdb::store::OrgStore;
use crate::tsdb::wal::log::Draft;
use crate::tsdb::wal::record::RecordKind;

/// A record is closed once its body has so many bytes; one more piece, at most 250 kB, fits in any case.
const BODY_BYTES_SOFT: usize = 256 << 10;

/// Records that are due, and the series that they are about.
pub(in crate::tsdb) struct Admitted {
    pub(in crate::tsdb) drafts: Vec<Draft>,
    /// Ascending, each once.
    pub(in crate::tsdb) series: Vec<u32>,
}

/// Whether a batch has anything for [`admit`].
pub(in crate::tsdb) fn concerns(batch: &WriteBatch<'_>) -> bool {
    !(batch.histograms.is_empty() && batch.exemplars.is_empty() && batch.starts.is_empty())
}

/// Checks times, and puts what may be stored into records. `ids`: the series' ids, none where the series is refused.
#[cold]
pub(in crate::tsdb) fn admit(
    store: &OrgStore,
    batch: &WriteBatch<'_>,
    ids: &[Option<u32>],
    window: &Window,
    report: &mut AppendReport,
    name: impl Fn(u32, &'static str, String) -> Refusal,
) -> Admitted {
    let id = |series: usize| ids.get(series).copied().flatten();
    let mut histograms: Vec<(u32, i64, &Histogram)> = Vec::with_capacity(batch.histograms.len());
    let mut refused = BTreeSet::new();
    for sample in &batch.histograms {
        // A series that was refused has been counted with all its samples.
        let Some(series) = id(sample.series) else { continue };
        match window.code_of_histogram(sample) {
            Ok(histogram) => histograms.push((series, sample.at.as_ms(), histogram)),
            Err(code) => {
                refused.insert((series, sample.at));
                report.refuse(1, code, || name(series, code, window.reason_of_histogram(sample)));
            }
        }
    }
    // Stable: samples of one series keep their sender's order.
    histograms.sort_by_key(|(series, ..)| *series);

    let mut exemplars = Vec::with_capacity(batch.exemplars.len());
    let mut dropped = 0;
    for said in &batch.exemplars {
        let kept = id(said.series).and_then(|series| Some((series, exemplar(batch, said, window)?)));
        match kept {
            Some(kept) => exemplars.push(kept),
            None => dropped += 1,
        }
    }
    store.side.counters.exemplars_dropped.fetch_add(dropped, Ordering::Relaxed);

    let mut starts = Vec::with_capacity(batch.starts.len());
    for said in &batch.starts {
        // As it was said: one after its sample is told by `start_timestamp` and believed by nothing else, one of 0 says
        // that none is known any more.
        if let (Some(series), None) = (id(said.series), window.code(said.at))
            && !refused.contains(&(series, said.at))
        {
            starts.push(LogStart { series, at_ms: said.at.as_ms(), start_ms: said.start.as_ms() });
        }
    }
    starts.sort_by_key(|start| (start.series, start.at_ms));

    let mut series: Vec<u32> = histograms.iter().map(|(series, ..)| *series).collect();
    series.extend(exemplars.iter().map(|(series, _)| *series));
    series.extend(starts.iter().map(|start| start.series));
    series.sort_unstable();
    series.dedup();

    let mut records = Records { store, drafts: Vec::new() };
    let mut body = Body::default();
    for group in histograms.chunk_by(|a, b| a.0 == b.0) {
        // Few enough that one call never goes far beyond the bound.
        for piece in group.chunks(4) {
            let samples: Vec<(i64, &Histogram)> = piece.iter().map(|(_, at, h)| (*at, *h)).collect();
            if let Some((series, ..)) = piece.first() {
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
    for start in starts {
        body.start(start);
        records.close_full(RecordKind::Starts, &mut body);
    }
    records.close(RecordKind::Starts, &mut body);
    Admitted { drafts: records.drafts, series }
}

/// An exemplar as it is kept; none where Prometheus would keep none either: too long, of no usable time.
fn exemplar(batch: &WriteBatch<'_>, said: &WriteExemplar, window: &Window) -> Option<Exemplar> {
    let pairs = batch.exemplar_labels.get(said.labels.clone())?;
    let chars: usize = pairs.iter().map(|(name, value)| name.chars().count() + value.chars().count()).sum();
    if chars > Exemplar::LABEL_CHARS_MAX || window.code(said.at).is_some() {
        return None;
    }
    let named = pairs.iter().filter(|(name, _)| !name.is_empty());
    let labels = Labels::from_pairs(named.copied());
    Some(Exemplar { labels, value: said.value, at: Timestamp::from_ms(said.at.as_ms()) })
}

struct Records<'s> {
    store: &'s OrgStore,
    drafts: Vec<Draft>,
}

impl Records<'_> {
    fn close_full(&mut self, kind: RecordKind, body: &mut Body) {
        if body.bytes() >= BODY_BYTES_SOFT {
            self.close(kind, body);
        }
    }

    fn close(&mut self, kind: RecordKind, body: &mut Body) {
        if !body.is_empty() {
            let (body, greatest_ms) = std::mem::take(body).finish();
            self.drafts.push(Draft { greatest_ms, ..Draft::new(self.store.org, kind, body) });
        }
    }
}
