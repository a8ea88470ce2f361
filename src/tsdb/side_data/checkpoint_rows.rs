//! The side table in checkpoints: items, and their parts, each of which fits a row.
//!
//! A row of the side table has the head of every row of a generation, with 0 chunks (`checkpoint`),
//! then:
//! ```text
//! u8 kind | 0x80 if the next row continues it, u16 histograms (0 for other kinds), part of an item
//! kind 0 a chunk of histograms in order   1 of late ones     see `histogram_chunk`
//!      2 start timestamps   zigzag greatest time of a sample with a start,
//!                           varint n, n x {zigzag time, zigzag time - start}
//!      3 exemplars          as in their log record; of several series, the row's series id is 0
//!      4 late starts        varint n, n entries as in `late_starts`
//! ```
//! The rows of a series are adjacent. Chunks ascend in time, and late ones follow those in order.

use super::late_starts::LateStarts;
use super::record::{self, RecordBody};
use super::start_timestamps::StartTimestamps;
use super::{SideSeries, SideTable, read};
use crate::model::OrgId;
use crate::tsdb::codec::{Reader, put_varint, put_zigzag};
use crate::tsdb::error::Damage;

const IN_ORDER: u8 = 0;
const LATE: u8 = 1;
const STARTS: u8 = 2;
const EXEMPLARS: u8 = 3;
const LATE_STARTS: u8 = 4;
/// Flag: the next row continues the item.
const GOES_ON: u8 = 0x80;
/// Bytes of an item's head in each row.
const ITEM_HEAD_BYTES: usize = 3;
/// An item of exemplars is closed once it has this many bytes. One more exemplar is at most 1 kB.
const EXEMPLARS_SOFT: usize = 2_500;
/// Bytes of an item at most, when it is read: a million start timestamps.
const ITEM_BYTES_MAX: usize = 16 << 20;

/// The items of one series, or of all exemplars, in parts that fit rows.
#[derive(Debug)]
pub(in crate::tsdb) struct CheckpointRows {
    pub(in crate::tsdb) series: u32,
    /// Number of the last record whose content is included.
    pub(in crate::tsdb) row_seq: u64,
    /// Number of included histograms.
    pub(in crate::tsdb) histograms: u64,
    pub(in crate::tsdb) parts: Vec<Vec<u8>>,
}

impl CheckpointRows {
    fn new(series: u32, row_seq: u64) -> CheckpointRows {
        CheckpointRows { series, row_seq, histograms: 0, parts: Vec::new() }
    }

    /// Appends an item in as many parts as it needs.
    fn item(&mut self, kind: u8, histograms: u16, item: &[u8], part_max: usize) {
        let mut rest = item;
        self.histograms += u64::from(histograms);
        loop {
            let (part, after) =
                rest.split_at(rest.len().min(part_max.saturating_sub(ITEM_HEAD_BYTES).max(1)));
            let goes_on = if after.is_empty() { 0 } else { GOES_ON };
            let mut row = vec![kind | goes_on];
            row.extend_from_slice(&histograms.to_le_bytes());
            row.extend_from_slice(part);
            self.parts.push(row);
            rest = after;
            if rest.is_empty() {
                return;
            }
        }
    }
}

impl SideTable {
    /// Returns the ids of all series in the table, ascending.
    pub(in crate::tsdb) fn series(&self) -> Vec<u32> {
        self.all().iter().flat_map(|stripe| read(stripe).series.keys().copied().collect::<Vec<_>>()).collect()
    }

    /// Returns the content of a series for a checkpoint, in parts of at most `part_max` bytes.
    pub(in crate::tsdb) fn rows_of(&self, id: u32, part_max: usize) -> Option<CheckpointRows> {
        let stripe = self.stripe(id)?;
        let stripe = read(&stripe);
        let series = stripe.series.get(&id)?;
        let mut rows = CheckpointRows::new(id, stripe.applied_seq);
        series.histograms.copy_chunks(|late, count, chunk| {
            rows.item(if late { LATE } else { IN_ORDER }, count, chunk, part_max);
        });
        if !(series.starts.changes.is_empty() && series.starts.frozen_changes.is_empty()) {
            rows.item(STARTS, 0, &series.starts.reopened().encode(), part_max);
        }
        let (mut late, mut item) = (series.starts.late.clone(), Vec::new());
        late.add(&series.starts.frozen);
        if !late.is_empty() {
            put_varint(&mut item, late.len() as u64);
            item.append(&mut late.encode());
            rows.item(LATE_STARTS, 0, &item, part_max);
        }
        (!rows.parts.is_empty()).then_some(rows)
    }

