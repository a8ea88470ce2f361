//! Snappy blocks of the usual size, undone without guessing: a step for each element that takes the same way whether that is
//! a literal or a copy, however long.
//!
//! A body of remote write has a dozen elements for each sample, and which comes next cannot be foretold: a decoder that
//! branches by their kinds spends most of its time on wrong guesses of the processor (72 ns a sample; this one 40, most of it
//! on the way from tag to tag). So literals are copies, too: what was sent and what is made of it stand in one room, and
//! each element moves 64 bytes from one place in it to another, of which those that count are kept:
//! ```text
//! 0 output | 128 bytes that nothing is read of | block | more, of any value
//! ```
//! Places are taken modulo the room, so that no bound needs to be asked for; nothing wrong can come of that but wrong
//! output, which is noticed by where the last element ends. What is rare (long literals, offsets of four bytes, copies
//! that reach into themselves) goes other ways. What is no block is refused without a word, and left to whoever has one.

/// Bytes of a room that may begin a step.
const PLACES: usize = 4 << 20;
/// Bytes that a step moves.
const STEP: usize = 64;
/// Steps and copies into themselves write so much behind the output at most.
const BEHIND: usize = 2 * STEP;
/// An element of any length but a long one, and the tag after it, lie in so many bytes.
const AHEAD: usize = 128;
/// Bytes of a room. Memory is taken only as far as it is used.
const ROOM_BYTES: usize = PLACES + AHEAD;

type Room = [u8; ROOM_BYTES];

/// By tag: how many bytes the element makes, and in the bytes above that the upper part of its offset.
const ELEMENTS: [u32; 256] = elements();
/// An offset that no room has: the element goes the other way.
const RARE: u32 = u32::MAX;
/// By kind: which of the two bytes after the tag belong to the offset.
const OFFSETS: [u32; 4] = [0, 0xff, 0xffff, 0];

const LITERAL: usize = 0;
const COPY_OF_ONE: usize = 1;
const COPY_OF_TWO: usize = 2;

#[expect(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "done by the compiler")]
const fn elements() -> [u32; 256] {
    let mut all = [RARE; 256];
    let mut tag: u32 = 0;
    while tag < 256 {
        let above = tag >> 2;
        match (tag & 3) as usize {
            LITERAL if above < 60 => all[tag as usize] = above + 1,
            COPY_OF_ONE => all[tag as usize] = ((above & 7) + 4) | above >> 3 << 16,
            COPY_OF_TWO => all[tag as usize] = above + 1,
            _ => {}
        }
        tag += 1;
    }
    all
}

/// Whether there is room for a block of so many bytes and what it declares.
pub(super) const fn holds(sent: usize, declared: usize) -> bool {
    sent.saturating_add(declared).saturating_add(BEHIND + STEP) <= PLACES
}

/// Undoes `block`, whose elements begin at `first` and make so many bytes, at the beginning of `buffer`. None: it is no
/// block, or too large.
pub(super) fn undo(block: &[u8], first: usize, declared: usize, buffer: &mut Vec<u8>) -> Option<()> {
    if !holds(block.len(), declared) {
        return None;
    }
    if buffer.len() < ROOM_BYTES {
        // Zeros that nobody has touched are no memory yet.
        *buffer = vec![0; ROOM_BYTES];
    }
    let begin = declared.checked_add(BEHIND)?;
    let end = begin.checked_add(block.len())?;
    buffer.get_mut(begin..end)?.copy_from_slice(block);
    let room = buffer.first_chunk_mut()?;
    run(room, begin.checked_add(first)?, end, declared)
}

