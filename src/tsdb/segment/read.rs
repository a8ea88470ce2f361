//! Reads a segment through its map.
//!
//! Nothing of a segment is held in memory but where its sections are: the directory is read where it lies, a family's
//! record in some tens of nanoseconds.

mod known;
mod walk;

use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::beside::Beside;
use super::block::{TimeHeader, time_header, times_of, values_within};
use super::dictionary::Dictionary;
use super::format::{
    BESIDE, COLUMNS, DATA, DICTIONARIES, FAMILIES, Footer, Found, HEADER_BYTES, Header, SECTIONS, Section,
    TAIL_BYTES, TIMES, VERSION,
};
use super::map::{Advice, Map};
use super::packed::Packed;
use super::{HISTOGRAMS, SegmentDamage, SegmentError, SegmentMeta};
use crate::model::{StoreId, TimeRange};
use crate::tsdb::bytes::Reader;
use crate::tsdb::disk;
use crate::tsdb::error::{Damage, DiskError};
use crate::tsdb::report::SampleColumns;
pub(in crate::tsdb) use known::KnownTimes;
use walk::ValueColumn;
pub(in crate::tsdb) use walk::Walk;

/// An open segment. Cheap to hold: its pages are the kernel's.
#[derive(Debug)]
pub(in crate::tsdb) struct Segment {
    meta: SegmentMeta,
    path: PathBuf,
    map: Map,
    sections: [Section; SECTIONS],
    families: usize,
    timelines: Timelines,
}

/// The columns of the timelines.
#[derive(Clone, Copy, Debug)]
struct Timelines {
    len: usize,
    first: Packed,
    last: Packed,
    ends: Packed,
    blocks: Packed,
}

/// A family's record, its label columns unread.
#[derive(Clone, Copy, Debug)]
struct Family<'a> {
    metric: u64,
    rows: usize,
    data: u64,
    labels: usize,
    /// Stands at the numbers of the label names.
    names: Reader<'a>,
    ids: Packed,
    timelines: Packed,
    offsets: Packed,
    /// Stands at the first label's column.
    columns: Reader<'a>,
}

/// One block of a series.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct Block<'a> {
    pub(in crate::tsdb) count: usize,
    pub(in crate::tsdb) first: i64,
    pub(in crate::tsdb) last: i64,
    times: &'a [u8],
    /// Where in TIMES the time block is: equal for equal times within a segment.
    pub(in crate::tsdb) time_place: u64,
    /// The value block.
    pub(in crate::tsdb) values: &'a [u8],
    values_place: u64,
}

/// The series ids of a family, ascending, by row.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct Ids<'a> {
    pool: &'a [u8],
    column: Packed,
    rows: usize,
}

