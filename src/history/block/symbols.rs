//! The symbols of an index: every label name and value, by its number.
//!
//! Section: `u32 length, u32 count, (uvarint length, text)..., u32 CRC-32C`. The position of each
//! 32nd symbol and a bounded cache of texts are kept in memory.

use std::collections::HashMap;
use std::sync::Arc;

use super::{BlockError, BlockFile, ByteReader, Window};

/// The symbols between two known positions.
const GROUP: u32 = 32;
/// The greatest length of a symbol in bytes.
const SYMBOL_BYTES_MAX: u64 = 16 << 20;
/// The texts that are cached, in bytes.
const CACHE_BYTES_MAX: usize = 32 << 20;
/// The estimated memory of a cached text without its bytes.
const TEXT_BYTES: usize = 64;

/// The positions of symbols, and a cache of their texts.
#[derive(Debug)]
pub(super) struct BlockSymbols {
    count: u32,
    /// The position of each [`GROUP`]th symbol in the file.
    positions: Vec<u64>,
    /// The end of the last symbol.
    end: u64,
    groups: HashMap<u32, Vec<Arc<str>>>,
    cached_bytes: usize,
    window: Window,
}

impl BlockSymbols {
    /// Reads the positions of the section at `offset`, and checks its checksum.
    pub(super) fn open(file: &BlockFile, offset: u64) -> Result<BlockSymbols, BlockError> {
        let length = file.check_section(offset)?;
        let content = offset.saturating_add(4);
        let end = content.saturating_add(length);
        let mut window = Window::default();
        if length < 4 {
            return Err(file.damaged(offset, "the symbols have no count"));
        }
        let count = ByteReader::new(window.exactly(file, content, 4)?).u32().unwrap_or_default();
        // A symbol takes at least one byte, so the section bounds the positions.
        if u64::from(count) > length {
            return Err(file.damaged(content, "there are more symbols than bytes"));
        }
        let mut positions = Vec::new();
        let mut at = content.saturating_add(4);
        for number in 0..count {
            if number.is_multiple_of(GROUP) {
                positions.push(at);
            }
            let wrong = "the length of a symbol is wrong";
            let (length, start) = window.length(file, at, SYMBOL_BYTES_MAX, wrong)?;
            at = start.saturating_add(length);
            if at > end {
                return Err(file.damaged(at, "a symbol ends after the end of the symbols"));
            }
        }
        if at != end {
            return Err(file.damaged(at, "there are bytes after the last symbol"));
        }
        Ok(BlockSymbols { count, positions, end, groups: HashMap::new(), cached_bytes: 0, window })
    }

    /// Returns the text of a symbol.
    ///
    /// # Errors
    /// [`BlockError`]; `offset` is the position that refers to the symbol.
    pub(super) fn get(&mut self, file: &BlockFile, number: u32, offset: u64) -> Result<Arc<str>, BlockError> {
        if number >= self.count {
            return Err(file.damaged(offset, format!("there is no symbol {number}")));
        }
        let group = number / GROUP;
        if !self.groups.contains_key(&group) {
            let texts = self.read_group(file, group)?;
            let bytes = texts.iter().map(|text| text.len().saturating_add(TEXT_BYTES)).sum::<usize>();
            if self.cached_bytes.saturating_add(bytes) > CACHE_BYTES_MAX {
                self.groups.clear();
                self.cached_bytes = 0;
            }
            self.cached_bytes = self.cached_bytes.saturating_add(bytes);
            self.groups.insert(group, texts);
        }
        let texts = self.groups.get(&group);
        let text = texts.and_then(|texts| texts.get((number % GROUP) as usize));
        text.cloned().ok_or_else(|| file.damaged(offset, format!("there is no symbol {number}")))
    }

    fn read_group(&mut self, file: &BlockFile, group: u32) -> Result<Vec<Arc<str>>, BlockError> {
        let place = group as usize;
        let start = self.positions.get(place).copied().unwrap_or(self.end);
        let end = self.positions.get(place.saturating_add(1)).copied().unwrap_or(self.end);
        let length = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let mut reader = ByteReader::new(self.window.exactly(file, start, length)?);
        let mut texts = Vec::new();
        while !reader.is_empty() {
            let at = end.saturating_sub(reader.len() as u64);
            texts.push(reader.text().ok_or_else(|| file.damaged(at, "a symbol is not UTF-8"))?.into());
        }
        Ok(texts)
    }
}
