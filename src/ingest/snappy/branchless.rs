//! A decoder for snappy blocks of the usual size that does not branch on the kind of an element:
//! the step is the same for literals and copies of any length.
//!
//! A body of remote write has about a dozen elements per sample, and their kinds are unpredictable.
//! A decoder that branches on the kind spends most of its time on mispredictions (72 ns per sample;
//! this one takes 40, most of it on the dependency from tag to tag). So a literal is treated as a
//! copy, too: output and block share one buffer, and each element moves 64 bytes from one position
//! to another, of which only its own length counts:
//! ```text
//! 0 output | 128 unused bytes | block | more, of any value
//! ```
//! Positions are taken modulo `POSITIONS`, so no access needs a bounds check of its own. An invalid
//! element can only produce wrong output, which is detected because the last element then ends at
//! the wrong position. Rare elements (long literals, offsets of four bytes, overlapping copies)
//! take other paths. An invalid block is rejected without a reason; the caller then uses a decoder
//! that reports one.

/// Positions of the work buffer at which a step may begin.
const POSITIONS: usize = 4 << 20;
/// Bytes that a step moves.
const STEP: usize = 64;
/// Steps and overlapping copies write at most this many bytes after the output.
const OUTPUT_MARGIN: usize = 2 * STEP;
/// An element that is not a long literal and the tag after it fit into this many bytes.
const LOOKAHEAD: usize = 128;
/// Size of the work buffer in bytes. The system assigns memory only to pages that are used.
const BUFFER_BYTES: usize = POSITIONS + LOOKAHEAD;

type WorkBuffer = [u8; BUFFER_BYTES];

/// The length of each tag's element in the low byte, and the upper part of its offset in the bytes
/// above.
const ELEMENTS: [u32; 256] = elements();
/// An entry whose offset lies outside every buffer, so that `rare` decodes the element.
const RARE: u32 = u32::MAX;
/// The masks, by kind, of the bits of the two bytes after the tag that belong to the offset.
const OFFSETS: [u32; 4] = [0, 0xff, 0xffff, 0];

const LITERAL: usize = 0;
const COPY_1: usize = 1;
const COPY_2: usize = 2;

#[expect(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "done by the compiler")]
const fn elements() -> [u32; 256] {
    let mut all = [RARE; 256];
    let mut tag: u32 = 0;
    while tag < 256 {
        let upper = tag >> 2;
        match (tag & 3) as usize {
            LITERAL if upper < 60 => all[tag as usize] = upper + 1,
            COPY_1 => all[tag as usize] = ((upper & 7) + 4) | upper >> 3 << 16,
            COPY_2 => all[tag as usize] = upper + 1,
            _ => {}
        }
        tag += 1;
    }
    all
}

/// Returns whether a block of `sent` bytes and its `declared` output fit the work buffer.
pub(super) const fn fits(sent: usize, declared: usize) -> bool {
    sent.saturating_add(declared).saturating_add(OUTPUT_MARGIN + STEP) <= POSITIONS
}

/// Decodes `block` to the start of `buffer`. `first` is the position of the first element in the
/// block, `declared` the length of the output in bytes. Returns `None` if the block is invalid or
/// too large.
pub(super) fn decode(block: &[u8], first: usize, declared: usize, buffer: &mut Vec<u8>) -> Option<()> {
    if !fits(block.len(), declared) {
        return None;
    }
    if buffer.len() < BUFFER_BYTES {
        // The system maps zeroed pages only when they are first written.
        *buffer = vec![0; BUFFER_BYTES];
    }
    let begin = declared.checked_add(OUTPUT_MARGIN)?;
    let end = begin.checked_add(block.len())?;
    buffer.get_mut(begin..end)?.copy_from_slice(block);
    let buffer = buffer.first_chunk_mut()?;
    decode_elements(buffer, begin.checked_add(first)?, end, declared)
}

