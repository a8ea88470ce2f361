//! Writes the closed samples of a head to segments.
//!
//! A seal makes one segment of the samples in time and, if there are late samples, one of those. A
//! span of more than two hours, as after a backfill, is cut at UTC days, so that retention and
//! reads by time use only the segments that they need. A span of years is cut more coarsely, so
//! that a seal has a bounded number of files. Only a few files are written at a time; further
//! passes over the head write the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::SealError;
use crate::clock::Stopwatch;
use crate::kv::with_sources;
use crate::model::{Histogram, HistogramColumns, OrgId, StoreId};
use crate::tsdb::append::imported::ImportedSamples;
use crate::tsdb::options::Rest;
use crate::tsdb::report::SampleColumns;
use crate::tsdb::segment::{HISTOGRAMS, LATE, NewSegment, SegmentMeta, SegmentWriteError, SegmentWriter};
use crate::tsdb::side_data::late_starts::LateStarts;
use crate::tsdb::side_data::sealed;
use crate::tsdb::store::OrgStore;

/// The longest span that is not cut: a window, and the next one that waited.
const WHOLE_MS: i64 = 2 * 3_600_000;
const DAY_MS: i64 = 24 * 3_600_000;
/// The limit of partitions of late samples, and of others. One change of the list has room for
/// twice this number.
const PARTITIONS_MAX: i64 = 31;
/// The number of segments that are written at a time.
const OPEN_MAX: usize = 8;
/// The number of series whose samples are prefetched together. The samples of half an hour take 30
/// kB, those of a day at most a few times the cache.
const TOUCHED: usize = 32;
/// The working time between two pauses.
const WORK: Duration = Duration::from_millis(20);

/// The window of a seal.
pub(super) struct SealWindow<'t> {
    /// Samples before this are late, because that time was sealed earlier.
    pub(super) since: i64,
    /// The exclusive end.
    pub(super) until: i64,
    pub(super) first_log_seq: u64,
    pub(super) last_log_seq: u64,
    /// Samples of an import, all before the end. They are written with those of the head.
    pub(super) imported: Option<&'t ImportedSamples>,
}

impl SealWindow<'_> {
    /// Returns the time assigned to data without a time of its own: at most that of the newest
    /// sample, from which ages count.
    fn end(&self, store: &OrgStore) -> i64 {
        let last = self.until - 1;
        store.usage.newest().map_or(last, |newest| newest.as_ms().min(last))
    }
}

/// The rate limit of a seal.
pub(super) enum SealThrottle<'t> {
    Full,
    /// Half of one core, unless a thread waits for the seal.
    HalfCore {
        rest: &'t Rest,
        /// The number of threads that wait.
        waiting: &'t AtomicU32,
    },
}

impl SealThrottle<'_> {
    fn rest(&self, watch: &mut Stopwatch) {
        if let SealThrottle::HalfCore { rest, waiting } = self
            && watch.elapsed() >= WORK
        {
            if waiting.load(Ordering::Relaxed) == 0 {
                rest.take(watch.elapsed());
            }
            *watch = Stopwatch::start();
        }
    }
}

/// The partition of a sample. Each partition has its own segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Partition {
    late: bool,
    number: i64,
}

/// The partitioning of late samples, or of others.
struct CutWidth {
    /// The width of a partition in ms; none: one partition.
    width: Option<i64>,
}

impl CutWidth {
    fn of(first: i64, last: i64) -> CutWidth {
        let span = last.saturating_sub(first);
        if span <= WHOLE_MS {
            return CutWidth { width: None };
        }
        // The range may touch one partition more than it has widths.
        let days = (span / DAY_MS / (PARTITIONS_MAX - 1)).saturating_add(1);
        CutWidth { width: Some(days.saturating_mul(DAY_MS)) }
    }

    fn number(&self, at_ms: i64) -> i64 {
        self.width.map_or(0, |width| at_ms.div_euclid(width))
    }
}

/// The partitioning of all samples of a seal.
struct CutWidths {
    since: i64,
    late: CutWidth,
    main: CutWidth,
}

impl CutWidths {
    fn partition_of(&self, at_ms: i64) -> Partition {
        let late = at_ms < self.since;
        let cut = if late { &self.late } else { &self.main };
        Partition { late, number: cut.number(at_ms) }
    }
}