impl Ids<'_> {
    pub(in crate::tsdb) fn len(&self) -> usize {
        self.rows
    }

    #[inline]
    pub(in crate::tsdb) fn get(&self, row: usize) -> Option<u32> {
        if row >= self.rows {
            return None;
        }
        u32::try_from(self.column.get(self.pool, row)?).ok()
    }

    pub(in crate::tsdb) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.rows).map_while(|row| self.get(row))
    }

    /// The row of a series.
    pub(in crate::tsdb) fn row_of(&self, id: u32) -> Option<usize> {
        let Range { mut start, mut end } = 0..self.rows;
        while start < end {
            let middle = usize::midpoint(start, end);
            if self.get(middle)? < id { start = middle + 1 } else { end = middle }
        }
        (self.get(start)? == id).then_some(start)
    }
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
        Ok(Segment { meta, path: path.to_owned(), map, sections, families, timelines })
    }

    pub(in crate::tsdb) fn meta(&self) -> &SegmentMeta {
        &self.meta
    }

    /// Families, numbered from 0, ascending by metric name and then by label names.
    pub(in crate::tsdb) fn families(&self) -> usize {
        self.families
    }

    fn key(&self, family: usize) -> Result<(u64, Vec<u64>), SegmentDamage> {
        let mut found = self.family(family)?;
        let names = (0..found.labels).map(|_| found.names.varint());
        let names = names.collect::<Result<_, Damage>>().map_err(|damage| self.at(FAMILIES, damage))?;
        Ok((found.metric, names))
    }

    /// The label names of a family, ascending.
    pub(in crate::tsdb) fn names(&self, family: usize) -> Result<Vec<String>, SegmentDamage> {
        let (_, names) = self.key(family)?;
        let dictionary = self.dictionary(0)?;
        let text = |name: u64| dictionary.text(usize::try_from(name).unwrap_or(usize::MAX));
        names
            .into_iter()
            .map(text)
            .collect::<Result<_, Damage>>()
            .map_err(|damage| self.at(DICTIONARIES, damage))
    }

    /// The metric name of a family, if it has one.
    pub(in crate::tsdb) fn metric(&self, family: usize) -> Result<Option<String>, SegmentDamage> {
        let metric = self.family(family)?.metric;
        let Some(number) = metric.checked_sub(1) else { return Ok(None) };
        let place = |damage| self.at(DICTIONARIES, damage);
        let name = self.dictionary(0)?.find(crate::model::METRIC_NAME).map_err(place)?;
        let Some(name) = name else { return Ok(None) };
        let values = self.dictionary(name + 1)?;
        values.text(usize::try_from(number).unwrap_or(usize::MAX)).map(Some).map_err(place)
    }

    pub(in crate::tsdb) fn ids(&self, family: usize) -> Option<Ids<'_>> {
        let family = self.family(family).ok()?;
        Some(Ids { pool: self.section(COLUMNS), column: family.ids, rows: family.rows })
    }

    /// The row of a series in a family.
    pub(in crate::tsdb) fn row_of(&self, family: usize, id: u32) -> Option<usize> {
        self.ids(family)?.row_of(id)
    }

    /// The row of a series in a family, its first and its last time.
    pub(in crate::tsdb) fn locate(&self, family: usize, id: u32) -> Option<(usize, (i64, i64))> {
        let found = self.family(family).ok()?;
        let pool = self.section(COLUMNS);
        let row = Ids { pool, column: found.ids, rows: found.rows }.row_of(id)?;
        let spans = Spans { pool, rows: found.rows, column: found.timelines, timelines: &self.timelines };
        Some((row, spans.get(row)?))
    }

    /// First and last time of a series here.
    pub(in crate::tsdb) fn span(&self, family: usize, row: usize) -> Option<(i64, i64)> {
        self.spans(family).ok()?.get(row)
    }

    /// First and last times of a family's series: for many rows, cheaper than [`Segment::span`].
    pub(in crate::tsdb) fn spans(&self, family: usize) -> Result<Spans<'_>, SegmentDamage> {
        let found = self.family(family)?;
        let pool = self.section(COLUMNS);
        Ok(Spans { pool, rows: found.rows, column: found.timelines, timelines: &self.timelines })
    }

    /// Appends the samples of a series within a range, both ends included, to `out`. Only blocks that overlap with the
    /// range are looked at; each is verified, but for times that are known. On damage `out` has the samples of the blocks
    /// before it.
    pub(in crate::tsdb) fn read(
        &self,
        family: usize,
        row: usize,
        range: TimeRange,
        known: &mut KnownTimes,
        out: &mut SampleColumns,
    ) -> Result<(), SegmentDamage> {
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        let known = RefCell::new(known);
        let header = |place, times: &[u8]| match known.borrow().header((self.meta.seq, place)) {
            Some(header) => Ok(header),
            None => time_header(times),
        };
        self.blocks_of(&self.family(family)?, row, header, |id, block| {
            if block.last < start {
                return Ok(true);
            }
            if block.first > end {
                return Ok(false);
            }
            let mut known = known.borrow_mut();
            let times = known.times(self, &block)?;
            let from = if block.first < start { times.partition_point(|time| *time < start) } else { 0 };
            let to = if block.last > end { times.partition_point(|time| *time <= end) } else { block.count };
            // A range may end before it begins.
            let from = from.min(to);
            values_within(block.values, id, block.count, from..to, &mut out.values)
                .map_err(|damage| self.at_place(DATA, block.values_place, damage))?;
            out.times.extend_from_slice(times.get(from..to).unwrap_or_default());
            Ok(true)
        })
    }

    /// Appends the samples of a block; all of them or, on damage, none.
    pub(in crate::tsdb) fn decode(
        &self,
        id: u32,
        block: &Block<'_>,
        out: &mut SampleColumns,
    ) -> Result<(), SegmentDamage> {
        let before = out.times.len();
        self.times(block, &mut out.times)?;
        let values = self.values(id, block, &mut out.values);
        if values.is_err() {
            out.times.truncate(before);
        }
        values
    }

    /// Appends the values of a block; all of them or, on damage, none.
    pub(in crate::tsdb) fn values(
        &self,
        id: u32,
        block: &Block<'_>,
        out: &mut Vec<f64>,
    ) -> Result<(), SegmentDamage> {
        values_within(block.values, id, block.count, 0..block.count, out)
            .map_err(|damage| self.at_place(DATA, block.values_place, damage))
    }

    /// Appends the times of a block.
    pub(in crate::tsdb) fn times(&self, block: &Block<'_>, out: &mut Vec<i64>) -> Result<(), SegmentDamage> {
        let before = out.len();
        times_of(block.times, out).map_err(|damage| self.at_place(TIMES, block.time_place, damage))?;
        let found = out.get(before..).unwrap_or_default();
        let right = found.len() == block.count && found.is_sorted_by(|a, b| a < b);
        if right && (found.first(), found.last()) == (Some(&block.first), Some(&block.last)) {
            return Ok(());
        }
        out.truncate(before);
        Err(self.at_place(TIMES, block.time_place, Damage::new(0, "times are not what they claim to be")))
    }

    /// Damage of a block's values, found by somebody who copied it.
    pub(in crate::tsdb) fn value_damage(&self, block: &Block<'_>, damage: Damage) -> SegmentDamage {
        self.at_place(DATA, block.values_place, damage)
    }

    /// The blocks of a series in order of time, until `act` answers false.
    pub(in crate::tsdb) fn each_block<'a>(
        &'a self,
        family: usize,
        row: usize,
        act: impl FnMut(u32, Block<'a>) -> Result<bool, SegmentDamage>,
    ) -> Result<(), SegmentDamage> {
        self.blocks_of(&self.family(family)?, row, |_, times| time_header(times), act)
    }

    fn blocks_of<'a>(
        &'a self,
        found: &Family<'a>,
        row: usize,
        header: impl Fn(u64, &[u8]) -> Result<TimeHeader, Damage>,
        mut act: impl FnMut(u32, Block<'a>) -> Result<bool, SegmentDamage>,
    ) -> Result<(), SegmentDamage> {
        let pool = self.section(COLUMNS);
        let nothing = || self.at(FAMILIES, Damage::new(0, "a row that is not there"));
        let number = |column: &Packed, place: usize| {
            column.get(pool, place).and_then(|value| usize::try_from(value).ok())
        };
        if row >= found.rows {
            return Err(nothing());
        }
        let id = found.ids.get(pool, row).and_then(|id| u32::try_from(id).ok()).ok_or_else(nothing)?;
        let timeline =
            number(&found.timelines, row).filter(|n| *n < self.timelines.len).ok_or_else(nothing)?;
        let from = if timeline == 0 { Some(0) } else { number(&self.timelines.ends, timeline - 1) };
        let (from, to) = from.zip(number(&self.timelines.ends, timeline)).ok_or_else(nothing)?;
        let region = number(&found.offsets, row).zip(number(&found.offsets, row + 1));
        let (start, end) = region.ok_or_else(nothing)?;
        let base = usize::try_from(found.data).map_err(|_| nothing())?;
        let (start, end) = base.checked_add(start).zip(base.checked_add(end)).ok_or_else(nothing)?;
        let region = self.section(DATA).get(start..end).ok_or_else(nothing)?;
        let in_data = |damage| self.at_place(DATA, start as u64, damage);
        let mut lengths = Reader::new(region);
        let mut blocks = Reader::new(region);
        for _ in from + 1..to {
            blocks.varint().map_err(in_data)?;
        }
        for place in from..to {
            let time_place = number(&self.timelines.blocks, place).ok_or_else(nothing)?;
            let times = self.section(TIMES).get(time_place..).ok_or_else(nothing)?;
            let TimeHeader { count, first, last, .. } = header(time_place as u64, times)
                .map_err(|damage| self.at_place(TIMES, time_place as u64, damage))?;
            let bytes = if place + 1 < to { lengths.count(1).map_err(in_data)? } else { blocks.left() };
            let values_place = (end - blocks.left()) as u64;
            let values = blocks.take(bytes).map_err(in_data)?;
            let time_place = time_place as u64;
            let block = Block { count, first, last, times, time_place, values, values_place };
            if !act(id, block)? {
                return self.intact();
            }
        }
        self.intact()
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

    /// The sorted labels of a series, the metric name among them.
    pub(in crate::tsdb) fn series_labels(
        &self,
        family: usize,
        row: usize,
    ) -> Result<Vec<(String, String)>, SegmentDamage> {
        let names = self.names(family)?;
        let values = self.series_values(family, row)?;
        Ok(names.into_iter().zip(values).collect())
    }

    /// The values of a series for each label name of its family.
    pub(in crate::tsdb) fn series_values(
        &self,
        family: usize,
        row: usize,
    ) -> Result<Vec<String>, SegmentDamage> {
        let mut found = self.family(family)?;
        let pool = self.section(COLUMNS);
        if row >= found.rows {
            return Err(self.at(FAMILIES, Damage::new(0, "a row that is not there")));
        }
        let mut values = Vec::with_capacity(found.labels);
        for _ in 0..found.labels {
            let in_families = |damage| self.at(FAMILIES, damage);
            let name = found.names.varint().map_err(in_families)?;
            let number = value_number(&mut found.columns, pool, row).map_err(in_families)?;
            let dictionary =
                self.dictionary(usize::try_from(name).unwrap_or(usize::MAX).saturating_add(1))?;
            values.push(dictionary.text(number).map_err(|damage| self.at(DICTIONARIES, damage))?);
        }
        self.intact()?;
        Ok(values)
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

    /// Verifies every byte that a section's checksum covers; `deep` also decodes every block and label and checks order
    /// and counts.
    pub(in crate::tsdb) fn verify(&self, deep: bool) -> Result<(), SegmentDamage> {
        self.map.advise(Advice::Sequential);
        let verified = self.verify_sections().and_then(|()| if deep { self.verify_rows() } else { Ok(()) });
        self.map.advise(Advice::Normal);
        verified
    }

    /// The file is going to be read from its start to its end.
    pub(in crate::tsdb) fn read_through(&self) {
        self.map.advise(Advice::Sequential);
    }

    fn verify_sections(&self) -> Result<(), SegmentDamage> {
        for section in [DATA, TIMES, COLUMNS, FAMILIES, DICTIONARIES, BESIDE] {
            checked(&self.map, &self.sections, section).map_err(|damage| self.unread(damage))?;
        }
        self.intact()
    }

    fn verify_rows(&self) -> Result<(), SegmentDamage> {
        let wrong = |what| self.at(FAMILIES, Damage::new(0, what));
        let (mut series, mut samples) = (0u64, 0u64);
        let (mut least, mut most) = (i64::MAX, i64::MIN);
        let mut out = SampleColumns::default();
        let mut known = KnownTimes::default();
        for family in 0..self.families {
            let ids = self.ids(family).ok_or_else(|| wrong("a family that cannot be read"))?;
            if ids.iter().count() != ids.len() || !ids.iter().is_sorted_by(|a, b| a < b) {
                return Err(wrong("series ids do not ascend"));
            }
            for row in 0..ids.len() {
                out.times.clear();
                out.values.clear();
                self.read(family, row, TimeRange::ALL, &mut known, &mut out)?;
                let span = out.times.first().copied().zip(out.times.last().copied());
                if span.is_none() || span != self.span(family, row) || !out.times.is_sorted_by(|a, b| a < b) {
                    return Err(wrong("samples are not of the times that their row says"));
                }
                if !self.series_labels(family, row)?.is_sorted_by(|(a, _), (b, _)| a < b) {
                    return Err(wrong("label names do not ascend"));
                }
                let (first, last) = span.unwrap_or_default();
                (least, most) = (least.min(first), most.max(last));
                samples += out.times.len() as u64;
                series += 1;
            }
        }
        for id in self.beside_ids() {
            self.beside(id)?;
        }
        let meta = &self.meta;
        let spans = if meta.flags & HISTOGRAMS == 0 {
            (least, most) == (meta.min_ms, meta.max_ms)
        } else {
            // What stands beside the rows may reach further.
            samples == 0 || (meta.min_ms <= least && most <= meta.max_ms)
        };
        if !spans || (series, samples) != (u64::from(meta.series), meta.samples) {
            return Err(wrong("series, samples or times are not those of the footer"));
        }
        Ok(())
    }

    fn section(&self, section: usize) -> &[u8] {
        section_of(&self.map, &self.sections, section)
    }

    fn family(&self, family: usize) -> Result<Family<'_>, SegmentDamage> {
        let bytes = self.section(FAMILIES);
        record(bytes, family, self.families).map_err(|damage| self.at(FAMILIES, damage))
    }

    /// Dictionary 0 is that of the label names, `1 + name` that of a name's values.
    fn dictionary(&self, number: usize) -> Result<Dictionary<'_>, SegmentDamage> {
        let bytes = self.section(DICTIONARIES);
        nth(bytes, 4, number, count(bytes))
            .and_then(Dictionary::new)
            .map_err(|damage| self.at(DICTIONARIES, damage))
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

const UNREADABLE: &str = "cannot be read: the file was cut short or the disk fails";

/// First and last times by row.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct Spans<'a> {
    pool: &'a [u8],
    rows: usize,
    column: Packed,
    timelines: &'a Timelines,
}

