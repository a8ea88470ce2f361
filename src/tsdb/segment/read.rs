//! Reads a segment through its memory map.
//!
//! Only the positions of the sections are held in memory. The directory is read from the map when
//! it is needed; the record of a family takes some tens of nanoseconds.

mod blocks;
mod families;
mod readahead;
mod rows;
mod scan;
mod timeline_cache;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::format::{
    COLUMNS, DICTIONARIES, DecodedHeader, FAMILIES, Footer, HEADER_BYTES, SECTIONS, SIDE_DATA, Section,
    SegmentHeader, TAIL_BYTES, VERSION,
};
use super::map::{AccessPattern, Map};
use super::packed::PackedColumn;
use super::side_data::SideDataIndex;
use super::{HISTOGRAMS, SegmentDamage, SegmentError, SegmentMeta};
use crate::model::StoreId;
use crate::tsdb::disk;
use crate::tsdb::error::{Damage, DiskError};
pub(in crate::tsdb) use blocks::SegmentBlock;
use families::directory;
use readahead::Readahead;
use rows::TimelineColumns;
pub(in crate::tsdb) use rows::{FamilyRow, FamilyRows, RowSpans, SeriesIds, TimelineRow};
pub(in crate::tsdb) use scan::FamilyScan;
pub(in crate::tsdb) use timeline_cache::{TimelineCache, non_decreasing_at};
use verify::checked;

/// An open segment. It takes little memory, since its pages belong to the kernel's page cache.
#[derive(Debug)]
pub(in crate::tsdb) struct Segment {
    meta: SegmentMeta,
    path: PathBuf,
    map: Map,
    readahead: Readahead,
    sections: [Section; SECTIONS],
    families: usize,
    timelines: TimelineColumns,
    /// The segment is no longer listed, so its blocks may not be cached any more.
    retired: AtomicBool,
}

impl Segment {
    /// Maps the file of a manifest entry and verifies everything but the blocks, which are verified
    /// at each read.
    pub(in crate::tsdb) fn open(
        dir: &Path,
        store: StoreId,
        meta: &SegmentMeta,
    ) -> Result<Segment, SegmentError> {
        let segment = Segment::open_unlisted(&dir.join(meta.file_name()), store, Some(meta))?;
        let foreign = |what| Err(SegmentError::Foreign { path: segment.path.clone(), what });
        let found = &segment.meta;
        if (found.org, found.seq) != (meta.org, meta.seq) {
            return foreign(format!("is segment {} of organisation {}", found.seq, found.org));
        }
        let footer = SegmentMeta { sha256: [0; 16], ..meta.clone() };
        if footer != *found {
            return Err(segment.damage(meta.file_bytes, "the footer differs from the manifest").into());
        }
        Ok(Segment { meta: meta.clone(), ..segment })
    }

    /// Opens a file by its own footer; its hash is unknown then. `listed` is the manifest entry, if
    /// there is one.
    pub(in crate::tsdb) fn open_unlisted(
        path: &Path,
        store: StoreId,
        listed: Option<&SegmentMeta>,
    ) -> Result<Segment, SegmentError> {
        let missing = || SegmentError::Missing { path: path.to_owned() };
        let file = disk::open_to_read(path)?.ok_or_else(missing)?;
        let length = disk::length(&file, path)?;
        let damaged = |offset: u64, what| SegmentDamage { path: path.to_owned(), offset, what };
        if length < (HEADER_BYTES + TAIL_BYTES) as u64 {
            return Err(damaged(length, "shorter than any segment").into());
        }
        let map = Map::new(&file, length).map_err(DiskError::at("map", path))?;
        // The kernel is not to read ahead into the blocks, so the parts that are needed here are
        // requested explicitly.
        let end = map.bytes().len();
        map.will_need(0..HEADER_BYTES);
        map.will_need(end.saturating_sub(FOOTER_BYTES_MOSTLY)..end);
        let with_cause = |damage: Damage| match map.failed() {
            Some(offset) => damaged(offset, UNREADABLE),
            None => damaged(damage.offset, damage.what),
        };
        let header = match SegmentHeader::decode(map.bytes()).map_err(with_cause)? {
            DecodedHeader::Supported(header) => header,
            DecodedHeader::Newer(version) => {
                return Err(SegmentError::Newer { path: path.to_owned(), version, known: VERSION });
            }
        };
        if header.store != store {
            let what = format!("is of store {}", header.store);
            return Err(SegmentError::Foreign { path: path.to_owned(), what });
        }
        if let Some(listed) = listed.filter(|listed| listed.org != header.org) {
            let what = format!("is of organisation {}, not {}", header.org, listed.org);
            return Err(SegmentError::Foreign { path: path.to_owned(), what });
        }
        if listed.is_some_and(|listed| listed.file_bytes != length) {
            return Err(damaged(length, "the length differs from that in the manifest").into());
        }
        let Footer { sections, meta } =
            Footer::decode(map.bytes(), store, header.org, header.flags).map_err(with_cause)?;
        let (seq, level, flags) = (header.seq, header.level, header.flags);
        if (meta.seq, meta.level, meta.flags) != (seq, level, flags) {
            return Err(damaged(0, "header and footer belong to different segments").into());
        }
        map.will_need(usize::try_from(sections[COLUMNS].offset).unwrap_or(end)..end);
        for section in [COLUMNS, FAMILIES, DICTIONARIES] {
            checked(&map, &sections, section).map_err(with_cause)?;
        }
        if meta.flags & HISTOGRAMS != 0 {
            let bytes = section_of(&map, &sections, SIDE_DATA);
            SideDataIndex::new(bytes)
                .and_then(|side_data| side_data.verify(bytes))
                .map_err(|e| with_cause(Damage { offset: sections[SIDE_DATA].offset + e.offset, ..e }))?;
        }
        let bytes = section_of(&map, &sections, FAMILIES);
        let (families, timelines) = directory(bytes).map_err(|damage| {
            with_cause(Damage { offset: sections[FAMILIES].offset + damage.offset, ..damage })
        })?;
        let retired = AtomicBool::new(false);
        let readahead = Readahead::new(map.bytes().len());
        Ok(Segment { meta, path: path.to_owned(), map, readahead, sections, families, timelines, retired })
    }

