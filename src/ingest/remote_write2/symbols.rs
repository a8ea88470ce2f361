//! The table of symbols of a request, and the label bytes that are put together from it.

use super::{Flaw, REFERENCES_MAX, SERIES_LABEL_BYTES_MAX};
use crate::ingest::protobuf::Reader;

/// The symbols of a request, each with its length before it.
pub(super) struct Symbols<'a> {
    message: &'a [u8],
    pub(super) places: Vec<Place>,
    /// Those again that a reference of two bytes can name.
    slots: Vec<Slot>,
}

/// A symbol where it need not be looked for; of a long one the length alone.
#[derive(Clone, Copy)]
struct Slot {
    bytes: [u8; SHORT],
    length: u32,
}

/// References of two bytes.
const SLOTS_MAX: usize = 1 << 14;

/// Where a symbol stands in the message.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) start: u32,
    pub(super) length: u32,
}

impl<'a> Symbols<'a> {
    /// Those that stand at these places in the message.
    pub(super) fn new(message: &'a [u8], places: Vec<Place>) -> Symbols<'a> {
        let mut symbols = Symbols { message, places, slots: Vec::new() };
        let slot = |place: &Place| {
            let (mut bytes, text) = ([0; SHORT], symbols.bytes(*place));
            if let Some(to) = bytes.get_mut(..text.len()) {
                to.copy_from_slice(text);
            }
            Slot { bytes, length: place.length }
        };
        symbols.slots = symbols.places.iter().take(SLOTS_MAX).map(slot).collect();
        symbols
    }

    #[inline]
    pub(super) fn get(&self, reference: u64) -> Option<Place> {
        self.places.get(usize::try_from(reference).ok()?).copied()
    }

    pub(super) fn bytes(&self, Place { start, length }: Place) -> &'a [u8] {
        let start = start as usize;
        self.message.get(start..start.saturating_add(length as usize)).unwrap_or_default()
    }

    pub(super) fn text(&self, reference: u64) -> Result<&'a str, Flaw> {
        let symbol = self.bytes(self.get(reference).ok_or(Flaw::Beyond)?);
        let text = Reader::new(symbol).bytes().unwrap_or_default();
        std::str::from_utf8(text).map_err(|_| Flaw::Utf8)
    }
}

/// Bytes that are put together; memory beyond `used` is there already and means nothing.
pub(super) struct Text<'a> {
    pub(super) bytes: &'a mut Vec<u8>,
    pub(super) used: usize,
}

/// Most symbols are shorter, and are copied as if they were as long: a copy of a length that is known is two moves.
const SHORT: usize = 32;

/// Longer symbols are nothing usual: so many of them would not be labels that anybody stores.
const USUAL_MAX: usize = SERIES_LABEL_BYTES_MAX / REFERENCES_MAX;

/// The labels that were put together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Put {
    pub(super) references: usize,
    /// The symbol of the metric's name.
    pub(super) metric: Option<u64>,
}

impl Text<'_> {
    /// Appends the symbols of packed references as nearly all are: known, in pairs, not many, none long. None, and nothing
    /// is appended, where they are otherwise.
    #[inline]
    pub(super) fn put_usual(
        &mut self,
        symbols: &Symbols<'_>,
        packed: &[u8],
        name_symbol: u64,
    ) -> Option<Put> {
        // Symbols are shorter than their slots on the average, so that this is room for some long ones, too.
        let likely = packed.len().saturating_add(1).saturating_mul(SHORT);
        if packed.len() > REFERENCES_MAX {
            return None;
        }
        if self.bytes.len().saturating_sub(self.used) < likely {
            self.grow(likely);
        }
        let out = self.bytes.get_mut(self.used..)?;
        let room = out.len();
        let (put, left) = put_pairs(symbols, packed, name_symbol, out)?;
        self.used = self.used.saturating_add(room.saturating_sub(left));
        Some(put)
    }

    #[cold]
    fn grow(&mut self, needed: usize) {
        // Twice as much each time, so that zeroing it costs little.
        let more = needed.max(self.bytes.len()).max(1 << 10);
        self.bytes.resize(self.bytes.len().saturating_add(more), 0);
    }

    #[inline]
    pub(super) fn put(&mut self, symbols: &Symbols<'_>, place: Place) {
        let from = symbols.message.get(place.start as usize..).and_then(|rest| rest.first_chunk::<SHORT>());
        let to = self.bytes.get_mut(self.used..).and_then(|rest| rest.first_chunk_mut::<SHORT>());
        match (from, to) {
            (Some(from), Some(to)) if place.length as usize <= SHORT => {
                *to = *from;
                self.used = self.used.saturating_add(place.length as usize);
            }
            _ => self.put_slowly(symbols.bytes(place)),
        }
    }

    #[inline(never)]
    pub(super) fn put_slowly(&mut self, bytes: &[u8]) {
        let end = self.used.saturating_add(bytes.len());
        if let Some(needed) = end.saturating_add(SHORT).checked_sub(self.bytes.len()) {
            self.grow(needed);
        }
        if let Some(to) = self.bytes.get_mut(self.used..end) {
            to.copy_from_slice(bytes);
            self.used = end;
        }
    }
}

/// Writes the symbols of packed references to the start of `out`; how much of it is left then.
#[inline]
fn put_pairs(
    symbols: &Symbols<'_>,
    packed: &[u8],
    name_symbol: u64,
    mut out: &mut [u8],
) -> Option<(Put, usize)> {
    let mut put = Put { references: 0, metric: None };
    let mut rest = packed;
    while !rest.is_empty() {
        let (name, after) = reference(rest)?;
        let (value, after) = reference(after)?;
        for symbol in [name, value] {
            let Slot { bytes, length } = symbols.slots.get(usize::try_from(symbol).ok()?)?;
            let length = *length as usize;
            if length <= SHORT {
                *out.first_chunk_mut()? = *bytes;
                out = out.get_mut(length..)?;
            } else {
                let text = symbols.bytes(symbols.get(symbol)?);
                let (to, after) = out.split_at_mut_checked(text.len()).filter(|_| length <= USUAL_MAX)?;
                to.copy_from_slice(text);
                out = after;
            }
        }
        if name == name_symbol {
            put.metric = Some(value);
        }
        put.references = put.references.saturating_add(2);
        rest = after;
    }
    Some((put, out.len()))
}

/// A reference in one or two bytes, and what is after it.
#[inline]
pub(super) fn reference(bytes: &[u8]) -> Option<(u64, &[u8])> {
    match *bytes {
        [one @ ..0x80, ref after @ ..] => Some((u64::from(one), after)),
        [low, high @ ..0x80, ref after @ ..] => Some((u64::from(low & 0x7f) | u64::from(high) << 7, after)),
        _ => None,
    }
}
