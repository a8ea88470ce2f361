//! The side table in checkpoints: items, and the pieces of at most a row that they are cut into.
//!
//! A row of the side table has the head of every row of a generation, with 0 chunks (`checkpoint`), then
//! ```text
//! u8 kind | 0x80 if the next row goes on with it, u16 histograms (0 for other kinds), piece
//! kind 0 a chunk of histograms in order   1 of late ones     as drawn in `chunk`
//!      2 start timestamps   zigzag greatest time of a sample that said one, varint n, n x {zigzag time, zigzag time - start}
//!      3 exemplars          as in their log record; of several series, the row's series id is 0
//!      4 late starts        varint n, n entries as drawn in `points`
//! ```
//! Rows of one series stand together, chunks in order of time, late ones after those in order.

use super::points::Points;
use super::record::{self, Body};
use super::starts::Starts;
use super::{Series, Side, read};
use crate::model::OrgId;
use crate::tsdb::codec::{Reader, put_varint, put_zigzag};
use crate::tsdb::error::Damage;

const IN_ORDER: u8 = 0;
const LATE: u8 = 1;
const STARTS: u8 = 2;
const EXEMPLARS: u8 = 3;
const LATE_STARTS: u8 = 4;
const GOES_ON: u8 = 0x80;
/// Bytes of an item's head.
const ITEM_HEAD_BYTES: usize = 3;
/// Bytes of exemplars of one item before it is closed; one more is at most 1 kB.
const EXEMPLARS_SOFT: usize = 2_500;
/// Bytes of an item at most, when reading: a million start timestamps.
const ITEM_BYTES_MAX: usize = 16 << 20;

/// One series, or the exemplars, in pieces that fit rows.
#[derive(Debug)]
pub(in crate::tsdb) struct Rows {
    pub(in crate::tsdb) series: u32,
    /// Records up to this one are in it.
    pub(in crate::tsdb) row_seq: u64,
    /// Histograms in it.
    pub(in crate::tsdb) histograms: u64,
    pub(in crate::tsdb) pieces: Vec<Vec<u8>>,
}

impl Rows {
    fn new(series: u32, row_seq: u64) -> Rows {
        Rows { series, row_seq, histograms: 0, pieces: Vec::new() }
    }

    fn item(&mut self, kind: u8, histograms: u16, item: &[u8], piece_max: usize) {
        let mut rest = item;
        self.histograms += u64::from(histograms);
        loop {
            let (piece, after) =
                rest.split_at(rest.len().min(piece_max.saturating_sub(ITEM_HEAD_BYTES).max(1)));
            let goes_on = if after.is_empty() { 0 } else { GOES_ON };
            let mut row = vec![kind | goes_on];
            row.extend_from_slice(&histograms.to_le_bytes());
            row.extend_from_slice(piece);
            self.pieces.push(row);
            rest = after;
            if rest.is_empty() {
                return;
            }
        }
    }
}

impl Side {
    /// The ids of all series that have something here, ascending.
    pub(in crate::tsdb) fn series(&self) -> Vec<u32> {
        self.all().iter().flat_map(|stripe| read(stripe).series.keys().copied().collect::<Vec<_>>()).collect()
    }

    /// What a checkpoint keeps of a series, in pieces of at most `piece_max` bytes.
    pub(in crate::tsdb) fn rows_of(&self, id: u32, piece_max: usize) -> Option<Rows> {
        let stripe = self.stripe(id)?;
        let stripe = read(&stripe);
        let series = stripe.series.get(&id)?;
        let mut rows = Rows::new(id, stripe.applied_seq);
        series.histograms.copy_chunks(|late, count, chunk| {
            rows.item(if late { LATE } else { IN_ORDER }, count, chunk, piece_max);
        });
        if !(series.starts.changes.is_empty() && series.starts.frozen_changes.is_empty()) {
            rows.item(STARTS, 0, &series.starts.reopened().encode(), piece_max);
        }
        let (mut late, mut item) = (series.starts.late.clone(), Vec::new());
        late.add(&series.starts.frozen);
        if !late.is_empty() {
            put_varint(&mut item, late.len() as u64);
            item.append(&mut late.encode());
            rows.item(LATE_STARTS, 0, &item, piece_max);
        }
        (!rows.pieces.is_empty()).then_some(rows)
    }

