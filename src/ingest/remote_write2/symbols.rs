//! The symbol table of a request, and the label bytes that are assembled from it.

use super::{REFERENCES_MAX, SERIES_LABEL_BYTES_MAX, SeriesError};
use crate::ingest::protobuf::WireReader;

/// The symbols of a request. A symbol includes its length prefix.
pub(super) struct Symbols<'a> {
    message: &'a [u8],
    pub(super) ranges: Vec<SymbolRange>,
    /// Copies of the symbols that a reference of at most two bytes can name.
    inline: Vec<InlineSymbol>,
}

/// A copy of a symbol that needs no lookup in the message. For a long symbol it holds only the
/// length.
#[derive(Clone, Copy)]
struct InlineSymbol {
    bytes: [u8; INLINE_BYTES],
    length: u32,
}

/// Number of references that take at most two bytes.
const INLINE_MAX: usize = 1 << 14;

/// The position and length of a symbol in the message, in bytes.
#[derive(Clone, Copy)]
pub(super) struct SymbolRange {
    pub(super) start: u32,
    pub(super) length: u32,
}

impl<'a> Symbols<'a> {
    /// Builds the table of the symbols at these ranges of the message.
    pub(super) fn new(message: &'a [u8], ranges: Vec<SymbolRange>) -> Symbols<'a> {
        let mut symbols = Symbols { message, ranges, inline: Vec::new() };
        let inline_symbol = |range: &SymbolRange| {
            let (mut bytes, text) = ([0; INLINE_BYTES], symbols.bytes(*range));
            if let Some(to) = bytes.get_mut(..text.len()) {
                to.copy_from_slice(text);
            }
            InlineSymbol { bytes, length: range.length }
        };
        symbols.inline = symbols.ranges.iter().take(INLINE_MAX).map(inline_symbol).collect();
        symbols
    }

    /// Returns the range of a symbol, if it is in the table.
    #[inline]
    pub(super) fn get(&self, reference: u64) -> Option<SymbolRange> {
        self.ranges.get(usize::try_from(reference).ok()?).copied()
    }

    /// Returns a symbol with its length prefix.
    pub(super) fn bytes(&self, SymbolRange { start, length }: SymbolRange) -> &'a [u8] {
        let start = start as usize;
        self.message.get(start..start.saturating_add(length as usize)).unwrap_or_default()
    }

    /// Returns the text of a symbol, without its length prefix.
    ///
    /// # Errors
    /// `UnknownSymbol` or `InvalidUtf8`.
    pub(super) fn text(&self, reference: u64) -> Result<&'a str, SeriesError> {
        let symbol = self.bytes(self.get(reference).ok_or(SeriesError::UnknownSymbol)?);
        let text = WireReader::new(symbol).bytes().unwrap_or_default();
        std::str::from_utf8(text).map_err(|_| SeriesError::InvalidUtf8)
    }
}

/// A buffer of assembled label bytes. Bytes after `used` are initialised but undefined.
pub(super) struct LabelBuffer<'a> {
    pub(super) bytes: &'a mut Vec<u8>,
    pub(super) used: usize,
}

/// Number of bytes that are copied for every short symbol: a copy of constant length is two moves.
/// Most symbols are shorter.
const INLINE_BYTES: usize = 32;

/// Longest symbol of the usual form. The maximum of references with longer symbols would exceed the
/// bytes of a label set.
const USUAL_SYMBOL_BYTES_MAX: usize = SERIES_LABEL_BYTES_MAX / REFERENCES_MAX;

/// The labels that one packed field appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct AppendedLabels {
    pub(super) references: usize,
    /// The symbol of the metric name.
    pub(super) metric: Option<u64>,
}

