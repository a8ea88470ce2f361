//! The native histograms of one series that are not in a segment.
//!
//! The same rules as for floats ([`super::super::head`]): before the barrier, late; later than the last one, appended; at
//! the same time, dropped where every bit is the same and else refused; earlier, late, and the last write wins.

use std::collections::BTreeMap;

use super::histogram_chunk::{self, HistogramDecoder, HistogramEncoder};
use super::late_histograms::LateHistograms;
use crate::model::{Histogram, HistogramColumns};
use crate::tsdb::error::Damage;

/// What became of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum PutHistogram {
    /// It is there now, or was there bit for bit.
    Stored,
    /// The last one has this time and other bits.
    Refused,
}

#[derive(Debug)]
struct ClosedChunk {
    first: i64,
    last: i64,
    rows: u16,
    bytes: Box<[u8]>,
}

/// In order: closed chunks, then the open one. Beside them the late ones, and those that a seal has set aside.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Histograms {
    /// The greatest time that came in order; what is released is not forgotten here.
    last: Option<i64>,
    closed: Vec<ClosedChunk>,
    /// CheckpointRows and memory of the closed ones, which are counted after every record.
    closed_rows: u64,
    closed_bytes: usize,
    open: Option<HistogramEncoder>,
    late: LateHistograms,
    frozen: LateHistograms,
}

impl Histograms {
    /// Takes a histogram; what becomes of it depends on those before it, and the barrier, alone.
    pub(in crate::tsdb) fn put(&mut self, at: i64, histogram: Histogram, barrier: i64) -> PutHistogram {
        if at >= barrier && self.last.is_none_or(|last| at > last) {
            // A deletion may have left a late one behind where nothing is in order any more.
            self.late.remove(at);
            self.frozen.remove(at);
            self.append(at, &histogram);
            return PutHistogram::Stored;
        }
        if at >= barrier && self.last == Some(at) {
            let same = self.in_order_at(at).is_none_or(|have| have == histogram);
            return if same { PutHistogram::Stored } else { PutHistogram::Refused };
        }
        let known = self.late.get(at).or_else(|| self.frozen.get(at));
        let same = match known {
            Some(known) => *known == histogram,
            None => self.in_order_at(at).is_some_and(|have| have == histogram),
        };
        if !same {
            self.late.put(at, histogram);
        }
        PutHistogram::Stored
    }

    fn append(&mut self, at: i64, histogram: &Histogram) {
        self.last = Some(at);
        if self.open.as_mut().is_some_and(|open| open.push(at, histogram)) {
            return;
        }
        if let Some(full) = self.open.replace(HistogramEncoder::new(at, histogram)) {
            self.close(ClosedChunk::of(full));
        }
    }

    fn close(&mut self, chunk: ClosedChunk) {
        self.closed_rows += u64::from(chunk.rows);
        self.closed_bytes += chunk.memory();
        self.closed.push(chunk);
    }

    fn chunks(&self) -> impl Iterator<Item = (i64, i64, u16, &[u8])> {
        let closed =
            self.closed.iter().map(|closed| (closed.first, closed.last, closed.rows, &*closed.bytes));
        let open = self.open.iter().map(|o| (o.first_at(), o.last_at(), o.rows(), o.bytes()));
        closed.chain(open)
    }

    fn in_order_at(&self, at: i64) -> Option<Histogram> {
        let (.., bytes) = self.chunks().find(|(first, last, ..)| (*first..=*last).contains(&at))?;
        // Chunks are made here, or were read to their end when they were loaded.
        let mut decoder = HistogramDecoder::new(bytes).ok()?;
        while let Ok(Some(found)) = decoder.advance() {
            if found == at {
                return decoder.histogram().ok();
            }
        }
        None
    }

    /// Appends what lies in `start..=end` to `out`, ascending; late ones win.
    pub(in crate::tsdb) fn read(&self, start: i64, end: i64, out: &mut HistogramColumns) {
        if start > end {
            return;
        }
        self.merge(start, end, self.late_within(start, end), out);
    }

    /// LateHistograms ones, those that came after a freeze over those that a seal set aside.
    fn late_within(&self, start: i64, end: i64) -> BTreeMap<i64, &Histogram> {
        let frozen = self.frozen.range(start..=end);
        frozen.chain(self.late.range(start..=end)).collect()
    }

