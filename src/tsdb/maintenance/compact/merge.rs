//! Merges segments into new ones, family by family and series by series. Unchanged value blocks are
//! copied as bytes.
//!
//! Memory: the samples of one series in the current window, the directory of the new segment, and 1
//! MiB of buffer.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::caches::{SharedTimes, SourceFamily, ValueNumbers};
use crate::clock::Stopwatch;
use crate::model::{Histogram, HistogramColumns, StoreId, TimeRange, Timestamp};
use crate::tsdb::error::DiskError;
use crate::tsdb::options::Rest;
use crate::tsdb::report::SampleColumns;
use crate::tsdb::segment::{
    FamilyRow, FamilyScan, NewSegment, Segment, SegmentBlock, SegmentDamage, SegmentMeta, SegmentWriteError,
    SegmentWriter, SeriesPart, SeriesWriteError, TimelineCache,
};
use crate::tsdb::side_data::exemplars::NewestExemplars;
use crate::tsdb::side_data::late_starts::LateStarts;
use crate::tsdb::side_data::{sealed, start_timestamps};
use crate::tsdb::store::manifest::Tombstone;
use crate::tsdb::store::segments::IndexedSegment;

/// Blocks with fewer samples are joined with their neighbours: a quarter of the 1,024 that a block
/// may have.
const BLOCK_SMALL: usize = 256;
/// The samples of a full block.
const BLOCK_SAMPLES: usize = 1_024;
/// The write rate of background merges in bytes per second (docs/storage.md section 11).
const BYTES_PER_S: f64 = 32.0 * 1_048_576.0;
/// The bytes after which the pages of the sources are released: whatever the sources' size, a merge
/// has not much more of them in the memory of the process.
const RELEASE_BYTES: u64 = 16 << 20;
/// The bytes between two checks of the clock.
const STEP_BYTES: u64 = 1 << 20;

/// The reason why a merge failed. The sources stay.
#[derive(Debug, thiserror::Error)]
pub(super) enum MergeError {
    #[error(transparent)]
    Write(#[from] SegmentWriteError),
    /// A source cannot be read.
    #[error("a segment is damaged")]
    Damaged { seq: u64, source: SegmentDamage },
}

/// The rate limit of a merge.
pub(super) struct Throttle<'t> {
    /// `None` is full speed.
    rest: Option<&'t Rest>,
    watch: Stopwatch,
    bytes: u64,
}

impl<'t> Throttle<'t> {
    pub(super) fn new(rest: Option<&'t Rest>) -> Throttle<'t> {
        Throttle { rest, watch: Stopwatch::start(), bytes: 0 }
    }

    /// Sleeps if the bytes since the last check were written faster than the limit.
    #[expect(clippy::cast_precision_loss, reason = "a second more or less at 2^53 bytes")]
    fn wrote(&mut self, bytes: u64) {
        self.bytes += bytes;
        if let Some(rest) = self.rest.filter(|_| self.bytes >= STEP_BYTES) {
            let due = Duration::from_secs_f64(self.bytes as f64 / BYTES_PER_S);
            if let Some(early) = due.checked_sub(self.watch.elapsed()) {
                rest.take(early);
            }
            (self.watch, self.bytes) = (Stopwatch::start(), 0);
        }
    }
}

/// The input of a merge.
pub(super) struct Merge<'t> {
    /// If two sources have a sample of a series at the same time, the one of the later source wins.
    pub(super) sources: &'t [Arc<IndexedSegment>],
    pub(super) tombstones: &'t [Arc<Tombstone>],
    /// The template of the new segments. Its number is not used.
    pub(super) new: NewSegment,
    pub(super) cut_ms: Option<i64>,
    pub(super) dir: &'t Path,
    pub(super) store: StoreId,
    pub(super) next_segment: &'t AtomicU64,
}

/// The label names and metric name of a family. Families are merged in its order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FamilyKey {
    metric: Option<String>,
    names: Vec<String>,
}