    /// The exemplars, in pieces of at most `piece_max` bytes.
    pub(in crate::tsdb) fn exemplar_rows(&self, piece_max: usize) -> Option<Rows> {
        let exemplars = self.exemplars();
        let mut rows = Rows::new(0, 0);
        let mut body = Body::default();
        for (series, exemplar) in exemplars.in_order() {
            body.exemplar(series, exemplar);
            if body.bytes() >= EXEMPLARS_SOFT {
                rows.item(EXEMPLARS, 0, &std::mem::take(&mut body).finish().0, piece_max);
            }
        }
        if !body.is_empty() {
            rows.item(EXEMPLARS, 0, &body.finish().0, piece_max);
        }
        (!rows.pieces.is_empty()).then_some(rows)
    }

    /// Takes an item over from a checkpoint.
    fn load(
        &self,
        (row_seq, from_ms): (u64, (i64, i64)),
        id: u32,
        kind: u8,
        histograms: u16,
        item: &[u8],
    ) -> Result<(), Damage> {
        match kind {
            IN_ORDER | LATE => {
                self.any.store(true, std::sync::atomic::Ordering::Release);
                let from_ms = if kind == LATE { from_ms.1 } else { from_ms.0 };
                self.change(row_seq, id, |s: &mut Series| {
                    s.histograms.load_chunk(kind == LATE, histograms, item, from_ms)
                })
            }
            STARTS => {
                let starts = Starts::decode(item)?;
                self.change(row_seq, id, |series| {
                    // What came late may stand there already.
                    let late = std::mem::take(&mut series.starts.late);
                    series.starts = Starts { late, ..starts };
                });
                Ok(())
            }
            LATE_STARTS => {
                let mut late = Points::default();
                let mut reader = Reader::new(item);
                let entries = reader.count(3)?;
                late.decode(entries as u64, reader.rest())?;
                // Segments have the others.
                late.retain(|at| at >= from_ms.1);
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

/// What is there without a row.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct Have {
    /// A definition of its series.
    pub(in crate::tsdb) series: bool,
    /// Whatever exemplars there are to be.
    pub(in crate::tsdb) exemplars: bool,
}

/// Joins the pieces of a generation's rows, which come in order.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Joiner {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    org: OrgId,
    id: u32,
    kind: u8,
    histograms: u16,
    bytes: Vec<u8>,
}

impl Joiner {
    /// Takes a piece; a whole item goes into `side`, but for what is before `from_ms` (in order, late): segments have it.
    ///
    /// # Errors
    /// [`Damage`] where it is none, or does not go on what went before.
    pub(in crate::tsdb) fn add(
        &mut self,
        (org, id, row_seq, from_ms): (OrgId, u32, u64, (i64, i64)),
        piece: &[u8],
        side: &Side,
        have: Have,
    ) -> Result<(), Damage> {
        let mut reader = Reader::new(piece);
        let (flags, histograms) = (reader.u8()?, reader.u16()?);
        let piece = reader.take(reader.left())?;
        let kind = flags & !GOES_ON;
        if !have.series && kind != EXEMPLARS {
            return Err(reader.damage("a series that nothing defines"));
        }
        let mut open = match self.open.take() {
            None => Open { org, id, kind, histograms, bytes: Vec::new() },
            Some(open) if (open.org, open.id, open.kind, open.histograms) == (org, id, kind, histograms) => {
                open
            }
            Some(_) => return Err(reader.damage("a side row does not go on the one before")),
        };
        if open.bytes.len() + piece.len() > ITEM_BYTES_MAX {
            return Err(reader.damage("an item of the side table is too long"));
        }
        open.bytes.extend_from_slice(piece);
        if flags & GOES_ON != 0 {
            self.open = Some(open);
            return Ok(());
        }
        if have.exemplars && kind == EXEMPLARS {
            return Ok(());
        }
        side.load((row_seq, from_ms), id, kind, histograms, &open.bytes)
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// [`Damage`] where the last item was cut short.
    pub(in crate::tsdb) fn end(&self) -> Result<(), Damage> {
        if self.open.is_none() { Ok(()) } else { Err(Damage::new(0, "the last side row goes on nowhere")) }
    }
}

impl Starts {
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

    /// Reads what [`Starts::encode`] wrote.
    ///
    /// # Errors
    /// [`Damage`] where it is none.
    pub(in crate::tsdb) fn decode(bytes: &[u8]) -> Result<Starts, Damage> {
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
        Ok(Starts { changes, last_at, news: true, ..Starts::default() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{any_histogram, exponential};
    use super::*;
    use crate::model::{Exemplar, HistogramColumns, Labels, TimeRange, Timestamp};
    use crate::tsdb::wal::record::RecordKind;

    type Content = (Vec<HistogramColumns>, Vec<(Vec<(i64, i64)>, Points)>, Vec<(u32, Exemplar)>);

    fn content(side: &Side) -> Content {
        let of = |id| {
            let (mut histograms, mut starts) = (HistogramColumns::default(), (Vec::new(), Points::default()));
            side.read_histograms(id, TimeRange::ALL, &mut histograms);
            side.starts(id, &mut starts.0, &mut starts.1);
            (histograms, starts)
        };
        let (histograms, starts) = (0..3000).step_by(999).map(of).unzip();
        let exemplars = side.exemplars().in_order().into_iter().map(|(s, e)| (s, e.clone())).collect();
        (histograms, starts, exemplars)
    }

    fn apply(side: &Side, seq: u64, kind: RecordKind, fill: impl FnOnce(&mut Body)) {
        let mut body = Body::default();
        fill(&mut body);
        if !body.is_empty() {
            side.apply((seq, kind, &body.finish().0), |_| true, |_, _| false, |_| ()).expect("applied");
        }
    }

    fn all_rows(side: &Side, piece_max: usize) -> Vec<Rows> {
        let series = side.series().into_iter().filter_map(|id| side.rows_of(id, piece_max));
        series.chain(side.exemplar_rows(piece_max)).collect()
    }

    proptest! {
        #[test]
        fn what_was_copied_comes_back(
            histograms in prop::collection::vec((0u32..4, -50i64..50, any_histogram()), 0..60),
            starts in prop::collection::vec((0u32..4, -50i64..50, 1i64..4), 0..30),
            exemplars in prop::collection::vec((0u32..4, 0i64..50, "[a-z]{0,9}"), 0..30),
            piece_max in 4usize..200,
            barrier in prop_oneof![Just(i64::MIN), -60i64..60],
        ) {
            let side = Side::new(Default::default());
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
            let again = Side::new(Default::default());
            let mut joiner = Joiner::default();
            for rows in all_rows(&side, piece_max) {
                for piece in &rows.pieces {
                    prop_assert!(piece.len() <= piece_max);
                    prop_assert_eq!(joiner.add((OrgId(1), rows.series, rows.row_seq, (i64::MIN, i64::MIN)), piece, &again, Have { series: true, exemplars: false }), Ok(()));
                }
            }
            prop_assert_eq!(joiner.end(), Ok(()));
            prop_assert_eq!(content(&again), content(&side));
            let count = |side: &Side| side.counters.histograms.load(std::sync::atomic::Ordering::Relaxed);
            prop_assert_eq!(count(&again), count(&side));
        }

        #[test]
        fn a_reader_never_panics(pieces in prop::collection::vec((0u32..2, prop::collection::vec(any::<u8>(), 0..60)), 0..4), kind in 0u8..5) {
            let side = Side::new(Default::default());
            let mut joiner = Joiner::default();
            for (id, mut piece) in pieces {
                if let Some(first) = piece.first_mut() {
                    *first = *first & GOES_ON | kind;
                }
                let _ = joiner.add((OrgId(1), id, 0, (0, 0)), &piece, &side, Have { series: true, exemplars: false });
            }
        }
    }

    #[test]
    fn the_bytes_are_the_drawing() {
        let side = Side::new(Default::default());
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
        let hex: Vec<String> = rows.pieces.iter().map(|p| data_encoding::HEXLOWER.encode(p)).collect();
        let drawn = [
            "80 0100 0000 0000000000000000 00",
            "00 0100 00 00 02 00 00 06 06",
            "02 0000 02 01 02 04",
            "04 0000 01 00 03 0e",
        ];
        assert_eq!(hex, drawn.map(|row| row.replace(' ', "")));
    }
}
