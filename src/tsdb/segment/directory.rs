//! The directory of a segment that is being written: families, timelines and dictionaries, kept in
//! memory until all blocks are written.

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::RapidHashMap;

use super::SegmentWriteError;
use super::block::{put_times, times_of};
use super::format::{DIRECT, LOCAL};
use super::packed::{ColumnPool, PackedColumn};
use super::{dictionary, format};
use crate::model::METRIC_NAME;
use crate::tsdb::codec::put_varint;

/// Texts, numbered in the order of their first use.
#[derive(Debug, Default)]
struct TextTable {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl TextTable {
    /// Returns the number of a text. Adds the memory of a new one to `bytes`.
    fn number(&mut self, text: &str, bytes: &mut usize) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        // Memory runs out long before the numbers do.
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let text: Arc<str> = text.into();
        *bytes += text.len() + 80;
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// Returns the texts in order, and the rank of each number.
    fn sorted(&self) -> (Vec<&str>, Vec<u32>) {
        let mut order: Vec<u32> = (0..).take(self.texts.len()).collect();
        order
            .sort_unstable_by_key(|number| self.texts.get(*number as usize).map(AsRef::as_ref).unwrap_or(""));
        let mut ranks = vec![0; order.len()];
        for (rank, number) in (0..).zip(&order) {
            if let Some(slot) = ranks.get_mut(*number as usize) {
                *slot = rank;
            }
        }
        (
            order.iter().filter_map(|number| self.texts.get(*number as usize)).map(AsRef::as_ref).collect(),
            ranks,
        )
    }
}

/// The numbers of the values of a label in a family, by row.
#[derive(Debug)]
enum ValueNumbers {
    Same(u32),
    Each(Vec<u32>),
}

impl ValueNumbers {
    /// Adds the number of row `rows`.
    fn push(&mut self, rows: usize, number: u32) {
        match self {
            ValueNumbers::Same(same) if *same == number => {}
            ValueNumbers::Same(same) => {
                let mut numbers = vec![*same; rows];
                numbers.push(number);
                *self = ValueNumbers::Each(numbers);
            }
            ValueNumbers::Each(numbers) => numbers.push(number),
        }
    }
}

/// A family that is being written.
#[derive(Debug)]
struct FamilyDraft {
    /// Numbers of the label names.
    names: Vec<u32>,
    metric_index: Option<usize>,
    data: u64,
    ids: Vec<i64>,
    timelines: Vec<i64>,
    offsets: Vec<i64>,
    columns: Vec<ValueNumbers>,
}

/// A family that is complete.
#[derive(Debug)]
struct ClosedFamily {
    /// Number of the metric name among the values of `__name__`.
    metric: Option<u32>,
    names: Vec<u32>,
    rows: usize,
    data: u64,
    ids: PackedColumn,
    timelines: PackedColumn,
    offsets: PackedColumn,
    columns: Vec<ValueNumbers>,
}

/// Times that are stored undecoded, 2 MiB: those of a seal with five thousand targets.
const PLAIN_MAX: usize = 1 << 18;

/// Returns a hash of a list of numbers, to find equal lists, which are compared afterwards.
fn hash_of(numbers: &[i64]) -> u64 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, number: i64| (hash ^ number.cast_unsigned()).wrapping_mul(MIX).rotate_left(29);
    // Four independent lanes, so that multiplications overlap.
    let (fours, rest) = numbers.as_chunks::<4>();
    let mut lanes = [MIX, !MIX, MIX << 1, numbers.len() as u64];
    for four in fours {
        for (lane, number) in lanes.iter_mut().zip(four) {
            *lane = mix(*lane, *number);
        }
    }
    let hash = rest.iter().fold(0, |hash, number| mix(hash, *number));
    lanes.iter().fold(hash, |hash, lane| mix(hash, lane.cast_signed()))
}

/// Time blocks, each stored once.
#[derive(Debug, Default)]
pub(super) struct TimeBlocks {
    bytes: Vec<u8>,
    /// The written blocks, by hash of the times. If two blocks have equal hashes by chance, one of
    /// them is not shared.
    by_hash: RapidHashMap<u64, WrittenTimes>,
    /// The times of the first blocks, so that most comparisons need no decoding.
    plain: Vec<i64>,
    decoded: Vec<i64>,
}

/// A block that was written and may be shared.
#[derive(Clone, Copy, Debug)]
struct WrittenTimes {
    offset: u32,
    /// The start in `plain` and the number of its times, if they are stored there.
    plain: Option<(usize, usize)>,
}

