//! Side data in segments: the runs of the section SIDE_DATA (`segment::side_data`).
//!
//! A run is a list of items. Items of one kind are in order of time:
//! ```text
//! u8 kind, zigzag first time, varint last time - first, varint entries, varint bytes, bytes
//! kind 0 histograms         a time block and a histogram block of series 0, as in
//!                           `segment::block::histograms`; the checksum of the run has the id
//!      2 start timestamps   entries x {zigzag time, zigzag time - start}
//!      3 exemplars          as in their log record; in the run of series 4,294,967,295, which is
//!                           not the id of any series
//!      4 late starts        as in `late_starts`
//! ```

use super::late_starts::LateStarts;
use super::record::{self, RecordBody};
use crate::model::{Exemplar, Histogram, HistogramColumns, TimeRange};
use crate::tsdb::codec::{Reader, put_varint, put_zigzag};
use crate::tsdb::error::Damage;
use crate::tsdb::segment;

/// The series id of the run of exemplars.
pub(in crate::tsdb) const EXEMPLARS_ID: u32 = u32::MAX;

/// The series id in the checksums of the blocks.
const OWNER: u32 = 0;

const HISTOGRAMS: u8 = 0;
const STARTS: u8 = 2;
const EXEMPLARS: u8 = 3;
const LATE_STARTS: u8 = 4;
/// An item of exemplars is closed once it has this many bytes.
const EXEMPLARS_SOFT: usize = 64 << 10;

/// An item of a run; `bytes` are in the format of its kind.
struct RunItem<'a> {
    kind: u8,
    first: i64,
    last: i64,
    entries: u64,
    bytes: &'a [u8],
}

fn put_item(out: &mut Vec<u8>, kind: u8, first: i64, last: i64, entries: u64, bytes: &[u8]) {
    out.push(kind);
    put_zigzag(out, first);
    put_varint(out, last.wrapping_sub(first).cast_unsigned());
    put_varint(out, entries);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Decodes the next item of a run; `None` at the end.
fn next_item<'a>(reader: &mut Reader<'a>) -> Result<Option<RunItem<'a>>, Damage> {
    if reader.left() == 0 {
        return Ok(None);
    }
    let kind = reader.u8()?;
    let first = reader.zigzag()?;
    let last = first.wrapping_add(reader.varint()?.cast_signed());
    let entries = reader.varint()?;
    let bytes = reader.count(1)?;
    Ok(Some(RunItem { kind, first, last, entries, bytes: reader.take(bytes)? }))
}

/// Appends histograms, ascending in time.
pub(in crate::tsdb) fn put_histograms(out: &mut Vec<u8>, samples: &[(i64, &Histogram)]) {
    let mut left = samples;
    let mut blocks = Vec::new();
    while let Some((first, _)) = left.first() {
        blocks.clear();
        let (taken, rest) = left.split_at(segment::put_histograms(&mut blocks, OWNER, left));
        let Some((last, _)) = taken.last() else { return };
        put_item(out, HISTOGRAMS, *first, *last, taken.len() as u64, &blocks);
        left = rest;
    }
}

/// Appends start timestamps, ascending in time.
pub(in crate::tsdb) fn put_starts(out: &mut Vec<u8>, changes: &[(i64, i64)]) {
    let (Some((first, _)), Some((last, _))) = (changes.first(), changes.last()) else { return };
    let mut bytes = Vec::new();
    for (at, start) in changes {
        put_zigzag(&mut bytes, *at);
        put_zigzag(&mut bytes, at.wrapping_sub(*start));
    }
    put_item(out, STARTS, *first, *last, changes.len() as u64, &bytes);
}

/// Appends late start timestamps.
pub(in crate::tsdb) fn put_late_starts(out: &mut Vec<u8>, late: &LateStarts) {
    if let Some((first, last)) = late.span() {
        put_item(out, LATE_STARTS, first, last, late.len() as u64, &late.encode());
    }
}

/// Appends exemplars in order of arrival.
pub(in crate::tsdb) fn put_exemplars<'e>(
    out: &mut Vec<u8>,
    exemplars: impl IntoIterator<Item = (u32, &'e Exemplar)>,
) {
    let mut close = |body: &mut RecordBody, entries: &mut u64, least: i64| {
        let (bytes, greatest) = std::mem::take(body).finish();
        put_item(out, EXEMPLARS, least, greatest, std::mem::take(entries), &bytes);
    };
    let (mut body, mut entries, mut least) = (RecordBody::default(), 0, i64::MAX);
    for (series, exemplar) in exemplars {
        body.exemplar(series, exemplar);
        entries += 1;
        least = least.min(exemplar.at.as_ms());
        if body.bytes() >= EXEMPLARS_SOFT {
            close(&mut body, &mut entries, least);
            least = i64::MAX;
        }
    }
    if !body.is_empty() {
        close(&mut body, &mut entries, least);
    }
}

