//! What lies before the barrier of a head, written to segments.
//!
//! A seal makes one segment of what came in time and, where there are, one of late samples. What spans more than two
//! hours, as after a backfill, is cut at UTC days, so that retention and reading by time find their pieces; what spans
//! years is cut more coarsely, so that a seal has a bounded number of files. Few are written at a time: the rest is
//! found in further passes over the head.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::SealError;
use crate::clock::Stopwatch;
use crate::kv::with_sources;
use crate::model::{Histogram, HistogramColumns, OrgId, StoreId};
use crate::tsdb::options::Rest;
use crate::tsdb::report::SampleColumns;
use crate::tsdb::segment::{HISTOGRAMS, LATE, NewSegment, SegmentMeta, SegmentWriteError, SegmentWriter};
use crate::tsdb::side_data::late_starts::LateStarts;
use crate::tsdb::side_data::sealed;
use crate::tsdb::store::OrgStore;

/// Not cut: a window, and the one after it that waited.
const WHOLE_MS: i64 = 2 * 3_600_000;
const DAY_MS: i64 = 24 * 3_600_000;
/// Pieces of either kind at most; twice as many fit one change of the list.
const PIECES_MAX: i64 = 31;
/// Segments that are written at a time.
const OPEN_MAX: usize = 8;
/// Series whose samples are fetched together: half an hour of them is 30 kB, a day at most a few times the cache.
const TOUCHED: usize = 32;
/// Work between rests.
const WORK: Duration = Duration::from_millis(20);

/// What a seal takes.
pub(super) struct Window {
    /// Samples before this are late: the time before it was sealed earlier.
    pub(super) since: i64,
    pub(super) until: i64,
    pub(super) first_log_seq: u64,
    pub(super) last_log_seq: u64,
}

impl Window {
    /// The time at which stands what has none of its own: no later than the newest sample, from which ages count.
    fn end(&self, store: &OrgStore) -> i64 {
        let last = self.until - 1;
        store.usage.newest().map_or(last, |newest| newest.as_ms().min(last))
    }
}

/// How fast.
pub(super) enum Pace<'t> {
    Full,
    /// Half a core, unless somebody waits.
    Half {
        rest: &'t Rest,
        hurry: &'t AtomicU32,
    },
}

impl Pace<'_> {
    fn rest(&self, watch: &mut Stopwatch) {
        if let Pace::Half { rest, hurry } = self
            && watch.elapsed() >= WORK
        {
            if hurry.load(Ordering::Relaxed) == 0 {
                rest.take(watch.elapsed());
            }
            *watch = Stopwatch::start();
        }
    }
}

/// Which segment a sample belongs into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    late: bool,
    number: i64,
}

/// How one kind of samples is cut.
struct Cut {
    /// Width in ms; none: not at all.
    width: Option<i64>,
}

impl Cut {
    fn of(first: i64, last: i64) -> Cut {
        let span = last.saturating_sub(first);
        if span <= WHOLE_MS {
            return Cut { width: None };
        }
        // One more piece than widths may be touched.
        let days = (span / DAY_MS / (PIECES_MAX - 1)).saturating_add(1);
        Cut { width: Some(days.saturating_mul(DAY_MS)) }
    }

    fn number(&self, at_ms: i64) -> i64 {
        self.width.map_or(0, |width| at_ms.div_euclid(width))
    }
}

struct Cuts {
    since: i64,
    late: Cut,
    main: Cut,
}

impl Cuts {
    fn piece(&self, at_ms: i64) -> Piece {
        let late = at_ms < self.since;
        let cut = if late { &self.late } else { &self.main };
        Piece { late, number: cut.number(at_ms) }
    }
}

/// Writes all segments of a window. `written` gets those that are finished, even where it fails.
pub(super) fn write(
    store: &OrgStore,
    dir: &Path,
    id: StoreId,
    window: &Window,
    pace: &Pace<'_>,
    written: &mut Vec<SegmentMeta>,
) -> Result<(), SealError> {
    if let Some(least) = store.head.least_ms().filter(|least| *least < window.until) {
        write_kind(store, (dir, id, false), window, least, pace, written)?;
    }
    let beside = store.side.extent().map_or(window.until, |(least, _)| least);
    if store.side.has_closed() {
        store.side.note_end(window.end(store));
        write_kind(store, (dir, id, true), window, beside.min(window.until - 1), pace, written)?;
    }
    Ok(())
}

