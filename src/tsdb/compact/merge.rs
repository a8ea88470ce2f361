//! Several segments into new ones, family by family and series by series; value blocks are copied as bytes where nothing
//! has to change in them.
//!
//! Memory: one series' samples of the time at hand, the directory of the segment being written, 1 MiB of buffer.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::known::{Numbers, SharedTimes};
use crate::clock::Stopwatch;
use crate::model::{Histogram, HistogramColumns, StoreId, TimeRange, Timestamp};
use crate::tsdb::error::DiskError;
use crate::tsdb::manifest::Tombstone;
use crate::tsdb::options::Rest;
use crate::tsdb::report::SampleColumns;
use crate::tsdb::segment::{
    FamilyRow, FamilyScan, NewSegment, Segment, SegmentBlock, SegmentDamage, SegmentMeta, SegmentWriteError,
    SegmentWriter, SeriesPart, SeriesWriteError, TimelineCache,
};
use crate::tsdb::segments::Part;
use crate::tsdb::side_data::exemplars::NewestExemplars;
use crate::tsdb::side_data::late_starts::LateStarts;
use crate::tsdb::side_data::{sealed, start_timestamps};

/// Blocks of fewer samples are joined with their neighbours: a quarter of the 1,024 that a block may have.
const BLOCK_SMALL: usize = 256;
const BLOCK_SAMPLES: usize = 1_024;
/// Bytes written a second in the background (docs/storage.md section 11).
const BYTES_PER_S: f64 = 32.0 * 1_048_576.0;
/// Bytes between two looks at the clock.
const STEP_BYTES: u64 = 1 << 20;

/// Why nothing was merged. The sources stay.
#[derive(Debug, thiserror::Error)]
pub(super) enum MergeError {
    #[error(transparent)]
    Write(#[from] SegmentWriteError),
    /// A source cannot be read.
    #[error("a segment is damaged")]
    Damaged { seq: u64, source: SegmentDamage },
}

/// How fast.
pub(super) struct Pace<'t> {
    /// None: as fast as it goes.
    rest: Option<&'t Rest>,
    watch: Stopwatch,
    bytes: u64,
}

impl<'t> Pace<'t> {
    pub(super) fn new(rest: Option<&'t Rest>) -> Pace<'t> {
        Pace { rest, watch: Stopwatch::start(), bytes: 0 }
    }

    /// Rests if the bytes written so far came too fast.
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

/// What to merge into what.
pub(super) struct Merge<'t> {
    /// Where two hold the same moment of a series, the later wins.
    pub(super) sources: &'t [Arc<Part>],
    pub(super) tombstones: &'t [Arc<Tombstone>],
    /// Its number is not used.
    pub(super) new: NewSegment,
    pub(super) cut_ms: Option<i64>,
    pub(super) dir: &'t Path,
    pub(super) store: StoreId,
    pub(super) next_segment: &'t AtomicU64,
}

/// The label names and metric name of a source's family at hand.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    metric: Option<String>,
    names: Vec<String>,
}

/// A source, and how far it is read.
struct Cursor<'t> {
    segment: &'t Segment,
    family: usize,
    /// None: at the end.
    key: Option<Key>,
}

