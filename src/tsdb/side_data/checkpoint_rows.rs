//! The side table in checkpoints: items, and their rows.
//!
//! A row of the side table has the head of every row of a generation, with 0 chunks (`checkpoint`),
//! then either items of several series, or a part of one item that does not fit such a row:
//! ```text
//! u8 5, then to the end, at least one:
//!    { varint series id - id of the item before, at first - that of the row's head,
//!      u8 kind (0, 1, 2 or 4), varint histograms (kinds 0 and 1 only), varint bytes, item }
//! u8 kind | 0x80 if the next row continues it, u16 histograms (0 for other kinds), part of an item
//!
//! kind 0 a chunk of histograms in order   1 of late ones     see `histogram_chunk`
//!      2 start timestamps   zigzag greatest time of a sample with a start,
//!                           varint n, n x {zigzag time, zigzag time - start}
//!      3 exemplars          as in their log record; of several series, the row's series id is 0
//!      4 late starts        varint n, n entries as in `late_starts`
//! ```
//! The items of a series are adjacent, and in rows with one row seq. Chunks ascend in time, and
//! late ones follow those in order. Rows of generations of version 1 never begin with 5.

use std::sync::Arc;

use super::late_starts::LateStarts;
use super::record::{self, RecordBody};
use super::start_timestamps::StartTimestamps;
use super::{STRIPE_SERIES, SideSeries, SideTable, read};
use crate::model::OrgId;
use crate::tsdb::codec::{Reader, put_varint, put_zigzag};
use crate::tsdb::error::Damage;

const IN_ORDER: u8 = 0;
const LATE: u8 = 1;
const STARTS: u8 = 2;
const EXEMPLARS: u8 = 3;
const LATE_STARTS: u8 = 4;
/// The first byte of a row with items of several series.
const PACK: u8 = 5;
/// Flag: the next row continues the item.
const GOES_ON: u8 = 0x80;
/// Bytes before a part of an item.
const PART_HEAD_BYTES: usize = 3;
/// Bytes before an item of a pack at most: step of the id, kind, histograms, length.
const PACKED_HEAD_MAX: usize = 5 + 1 + 3 + 3;
/// No further series is copied under one lock once the copies have this many bytes: nearly four
/// rows.
const GROUP_BYTES: usize = 15_000;
/// An item of exemplars is closed once it has this many bytes. One more exemplar is at most 1 kB.
const EXEMPLARS_SOFT: usize = 2_500;
/// Bytes of an item at most, when it is read: a million start timestamps.
const ITEM_BYTES_MAX: usize = 16 << 20;

/// The items of neighbouring series, or of all exemplars, in rows.
#[derive(Debug)]
pub(in crate::tsdb) struct CheckpointRows {
    /// Number of the last record whose content is included.
    pub(in crate::tsdb) row_seq: u64,
    /// Number of included histograms.
    pub(in crate::tsdb) histograms: u64,
    pub(in crate::tsdb) rows: Vec<SideRow>,
}

/// A row without its head.
#[derive(Debug)]
pub(in crate::tsdb) struct SideRow {
    /// The series of the first item.
    pub(in crate::tsdb) first: u32,
    /// Number of series of which the row holds items.
    pub(in crate::tsdb) series: u32,
    pub(in crate::tsdb) bytes: Vec<u8>,
}

/// Distributes items, which come in order of series, over rows of at most `row_max` bytes.
#[derive(Debug)]
struct RowPacker {
    row_max: usize,
    histograms: u64,
    rows: Vec<SideRow>,
    /// Bytes of all finished rows.
    finished: usize,
    /// The row that takes further items; without bytes if it has none yet.
    pack: SideRow,
    /// The series of the last item.
    last: u32,
}

impl RowPacker {
    const fn new(row_max: usize) -> RowPacker {
        let pack = SideRow { first: 0, series: 0, bytes: Vec::new() };
        RowPacker { row_max, histograms: 0, rows: Vec::new(), finished: 0, pack, last: 0 }
    }

    /// Returns the bytes of all rows.
    const fn bytes(&self) -> usize {
        self.finished + self.pack.bytes.len()
    }

    /// Adds the items of a series.
    fn series(&mut self, id: u32, series: &SideSeries, item: &mut Vec<u8>) {
        if let Some(histograms) = &series.histograms {
            histograms.copy_chunks(|late, count, chunk| {
                self.item(id, if late { LATE } else { IN_ORDER }, count, chunk);
            });
        }
        if !(series.starts.changes.is_empty() && series.starts.frozen_changes.is_empty()) {
            item.clear();
            series.starts.reopened().encode(item);
            self.item(id, STARTS, 0, item);
        }
        if !(series.starts.late.is_empty() && series.starts.frozen.is_empty()) {
            let mut late = series.starts.late.clone();
            late.add(&series.starts.frozen);
            item.clear();
            put_varint(item, late.len() as u64);
            item.append(&mut late.encode());
            self.item(id, LATE_STARTS, 0, item);
        }
    }