/// A source, and the family at which it is read.
struct SegmentCursor<'t> {
    segment: &'t Segment,
    family: usize,
    /// `None` at the end.
    key: Option<FamilyKey>,
}

impl<'t> SegmentCursor<'t> {
    fn new(segment: &'t Segment) -> Result<SegmentCursor<'t>, MergeError> {
        let mut cursor = SegmentCursor { segment, family: 0, key: None };
        cursor.read()?;
        Ok(cursor)
    }

    fn read(&mut self) -> Result<(), MergeError> {
        self.key = if self.family < self.segment.families() {
            let names = self.segment.names(self.family).map_err(|damage| damaged(self.segment, damage))?;
            let metric = self.segment.metric(self.family).map_err(|damage| damaged(self.segment, damage))?;
            Some(FamilyKey { metric, names })
        } else {
            None
        };
        Ok(())
    }

    fn next(&mut self) -> Result<(), MergeError> {
        self.family += 1;
        self.read()
    }
}

fn damaged(segment: &Segment, source: SegmentDamage) -> MergeError {
    MergeError::Damaged { seq: segment.meta().seq, source }
}

/// A family of one of the sources, while it is read.
struct FamilyRows<'t> {
    walk: FamilyScan<'t>,
    /// The index among the sources.
    source: usize,
    family: usize,
    row: usize,
    /// `None` at the end.
    id: Option<u32>,
}

/// A series in one of the sources.
#[derive(Clone, Copy)]
struct SourceRow<'t> {
    segment: &'t Segment,
    source: usize,
    family: usize,
    row: usize,
    /// The index in the list of [`FamilyRows`].
    walked: usize,
    first: i64,
    last: i64,
}

/// A run of samples in the buffers, or a block that is copied.
enum OutputRun<'t> {
    Samples(Range<usize>, Range<usize>),
    Block(Range<usize>, &'t Segment, SegmentBlock<'t>),
}

/// The side data of a series.
#[derive(Default)]
struct SideRun {
    bytes: Vec<u8>,
    /// The first and last time of its histograms.
    span: Option<(i64, i64)>,
}

/// The buffers of a merge, reused between series.
#[derive(Default)]
struct MergeBuffers {
    columns: SampleColumns,
    times: Vec<i64>,
    bits: Vec<u64>,
    all: Vec<(i64, u64)>,
    shared: SharedTimes,
    read: TimelineCache,
}

/// Merges all sources. `written` gets the finished segments even on failure.
pub(super) fn merge(
    merge: &Merge<'_>,
    throttle: &mut Throttle<'_>,
    written: &mut Vec<SegmentMeta>,
) -> Result<(), MergeError> {
    let least = merge.sources.iter().map(|part| part.meta().min_ms).min().unwrap_or(0);
    let most = merge.sources.iter().map(|part| part.meta().max_ms).max().unwrap_or(-1);
    for part in merge.sources {
        part.segment.read_through();
    }
    let Some(width) = merge.cut_ms else {
        let ends = (true, true);
        return MergeWindow {
            merge,
            from: i64::MIN,
            to: i64::MAX,
            ends,
            writer: None,
            numbers: ValueNumbers::default(),
            unreleased_bytes: 0,
            throttle,
            written,
        }
        .run();
    };
    // The planner bounds their number.
    for number in least.div_euclid(width)..=most.div_euclid(width) {
        let from = number.saturating_mul(width);
        let to = from.saturating_add(width - 1);
        let ends = (number == least.div_euclid(width), number == most.div_euclid(width));
        MergeWindow {
            merge,
            from,
            to,
            ends,
            writer: None,
            numbers: ValueNumbers::default(),
            unreleased_bytes: 0,
            throttle: &mut *throttle,
            written: &mut *written,
        }
        .run()?;
    }
    Ok(())
}

