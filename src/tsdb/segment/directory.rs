//! The directory of a segment in the making: families, timelines, dictionaries, in memory until the blocks are written.

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::RapidHashMap;

use super::SegmentWriteError;
use super::block::{put_times, times_of};
use super::format::{DIRECT, LOCAL};
use super::packed::{Packed, Pool};
use super::{dictionary, format};
use crate::model::METRIC_NAME;
use crate::tsdb::codec::put_varint;

/// Texts, numbered as they come.
#[derive(Debug, Default)]
struct Texts {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Texts {
    /// `bytes` grows by the memory of a new one.
    fn number(&mut self, text: &str, bytes: &mut usize) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        // Memory ends long before the numbers do.
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let text: Arc<str> = text.into();
        *bytes += text.len() + 80;
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// The texts in order, and the rank of each number.
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

/// The numbers of one label's values in a family, by row.
#[derive(Debug)]
enum Column {
    Same(u32),
    Each(Vec<u32>),
}

impl Column {
    fn push(&mut self, rows: usize, number: u32) {
        match self {
            Column::Same(same) if *same == number => {}
            Column::Same(same) => {
                let mut numbers = vec![*same; rows];
                numbers.push(number);
                *self = Column::Each(numbers);
            }
            Column::Each(numbers) => numbers.push(number),
        }
    }
}

/// A family being written.
#[derive(Debug)]
struct Draft {
    /// Numbers of the label names.
    names: Vec<u32>,
    metric_place: Option<usize>,
    data: u64,
    ids: Vec<i64>,
    timelines: Vec<i64>,
    offsets: Vec<i64>,
    columns: Vec<Column>,
}

/// A family that is written.
#[derive(Debug)]
struct Family {
    /// Number of the metric name's value.
    metric: Option<u32>,
    names: Vec<u32>,
    rows: usize,
    data: u64,
    ids: Packed,
    timelines: Packed,
    offsets: Packed,
    columns: Vec<Column>,
}

/// Times that are kept as they are, 2 MiB: the blocks of five thousand targets of a seal.
const PLAIN_MAX: usize = 1 << 18;

/// Of whole lists of numbers: to find equal ones, compared afterwards.
fn hash_of(numbers: &[i64]) -> u64 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, number: i64| (hash ^ number.cast_unsigned()).wrapping_mul(MIX).rotate_left(29);
    // Four at a time wait for one another less.
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

/// Time blocks, equal ones once.
#[derive(Debug, Default)]
pub(super) struct Times {
    bytes: Vec<u8>,
    /// By hash of the times. One of two blocks whose hashes are equal by chance is only not found again.
    known: RapidHashMap<u64, KnownTimes>,
    /// The times of the first blocks, so that most are compared without decoding one.
    plain: Vec<i64>,
    decoded: Vec<i64>,
}

/// A block that may come again.
#[derive(Clone, Copy, Debug)]
struct KnownTimes {
    place: u32,
    /// Where its times are kept, if they are, and how many they are.
    plain: Option<(usize, usize)>,
}

impl Times {
    /// Where the block of these times stands; written if it is new.
    pub(super) fn place(&mut self, times: &[i64]) -> Result<u32, SegmentWriteError> {
        let hash = hash_of(times);
        let known = self.known.get(&hash).copied();
        if let Some(KnownTimes { place, plain }) = known {
            let is_it = if let Some((start, count)) = plain {
                self.plain.get(start..start + count) == Some(times)
            } else {
                self.decoded.clear();
                let block = self.bytes.get(place as usize..).unwrap_or_default();
                times_of(block, &mut self.decoded).is_ok() && self.decoded == times
            };
            if is_it {
                return Ok(place);
            }
        }
        let place = fits("time blocks of", self.bytes.len() as u64)?;
        put_times(&mut self.bytes, times);
        if known.is_none() {
            let plain = (self.plain.len() + times.len() <= PLAIN_MAX).then(|| {
                self.plain.extend_from_slice(times);
                (self.plain.len() - times.len(), times.len())
            });
            self.known.insert(hash, KnownTimes { place, plain });
        }
        Ok(place)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Lists of time blocks with their spans, equal ones once.
#[derive(Debug, Default)]
struct Timelines {
    first: Vec<i64>,
    last: Vec<i64>,
    ends: Vec<i64>,
    blocks: Vec<i64>,
    known: RapidHashMap<u64, usize>,
}

impl Timelines {
    fn list(&self, number: usize) -> Option<&[i64]> {
        let place = |end: &i64| usize::try_from(*end).ok();
        let start = match number.checked_sub(1) {
            None => 0,
            Some(before) => self.ends.get(before).and_then(place)?,
        };
        self.blocks.get(start..self.ends.get(number).and_then(place)?)
    }

    fn number(&mut self, list: &[i64], first: i64, last: i64) -> i64 {
        let hash = hash_of(list);
        let known = self.known.get(&hash).copied();
        let number = match known {
            Some(number) if self.list(number) == Some(list) => number,
            _ => {
                let number = self.ends.len();
                self.blocks.extend_from_slice(list);
                self.ends.push(self.blocks.len() as i64);
                self.first.push(first);
                self.last.push(last);
                if known.is_none() {
                    self.known.insert(hash, number);
                }
                number
            }
        };
        number as i64
    }
}

/// What becomes of a segment behind its blocks.
#[derive(Debug, Default)]
pub(super) struct Directory {
    names: Texts,
    /// By number of the label name.
    values: Vec<Texts>,
    /// Memory of all texts, about.
    text_bytes: usize,
    draft: Option<Draft>,
    families: Vec<Family>,
    timelines: Timelines,
    pool: Pool,
    /// Bytes of columns of numbers, about.
    column_bytes: usize,
    rows: u32,
}

/// The sections of a directory.
pub(super) struct Encoded {
    pub(super) columns: Vec<u8>,
    pub(super) families: Vec<u8>,
    pub(super) dictionaries: Vec<u8>,
}

fn fits(what: &'static str, found: u64) -> Result<u32, SegmentWriteError> {
    let allowed = u64::from(u32::MAX);
    u32::try_from(found).map_err(|_| SegmentWriteError::TooLarge { what, found, allowed })
}

impl Directory {
    /// Begins a family whose blocks begin at `data`.
    pub(super) fn family(&mut self, names: &[&str], data: u64) -> Result<(), SegmentWriteError> {
        if !names.is_sorted_by(|a, b| a < b) {
            return Err(SegmentWriteError::Shape("label names do not ascend"));
        }
        self.close();
        let numbers = names.iter().map(|name| self.names.number(name, &mut self.text_bytes)).collect();
        self.values.resize_with(self.names.texts.len(), Texts::default);
        self.draft = Some(Draft {
            names: numbers,
            metric_place: names.iter().position(|name| *name == METRIC_NAME),
            data,
            ids: Vec::new(),
            timelines: Vec::new(),
            offsets: vec![0],
            columns: Vec::new(),
        });
        Ok(())
    }

    /// Whether a series may come next.
    pub(super) fn admits(&self, id: u32, values: usize) -> Result<(), SegmentWriteError> {
        let draft = self.draft.as_ref().ok_or(SegmentWriteError::Shape("a series before any family"))?;
        if values != draft.names.len() {
            return Err(SegmentWriteError::Shape("not a value for each label name"));
        }
        if draft.ids.last().is_some_and(|last| *last >= i64::from(id)) {
            return Err(SegmentWriteError::Shape("series ids do not ascend"));
        }
        Ok(())
    }

    /// The number of a value of the family's label at this place. It holds for that label in all families of the segment.
    pub(super) fn number(&mut self, place: usize, value: &str) -> u32 {
        let name = self.draft.as_ref().and_then(|draft| draft.names.get(place));
        let texts = name.and_then(|name| self.values.get_mut(*name as usize));
        texts.map_or(0, |texts| texts.number(value, &mut self.text_bytes))
    }

    /// Adds a row whose blocks end at `end` in the file's data; `list` are its time blocks.
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
        for (place, number) in numbers.iter().enumerate() {
            match draft.columns.get_mut(place) {
                None => draft.columns.push(Column::Same(*number)),
                Some(column) => column.push(row, *number),
            }
        }
        let metric = draft.metric_place.and_then(|place| draft.columns.get(place));
        if matches!(metric, Some(Column::Each(_))) {
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

    /// Memory in use, about.
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

    fn close(&mut self) {
        let Some(draft) = self.draft.take().filter(|draft| !draft.ids.is_empty()) else { return };
        let metric = draft.metric_place.and_then(|place| match draft.columns.get(place) {
            Some(Column::Same(number)) => Some(*number),
            _ => None,
        });
        for column in &draft.columns {
            if let Column::Each(numbers) = column {
                self.column_bytes += numbers.capacity() * 4;
            }
        }
        self.families.push(Family {
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

    /// The sections, all numbers of texts being ranks in the sorted dictionaries.
    pub(super) fn encode(mut self) -> Result<Encoded, SegmentWriteError> {
        self.close();
        let (names, name_ranks) = self.names.sorted();
        let values: Vec<(Vec<&str>, Vec<u32>)> = self.values.iter().map(Texts::sorted).collect();
        let metric_ranks = names.binary_search(&METRIC_NAME).ok().and_then(|rank| {
            let number = name_ranks.iter().position(|r| *r as usize == rank)?;
            values.get(number).map(|(_, ranks)| ranks.as_slice())
        });
        let rank = |ranks: &[u32], number: u32| ranks.get(number as usize).copied().unwrap_or(u32::MAX);
        let key = |family: &Family| -> (u64, Vec<u32>) {
            let metric = family.metric.zip(metric_ranks);
            let metric = metric.map_or(0, |(number, ranks)| u64::from(rank(ranks, number)) + 1);
            (metric, family.names.iter().map(|name| rank(&name_ranks, *name)).collect())
        };
        let mut sorted: Vec<((u64, Vec<u32>), &Family)> =
            self.families.iter().map(|family| (key(family), family)).collect();
        sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
        if sorted.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b)) {
            return Err(SegmentWriteError::Shape("a family came twice"));
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
        let mut scratch = Scratch::default();
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
        Ok(Encoded { columns, families, dictionaries: put_dictionaries(&all)? })
    }
}

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

#[derive(Debug, Default)]
struct Scratch {
    direct: Vec<i64>,
    local: Vec<i64>,
    map: Vec<i64>,
    seen: HashMap<u32, i64>,
}

/// Names a label's column in the form that takes fewer bytes.
fn put_column(out: &mut Vec<u8>, pool: &mut Pool, column: &Column, ranks: &[u32], scratch: &mut Scratch) {
    let rank = |number: u32| ranks.get(number as usize).map_or(-1, |rank| i64::from(*rank));
    let numbers = match column {
        Column::Same(number) => {
            out.push(DIRECT);
            pool.add(&[rank(*number)]).put(out);
            return;
        }
        Column::Each(numbers) => numbers,
    };
    let Scratch { direct, local, map, seen } = scratch;
    direct.clear();
    direct.extend(numbers.iter().map(|number| rank(*number)));
    local.clear();
    map.clear();
    seen.clear();
    for number in numbers {
        let next = map.len() as i64;
        let place = *seen.entry(*number).or_insert(next);
        if place == next {
            map.push(rank(*number));
        }
        local.push(place);
    }
    // A few bytes more of names for the second form.
    if pool.cost(local) + pool.cost(map) + 5 < pool.cost(direct) {
        out.push(LOCAL);
        pool.add(local).put(out);
        pool.add(map).put(out);
    } else {
        out.push(DIRECT);
        pool.add(direct).put(out);
    }
}
