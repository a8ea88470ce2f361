//! Decoder of Prometheus remote write 1.0: a `WriteRequest` in protobuf, as one snappy block.
//!
//! Fields that are read, by message:
//! * `WriteRequest`: 1 `TimeSeries` (repeated), 3 `MetricMetadata` (repeated)
//! * `TimeSeries`: 1 `Label` (repeated), 2 `Sample` (repeated), 3 `Exemplar` (repeated), 4
//!   `Histogram` (repeated)
//! * `Label`: 1 name, 2 value
//! * `Sample`: 1 value (double), 2 time (int64, milliseconds)
//! * `MetricMetadata`: 1 kind (enum), 2 family name, 4 help, 5 unit
//!
//! `side_data` reads `Exemplar` and `Histogram`, which most requests do not contain.
//!
//! Labels are not parsed here: a series is identified by the bytes from its first `Label` to its
//! last. Senders write the labels in one run, so these bytes are the same in every request. If
//! other fields lie between the labels, the bytes include them. The store then does not recognise
//! the series by its bytes, and [`parse_labels`] still parses it correctly.

pub(super) mod fast_path;
mod side_data;

use super::protobuf::{WireError, WireReader};
use super::{DecodeError, DecodeLimits, DecodeScratch, snappy, zstd_frames};
use crate::model::{GuessedBatch, MetricKind, MetricMetadata, Sample, Timestamp, WriteBatch, WriteSeries};

/// [`WriteBatch::encoding`] of label bytes of remote write 1.0.
pub const ENCODING: u8 = 1;

const REQUEST: &str = "WriteRequest";
const SERIES: &str = "TimeSeries";
const LABEL: &str = "Label";
const SAMPLE: &str = "Sample";
const METADATA: &str = "MetricMetadata";

/// Typical bytes of a series with one sample.
const TYPICAL_SERIES_BYTES: usize = 128;
/// Series for which memory is reserved in advance, at most; a series and its sample take 48 bytes.
const PREALLOCATED_SERIES_MAX: usize = 4_096;

/// Labels of one series that are parsed, at most. The store allows far fewer and reports the
/// excess. A label may be sent in 2 bytes and takes 32 here, so a limit on bytes alone would not
/// bound memory.
const LABELS_PARSED_MAX: usize = 1_024;

/// Returns whether a `Content-Type` selects this version: `application/x-protobuf`, alone or with
/// `proto=prometheus.WriteRequest`, or no type at all, as in Prometheus. Remote write 2.0 names
/// another message in `proto`.
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

/// Returns whether a `Content-Encoding` is supported: `snappy`, or none at all, as in Prometheus.
pub fn accepts_encoding(content_encoding: &str) -> bool {
    content_encoding.is_empty() || content_encoding.eq_ignore_ascii_case("snappy")
}

/// Decodes one request. Cost: one pass over the decompressed bytes, which are stored in `scratch`.
///
/// # Errors
/// [`DecodeError`]; a partial batch is never returned. Errors inside the labels of a series are not
/// detected here. [`parse_labels`] reports them when the store first meets the bytes, and refuses
/// the series instead of the request.
pub fn decode<'a>(
    body: &[u8],
    limits: &DecodeLimits,
    scratch: &'a mut DecodeScratch,
) -> Result<WriteBatch<'a>, DecodeError> {
    decode_message::<false>(snappy::decompress(body, limits, &mut scratch.body)?, limits)
}

/// Like [`decode`], for a body in zstd.
///
/// # Errors
/// Those of [`decode`].
pub fn decode_zstd<'a>(
    body: &[u8],
    limits: &DecodeLimits,
    scratch: &'a mut DecodeScratch,
) -> Result<WriteBatch<'a>, DecodeError> {
    decode_message::<false>(zstd_frames::decompress(body, limits, &mut scratch.body)?, limits)
}

/// Like [`decode`], but if the last bytes of a series look like its only sample, the series is
/// split there and the bytes before are not read. For a usual scrape,
/// hashing the label bytes is faster than reading them label by label.
///
/// # Errors
/// Those of [`decode`]. A body that is malformed inside such a series is refused when the store
/// calls [`WriteBatch::is_labels`].
pub fn guess<'a>(
    body: &[u8],
    limits: &DecodeLimits,
    scratch: &'a mut DecodeScratch,
) -> Result<GuessedBatch<'a>, DecodeError> {
    decode_message::<true>(snappy::decompress(body, limits, &mut scratch.body)?, limits).map(GuessedBatch)
}

/// Like [`guess`], for a body in zstd.
///
/// # Errors
/// Those of [`guess`].
pub fn guess_zstd<'a>(
    body: &[u8],
    limits: &DecodeLimits,
    scratch: &'a mut DecodeScratch,
) -> Result<GuessedBatch<'a>, DecodeError> {
    decode_message::<true>(zstd_frames::decompress(body, limits, &mut scratch.body)?, limits)
        .map(GuessedBatch)
}