impl TimeBlocks {
    /// Returns the offset of the block with these times, which is written if it is new.
    pub(super) fn offset_of(&mut self, times: &[i64]) -> Result<u32, SegmentWriteError> {
        let hash = hash_of(times);
        let existing = self.by_hash.get(&hash).copied();
        if let Some(WrittenTimes { offset, plain }) = existing {
            let is_it = if let Some((start, count)) = plain {
                self.plain.get(start..start + count) == Some(times)
            } else {
                self.decoded.clear();
                let block = self.bytes.get(offset as usize..).unwrap_or_default();
                times_of(block, &mut self.decoded).is_ok() && self.decoded == times
            };
            if is_it {
                return Ok(offset);
            }
        }
        let offset = fits("time blocks of", self.bytes.len() as u64)?;
        put_times(&mut self.bytes, times);
        if existing.is_none() {
            let plain = (self.plain.len() + times.len() <= PLAIN_MAX).then(|| {
                self.plain.extend_from_slice(times);
                (self.plain.len() - times.len(), times.len())
            });
            self.by_hash.insert(hash, WrittenTimes { offset, plain });
        }
        Ok(offset)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Timelines: lists of time blocks with their spans, each stored once.
#[derive(Debug, Default)]
struct TimelineTable {
    first: Vec<i64>,
    last: Vec<i64>,
    ends: Vec<i64>,
    blocks: Vec<i64>,
    by_hash: RapidHashMap<u64, usize>,
}

impl TimelineTable {
    /// Returns the time blocks of a timeline.
    fn list(&self, number: usize) -> Option<&[i64]> {
        let to_index = |end: &i64| usize::try_from(*end).ok();
        let start = match number.checked_sub(1) {
            None => 0,
            Some(before) => self.ends.get(before).and_then(to_index)?,
        };
        self.blocks.get(start..self.ends.get(number).and_then(to_index)?)
    }

    /// Returns the number of the timeline with these time blocks, which is added if it is new.
    fn number(&mut self, list: &[i64], first: i64, last: i64) -> i64 {
        let hash = hash_of(list);
        let existing = self.by_hash.get(&hash).copied();
        let number = match existing {
            Some(number) if self.list(number) == Some(list) => number,
            _ => {
                let number = self.ends.len();
                self.blocks.extend_from_slice(list);
                self.ends.push(self.blocks.len() as i64);
                self.first.push(first);
                self.last.push(last);
                if existing.is_none() {
                    self.by_hash.insert(hash, number);
                }
                number
            }
        };
        number as i64
    }
}

/// Builder of the sections that follow the blocks.
#[derive(Debug, Default)]
pub(super) struct DirectoryBuilder {
    names: TextTable,
    /// The texts of values, by number of the label name.
    values: Vec<TextTable>,
    /// An estimate of the memory of all texts, in bytes.
    text_bytes: usize,
    draft: Option<FamilyDraft>,
    families: Vec<ClosedFamily>,
    timelines: TimelineTable,
    pool: ColumnPool,
    /// An estimate of the memory of the columns of closed families, in bytes.
    column_bytes: usize,
    rows: u32,
}

/// The encoded sections of a directory.
pub(super) struct EncodedDirectory {
    pub(super) columns: Vec<u8>,
    pub(super) families: Vec<u8>,
    pub(super) dictionaries: Vec<u8>,
}

/// Converts a size to u32.
fn fits(what: &'static str, found: u64) -> Result<u32, SegmentWriteError> {
    let allowed = u64::from(u32::MAX);
    u32::try_from(found).map_err(|_| SegmentWriteError::TooLarge { what, found, allowed })
}

impl DirectoryBuilder {
    /// Begins a family, whose blocks begin at offset `data` in DATA.
    pub(super) fn family(&mut self, names: &[&str], data: u64) -> Result<(), SegmentWriteError> {
        if !names.is_sorted_by(|a, b| a < b) {
            return Err(SegmentWriteError::Shape("label names do not ascend"));
        }
        self.close();
        let numbers = names.iter().map(|name| self.names.number(name, &mut self.text_bytes)).collect();
        self.values.resize_with(self.names.texts.len(), TextTable::default);
        self.draft = Some(FamilyDraft {
            names: numbers,
            metric_index: names.iter().position(|name| *name == METRIC_NAME),
            data,
            ids: Vec::new(),
            timelines: Vec::new(),
            offsets: vec![0],
            columns: Vec::new(),
        });
        Ok(())
    }

    /// Checks that a series with this id and number of values may come next.
    pub(super) fn admits(&self, id: u32, values: usize) -> Result<(), SegmentWriteError> {
        let draft = self.draft.as_ref().ok_or(SegmentWriteError::Shape("a series before any family"))?;
        if values != draft.names.len() {
            return Err(SegmentWriteError::Shape("the number of values differs from that of label names"));
        }
        if draft.ids.last().is_some_and(|last| *last >= i64::from(id)) {
            return Err(SegmentWriteError::Shape("series ids do not ascend"));
        }
        Ok(())
    }

    /// Returns the number of a value of the label at this index of the family's label names. The
    /// number is valid for that label in all families of the segment.
    pub(super) fn number(&mut self, index: usize, value: &str) -> u32 {
        let name = self.draft.as_ref().and_then(|draft| draft.names.get(index));
        let texts = name.and_then(|name| self.values.get_mut(*name as usize));
        texts.map_or(0, |texts| texts.number(value, &mut self.text_bytes))
    }

    /// Adds a row whose blocks end at offset `end` in DATA. `list` has the offsets in TIMES of its
    /// time blocks.
    pub(super) fn row(
        &mut self,
        id: u32,
        numbers: &[u32],
        list: &[i64],
        span: (i64, i64),
        end: u64,
    ) -> Result<(), SegmentWriteError> {
        let Some(draft) = &mut self.draft else {
            return Err(SegmentWriteError::Shape("a series before any family"));
        };
        let row = draft.ids.len();
        for (index, number) in numbers.iter().enumerate() {
            match draft.columns.get_mut(index) {
                None => draft.columns.push(ValueNumbers::Same(*number)),
                Some(column) => column.push(row, *number),
            }
        }
        let metric = draft.metric_index.and_then(|index| draft.columns.get(index));
        if matches!(metric, Some(ValueNumbers::Each(_))) {
            return Err(SegmentWriteError::Shape("two metric names in a family"));
        }
        draft.ids.push(i64::from(id));
        draft.timelines.push(self.timelines.number(list, span.0, span.1));
        draft.offsets.push(end.saturating_sub(draft.data).cast_signed());
        self.rows = self.rows.saturating_add(1);
        Ok(())
    }

    pub(super) fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns an estimate of the memory in use, in bytes.
    pub(super) fn memory(&self) -> usize {
        let draft = self.draft.as_ref().map_or(0, |draft| draft.ids.len() * (24 + 4 * draft.names.len()));
        let timelines = self.timelines.ends.len() * 64 + self.timelines.blocks.len() * 8;
        draft
            + self.text_bytes
            + timelines
            + self.column_bytes
            + self.pool.memory()
            + self.families.len() * 256
    }

    /// Ends the current family. A family without rows is dropped.
    fn close(&mut self) {
        let Some(draft) = self.draft.take().filter(|draft| !draft.ids.is_empty()) else { return };
        let metric = draft.metric_index.and_then(|index| match draft.columns.get(index) {
            Some(ValueNumbers::Same(number)) => Some(*number),
            _ => None,
        });
        for column in &draft.columns {
            if let ValueNumbers::Each(numbers) = column {
                self.column_bytes += numbers.capacity() * 4;
            }
        }
        self.families.push(ClosedFamily {
            metric,
            names: draft.names,
            rows: draft.ids.len(),
            data: draft.data,
            ids: self.pool.add(&draft.ids),
            timelines: self.pool.add(&draft.timelines),
            offsets: self.pool.add(&draft.offsets),
            columns: draft.columns,
        });
    }

    /// Encodes the sections. Numbers of texts are replaced by their ranks in the sorted
    /// dictionaries.
    pub(super) fn encode(mut self) -> Result<EncodedDirectory, SegmentWriteError> {
        self.close();
        let (names, name_ranks) = self.names.sorted();
        let values: Vec<(Vec<&str>, Vec<u32>)> = self.values.iter().map(TextTable::sorted).collect();
        let metric_ranks = names.binary_search(&METRIC_NAME).ok().and_then(|rank| {
            let number = name_ranks.iter().position(|r| *r as usize == rank)?;
            values.get(number).map(|(_, ranks)| ranks.as_slice())
        });
        let rank = |ranks: &[u32], number: u32| ranks.get(number as usize).copied().unwrap_or(u32::MAX);
        let key = |family: &ClosedFamily| -> (u64, Vec<u32>) {
            let metric = family.metric.zip(metric_ranks);
            let metric = metric.map_or(0, |(number, ranks)| u64::from(rank(ranks, number)) + 1);
            (metric, family.names.iter().map(|name| rank(&name_ranks, *name)).collect())
        };
        let mut sorted: Vec<((u64, Vec<u32>), &ClosedFamily)> =
            self.families.iter().map(|family| (key(family), family)).collect();
        sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
        if sorted.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b)) {
            return Err(SegmentWriteError::Shape("duplicate family"));
        }
        let mut pool = self.pool;
        let timelines =
            [&self.timelines.first, &self.timelines.last, &self.timelines.ends, &self.timelines.blocks]
                .map(|column| pool.add(column));
        let mut records = Vec::new();
        let mut starts = Vec::with_capacity(sorted.len() + 1);
        for column in timelines {
            column.put(&mut records);
        }
        let mut scratch = ColumnScratch::default();
        for ((metric, names), family) in &sorted {
            starts.push(records.len());
            for number in [*metric, family.rows as u64, family.data, names.len() as u64] {
                put_varint(&mut records, number);
            }
            for name in names {
                put_varint(&mut records, u64::from(*name));
            }
            for column in [family.ids, family.timelines, family.offsets] {
                column.put(&mut records);
            }
            for (name, column) in family.names.iter().zip(&family.columns) {
                let ranks = values.get(*name as usize).map(|(_, ranks)| ranks.as_slice()).unwrap_or_default();
                put_column(&mut records, &mut pool, column, ranks, &mut scratch);
            }
        }
        starts.push(records.len());
        let mut families = Vec::with_capacity(8 + starts.len() * 4 + records.len());
        families.extend_from_slice(&fits("families", sorted.len() as u64)?.to_le_bytes());
        families.extend_from_slice(&fits("timelines", self.timelines.ends.len() as u64)?.to_le_bytes());
        let before = 8 + starts.len() * 4;
        for start in starts {
            families.extend_from_slice(&fits("family records of", (before + start) as u64)?.to_le_bytes());
        }
        families.append(&mut records);
        let mut columns = pool.bytes().to_vec();
        columns.extend_from_slice(&[0; format::COLUMNS_PAD]);
        let mut by_rank: Vec<(u32, &[&str])> =
            name_ranks.iter().zip(&values).map(|(rank, (texts, _))| (*rank, texts.as_slice())).collect();
        by_rank.sort_unstable_by_key(|(rank, _)| *rank);
        let all: Vec<&[&str]> =
            std::iter::once(names.as_slice()).chain(by_rank.iter().map(|(_, texts)| *texts)).collect();
        Ok(EncodedDirectory { columns, families, dictionaries: put_dictionaries(&all)? })
    }
}