    /// Least and greatest time.
    pub(in crate::tsdb) fn span(&self) -> Option<(i64, i64)> {
        let in_order = self.chunks().map(|(first, last, ..)| [first, last]);
        let beside =
            self.late.span().into_iter().chain(self.frozen.span()).map(|(first, last)| [first, last]);
        in_order.chain(beside).fold(None, |span, [first, last]| match span {
            None => Some((first, last)),
            Some((least, greatest)) => Some((first.min(least), last.max(greatest))),
        })
    }

    /// How many there are: in order and late.
    pub(in crate::tsdb) fn counts(&self) -> (u64, u64) {
        let open = self.open.as_ref().map_or(0, |open| u64::from(open.rows()));
        (self.closed_rows + open, (self.late.len() + self.frozen.len()) as u64)
    }

    /// Estimated memory.
    pub(in crate::tsdb) fn memory(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, HistogramEncoder::memory);
        let late = self.late.bytes() + self.frozen.bytes();
        (size_of::<Histograms>() + self.closed_bytes + open + late) as u64
    }

    /// Sets the late ones aside for a seal.
    pub(in crate::tsdb) fn freeze(&mut self) {
        self.frozen.overlay(&mut self.late);
    }

    /// Sets the late ones aside, and with them those in order at or after `until`. What came late at the same time as one in
    /// order came after it and wins.
    pub(in crate::tsdb) fn freeze_all(&mut self, until: i64) {
        let mut ahead = HistogramColumns::default();
        self.merge(until, i64::MAX, BTreeMap::new(), &mut ahead);
        for (at, histogram) in ahead.times.iter().zip(&ahead.histograms) {
            if self.late.get(*at).is_none() && self.frozen.get(*at).is_none() {
                self.late.put(*at, histogram.clone());
            }
        }
        if !ahead.times.is_empty() {
            self.keep(|at| at < until);
            self.last = self.chunks().map(|(_, last, ..)| last).last();
        }
        self.freeze();
    }

    /// The seal failed: what was set aside goes back, newer ones win.
    pub(in crate::tsdb) fn thaw(&mut self) {
        self.late.fill_from(&mut self.frozen);
    }

    /// Appends what a seal takes: in order before the barrier, or set aside before `late_end`.
    pub(in crate::tsdb) fn copy_closed(&self, (barrier, late_end): (i64, i64), out: &mut HistogramColumns) {
        let (Some(end), Some(late_last)) = (barrier.checked_sub(1), late_end.checked_sub(1)) else { return };
        let frozen = self.frozen.range(i64::MIN..=late_last).collect();
        self.merge(i64::MIN, end, frozen, out);
    }

    fn merge(&self, start: i64, end: i64, late: BTreeMap<i64, &Histogram>, out: &mut HistogramColumns) {
        let mut late = late.into_iter().peekable();
        for (first, last, _, bytes) in self.chunks() {
            if first > end || last < start {
                continue;
            }
            let Ok(mut decoder) = HistogramDecoder::new(bytes) else { continue };
            while let Ok(Some(at)) = decoder.advance() {
                if !(start..=end).contains(&at) {
                    continue;
                }
                while let Some((early, histogram)) = late.next_if(|(early, _)| *early < at) {
                    out.push(early, histogram.clone());
                }
                match late.next_if(|(same, _)| *same == at) {
                    Some((_, instead)) => out.push(at, instead.clone()),
                    None => out.extend(decoder.histogram().map(|histogram| (at, histogram))),
                }
            }
        }
        for (at, histogram) in late {
            out.push(at, histogram.clone());
        }
    }

    /// Lets go of exactly what [`Histograms::copy_closed`] gave.
    pub(in crate::tsdb) fn release(&mut self, (barrier, late_end): (i64, i64)) {
        self.keep(|at| at >= barrier);
        self.frozen.retain(|at| at >= late_end);
        self.thaw();
    }

    /// Removes everything in a range.
    pub(in crate::tsdb) fn delete(&mut self, start: i64, end: i64) {
        let outside = |at: i64| !(start..=end).contains(&at);
        self.keep(outside);
        // As a checkpoint would find it. What was released lies before the barrier, where nothing is in order any more.
        self.last = self.chunks().map(|(_, last, ..)| last).last();
        self.late.retain(outside);
        self.frozen.retain(outside);
    }

    /// Keeps the in-order ones whose time passes; chunks that lose some are written anew.
    fn keep(&mut self, passes: impl Fn(i64) -> bool) {
        let open = self.open.take();
        let chunks = std::mem::take(&mut self.closed).into_iter().chain(open.map(ClosedChunk::of));
        let mut kept = Vec::new();
        for closed in chunks {
            let mut rows = HistogramColumns::default();
            let (mut all, mut decoder) = (true, HistogramDecoder::new(&closed.bytes).ok());
            while let Some(decoder) = &mut decoder {
                let Ok(Some(at)) = decoder.advance() else { break };
                if passes(at) {
                    rows.extend(decoder.histogram().map(|histogram| (at, histogram)));
                } else {
                    all = false;
                }
            }
            if all {
                kept.push(closed);
                continue;
            }
            let rows = rows.times.iter().copied().zip(&rows.histograms);
            histogram_chunk::encode(rows, |first, last, rows, bytes| {
                kept.push(ClosedChunk { first, last, rows, bytes })
            });
        }
        (self.closed_rows, self.closed_bytes) = (0, 0);
        kept.into_iter().for_each(|chunk| self.close(chunk));
    }

    /// Calls `each` with every chunk that a checkpoint keeps: whether it is of late ones, rows, bytes.
    pub(in crate::tsdb) fn copy_chunks(&self, mut each: impl FnMut(bool, u16, &[u8])) {
        for (_, _, rows, bytes) in self.chunks() {
            each(false, rows, bytes);
        }
        let late = self.late_within(i64::MIN, i64::MAX);
        histogram_chunk::encode(late, |_, _, rows, bytes| each(true, rows, &bytes));
    }

    /// Takes a chunk over from a checkpoint, but for what is before `from_ms`; in-order ones come in order of time, late
    /// ones last.
    ///
    /// # Errors
    /// [`Damage`] where it is no chunk, or does not follow what is there.
    pub(in crate::tsdb) fn load_chunk(
        &mut self,
        late: bool,
        rows: u16,
        bytes: &[u8],
        from_ms: i64,
    ) -> Result<(), Damage> {
        let mut decoder = HistogramDecoder::new(bytes)?;
        let (mut count, mut first, mut last) = (0u16, None, self.last);
        while let Some((at, histogram)) = decoder.next()? {
            count = count.saturating_add(1);
            if late {
                if at >= from_ms {
                    self.late.put(at, histogram);
                }
                continue;
            }
            if last.is_some_and(|last| at <= last) {
                return Err(Damage::new(0, "histograms do not ascend"));
            }
            first = first.or(Some(at));
            last = Some(at);
        }
        if count != rows || count == 0 {
            return Err(Damage::new(0, "a chunk has another number of histograms"));
        }
        if let (Some(first), Some(last)) = (first, last) {
            self.last = Some(last);
            self.close(ClosedChunk { first, last, rows, bytes: bytes.into() });
            if first < from_ms {
                self.keep(|at| at >= from_ms);
            }
        }
        Ok(())
    }
}

impl ClosedChunk {
    const fn memory(&self) -> usize {
        size_of::<ClosedChunk>() + 16 + self.bytes.len()
    }

    fn of(encoder: HistogramEncoder) -> ClosedChunk {
        let (first, last, rows) = (encoder.first_at(), encoder.last_at(), encoder.rows());
        ClosedChunk { first, last, rows, bytes: encoder.into_bytes() }
    }
}

#[cfg(test)]
impl Histograms {
    /// What [`Histograms::counts`] and [`Histograms::memory`] say, added up anew.
    pub(super) fn recounted(&self) -> ((u64, u64), u64) {
        let rows = self.chunks().map(|(_, _, rows, _)| u64::from(rows)).sum();
        let closed: usize = self.closed.iter().map(ClosedChunk::memory).sum();
        let open = self.open.as_ref().map_or(0, HistogramEncoder::memory);
        let late = self.late.recounted() + self.frozen.recounted();
        let bytes = size_of::<Histograms>() + closed + open + late;
        ((rows, (self.late.len() + self.frozen.len()) as u64), bytes as u64)
    }
}