impl<'t> Cursor<'t> {
    fn new(segment: &'t Segment) -> Result<Cursor<'t>, MergeError> {
        let mut cursor = Cursor { segment, family: 0, key: None };
        cursor.read()?;
        Ok(cursor)
    }

    fn read(&mut self) -> Result<(), MergeError> {
        self.key = if self.family < self.segment.families() {
            let names = self.segment.names(self.family).map_err(|damage| damaged(self.segment, damage))?;
            let metric = self.segment.metric(self.family).map_err(|damage| damaged(self.segment, damage))?;
            Some(Key { metric, names })
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

/// A family of one of the sources, being walked.
struct Rows<'t> {
    walk: FamilyScan<'t>,
    /// Place among the sources.
    source: usize,
    family: usize,
    row: usize,
    /// None: at the end.
    id: Option<u32>,
}

/// A series in one of the sources.
#[derive(Clone, Copy)]
struct Place<'t> {
    segment: &'t Segment,
    source: usize,
    family: usize,
    row: usize,
    /// Which of the rows that are walked.
    walked: usize,
    first: i64,
    last: i64,
}

/// A run of samples in the arenas, or a block to be copied.
enum Run<'t> {
    Samples(Range<usize>, Range<usize>),
    Block(Range<usize>, &'t Segment, SegmentBlock<'t>),
}

/// A run of bytes beside the rows, and the time that it reaches over.
type Beside = (Vec<u8>, Option<(i64, i64)>);

/// Reused between series.
#[derive(Default)]
struct Arena {
    columns: SampleColumns,
    times: Vec<i64>,
    bits: Vec<u64>,
    all: Vec<(i64, u64)>,
    shared: SharedTimes,
    read: TimelineCache,
}

/// Everything of the sources; `written` gets what is finished, even where it fails.
pub(super) fn merge(
    merge: &Merge<'_>,
    pace: &mut Pace<'_>,
    written: &mut Vec<SegmentMeta>,
) -> Result<(), MergeError> {
    let least = merge.sources.iter().map(|part| part.meta().min_ms).min().unwrap_or(0);
    let most = merge.sources.iter().map(|part| part.meta().max_ms).max().unwrap_or(-1);
    for part in merge.sources {
        part.segment.read_through();
    }
    let Some(width) = merge.cut_ms else {
        let ends = (true, true);
        return Window {
            merge,
            from: i64::MIN,
            to: i64::MAX,
            ends,
            writer: None,
            numbers: Numbers::default(),
            pace,
            written,
        }
        .run();
    };
    // As many as the planner counted: a few.
    for number in least.div_euclid(width)..=most.div_euclid(width) {
        let from = number.saturating_mul(width);
        let to = from.saturating_add(width - 1);
        let ends = (number == least.div_euclid(width), number == most.div_euclid(width));
        Window {
            merge,
            from,
            to,
            ends,
            writer: None,
            numbers: Numbers::default(),
            pace: &mut *pace,
            written: &mut *written,
        }
        .run()?;
    }
    Ok(())
}

/// One walk over the sources, for a stretch of time, both ends included.
struct Window<'t, 'm, 'p> {
    merge: &'t Merge<'t>,
    from: i64,
    to: i64,
    /// Whether it is the first, and the last.
    ends: (bool, bool),
    writer: Option<SegmentWriter>,
    /// Of the values of that writer.
    numbers: Numbers,
    pace: &'m mut Pace<'p>,
    written: &'m mut Vec<SegmentMeta>,
}

impl<'t> Window<'t, '_, '_> {
    fn run(mut self) -> Result<(), MergeError> {
        let done = self.families().and_then(|()| self.beside());
        match (done, self.writer) {
            (Ok(()), Some(writer)) => {
                self.written.push(writer.finish()?);
                Ok(())
            }
            (Ok(()), None) => Ok(()),
            (Err(e), writer) => {
                // What stays of the file is removed by the next start.
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
            cursors.push(Cursor::new(&part.segment)?);
        }
        let mut arena = Arena::default();
        while let Some(key) = cursors.iter().filter_map(|cursor| cursor.key.clone()).min() {
            let mut rows: Vec<Rows<'t>> = Vec::new();
            for (source, cursor) in cursors.iter_mut().enumerate() {
                if cursor.key.as_ref() == Some(&key) {
                    let (segment, family) = (cursor.segment, cursor.family);
                    let walk = segment.scan(family).map_err(|damage| damaged(segment, damage))?;
                    let id = walk.id(0);
                    rows.push(Rows { walk, source, family, row: 0, id });
                    cursor.next()?;
                }
            }
            self.family(&key, &mut rows, &mut arena)?;
        }
        for cursor in &cursors {
            // A page that vanished would have shortened a walk.
            cursor.segment.intact().map_err(|damage| damaged(cursor.segment, damage))?;
        }
        Ok(())
    }

    /// What stands beside the rows: in the last of the window's segments.
    fn beside(&mut self) -> Result<(), MergeError> {
        let sources = self.merge.sources;
        let ids: BTreeSet<u32> = sources.iter().flat_map(|part| part.segment.side_data_ids()).collect();
        let most = sources.iter().map(|part| part.meta().max_ms).max().unwrap_or(self.to).min(self.to);
        for id in ids {
            let (run, span) =
                if id == sealed::EXEMPLARS_ID { self.exemplars()? } else { self.beside_of(id)? };
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
            self.pace.wrote(run.len() as u64);
        }
        Ok(())
    }

    /// The run of a series, and the time of its histograms.
    fn beside_of(&self, id: u32) -> Result<Beside, MergeError> {
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
            let kept = |at: i64| !self.deleted(segment, id).any(|tombstone| tombstone.hides(id, at));
            histograms.extend(here.times.into_iter().zip(here.histograms).filter(|(at, _)| kept(*at)));
        }
        sealed::sort_and_dedup(&mut histograms);
        sealed::sort_and_dedup_starts(&mut starts);
        // Those that are older than everything go with the first window. What began before another one and holds in it
        // goes with it, too: the windows before may be gone earlier.
        let from = if self.ends.0 { i64::MIN } else { self.from };
        let starts = start_timestamps::within(&starts, from, self.to);
        late.retain(|at| at <= self.to && (self.from <= at || self.ends.0));
        let samples: Vec<(i64, &Histogram)> =
            histograms.times.iter().copied().zip(&histograms.histograms).collect();
        let mut run = Vec::new();
        sealed::put_histograms(&mut run, &samples);
        sealed::put_starts(&mut run, starts);
        sealed::put_late_starts(&mut run, &late);
        Ok((run, histograms.times.first().copied().zip(histograms.times.last().copied())))
    }