/// Writes all segments of a window. `written` gets the finished ones even on failure.
pub(super) fn write(
    store: &OrgStore,
    dir: &Path,
    id: StoreId,
    window: &SealWindow<'_>,
    throttle: &SealThrottle<'_>,
    written: &mut Vec<SegmentMeta>,
) -> Result<(), SealError> {
    if let Some(least) = store.head.least_ms().filter(|least| *least < window.until) {
        let output = SegmentOutput { dir, id, content: SegmentContent::Head };
        write_kind(store, output, window, least, throttle, written)?;
    }
    // If samples have the same time, that of the segment with the greater number wins.
    if let Some((imported, (least, _))) = window.imported.and_then(|it| Some((it, it.span()?))) {
        let output = SegmentOutput { dir, id, content: SegmentContent::Import(imported) };
        write_kind(store, output, window, least, throttle, written)?;
    }
    let least = store.side.extent().map_or(window.until, |(least, _)| least);
    if store.side.has_closed() {
        store.side.note_end(window.end(store));
        let output = SegmentOutput { dir, id, content: SegmentContent::SideData };
        write_kind(store, output, window, least.min(window.until - 1), throttle, written)?;
    }
    Ok(())
}

/// The place and content of new segments.
#[derive(Clone, Copy)]
struct SegmentOutput<'t> {
    dir: &'t Path,
    id: StoreId,
    content: SegmentContent<'t>,
}

/// The samples that segments are made of.
#[derive(Clone, Copy)]
enum SegmentContent<'t> {
    /// The floats of the head.
    Head,
    /// Histograms, start timestamps and exemplars.
    SideData,
    /// The floats of an import.
    Import(&'t ImportedSamples),
}

/// Writes either the floats or the side data.
fn write_kind(
    store: &OrgStore,
    output: SegmentOutput<'_>,
    window: &SealWindow<'_>,
    least: i64,
    throttle: &SealThrottle<'_>,
    written: &mut Vec<SegmentMeta>,
) -> Result<(), SealError> {
    let last = window.until - 1;
    let cuts = CutWidths {
        since: window.since,
        late: CutWidth::of(least, last.min(window.since.saturating_sub(1))),
        main: CutWidth::of(least.max(window.since), last),
    };
    let mut selected = None;
    loop {
        let mut pass = Pass {
            store,
            output,
            window,
            cuts: &cuts,
            selected,
            open: BTreeMap::new(),
            later: BTreeSet::new(),
            numbers: Vec::new(),
        };
        let run = match output.content {
            SegmentContent::Head => pass.run_head(throttle),
            SegmentContent::SideData => pass.run_side_data(throttle),
            SegmentContent::Import(imported) => pass.run_import(imported),
        };
        let later = match run {
            Ok(()) => pass.finish(written)?,
            Err(e) => {
                pass.abandon(written);
                return Err(e);
            }
        };
        if later.is_empty() {
            return Ok(());
        }
        selected = Some(later);
    }
}

/// One pass over the head.
struct Pass<'t> {
    store: &'t OrgStore,
    output: SegmentOutput<'t>,
    window: &'t SealWindow<'t>,
    cuts: &'t CutWidths,
    /// The partitions to write; none: all.
    selected: Option<BTreeSet<Partition>>,
    open: BTreeMap<Partition, OpenSegment>,
    /// Partitions that the pass met but left for another pass.
    later: BTreeSet<Partition>,
    /// The value numbers of the current row.
    numbers: Vec<u32>,
}

/// A segment that is being written.
struct OpenSegment {
    writer: SegmentWriter,
    family: Option<usize>,
    /// The writer's value numbers, by codes of label name and value.
    numbers: Vec<Vec<u32>>,
    /// The full segments of the same partition.
    finished: Vec<SegmentMeta>,
}

/// The mark of a value without a number.
const UNKNOWN: u32 = u32::MAX;

impl OpenSegment {
    fn new(writer: SegmentWriter, finished: Vec<SegmentMeta>) -> OpenSegment {
        OpenSegment { writer, family: None, numbers: Vec::new(), finished }
    }

    /// Puts the writer's numbers of a row's values into `numbers`.
    fn number(&mut self, store: &OrgStore, row: &LabelRow, numbers: &mut Vec<u32>) {
        numbers.clear();
        for (index, (name, code)) in row.names.iter().zip(&row.codes).enumerate() {
            let (name, code) = (*name as usize, *code as usize);
            let known = self.numbers.get(name).and_then(|numbers| numbers.get(code)).copied();
            if let Some(number) = known.filter(|number| *number != UNKNOWN) {
                numbers.push(number);
                continue;
            }
            let text = row.value(store, index);
            let number = self.writer.number(index, &text);
            if self.numbers.len() <= name {
                self.numbers.resize_with(name + 1, Vec::new);
            }
            if let Some(known) = self.numbers.get_mut(name) {
                if known.len() <= code {
                    known.resize(code + 1, UNKNOWN);
                }
                if let Some(slot) = known.get_mut(code) {
                    *slot = number;
                }
            }
            numbers.push(number);
        }
    }
}

