//! The log and the head chunks of a stopped Prometheus: the samples that are in no block yet.
//!
//! ```text
//! wal/checkpoint.00000003/  the series and samples that remain of the segments up to 3
//!     00000004 ...          segments of the log
//! wbl/00000000 ...          the log of samples that arrived out of order
//! chunks_head/000001 ...    full chunks of the head
//! ```
//!
//! A segment is a sequence of pages of 32 KiB, a page a sequence of fragments of records. Records
//! are compressed with snappy, zstd or not at all.

mod head;
mod head_chunks;
mod record;
mod segments;
#[cfg(test)]
mod tests;

pub use head::{EachHeadSample, HeadReader, HeadSample, SeriesMetadata};
