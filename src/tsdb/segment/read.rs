//! Reads a segment through its map.
//!
//! Nothing of a segment is held in memory but where its sections are: the directory is read where it lies, a family's
//! record in some tens of nanoseconds.

mod ahead;
mod blocks;
mod families;
mod known;
mod rows;
mod verify;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::beside::Beside;
use super::format::{
    BESIDE, COLUMNS, DICTIONARIES, FAMILIES, Footer, Found, HEADER_BYTES, Header, SECTIONS, Section,
    TAIL_BYTES, VERSION,
};
use super::map::{Advice, Map};
use super::packed::Packed;
use super::{HISTOGRAMS, SegmentDamage, SegmentError, SegmentMeta};
use crate::model::StoreId;
use crate::tsdb::disk;
use crate::tsdb::error::{Damage, DiskError};
use ahead::Asked;
pub(in crate::tsdb) use blocks::Block;
use families::directory;
pub(in crate::tsdb) use known::{KnownTimes, rises_at};
use rows::Timelines;
pub(in crate::tsdb) use rows::{Ids, Rows, Spans};
use verify::checked;
pub(in crate::tsdb) use walk::Walk;

/// An open segment. Cheap to hold: its pages are the kernel's.
#[derive(Debug)]
pub(in crate::tsdb) struct Segment {
    meta: SegmentMeta,
    path: PathBuf,
    map: Map,
    asked: Asked,
    sections: [Section; SECTIONS],
    families: usize,
    timelines: Timelines,
    /// It is not listed any more: nothing of it is kept decoded from now on.
    retired: AtomicBool,
}

