//! Label sets and texts in JSON.

use super::separate;
use crate::model::{LabelRef, Labels};

/// `{"__name__":"up","job":"api"}`, in the order of names.
pub fn labels(labels: &Labels, out: &mut Vec<u8>) {
    out.push(b'{');
    for (place, label) in labels.iter().enumerate() {
        separate(place, out);
        text(label.name, out);
        out.push(b':');
        text(label.value, out);
    }
    out.push(b'}');
}

/// The label set that was written last into a body, and where: neighbours have most labels in common, and what is common is
/// copied from there.
#[derive(Default)]
pub struct Before<'v> {
    labels: Vec<LabelRef<'v>>,
    now: Vec<LabelRef<'v>>,
    /// Where each of its labels begins, a comma before it included, and where the last one ends.
    places: Vec<usize>,
    next: Vec<usize>,
}

impl<'v> Before<'v> {
    /// Writes the next one.
    pub fn labels(&mut self, labels: &'v Labels, out: &mut Vec<u8>) {
        let Before { labels: others, now: all, places, next } = self;
        all.clear();
        all.extend(labels);
        // Texts are interned: those that are equal mostly lie in one place, and need not be read.
        let alike = |(a, b): &(&LabelRef<'_>, &LabelRef<'_>)| {
            std::ptr::eq(a.name, b.name) && std::ptr::eq(a.value, b.value)
        };
        out.push(b'{');
        next.clear();
        while let Some((label, rest)) = all.get(next.len()..).and_then(<[LabelRef<'_>]>::split_first) {
            let place = next.len();
            let pairs = std::iter::once(label).chain(rest).zip(others.get(place..).unwrap_or_default());
            let common = pairs.take_while(alike).count();
            let begins = out.len();
            if let Some(from) = places.get(place..=place + common).filter(|_| common > 0) {
                let (first, last) = (from[0], from[common]);
                next.extend(from[..common].iter().map(|place| place - first + begins));
                out.extend_from_within(first..last);
                continue;
            }
            next.push(begins);
            separate(place, out);
            text(label.name, out);
            out.push(b':');
            text(label.value, out);
        }
        next.push(out.len());
        std::mem::swap(places, next);
        std::mem::swap(others, all);
        out.push(b'}');
    }
}

/// A JSON array of label sets.
#[cfg(test)]
fn label_sets(all: &[Labels], out: &mut Vec<u8>) {
    let mut before = Before::default();
    out.push(b'[');
    for (place, labels) in all.iter().enumerate() {
        separate(place, out);
        before.labels(labels, out);
    }
    out.push(b']');
}

/// A JSON string (RFC 8259, section 7): quotes, backslashes and control characters escaped, all else as it is.
pub fn text(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(plain) = first_special(rest) {
        let (before, after) = rest.split_at(plain);
        out.extend_from_slice(before);
        let Some((&byte, after)) = after.split_first() else { break };
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            control => {
                out.extend_from_slice(b"\\u00");
                out.extend([control >> 4, control & 15].map(|digit| HEX[usize::from(digit)]));
            }
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Where the first byte is that cannot stand in a JSON string as it is.
fn first_special(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let (words, _) = bytes.as_chunks::<8>();
    // In each byte of the word the high bit tells whether there is one; a borrow may tell so of a byte above another that
    // is one, which is looked for below.
    let any = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        let zero = |word: u64| word.wrapping_sub(ONES) & !word;
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        (control | zero(word ^ (ONES * 0x22)) | zero(word ^ (ONES * 0x5c))) & HIGH != 0
    };
    let plain = words.iter().take_while(|word| !any(word)).count() * 8;
    let special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    bytes[plain..].iter().position(special).map(|place| plain + place)
}

/// A JSON array of strings.
pub fn texts<'a>(all: impl IntoIterator<Item = &'a str>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (place, one) in all.into_iter().enumerate() {
        separate(place, out);
        text(one, out);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::tests::written;
    use super::*;

    proptest! {
        #[test]
        fn what_label_sets_have_in_common_is_written_alike(
            sets in prop::collection::vec(prop::collection::btree_map(0usize..6, 0usize..4, 0..6), 1..6),
        ) {
            let texts = ["a", "b\"", "c", "d\n", "long enough for a word", "f"].map(Arc::<str>::from);
            let set = |pairs: &BTreeMap<usize, usize>| {
                let label = |(name, value): (&usize, &usize)| (Arc::clone(&texts[*name]), Arc::clone(&texts[*value]));
                Labels::from_pairs(pairs.iter().map(label))
            };
            let sets: Vec<Labels> = sets.iter().map(set).collect();
            let mut before = Before::default();
            let together = written(|out| sets.iter().for_each(|set| before.labels(set, out)));
            let alone: Vec<String> = sets.iter().map(|set| written(|out| labels(set, out))).collect();
            prop_assert_eq!(together, alone.concat());
            prop_assert_eq!(written(|out| label_sets(&sets, out)), format!("[{}]", alone.join(",")));
        }

        #[test]
        fn a_text_reads_back(value: String) {
            let json = written(|out| text(&value, out));
            prop_assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), value);
        }
    }
}
