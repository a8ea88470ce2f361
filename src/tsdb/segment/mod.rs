//! Segments: immutable, memory-mapped files of sealed samples that carry their own checksums.
//!
//! A segment belongs to one organisation and holds the samples of a window of time, family by
//! family. [`mod@write`] writes a segment in one pass with bounded memory. [`read`] reads it
//! through a [`map`]. [`mod@format`] describes the file, [`block`] its blocks.

mod block;
mod dictionary;
mod directory;
mod format;
mod map;
mod packed;
mod read;
mod side_data;
mod write;

use std::path::PathBuf;

pub(in crate::tsdb) use block::histograms::{
    is_float, of as histograms_of, put as put_histograms, put_shape, take_shape,
};
pub(in crate::tsdb) use map::{Map, machine_memory, trim_memory};
pub(in crate::tsdb) use read::{
    FamilyRow, FamilyRows, FamilyScan, RowSpans, Segment, SegmentBlock, SeriesIds, TimelineCache,
    TimelineRow, non_decreasing_at,
};
pub(in crate::tsdb) use write::{NewSegment, SegmentWriter, SeriesPart, SeriesWriteError};

use super::error::DiskError;
use crate::model::OrgId;

/// Flag: the segment holds late samples, whose times overlap with other segments.
pub(in crate::tsdb) const LATE: u8 = 1;
/// Flag: the segment holds native histograms.
pub(in crate::tsdb) const HISTOGRAMS: u8 = 2;

/// The manifest's entry of a segment (control table 0x20), which the file repeats in its footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct SegmentMeta {
    pub(in crate::tsdb) org: OrgId,
    /// Number within the organisation. If two segments hold a sample of one series and time, the
    /// greater number wins.
    pub(in crate::tsdb) seq: u64,
    pub(in crate::tsdb) level: u8,
    /// [`LATE`] and [`HISTOGRAMS`].
    pub(in crate::tsdb) flags: u8,
    pub(in crate::tsdb) series: u32,
    /// The least time of all samples.
    pub(in crate::tsdb) min_ms: i64,
    /// The greatest time of all samples.
    pub(in crate::tsdb) max_ms: i64,
    pub(in crate::tsdb) file_bytes: u64,
    pub(in crate::tsdb) samples: u64,
    /// The range of the log records that the samples came with, both ends inclusive.
    pub(in crate::tsdb) first_log_seq: u64,
    pub(in crate::tsdb) last_log_seq: u64,
    pub(in crate::tsdb) footer_crc: u32,
    /// The first half of the SHA-256 of the file.
    pub(in crate::tsdb) sha256: [u8; 16],
    /// The segments that this one was merged from, so that a rebuilt manifest does not count
    /// samples twice.
    pub(in crate::tsdb) replaces: Vec<u64>,
}

impl SegmentMeta {
    /// Returns `<seq>-L<level>.seg`, or `<seq>-L<level>-ooo.seg` for a segment of late samples.
    pub(in crate::tsdb) fn file_name(&self) -> String {
        let late = if self.flags & LATE == 0 { "" } else { "-ooo" };
        format!("{:010}-L{}{late}.seg", self.seq, self.level)
    }
}

/// A segment whose bytes differ from the written ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}, byte {offset}: {what}", path.display())]
pub(in crate::tsdb) struct SegmentDamage {
    pub(in crate::tsdb) path: PathBuf,
    pub(in crate::tsdb) offset: u64,
    pub(in crate::tsdb) what: &'static str,
}

/// The reason why a segment cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(in crate::tsdb) enum SegmentError {
    /// The file system reported an error.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The segment is listed, but its file does not exist.
    #[error("{} is missing", path.display())]
    Missing { path: PathBuf },
    /// The contents of the file differ from the written ones.
    #[error(transparent)]
    Damaged(#[from] SegmentDamage),
    /// The file belongs to another store or organisation, or is another segment.
    #[error("{}: {what}", path.display())]
    Foreign { path: PathBuf, what: String },
    /// The file was written by a newer version. The file is not changed.
    #[error("{} has version {version}, the newest known version is {known}", path.display())]
    Newer { path: PathBuf, version: u16, known: u16 },
}

/// The reason why a segment was not written. A remaining `.seg.new` file is removed at the next
/// start.
#[derive(Debug, thiserror::Error)]
pub(in crate::tsdb) enum SegmentWriteError {
    /// The file system reported an error.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The caller violated the order or shape that [`SegmentWriter`] requires.
    #[error("segment cannot be written: {0}")]
    Shape(&'static str),
    /// A size exceeds what the format can express.
    #[error("segment cannot be written: {what} {found}, {allowed} allowed")]
    TooLarge { what: &'static str, found: u64, allowed: u64 },
}

/// The greatest size of a segment. [`SegmentWriter::is_full`] returns true when the next segment
/// must begin.
pub(in crate::tsdb) const FILE_BYTES_MAX: u64 = 4 << 30;
