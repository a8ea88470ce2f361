//! The native histograms of one series that are not in a segment.
//!
//! The rules are those of floats ([`super::super::head`]). A histogram before the barrier is late.
//! One after the last is appended. One at the time of the last is dropped if all bits are equal,
//! and refused otherwise. One between barrier and last is late. If several late histograms have the
//! same time, the last write wins.

use std::collections::BTreeMap;

use super::histogram_chunk::{self, HistogramDecoder, HistogramEncoder};
use super::late_histograms::LateHistograms;
use crate::model::{Histogram, HistogramColumns};
use crate::tsdb::error::Damage;

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum PutHistogram {
    /// The histogram is stored, or an identical one was stored before.
    Stored,
    /// The last histogram has the same time and other bits.
    Refused,
}

/// A complete chunk.
#[derive(Debug)]
struct ClosedChunk {
    first: i64,
    last: i64,
    rows: u16,
    bytes: Box<[u8]>,
}

/// Histograms in order: closed chunks, then the open one. Separately the late ones, and those
/// frozen for a seal.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Histograms {
    /// The greatest time that arrived in order. It stays after its histogram is released.
    last: Option<i64>,
    closed: Vec<ClosedChunk>,
    /// Rows and memory of the closed chunks, which are read after every record.
    closed_rows: u64,
    closed_bytes: usize,
    open: Option<HistogramEncoder>,
    late: LateHistograms,
    frozen: LateHistograms,
}