/// The labels of a series, as codes of the series table.
#[derive(Default)]
struct LabelRow {
    family: usize,
    /// The codes of the label names, ascending by text.
    names: Vec<u32>,
    /// The codes of the values.
    codes: Vec<u32>,
}

impl LabelRow {
    /// Takes the labels of a series. Returns whether the series is in the family. `near` is the row
    /// to check first.
    fn set(&mut self, store: &OrgStore, family: usize, id: u32, near: usize) -> bool {
        let table = store.table();
        let Some(found) = table.families.get(family) else { return false };
        let row = if found.ids.get(near) == Some(&id) { Ok(near) } else { found.ids.binary_search(&id) };
        let Ok(row) = row else { return false };
        self.family = family;
        self.names.clear();
        self.names.extend_from_slice(&found.names);
        self.codes.clear();
        self.codes.extend(found.columns.iter().filter_map(|column| column.code(row)));
        self.names.len() == self.codes.len()
    }

    fn names(&self, store: &OrgStore) -> Vec<Arc<str>> {
        let table = store.table();
        self.names.iter().filter_map(|name| table.names.text(*name).map(Arc::clone)).collect()
    }

    fn value(&self, store: &OrgStore, index: usize) -> Arc<str> {
        let table = store.table();
        let codes = self.names.get(index).zip(self.codes.get(index));
        let text = codes.and_then(|(name, code)| table.values(*name)?.text(*code));
        text.map_or_else(Arc::default, Arc::clone)
    }
}