/// One pass over the sources for a range of time, both ends inclusive.
struct MergeWindow<'t, 'm, 'p> {
    merge: &'t Merge<'t>,
    from: i64,
    to: i64,
    /// Whether it is the first window, and whether it is the last.
    ends: (bool, bool),
    writer: Option<SegmentWriter>,
    /// The value numbers of that writer.
    numbers: ValueNumbers,
    /// The bytes written since the pages of the sources were released.
    unreleased_bytes: u64,
    throttle: &'m mut Throttle<'p>,
    written: &'m mut Vec<SegmentMeta>,
}

impl<'t> MergeWindow<'t, '_, '_> {
    fn run(mut self) -> Result<(), MergeError> {
        let done = self.families().and_then(|()| self.side_data());
        match (done, self.writer) {
            (Ok(()), Some(writer)) => {
                self.written.push(writer.finish()?);
                Ok(())
            }
            (Ok(()), None) => Ok(()),
            (Err(e), writer) => {
                // The next start removes the rest of the file.
                if let Some(Err(left)) = writer.map(SegmentWriter::abandon) {
                    tracing::warn!("{}", left.line());
                }
                Err(e)
            }
        }
    }

    fn families(&mut self) -> Result<(), MergeError> {
        let mut cursors = Vec::new();
        for part in self.merge.sources {
            cursors.push(SegmentCursor::new(&part.segment)?);
        }
        let mut buffers = MergeBuffers::default();
        while let Some(key) = cursors.iter().filter_map(|cursor| cursor.key.clone()).min() {
            let mut rows: Vec<FamilyRows<'t>> = Vec::new();
            for (source, cursor) in cursors.iter_mut().enumerate() {
                if cursor.key.as_ref() == Some(&key) {
                    let (segment, family) = (cursor.segment, cursor.family);
                    let walk = segment.scan(family).map_err(|damage| damaged(segment, damage))?;
                    let id = walk.id(0);
                    rows.push(FamilyRows { walk, source, family, row: 0, id });
                    cursor.next()?;
                }
            }
            self.family(&key, &mut rows, &mut buffers)?;
        }
        for cursor in &cursors {
            // A page that failed to load would have ended a scan early.
            cursor.segment.intact().map_err(|damage| damaged(cursor.segment, damage))?;
        }
        Ok(())
    }

    /// Merges the side data into the last segment of the window.
    fn side_data(&mut self) -> Result<(), MergeError> {
        let sources = self.merge.sources;
        let ids: BTreeSet<u32> = sources.iter().flat_map(|part| part.segment.side_data_ids()).collect();
        let most = sources.iter().map(|part| part.meta().max_ms).max().unwrap_or(self.to).min(self.to);
        for id in ids {
            let SideRun { bytes: run, span } =
                if id == sealed::EXEMPLARS_ID { self.exemplars()? } else { self.side_data_of(id)? };
            if run.is_empty() {
                continue;
            }
            let mut writer = match self.writer.take() {
                Some(writer) => writer,
                None => self.create()?,
            };
            let put = writer.put_side_data(id, &run, span.unwrap_or((most, most)));
            self.writer = Some(writer);
            put?;
            self.throttle.wrote(run.len() as u64);
        }
        Ok(())
    }