impl Segment {
    /// Maps the file that the list entry names and verifies everything but the blocks, which are verified whenever they
    /// are read.
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
            return Err(segment.damage(meta.file_bytes, "not what the list says of it").into());
        }
        Ok(Segment { meta: meta.clone(), ..segment })
    }

    /// Opens a file that tells itself what it is; its hash is not known then. `listed`: what it is expected to be, where
    /// that is known.
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
        // Nothing of the blocks is read before somebody asks for them.
        let end = map.bytes().len();
        map.ask(0..HEADER_BYTES);
        map.ask(end.saturating_sub(FOOTER_BYTES_MOSTLY)..end);
        let unread = |damage: Damage| match map.failed() {
            Some(offset) => damaged(offset, UNREADABLE),
            None => damaged(damage.offset, damage.what),
        };
        let header = match Header::decode(map.bytes()).map_err(unread)? {
            Found::Header(header) => header,
            Found::Newer(version) => {
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
            return Err(damaged(length, "another length than the list says").into());
        }
        let Footer { sections, meta } =
            Footer::decode(map.bytes(), store, header.org, header.flags).map_err(unread)?;
        let (seq, level, flags) = (header.seq, header.level, header.flags);
        if (meta.seq, meta.level, meta.flags) != (seq, level, flags) {
            return Err(damaged(0, "header and footer are of different segments").into());
        }
        map.ask(usize::try_from(sections[COLUMNS].offset).unwrap_or(end)..end);
        for section in [COLUMNS, FAMILIES, DICTIONARIES] {
            checked(&map, &sections, section).map_err(unread)?;
        }
        if meta.flags & HISTOGRAMS != 0 {
            let bytes = section_of(&map, &sections, BESIDE);
            Beside::new(bytes)
                .and_then(|beside| beside.verify(bytes))
                .map_err(|e| unread(Damage { offset: sections[BESIDE].offset + e.offset, ..e }))?;
        }
        let bytes = section_of(&map, &sections, FAMILIES);
        let (families, timelines) = directory(bytes).map_err(|damage| {
            unread(Damage { offset: sections[FAMILIES].offset + damage.offset, ..damage })
        })?;
        let retired = AtomicBool::new(false);
        let asked = Asked::none_of(map.bytes().len());
        Ok(Segment { meta, path: path.to_owned(), map, asked, sections, families, timelines, retired })
    }

    /// Nothing of it is kept decoded from now on.
    pub(in crate::tsdb) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub(in crate::tsdb) fn meta(&self) -> &SegmentMeta {
        &self.meta
    }

    pub(in crate::tsdb) fn path(&self) -> &Path {
        &self.path
    }

    /// Families, numbered from 0, ascending by metric name and then by label names.
    pub(in crate::tsdb) fn families(&self) -> usize {
        self.families
    }

    /// The series that have something beside their rows, ascending.
    pub(in crate::tsdb) fn beside_ids(&self) -> impl Iterator<Item = u32> + '_ {
        Beside::new(self.section(BESIDE)).into_iter().flat_map(|beside| beside.ids())
    }

    /// What stands beside the row of a series; verified.
    pub(in crate::tsdb) fn beside(&self, id: u32) -> Result<Option<&[u8]>, SegmentDamage> {
        if self.sections[BESIDE].bytes == 0 {
            return Ok(None);
        }
        let found = Beside::new(self.section(BESIDE)).and_then(|beside| beside.run(id));
        found.map_err(|damage| self.at(BESIDE, damage))
    }

    /// The same, not verified: for those who look for what is good in it.
    pub(in crate::tsdb) fn beside_unverified(&self, id: u32) -> Option<&[u8]> {
        Beside::new(self.section(BESIDE)).ok()?.unverified(id)
    }

    /// Damage of what stands beside, found by somebody who read it.
    pub(in crate::tsdb) fn beside_damage(&self, damage: Damage) -> SegmentDamage {
        self.at(BESIDE, damage)
    }

    /// Whether everything read so far was really there: a page that could not be read (a truncated file, a failing disk)
    /// reads as zeros, and what was found among ids and spans cannot be trusted then. To be asked after a search by ids;
    /// [`Segment::read`] asks by itself.
    pub(in crate::tsdb) fn intact(&self) -> Result<(), SegmentDamage> {
        // Zeros among the blocks are found by their checksums; the directory's are only verified at the opening.
        match self.map.failed() {
            Some(offset) if offset + 4_096 > self.sections[COLUMNS].offset => {
                Err(self.damage(offset, UNREADABLE))
            }
            _ => Ok(()),
        }
    }

    /// The file is going to be read from its start to its end.
    pub(in crate::tsdb) fn read_through(&self) {
        self.map.advise(Advice::Sequential);
    }

    fn section(&self, section: usize) -> &[u8] {
        section_of(&self.map, &self.sections, section)
    }

    fn at(&self, section: usize, damage: Damage) -> SegmentDamage {
        self.at_place(section, 0, damage)
    }

    fn at_place(&self, section: usize, place: u64, damage: Damage) -> SegmentDamage {
        let offset = self.sections.get(section).map_or(0, |section| section.offset);
        self.unread(Damage { offset: offset.saturating_add(place).saturating_add(damage.offset), ..damage })
    }

    fn unread(&self, damage: Damage) -> SegmentDamage {
        match self.map.failed() {
            // The page was zeros; the place of the block that failed is the better one to name.
            Some(_) => self.damage(damage.offset, UNREADABLE),
            None => self.damage(damage.offset, damage.what),
        }
    }

    fn damage(&self, offset: u64, what: &'static str) -> SegmentDamage {
        SegmentDamage { path: self.path.clone(), offset, what }
    }
}

/// What a footer and its end take where few segments were merged.
const FOOTER_BYTES_MOSTLY: usize = 4 << 10;
const UNREADABLE: &str = "cannot be read: the file was cut short or the disk fails";

fn section_of<'a>(map: &'a Map, sections: &[Section; SECTIONS], section: usize) -> &'a [u8] {
    let range = sections.get(section).and_then(|section| {
        let start = usize::try_from(section.offset).ok()?;
        Some(start..start.checked_add(usize::try_from(section.bytes).ok()?)?)
    });
    range.and_then(|range| map.bytes().get(range)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
