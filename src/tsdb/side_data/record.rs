//! Bodies of the log records of side data.
//!
//! ```text
//! histograms   varint n, n x { varint series id, varint chunk bytes, chunk (`histogram_chunk`) }
//! exemplars    varint n, n x { varint series id, zigzag time, u64 value (bit pattern),
//!                              varint labels,
//!                              labels x { varint bytes, name, varint bytes, value } }
//! starts       varint n, n x { varint series id, zigzag time, zigzag time - start }
//! ```
//! Samples of one series are in the order of their sender, in one or more chunks.

use super::histogram_chunk::{self, HistogramDecoder};
use crate::model::{Exemplar, Histogram, Label, Labels, Timestamp};
use crate::tsdb::codec::{Reader, put_text, put_varint, put_zigzag};
use crate::tsdb::error::Damage;
use crate::tsdb::wal::record::RecordKind;

/// Labels of an exemplar at most: they share 128 characters.
const LABELS_MAX: usize = Exemplar::LABEL_CHARS_MAX;

/// A start timestamp in a log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStart {
    /// The number of the series within the organisation.
    pub series: u32,
    /// The time of the sample, in milliseconds since the epoch.
    pub at_ms: i64,
    /// The start of its counter, in milliseconds since the epoch.
    pub start_ms: i64,
}

/// Collects the items of a record's body.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct RecordBody {
    items: Vec<u8>,
    count: u64,
    greatest_ms: Option<i64>,
}

impl RecordBody {
    /// Returns the bytes so far.
    pub(in crate::tsdb) fn bytes(&self) -> usize {
        self.items.len()
    }

    pub(in crate::tsdb) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the body and the greatest time in it.
    pub(in crate::tsdb) fn finish(self) -> (Vec<u8>, i64) {
        let mut body = Vec::with_capacity(self.items.len() + 10);
        put_varint(&mut body, self.count);
        body.extend_from_slice(&self.items);
        (body, self.greatest_ms.unwrap_or(i64::MIN))
    }

    /// Begins an item, and returns the buffer for the rest of it.
    fn item(&mut self, series: u32, at_ms: i64) -> &mut Vec<u8> {
        self.count += 1;
        self.greatest_ms = self.greatest_ms.max(Some(at_ms));
        put_varint(&mut self.items, u64::from(series));
        &mut self.items
    }

    /// Appends histograms of a series as one or more chunks.
    pub(in crate::tsdb) fn histograms(&mut self, series: u32, samples: &[(i64, &Histogram)]) {
        let greatest = samples.iter().map(|(at, _)| *at).max().unwrap_or(i64::MIN);
        histogram_chunk::encode(samples.iter().copied(), |_, _, _, chunk| {
            let items = self.item(series, greatest);
            put_varint(items, chunk.len() as u64);
            items.extend_from_slice(&chunk);
        });
    }

    pub(in crate::tsdb) fn exemplar(&mut self, series: u32, exemplar: &Exemplar) {
        let at = exemplar.at.as_ms();
        put_exemplar(self.item(series, at), exemplar);
    }

    pub(in crate::tsdb) fn start(&mut self, start: LogStart) {
        let LogStart { series, at_ms, start_ms } = start;
        let items = self.item(series, at_ms);
        put_zigzag(items, at_ms);
        put_zigzag(items, at_ms.wrapping_sub(start_ms));
    }
}

fn put_exemplar(out: &mut Vec<u8>, exemplar: &Exemplar) {
    put_zigzag(out, exemplar.at.as_ms());
    out.extend_from_slice(&exemplar.value.to_bits().to_le_bytes());
    put_varint(out, exemplar.labels.len() as u64);
    for label in &exemplar.labels {
        put_text(out, label.name);
        put_text(out, label.value);
    }
}

/// Decodes an exemplar. Its labels must be sorted by name and have no empty values.
fn take_exemplar(reader: &mut Reader<'_>) -> Result<Exemplar, Damage> {
    let at = Timestamp::from_ms(reader.zigzag()?);
    let value = f64::from_bits(reader.u64()?);
    let count = reader.count(2)?;
    if count > LABELS_MAX {
        return Err(reader.damage("an exemplar with too many labels"));
    }
    let mut labels: Vec<Label> = Vec::with_capacity(count);
    for _ in 0..count {
        let label = Label { name: reader.text()?.into(), value: reader.text()?.into() };
        if label.value.is_empty() || labels.last().is_some_and(|last| last.name >= label.name) {
            return Err(reader.damage("labels of an exemplar do not ascend"));
        }
        labels.push(label);
    }
    Ok(Exemplar { labels: Labels::from_sorted(labels), value, at })
}