fn decode_message<'a, const GUESS: bool>(
    message: &'a [u8],
    limits: &DecodeLimits,
) -> Result<WriteBatch<'a>, DecodeError> {
    // The vectors grow if a request has more series than usual.
    let expected_series = (message.len() / TYPICAL_SERIES_BYTES).min(PREALLOCATED_SERIES_MAX);
    let mut batch = WriteBatch::new(ENCODING, parse_labels, is_labels, expected_series);
    let mut buckets = 0;
    let mut request = WireReader::new(message);
    let mut series_count: usize = 0;
    loop {
        let message = match request.nested(fast_path::SERIES_TAG) {
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
        series_count = series_count.saturating_add(1);
        if series_count > limits.series_max {
            let allowed = limits.series_max;
            return Err(DecodeError::TooLarge { what: "series", found: series_count, allowed });
        }
        let added = (GUESS && add_guessed_series(&mut batch, message, limits))
            || add_simple_series(&mut batch, message, limits);
        if !added {
            add_series(&mut batch, message, limits, &mut buckets)?;
        }
    }
    Ok(batch)
}

/// Adds a series that looks like labels and one sample. Otherwise adds nothing and returns false.
#[inline]
fn add_guessed_series<'a>(batch: &mut WriteBatch<'a>, message: &'a [u8], limits: &DecodeLimits) -> bool {
    let first = batch.samples.len();
    let Some((raw_labels, sample)) =
        fast_path::split_last_sample(message).filter(|_| first < limits.samples_max)
    else {
        return false;
    };
    batch.samples.push(sample);
    batch.series.push(WriteSeries { raw_labels, samples: first..batch.samples.len() });
    true
}

/// Returns whether `raw` is a sequence of `Label` fields and nothing else.
fn is_labels(raw: &[u8]) -> bool {
    fast_path::labels_end(raw) == raw.len()
}

/// Adds a series that has only labels and samples. Otherwise adds nothing and returns false.
#[inline]
fn add_simple_series<'a>(batch: &mut WriteBatch<'a>, message: &'a [u8], limits: &DecodeLimits) -> bool {
    let Some((raw_labels, samples_run)) = message.split_at_checked(fast_path::labels_end(message)) else {
        return false;
    };
    let first = batch.samples.len();
    if !fast_path::parse_samples(samples_run, &mut batch.samples, limits.samples_max) {
        return false;
    }
    let samples = first..batch.samples.len();
    // A series without samples is not stored, as in Prometheus.
    if !samples.is_empty() {
        batch.series.push(WriteSeries { raw_labels, samples });
    }
    true
}

/// Adds a series with any fields in any order.
fn add_series<'a>(
    batch: &mut WriteBatch<'a>,
    message: &'a [u8],
    limits: &DecodeLimits,
    buckets: &mut usize,
) -> Result<(), DecodeError> {
    let first_sample = batch.samples.len();
    let mut labels: Option<(usize, usize)> = None;
    let mut reader = WireReader::new(message);
    let mut start = 0;
    let mut has_side_data = false;
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
                has_side_data = true;
                side_data::add(batch, &field, limits, buckets)?;
            }
            _ => {}
        }
        start = end;
    }
    let samples = first_sample..batch.samples.len();
    // A series without any data is not stored, as in Prometheus.
    if samples.is_empty() && !has_side_data {
        return Ok(());
    }
    let raw_labels = labels.and_then(|(first, end)| message.get(first..end)).unwrap_or_default();
    batch.series.push(WriteSeries { raw_labels, samples });
    Ok(())
}

fn sample(message: &[u8]) -> Result<Sample, WireError> {
    let mut sample = Sample { at: Timestamp::from_ms(0), value: 0.0 };
    let mut reader = WireReader::new(message);
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
    limits: &DecodeLimits,
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
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => metadata.kind = metric_kind(field.int64(METADATA)?),
            2 => metadata.name = field.text(METADATA)?,
            4 => metadata.help = field.text(METADATA)?,
            5 => metadata.unit = field.text(METADATA)?,
            _ => {}
        }
    }
    batch.metadata.push(metadata);
    Ok(())
}

/// Maps the protocol's number of a metric type, which is the number in [`MetricKind`] as well.
/// Unknown numbers mean an unknown type.
pub(super) fn metric_kind(number: i64) -> MetricKind {
    u8::try_from(number).ok().and_then(MetricKind::from_number).unwrap_or_default()
}

/// Parses the label bytes of a `TimeSeries`: appends every `Label`, in order, and skips other
/// fields.
///
/// # Errors
/// A sentence for the sender, if a label is not a message of two strings or there are more than
/// 1,024.
pub fn parse_labels<'a>(raw: &'a [u8], pairs: &mut Vec<(&'a [u8], &'a [u8])>) -> Result<(), &'static str> {
    const BROKEN: &str = "a label is not valid protobuf";
    let mut reader = WireReader::new(raw);
    while let Some(field) = reader.field().map_err(|_| BROKEN)? {
        if field.number == 1 {
            if pairs.len() >= LABELS_PARSED_MAX {
                return Err("it has more than 1024 labels");
            }
            pairs.push(label(field.bytes(SERIES).map_err(|_| BROKEN)?).map_err(|_| BROKEN)?);
        }
    }
    Ok(())
}

fn label(message: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let (mut name, mut value) = (&[][..], &[][..]);
    let mut reader = WireReader::new(message);
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
