//! Prometheus remote write 1.0: a `WriteRequest` in protobuf, as one snappy block.
//!
//! | message | fields that are read |
//! |---|---|
//! | `WriteRequest` | 1 `TimeSeries` (repeated), 3 `MetricMetadata` (repeated) |
//! | `TimeSeries` | 1 `Label` (repeated), 2 `Sample` (repeated), 3 `Exemplar` (repeated), 4 `Histogram` (repeated) |
//! | `Label` | 1 name, 2 value |
//! | `Sample` | 1 value (double), 2 time (int64, milliseconds) |
//! | `MetricMetadata` | 1 kind (enum), 2 family name, 4 help, 5 unit |
//!
//! `Exemplar` and `Histogram` are drawn in `rare`, which most requests never enter.
//!
//! Labels are not taken apart here: a series is known by the bytes from its first `Label` to its last. Senders write them
//! in one run, so those bytes are the same in every request. Where something else stands between them, the stretch holds
//! that too: it is then known by nothing the store has seen, and [`parse_labels`] reads it correctly all the same.

pub(super) mod plain;
mod rare;

use super::protobuf::{Reader, WireError};
use super::{DecodeError, Limits, Scratch, snappy};
use crate::model::{MetricKind, MetricMetadata, Sample, Timestamp, WriteBatch, WriteSeries};

/// [`WriteBatch::encoding`] of remote write 1.0's label bytes.
pub const ENCODING: u8 = 1;

const REQUEST: &str = "WriteRequest";
const SERIES: &str = "TimeSeries";
const LABEL: &str = "Label";
const SAMPLE: &str = "Sample";
const METADATA: &str = "MetricMetadata";

/// Bytes of a series with one sample, more often than not,
const LIKELY_SERIES_BYTES: usize = 128;
/// and how many of them are made room for at once: 48 bytes each.
const LIKELY_SERIES_MAX: usize = 4_096;

/// Labels of one series that are taken apart. The store takes far fewer and says so; a label may be sent in two bytes
/// and costs 32 here, so bytes alone bound nothing.
const LABELS_READ_MAX: usize = 1_024;

/// `application/x-protobuf`, alone or with `proto=prometheus.WriteRequest`; no type at all is taken for it, as Prometheus
/// does. Remote write 2.0 names another message, so it is not this.
pub fn accepts_type(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    let proto = |parameter: &str| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        !name.trim().eq_ignore_ascii_case("proto")
            || value.trim().trim_matches('"') == "prometheus.WriteRequest"
    };
    (media.is_empty() || media.eq_ignore_ascii_case("application/x-protobuf")) && parts.all(proto)
}

/// `snappy`; no encoding at all is taken for it, as Prometheus does.
pub fn accepts_encoding(content_encoding: &str) -> bool {
    content_encoding.is_empty() || content_encoding.eq_ignore_ascii_case("snappy")
}

/// Reads one request. Cost: one pass over the decompressed bytes, which end up in `scratch`.
///
/// # Errors
/// [`DecodeError`]; nothing partial is ever returned. What is wrong inside a series' labels is not noticed here but by
/// [`parse_labels`], when the store meets them first: that refuses the series, not the request.
pub fn decode<'a>(
    body: &[u8],
    limits: &Limits,
    scratch: &'a mut Scratch,
) -> Result<WriteBatch<'a>, DecodeError> {
    read::<false>(body, limits, scratch)
}

/// As [`decode`], but a series that ends as those with one sample do is split there, unread: [`WriteBatch::guessed`].
/// Reading the labels of a scrape label by label takes longer than hashing them.
///
/// # Errors
/// As of [`decode`]; a body that is wrong inside such a series is refused by whoever asks `is_labels`.
pub fn guess<'a>(
    body: &[u8],
    limits: &Limits,
    scratch: &'a mut Scratch,
) -> Result<WriteBatch<'a>, DecodeError> {
    read::<true>(body, limits, scratch)
}

fn read<'a, const GUESS: bool>(
    body: &[u8],
    limits: &Limits,
    scratch: &'a mut Scratch,
) -> Result<WriteBatch<'a>, DecodeError> {
    let message = snappy::decompress(body, limits, &mut scratch.body)?;
    // As many as a usual request of this size has; it grows where there are more.
    let likely = (message.len() / LIKELY_SERIES_BYTES).min(LIKELY_SERIES_MAX);
    let mut batch = WriteBatch::new(ENCODING, parse_labels, is_labels, likely);
    batch.guessed = GUESS;
    let mut buckets = 0;
    let mut request = Reader::new(message);
    let mut sent: usize = 0;
    loop {
        let message = match request.nested(plain::SERIES_TAG) {
            Some(message) => message,
            None => match request.field()? {
                None => break,
                Some(field) if field.number == 1 => field.bytes(REQUEST)?,
                Some(field) => {
                    if field.number == 3 {
                        add_metadata(&mut batch, field.bytes(REQUEST)?, limits)?;
                    }
                    continue;
                }
            },
        };
        sent = sent.saturating_add(1);
        if sent > limits.series_max {
            let allowed = limits.series_max;
            return Err(DecodeError::TooLarge { what: "series", found: sent, allowed });
        }
        let added = (GUESS && add_by_looks(&mut batch, message, limits))
            || add_plain_series(&mut batch, message, limits);
        if !added {
            add_series(&mut batch, message, limits, &mut buckets)?;
        }
    }
    Ok(batch)
}