impl Pass<'_> {
    fn run_head(&mut self, throttle: &SealThrottle<'_>) -> Result<(), SealError> {
        let mut watch = Stopwatch::start();
        let mut columns = SampleColumns::default();
        let mut bits = Vec::new();
        let mut row = LabelRow::default();
        let families = self.store.table().families.len();
        for family in 0..families {
            let ids = self.ids(family);
            for (first, ids) in (0..).step_by(TOUCHED).zip(ids.chunks(TOUCHED)) {
                self.store.head.touch(ids);
                for (near, id) in (first..).zip(ids) {
                    columns.times.clear();
                    columns.values.clear();
                    self.store.head.copy_closed(*id, &mut columns);
                    if columns.times.is_empty() || !row.set(self.store, family, *id, near) {
                        continue;
                    }
                    bits.clear();
                    bits.extend(columns.values.iter().map(|value| value.to_bits()));
                    self.series(*id, &row, &columns.times, &bits)?;
                    throttle.rest(&mut watch);
                }
            }
        }
        Ok(())
    }

    fn run_import(&mut self, imported: &ImportedSamples) -> Result<(), SealError> {
        let mut columns = SampleColumns::default();
        let mut bits = Vec::new();
        let mut row = LabelRow::default();
        let families = self.store.table().families.len();
        for family in 0..families {
            for (near, id) in self.ids(family).into_iter().enumerate() {
                columns.times.clear();
                columns.values.clear();
                imported.copy(id, &mut columns);
                if columns.times.is_empty() || !row.set(self.store, family, id, near) {
                    continue;
                }
                bits.clear();
                bits.extend(columns.values.iter().map(|value| value.to_bits()));
                self.series(id, &row, &columns.times, &bits)?;
            }
        }
        Ok(())
    }

    /// Writes the side data: a row with the observation counts of each histogram, and a run of the
    /// rest.
    fn run_side_data(&mut self, throttle: &SealThrottle<'_>) -> Result<(), SealError> {
        let mut watch = Stopwatch::start();
        let closed = self.store.side.closed_series();
        let (mut histograms, mut bits) = (HistogramColumns::default(), Vec::new());
        let mut row = LabelRow::default();
        let families = self.store.table().families.len();
        for family in 0..families {
            for id in self.ids(family).into_iter().filter(|id| closed.binary_search(id).is_ok()) {
                histograms.clear();
                bits.clear();
                let (mut starts, mut late) = (Vec::new(), LateStarts::default());
                self.store.side.copy_closed(id, &mut histograms, &mut starts, &mut late);
                if !row.set(self.store, family, id, 0) {
                    continue;
                }
                bits.extend(histograms.histograms.iter().map(|histogram| histogram.count().to_bits()));
                self.series(id, &row, &histograms.times, &bits)?;
                for (partition, span, run) in self.runs(&histograms, &starts, &late) {
                    self.put_run(partition, id, &run, span)?;
                }
                throttle.rest(&mut watch);
            }
        }
        let mut run = Vec::new();
        sealed::put_exemplars(&mut run, self.store.side.exemplars().closed());
        if !run.is_empty() {
            let last = self.store.side.end();
            self.put_run(self.cuts.partition_of(last), sealed::EXEMPLARS_ID, &run, (last, last))?;
        }
        Ok(())
    }

    /// Encodes the side data of a series by partition. Start timestamps go with the newest
    /// partition, since they hold until the next one.
    fn runs(
        &self,
        histograms: &HistogramColumns,
        starts: &[(i64, i64)],
        late: &LateStarts,
    ) -> Vec<(Partition, (i64, i64), Vec<u8>)> {
        let last = self.store.side.end();
        let mut runs: BTreeMap<Partition, ((i64, i64), Vec<u8>)> = BTreeMap::new();
        let all: Vec<(i64, &Histogram)> =
            histograms.times.iter().copied().zip(&histograms.histograms).collect();
        for group in all.chunk_by(|a, b| self.cuts.partition_of(a.0) == self.cuts.partition_of(b.0)) {
            let (Some((first, _)), Some((end, _))) = (group.first(), group.last()) else { continue };
            let run = runs.entry(self.cuts.partition_of(*first)).or_insert(((*first, *end), Vec::new()));
            sealed::put_histograms(&mut run.1, group);
        }
        if !starts.is_empty() || !late.is_empty() {
            let run = runs.entry(self.cuts.partition_of(last)).or_insert(((last, last), Vec::new()));
            sealed::put_starts(&mut run.1, starts);
            sealed::put_late_starts(&mut run.1, late);
        }
        runs.into_iter().map(|(partition, (span, run))| (partition, span, run)).collect()
    }

    fn put_run(
        &mut self,
        partition: Partition,
        id: u32,
        run: &[u8],
        span: (i64, i64),
    ) -> Result<(), SealError> {
        let org = self.store.org;
        match self.writer_of(partition)? {
            Some(open) => open.writer.put_side_data(id, run, span).map_err(|e| failed(org, e)),
            None => Ok(()),
        }
    }

    /// Returns the series ids of a family in ascending order.
    fn ids(&self, family: usize) -> Vec<u32> {
        let table = self.store.table();
        let mut ids = table.families.get(family).map(|family| family.ids.clone()).unwrap_or_default();
        drop(table);
        ids.sort_unstable();
        ids
    }

    fn series(&mut self, id: u32, row: &LabelRow, times: &[i64], bits: &[u64]) -> Result<(), SealError> {
        let (mut times, mut bits) = (times, bits);
        while let Some(first) = times.first() {
            let partition = self.cuts.partition_of(*first);
            let count = times.partition_point(|at| self.cuts.partition_of(*at) == partition);
            let (Some((these_times, rest_times)), Some((these_bits, rest_bits))) =
                (times.split_at_checked(count), bits.split_at_checked(count))
            else {
                return Ok(());
            };
            (times, bits) = (rest_times, rest_bits);
            self.put(partition, id, row, SampleSlices { times: these_times, bits: these_bits })?;
        }
        Ok(())
    }

    fn put(
        &mut self,
        partition: Partition,
        id: u32,
        row: &LabelRow,
        samples: SampleSlices<'_>,
    ) -> Result<(), SealError> {
        let SampleSlices { times, bits } = samples;
        let (org, store) = (self.store.org, self.store);
        let mut numbers = std::mem::take(&mut self.numbers);
        let Some(open) = self.writer_of(partition)? else { return Ok(()) };
        let mut write = || {
            if open.family.replace(row.family) != Some(row.family) {
                let names = row.names(store);
                let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
                open.writer.family(&names)?;
            }
            open.number(store, row, &mut numbers);
            open.writer.series_numbered(id, &numbers, times, bits)
        };
        let written = write();
        self.numbers = numbers;
        written.map_err(|e| failed(org, e))
    }

    /// Returns the writer of a partition; none if the partition is left for another pass.
    fn writer_of(&mut self, partition: Partition) -> Result<Option<&mut OpenSegment>, SealError> {
        let is_selected = self.selected.as_ref().is_none_or(|selected| selected.contains(&partition));
        if !is_selected {
            return Ok(None);
        }
        if !self.open.contains_key(&partition) && self.open.len() == OPEN_MAX {
            self.later.insert(partition);
            return Ok(None);
        }
        let org = self.store.org;
        // A writer is large, so it is moved only when another one begins.
        if self.open.get(&partition).is_none_or(|open| open.writer.is_full()) {
            let open = match self.open.remove(&partition) {
                Some(open) => {
                    let mut finished = open.finished;
                    finished.push(open.writer.finish().map_err(|e| failed(org, e))?);
                    OpenSegment::new(self.create(partition)?, finished)
                }
                None => OpenSegment::new(self.create(partition)?, Vec::new()),
            };
            self.open.insert(partition, open);
        }
        Ok(self.open.get_mut(&partition))
    }

    fn create(&self, partition: Partition) -> Result<SegmentWriter, SealError> {
        let histograms = if matches!(self.output.content, SegmentContent::SideData) { HISTOGRAMS } else { 0 };
        let new = NewSegment {
            org: self.store.org,
            seq: self.store.next_segment.fetch_add(1, Ordering::Relaxed),
            level: 0,
            flags: if partition.late { LATE } else { 0 } | histograms,
            first_log_seq: self.window.first_log_seq,
            last_log_seq: self.window.last_log_seq,
            replaces: Vec::new(),
        };
        SegmentWriter::create(self.output.dir, self.output.id, new).map_err(|e| failed(self.store.org, e))
    }

    /// Finishes the segments. Returns the partitions that are left for another pass.
    fn finish(self, written: &mut Vec<SegmentMeta>) -> Result<BTreeSet<Partition>, SealError> {
        let org = self.store.org;
        let mut first = None;
        for open in self.open.into_values() {
            written.extend(open.finished);
            match (&first, open.writer) {
                (None, writer) => match writer.finish() {
                    Ok(meta) => written.push(meta),
                    Err(e) => first = Some(failed(org, e)),
                },
                (Some(_), writer) => remove_unfinished(writer),
            }
        }
        first.map_or(Ok(self.later), Err)
    }

    /// Removes the unfinished files. The caller removes the finished ones.
    fn abandon(self, written: &mut Vec<SegmentMeta>) {
        for open in self.open.into_values() {
            written.extend(open.finished);
            remove_unfinished(open.writer);
        }
    }
}