impl Spans<'_> {
    #[inline]
    pub(in crate::tsdb) fn get(&self, row: usize) -> Option<(i64, i64)> {
        if row >= self.rows {
            return None;
        }
        let timeline = usize::try_from(self.column.get(self.pool, row)?).ok()?;
        Some((self.timelines.first.get(self.pool, timeline)?, self.timelines.last.get(self.pool, timeline)?))
    }
}

fn section_of<'a>(map: &'a Map, sections: &[Section; SECTIONS], section: usize) -> &'a [u8] {
    let range = sections.get(section).and_then(|section| {
        let start = usize::try_from(section.offset).ok()?;
        Some(start..start.checked_add(usize::try_from(section.bytes).ok()?)?)
    });
    range.and_then(|range| map.bytes().get(range)).unwrap_or_default()
}

/// Verifies the checksum over a section; damage names the section's place in the file.
fn checked(map: &Map, sections: &[Section; SECTIONS], section: usize) -> Result<(), Damage> {
    const WRONG: [&str; SECTIONS] = [
        "wrong checksum of the value blocks",
        "wrong checksum of the time blocks",
        "wrong checksum of the columns",
        "wrong checksum of the families",
        "wrong checksum of the dictionaries",
        "wrong checksum of what stands beside the rows",
    ];
    let found = crc32c::crc32c(section_of(map, sections, section));
    match (sections.get(section), WRONG.get(section)) {
        (Some(section), Some(what)) if section.crc != found => Err(Damage { offset: section.offset, what }),
        _ => Ok(()),
    }
}