    /// Returns the exemplars for a checkpoint, in parts of at most `part_max` bytes.
    pub(in crate::tsdb) fn exemplar_rows(&self, part_max: usize) -> Option<CheckpointRows> {
        let exemplars = self.exemplars();
        let mut rows = CheckpointRows::new(0, 0);
        let mut body = RecordBody::default();
        for (series, exemplar) in exemplars.in_order() {
            body.exemplar(series, exemplar);
            if body.bytes() >= EXEMPLARS_SOFT {
                rows.item(EXEMPLARS, 0, &std::mem::take(&mut body).finish().0, part_max);
            }
        }
        if !body.is_empty() {
            rows.item(EXEMPLARS, 0, &body.finish().0, part_max);
        }
        (!rows.parts.is_empty()).then_some(rows)
    }

    /// Loads an item of a checkpoint. Histograms and late starts before `from_ms` are in segments
    /// and left out.
    fn load(&self, head: &RowHead, kind: u8, histograms: u16, item: &[u8]) -> Result<(), Damage> {
        let RowHead { series: id, row_seq, in_order_from_ms, late_from_ms, .. } = *head;
        match kind {
            IN_ORDER | LATE => {
                self.any.store(true, std::sync::atomic::Ordering::Release);
                let from_ms = if kind == LATE { late_from_ms } else { in_order_from_ms };
                self.change(row_seq, id, |s: &mut SideSeries| {
                    s.histograms.load_chunk(kind == LATE, histograms, item, from_ms)
                })
            }
            STARTS => {
                let starts = StartTimestamps::decode(item)?;
                self.change(row_seq, id, |series| {
                    // Late starts may have been loaded before.
                    let late = std::mem::take(&mut series.starts.late);
                    series.starts = StartTimestamps { late, ..starts };
                });
                Ok(())
            }
            LATE_STARTS => {
                let mut late = LateStarts::default();
                let mut reader = Reader::new(item);
                let entries = reader.count(3)?;
                late.decode(entries as u64, reader.rest())?;
                // Earlier ones are in segments.
                late.retain(|at| at >= late_from_ms);
                self.change(row_seq, id, |series| series.starts.late.add(&late));
                Ok(())
            }
            EXEMPLARS => self.change_exemplars(|exemplars| {
                record::decode_exemplars(item, |series, exemplar| {
                    exemplars.put(series, exemplar);
                })
            }),
            _ => Err(Damage::new(0, "unknown kind of side row")),
        }
    }
}

/// What is known apart from the row that is loaded.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct AlreadyLoaded {
    /// The definition of the series is known.
    pub(in crate::tsdb) series: bool,
    /// All exemplars are loaded already, from segments.
    pub(in crate::tsdb) exemplars: bool,
}

/// The head of a row, and the times from which its content is not in segments.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct RowHead {
    pub(in crate::tsdb) org: OrgId,
    pub(in crate::tsdb) series: u32,
    /// Number of the last record whose content is included.
    pub(in crate::tsdb) row_seq: u64,
    /// Histograms in order before this time are in segments.
    pub(in crate::tsdb) in_order_from_ms: i64,
    /// Late histograms and late starts before this time are in segments.
    pub(in crate::tsdb) late_from_ms: i64,
}

/// Joins the parts of the rows of a generation, which come in order.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct RowJoiner {
    open: Option<PartialItem>,
}

/// An item of which some parts have been added.
#[derive(Debug)]
struct PartialItem {
    org: OrgId,
    id: u32,
    kind: u8,
    histograms: u16,
    bytes: Vec<u8>,
}

