//! A writer of the index of a block, version 2.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use super::bytes::{put_text, put_uvarint, put_varint};
use super::index::{ChunkRef, INDEX_MAGIC, INDEX_VERSION, SERIES_ALIGNMENT};
use super::write::SequentialFile;
use super::{BlockError, checksum};
use crate::model::Labels;

/// An index under construction. Symbols are written first, then series, and the rest at the end.
#[derive(Debug)]
pub(super) struct IndexWriter {
    file: SequentialFile,
    /// The numbers of the symbols, which ascend with their texts.
    numbers: HashMap<Arc<str>, u32>,
    /// The texts in the order of their numbers.
    texts: Vec<Arc<str>>,
    /// The numbers of the series of each label, by the symbols of its name and value.
    postings: BTreeMap<(u32, u32), Vec<u32>>,
    all: Vec<u32>,
    last: Option<Labels>,
    symbols_at: u64,
    series_at: u64,
}

const UNKNOWN_SYMBOL: BlockError =
    BlockError::Limit("a series has a label that is not a symbol of the block");
const TOO_LARGE: BlockError = BlockError::Limit("the index of the block would exceed 4 GiB in one section");

/// Compares label sets as Prometheus does: label by label, by name and then by value.
pub fn compare_labels(a: &Labels, b: &Labels) -> Ordering {
    let (mut one, mut other) = (a.iter(), b.iter());
    loop {
        match (one.next(), other.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => match (a.name, a.value).cmp(&(b.name, b.value)) {
                Ordering::Equal => {}
                order => return order,
            },
        }
    }
}

impl IndexWriter {
    pub(super) fn create<'l>(
        path: &Path,
        labels: impl IntoIterator<Item = &'l Labels>,
    ) -> Result<IndexWriter, BlockError> {
        let mut texts: BTreeSet<Arc<str>> = BTreeSet::new();
        for one in labels {
            for label in one.iter() {
                for text in [label.name, label.value] {
                    if !texts.contains(text) {
                        texts.insert(text.into());
                    }
                }
            }
        }
        let texts: Vec<Arc<str>> = texts.into_iter().collect();
        let numbers = texts.iter().cloned().zip(0..).collect();
        let mut file = SequentialFile::create(path)?;
        let mut header = INDEX_MAGIC.to_be_bytes().to_vec();
        header.push(INDEX_VERSION);
        file.write(&header)?;
        let symbols_at = file.len();
        write_symbols(&mut file, &texts)?;
        file.align(SERIES_ALIGNMENT)?;
        let series_at = file.len();
        let (postings, all, last) = (BTreeMap::new(), Vec::new(), None);
        Ok(IndexWriter { file, numbers, texts, postings, all, last, symbols_at, series_at })
    }

    pub(super) fn add_series(&mut self, labels: &Labels, chunks: &[ChunkRef]) -> Result<(), BlockError> {
        if self.last.as_ref().is_some_and(|last| compare_labels(last, labels) != Ordering::Less) {
            return Err(BlockError::Limit("the series of a block are not in the order of their labels"));
        }
        self.file.align(SERIES_ALIGNMENT)?;
        let number = u32::try_from(self.file.len() / SERIES_ALIGNMENT).map_err(|_| TOO_LARGE)?;
        let mut entry = Vec::new();
        put_uvarint(labels.len() as u64, &mut entry);
        for label in labels.iter() {
            let name = *self.numbers.get(label.name).ok_or(UNKNOWN_SYMBOL)?;
            let value = *self.numbers.get(label.value).ok_or(UNKNOWN_SYMBOL)?;
            put_uvarint(name.into(), &mut entry);
            put_uvarint(value.into(), &mut entry);
            self.postings.entry((name, value)).or_default().push(number);
        }
        put_uvarint(chunks.len() as u64, &mut entry);
        let mut before: Option<(i64, u64)> = None;
        for chunk in chunks {
            let place = u64::from(chunk.file) << 32 | u64::from(chunk.offset);
            let length = chunk.last_ms.wrapping_sub(chunk.first_ms).cast_unsigned();
            match before {
                None => put_varint(chunk.first_ms, &mut entry),
                Some((last_ms, _)) => {
                    put_uvarint(chunk.first_ms.wrapping_sub(last_ms).cast_unsigned(), &mut entry);
                }
            }
            put_uvarint(length, &mut entry);
            match before {
                None => put_uvarint(place, &mut entry),
                Some((_, last)) => put_varint(place.wrapping_sub(last).cast_signed(), &mut entry),
            }
            before = Some((chunk.last_ms, place));
        }
        let mut head = Vec::new();
        put_uvarint(entry.len() as u64, &mut head);
        self.file.write(&head)?;
        self.file.write(&entry)?;
        self.file.write(&checksum(&entry).to_be_bytes())?;
        self.all.push(number);
        self.last = Some(labels.clone());
        Ok(())
    }

    /// Writes postings and the table of contents, and syncs the file.
    pub(super) fn finish(&mut self) -> Result<(), BlockError> {
        self.file.align(4)?;
        let postings_at = self.file.len();
        let postings = std::mem::take(&mut self.postings);
        let mut table = Vec::new();
        let count = u32::try_from(postings.len().saturating_add(1)).map_err(|_| TOO_LARGE)?;
        table.extend_from_slice(&count.to_be_bytes());
        let all = std::mem::take(&mut self.all);
        self.write_list(&all, ("", ""), &mut table)?;
        for ((name, value), list) in postings {
            let text = |number: u32| self.texts.get(number as usize).cloned().unwrap_or_default();
            let (name, value) = (text(name), text(value));
            self.write_list(&list, (&name, &value), &mut table)?;
        }
        let table_at = self.file.len();
        write_section(&mut self.file, &table)?;
        let mut toc = Vec::new();
        for position in [self.symbols_at, self.series_at, postings_at, table_at, postings_at, table_at] {
            toc.extend_from_slice(&position.to_be_bytes());
        }
        toc.extend_from_slice(&checksum(&toc).to_be_bytes());
        self.file.write(&toc)?;
        self.file.sync()
    }

    /// Writes the list of a label, and appends its entry to the table.
    fn write_list(
        &mut self,
        list: &[u32],
        label: (&str, &str),
        table: &mut Vec<u8>,
    ) -> Result<(), BlockError> {
        self.file.align(4)?;
        put_uvarint(2, table);
        put_text(label.0, table);
        put_text(label.1, table);
        put_uvarint(self.file.len(), table);
        let mut content = Vec::with_capacity(list.len().saturating_add(1).saturating_mul(4));
        content.extend_from_slice(&u32::try_from(list.len()).map_err(|_| TOO_LARGE)?.to_be_bytes());
        list.iter().for_each(|number| content.extend_from_slice(&number.to_be_bytes()));
        write_section(&mut self.file, &content)
    }
}

fn write_symbols(file: &mut SequentialFile, texts: &[Arc<str>]) -> Result<(), BlockError> {
    let mut content = Vec::new();
    content.extend_from_slice(&u32::try_from(texts.len()).map_err(|_| TOO_LARGE)?.to_be_bytes());
    texts.iter().for_each(|text| put_text(text, &mut content));
    write_section(file, &content)
}

/// Writes `u32 length, content, u32 CRC-32C`.
fn write_section(file: &mut SequentialFile, content: &[u8]) -> Result<(), BlockError> {
    let length = u32::try_from(content.len()).map_err(|_| TOO_LARGE)?;
    file.write(&length.to_be_bytes())?;
    file.write(content)?;
    file.write(&checksum(content).to_be_bytes())
}
