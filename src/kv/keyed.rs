//! Unforgeable records: the keyed hash that verifies records of log and journal files of version 2.
//!
//! A CRC32C has no key: a sender that puts the bytes of a whole record into a label value or an
//! account name has created one that verifies. So each file has its own random secret, and a
//! record's header carries a hash keyed with it. The secret never leaves the folder. It does not
//! depend on the master key, so a backup has it with the file.
//!
//! The header of such a file has 4,128 bytes. The file's own 64 byte header is followed by the
//! secret, stored twice, in different pages, so that one damaged page does not cost the file:
//! ```text
//!    0   64 header of the file, version 2
//!   64   32 secret block
//!   96 4000 zero
//! 4096   32 secret block
//! ```
//! Secret block:
//! ```text
//!  0 16 secret           16 u64 file number      24 4 "KEY2"               28 u32 CRC32C of 0..28
//! ```
//! Record: 32 byte header, body, zeros to a multiple of 8:
//! ```text
//!  0 u32 body bytes L (0 = end of data)           4 u32 CRC32C of the body
//!  8 16 sequence number, type and more: defined by log and journal
//! 24 u64 SipHash-2-4 of bytes 0..24 with the secret
//! 32 body
//! ```
//! The hash covers the length and the checksum of the body. If it verifies, the end of the record
//! is certain, even if the body is damaged. A record planted by a sender verifies with a
//! probability of 2^-64.

use super::zeros::are_zeros;
use crate::entropy::Entropy;

/// Length of a file's header, secrets included.
pub(crate) const KEYED_FILE_HEADER_BYTES: usize = SECOND_BLOCK + BLOCK_BYTES;
/// Length of a record's header.
pub(crate) const KEYED_HEADER_BYTES: usize = 32;
const FIRST_BLOCK: usize = 64;
const SECOND_BLOCK: usize = 4_096;
const BLOCK_BYTES: usize = 32;
const BLOCK_WORD: [u8; 4] = *b"KEY2";

/// The secret of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordKey([u64; 2]);

impl std::fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RecordKey(***)")
    }
}

impl RecordKey {
    /// Draws a random secret.
    pub(crate) fn random(rng: &mut Entropy) -> RecordKey {
        RecordKey::from_bytes(rng.bytes())
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> RecordKey {
        let [a @ .., _, _, _, _, _, _, _, _] = bytes;
        let [_, _, _, _, _, _, _, _, b @ ..] = bytes;
        RecordKey([u64::from_le_bytes(a), u64::from_le_bytes(b)])
    }

    fn to_bytes(self) -> [u8; 16] {
        u128::to_le_bytes(u128::from(self.0[0]) | u128::from(self.0[1]) << 64)
    }

    /// Computes SipHash-2-4 of three words: 24 bytes, little-endian.
    const fn hash(self, message: [u64; 3]) -> u64 {
        let [k0, k1] = self.0;
        let mut v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        let [a, b, c] = message;
        // The last word has the length of the message in its upper byte, and no bytes of the
        // message.
        v = absorb(v, a);
        v = absorb(v, b);
        v = absorb(v, c);
        v = absorb(v, 24 << 56);
        v[2] ^= 0xff;
        v = round(round(round(round(v))));
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }

    /// Derives the secret of a file from its number and `count`, the number of files that the
    /// holder of this key has created.
    pub(crate) const fn derive(self, file_number: u64, count: u64) -> RecordKey {
        RecordKey([self.hash([file_number, count, 0]), self.hash([file_number, count, 1])])
    }

    /// Writes both secret blocks into the header of a file.
    pub(crate) fn put(self, header: &mut [u8; KEYED_FILE_HEADER_BYTES], file_number: u64) {
        let mut block = [0; BLOCK_BYTES];
        block[..16].copy_from_slice(&self.to_bytes());
        block[16..24].copy_from_slice(&file_number.to_le_bytes());
        block[24..28].copy_from_slice(&BLOCK_WORD);
        let crc = crc32c::crc32c(&block[..28]);
        block[28..].copy_from_slice(&crc.to_le_bytes());
        header[FIRST_BLOCK..FIRST_BLOCK + BLOCK_BYTES].copy_from_slice(&block);
        header[SECOND_BLOCK..].copy_from_slice(&block);
    }

    /// Returns the secret of a file whose own header names version 2. `start` are its first bytes.
    pub(crate) fn find(start: &[u8], file_number: u64) -> Option<RecordKey> {
        block_at(start, FIRST_BLOCK, file_number).or_else(|| block_at(start, SECOND_BLOCK, file_number))
    }

    /// Returns whether a file has exactly one copy of its secret, or two that differ. `start` are
    /// its first bytes.
    pub(crate) fn has_one_copy(start: &[u8], file_number: u64) -> bool {
        let copies = [FIRST_BLOCK, SECOND_BLOCK].map(|offset| block_at(start, offset, file_number));
        copies[0] != copies[1] && RecordKey::find_without_header(start, file_number).is_some()
    }

    /// Returns the secret of a file whose own header is damaged, if it has one. A file of version 1
    /// has records in place of the blocks, so the second block alone counts only if no record can
    /// be there.
    pub(crate) fn find_without_header(start: &[u8], file_number: u64) -> Option<RecordKey> {
        let between = start.get(FIRST_BLOCK + BLOCK_BYTES..SECOND_BLOCK)?;
        let second = || block_at(start, SECOND_BLOCK, file_number).filter(|_| are_zeros(between));
        block_at(start, FIRST_BLOCK, file_number).or_else(second)
    }

    /// Returns the header of a record. `fields` are its bytes 8 to 24.
    pub(crate) fn header(self, fields: [u8; 16], body: &[u8]) -> [u8; KEYED_HEADER_BYTES] {
        let mut header = [0; KEYED_HEADER_BYTES];
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4..8].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
        header[8..24].copy_from_slice(&fields);
        let hash = self.hash_of(&header);
        header[24..].copy_from_slice(&hash.to_le_bytes());
        header
    }