/// The u32 at the start of a section.
fn count(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(0, |count| usize::try_from(u32::from_le_bytes(*count)).unwrap_or_default())
}

/// The n-th of `count` parts of a section whose table of u32 offsets begins at `table`.
fn nth(bytes: &[u8], table: usize, number: usize, count: usize) -> Result<&[u8], Damage> {
    let offset = |number: usize| {
        let at = number.checked_mul(4)?.checked_add(table)?;
        usize::try_from(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?)).ok()
    };
    let range = if number < count { offset(number).zip(offset(number + 1)) } else { None };
    range
        .and_then(|(start, end)| bytes.get(start..end))
        .ok_or_else(|| Damage::new(table, "no such part of the directory"))
}

/// Number of families, and the timelines.
fn directory(bytes: &[u8]) -> Result<(usize, Timelines), Damage> {
    let mut reader = Reader::new(bytes);
    let families = usize::try_from(reader.u32()?).map_err(|_| reader.damage("too many families"))?;
    let len = usize::try_from(reader.u32()?).map_err(|_| reader.damage("too many timelines"))?;
    reader.take(families.saturating_add(1).saturating_mul(4))?;
    let (first, last) = (Packed::take(&mut reader)?, Packed::take(&mut reader)?);
    let (ends, blocks) = (Packed::take(&mut reader)?, Packed::take(&mut reader)?);
    Ok((families, Timelines { len, first, last, ends, blocks }))
}

fn record(bytes: &[u8], family: usize, families: usize) -> Result<Family<'_>, Damage> {
    let record = nth(bytes, 8, family, families)?;
    let mut reader = Reader::new(record);
    let metric = reader.varint()?;
    let rows = usize::try_from(reader.varint()?).ok().filter(|rows| u32::try_from(*rows).is_ok());
    let rows = rows.ok_or_else(|| reader.damage("too many rows"))?;
    let data = reader.varint()?;
    let labels = reader.count(1)?;
    let names = reader;
    for _ in 0..labels {
        reader.varint()?;
    }
    let ids = Packed::take(&mut reader)?;
    let timelines = Packed::take(&mut reader)?;
    let offsets = Packed::take(&mut reader)?;
    Ok(Family { metric, rows, data, labels, names, ids, timelines, offsets, columns: reader })
}

/// The number of a row's value; the reader stands at the label's column, and behind it afterwards.
fn value_number(reader: &mut Reader<'_>, pool: &[u8], row: usize) -> Result<usize, Damage> {
    ValueColumn::take(reader)?.get(pool, row).ok_or_else(|| reader.damage("a label without a value"))
}

#[cfg(test)]
mod tests;