impl RowJoiner {
    /// Adds a part. A complete item is loaded into `side`, except for what is before `from_ms`,
    /// which is in segments.
    ///
    /// # Errors
    /// [`Damage`] if it is not a part, or does not continue the previous one.
    pub(in crate::tsdb) fn add(
        &mut self,
        head: RowHead,
        part: &[u8],
        side: &SideTable,
        have: AlreadyLoaded,
    ) -> Result<(), Damage> {
        let RowHead { org, series: id, .. } = head;
        let mut reader = Reader::new(part);
        let (flags, histograms) = (reader.u8()?, reader.u16()?);
        let part = reader.take(reader.left())?;
        let kind = flags & !GOES_ON;
        if !have.series && kind != EXEMPLARS {
            return Err(reader.damage("a series without a definition"));
        }
        let mut open = match self.open.take() {
            None => PartialItem { org, id, kind, histograms, bytes: Vec::new() },
            Some(open) if (open.org, open.id, open.kind, open.histograms) == (org, id, kind, histograms) => {
                open
            }
            Some(_) => return Err(reader.damage("a side row does not continue the one before")),
        };
        if open.bytes.len() + part.len() > ITEM_BYTES_MAX {
            return Err(reader.damage("an item of the side table is too long"));
        }
        open.bytes.extend_from_slice(part);
        if flags & GOES_ON != 0 {
            self.open = Some(open);
            return Ok(());
        }
        if have.exemplars && kind == EXEMPLARS {
            return Ok(());
        }
        side.load(&head, kind, histograms, &open.bytes)
    }

    /// Checks that the last item is complete.
    ///
    /// # Errors
    /// [`Damage`] if the last item is cut short.
    pub(in crate::tsdb) fn end(&self) -> Result<(), Damage> {
        if self.open.is_none() { Ok(()) } else { Err(Damage::new(0, "the last side row is not continued")) }
    }
}