    fn hash_of(self, header: &[u8; KEYED_HEADER_BYTES]) -> u64 {
        let [message @ .., _, _, _, _, _, _, _, _] = header;
        let mut words = [0; 3];
        for (word, bytes) in words.iter_mut().zip(message.chunks_exact(8)) {
            *word = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        }
        self.hash(words)
    }

    /// Parses the header of a record; `None` if it does not verify with this secret.
    pub(crate) fn verify(self, header: &[u8; KEYED_HEADER_BYTES]) -> Option<KeyedHeader> {
        let [l0, l1, l2, l3, c0, c1, c2, c3, rest @ ..] = *header;
        let [fields @ .., h0, h1, h2, h3, h4, h5, h6, h7] = rest;
        (self.hash_of(header) == u64::from_le_bytes([h0, h1, h2, h3, h4, h5, h6, h7])).then_some(
            KeyedHeader {
                body_bytes: u32::from_le_bytes([l0, l1, l2, l3]),
                body_crc: u32::from_le_bytes([c0, c1, c2, c3]),
                fields,
            },
        )
    }
}

/// A verified header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyedHeader {
    pub(crate) body_bytes: u32,
    body_crc: u32,
    /// Bytes 8 to 24 of the header.
    pub(crate) fields: [u8; 16],
}

impl KeyedHeader {
    /// Returns whether `body` matches the checksum of the record's body.
    pub(crate) fn has_body(&self, body: &[u8]) -> bool {
        crc32c::crc32c(body) == self.body_crc
    }
}

fn block_at(start: &[u8], offset: usize, file_number: u64) -> Option<RecordKey> {
    let block = start.get(offset..)?.first_chunk::<BLOCK_BYTES>()?;
    let (covered, crc) = block.split_last_chunk::<4>()?;
    let (secret, rest) = covered.split_first_chunk::<16>()?;
    let (number, word) = rest.split_first_chunk::<8>()?;
    let is_block = crc32c::crc32c(covered) == u32::from_le_bytes(*crc) && word == BLOCK_WORD;
    (is_block && u64::from_le_bytes(*number) == file_number).then(|| RecordKey::from_bytes(*secret))
}

const fn absorb(mut v: [u64; 4], word: u64) -> [u64; 4] {
    v[3] ^= word;
    v = round(round(v));
    v[0] ^= word;
    v
}

const fn round(v: [u64; 4]) -> [u64; 4] {
    let [mut a, mut b, mut c, mut d] = v;
    a = a.wrapping_add(b);
    b = b.rotate_left(13) ^ a;
    a = a.rotate_left(32);
    c = c.wrapping_add(d);
    d = d.rotate_left(16) ^ c;
    a = a.wrapping_add(d);
    d = d.rotate_left(21) ^ a;
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The test vector of the SipHash paper with the key 00 01 .. 0f and the message of 24 bytes 00
    /// 01 ...
    #[test]
    fn the_hash_is_siphash_2_4() {
        let key = RecordKey::from_bytes(std::array::from_fn(|n| u8::try_from(n).expect("less than 16")));
        let words = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908, 0x1716_1514_1312_1110];
        assert_eq!(key.hash(words).to_le_bytes(), [0x94, 0xaf, 0x49, 0xf6, 0xc6, 0x50, 0xad, 0xb8]);
    }

    #[test]
    fn the_secret_is_found_unless_both_blocks_are_damaged() {
        let key = RecordKey::from_bytes([7; 16]);
        let mut header = [0; KEYED_FILE_HEADER_BYTES];
        key.put(&mut header, 3);
        assert_eq!(RecordKey::find(&header, 3), Some(key));
        assert_eq!(RecordKey::find(&header, 4), None, "another file's");
        for (damaged, found) in [(vec![70], true), (vec![4_100], true), (vec![70, 4_100], false)] {
            let mut header = header;
            damaged.iter().for_each(|at: &usize| header[*at] ^= 1);
            assert_eq!(RecordKey::find(&header, 3).is_some(), found, "{damaged:?}");
            assert_eq!(RecordKey::find_without_header(&header, 3).is_some(), found, "{damaged:?}");
        }
        // A record that a sender could plant in a file of version 1.
        header[64..4_096].fill(1);
        assert_eq!(RecordKey::find_without_header(&header, 3), None);
        assert_eq!(RecordKey::find(&header[..96], 3), None);
    }

    #[test]
    fn derived_secrets_differ() {
        let key = RecordKey::from_bytes([7; 16]);
        let all = [key.derive(1, 1), key.derive(1, 2), key.derive(2, 1), key];
        for (index, one) in all.iter().enumerate() {
            assert!(all.iter().skip(index + 1).all(|other| other != one));
        }
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_detected_and_other_secrets_verify_nothing() {
        let key = RecordKey::from_bytes([7; 16]);
        let header = key.header([5; 16], b"body");
        let read = key.verify(&header).expect("verifies");
        assert_eq!((read.body_bytes, read.fields), (4, [5; 16]));
        assert!(read.has_body(b"body") && !read.has_body(b"bodx"));
        for bit in 0..header.len() * 8 {
            let mut bad = header;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.verify(&bad), None, "bit {bit}");
        }
        assert_eq!(RecordKey::from_bytes([8; 16]).verify(&header), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_verify_under_no_secret(secret: [u8; 16], header: [u8; 32], start in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(RecordKey::from_bytes(secret).verify(&header), None);
            prop_assert_eq!(RecordKey::find(&start, 1), None);
        }
    }
}