    /// Adds an item to the pack, or in parts if it does not fit any.
    fn item(&mut self, id: u32, kind: u8, histograms: u16, item: &[u8]) {
        let most = PACKED_HEAD_MAX + item.len();
        if self.pack.bytes.len() + most > self.row_max {
            self.finish_pack();
        }
        if 1 + most > self.row_max {
            return self.parts(id, kind, histograms, item);
        }
        let pack = &mut self.pack;
        if pack.bytes.is_empty() {
            (pack.first, pack.series) = (id, 1);
            pack.bytes.push(PACK);
            self.last = id;
        }
        pack.series += u32::from(self.last != id);
        put_varint(&mut pack.bytes, u64::from(id - self.last));
        self.last = id;
        pack.bytes.push(kind);
        if matches!(kind, IN_ORDER | LATE) {
            put_varint(&mut pack.bytes, u64::from(histograms));
        }
        put_varint(&mut pack.bytes, item.len() as u64);
        pack.bytes.extend_from_slice(item);
        self.histograms += u64::from(histograms);
    }

    /// Adds an item in as many rows as it needs.
    fn parts(&mut self, id: u32, kind: u8, histograms: u16, item: &[u8]) {
        self.histograms += u64::from(histograms);
        let mut parts = item.chunks(self.row_max.saturating_sub(PART_HEAD_BYTES).max(1)).peekable();
        while let Some(part) = parts.next() {
            let goes_on = if parts.peek().is_some() { GOES_ON } else { 0 };
            let mut bytes = vec![kind | goes_on];
            bytes.extend_from_slice(&histograms.to_le_bytes());
            bytes.extend_from_slice(part);
            self.finished += bytes.len();
            self.rows.push(SideRow { first: id, series: 1, bytes });
        }
    }

    fn finish_pack(&mut self) {
        if !self.pack.bytes.is_empty() {
            let next = SideRow { first: 0, series: 0, bytes: Vec::new() };
            self.finished += self.pack.bytes.len();
            self.rows.push(std::mem::replace(&mut self.pack, next));
        }
    }

    fn finish(mut self, row_seq: u64) -> CheckpointRows {
        self.finish_pack();
        CheckpointRows { row_seq, histograms: self.histograms, rows: self.rows }
    }
}

impl SideTable {
    /// Returns the content for a checkpoint, in rows of at most `row_max` bytes. Neighbouring
    /// series are copied under one lock, while the iterator is advanced.
    pub(in crate::tsdb) fn checkpoint_rows(&self, row_max: usize) -> impl Iterator<Item = CheckpointRows> {
        let mut from = Some(0);
        let series = std::iter::from_fn(move || {
            let (rows, next) = self.rows_from(from?, row_max)?;
            from = next;
            Some(rows)
        });
        series.chain(std::iter::once_with(move || self.exemplar_rows(row_max)))
    }

    /// Returns the rows of neighbouring series from `first` on, and the id with which the next ones
    /// begin. Returns None if there are no such series.
    fn rows_from(&self, first: u32, row_max: usize) -> Option<(CheckpointRows, Option<u32>)> {
        let (number, stripe) = {
            let stripes = read(&self.stripes);
            let (number, stripe) = stripes.range(first / STRIPE_SERIES..).next()?;
            (*number, Arc::clone(stripe))
        };
        let stripe = read(&stripe);
        let (mut packer, mut item) = (RowPacker::new(row_max), Vec::new());
        let mut next = number.checked_add(1).and_then(|next| next.checked_mul(STRIPE_SERIES));
        for (id, series) in stripe.series.range(first..) {
            if packer.bytes() >= GROUP_BYTES {
                next = Some(*id);
                break;
            }
            packer.series(*id, series, &mut item);
        }
        Some((packer.finish(stripe.applied_seq), next))
    }