/// The bytes from a place on.
#[inline]
fn get<const N: usize>(room: &Room, at: usize) -> [u8; N] {
    room.get(at % PLACES..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

#[inline]
fn step(room: &mut Room, from: usize, to: usize) {
    let bytes: [u8; STEP] = get(room, from);
    if let Some(place) = room.get_mut(to % PLACES..).and_then(<[u8]>::first_chunk_mut) {
        *place = bytes;
    }
}

/// Makes `wanted` bytes at the start of the room of the elements from `at` to `end`.
#[inline(never)]
fn run(room: &mut Room, mut at: usize, end: usize, wanted: usize) -> Option<()> {
    let mut made: usize = 0;
    let [mut tag] = get(room, at);
    // Each element is a byte at least, so this ends.
    while at < end {
        let here: &[u8; AHEAD] = room.get(at % PLACES..).and_then(<[u8]>::first_chunk)?;
        let (kind, above) = (usize::from(tag & 3), usize::from(tag >> 2));
        let is_literal = kind == LITERAL;
        let behind = std::hint::select_unpredictable(is_literal, above.wrapping_add(2), kind.wrapping_add(1));
        // The whole loop waits for this: it is read from here, before it is known where the next one lies in the room.
        let next_tag = *here.get(behind)?;
        let next = at.wrapping_add(behind);
        let element = ELEMENTS.get(usize::from(tag)).copied().unwrap_or(RARE);
        let bytes = (element & 0xff) as usize;
        let [_, low, high, ..] = *here;
        let sent = u32::from(u16::from_le_bytes([low, high]));
        let offset = (sent & OFFSETS.get(kind).copied().unwrap_or(0)) as usize;
        let from = std::hint::select_unpredictable(is_literal, at.wrapping_add(1), made.wrapping_sub(offset));
        // What would reach back to before the output, or is rare, is far outside now.
        let from = from.wrapping_sub((element >> 8) as usize);
        if from < PLACES && made.wrapping_sub(from) >= bytes {
            step(room, from, made);
        } else if from < made && (kind == COPY_OF_ONE || kind == COPY_OF_TWO) {
            repeat(room, from, made, bytes);
        } else {
            let (bytes, next) = rare(room, (at, end), made, wanted)?;
            made = made.wrapping_add(bytes);
            at = next;
            [tag] = get(room, at);
            continue;
        }
        made = made.wrapping_add(bytes);
        (at, tag) = (next, next_tag);
    }
    (at == end && made == wanted).then_some(())
}

/// A copy that reaches into itself: what lies between both places, again and again. Each step doubles what is there.
#[inline]
fn repeat(room: &mut Room, from: usize, to: usize, bytes: usize) {
    let mut there = to.wrapping_sub(from);
    let mut done: usize = 0;
    while done < bytes {
        step(room, from, to.wrapping_add(done));
        done = done.wrapping_add(there);
        there = there.wrapping_add(there).min(STEP);
    }
}

/// The element at a place: how many bytes it makes, which are made, and where the next one begins.
#[cold]
#[inline(never)]
fn rare(room: &mut Room, (at, end): (usize, usize), made: usize, wanted: usize) -> Option<(usize, usize)> {
    let left = wanted.checked_sub(made)?;
    let [tag, sent @ ..] = get::<5>(room, at);
    let above = usize::from(tag >> 2);
    let sent = u32::from_le_bytes(sent);
    let low = |bytes: u32| (sent & u32::MAX >> (32_u32.wrapping_sub(bytes.wrapping_mul(8)) % 32)) as usize;
    let after = |bytes: usize| at.checked_add(1)?.checked_add(bytes);
    if usize::from(tag & 3) == LITERAL {
        // 60 and more: the length less one in one byte to four.
        let (bytes, from) = match above.checked_sub(59) {
            None | Some(0) => (above.checked_add(1)?, after(0)?),
            Some(width) => (low(u32::try_from(width).ok()?).checked_add(1)?, after(width)?),
        };
        let next = from.checked_add(bytes).filter(|next| *next <= end && bytes <= left)?;
        room.copy_within(from..next, made);
        return Some((bytes, next));
    }
    let (bytes, offset, next) = match usize::from(tag & 3) {
        COPY_OF_ONE => ((above & 7).checked_add(4)?, low(1) | above >> 3 << 8, after(1)?),
        COPY_OF_TWO => (above.checked_add(1)?, low(2), after(2)?),
        _ => (above.checked_add(1)?, sent as usize, after(4)?),
    };
    let from = made.checked_sub(offset).filter(|_| offset > 0 && bytes <= left && next <= end)?;
    for (from, to) in (from..made).cycle().zip(made..made.checked_add(bytes)?) {
        let byte = *room.get(from)?;
        *room.get_mut(to)? = byte;
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
        /// With a length in more bytes than it needs.
        Long(Vec<u8>, usize),
        /// Bytes, offset, and how many bytes the offset takes.
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

    /// A block of these elements, as far as they can be written; copies reach back within what there is, but where `wild`.
    fn block(elements: &[Element], wild: bool) -> Vec<u8> {
        let (mut body, mut made) = (Vec::new(), 0usize);
        let byte = |value: usize| u8::try_from(value & 0xff).expect("a byte");
        for element in elements {
            match element {
                Element::Literal(text) => {
                    body.push(byte((text.len() - 1) << 2));
                    body.extend_from_slice(text);
                    made += text.len();
                }
                Element::Long(text, spare) => {
                    let width = if text.len() > 256 { 2 } else { 1 } + spare;
                    body.push(byte((59 + width) << 2));
                    body.extend_from_slice(&(text.len() - 1).to_le_bytes()[..width]);
                    body.extend_from_slice(text);
                    made += text.len();
                }
                Element::Copy(bytes, offset, width) => {
                    let offset = if wild { *offset } else { offset % made.max(1) + 1 };
                    if made == 0 && !wild {
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
                    made += bytes;
                }
            }
        }
        let mut block = Vec::new();
        let mut left = made;
        while left >= 0x80 {
            block.push(byte(left & 0x7f | 0x80));
            left >>= 7;
        }
        block.push(byte(left));
        block.extend(body);
        block
    }

    fn ours(block: &[u8]) -> Option<Vec<u8>> {
        let declared = snap::raw::decompress_len(block).ok()?;
        let first = block.iter().position(|byte| *byte < 0x80)? + 1;
        let mut buffer = Vec::new();
        undo(block, first, declared, &mut buffer)?;
        Some(buffer[..declared].to_vec())
    }

    fn package(block: &[u8]) -> Option<Vec<u8>> {
        snap::raw::Decoder::new().decompress_vec(block).ok()
    }

    #[test]
    fn a_copy_that_reaches_into_itself_repeats_what_is_before_it() {
        for offset in 1..70 {
            let text: Vec<u8> = (0..offset).collect();
            let elements: Vec<Element> = text.iter().map(|byte| Element::Literal(vec![*byte])).collect();
            for bytes in 1..=64 {
                let copy = Element::Copy(bytes, usize::from(offset) - 1, 2);
                let block = block(&[elements.clone(), vec![copy]].concat(), false);
                let expected: Vec<u8> =
                    text.iter().copied().chain(text.iter().cycle().take(bytes).copied()).collect();
                assert_eq!(ours(&block), Some(expected), "{bytes} bytes from {offset} before");
            }
        }
    }

    #[test]
    fn a_full_room_is_undone_and_a_fuller_one_is_left_alone() {
        let text: Vec<u8> =
            (0..PLACES).map(|place| u8::try_from(place * place % 251).expect("small")).collect();
        let compressed =
            |bytes: usize| snap::raw::Encoder::new().compress_vec(&text[..bytes]).expect("compresses");
        let most = (1..PLACES).rev().step_by(1_000).find(|bytes| {
            let sent = compressed(*bytes).len();
            holds(sent, *bytes)
        });
        let most = most.expect("some length");
        assert!(ours(&compressed(most)).is_some_and(|made| made == text[..most]));
        assert_eq!(ours(&compressed(PLACES)), None);
    }

    proptest! {
        #[test]
        fn every_block_becomes_what_the_package_makes_of_it(
            elements in prop::collection::vec(element(), 0..60),
            wild in prop::bool::weighted(0.3),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        ) {
            let mut block = block(&elements, wild);
            if !wild && changes.is_empty() && cut.is_none() {
                prop_assert!(ours(&block).is_some());
            }
            for (place, to) in changes {
                let place = place.index(block.len());
                block[place] = to;
            }
            if let Some(cut) = cut {
                block.truncate(cut.index(block.len()));
            }
            // What it declares is believed as far as the bytes could fill it: checked before either is asked.
            if snap::raw::decompress_len(&block).is_ok_and(|declared| declared < 1 << 20) {
                prop_assert_eq!(ours(&block), package(&block));
            }
        }
    }
}