/// Returns `N` bytes from position `at`, taken modulo `POSITIONS`.
#[inline]
fn read<const N: usize>(buffer: &WorkBuffer, at: usize) -> [u8; N] {
    buffer.get(at % POSITIONS..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

/// Copies `STEP` bytes from position `from` to position `to`.
#[inline]
fn step(buffer: &mut WorkBuffer, from: usize, to: usize) {
    let bytes: [u8; STEP] = read(buffer, from);
    if let Some(place) = buffer.get_mut(to % POSITIONS..).and_then(<[u8]>::first_chunk_mut) {
        *place = bytes;
    }
}

/// Decodes the elements from `at` to `end` into `wanted` bytes at the start of the buffer. Returns
/// `None` if they do not produce exactly that.
#[inline(never)]
fn decode_elements(buffer: &mut WorkBuffer, mut at: usize, end: usize, wanted: usize) -> Option<()> {
    let mut written: usize = 0;
    let [mut tag] = read(buffer, at);
    // Each element has at least one byte, so the loop ends.
    while at < end {
        let here: &[u8; LOOKAHEAD] = buffer.get(at % POSITIONS..).and_then(<[u8]>::first_chunk)?;
        let (kind, upper) = (usize::from(tag & 3), usize::from(tag >> 2));
        let is_literal = kind == LITERAL;
        let size = std::hint::select_unpredictable(is_literal, upper.wrapping_add(2), kind.wrapping_add(1));
        // The next tag is on the critical path of the loop. It is read relative to this element,
        // before the position of the next one is known.
        let next_tag = *here.get(size)?;
        let next = at.wrapping_add(size);
        let element = ELEMENTS.get(usize::from(tag)).copied().unwrap_or(RARE);
        let bytes = (element & 0xff) as usize;
        let [_, low, high, ..] = *here;
        let sent = u32::from(u16::from_le_bytes([low, high]));
        let offset = (sent & OFFSETS.get(kind).copied().unwrap_or(0)) as usize;
        let from =
            std::hint::select_unpredictable(is_literal, at.wrapping_add(1), written.wrapping_sub(offset));
        // `from` is now out of range if the copy starts before the output or the element is rare.
        let from = from.wrapping_sub((element >> 8) as usize);
        if from < POSITIONS && written.wrapping_sub(from) >= bytes {
            step(buffer, from, written);
        } else if from < written && (kind == COPY_1 || kind == COPY_2) {
            copy_overlapping(buffer, from, written, bytes);
        } else {
            let (bytes, next) = rare(buffer, at, end, written, wanted)?;
            written = written.wrapping_add(bytes);
            at = next;
            [tag] = read(buffer, at);
            continue;
        }
        written = written.wrapping_add(bytes);
        (at, tag) = (next, next_tag);
    }
    (at == end && written == wanted).then_some(())
}

/// Executes an overlapping copy, which repeats the bytes between `from` and `to`. Each step doubles
/// the distance.
#[inline]
fn copy_overlapping(buffer: &mut WorkBuffer, from: usize, to: usize, bytes: usize) {
    let mut distance = to.wrapping_sub(from);
    let mut done: usize = 0;
    while done < bytes {
        step(buffer, from, to.wrapping_add(done));
        done = done.wrapping_add(distance);
        distance = distance.wrapping_add(distance).min(STEP);
    }
}

/// Decodes the element at `at`, of any kind. Returns its length in the output and the position of
/// the next element, or `None` if it is invalid or exceeds the block or the `wanted` bytes.
#[cold]
#[inline(never)]
fn rare(
    buffer: &mut WorkBuffer,
    at: usize,
    end: usize,
    written: usize,
    wanted: usize,
) -> Option<(usize, usize)> {
    let left = wanted.checked_sub(written)?;
    let [tag, sent @ ..] = read::<5>(buffer, at);
    let upper = usize::from(tag >> 2);
    let sent = u32::from_le_bytes(sent);
    let low = |bytes: u32| (sent & u32::MAX >> (32_u32.wrapping_sub(bytes.wrapping_mul(8)) % 32)) as usize;
    let after = |bytes: usize| at.checked_add(1)?.checked_add(bytes);
    if usize::from(tag & 3) == LITERAL {
        // From 60 on, the length minus one follows in 1 to 4 bytes.
        let (bytes, from) = match upper.checked_sub(59) {
            None | Some(0) => (upper.checked_add(1)?, after(0)?),
            Some(width) => (low(u32::try_from(width).ok()?).checked_add(1)?, after(width)?),
        };
        let next = from.checked_add(bytes).filter(|next| *next <= end && bytes <= left)?;
        buffer.copy_within(from..next, written);
        return Some((bytes, next));
    }
    let (bytes, offset, next) = match usize::from(tag & 3) {
        COPY_1 => ((upper & 7).checked_add(4)?, low(1) | upper >> 3 << 8, after(1)?),
        COPY_2 => (upper.checked_add(1)?, low(2), after(2)?),
        _ => (upper.checked_add(1)?, sent as usize, after(4)?),
    };
    let from = written.checked_sub(offset).filter(|_| offset > 0 && bytes <= left && next <= end)?;
    for (from, to) in (from..written).cycle().zip(written..written.checked_add(bytes)?) {
        let byte = *buffer.get(from)?;
        *buffer.get_mut(to)? = byte;
    }
    Some((bytes, next))
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "the blocks of tests are small")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One element of a block.
    #[derive(Clone, Debug)]
    enum Element {
        Literal(Vec<u8>),
        /// A literal whose length takes more bytes than needed, by this many.
        Long(Vec<u8>, usize),
        /// Length, offset, and width of the offset, all in bytes.
        Copy(usize, usize, usize),
    }

    fn element() -> impl Strategy<Value = Element> {
        let text = |most| prop::collection::vec(any::<u8>(), 1..most);
        let offset = prop_oneof![1usize..20, 1usize..300, 0usize..70_000];
        prop_oneof![
            3 => text(60).prop_map(Element::Literal),
            1 => (text(300), 0usize..3).prop_map(|(text, spare)| Element::Long(text, spare)),
            6 => (1usize..=64, offset, prop_oneof![4 => Just(1usize), 4 => Just(2), 1 => Just(4)])
                .prop_map(|(bytes, offset, width)| Element::Copy(bytes, offset, width)),
        ]
    }

    /// Encodes the elements as a block and skips those that the format cannot express. Offsets are
    /// reduced to the output so far unless `wild`.
    fn block(elements: &[Element], wild: bool) -> Vec<u8> {
        let (mut body, mut written) = (Vec::new(), 0usize);
        let byte = |value: usize| u8::try_from(value & 0xff).expect("a byte");
        for element in elements {
            match element {
                Element::Literal(text) => {
                    body.push(byte((text.len() - 1) << 2));
                    body.extend_from_slice(text);
                    written += text.len();
                }
                Element::Long(text, spare) => {
                    let width = if text.len() > 256 { 2 } else { 1 } + spare;
                    body.push(byte((59 + width) << 2));
                    body.extend_from_slice(&(text.len() - 1).to_le_bytes()[..width]);
                    body.extend_from_slice(text);
                    written += text.len();
                }
                Element::Copy(bytes, offset, width) => {
                    let offset = if wild { *offset } else { offset % written.max(1) + 1 };
                    if written == 0 && !wild {
                        continue;
                    }
                    let (bytes, sent) = match width {
                        1 => ((bytes % 8) + 4, vec![byte(1 | (bytes % 8) << 2 | (offset % 2_048) >> 8 << 5)]),
                        _ => (*bytes, vec![byte((width / 2 + 1) | (bytes - 1) << 2)]),
                    };
                    if *width == 1 && offset >= 2_048 && !wild || offset >= 65_536 && *width < 4 {
                        continue;
                    }
                    body.extend(sent);
                    body.extend_from_slice(&offset.to_le_bytes()[..*width]);
                    written += bytes;
                }
            }
        }
        let mut block = Vec::new();
        let mut left = written;
        while left >= 0x80 {
            block.push(byte(left & 0x7f | 0x80));
            left >>= 7;
        }
        block.push(byte(left));
        block.extend(body);
        block
    }

    fn branchless(block: &[u8]) -> Option<Vec<u8>> {
        let declared = snap::raw::decompress_len(block).ok()?;
        let first = block.iter().position(|byte| *byte < 0x80)? + 1;
        let mut buffer = Vec::new();
        decode(block, first, declared, &mut buffer)?;
        Some(buffer[..declared].to_vec())
    }

    fn snap_crate(block: &[u8]) -> Option<Vec<u8>> {
        snap::raw::Decoder::new().decompress_vec(block).ok()
    }

    #[test]
    fn an_overlapping_copy_repeats_the_bytes_before_it() {
        for offset in 1..70 {
            let text: Vec<u8> = (0..offset).collect();
            let elements: Vec<Element> = text.iter().map(|byte| Element::Literal(vec![*byte])).collect();
            for bytes in 1..=64 {
                let copy = Element::Copy(bytes, usize::from(offset) - 1, 2);
                let block = block(&[elements.clone(), vec![copy]].concat(), false);
                let expected: Vec<u8> =
                    text.iter().copied().chain(text.iter().cycle().take(bytes).copied()).collect();
                assert_eq!(branchless(&block), Some(expected), "{bytes} bytes from {offset} before");
            }
        }
    }

    #[test]
    fn a_block_that_just_fits_is_decoded_and_a_larger_one_is_declined() {
        let text: Vec<u8> =
            (0..POSITIONS).map(|place| u8::try_from(place * place % 251).expect("small")).collect();
        let compressed =
            |bytes: usize| snap::raw::Encoder::new().compress_vec(&text[..bytes]).expect("compresses");
        let most = (1..POSITIONS).rev().step_by(1_000).find(|bytes| {
            let sent = compressed(*bytes).len();
            fits(sent, *bytes)
        });
        let most = most.expect("some length");
        assert!(branchless(&compressed(most)).is_some_and(|written| written == text[..most]));
        assert_eq!(branchless(&compressed(POSITIONS)), None);
    }

    proptest! {
        #[test]
        fn every_block_decodes_as_in_the_snap_crate(
            elements in prop::collection::vec(element(), 0..60),
            wild in prop::bool::weighted(0.3),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        ) {
            let mut block = block(&elements, wild);
            if !wild && changes.is_empty() && cut.is_none() {
                prop_assert!(branchless(&block).is_some());
            }
            for (place, to) in changes {
                let place = place.index(block.len());
                block[place] = to;
            }
            if let Some(cut) = cut {
                block.truncate(cut.index(block.len()));
            }
            // `decompress` checks the declared length before it calls either decoder.
            if snap::raw::decompress_len(&block).is_ok_and(|declared| declared < 1 << 20) {
                prop_assert_eq!(branchless(&block), snap_crate(&block));
            }
        }
    }
}