    /// The newest exemplars of all sources, in the last window.
    fn exemplars(&self) -> Result<Beside, MergeError> {
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
        Ok((run, None))
    }

    fn family(&mut self, key: &Key, rows: &mut [Rows<'t>], arena: &mut Arena) -> Result<(), MergeError> {
        let names: Vec<&str> = key.names.iter().map(String::as_str).collect();
        let mut begun = false;
        let mut places: Vec<Place<'t>> = Vec::new();
        while let Some(id) = rows.iter().filter_map(|row| row.id).min() {
            places.clear();
            for (walked, rows) in rows.iter_mut().enumerate().filter(|(_, rows)| rows.id == Some(id)) {
                let Rows { source, family, row, .. } = *rows;
                let segment = rows.walk.segment();
                if let Some((first, last)) =
                    rows.walk.span(row).filter(|(a, b)| *a <= self.to && self.from <= *b)
                {
                    places.push(Place { segment, source, family, row, walked, first, last });
                }
                rows.row += 1;
                rows.id = rows.walk.id(rows.row);
            }
            let Some(named) = places.last().copied() else { continue };
            let mut runs = self.runs(id, rows, &mut places, arena)?;
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
                self.numbers = Numbers::default();
                self.writer = Some(self.create()?);
            }
            // A writer is large: it stays where it is.
            let Some(writer) = &mut self.writer else { continue };
            let before = writer.data_bytes();
            if !std::mem::replace(&mut begun, true) {
                writer.family(&names)?;
            }
            if let Some(rows) = rows.get(named.walked) {
                self.numbers
                    .set(writer, (rows.source, &rows.walk), named.row)
                    .map_err(|damage| damaged(named.segment, damage))?;
            }
            put(writer, id, &self.numbers.row, &mut runs, arena)?;
            let bytes = writer.data_bytes() - before;
            self.pace.wrote(bytes);
        }
        Ok(())
    }

    fn create(&self) -> Result<SegmentWriter, MergeError> {
        let seq = self.merge.next_segment.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let new = NewSegment { seq, ..self.merge.new.clone() };
        Ok(SegmentWriter::create(self.merge.dir, self.merge.store, new)?)
    }