impl Histograms {
    /// Writes a histogram. The outcome depends only on the histograms before it and on the barrier.
    pub(in crate::tsdb) fn put(&mut self, at: i64, histogram: Histogram, barrier: i64) -> PutHistogram {
        if at >= barrier && self.last.is_none_or(|last| at > last) {
            // After a deletion, a late histogram may remain at a time at which none is in order.
            self.late.remove(at);
            self.frozen.remove(at);
            self.append(at, &histogram);
            return PutHistogram::Stored;
        }
        if at >= barrier && self.last == Some(at) {
            let same = self.in_order_at(at).is_none_or(|have| have == histogram);
            return if same { PutHistogram::Stored } else { PutHistogram::Refused };
        }
        let late = self.late.get(at).or_else(|| self.frozen.get(at));
        let same = match late {
            Some(late) => *late == histogram,
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

    /// Iterates over all chunks as {first time, last time, rows, bytes}.
    fn chunks(&self) -> impl Iterator<Item = (i64, i64, u16, &[u8])> {
        let closed =
            self.closed.iter().map(|closed| (closed.first, closed.last, closed.rows, &*closed.bytes));
        let open = self.open.iter().map(|o| (o.first_at(), o.last_at(), o.rows(), o.bytes()));
        closed.chain(open)
    }

    /// Returns the histogram in order at this time.
    fn in_order_at(&self, at: i64) -> Option<Histogram> {
        let (.., bytes) = self.chunks().find(|(first, last, ..)| (*first..=*last).contains(&at))?;
        // Never damaged: chunks are encoded here, or were decoded to their end when they were
        // loaded.
        let mut decoder = HistogramDecoder::new(bytes).ok()?;
        while let Ok(Some(found)) = decoder.advance() {
            if found == at {
                return decoder.histogram().ok();
            }
        }
        None
    }

    /// Appends the histograms in `start..=end` to `out`, ascending. Late histograms win over those
    /// in order.
    pub(in crate::tsdb) fn read(&self, start: i64, end: i64, out: &mut HistogramColumns) {
        if start > end {
            return;
        }
        self.merge(start, end, self.late_within(start, end), out);
    }

    /// Returns the late histograms in `start..=end`. Histograms that arrived after the freeze win
    /// over frozen ones.
    fn late_within(&self, start: i64, end: i64) -> BTreeMap<i64, &Histogram> {
        let frozen = self.frozen.range(start..=end);
        frozen.chain(self.late.range(start..=end)).collect()
    }

    /// Returns the least and the greatest time.
    pub(in crate::tsdb) fn span(&self) -> Option<(i64, i64)> {
        let in_order = self.chunks().map(|(first, last, ..)| [first, last]);
        let late = self.late.span().into_iter().chain(self.frozen.span()).map(|(first, last)| [first, last]);
        in_order.chain(late).fold(None, |span, [first, last]| match span {
            None => Some((first, last)),
            Some((least, greatest)) => Some((first.min(least), last.max(greatest))),
        })
    }

    /// Returns the numbers of histograms in order and of late ones.
    pub(in crate::tsdb) fn counts(&self) -> (u64, u64) {
        let open = self.open.as_ref().map_or(0, |open| u64::from(open.rows()));
        (self.closed_rows + open, (self.late.len() + self.frozen.len()) as u64)
    }

    /// Returns the estimated memory in bytes.
    pub(in crate::tsdb) fn memory(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, HistogramEncoder::memory);
        let late = self.late.bytes() + self.frozen.bytes();
        (size_of::<Histograms>() + self.closed_bytes + open + late) as u64
    }

    /// Freezes the late histograms for a seal.
    pub(in crate::tsdb) fn freeze(&mut self) {
        self.frozen.overlay(&mut self.late);
    }

    /// Freezes the late histograms, and those in order at or after `until`. A late histogram at the
    /// same time as one in order arrived after it and wins.
    pub(in crate::tsdb) fn freeze_all(&mut self, until: i64) {
        let mut ahead = HistogramColumns::default();
        self.merge(until, i64::MAX, BTreeMap::new(), &mut ahead);
        for (at, histogram) in ahead.times.iter().zip(&ahead.histograms) {
            if self.late.get(*at).is_none() && self.frozen.get(*at).is_none() {
                self.late.put(*at, histogram.clone());
            }
        }
        if !ahead.times.is_empty() {
            self.retain_in_order(|at| at < until);
            self.last = self.chunks().map(|(_, last, ..)| last).last();
        }
        self.freeze();
    }

    /// Makes frozen histograms late again after a failed seal. Newer histograms win over older
    /// ones.
    pub(in crate::tsdb) fn thaw(&mut self) {
        self.late.fill_from(&mut self.frozen);
    }

    /// Appends the histograms that a seal takes: those in order before the barrier, and frozen ones
    /// before `late_end`.
    pub(in crate::tsdb) fn copy_closed(&self, barrier: i64, late_end: i64, out: &mut HistogramColumns) {
        let (Some(end), Some(late_last)) = (barrier.checked_sub(1), late_end.checked_sub(1)) else { return };
        let frozen = self.frozen.range(i64::MIN..=late_last).collect();
        self.merge(i64::MIN, end, frozen, out);
    }

    /// Appends the histograms in order in `start..=end`, merged with late ones, which win.
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

    /// Removes exactly the histograms that [`Histograms::copy_closed`] has returned.
    pub(in crate::tsdb) fn release(&mut self, barrier: i64, late_end: i64) {
        self.retain_in_order(|at| at >= barrier);
        self.frozen.retain(|at| at >= late_end);
        self.thaw();
    }

    /// Removes all histograms in `start..=end`.
    pub(in crate::tsdb) fn delete(&mut self, start: i64, end: i64) {
        let outside = |at: i64| !(start..=end).contains(&at);
        self.retain_in_order(outside);
        // The value is the same as after a load from a checkpoint. Released histograms were before
        // the barrier, where none is in order any more.
        self.last = self.chunks().map(|(_, last, ..)| last).last();
        self.late.retain(outside);
        self.frozen.retain(outside);
    }

    /// Retains the histograms in order whose time passes. Chunks that lose some are encoded again.
    fn retain_in_order(&mut self, passes: impl Fn(i64) -> bool) {
        let open = self.open.take();
        let chunks = std::mem::take(&mut self.closed).into_iter().chain(open.map(ClosedChunk::of));
        let mut chunks_kept = Vec::new();
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
                chunks_kept.push(closed);
                continue;
            }
            let rows = rows.times.iter().copied().zip(&rows.histograms);
            histogram_chunk::encode(rows, |first, last, rows, bytes| {
                chunks_kept.push(ClosedChunk { first, last, rows, bytes })
            });
        }
        (self.closed_rows, self.closed_bytes) = (0, 0);
        chunks_kept.into_iter().for_each(|chunk| self.close(chunk));
    }

    /// Calls `each` with every chunk for a checkpoint: whether its histograms are late, the number
    /// of rows, the bytes.
    pub(in crate::tsdb) fn copy_chunks(&self, mut each: impl FnMut(bool, u16, &[u8])) {
        for (_, _, rows, bytes) in self.chunks() {
            each(false, rows, bytes);
        }
        let late = self.late_within(i64::MIN, i64::MAX);
        histogram_chunk::encode(late, |_, _, rows, bytes| each(true, rows, &bytes));
    }

    /// Loads a chunk of a checkpoint, except for histograms before `from_ms`. Chunks in order come
    /// in order of time, late ones last.
    ///
    /// # Errors
    /// [`Damage`] if it is not a chunk, or does not follow the previous one.
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
            return Err(Damage::new(0, "wrong number of histograms in a chunk"));
        }
        if let (Some(first), Some(last)) = (first, last) {
            self.last = Some(last);
            self.close(ClosedChunk { first, last, rows, bytes: bytes.into() });
            if first < from_ms {
                self.retain_in_order(|at| at >= from_ms);
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
    /// Recomputes [`Histograms::counts`] and [`Histograms::memory`].
    pub(super) fn recounted(&self) -> ((u64, u64), u64) {
        let rows = self.chunks().map(|(_, _, rows, _)| u64::from(rows)).sum();
        let closed: usize = self.closed.iter().map(ClosedChunk::memory).sum();
        let open = self.open.as_ref().map_or(0, HistogramEncoder::memory);
        let late = self.late.recounted() + self.frozen.recounted();
        let bytes = size_of::<Histograms>() + closed + open + late;
        ((rows, (self.late.len() + self.frozen.len()) as u64), bytes as u64)
    }
}
