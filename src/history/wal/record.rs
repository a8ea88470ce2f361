//! The records of a log: `u8 type`, and entries of that type, whose numbers are big-endian.

use std::sync::Arc;

use super::super::block::{ByteReader, LABELS_MAX};
use crate::model::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, CounterReset, Histogram, HistogramCounts, HistogramShape, MetricKind,
    counts_from_deltas, is_stale,
};

/// An entry of a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LogEntry<'r> {
    /// The labels of a series, in the order of their names.
    Series { number: u64, labels: Vec<(&'r str, &'r str)> },
    /// A float.
    Float { series: u64, at_ms: i64, value: f64 },
    /// A native histogram.
    Native { series: u64, at_ms: i64, value: Histogram },
    /// A deleted range of a series; both ends are inclusive.
    Deleted { series: u64, start_ms: i64, end_ms: i64 },
    /// The metadata of a series.
    Metadata { series: u64, kind: MetricKind, unit: &'r str, help: &'r str },
    /// A record of another type, which has no samples.
    Other,
    /// A record of a type that is not known here.
    Unknown(u8),
}

/// Calls `each` with each entry of a record.
///
/// # Errors
/// The reason why the record is invalid.
pub(super) fn decode<'r>(record: &'r [u8], each: &mut dyn FnMut(LogEntry<'r>)) -> Result<(), String> {
    let Some((kind, rest)) = record.split_first() else { return Err("a record is empty".to_owned()) };
    let mut reader = ByteReader::new(rest);
    let early = || "a record ends inside an entry".to_owned();
    match kind {
        1 => read_all(&mut reader, |reader| read_series(reader).map(&mut *each)).ok_or_else(early),
        2 => read_timed(&mut reader, |reader, series, at_ms| {
            each(LogEntry::Float { series, at_ms, value: reader.f64()? });
            Some(Ok(()))
        }),
        3 => read_all(&mut reader, |reader| {
            let (series, start_ms, end_ms) = (reader.u64()?, reader.varint()?, reader.varint()?);
            each(LogEntry::Deleted { series, start_ms, end_ms });
            Some(())
        })
        .ok_or_else(early),
        6 => read_all(&mut reader, |reader| read_metadata(reader).map(&mut *each)).ok_or_else(early),
        7..=10 => {
            let is_float = matches!(kind, 8 | 10);
            read_timed(&mut reader, |reader, series, at_ms| {
                let value = match read_histogram(reader, is_float)? {
                    Ok(value) => value,
                    Err(reason) => return Some(Err(reason)),
                };
                each(LogEntry::Native { series, at_ms, value });
                Some(Ok(()))
            })
        }
        // Exemplars, and marks of the chunks of samples that arrived out of order.
        4 | 5 => {
            each(LogEntry::Other);
            Ok(())
        }
        other => {
            each(LogEntry::Unknown(*other));
            Ok(())
        }
    }
}

/// Reads entries until the end of the record.
fn read_all<'r>(
    reader: &mut ByteReader<'r>,
    mut read: impl FnMut(&mut ByteReader<'r>) -> Option<()>,
) -> Option<()> {
    while !reader.is_empty() {
        read(reader)?;
    }
    Some(())
}

/// Reads entries that begin with the differences of series and time to those of the record.
fn read_timed<'r>(
    reader: &mut ByteReader<'r>,
    mut read: impl FnMut(&mut ByteReader<'r>, u64, i64) -> Option<Result<(), String>>,
) -> Result<(), String> {
    if reader.is_empty() {
        return Ok(());
    }
    let mut all = || {
        let (series, time) = (reader.u64()?, reader.u64()?.cast_signed());
        while !reader.is_empty() {
            let one = series.wrapping_add_signed(reader.varint()?);
            let at_ms = time.wrapping_add(reader.varint()?);
            if let Err(reason) = read(reader, one, at_ms)? {
                return Some(Err(reason));
            }
        }
        Some(Ok(()))
    };
    all().unwrap_or_else(|| Err("a record ends inside an entry".to_owned()))
}

fn read_series<'r>(reader: &mut ByteReader<'r>) -> Option<LogEntry<'r>> {
    let number = reader.u64()?;
    let count = reader.length().filter(|count| *count <= LABELS_MAX)?;
    let mut labels = Vec::new();
    for _ in 0..count {
        labels.push((reader.text()?, reader.text()?));
    }
    Some(LogEntry::Series { number, labels })
}

fn read_metadata<'r>(reader: &mut ByteReader<'r>) -> Option<LogEntry<'r>> {
    let series = reader.uvarint()?;
    let kind = MetricKind::from_number(reader.u8()?).unwrap_or_default();
    let (mut unit, mut help) = ("", "");
    for _ in 0..reader.uvarint()? {
        let (name, value) = (reader.text()?, reader.text()?);
        match name {
            "UNIT" => unit = value,
            "HELP" => help = value,
            _ => {}
        }
    }
    Some(LogEntry::Metadata { series, kind, unit, help })
}

/// Reads a histogram; `None` if the record ends early.
fn read_histogram(reader: &mut ByteReader<'_>, is_float: bool) -> Option<Result<Histogram, String>> {
    let reset = CounterReset::from_number(reader.u8()?).unwrap_or_default();
    let schema = i32::try_from(reader.varint()?);
    let zero_threshold = reader.f64()?;
    let (zero, count) =
        if is_float { (reader.u64()?, reader.u64()?) } else { (reader.uvarint()?, reader.uvarint()?) };
    let sum = reader.f64()?;
    let (positive, negative) = (read_spans(reader)?, read_spans(reader)?);
    let counts = if is_float {
        let mut buckets = read_list(reader, ByteReader::f64)?;
        buckets.extend(read_list(reader, ByteReader::f64)?);
        Ok(HistogramCounts::Float { count: f64::from_bits(count), zero: f64::from_bits(zero), buckets })
    } else {
        let mut buckets = Vec::new();
        let sides = [read_list(reader, ByteReader::varint)?, read_list(reader, ByteReader::varint)?];
        let added = sides.into_iter().try_for_each(|side| counts_from_deltas(side, &mut buckets));
        added.map(|()| HistogramCounts::Integer { count, zero, buckets })
    };
    let is_custom = schema == Ok(CUSTOM_BUCKETS_SCHEMA);
    let custom = if is_custom { read_list(reader, ByteReader::f64)? } else { Vec::new() };
    if is_stale(sum) {
        return Some(Ok(Histogram::stale()));
    }
    let Ok(schema) = schema else { return Some(Err("the schema of a histogram is too large".to_owned())) };
    let built = counts.and_then(|counts| {
        let shape = HistogramShape::new(schema, zero_threshold, custom, positive, negative)?;
        Histogram::new(Arc::new(shape), reset, sum, counts)
    });
    Some(built.map_err(|error| error.to_string()))
}

fn read_spans(reader: &mut ByteReader<'_>) -> Option<Vec<BucketSpan>> {
    read_list(reader, |reader| {
        let offset = i32::try_from(reader.varint()?).ok()?;
        Some(BucketSpan { offset, length: u32::try_from(reader.uvarint()?).ok()? })
    })
}

/// Reads a number of entries, and the entries, of which each takes at least one byte.
fn read_list<'r, T>(
    reader: &mut ByteReader<'r>,
    mut read: impl FnMut(&mut ByteReader<'r>) -> Option<T>,
) -> Option<Vec<T>> {
    let count = reader.length().filter(|count| *count <= reader.len())?;
    (0..count).map(|_| read(reader)).collect()
}
