//! Segments: immutable, mapped, self-verifying files of sealed samples.
//!
//! One segment belongs to one organisation and holds, family by family, the samples of a window of time. [`mod@write`] makes
//! one in a single pass with bounded memory; [`read`] opens one through [`map`]. The file is drawn in [`mod@format`], its
//! blocks in [`block`].

mod beside;
mod block;
mod dictionary;
mod directory;
mod format;
mod map;
mod packed;
mod read;
mod write;

use std::path::PathBuf;

pub(in crate::tsdb) use block::histograms::{
    is_float, of as histograms_of, put as put_histograms, put_shape, take_shape,
};
pub(in crate::tsdb) use map::{Map, machine_memory, trim_memory};
pub(in crate::tsdb) use read::{Block, Ids, KnownTimes, Rows, Segment, Spans, Walk, rises_at};
pub(in crate::tsdb) use write::{NewSegment, Piece, PieceError, SegmentWriter};

use super::error::DiskError;
use crate::model::OrgId;

/// Holds late samples, whose times overlap with those of other segments.
pub(in crate::tsdb) const LATE: u8 = 1;
/// Holds native histograms.
pub(in crate::tsdb) const HISTOGRAMS: u8 = 2;

/// What the list knows about a segment (control table 0x20), and the file repeats in its footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct SegmentMeta {
    pub(in crate::tsdb) org: OrgId,
    /// Number within the organisation: where two segments hold the same moment of a series, the greater one wins.
    pub(in crate::tsdb) seq: u64,
    pub(in crate::tsdb) level: u8,
    /// [`LATE`] and [`HISTOGRAMS`].
    pub(in crate::tsdb) flags: u8,
    pub(in crate::tsdb) series: u32,
    /// The first sample of all.
    pub(in crate::tsdb) min_ms: i64,
    /// The last sample of all.
    pub(in crate::tsdb) max_ms: i64,
    pub(in crate::tsdb) file_bytes: u64,
    pub(in crate::tsdb) samples: u64,
    /// Its samples came with log records of these numbers, both included.
    pub(in crate::tsdb) first_log_seq: u64,
    pub(in crate::tsdb) last_log_seq: u64,
    pub(in crate::tsdb) footer_crc: u32,
    /// The first half of the file's SHA-256.
    pub(in crate::tsdb) sha256: [u8; 16],
    /// The segments it was made of, so that a rebuilt list does not count samples twice.
    pub(in crate::tsdb) replaces: Vec<u64>,
}

impl SegmentMeta {
    /// `<seq>-L<level>.seg`, and `-ooo` before the ending where it holds late samples.
    pub(in crate::tsdb) fn file_name(&self) -> String {
        let late = if self.flags & LATE == 0 { "" } else { "-ooo" };
        format!("{:010}-L{}{late}.seg", self.seq, self.level)
    }
}

/// Bytes of a segment that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}, byte {offset}: {what}", path.display())]
pub(in crate::tsdb) struct SegmentDamage {
    pub(in crate::tsdb) path: PathBuf,
    pub(in crate::tsdb) offset: u64,
    pub(in crate::tsdb) what: &'static str,
}

/// Why a segment cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(in crate::tsdb) enum SegmentError {
    /// The file system refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// It is listed, and not there.
    #[error("{} is missing", path.display())]
    Missing { path: PathBuf },
    /// It is there, and not what was written.
    #[error(transparent)]
    Damaged(#[from] SegmentDamage),
    /// It is of another store or organisation, or another segment.
    #[error("{}: {what}", path.display())]
    Foreign { path: PathBuf, what: String },
    /// A newer promlet wrote it: it is left alone.
    #[error("{} has version {version}, {known} is the newest known", path.display())]
    Newer { path: PathBuf, version: u16, known: u16 },
}

/// Why a segment was not written; what there is of it is a `.seg.new` file that the next start removes.
#[derive(Debug, thiserror::Error)]
pub(in crate::tsdb) enum SegmentWriteError {
    /// The file system refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The caller broke the order or the shape that [`SegmentWriter`] asks for.
    #[error("segment cannot be written: {0}")]
    Shape(&'static str),
    /// More than the drawing has room for.
    #[error("segment cannot be written: {what} {found}, {allowed} allowed")]
    TooLarge { what: &'static str, found: u64, allowed: u64 },
}

/// Most bytes of a segment; [`SegmentWriter::is_full`] says when it is time for the next one.
pub(in crate::tsdb) const FILE_BYTES_MAX: u64 = 4 << 30;