/// Appends the histograms of a run inside `range`, both ends inclusive.
///
/// # Errors
/// [`Damage`]; the histograms before it are in `out`.
pub(in crate::tsdb) fn read_histograms(
    run: &[u8],
    range: TimeRange,
    out: &mut HistogramColumns,
) -> Result<(), Damage> {
    let (start, end) = (range.start.as_ms(), range.end.as_ms());
    let mut reader = Reader::new(run);
    let mut item_of = HistogramColumns::default();
    while let Some(item) = next_item(&mut reader)? {
        if item.kind != HISTOGRAMS || item.last < start || end < item.first {
            continue;
        }
        item_of.clear();
        segment::histograms_of(item.bytes, OWNER, &mut item_of)?;
        if item_of.len() as u64 != item.entries {
            return Err(reader.damage("wrong number of histograms"));
        }
        let samples = item_of.times.drain(..).zip(item_of.histograms.drain(..));
        out.extend(samples.filter(|(at, _)| (start..=end).contains(at)));
    }
    Ok(())
}

/// Appends the histograms of a damaged run from blocks whose own checksum matches, as far as the
/// items can be followed. The other content of such a run has no checksum of its own.
pub(in crate::tsdb) fn salvage_histograms(run: &[u8], out: &mut HistogramColumns) {
    let mut reader = Reader::new(run);
    let mut item_of = HistogramColumns::default();
    while let Ok(Some(item)) = next_item(&mut reader) {
        item_of.clear();
        if item.kind == HISTOGRAMS && segment::histograms_of(item.bytes, OWNER, &mut item_of).is_ok() {
            out.extend(item_of.times.drain(..).zip(item_of.histograms.drain(..)));
        }
    }
    sort_and_dedup(out);
}

/// Checks that every item of a run can be decoded.
///
/// # Errors
/// [`Damage`] of the first item that cannot be decoded.
pub(in crate::tsdb) fn verify(id: u32, run: &[u8]) -> Result<(), Damage> {
    if id == EXEMPLARS_ID {
        return read_exemplars(run, |_, _| ());
    }
    read_histograms(run, TimeRange::ALL, &mut HistogramColumns::default())?;
    read_starts(run, &mut Vec::new(), &mut LateStarts::default())
}

/// Appends the start timestamps of a run: changes and late starts.
///
/// # Errors
/// [`Damage`] if the run is malformed.
pub(in crate::tsdb) fn read_starts(
    run: &[u8],
    out: &mut Vec<(i64, i64)>,
    late: &mut LateStarts,
) -> Result<(), Damage> {
    let mut reader = Reader::new(run);
    while let Some(item) = next_item(&mut reader)? {
        if item.kind == LATE_STARTS {
            late.decode(item.entries, item.bytes)?;
        }
        if item.kind != STARTS {
            continue;
        }
        let mut changes = Reader::new(item.bytes);
        for _ in 0..item.entries {
            let at = changes.zigzag()?;
            out.push((at, at.wrapping_sub(changes.zigzag()?)));
        }
        changes.end()?;
    }
    Ok(())
}

/// Calls `each` with the exemplars of a run.
///
/// # Errors
/// [`Damage`] if the run is malformed.
pub(in crate::tsdb) fn read_exemplars(run: &[u8], mut each: impl FnMut(u32, Exemplar)) -> Result<(), Damage> {
    let mut reader = Reader::new(run);
    while let Some(item) = next_item(&mut reader)? {
        if item.kind == EXEMPLARS {
            record::decode_exemplars(item.bytes, &mut each)?;
        }
    }
    Ok(())
}

/// Sorts histograms by time and removes duplicates. If several have the same time, the last one is
/// retained.
pub(in crate::tsdb) fn sort_and_dedup(columns: &mut HistogramColumns) {
    if columns.times.is_sorted_by(|a, b| a < b) {
        return;
    }
    let HistogramColumns { times, histograms } = std::mem::take(columns);
    let mut all: Vec<(i64, Histogram)> = times.into_iter().zip(histograms).collect();
    all.sort_by_key(|(at, _)| *at);
    for (at, histogram) in all {
        if columns.times.last() == Some(&at) {
            columns.times.pop();
            columns.histograms.pop();
        }
        columns.push(at, histogram);
    }
}