/// Adds a series that looks like labels and one sample; false, and nothing is added, where it does not.
#[inline]
fn add_by_looks<'a>(batch: &mut WriteBatch<'a>, message: &'a [u8], limits: &Limits) -> bool {
    let first = batch.samples.len();
    let Some((raw_labels, sample)) = plain::looks(message).filter(|_| first < limits.samples_max) else {
        return false;
    };
    batch.samples.push(sample);
    batch.series.push(WriteSeries { raw_labels, samples: first..batch.samples.len() });
    true
}

/// Whether these bytes are a run of `Label` fields.
fn is_labels(raw: &[u8]) -> bool {
    plain::labels_end(raw) == raw.len()
}

/// Adds a series of labels and samples alone; false, and nothing is added, where there is more to it.
#[inline]
fn add_plain_series<'a>(batch: &mut WriteBatch<'a>, message: &'a [u8], limits: &Limits) -> bool {
    let Some((raw_labels, run)) = message.split_at_checked(plain::labels_end(message)) else { return false };
    let first = batch.samples.len();
    if !plain::take_samples(run, &mut batch.samples, limits.samples_max) {
        return false;
    }
    let samples = first..batch.samples.len();
    // A series without a sample is nothing to store; Prometheus keeps nothing of it either.
    if !samples.is_empty() {
        batch.series.push(WriteSeries { raw_labels, samples });
    }
    true
}

fn add_series<'a>(
    batch: &mut WriteBatch<'a>,
    message: &'a [u8],
    limits: &Limits,
    buckets: &mut usize,
) -> Result<(), DecodeError> {
    let first_sample = batch.samples.len();
    let mut labels: Option<(usize, usize)> = None;
    let mut reader = Reader::new(message);
    let mut start = 0;
    let mut has_rare = false;
    while let Some(field) = reader.field()? {
        let end = reader.offset();
        match field.number {
            1 => {
                field.bytes(SERIES)?;
                let first = labels.map_or(start, |(first, _)| first);
                labels = Some((first, end));
            }
            2 => {
                let (found, allowed) = (batch.samples.len(), limits.samples_max);
                if found >= allowed {
                    return Err(DecodeError::TooLarge {
                        what: "samples",
                        found: found.saturating_add(1),
                        allowed,
                    });
                }
                batch.samples.push(sample(field.bytes(SERIES)?)?);
            }
            3 | 4 => {
                has_rare = true;
                rare::add(batch, &field, limits, buckets)?;
            }
            _ => {}
        }
        start = end;
    }
    let samples = first_sample..batch.samples.len();
    // A series with nothing to store is no series; Prometheus keeps nothing of it either.
    if samples.is_empty() && !has_rare {
        return Ok(());
    }
    let raw_labels = labels.and_then(|(first, end)| message.get(first..end)).unwrap_or_default();
    batch.series.push(WriteSeries { raw_labels, samples });
    Ok(())
}

fn sample(message: &[u8]) -> Result<Sample, WireError> {
    let mut sample = Sample { at: Timestamp::from_ms(0), value: 0.0 };
    let mut reader = Reader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => sample.value = field.double(SAMPLE)?,
            2 => sample.at = Timestamp::from_ms(field.int64(SAMPLE)?),
            _ => {}
        }
    }
    Ok(sample)
}

fn add_metadata<'a>(
    batch: &mut WriteBatch<'a>,
    message: &'a [u8],
    limits: &Limits,
) -> Result<(), DecodeError> {
    let (found, allowed) = (batch.metadata.len(), limits.metadata_max);
    if found >= allowed {
        return Err(DecodeError::TooLarge {
            what: "metric descriptions",
            found: found.saturating_add(1),
            allowed,
        });
    }
    let mut metadata = MetricMetadata { name: "", kind: MetricKind::Unknown, help: "", unit: "" };
    let mut reader = Reader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => metadata.kind = kind(field.int64(METADATA)?),
            2 => metadata.name = field.text(METADATA)?,
            4 => metadata.help = field.text(METADATA)?,
            5 => metadata.unit = field.text(METADATA)?,
            _ => {}
        }
    }
    batch.metadata.push(metadata);
    Ok(())
}

/// The protocol's numbers are ours; one that it does not have yet says nothing about the metric.
pub(super) fn kind(number: i64) -> MetricKind {
    u8::try_from(number).ok().and_then(MetricKind::from_number).unwrap_or_default()
}

/// Takes a stretch of a `TimeSeries` apart: every `Label` in it, in order; other fields are passed over.
///
/// # Errors
/// A sentence, where a label is no message of two strings, or where there are more than 1,024 of them.
pub fn parse_labels<'a>(raw: &'a [u8], pairs: &mut Vec<(&'a [u8], &'a [u8])>) -> Result<(), &'static str> {
    const BROKEN: &str = "a label is not valid protobuf";
    let mut reader = Reader::new(raw);
    while let Some(field) = reader.field().map_err(|_| BROKEN)? {
        if field.number == 1 {
            if pairs.len() >= LABELS_READ_MAX {
                return Err("it has more than 1024 labels");
            }
            pairs.push(label(field.bytes(SERIES).map_err(|_| BROKEN)?).map_err(|_| BROKEN)?);
        }
    }
    Ok(())
}

fn label(message: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let (mut name, mut value) = (&[][..], &[][..]);
    let mut reader = Reader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => name = field.bytes(LABEL)?,
            2 => value = field.bytes(LABEL)?,
            _ => {}
        }
    }
    Ok((name, value))
}

#[cfg(test)]
mod tests;
