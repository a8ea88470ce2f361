//! Label sets and strings in JSON.

use super::separate;
use crate::model::{LabelRef, Labels};

/// Writes a label set in the order of names: `{"__name__":"up","job":"api"}`.
pub fn labels(labels: &Labels, out: &mut Vec<u8>) {
    out.push(b'{');
    for (index, label) in labels.iter().enumerate() {
        separate(index, out);
        text(label.name, out);
        out.push(b':');
        text(label.value, out);
    }
    out.push(b'}');
}

/// Writes label sets into one body, and copies the labels that a set shares with its predecessor.
/// Neighbouring series of a result have most labels in common.
#[derive(Default)]
pub struct LabelSetWriter<'v> {
    /// The label set that was written last.
    previous: Vec<LabelRef<'v>>,
    /// The positions of its labels in the body, including the comma before each, and the position
    /// after the last one.
    previous_starts: Vec<usize>,
    /// A buffer for the next label set.
    current: Vec<LabelRef<'v>>,
    /// A buffer for its positions.
    current_starts: Vec<usize>,
}

impl<'v> LabelSetWriter<'v> {
    /// Appends a label set to `out`, which must be the same body in all calls.
    pub fn write(&mut self, labels: &'v Labels, out: &mut Vec<u8>) {
        let LabelSetWriter { previous, previous_starts, current, current_starts } = self;
        current.clear();
        current.extend(labels);
        // Texts are interned, so equal texts mostly have the same address. Their bytes are not
        // compared.
        let same_address = |(a, b): &(&LabelRef<'_>, &LabelRef<'_>)| {
            std::ptr::eq(a.name, b.name) && std::ptr::eq(a.value, b.value)
        };
        out.push(b'{');
        current_starts.clear();
        while let Some((label, rest)) =
            current.get(current_starts.len()..).and_then(<[LabelRef<'_>]>::split_first)
        {
            let index = current_starts.len();
            let pairs = std::iter::once(label).chain(rest).zip(previous.get(index..).unwrap_or_default());
            let common = pairs.take_while(same_address).count();
            let start = out.len();
            if let Some(from) = previous_starts.get(index..=index + common).filter(|_| common > 0) {
                let (first, last) = (from[0], from[common]);
                current_starts.extend(from[..common].iter().map(|position| position - first + start));
                out.extend_from_within(first..last);
                continue;
            }
            current_starts.push(start);
            separate(index, out);
            text(label.name, out);
            out.push(b':');
            text(label.value, out);
        }
        current_starts.push(out.len());
        std::mem::swap(previous_starts, current_starts);
        std::mem::swap(previous, current);
        out.push(b'}');
    }
}

/// Writes a JSON array of label sets.
#[cfg(test)]
fn label_sets(all: &[Labels], out: &mut Vec<u8>) {
    let mut writer = LabelSetWriter::default();
    out.push(b'[');
    for (index, labels) in all.iter().enumerate() {
        separate(index, out);
        writer.write(labels, out);
    }
    out.push(b']');
}

/// Writes a JSON string (RFC 8259, section 7). Quotes, backslashes and control characters are
/// escaped.
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

/// Returns the index of the first byte that a JSON string must escape.
fn first_special(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let (words, _) = bytes.as_chunks::<8>();
    // The high bit of each byte shows whether that byte is special. A borrow may set the bit of a
    // byte above a special one; the exact index is searched below.
    let any = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        let zero = |word: u64| word.wrapping_sub(ONES) & !word;
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        (control | zero(word ^ (ONES * 0x22)) | zero(word ^ (ONES * 0x5c))) & HIGH != 0
    };
    let plain = words.iter().take_while(|word| !any(word)).count() * 8;
    let special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    bytes[plain..].iter().position(special).map(|index| plain + index)
}

/// Writes a JSON array of strings.
pub fn texts<'a>(all: impl IntoIterator<Item = &'a str>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, one) in all.into_iter().enumerate() {
        separate(index, out);
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
        fn label_sets_with_common_labels_have_the_same_text_as_single_ones(
            sets in prop::collection::vec(prop::collection::btree_map(0usize..6, 0usize..4, 0..6), 1..6),
        ) {
            let texts = ["a", "b\"", "c", "d\n", "long enough for a word", "f"].map(Arc::<str>::from);
            let set = |pairs: &BTreeMap<usize, usize>| {
                let label = |(name, value): (&usize, &usize)| (Arc::clone(&texts[*name]), Arc::clone(&texts[*value]));
                Labels::from_pairs(pairs.iter().map(label))
            };
            let sets: Vec<Labels> = sets.iter().map(set).collect();
            let mut writer = LabelSetWriter::default();
            let together = written(|out| sets.iter().for_each(|set| writer.write(set, out)));
            let alone: Vec<String> = sets.iter().map(|set| written(|out| labels(set, out))).collect();
            prop_assert_eq!(together, alone.concat());
            prop_assert_eq!(written(|out| label_sets(&sets, out)), format!("[{}]", alone.join(",")));
        }

        #[test]
        fn a_string_parses_to_the_same_text(value: String) {
            let json = written(|out| text(&value, out));
            prop_assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), value);
        }
    }
}
