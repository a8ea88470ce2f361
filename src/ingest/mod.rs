//! Decoders of request bodies: untrusted bytes in, a [`WriteBatch`] out.
//!
//! All are pure functions, without storage, clock or panics. Every length is checked against the
//! bytes that are present and against [`DecodeLimits`] before memory is allocated for it. A version
//! of remote write is a module with a `decode` function and a row in [`PROTOCOLS`].

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod csv;
mod decompress;
pub mod exposition;
pub mod graphite;
pub mod gzip;
mod histogram;
pub mod influx;
pub mod json_lines;
mod lines;
mod number;
pub mod otlp;
mod pairs;
pub mod prometheus_chunk;
pub(crate) mod prompb;
mod protobuf;
pub(crate) mod protobuf_write;
pub mod remote_read;
pub mod remote_write;
pub mod remote_write2;
mod snappy;
pub mod text;
mod zstd_frames;

pub use pairs::LABELS_PARSED_MAX;
pub use protobuf::WireError;
pub(crate) use protobuf::{put_bytes, put_varint, unzigzag};
pub use snappy::SnappyError;
pub use zstd_frames::ZstdError;

use crate::model::{BatchBuilder, GuessedBatch, OutOfMemory, Refusal, WriteBatch, check_available};

/// Limits of one request (docs/specification.md C7). All maxima are inclusive.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLimits {
    /// Bytes as sent, before decompression.
    pub compressed_bytes_max: usize,
    /// Bytes after decompression.
    pub decompressed_bytes_max: usize,
    /// Series, including those without samples. A series may be sent in 2 bytes and takes 40 here,
    /// so a limit on bytes alone would not bound memory.
    pub series_max: usize,
    /// Samples. Usual encodings need at least 12 bytes each, so 64 MiB hold fewer than this.
    pub samples_max: usize,
    /// Metric descriptions (type, help, unit).
    pub metadata_max: usize,
    /// Native histograms. One may be sent in 2 bytes and takes 300 here.
    pub histograms_max: usize,
    /// Buckets, spans and custom bounds of all histograms. Each may be sent in 1 or 2 bytes and
    /// takes 8 here.
    pub buckets_max: usize,
    /// Exemplars.
    pub exemplars_max: usize,
    /// Entries of the symbol table (remote write 2.0). One may be sent in 2 bytes and takes 24
    /// here.
    pub symbols_max: usize,
    /// Labels of all series in a format where a label is two references into a symbol table. One
    /// may be sent in 2 bytes and takes 32 here.
    pub labels_max: usize,
    /// Labels of all exemplars. One may be sent in 2 bytes and takes 32 here.
    pub exemplar_labels_max: usize,
    /// Bytes of rendered labels (OTLP), where attributes that are sent once become labels of many
    /// series.
    pub label_bytes_max: usize,
}

impl Default for DecodeLimits {
    fn default() -> DecodeLimits {
        DecodeLimits {
            compressed_bytes_max: 8 << 20,
            decompressed_bytes_max: 64 << 20,
            series_max: 1_000_000,
            samples_max: 6_000_000,
            metadata_max: 100_000,
            histograms_max: 250_000,
            buckets_max: 8_000_000,
            exemplars_max: 250_000,
            exemplar_labels_max: 1_000_000,
            symbols_max: 2_000_000,
            labels_max: 8_000_000,
            label_bytes_max: 256 << 20,
        }
    }
}