    /// Marks the segment as no longer listed: its blocks are not cached any more.
    pub(in crate::tsdb) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub(in crate::tsdb) fn meta(&self) -> &SegmentMeta {
        &self.meta
    }

    pub(in crate::tsdb) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of families. They are numbered from 0, ascending by metric name, then by
    /// label names.
    pub(in crate::tsdb) fn families(&self) -> usize {
        self.families
    }

    /// Returns the series that have side data, ascending.
    pub(in crate::tsdb) fn side_data_ids(&self) -> impl Iterator<Item = u32> + '_ {
        SideDataIndex::new(self.section(SIDE_DATA)).into_iter().flat_map(|side_data| side_data.ids())
    }

    /// Returns the side data of a series after verifying its checksum.
    pub(in crate::tsdb) fn side_data(&self, id: u32) -> Result<Option<&[u8]>, SegmentDamage> {
        if self.sections[SIDE_DATA].bytes == 0 {
            return Ok(None);
        }
        let found = SideDataIndex::new(self.section(SIDE_DATA)).and_then(|side_data| side_data.run(id));
        found.map_err(|damage| self.at(SIDE_DATA, damage))
    }

    /// Returns the side data of a series without verifying it, to salvage its intact part.
    pub(in crate::tsdb) fn side_data_unverified(&self, id: u32) -> Option<&[u8]> {
        SideDataIndex::new(self.section(SIDE_DATA)).ok()?.unverified(id)
    }

    /// Converts damage that a caller found in the side data, with offsets relative to the section.
    pub(in crate::tsdb) fn side_data_damage(&self, damage: Damage) -> SegmentDamage {
        self.at(SIDE_DATA, damage)
    }

    /// Returns an error if any page of the directory could not be read so far, because the file was
    /// truncated or the disk fails. Such a page reads as zeros, so ids and spans that were read
    /// from it are wrong. Callers check this after a search by ids; [`Segment::read`] does so
    /// itself.
    pub(in crate::tsdb) fn intact(&self) -> Result<(), SegmentDamage> {
        // Zeros in blocks are detected by their checksums. The checksums of the directory are
        // verified only when the file is opened.
        match self.map.failed() {
            Some(offset) if offset + 4_096 > self.sections[COLUMNS].offset => {
                Err(self.damage(offset, UNREADABLE))
            }
            _ => Ok(()),
        }
    }

    /// Advises the kernel that the file will be read from start to end.
    pub(in crate::tsdb) fn read_through(&self) {
        self.map.advise(AccessPattern::Sequential);
    }

    /// Removes the pages of the file from the memory of the process. The next read gets them from
    /// the kernel's cache.
    pub(in crate::tsdb) fn release_pages(&self) {
        self.map.advise(AccessPattern::NotNeeded);
    }

    fn section(&self, section: usize) -> &[u8] {
        section_of(&self.map, &self.sections, section)
    }

    /// Converts damage at an offset relative to a section.
    fn at(&self, section: usize, damage: Damage) -> SegmentDamage {
        self.at_offset(section, 0, damage)
    }

    /// Converts damage at an offset relative to a part of a section.
    fn at_offset(&self, section: usize, relative: u64, damage: Damage) -> SegmentDamage {
        let offset = self.sections.get(section).map_or(0, |section| section.offset);
        self.with_cause(Damage {
            offset: offset.saturating_add(relative).saturating_add(damage.offset),
            ..damage
        })
    }

    /// Converts damage. If a page could not be read, that is reported as the cause.
    fn with_cause(&self, damage: Damage) -> SegmentDamage {
        match self.map.failed() {
            // The offset of the block is reported, since it is more specific than that of the page.
            Some(_) => self.damage(damage.offset, UNREADABLE),
            None => self.damage(damage.offset, damage.what),
        }
    }

    fn damage(&self, offset: u64, what: &'static str) -> SegmentDamage {
        SegmentDamage { path: self.path.clone(), offset, what }
    }
}

/// Bytes at the end of the file that hold the footer of a segment merged from few others.
const FOOTER_BYTES_MOSTLY: usize = 4 << 10;
const UNREADABLE: &str = "cannot be read: the file was truncated or the disk fails";

fn section_of<'a>(map: &'a Map, sections: &[Section; SECTIONS], section: usize) -> &'a [u8] {
    let range = sections.get(section).and_then(|section| {
        let start = usize::try_from(section.offset).ok()?;
        Some(start..start.checked_add(usize::try_from(section.bytes).ok()?)?)
    });
    range.and_then(|range| map.bytes().get(range)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