/// The floats, or what is beside them.
fn write_kind(
    store: &OrgStore,
    (dir, id, beside): (&Path, StoreId, bool),
    window: &Window,
    least: i64,
    pace: &Pace<'_>,
    written: &mut Vec<SegmentMeta>,
) -> Result<(), SealError> {
    let last = window.until - 1;
    let cuts = Cuts {
        since: window.since,
        late: Cut::of(least, last.min(window.since.saturating_sub(1))),
        main: Cut::of(least.max(window.since), last),
    };
    let mut wanted = None;
    loop {
        let mut pass = Pass {
            store,
            dir,
            id,
            beside,
            window,
            cuts: &cuts,
            wanted,
            open: BTreeMap::new(),
            later: BTreeSet::new(),
            numbers: Vec::new(),
        };
        let run = if beside { pass.run_beside(pace) } else { pass.run(pace) };
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
        wanted = Some(later);
    }
}

/// One walk over the head.
struct Pass<'t> {
    store: &'t OrgStore,
    dir: &'t Path,
    id: StoreId,
    /// Whether it is about histograms, start timestamps and exemplars.
    beside: bool,
    window: &'t Window,
    cuts: &'t Cuts,
    /// None: whatever there is.
    wanted: Option<BTreeSet<Piece>>,
    open: BTreeMap<Piece, Open>,
    /// Pieces that were seen and are for another pass.
    later: BTreeSet<Piece>,
    /// Those of the values at hand.
    numbers: Vec<u32>,
}

struct Open {
    writer: SegmentWriter,
    family: Option<usize>,
    /// By code of the label name and code of the value: the writer's number of that value.
    numbers: Vec<Vec<u32>>,
    /// Those that were full.
    finished: Vec<SegmentMeta>,
}

/// No number yet.
const UNKNOWN: u32 = u32::MAX;

impl Open {
    fn new(writer: SegmentWriter, finished: Vec<SegmentMeta>) -> Open {
        Open { writer, family: None, numbers: Vec::new(), finished }
    }