    fn exemplar_rows(&self, row_max: usize) -> CheckpointRows {
        let exemplars = self.exemplars();
        let mut packer = RowPacker::new(row_max);
        let mut body = RecordBody::default();
        for (series, exemplar) in exemplars.in_order() {
            body.exemplar(series, exemplar);
            if body.bytes() >= EXEMPLARS_SOFT {
                packer.parts(0, EXEMPLARS, 0, &std::mem::take(&mut body).finish().0);
            }
        }
        if !body.is_empty() {
            packer.parts(0, EXEMPLARS, 0, &body.finish().0);
        }
        packer.finish(0)
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
                    s.histograms.get_or_insert_default().load_chunk(kind == LATE, histograms, item, from_ms)
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

/// The place into which rows are loaded.
#[derive(Clone, Copy)]
pub(in crate::tsdb) struct RowTarget<'t> {
    pub(in crate::tsdb) side: &'t SideTable,
    /// Returns whether the definition of a series is known.
    pub(in crate::tsdb) knows: &'t dyn Fn(u32) -> bool,
    /// All exemplars are loaded already, from segments.
    pub(in crate::tsdb) has_exemplars: bool,
}

/// The head of a row, and the times from which its content is not in segments.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct RowHead {
    pub(in crate::tsdb) org: OrgId,
    /// The series of the first item.
    pub(in crate::tsdb) series: u32,
    /// Number of the last record whose content is included.
    pub(in crate::tsdb) row_seq: u64,
    /// Histograms in order before this time are in segments.
    pub(in crate::tsdb) in_order_from_ms: i64,
    /// Late histograms and late starts before this time are in segments.
    pub(in crate::tsdb) late_from_ms: i64,
}

/// Loads the rows of a generation, which come in order, and joins parts of items.
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
    /// Adds a row without its head. Complete items are loaded into the target, except for data
    /// before the times of `head`, which is in segments. `on_series` is called with each series of
    /// the row.
    ///
    /// # Errors
    /// [`Damage`] if it is not a row, or does not continue the previous one.
    pub(in crate::tsdb) fn add(
        &mut self,
        head: RowHead,
        row: &[u8],
        to: RowTarget<'_>,
        mut on_series: impl FnMut(u32),
    ) -> Result<(), Damage> {
        let RowHead { org, series: id, .. } = head;
        let mut reader = Reader::new(row);
        let flags = reader.u8()?;
        if flags == PACK {
            return match self.open {
                None => load_pack(head, row, to, on_series),
                Some(_) => Err(reader.damage("a side row does not continue the one before")),
            };
        }
        let histograms = reader.u16()?;
        let part = reader.take(reader.left())?;
        let kind = flags & !GOES_ON;
        if kind != EXEMPLARS && !(to.knows)(id) {
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
        on_series(id);
        if flags & GOES_ON != 0 {
            self.open = Some(open);
            return Ok(());
        }
        if to.has_exemplars && kind == EXEMPLARS {
            return Ok(());
        }
        to.side.load(&head, kind, histograms, &open.bytes)
    }

    /// Checks that the last item is complete.
    ///
    /// # Errors
    /// [`Damage`] if the last item is cut short.
    pub(in crate::tsdb) fn end(&self) -> Result<(), Damage> {
        if self.open.is_none() { Ok(()) } else { Err(Damage::new(0, "the last side row is not continued")) }
    }
}

/// Loads the items of a row with [`PACK`].
fn load_pack(
    head: RowHead,
    row: &[u8],
    to: RowTarget<'_>,
    mut on_series: impl FnMut(u32),
) -> Result<(), Damage> {
    let mut reader = Reader::new(row);
    reader.u8()?;
    let mut id = head.series;
    loop {
        let step = u32::try_from(reader.varint()?).ok();
        let next = step.and_then(|step| id.checked_add(step));
        id = next.ok_or_else(|| reader.damage("series id over 32 bits"))?;
        if !(to.knows)(id) {
            return Err(reader.damage("a series without a definition"));
        }
        let kind = reader.u8()?;
        let histograms = match kind {
            IN_ORDER | LATE => {
                u16::try_from(reader.varint()?).map_err(|_| reader.damage("too many histograms"))?
            }
            STARTS | LATE_STARTS => 0,
            _ => return Err(reader.damage("unknown kind of item in a side row")),
        };
        let bytes = reader.count(1)?;
        let offset = (row.len() - reader.left()) as u64;
        let item = reader.take(bytes)?;
        to.side
            .load(&RowHead { series: id, ..head }, kind, histograms, item)
            .map_err(|damage| Damage { offset: offset + damage.offset, ..damage })?;
        on_series(id);
        if reader.left() == 0 {
            return Ok(());
        }
    }
}

impl StartTimestamps {
    /// Appends the changes as an item of kind 2.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_zigzag(out, self.last_at.unwrap_or(i64::MIN));
        put_varint(out, self.changes.len() as u64);
        for (at, start) in &self.changes {
            put_zigzag(out, *at);
            put_zigzag(out, at.wrapping_sub(*start));
        }
    }

    /// Decodes the bytes of [`StartTimestamps::encode`].
    ///
    /// # Errors
    /// [`Damage`] if the bytes are not such an item.
    pub(super) fn decode(bytes: &[u8]) -> Result<StartTimestamps, Damage> {
        let mut reader = Reader::new(bytes);
        let last_at = Some(reader.zigzag()?);
        let count = reader.count(2)?;
        let mut changes: Vec<(i64, i64)> = Vec::with_capacity(count);
        for _ in 0..count {
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
mod tests;