impl StartTimestamps {
    /// Encodes the changes as an item of kind 2.
    pub(in crate::tsdb) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_zigzag(&mut out, self.last_at.unwrap_or(i64::MIN));
        put_varint(&mut out, self.changes.len() as u64);
        for (at, start) in &self.changes {
            put_zigzag(&mut out, *at);
            put_zigzag(&mut out, at.wrapping_sub(*start));
        }
        out
    }

    /// Decodes what [`StartTimestamps::encode`] has written.
    ///
    /// # Errors
    /// [`Damage`] if the bytes are not such an item.
    pub(in crate::tsdb) fn decode(bytes: &[u8]) -> Result<StartTimestamps, Damage> {
        let mut reader = Reader::new(bytes);
        let last_at = Some(reader.zigzag()?);
        let mut changes: Vec<(i64, i64)> = Vec::new();
        for _ in 0..reader.count(2)? {
            let at = reader.zigzag()?;
            if changes.last().is_some_and(|(last, _)| *last >= at) {
                return Err(reader.damage("start timestamps do not ascend"));
            }
            changes.push((at, at.wrapping_sub(reader.zigzag()?)));
        }
        reader.end()?;
        Ok(StartTimestamps { changes, last_at, news: true, ..StartTimestamps::default() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::SideRecord;
    use super::super::tests::{any_histogram, exponential};
    use super::*;
    use crate::model::{Exemplar, HistogramColumns, Labels, TimeRange, Timestamp};
    use crate::tsdb::wal::record::RecordKind;

    type SideContent = (Vec<HistogramColumns>, Vec<(Vec<(i64, i64)>, LateStarts)>, Vec<(u32, Exemplar)>);

    fn content(side: &SideTable) -> SideContent {
        let of = |id| {
            let (mut histograms, mut starts) =
                (HistogramColumns::default(), (Vec::new(), LateStarts::default()));
            side.read_histograms(id, TimeRange::ALL, &mut histograms);
            side.starts(id, &mut starts.0, &mut starts.1);
            (histograms, starts)
        };
        let (histograms, starts) = (0..3000).step_by(999).map(of).unzip();
        let exemplars = side.exemplars().in_order().into_iter().map(|(s, e)| (s, e.clone())).collect();
        (histograms, starts, exemplars)
    }

    fn apply(side: &SideTable, seq: u64, kind: RecordKind, fill: impl FnOnce(&mut RecordBody)) {
        let mut body = RecordBody::default();
        fill(&mut body);
        if !body.is_empty() {
            side.apply(SideRecord { seq, kind, body: &body.finish().0 }, |_| true, |_, _| false, |_| ())
                .expect("applied");
        }
    }

    fn row_head(series: u32, row_seq: u64, from_ms: i64) -> RowHead {
        RowHead { org: OrgId(1), series, row_seq, in_order_from_ms: from_ms, late_from_ms: from_ms }
    }

    fn all_rows(side: &SideTable, part_max: usize) -> Vec<CheckpointRows> {
        let series = side.series().into_iter().filter_map(|id| side.rows_of(id, part_max));
        series.chain(side.exemplar_rows(part_max)).collect()
    }

    proptest! {
        #[test]
        fn a_checkpoint_restores_the_side_table(
            histograms in prop::collection::vec((0u32..4, -50i64..50, any_histogram()), 0..60),
            starts in prop::collection::vec((0u32..4, -50i64..50, 1i64..4), 0..30),
            exemplars in prop::collection::vec((0u32..4, 0i64..50, "[a-z]{0,9}"), 0..30),
            part_max in 4usize..200,
            barrier in prop_oneof![Just(i64::MIN), -60i64..60],
        ) {
            let side = SideTable::new(Default::default());
            side.close_window(barrier);
            for (seq, (id, at, histogram)) in histograms.iter().enumerate() {
                apply(&side, seq as u64, RecordKind::Histograms, |body| body.histograms(id * 999, &[(*at, histogram)]));
            }
            apply(&side, 99, RecordKind::Starts, |body| {
                for (id, at_ms, start_ms) in &starts {
                    body.start(record::LogStart { series: id * 999, at_ms: *at_ms, start_ms: *start_ms });
                }
            });
            apply(&side, 100, RecordKind::Exemplars, |body| {
                for (id, at, text) in &exemplars {
                    let labels = Labels::from_pairs([("trace_id", text.as_str())]);
                    body.exemplar(id * 999, &Exemplar { labels, value: 1.0, at: Timestamp::from_ms(*at) });
                }
            });
            let again = SideTable::new(Default::default());
            let mut joiner = RowJoiner::default();
            for rows in all_rows(&side, part_max) {
                for part in &rows.parts {
                    prop_assert!(part.len() <= part_max);
                    prop_assert_eq!(joiner.add(row_head(rows.series, rows.row_seq, i64::MIN), part, &again, AlreadyLoaded { series: true, exemplars: false }), Ok(()));
                }
            }
            prop_assert_eq!(joiner.end(), Ok(()));
            prop_assert_eq!(content(&again), content(&side));
            let count = |side: &SideTable| side.counters.histograms.load(std::sync::atomic::Ordering::Relaxed);
            prop_assert_eq!(count(&again), count(&side));
        }

        #[test]
        fn a_reader_never_panics(parts in prop::collection::vec((0u32..2, prop::collection::vec(any::<u8>(), 0..60)), 0..4), kind in 0u8..5) {
            let side = SideTable::new(Default::default());
            let mut joiner = RowJoiner::default();
            for (id, mut part) in parts {
                if let Some(first) = part.first_mut() {
                    *first = *first & GOES_ON | kind;
                }
                let _ = joiner.add(row_head(id, 0, 0), &part, &side, AlreadyLoaded { series: true, exemplars: false });
            }
        }
    }

    #[test]
    fn the_bytes_match_the_documented_format() {
        let side = SideTable::new(Default::default());
        let histogram = exponential(0, 0.0, &[], &[], 0.0, 3, &[]);
        apply(&side, 5, RecordKind::Histograms, |body| body.histograms(7, &[(1, &histogram)]));
        apply(&side, 6, RecordKind::Starts, |body| {
            body.start(record::LogStart { series: 7, at_ms: 1, start_ms: -1 });
        });
        side.close_window(1);
        apply(&side, 7, RecordKind::Starts, |body| {
            body.start(record::LogStart { series: 7, at_ms: 0, start_ms: -2 });
        });
        let rows = side.rows_of(7, 14).expect("some");
        assert_eq!((rows.series, rows.row_seq, rows.histograms), (7, 7, 1));
        let hex: Vec<String> = rows.parts.iter().map(|p| data_encoding::HEXLOWER.encode(p)).collect();
        let drawn = [
            "80 0100 0000 0000000000000000 00",
            "00 0100 00 00 02 00 00 06 06",
            "02 0000 02 01 02 04",
            "04 0000 01 00 03 0e",
        ];
        assert_eq!(hex, drawn.map(|row| row.replace(' ', "")));
    }
}