    /// Merges the side data of a series.
    fn side_data_of(&self, id: u32) -> Result<SideRun, MergeError> {
        let range = TimeRange::new(Timestamp::from_ms(self.from), Timestamp::from_ms(self.to));
        let (mut histograms, mut starts) = (HistogramColumns::default(), Vec::new());
        let mut late = LateStarts::default();
        for part in self.merge.sources {
            let segment = &part.segment;
            let run = segment.side_data(id).map_err(|damage| damaged(segment, damage))?.unwrap_or_default();
            let mut here = HistogramColumns::default();
            sealed::read_histograms(run, range, &mut here)
                .and_then(|()| sealed::read_starts(run, &mut starts, &mut late))
                .map_err(|damage| damaged(segment, segment.side_data_damage(damage)))?;
            let visible = |at: i64| !self.deleted(segment, id).any(|tombstone| tombstone.hides(id, at));
            histograms.extend(here.times.into_iter().zip(here.histograms).filter(|(at, _)| visible(*at)));
        }
        sealed::sort_and_dedup(&mut histograms);
        sealed::sort_and_dedup_starts(&mut starts);
        // Start timestamps before all windows go with the first one. A start timestamp before a
        // window that still holds in it is copied into it, because earlier windows may expire
        // first.
        let from = if self.ends.0 { i64::MIN } else { self.from };
        let starts = start_timestamps::within(&starts, from, self.to);
        late.retain(|at| at <= self.to && (self.from <= at || self.ends.0));
        let samples: Vec<(i64, &Histogram)> =
            histograms.times.iter().copied().zip(&histograms.histograms).collect();
        let mut run = Vec::new();
        sealed::put_histograms(&mut run, &samples);
        sealed::put_starts(&mut run, starts);
        sealed::put_late_starts(&mut run, &late);
        let span = histograms.times.first().copied().zip(histograms.times.last().copied());
        Ok(SideRun { bytes: run, span })
    }

    /// Merges the newest exemplars of all sources, for the last window.
    fn exemplars(&self) -> Result<SideRun, MergeError> {
        let mut newest = NewestExemplars::default();
        for part in self.merge.sources.iter().filter(|_| self.ends.1) {
            let segment = &part.segment;
            let run = segment.side_data(sealed::EXEMPLARS_ID).map_err(|damage| damaged(segment, damage))?;
            let read = sealed::read_exemplars(run.unwrap_or_default(), |series, exemplar| {
                let at = exemplar.at.as_ms();
                let mut about = self.merge.tombstones.iter().filter(|t| t.masks_any_time(segment.meta()));
                if !about.any(|tombstone| tombstone.hides(series, at)) {
                    newest.push(series, exemplar);
                }
            });
            read.map_err(|damage| damaged(segment, segment.side_data_damage(damage)))?;
        }
        let mut run = Vec::new();
        sealed::put_exemplars(
            &mut run,
            newest.into_sorted().iter().map(|(series, exemplar)| (*series, exemplar)),
        );
        Ok(SideRun { bytes: run, span: None })
    }

