//! `tombstones`: ranges of series that were deleted and are still in the chunks.
//!
//! Format: `u32 magic, u8 version, (uvarint series, varint start, varint end)..., u32 CRC-32C` of
//! the triples. Both ends are inclusive, in milliseconds.

use std::collections::HashMap;
use std::path::Path;

use super::file::be_u32;
use super::{BlockError, BlockFile, ByteReader, checksum};
use crate::model::{TimeRange, Timestamp};

pub(super) const TOMBSTONES_FILE: &str = "tombstones";
const MAGIC: u32 = 0x0130_ba30;
const VERSION: u8 = 1;
/// The greatest size of the file in bytes, which is held in memory.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Magic number and version.
const HEADER_BYTES: usize = 5;
const CHECKSUM_BYTES: usize = 4;

/// The deleted ranges of series, by the number of the series in its index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletedRanges(HashMap<u64, Vec<TimeRange>>);

impl DeletedRanges {
    /// Reads the file of a block; a block without the file has no deleted ranges.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn read(block: &Path) -> Result<DeletedRanges, BlockError> {
        let path = block.join(TOMBSTONES_FILE);
        if !path.exists() {
            return Ok(DeletedRanges::default());
        }
        let file = BlockFile::open(&path)?;
        if file.len() > FILE_BYTES_MAX {
            return Err(file.damaged(0, format!("the file has more than {FILE_BYTES_MAX} bytes")));
        }
        let mut bytes = Vec::new();
        file.read(0, usize::try_from(file.len()).unwrap_or_default(), &mut bytes)?;
        let content = bytes.split_at_checked(HEADER_BYTES).and_then(|(header, rest)| {
            let (content, sum) = rest.split_at_checked(rest.len().checked_sub(CHECKSUM_BYTES)?)?;
            Some((header, content, be_u32(sum)))
        });
        let Some((header, content, sum)) = content else {
            return Err(file.damaged(0, "the file is too short"));
        };
        if be_u32(header) != MAGIC || header.last() != Some(&VERSION) {
            return Err(file.damaged(0, "not a file of tombstones, or of an unknown version"));
        }
        if checksum(content) != sum {
            return Err(file.damaged(HEADER_BYTES as u64, "the tombstones have the wrong checksum"));
        }
        let mut ranges = DeletedRanges::default();
        let mut reader = ByteReader::new(content);
        while !reader.is_empty() {
            let offset = HEADER_BYTES.saturating_add(content.len()).saturating_sub(reader.len()) as u64;
            let (Some(series), Some(start), Some(end)) = (reader.uvarint(), reader.varint(), reader.varint())
            else {
                return Err(file.damaged(offset, "a tombstone ends early"));
            };
            ranges.add(series, start, end);
        }
        Ok(ranges)
    }

    /// Adds a range; both ends are inclusive, in milliseconds.
    pub fn add(&mut self, series: u64, start_ms: i64, end_ms: i64) {
        let range = TimeRange::new(Timestamp::from_ms(start_ms), Timestamp::from_ms(end_ms));
        self.0.entry(series).or_default().push(range);
    }

    /// Returns whether the sample of a series at a time was deleted.
    pub fn hides(&self, series: u64, at_ms: i64) -> bool {
        let at = Timestamp::from_ms(at_ms);
        self.of(series).iter().any(|range| range.contains(at))
    }

    /// Returns the ranges of a series.
    pub fn of(&self, series: u64) -> &[TimeRange] {
        self.0.get(&series).map_or(&[], Vec::as_slice)
    }

    /// Returns the bytes of a file without tombstones, which every block has.
    pub(super) fn empty_file() -> Vec<u8> {
        let mut bytes = MAGIC.to_be_bytes().to_vec();
        bytes.push(VERSION);
        bytes.extend_from_slice(&checksum(&[]).to_be_bytes());
        bytes
    }
}