impl LabelBuffer<'_> {
    /// Appends the symbols of packed references in the usual form: known symbols, in pairs, not too
    /// many, none long. Otherwise appends nothing and returns `None`.
    #[inline]
    pub(super) fn append_usual(
        &mut self,
        symbols: &Symbols<'_>,
        packed: &[u8],
        name_symbol: u64,
    ) -> Option<AppendedLabels> {
        // Most symbols are shorter than `INLINE_BYTES`, so this leaves space for some longer ones.
        let needed = packed.len().saturating_add(1).saturating_mul(INLINE_BYTES);
        if packed.len() > REFERENCES_MAX {
            return None;
        }
        if self.bytes.len().saturating_sub(self.used) < needed {
            self.grow(needed);
        }
        let out = self.bytes.get_mut(self.used..)?;
        let capacity = out.len();
        let (appended, left) = copy_pairs(symbols, packed, name_symbol, out)?;
        self.used = self.used.saturating_add(capacity.saturating_sub(left));
        Some(appended)
    }

    #[cold]
    fn grow(&mut self, needed: usize) {
        // The buffer doubles each time, so that zeroing it costs little.
        let more = needed.max(self.bytes.len()).max(1 << 10);
        self.bytes.resize(self.bytes.len().saturating_add(more), 0);
    }

    /// Appends a symbol.
    #[inline]
    pub(super) fn append(&mut self, symbols: &Symbols<'_>, range: SymbolRange) {
        let from =
            symbols.message.get(range.start as usize..).and_then(|rest| rest.first_chunk::<INLINE_BYTES>());
        let to = self.bytes.get_mut(self.used..).and_then(|rest| rest.first_chunk_mut::<INLINE_BYTES>());
        match (from, to) {
            (Some(from), Some(to)) if range.length as usize <= INLINE_BYTES => {
                *to = *from;
                self.used = self.used.saturating_add(range.length as usize);
            }
            _ => self.append_bytes(symbols.bytes(range)),
        }
    }

    /// Appends any bytes.
    #[inline(never)]
    pub(super) fn append_bytes(&mut self, bytes: &[u8]) {
        let end = self.used.saturating_add(bytes.len());
        if let Some(needed) = end.saturating_add(INLINE_BYTES).checked_sub(self.bytes.len()) {
            self.grow(needed);
        }
        if let Some(to) = self.bytes.get_mut(self.used..end) {
            to.copy_from_slice(bytes);
            self.used = end;
        }
    }
}

/// Copies the symbols of packed references to the start of `out`. Returns the labels and the number
/// of bytes left in `out`.
#[inline]
fn copy_pairs(
    symbols: &Symbols<'_>,
    packed: &[u8],
    name_symbol: u64,
    mut out: &mut [u8],
) -> Option<(AppendedLabels, usize)> {
    let mut appended = AppendedLabels { references: 0, metric: None };
    let mut rest = packed;
    while !rest.is_empty() {
        let (name, after) = read_reference(rest)?;
        let (value, after) = read_reference(after)?;
        for symbol in [name, value] {
            let InlineSymbol { bytes, length } = symbols.inline.get(usize::try_from(symbol).ok()?)?;
            let length = *length as usize;
            if length <= INLINE_BYTES {
                *out.first_chunk_mut()? = *bytes;
                out = out.get_mut(length..)?;
            } else {
                let text = symbols.bytes(symbols.get(symbol)?);
                let (to, after) =
                    out.split_at_mut_checked(text.len()).filter(|_| length <= USUAL_SYMBOL_BYTES_MAX)?;
                to.copy_from_slice(text);
                out = after;
            }
        }
        if name == name_symbol {
            appended.metric = Some(value);
        }
        appended.references = appended.references.saturating_add(2);
        rest = after;
    }
    Some((appended, out.len()))
}

/// Reads a reference of one or two bytes. Returns it and the bytes after it.
#[inline]
pub(super) fn read_reference(bytes: &[u8]) -> Option<(u64, &[u8])> {
    match *bytes {
        [one @ ..0x80, ref after @ ..] => Some((u64::from(one), after)),
        [low, high @ ..0x80, ref after @ ..] => Some((u64::from(low & 0x7f) | u64::from(high) << 7, after)),
        _ => None,
    }
}