/// The reason why a whole body is refused. No part of the body is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body is empty: 400.
    #[error("the body is empty")]
    Empty,
    /// More bytes (declared or sent) or more entries than [`DecodeLimits`] allow: 413.
    #[error("the request has {found} {what}; at most {allowed} are allowed")]
    TooLarge {
        /// The items of which there are too many: `bytes`, `bytes after decompression`, `samples`,
        /// ...
        what: &'static str,
        /// The number found; for entries, the count at which decoding stopped.
        found: usize,
        /// The limit.
        allowed: usize,
    },
    /// The system has no memory for the decompressed body or its decoded form: 503, so that the
    /// sender retries.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The snappy block is invalid: 400.
    #[error("snappy: {0}")]
    Snappy(#[from] SnappyError),
    /// The gzip body is invalid: 400.
    #[error("gzip: {0}")]
    Gzip(#[from] gzip::GzipError),
    /// The zstd body is invalid: 400.
    #[error("zstd: {0}")]
    Zstd(#[from] ZstdError),
    /// The description of the CSV columns is invalid: 400.
    #[error("csv: {0}")]
    Columns(#[from] csv::ColumnsError),
    /// The protobuf message is invalid: 400.
    #[error("protobuf: {0}")]
    Wire(#[from] WireError),
    /// The JSON is malformed, or a value has the wrong type: 400.
    #[error("json: {reason} at line {line} column {column}")]
    Json {
        /// The parser's message.
        reason: String,
        /// Line, from 1; 0 if unknown.
        line: usize,
        /// Column, from 1; 0 if unknown.
        column: usize,
    },
}

impl DecodeError {
    /// Returns whether the body exceeds a limit: 413 rather than 400.
    pub const fn is_size(&self) -> bool {
        matches!(self, DecodeError::TooLarge { .. })
    }
}

/// Checks the size of a decompressed body.
///
/// # Errors
/// [`DecodeError::TooLarge`], or [`DecodeError::Empty`].
fn check_size(body: &[u8], limits: &DecodeLimits) -> Result<(), DecodeError> {
    let (found, allowed) = (body.len(), limits.decompressed_bytes_max);
    if found > allowed {
        return Err(DecodeError::TooLarge { what: "bytes after decompression", found, allowed });
    }
    if body.is_empty() { Err(DecodeError::Empty) } else { check_memory(body.len()) }
}

/// Checks that there is memory for the decoded form of a decompressed body of `bytes` bytes:
/// series, labels and samples in lists that double as they grow. [`DecodeLimits`] bounds the memory
/// that an unusual body needs beyond that.
///
/// # Errors
/// [`DecodeError::OutOfMemory`].
fn check_memory(bytes: usize) -> Result<(), DecodeError> {
    const EACH: u64 = 5;
    Ok(check_available((bytes as u64).saturating_mul(EACH))?)
}

/// Checks the number of series; called after each one is added.
///
/// # Errors
/// [`DecodeError::TooLarge`].
fn check_series(batch: &BatchBuilder, limits: &DecodeLimits) -> Result<(), DecodeError> {
    let (found, allowed) = (batch.series_len(), limits.series_max);
    if found > allowed { Err(DecodeError::TooLarge { what: "series", found, allowed }) } else { Ok(()) }
}

/// The result of a decoder that translates labels instead of borrowing them from the body. Some of
/// the samples may have been refused.
#[derive(Debug, Default)]
pub struct Translated {
    /// The samples to store.
    pub batch: BatchBuilder,
    /// The first refusals, in the sender's order; at most [`Translated::REFUSALS_LISTED_MAX`].
    pub refusals: Vec<Refusal>,
    /// The number of refused samples (data points, lines).
    pub refused: usize,
    /// The number of values that are not numbers, which the format allows and no sample can hold.
    pub skipped: usize,
}

impl Translated {
    /// Refusals that a response lists (docs/specification.md C7).
    pub const REFUSALS_LISTED_MAX: usize = 10;

    /// Counts `samples` as refused, and keeps the reason while fewer than
    /// [`Translated::REFUSALS_LISTED_MAX`] are listed.
    pub fn refuse(&mut self, samples: usize, refusal: impl FnOnce() -> Refusal) {
        self.refused = self.refused.saturating_add(samples);
        if self.refusals.len() < Translated::REFUSALS_LISTED_MAX {
            self.refusals.push(refusal());
        }
    }
}

/// Buffers that a thread reuses from request to request. A batch borrows from them.
#[derive(Debug, Default)]
pub struct DecodeScratch {
    /// The decompressed body at the start; bytes after it are undefined.
    pub body: Vec<u8>,
    /// Label bytes that a decoder assembled.
    pub labels: Vec<u8>,
}

impl DecodeScratch {
    /// Buffers with more capacity than this are freed, since a thread would otherwise hold 64 MiB
    /// forever.
    const RETAINED_BYTES_MAX: usize = 5 << 20;

    /// Frees buffers that grew beyond `RETAINED_BYTES_MAX`.
    pub fn shrink(&mut self) {
        for bytes in [&mut self.body, &mut self.labels] {
            if bytes.capacity() > DecodeScratch::RETAINED_BYTES_MAX {
                *bytes = Vec::new();
            }
        }
    }
}

/// A decoder of one body. The batch borrows from `scratch`.
pub type Decode =
    for<'a> fn(&[u8], &DecodeLimits, scratch: &'a mut DecodeScratch) -> Result<WriteBatch<'a>, DecodeError>;

/// Like [`Decode`], but guesses where labels end.
pub type Guess =
    for<'a> fn(&[u8], &DecodeLimits, scratch: &'a mut DecodeScratch) -> Result<GuessedBatch<'a>, DecodeError>;

/// A version of remote write. Its wire format keeps the labels of a series in consecutive bytes, so
/// a batch borrows them and the store finds known series without parsing labels.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// The name in logs and metrics.
    pub name: &'static str,
    /// Returns whether a `Content-Type` (empty if absent) selects this protocol.
    pub accepts_type: fn(&str) -> bool,
    /// Returns whether `decode` can decode a `Content-Encoding` (empty if absent).
    pub accepts_encoding: fn(&str) -> bool,
    /// Whether a response reports how many samples, histograms and exemplars were written.
    pub reports_written: bool,
    /// Decodes a body.
    pub decode: Decode,
    /// Like `decode`, but faster if the store knows the series. `None` if there is nothing to
    /// guess.
    pub guess: Option<Guess>,
}

/// All supported versions of remote write.
pub const PROTOCOLS: &[Protocol] = &[
    Protocol {
        name: "remote_write",
        accepts_type: remote_write::accepts_type,
        accepts_encoding: remote_write::accepts_encoding,
        reports_written: false,
        decode: remote_write::decode,
        guess: Some(remote_write::guess),
    },
    Protocol {
        name: "remote_write_2",
        accepts_type: remote_write2::accepts_type,
        accepts_encoding: remote_write::accepts_encoding,
        reports_written: true,
        decode: remote_write2::decode,
        guess: None,
    },
    Protocol {
        name: "remote_write_zstd",
        accepts_type: remote_write::accepts_type,
        accepts_encoding: is_zstd,
        reports_written: false,
        decode: remote_write::decode_zstd,
        guess: Some(remote_write::guess_zstd),
    },
    Protocol {
        name: "remote_write_2_zstd",
        accepts_type: remote_write2::accepts_type,
        accepts_encoding: is_zstd,
        reports_written: true,
        decode: remote_write2::decode_zstd,
        guess: None,
    },
];

/// Returns whether a `Content-Encoding` is zstd, which vmagent prefers.
fn is_zstd(content_encoding: &str) -> bool {
    content_encoding.eq_ignore_ascii_case("zstd")
}
