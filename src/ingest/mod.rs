//! Bytes to [`WriteBatch`]: pure functions over what strangers send.
//!
//! No storage, no clock, no panics; every length is checked against the bytes that are there and against [`Limits`]
//! before anything is allocated by it. A protocol is a function and a row of [`PROTOCOLS`]; its route follows.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod csv;
pub mod gzip;
mod histogram;
pub mod json_lines;
mod lines;
mod number;
pub mod otlp;
mod pairs;
mod protobuf;
pub mod remote_write;
pub mod remote_write2;
mod snappy;
pub mod text;

pub use protobuf::WireError;
#[cfg(test)]
pub(crate) use protobuf::{put_bytes, put_varint};
pub use snappy::SnappyError;

use crate::model::{BatchBuilder, OutOfMemory, Refusal, WriteBatch, check_available};

/// How much one request may bring (API.md C7).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes as sent.
    pub compressed_bytes_max: usize,
    /// Bytes after decompression.
    pub decompressed_bytes_max: usize,
    /// Series, with samples or without. One costs 40 bytes here and may be sent in two, so bytes alone bound nothing.
    pub series_max: usize,
    /// Samples. An honest encoding needs 12 bytes and more for each, so 64 MiB hold fewer than this.
    pub samples_max: usize,
    /// Metric descriptions.
    pub metadata_max: usize,
    /// Native histograms. One may be sent in two bytes and costs 300 here.
    pub histograms_max: usize,
    /// Buckets, spans and custom bounds of all histograms; each may be sent in one byte or two and costs 8 here.
    pub buckets_max: usize,
    /// Exemplars.
    pub exemplars_max: usize,
    /// Texts of a table that labels refer to. One may be sent in two bytes and costs 24 here.
    pub symbols_max: usize,
    /// Labels of all series, where one is two references into such a table: it may be sent in two bytes and costs 32.
    pub labels_max: usize,
    /// Labels of all exemplars. One may be sent in two bytes and costs 32 here.
    pub exemplar_labels_max: usize,
    /// Bytes of labels that are made here, from what one request says once about many series.
    pub label_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
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