/// Encodes the section of dictionaries.
fn put_dictionaries(all: &[&[&str]]) -> Result<Vec<u8>, SegmentWriteError> {
    let before = 4 + (all.len() + 1) * 4;
    let mut bodies = Vec::new();
    let mut out = Vec::new();
    out.extend_from_slice(&fits("dictionaries", all.len() as u64)?.to_le_bytes());
    for texts in all {
        out.extend_from_slice(&fits("dictionaries of", (before + bodies.len()) as u64)?.to_le_bytes());
        let allowed = u64::from(u32::MAX);
        dictionary::put(&mut bodies, texts).map_err(|found| SegmentWriteError::TooLarge {
            what: "texts of a label",
            found,
            allowed,
        })?;
    }
    out.extend_from_slice(&fits("dictionaries of", (before + bodies.len()) as u64)?.to_le_bytes());
    out.append(&mut bodies);
    Ok(out)
}

/// Buffers that are reused for each label column.
#[derive(Debug, Default)]
struct ColumnScratch {
    direct: Vec<i64>,
    local: Vec<i64>,
    map: Vec<i64>,
    seen: HashMap<u32, i64>,
}

/// Appends the reference to a label's column, in the form that takes fewer bytes.
fn put_column(
    out: &mut Vec<u8>,
    pool: &mut ColumnPool,
    column: &ValueNumbers,
    ranks: &[u32],
    scratch: &mut ColumnScratch,
) {
    let rank = |number: u32| ranks.get(number as usize).map_or(-1, |rank| i64::from(*rank));
    let numbers = match column {
        ValueNumbers::Same(number) => {
            out.push(DIRECT);
            pool.add(&[rank(*number)]).put(out);
            return;
        }
        ValueNumbers::Each(numbers) => numbers,
    };
    let ColumnScratch { direct, local, map, seen } = scratch;
    direct.clear();
    direct.extend(numbers.iter().map(|number| rank(*number)));
    local.clear();
    map.clear();
    seen.clear();
    for number in numbers {
        let next = map.len() as i64;
        let index = *seen.entry(*number).or_insert(next);
        if index == next {
            map.push(rank(*number));
        }
        local.push(index);
    }
    // The reference of the second form is up to 5 bytes longer.
    if pool.cost(local) + pool.cost(map) + 5 < pool.cost(direct) {
        out.push(LOCAL);
        pool.add(local).put(out);
        pool.add(map).put(out);
    } else {
        out.push(DIRECT);
        pool.add(direct).put(out);
    }
}