    /// The writer's numbers of a row's values, in `numbers`.
    fn number(&mut self, store: &OrgStore, row: &Row, numbers: &mut Vec<u32>) {
        numbers.clear();
        for (place, (name, code)) in row.names.iter().zip(&row.codes).enumerate() {
            let (name, code) = (*name as usize, *code as usize);
            let known = self.numbers.get(name).and_then(|numbers| numbers.get(code)).copied();
            if let Some(number) = known.filter(|number| *number != UNKNOWN) {
                numbers.push(number);
                continue;
            }
            let text = row.value(store, place);
            let number = self.writer.number(place, &text);
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

/// The labels of a series as the table has them.
#[derive(Default)]
struct Row {
    family: usize,
    /// Codes of the label names, ascending by their texts.
    names: Vec<u32>,
    /// Codes of the values.
    codes: Vec<u32>,
}

impl Row {
    /// Takes the labels of a series; answers whether it is in the family. `near` is the row to look at first.
    fn set(&mut self, store: &OrgStore, (family, id): (usize, u32), near: usize) -> bool {
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

    fn value(&self, store: &OrgStore, place: usize) -> Arc<str> {
        let table = store.table();
        let codes = self.names.get(place).zip(self.codes.get(place));
        let text = codes.and_then(|(name, code)| table.values(*name)?.text(*code));
        text.map_or_else(Arc::default, Arc::clone)
    }
}

impl Pass<'_> {
    fn run(&mut self, pace: &Pace<'_>) -> Result<(), SealError> {
        let mut watch = Stopwatch::start();
        let mut columns = SampleColumns::default();
        let mut bits = Vec::new();
        let mut row = Row::default();
        let families = self.store.table().families.len();
        for family in 0..families {
            let ids = self.ids(family);
            for (first, ids) in (0..).step_by(TOUCHED).zip(ids.chunks(TOUCHED)) {
                self.store.head.touch(ids);
                for (near, id) in (first..).zip(ids) {
                    columns.times.clear();
                    columns.values.clear();
                    self.store.head.copy_closed(*id, &mut columns);
                    if columns.times.is_empty() || !row.set(self.store, (family, *id), near) {
                        continue;
                    }
                    bits.clear();
                    bits.extend(columns.values.iter().map(|value| value.to_bits()));
                    self.series(*id, &row, &columns.times, &bits)?;
                    pace.rest(&mut watch);
                }
            }
        }
        Ok(())
    }

    /// The same for what is beside the floats: rows of how many observations each histogram counts, and runs of the rest.
    fn run_beside(&mut self, pace: &Pace<'_>) -> Result<(), SealError> {
        let mut watch = Stopwatch::start();
        let closed = self.store.side.closed_series();
        let (mut histograms, mut bits) = (HistogramColumns::default(), Vec::new());
        let mut row = Row::default();
        let families = self.store.table().families.len();
        for family in 0..families {
            for id in self.ids(family).into_iter().filter(|id| closed.binary_search(id).is_ok()) {
                histograms.clear();
                bits.clear();
                let (mut starts, mut late) = (Vec::new(), LateStarts::default());
                self.store.side.copy_closed(id, &mut histograms, &mut starts, &mut late);
                if !row.set(self.store, (family, id), 0) {
                    continue;
                }
                bits.extend(histograms.histograms.iter().map(|histogram| histogram.count().to_bits()));
                self.series(id, &row, &histograms.times, &bits)?;
                for (piece, span, run) in self.runs(&histograms, &starts, &late) {
                    self.put_run(piece, id, &run, span)?;
                }
                pace.rest(&mut watch);
            }
        }
        let mut run = Vec::new();
        sealed::put_exemplars(&mut run, self.store.side.exemplars().closed());
        if !run.is_empty() {
            let last = self.store.side.end();
            self.put_run(self.cuts.piece(last), sealed::EXEMPLARS_ID, &run, (last, last))?;
        }
        Ok(())
    }

    /// The runs of a series by piece; start timestamps go with the newest, since they hold until others come.
    fn runs(
        &self,
        histograms: &HistogramColumns,
        starts: &[(i64, i64)],
        late: &LateStarts,
    ) -> Vec<(Piece, (i64, i64), Vec<u8>)> {
        let last = self.store.side.end();
        let mut runs: BTreeMap<Piece, ((i64, i64), Vec<u8>)> = BTreeMap::new();
        let all: Vec<(i64, &Histogram)> =
            histograms.times.iter().copied().zip(&histograms.histograms).collect();
        for group in all.chunk_by(|a, b| self.cuts.piece(a.0) == self.cuts.piece(b.0)) {
            let (Some((first, _)), Some((end, _))) = (group.first(), group.last()) else { continue };
            let run = runs.entry(self.cuts.piece(*first)).or_insert(((*first, *end), Vec::new()));
            sealed::put_histograms(&mut run.1, group);
        }
        if !starts.is_empty() || !late.is_empty() {
            let run = runs.entry(self.cuts.piece(last)).or_insert(((last, last), Vec::new()));
            sealed::put_starts(&mut run.1, starts);
            sealed::put_late_starts(&mut run.1, late);
        }
        runs.into_iter().map(|(piece, (span, run))| (piece, span, run)).collect()
    }

    fn put_run(&mut self, piece: Piece, id: u32, run: &[u8], span: (i64, i64)) -> Result<(), SealError> {
        let org = self.store.org;
        match self.writer_of(piece)? {
            Some(open) => open.writer.put_side_data(id, run, span).map_err(|e| failed(org, e)),
            None => Ok(()),
        }
    }

    /// The series of a family, ascending.
    fn ids(&self, family: usize) -> Vec<u32> {
        let table = self.store.table();
        let mut ids = table.families.get(family).map(|family| family.ids.clone()).unwrap_or_default();
        drop(table);
        ids.sort_unstable();
        ids
    }

    fn series(&mut self, id: u32, row: &Row, times: &[i64], bits: &[u64]) -> Result<(), SealError> {
        let (mut times, mut bits) = (times, bits);
        while let Some(first) = times.first() {
            let piece = self.cuts.piece(*first);
            let count = times.partition_point(|at| self.cuts.piece(*at) == piece);
            let (Some((these_times, rest_times)), Some((these_bits, rest_bits))) =
                (times.split_at_checked(count), bits.split_at_checked(count))
            else {
                return Ok(());
            };
            (times, bits) = (rest_times, rest_bits);
            self.put(piece, id, row, (these_times, these_bits))?;
        }
        Ok(())
    }

    fn put(
        &mut self,
        piece: Piece,
        id: u32,
        row: &Row,
        (times, bits): (&[i64], &[u64]),
    ) -> Result<(), SealError> {
        let (org, store) = (self.store.org, self.store);
        let mut numbers = std::mem::take(&mut self.numbers);
        let Some(open) = self.writer_of(piece)? else { return Ok(()) };
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

    /// The writer of a piece; none where the piece is for another pass.
    fn writer_of(&mut self, piece: Piece) -> Result<Option<&mut Open>, SealError> {
        let is_wanted = self.wanted.as_ref().is_none_or(|wanted| wanted.contains(&piece));
        if !is_wanted {
            return Ok(None);
        }
        if !self.open.contains_key(&piece) && self.open.len() == OPEN_MAX {
            self.later.insert(piece);
            return Ok(None);
        }
        let org = self.store.org;
        // A writer is large: it is moved only where another one begins.
        if self.open.get(&piece).is_none_or(|open| open.writer.is_full()) {
            let open = match self.open.remove(&piece) {
                Some(open) => {
                    let mut finished = open.finished;
                    finished.push(open.writer.finish().map_err(|e| failed(org, e))?);
                    Open::new(self.create(piece)?, finished)
                }
                None => Open::new(self.create(piece)?, Vec::new()),
            };
            self.open.insert(piece, open);
        }
        Ok(self.open.get_mut(&piece))
    }

    fn create(&self, piece: Piece) -> Result<SegmentWriter, SealError> {
        let new = NewSegment {
            org: self.store.org,
            seq: self.store.next_segment.fetch_add(1, Ordering::Relaxed),
            level: 0,
            flags: if piece.late { LATE } else { 0 } | if self.beside { HISTOGRAMS } else { 0 },
            first_log_seq: self.window.first_log_seq,
            last_log_seq: self.window.last_log_seq,
            replaces: Vec::new(),
        };
        SegmentWriter::create(self.dir, self.id, new).map_err(|e| failed(self.store.org, e))
    }

    /// Finishes the segments; answers what is left for another pass.
    fn finish(self, written: &mut Vec<SegmentMeta>) -> Result<BTreeSet<Piece>, SealError> {
        let org = self.store.org;
        let mut first = None;
        for open in self.open.into_values() {
            written.extend(open.finished);
            match (&first, open.writer) {
                (None, writer) => match writer.finish() {
                    Ok(meta) => written.push(meta),
                    Err(e) => first = Some(failed(org, e)),
                },
                (Some(_), writer) => give_up(writer),
            }
        }
        first.map_or(Ok(self.later), Err)
    }

    /// Removes what is not finished; the caller does so with what is.
    fn abandon(self, written: &mut Vec<SegmentMeta>) {
        for open in self.open.into_values() {
            written.extend(open.finished);
            give_up(open.writer);
        }
    }
}

/// What is left of the file is removed by the next start, if not here.
fn give_up(writer: SegmentWriter) {
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
        fn however_long_the_time_the_pieces_are_few(first: i64, span in 0i64..i64::MAX, at in 0.0f64..1.0) {
            let last = first.saturating_add(span);
            let cut = Cut::of(first, last);
            prop_assert!(cut.number(last) - cut.number(first) < PIECES_MAX);
            #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "any moment will do")]
            let moment = first.saturating_add(((last.saturating_sub(first)) as f64 * at) as i64).min(last);
            prop_assert!((cut.number(first)..=cut.number(last)).contains(&cut.number(moment)));
        }
    }

    #[test]
    fn two_hours_stay_whole_and_longer_times_are_cut_at_days() {
        let noon = 12 * 3_600_000;
        assert_eq!(Cut::of(noon + 11 * 3_600_000, noon + 13 * 3_600_000).width, None);
        let cut = Cut::of(noon, noon + 3 * DAY_MS);
        assert_eq!((cut.number(DAY_MS - 1), cut.number(DAY_MS), cut.number(-1)), (0, 1, -1));
        assert_eq!(Cut::of(0, 30 * DAY_MS - 1).width, Some(DAY_MS));
        assert_eq!(Cut::of(0, 300 * DAY_MS).width, Some(11 * DAY_MS));
    }
}