    /// What is to be written of a series, in order of time.
    fn runs(
        &self,
        id: u32,
        rows: &[Rows<'t>],
        places: &mut [Place<'t>],
        arena: &mut Arena,
    ) -> Result<Vec<Run<'t>>, MergeError> {
        arena.times.clear();
        arena.bits.clear();
        let mut runs = Vec::new();
        let deleted = places.iter().any(|place| self.deleted(place.segment, id).next().is_some());
        let mut in_time: Vec<Place<'t>> = places.to_vec();
        in_time.sort_unstable_by_key(|place| place.first);
        let apart = in_time.is_sorted_by(|a, b| a.last < b.first);
        if deleted || !apart {
            self.mix(id, places, arena)?;
            let Arena { times, bits, all, .. } = arena;
            times.extend(all.iter().map(|(at, _)| *at));
            bits.extend(all.iter().map(|(_, pattern)| *pattern));
            if !times.is_empty() {
                runs.push(Run::Samples(0..times.len(), 0..bits.len()));
            }
            return Ok(runs);
        }
        for place in in_time {
            let (from, to) = (self.from, self.to);
            let Some(walked) = rows.get(place.walked) else { continue };
            let walk = walked.walk.each_block(place.row, |_, block| {
                if block.last < from {
                    return Ok(true);
                }
                if block.first > to {
                    return Ok(false);
                }
                let whole = from <= block.first && block.last <= to;
                let start = arena.times.len();
                let waiting = match runs.last() {
                    Some(Run::Samples(times, _)) => times.len() % BLOCK_SAMPLES,
                    _ => 0,
                };
                // A few samples that wait for more take the next block with them.
                let joins = waiting > 0 && waiting < BLOCK_SMALL && waiting + block.count <= BLOCK_SAMPLES;
                if whole && block.count >= BLOCK_SMALL && !joins {
                    arena.shared.read((place.source, place.segment), &block, &mut arena.times)?;
                    runs.push(Run::Block(start..arena.times.len(), place.segment, block));
                    return Ok(true);
                }
                arena.columns.times.clear();
                arena.columns.values.clear();
                arena.shared.read((place.source, place.segment), &block, &mut arena.columns.times)?;
                place.segment.values(id, &block, &mut arena.columns.values)?;
                let SampleColumns { times, values } = &arena.columns;
                let first = times.partition_point(|at| *at < from);
                let end = times.partition_point(|at| *at <= to);
                let first_bits = arena.bits.len();
                arena.times.extend(times.get(first..end).unwrap_or_default());
                arena.bits.extend(values.get(first..end).unwrap_or_default().iter().map(|v| v.to_bits()));
                match runs.last_mut() {
                    Some(Run::Samples(times, bits)) => {
                        (times.end, bits.end) = (arena.times.len(), arena.bits.len());
                    }
                    _ if end > first => {
                        runs.push(Run::Samples(start..arena.times.len(), first_bits..arena.bits.len()));
                    }
                    _ => {}
                }
                Ok(true)
            });
            walk.map_err(|damage| damaged(place.segment, damage))?;
        }
        Ok(runs)
    }

    /// The samples of all sources, the later winning, without the deleted ones, in `arena.all`.
    fn mix(&self, id: u32, places: &mut [Place<'t>], arena: &mut Arena) -> Result<(), MergeError> {
        places.sort_unstable_by_key(|place| place.source);
        arena.all.clear();
        let range = crate::model::TimeRange::new(
            crate::model::Timestamp::from_ms(self.from),
            crate::model::Timestamp::from_ms(self.to),
        );
        for place in places {
            arena.columns.times.clear();
            arena.columns.values.clear();
            place
                .segment
                .rows(place.family)
                .and_then(|rows| {
                    place.segment.read(
                        FamilyRow { rows: &rows, row: place.row },
                        range,
                        &mut arena.read,
                        None,
                        &mut arena.columns,
                    )
                })
                .map_err(|damage| damaged(place.segment, damage))?;
            let SampleColumns { times, values } = &arena.columns;
            let samples = times.iter().copied().zip(values.iter().map(|value| value.to_bits()));
            let kept = |at: i64| !self.deleted(place.segment, id).any(|tombstone| tombstone.hides(id, at));
            arena.all.extend(samples.filter(|(at, _)| kept(*at)));
        }
        // Stable: of equal times, the one of the later source comes last, and stays.
        arena.all.sort_by_key(|(at, _)| *at);
        arena.all.dedup_by(|later, earlier| {
            let same = later.0.cmp(&earlier.0) == Ordering::Equal;
            if same {
                earlier.1 = later.1;
            }
            same
        });
        Ok(())
    }

    /// Deletions that a series of a source still has to suffer.
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
    runs: &mut [Run<'_>],
    arena: &Arena,
) -> Result<(), MergeError> {
    let times = |range: &Range<usize>| arena.times.get(range.clone()).unwrap_or_default();
    let pieces: Vec<SeriesPart<'_>> = runs
        .iter()
        .map(|run| match run {
            Run::Samples(at, bits) => SeriesPart::Samples {
                times: times(at),
                bits: arena.bits.get(bits.clone()).unwrap_or_default(),
            },
            Run::Block(at, _, block) => SeriesPart::Block { times: times(at), bytes: block.values },
        })
        .collect();
    writer.put_parts_numbered(id, numbers, &pieces).map_err(|e| match e {
        SeriesWriteError::Write(e) => MergeError::Write(e),
        SeriesWriteError::Damaged { part, damage } => match runs.get(part) {
            Some(Run::Block(_, segment, block)) => damaged(segment, segment.value_damage(block, damage)),
            _ => MergeError::Write(SegmentWriteError::Shape("a piece that is not there")),
        },
    })
}

/// Removes files of a job that failed.
pub(super) fn throw_away(dir: &Path, written: &[SegmentMeta]) -> Result<(), DiskError> {
    for meta in written {
        crate::tsdb::disk::remove_file(&dir.join(meta.file_name()))?;
    }
    Ok(())
}
