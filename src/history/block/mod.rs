//! Block folders of Prometheus (prometheus/tsdb/docs/format): read, verified and written.
//!
//! ```text
//! <ULID>/meta.json    times, counts and origin of the block
//!        index        symbols, series and postings, each with a checksum
//!        chunks/000001  chunks of samples, each with a checksum
//!        tombstones   deleted ranges of series
//! ```
//!
//! A reader keeps neither the symbols nor the postings of a block in memory, so its memory does not
//! depend on the size of the block.

mod bytes;
mod chunk_files;
mod file;
mod index;
mod meta;
mod reader;
mod symbols;
#[cfg(test)]
mod tests;
mod tombstones;
mod ulid;
mod write;
mod write_index;

use std::path::PathBuf;

pub(in crate::history) use bytes::{ByteReader, LABELS_MAX, VARINT_BYTES_MAX};
pub(in crate::history) use chunk_files::{CHUNK_BYTES_MAX, numbered_files};
pub(in crate::history) use file::{BlockFile, Window};
pub use index::{BlockSeries, ChunkRef};
pub(in crate::history) use meta::META_FILE;
pub use meta::{BlockMeta, BlockStats};
pub use reader::{BlockCounts, BlockReader};
pub use tombstones::DeletedRanges;
pub use ulid::Ulid;
pub use write::{BlockWriter, WrittenBlock};
pub use write_index::compare_labels;

/// The reason why a file of Prometheus is refused, or why a block cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// The system reports an error.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file or the folder.
        file: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The bytes violate the format.
    #[error("{} at byte {offset}: {reason}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The position in bytes from the start of the file.
        offset: u64,
        /// The reason.
        reason: String,
    },
    /// The block that is written would exceed a limit of its format.
    #[error("{0}")]
    Limit(&'static str),
}

/// The CRC-32C of all files of Prometheus.
pub(in crate::history) fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}