/// Why a body is no batch at all; nothing of it is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// There are no bytes.
    #[error("the body is empty")]
    Empty,
    /// More bytes, declared or sent, or more entries than [`Limits`] allow: 413.
    #[error("the request has {found} {what}, more than the {allowed} that are allowed")]
    TooLarge {
        /// Of what: `bytes`, `bytes after decompression`, `samples`, ...
        what: &'static str,
        /// How many; for entries, where counting stopped.
        found: usize,
        /// The limit.
        allowed: usize,
    },
    /// The operating system has no memory for the decompressed body or for what is made of it: 503, to be sent again.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The compression is broken: 400.
    #[error("snappy: {0}")]
    Snappy(#[from] SnappyError),
    /// As with snappy.
    #[error("gzip: {0}")]
    Gzip(#[from] gzip::GzipError),
    /// It cannot be told what the columns mean: 400.
    #[error("csv: {0}")]
    Columns(#[from] csv::ColumnsError),
    /// The message inside is broken: 400.
    #[error("protobuf: {0}")]
    Wire(#[from] WireError),
    /// The text inside is broken, or says something else than it should: 400.
    #[error("json: {reason} at line {line} column {column}")]
    Json {
        /// What is wrong.
        reason: String,
        /// Where, from 1; 0 where there is no place.
        line: usize,
        /// Where in the line.
        column: usize,
    },
}

impl DecodeError {
    /// Whether size is what is wrong: 413 rather than 400.
    pub const fn is_size(&self) -> bool {
        matches!(self, DecodeError::TooLarge { .. })
    }
}

/// What a decoder of decompressed bodies asks first.
fn check_size(body: &[u8], limits: &Limits) -> Result<(), DecodeError> {
    let (found, allowed) = (body.len(), limits.decompressed_bytes_max);
    if found > allowed {
        return Err(DecodeError::TooLarge { what: "bytes after decompression", found, allowed });
    }
    if body.is_empty() { Err(DecodeError::Empty) } else { check_memory(body.len()) }
}

/// Whether there is memory for what is made of a decompressed body of so many bytes: series, labels and samples in lists
/// that double as they grow. What an unusual body takes beyond that is bounded by [`Limits`].
fn check_memory(bytes: usize) -> Result<(), DecodeError> {
    const EACH: u64 = 5;
    Ok(check_available((bytes as u64).saturating_mul(EACH))?)
}

/// What such a decoder asks after each series.
fn check_series(batch: &BatchBuilder, limits: &Limits) -> Result<(), DecodeError> {
    let (found, allowed) = (batch.series_len(), limits.series_max);
    if found > allowed { Err(DecodeError::TooLarge { what: "series", found, allowed }) } else { Ok(()) }
}

/// What a body came to whose wire format keeps no labels in a row: they were translated, and some of it may have been
/// refused on the way.
#[derive(Debug, Default)]
pub struct Translated {
    /// What is to be stored.
    pub batch: BatchBuilder,
    /// The first of what was refused, in the sender's order: [`Translated::NAMED_MAX`] at most.
    pub refusals: Vec<Refusal>,
    /// How many samples (data points, lines) were refused.
    pub refused: usize,
}

impl Translated {
    /// How many refusals are told one by one (API.md C7).
    pub const NAMED_MAX: usize = 10;

    /// Counts `samples` that are refused, and keeps the reason while there is room for it.
    pub fn refuse(&mut self, samples: usize, refusal: impl FnOnce() -> Refusal) {
        self.refused = self.refused.saturating_add(samples);
        if self.refusals.len() < Translated::NAMED_MAX {
            self.refusals.push(refusal());
        }
    }
}

/// Memory that a thread keeps from one request to the next; a batch borrows from it.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The decompressed body, at the beginning; what else is in there means nothing.
    pub body: Vec<u8>,
    /// Label bytes that a decoder put together.
    pub labels: Vec<u8>,
}

impl Scratch {
    /// One that grew large is not kept: 64 MiB a thread would stay with us for ever.
    const KEPT_BYTES_MAX: usize = 5 << 20;

    /// Gives back what a large request needed.
    pub fn shrink(&mut self) {
        for bytes in [&mut self.body, &mut self.labels] {
            if bytes.capacity() > Scratch::KEPT_BYTES_MAX {
                *bytes = Vec::new();
            }
        }
    }
}

/// Reads one body. The batch borrows from `scratch`.
pub type Decode = for<'a> fn(&[u8], &Limits, scratch: &'a mut Scratch) -> Result<WriteBatch<'a>, DecodeError>;

/// A version of remote write: a wire format that keeps its labels in a row, so that a batch borrows them and what the store
/// knows already is found without looking at them.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// A word for logs and metrics.
    pub name: &'static str,
    /// Whether a `Content-Type` (absent: empty) means this protocol.
    pub accepts_type: fn(&str) -> bool,
    /// Whether a `Content-Encoding` (absent: empty) is one that `decode` undoes.
    pub accepts_encoding: fn(&str) -> bool,
    /// Whether its senders are to be told how much of a request was written.
    pub tells_written: bool,
    /// Reads a body.
    pub decode: Decode,
    /// As `decode`, and may guess ([`WriteBatch::guessed`]): faster for what its store knows already.
    pub guess: Decode,
}

/// Every version of remote write that is understood.
pub const PROTOCOLS: &[Protocol] = &[
    Protocol {
        name: "remote_write",
        accepts_type: remote_write::accepts_type,
        accepts_encoding: remote_write::accepts_encoding,
        tells_written: false,
        decode: remote_write::decode,
        guess: remote_write::guess,
    },
    Protocol {
        name: "remote_write_2",
        accepts_type: remote_write2::accepts_type,
        accepts_encoding: remote_write::accepts_encoding,
        tells_written: true,
        decode: remote_write2::decode,
        guess: remote_write2::decode,
    },
];
