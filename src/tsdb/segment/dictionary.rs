//! Sorted texts, front-coded in groups of 16. A text is found by number, or by binary search,
//! without decoding all others.
//!
//! ```text
//! 0 u32 texts n    4 u32 x (n / 16, rounded up): offset of each group from the end of this table
//! groups: varint bytes, the first text whole; then up to 15 x {
//!           varint bytes shared with the text before, varint bytes, the rest }
//! ```

use std::cmp::Ordering;
use std::ops::Range;

use crate::tsdb::codec::{Reader, put_varint};
use crate::tsdb::error::Damage;

const GROUP: usize = 16;

/// Appends a dictionary of strictly ascending texts.
///
/// # Errors
/// The number of texts or bytes, if it exceeds 32 bits.
pub(super) fn put(out: &mut Vec<u8>, texts: &[&str]) -> Result<(), u64> {
    let fits = |n: usize| u32::try_from(n).map_err(|_| n as u64);
    out.extend_from_slice(&fits(texts.len())?.to_le_bytes());
    let mut groups = Vec::new();
    for group in texts.chunks(GROUP) {
        out.extend_from_slice(&fits(groups.len())?.to_le_bytes());
        let mut before: &[u8] = &[];
        for (index, text) in group.iter().enumerate() {
            let text = text.as_bytes();
            let shared = if index == 0 {
                0
            } else {
                let shared = before.iter().zip(text).take_while(|(a, b)| a == b).count();
                put_varint(&mut groups, shared as u64);
                shared
            };
            let rest = text.get(shared..).unwrap_or_default();
            put_varint(&mut groups, rest.len() as u64);
            groups.extend_from_slice(rest);
            before = text;
        }
    }
    out.extend_from_slice(&groups);
    Ok(())
}

/// A dictionary in a file. Texts are decoded on access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dictionary<'a> {
    len: usize,
    index: &'a [u8],
    groups: &'a [u8],
}

impl<'a> Dictionary<'a> {
    /// Locates the parts of a dictionary.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Dictionary<'a>, Damage> {
        let mut reader = Reader::new(bytes);
        let len = usize::try_from(reader.u32()?).map_err(|_| reader.damage("too many texts"))?;
        let index = reader.take(len.div_ceil(GROUP).saturating_mul(4))?;
        let groups = reader.take(reader.left())?;
        Ok(Dictionary { len, index, groups })
    }

    /// Returns the text of a number.
    pub(super) fn text(&self, number: usize) -> Result<String, Damage> {
        if number >= self.len {
            return Err(Damage::new(0, "no such text in the dictionary"));
        }
        let mut reader = self.group(number / GROUP)?;
        let mut text = Vec::new();
        for index in 0..=number % GROUP {
            next(&mut reader, index, &mut text)?;
        }
        String::from_utf8(text).map_err(|_| reader.damage("text is not UTF-8"))
    }

    /// Returns the number of a text, if the dictionary has it.
    pub(super) fn find(&self, text: &str) -> Result<Option<usize>, Damage> {
        let wanted = text.as_bytes();
        // Finds the last group whose first text is not greater than the requested one.
        let Range { mut start, mut end } = 0..self.len.div_ceil(GROUP);
        while start < end {
            let middle = usize::midpoint(start, end);
            let mut reader = self.group(middle)?;
            let bytes = reader.count(1)?;
            if reader.take(bytes)? <= wanted { start = middle + 1 } else { end = middle }
        }
        let Some(group) = start.checked_sub(1) else { return Ok(None) };
        let mut reader = self.group(group)?;
        let mut found = Vec::new();
        for index in 0..GROUP.min(self.len - group * GROUP) {
            next(&mut reader, index, &mut found)?;
            match found.as_slice().cmp(wanted) {
                Ordering::Less => {}
                Ordering::Equal => return Ok(Some(group * GROUP + index)),
                Ordering::Greater => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Returns a reader at the start of a group.
    fn group(&self, group: usize) -> Result<Reader<'a>, Damage> {
        let damage = || Damage::new(group * 4, "missing dictionary group");
        let at = self.index.get(group * 4..).and_then(<[u8]>::first_chunk).ok_or_else(damage)?;
        let at = usize::try_from(u32::from_le_bytes(*at)).map_err(|_| damage())?;
        self.groups.get(at..).map(Reader::new).ok_or_else(damage)
    }
}

/// Decodes the next text of a group into `text`, which has the text before it. `index` is its
/// position in the group.
fn next(reader: &mut Reader<'_>, index: usize, text: &mut Vec<u8>) -> Result<(), Damage> {
    let shared = if index == 0 { 0 } else { usize::try_from(reader.varint()?).unwrap_or(usize::MAX) };
    if shared > text.len() {
        return Err(reader.damage("shared prefix longer than the text before"));
    }
    let bytes = reader.count(1)?;
    text.truncate(shared);
    text.extend_from_slice(reader.take(bytes)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn check(texts: &BTreeSet<String>) {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut bytes = Vec::new();
        put(&mut bytes, &texts).expect("small");
        let found = Dictionary::new(&bytes).expect("whole");
        assert_eq!(found.len, texts.len());
        for (number, text) in texts.iter().enumerate() {
            assert_eq!(found.text(number).as_deref(), Ok(*text));
            assert_eq!(found.find(text), Ok(Some(number)));
            let other = format!("{text}!");
            assert_eq!(found.find(&other), Ok(texts.binary_search(&other.as_str()).ok()));
        }
        assert!(found.text(texts.len()).is_err());
    }

    proptest! {
        #[test]
        fn texts_are_found_by_number_and_by_text(texts in prop::collection::btree_set("[a-cä]{0,6}", 0..60)) {
            check(&texts);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), number: usize, text: String) {
            if let Ok(found) = Dictionary::new(&bytes) {
                let _ = (found.text(number % 64), found.find(&text));
            }
        }
    }
}