/// Samples of one series.
#[derive(Clone, Copy)]
struct SampleSlices<'s> {
    times: &'s [i64],
    bits: &'s [u64],
}

/// Removes an unfinished file. If that fails, the next start removes it.
fn remove_unfinished(writer: SegmentWriter) {
    if let Err(e) = writer.abandon() {
        tracing::warn!("{}", with_sources(&e));
    }
}

fn failed(org: OrgId, e: SegmentWriteError) -> SealError {
    match e {
        SegmentWriteError::Disk(e) => SealError::Disk(e),
        other => SealError::Segment { org, what: with_sources(&other) },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_range_of_time_has_few_partitions(first: i64, span in 0i64..i64::MAX, at in 0.0f64..1.0) {
            let last = first.saturating_add(span);
            let cut = CutWidth::of(first, last);
            prop_assert!(cut.number(last) - cut.number(first) < PARTITIONS_MAX);
            #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "any time will do")]
            let moment = first.saturating_add(((last.saturating_sub(first)) as f64 * at) as i64).min(last);
            prop_assert!((cut.number(first)..=cut.number(last)).contains(&cut.number(moment)));
        }
    }

    #[test]
    fn two_hours_are_one_partition_and_longer_spans_are_cut_at_days() {
        let noon = 12 * 3_600_000;
        assert_eq!(CutWidth::of(noon + 11 * 3_600_000, noon + 13 * 3_600_000).width, None);
        let cut = CutWidth::of(noon, noon + 3 * DAY_MS);
        assert_eq!((cut.number(DAY_MS - 1), cut.number(DAY_MS), cut.number(-1)), (0, 1, -1));
        assert_eq!(CutWidth::of(0, 30 * DAY_MS - 1).width, Some(DAY_MS));
        assert_eq!(CutWidth::of(0, 300 * DAY_MS).width, Some(11 * DAY_MS));
    }
}