    fn family(
        &mut self,
        key: &FamilyKey,
        rows: &mut [FamilyRows<'t>],
        buffers: &mut MergeBuffers,
    ) -> Result<(), MergeError> {
        let names: Vec<&str> = key.names.iter().map(String::as_str).collect();
        let mut begun = false;
        let mut source_rows: Vec<SourceRow<'t>> = Vec::new();
        while let Some(id) = rows.iter().filter_map(|row| row.id).min() {
            source_rows.clear();
            for (walked, rows) in rows.iter_mut().enumerate().filter(|(_, rows)| rows.id == Some(id)) {
                let FamilyRows { source, family, row, .. } = *rows;
                let segment = rows.walk.segment();
                if let Some((first, last)) =
                    rows.walk.span(row).filter(|(a, b)| *a <= self.to && self.from <= *b)
                {
                    source_rows.push(SourceRow { segment, source, family, row, walked, first, last });
                }
                rows.row += 1;
                rows.id = rows.walk.id(rows.row);
            }
            let Some(named) = source_rows.last().copied() else { continue };
            let mut runs = self.runs(id, rows, &mut source_rows, buffers)?;
            if runs.is_empty() {
                continue;
            }
            if self.writer.as_ref().is_some_and(SegmentWriter::is_full)
                && let Some(writer) = self.writer.take()
            {
                self.written.push(writer.finish()?);
                begun = false;
            }
            if self.writer.is_none() {
                self.numbers = ValueNumbers::default();
                self.writer = Some(self.create()?);
            }
            // A writer is large, so it is not moved.
            let Some(writer) = &mut self.writer else { continue };
            let before = writer.data_bytes();
            if !std::mem::replace(&mut begun, true) {
                writer.family(&names)?;
            }
            if let Some(rows) = rows.get(named.walked) {
                let family = SourceFamily { source: rows.source, walk: &rows.walk };
                self.numbers
                    .set(writer, family, named.row)
                    .map_err(|damage| damaged(named.segment, damage))?;
            }
            put(writer, id, &self.numbers.row, &mut runs, buffers)?;
            let bytes = writer.data_bytes() - before;
            self.throttle.wrote(bytes);
            self.unreleased_bytes += bytes;
            if self.unreleased_bytes >= RELEASE_BYTES {
                self.unreleased_bytes = 0;
                self.merge.sources.iter().for_each(|part| part.segment.release_pages());
            }
        }
        Ok(())
    }

    fn create(&self) -> Result<SegmentWriter, MergeError> {
        let seq = self.merge.next_segment.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let new = NewSegment { seq, ..self.merge.new.clone() };
        Ok(SegmentWriter::create(self.merge.dir, self.merge.store, new)?)
    }

    /// Returns the output runs of a series, in order of time.
    fn runs(
        &self,
        id: u32,
        rows: &[FamilyRows<'t>],
        source_rows: &mut [SourceRow<'t>],
        buffers: &mut MergeBuffers,
    ) -> Result<Vec<OutputRun<'t>>, MergeError> {
        buffers.times.clear();
        buffers.bits.clear();
        let mut runs = Vec::new();
        let deleted = source_rows.iter().any(|row| self.deleted(row.segment, id).next().is_some());
        let mut in_time: Vec<SourceRow<'t>> = source_rows.to_vec();
        in_time.sort_unstable_by_key(|row| row.first);
        let apart = in_time.is_sorted_by(|a, b| a.last < b.first);
        if deleted || !apart {
            self.merge_samples(id, source_rows, buffers)?;
            let MergeBuffers { times, bits, all, .. } = buffers;
            times.extend(all.iter().map(|(at, _)| *at));
            bits.extend(all.iter().map(|(_, pattern)| *pattern));
            if !times.is_empty() {
                runs.push(OutputRun::Samples(0..times.len(), 0..bits.len()));
            }
            return Ok(runs);
        }
        for row in in_time {
            let (from, to) = (self.from, self.to);
            let Some(walked) = rows.get(row.walked) else { continue };
            let walk = walked.walk.each_block(row.row, |_, block| {
                if block.last < from {
                    return Ok(true);
                }
                if block.first > to {
                    return Ok(false);
                }
                let whole = from <= block.first && block.last <= to;
                let start = buffers.times.len();
                let waiting = match runs.last() {
                    Some(OutputRun::Samples(times, _)) => times.len() % BLOCK_SAMPLES,
                    _ => 0,
                };
                // A short pending run takes the next block with it.
                let joins = waiting > 0 && waiting < BLOCK_SMALL && waiting + block.count <= BLOCK_SAMPLES;
                if whole && block.count >= BLOCK_SMALL && !joins {
                    buffers.shared.read(row.source, row.segment, &block, &mut buffers.times)?;
                    runs.push(OutputRun::Block(start..buffers.times.len(), row.segment, block));
                    return Ok(true);
                }
                buffers.columns.times.clear();
                buffers.columns.values.clear();
                buffers.shared.read(row.source, row.segment, &block, &mut buffers.columns.times)?;
                row.segment.values(id, &block, &mut buffers.columns.values)?;
                let SampleColumns { times, values } = &buffers.columns;
                let first = times.partition_point(|at| *at < from);
                let end = times.partition_point(|at| *at <= to);
                let first_bits = buffers.bits.len();
                buffers.times.extend(times.get(first..end).unwrap_or_default());
                buffers.bits.extend(values.get(first..end).unwrap_or_default().iter().map(|v| v.to_bits()));
                match runs.last_mut() {
                    Some(OutputRun::Samples(times, bits)) => {
                        (times.end, bits.end) = (buffers.times.len(), buffers.bits.len());
                    }
                    _ if end > first => {
                        runs.push(OutputRun::Samples(
                            start..buffers.times.len(),
                            first_bits..buffers.bits.len(),
                        ));
                    }
                    _ => {}
                }
                Ok(true)
            });
            walk.map_err(|damage| damaged(row.segment, damage))?;
        }
        Ok(runs)
    }

    /// Merges the samples of all sources into `buffers.all`. The later source wins; deleted samples
    /// are dropped.
    fn merge_samples(
        &self,
        id: u32,
        source_rows: &mut [SourceRow<'t>],
        buffers: &mut MergeBuffers,
    ) -> Result<(), MergeError> {
        source_rows.sort_unstable_by_key(|row| row.source);
        buffers.all.clear();
        let range = crate::model::TimeRange::new(
            crate::model::Timestamp::from_ms(self.from),
            crate::model::Timestamp::from_ms(self.to),
        );
        for row in source_rows {
            buffers.columns.times.clear();
            buffers.columns.values.clear();
            row.segment
                .rows(row.family)
                .and_then(|rows| {
                    row.segment.read(
                        FamilyRow { rows: &rows, row: row.row },
                        range,
                        &mut buffers.read,
                        None,
                        &mut buffers.columns,
                    )
                })
                .map_err(|damage| damaged(row.segment, damage))?;
            let SampleColumns { times, values } = &buffers.columns;
            let samples = times.iter().copied().zip(values.iter().map(|value| value.to_bits()));
            let visible = |at: i64| !self.deleted(row.segment, id).any(|tombstone| tombstone.hides(id, at));
            buffers.all.extend(samples.filter(|(at, _)| visible(*at)));
        }
        // The sort is stable: among equal times the sample of the later source comes last and wins.
        buffers.all.sort_by_key(|(at, _)| *at);
        buffers.all.dedup_by(|later, earlier| {
            let same = later.0.cmp(&earlier.0) == Ordering::Equal;
            if same {
                earlier.1 = later.1;
            }
            same
        });
        Ok(())
    }

    /// Returns the tombstones that apply to a series of a source.
    fn deleted(&self, segment: &Segment, id: u32) -> impl Iterator<Item = &Tombstone> {
        let meta = segment.meta();
        let tombstones = self.merge.tombstones.iter().map(|tombstone| &**tombstone);
        tombstones.filter(move |tombstone| tombstone.masks(meta) && tombstone.names(id))
    }
}

fn put(
    writer: &mut SegmentWriter,
    id: u32,
    numbers: &[u32],
    runs: &mut [OutputRun<'_>],
    buffers: &MergeBuffers,
) -> Result<(), MergeError> {
    let times = |range: &Range<usize>| buffers.times.get(range.clone()).unwrap_or_default();
    let pieces: Vec<SeriesPart<'_>> = runs
        .iter()
        .map(|run| match run {
            OutputRun::Samples(at, bits) => SeriesPart::Samples {
                times: times(at),
                bits: buffers.bits.get(bits.clone()).unwrap_or_default(),
            },
            OutputRun::Block(at, _, block) => SeriesPart::Block { times: times(at), bytes: block.values },
        })
        .collect();
    writer.put_parts_numbered(id, numbers, &pieces).map_err(|e| match e {
        SeriesWriteError::Write(e) => MergeError::Write(e),
        SeriesWriteError::Damaged { part, damage } => match runs.get(part) {
            Some(OutputRun::Block(_, segment, block)) => {
                damaged(segment, segment.value_damage(block, damage))
            }
            _ => MergeError::Write(SegmentWriteError::Shape("a piece that is not there")),
        },
    })
}

/// Removes the output files of a failed job.
pub(super) fn remove_files(dir: &Path, written: &[SegmentMeta]) -> Result<(), DiskError> {
    for meta in written {
        crate::tsdb::disk::remove_file(&dir.join(meta.file_name()))?;
    }
    Ok(())
}