fn take_series(reader: &mut Reader<'_>) -> Result<u32, Damage> {
    u32::try_from(reader.varint()?).map_err(|_| reader.damage("series id over 32 bits"))
}

/// Calls `each` with the series and a decoder of every chunk.
///
/// # Errors
/// [`Damage`] if the body is malformed; `each` has been called for the items before the damage.
pub(in crate::tsdb) fn decode_histograms(
    body: &[u8],
    mut each: impl FnMut(u32, HistogramDecoder<'_>) -> Result<(), Damage>,
) -> Result<(), Damage> {
    let mut reader = Reader::new(body);
    for _ in 0..reader.count(2)? {
        let series = take_series(&mut reader)?;
        let bytes = reader.count(1)?;
        each(series, HistogramDecoder::new(reader.take(bytes)?)?)?;
    }
    reader.end()
}

/// Calls `each` with every exemplar and its series.
///
/// # Errors
/// As [`decode_histograms`].
pub(in crate::tsdb) fn decode_exemplars(
    body: &[u8],
    mut each: impl FnMut(u32, Exemplar),
) -> Result<(), Damage> {
    let mut reader = Reader::new(body);
    for _ in 0..reader.count(11)? {
        let series = take_series(&mut reader)?;
        each(series, take_exemplar(&mut reader)?);
    }
    reader.end()
}

/// Calls `each` with every start timestamp.
///
/// # Errors
/// As [`decode_histograms`].
pub(in crate::tsdb) fn decode_starts(body: &[u8], mut each: impl FnMut(LogStart)) -> Result<(), Damage> {
    let mut reader = Reader::new(body);
    for _ in 0..reader.count(3)? {
        let series = take_series(&mut reader)?;
        let at_ms = reader.zigzag()?;
        each(LogStart { series, at_ms, start_ms: at_ms.wrapping_sub(reader.zigzag()?) });
    }
    reader.end()
}

/// Filters a body of one of these kinds by series and time. Returns the remaining body, `None` if
/// it is empty, and the number of removed items.
///
/// # Errors
/// [`Damage`] if the body is not of its kind.
pub(in crate::tsdb) fn filter(
    kind: RecordKind,
    body: &[u8],
    retained: impl Fn(u32, i64) -> bool,
) -> Result<(Option<Vec<u8>>, u64), Damage> {
    let (mut out, mut left_out) = (RecordBody::default(), 0);
    match kind {
        RecordKind::Histograms => decode_histograms(body, |series, mut decoder| {
            let mut rows = Vec::new();
            while let Some((at, histogram)) = decoder.next()? {
                if retained(series, at) {
                    rows.push((at, histogram));
                } else {
                    left_out += 1;
                }
            }
            out.histograms(series, &rows.iter().map(|(at, histogram)| (*at, histogram)).collect::<Vec<_>>());
            Ok(())
        })?,
        RecordKind::Exemplars => decode_exemplars(body, |series, exemplar| {
            if retained(series, exemplar.at.as_ms()) {
                out.exemplar(series, &exemplar);
            } else {
                left_out += 1;
            }
        })?,
        RecordKind::Starts => decode_starts(body, |start| {
            if retained(start.series, start.at_ms) {
                out.start(start);
            } else {
                left_out += 1;
            }
        })?,
        _ => return Ok((Some(body.to_vec()), 0)),
    }
    Ok(((!out.is_empty()).then(|| out.finish().0), left_out))
}

/// Returns the greatest time in a body of one of these kinds, or `i64::MIN` for any other kind.
/// Only the part of a damaged body before the damage counts.
pub(in crate::tsdb) fn greatest_ms(kind: RecordKind, body: &[u8]) -> i64 {
    let mut greatest = i64::MIN;
    // Damage was reported when the record was applied.
    let _ = match kind {
        RecordKind::Histograms => decode_histograms(body, |_, mut decoder| {
            while let Some(at) = decoder.advance()? {
                greatest = greatest.max(at);
            }
            Ok(())
        }),
        RecordKind::Exemplars => {
            decode_exemplars(body, |_, exemplar| greatest = greatest.max(exemplar.at.as_ms()))
        }
        RecordKind::Starts => decode_starts(body, |start| greatest = greatest.max(start.at_ms)),
        _ => Ok(()),
    };
    greatest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{any_histogram, exponential};
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        data_encoding::HEXLOWER.encode(bytes)
    }

    fn exemplar(at: i64, value: f64, labels: &[(String, String)]) -> Exemplar {
        let labels = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Exemplar { labels: Labels::from_pairs(labels), value, at: Timestamp::from_ms(at) }
    }

    proptest! {
        #[test]
        fn decode_after_encode_is_identity(
            histograms in prop::collection::vec((any::<u32>(), prop::collection::vec((any::<i64>(), any_histogram()), 1..4)), 0..5),
            exemplars in prop::collection::vec((any::<u32>(), any::<i64>(), any::<f64>(), prop::collection::vec(("[a-c]{1,3}", "[äa-z]{0,5}"), 0..4)), 0..8),
            starts in prop::collection::vec((any::<u32>(), any::<i64>(), any::<i64>()), 0..9),
        ) {
            let mut body = RecordBody::default();
            for (series, samples) in &histograms {
                body.histograms(*series, &samples.iter().map(|(at, h)| (*at, h)).collect::<Vec<_>>());
            }
            let (bytes, greatest) = body.finish();
            let mut back: Vec<(u32, Vec<(i64, Histogram)>)> = Vec::new();
            decode_histograms(&bytes, |series, mut decoder| {
                let mut rows = Vec::new();
                while let Some(row) = decoder.next()? {
                    rows.push(row);
                }
                match back.last_mut() {
                    Some((last, all)) if *last == series => all.extend(rows),
                    _ => back.push((series, rows)),
                }
                Ok(())
            }).expect("decodes");
            let mut expected: Vec<(u32, Vec<(i64, Histogram)>)> = Vec::new();
            for (series, samples) in histograms {
                match expected.last_mut() {
                    Some((last, all)) if *last == series => all.extend(samples),
                    _ => expected.push((series, samples)),
                }
            }
            prop_assert_eq!(back, expected);
            prop_assert_eq!(greatest_ms(RecordKind::Histograms, &bytes), greatest);

            let exemplars: Vec<(u32, Exemplar)> =
                exemplars.iter().map(|(s, at, v, labels)| (*s, exemplar(*at, *v, labels))).collect();
            let mut body = RecordBody::default();
            exemplars.iter().for_each(|(series, exemplar)| body.exemplar(*series, exemplar));
            let (bytes, greatest) = body.finish();
            let mut back = Vec::new();
            decode_exemplars(&bytes, |series, exemplar| back.push((series, exemplar))).expect("decodes");
            prop_assert_eq!(back, exemplars);
            prop_assert_eq!(greatest_ms(RecordKind::Exemplars, &bytes), greatest);

            let starts: Vec<LogStart> =
                starts.iter().map(|(series, at_ms, start_ms)| LogStart { series: *series, at_ms: *at_ms, start_ms: *start_ms }).collect();
            let mut body = RecordBody::default();
            starts.iter().for_each(|start| body.start(*start));
            let (bytes, greatest) = body.finish();
            let mut back = Vec::new();
            decode_starts(&bytes, |start| back.push(start)).expect("decodes");
            prop_assert_eq!(back, starts);
            prop_assert_eq!(greatest_ms(RecordKind::Starts, &bytes), greatest);
        }

        #[test]
        fn a_reader_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for kind in [RecordKind::Histograms, RecordKind::Exemplars, RecordKind::Starts] {
                greatest_ms(kind, &bytes);
            }
        }
    }

    #[test]
    fn the_bytes_match_the_documented_format() {
        let mut body = RecordBody::default();
        body.exemplar(200, &exemplar(-1, 1.5, &[("id".to_owned(), "ab".to_owned())]));
        assert_eq!(hex(&body.finish().0), "01 c801 01 000000000000f83f 01 026964 026162".replace(' ', ""));
        let mut body = RecordBody::default();
        body.start(LogStart { series: 1, at_ms: 100, start_ms: 40 });
        assert_eq!(hex(&body.finish().0), "01 01 c801 78".replace(' ', ""));
        let mut body = RecordBody::default();
        body.histograms(7, &[(1, &exponential(0, 0.0, &[], &[], 0.0, 3, &[]))]);
        let chunk = "00 00 0000000000000000 00 00 00 02 00 00 06 06";
        assert_eq!(hex(&body.finish().0), format!("01 07 12 {chunk}").replace(' ', ""));
    }
}