/// Sorts start timestamps as [`sort_and_dedup`] does, and removes changes that repeat the start
/// before them.
pub(in crate::tsdb) fn sort_and_dedup_starts(changes: &mut Vec<(i64, i64)>) {
    changes.sort_by_key(|(at, _)| *at);
    let mut sorted: Vec<(i64, i64)> = Vec::with_capacity(changes.len());
    for change in changes.drain(..) {
        sorted.pop_if(|last| last.0 == change.0);
        if sorted.last().is_none_or(|last| last.1 != change.1) {
            sorted.push(change);
        }
    }
    *changes = sorted;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{any_histogram, exponential};
    use super::*;
    use crate::model::{Labels, Timestamp};

    proptest! {
        #[test]
        fn a_run_returns_what_was_written(
            histograms in prop::collection::btree_map(-100i64..100, any_histogram(), 0..30),
            starts in prop::collection::btree_map(any::<i64>(), any::<i64>(), 0..9),
            late_starts in prop::collection::vec((any::<i64>(), any::<i64>()), 0..9),
            traces in prop::collection::vec((any::<u32>(), any::<i64>(), "[a-z]{0,9}"), 0..9),
            ends in (-120i64..120, -120i64..120),
        ) {
            let mut run = Vec::new();
            put_starts(&mut run, &starts.iter().map(|(at, start)| (*at, *start)).collect::<Vec<_>>());
            let mut late = LateStarts::default();
            for (seq, (at, start)) in (0u64..).zip(late_starts) {
                late.put(at, start, seq);
            }
            put_late_starts(&mut run, &late);
            put_histograms(&mut run, &histograms.iter().map(|(at, h)| (*at, h)).collect::<Vec<_>>());
            let exemplar = |at: i64, text: &str| Exemplar {
                labels: Labels::from_pairs([("id", text)]), value: 1.0, at: Timestamp::from_ms(at),
            };
            let exemplars: Vec<(u32, Exemplar)> = traces.iter().map(|(s, at, text)| (*s, exemplar(*at, text))).collect();
            put_exemplars(&mut run, exemplars.iter().map(|(s, e)| (*s, e)));
            let (mut found, mut changes, mut back) = (HistogramColumns::default(), Vec::new(), Vec::new());
            let range = TimeRange::new(Timestamp::from_ms(ends.0), Timestamp::from_ms(ends.1));
            read_histograms(&run, range, &mut found).expect("reads");
            let found: Vec<(i64, Histogram)> = found.times.into_iter().zip(found.histograms).collect();
            let within = histograms.into_iter().filter(|(at, _)| ends.0 <= *at && *at <= ends.1);
            prop_assert_eq!(found, within.collect::<Vec<_>>());
            let mut points = LateStarts::default();
            read_starts(&run, &mut changes, &mut points).expect("reads");
            prop_assert_eq!(changes, starts.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(points, late);
            read_exemplars(&run, |series, exemplar| back.push((series, exemplar))).expect("reads");
            prop_assert_eq!(back, exemplars);
        }

        #[test]
        fn a_reader_never_panics(run in prop::collection::vec(any::<u8>(), 0..100), kind in 0u8..5) {
            let run = [vec![kind], run].concat();
            let _ = read_histograms(&run, TimeRange::ALL, &mut HistogramColumns::default());
            let _ = read_starts(&run, &mut Vec::new(), &mut LateStarts::default());
            let _ = read_exemplars(&run, |_, _| ());
        }
    }

    #[test]
    fn the_bytes_match_the_documented_format() {
        let mut run = Vec::new();
        put_histograms(&mut run, &[(1, &exponential(0, 0.0, &[], &[], 0.0, 3, &[]))]);
        put_starts(&mut run, &[(-1, -2), (5, 4)]);
        let mut late = LateStarts::default();
        late.put(3, 1, 9);
        put_late_starts(&mut run, &late);
        let times = "ca124999 04 01 00 00 02";
        let histograms = "484b36a7 01 00 00 0000000000000000 00 00 00 0000 0100 0006 0000";
        let drawn =
            format!("00 02 00 01 23 {times} {histograms} 02 01 06 02 04 01 02 0a 02 04 06 00 01 03 06 02 12");
        assert_eq!(data_encoding::HEXLOWER.encode(&run), drawn.replace(' ', ""));
    }
}
