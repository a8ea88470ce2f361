//! The symbol table of a request of remote write 2.0: each text once, in order of its first use.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use crate::ingest::put_bytes;

/// Field `symbols` of `Request`.
const SYMBOLS: u64 = 4;

/// The symbol table of a request: texts and their numbers. The texts are stored as the encoded
/// fields of the request. Texts are hashed with a random key, so that a sender of labels cannot
/// choose texts that collide.
#[derive(Default)]
pub(super) struct SymbolTable {
    /// Encoded fields, one after another.
    fields: Vec<u8>,
    /// The bytes of each text in `fields`.
    texts: Vec<Range<u32>>,
    /// An open-addressing table with linear probing: the number of a symbol plus one, or zero. Its
    /// length is a power of two and at least twice the number of symbols.
    slots: Vec<u32>,
    hasher: RandomState,
}

impl SymbolTable {
    const SLOTS_MIN: usize = 256;

    /// Returns the encoded fields.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.fields
    }

    /// Returns the number of symbols.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Removes all symbols; keeps the capacity.
    pub(super) fn clear(&mut self) {
        self.fields.clear();
        self.texts.clear();
        self.slots.clear();
        self.slots.resize(SymbolTable::SLOTS_MIN, 0);
    }

    /// Removes the symbols that were added after the first `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        while self.texts.len() > len {
            // The newest entry of a linear probing table ends its chain, so it can be emptied.
            let number = self.texts.len();
            let Some(text) = self.texts.pop() else { break };
            let mask = self.slots.len() - 1;
            let mut slot = self.first_slot(self.text(&text), mask);
            while self.slots[slot] != 0 {
                if self.slots[slot] as usize == number {
                    self.slots[slot] = 0;
                    break;
                }
                slot = (slot + 1) & mask;
            }
        }
        let end = self.texts.last().map_or(0, |text| text.end as usize);
        self.fields.truncate(end);
    }

    /// Returns the number of a text, and adds it if it is new.
    pub(super) fn reference(&mut self, text: &str) -> u64 {
        self.insert(text).0
    }

    /// Adds a text; returns its number, and whether it is new.
    pub(super) fn insert(&mut self, text: &str) -> (u64, bool) {
        if self.slots.len() < 2 * (self.texts.len() + 1) {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut slot = self.first_slot(text.as_bytes(), mask);
        while let Some(place) = (self.slots[slot] as usize).checked_sub(1) {
            if self.text(&self.texts[place]) == text.as_bytes() {
                return (place as u64, false);
            }
            slot = (slot + 1) & mask;
        }
        let place = self.texts.len();
        put_bytes(SYMBOLS, text.as_bytes(), &mut self.fields);
        let end = position(self.fields.len());
        self.texts.push(end - position(text.len())..end);
        self.slots[slot] = position(place + 1);
        (place as u64, true)
    }

    fn text(&self, range: &Range<u32>) -> &[u8] {
        &self.fields[range.start as usize..range.end as usize]
    }

    fn first_slot(&self, text: &[u8], mask: usize) -> usize {
        usize::try_from(self.hasher.hash_one(text) & mask as u64).expect("a mask has the bits of an address")
    }

    #[cold]
    fn grow(&mut self) {
        let length = (4 * (self.texts.len() + 1)).next_power_of_two().max(SymbolTable::SLOTS_MIN);
        let mask = length - 1;
        self.slots.clear();
        self.slots.resize(length, 0);
        for place in 0..self.texts.len() {
            let mut slot = self.first_slot(self.text(&self.texts[place]), mask);
            while self.slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = position(place + 1);
        }
    }
}

/// Requests are smaller than [`super::RequestEncoder::BYTES_MAX`] plus one series.
fn position(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a request is smaller than 4 GiB")
}
