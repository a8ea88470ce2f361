//! A writer of bits, and the number formats of Prometheus' chunks that are built from them.

use crate::ingest::protobuf_write::zigzag;

/// Bits that are appended, the highest bit of each byte first.
#[derive(Clone, Debug, Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    /// The bits that are not in `bytes` yet, in the lowest places. The others are 0.
    pending: u64,
    /// The number of bits, at most 63.
    pending_bits: u32,
}

/// A float whose successors are stored as the difference of their bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct XorState {
    bits: u64,
    /// The zero bits before and after the differing bits of the last stored window; none before the
    /// first difference.
    window: Option<(u32, u32)>,
}

impl XorState {
    pub(super) const fn new(bits: u64) -> XorState {
        XorState { bits, window: None }
    }
}

/// The lengths of the numbers of variable length, from the shortest; longer ones have 64 bits.
const VARBIT_LENGTHS: [u32; 7] = [3, 6, 9, 12, 18, 25, 56];
/// The lengths of differences of time differences in float chunks; longer ones have 64 bits.
const TIME_LENGTHS: [u32; 3] = [14, 17, 20];
/// The greatest number of leading zero bits that a stored window can have.
const LEADING_MAX: u32 = 31;

impl BitWriter {
    /// Returns the number of whole and partial bytes.
    pub(super) fn byte_len(&self) -> usize {
        self.bytes.len().saturating_add(self.pending_bits.div_ceil(8) as usize)
    }

    /// Returns the bytes. Unused bits of the last one are 0.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.pending_bits > 0 {
            let last = (self.pending << 64_u32.saturating_sub(self.pending_bits)).to_be_bytes();
            let used = self.pending_bits.div_ceil(8) as usize;
            self.bytes.extend_from_slice(last.get(..used).unwrap_or_default());
        }
        self.bytes
    }

    pub(super) fn bit(&mut self, bit: bool) {
        self.bits(u64::from(bit), 1);
    }

    /// Appends the lowest `count` bits of a number, at most 64, the highest first.
    #[inline]
    pub(super) fn bits(&mut self, value: u64, count: u32) {
        let count = count.min(64);
        let value = if count == 64 { value } else { value & lowest(count) };
        let free = 64_u32.saturating_sub(self.pending_bits);
        if count < free {
            self.pending = self.pending << count | value;
            self.pending_bits = self.pending_bits.saturating_add(count);
            return;
        }
        let rest = count.saturating_sub(free);
        let before = self.pending.checked_shl(free).unwrap_or_default();
        self.bytes.extend_from_slice(&(before | value >> rest).to_be_bytes());
        self.pending = value & lowest(rest);
        self.pending_bits = rest;
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.bits(u64::from(byte), 8);
    }

    /// Appends an unsigned varint of whole bytes.
    pub(super) fn uvarint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bits(value & 0x7f | 0x80, 8);
            value >>= 7;
        }
        self.bits(value, 8);
    }

    /// Appends a signed varint, zigzag encoded.
    pub(super) fn varint(&mut self, value: i64) {
        self.uvarint(zigzag(value));
    }

    /// Appends `ones` one bits, and a zero bit unless there are `most` of them.
    fn ones(&mut self, ones: u32, most: u32) {
        let missing = u32::from(ones < most);
        let value = (1_u64 << ones).wrapping_sub(1) << missing;
        self.bits(value, ones.saturating_add(missing));
    }

    /// Appends a prefix that selects the first of `lengths` in which the number fits, and the
    /// number. The power of two in the middle of a length is positive.
    fn signed(&mut self, value: i64, lengths: &[u32]) {
        if value == 0 {
            return self.bit(false);
        }
        let most = u32::try_from(lengths.len()).unwrap_or_default().saturating_add(1);
        for (ones, length) in (1..).zip(lengths) {
            let half = 1_i64 << length.saturating_sub(1);
            if value <= half && value > half.wrapping_neg() {
                self.ones(ones, most);
                return self.bits(value.cast_unsigned(), *length);
            }
        }
        self.ones(most, most);
        self.bits(value.cast_unsigned(), 64);
    }

    /// Appends the difference of two time differences in a float chunk.
    pub(super) fn delta_of_delta(&mut self, value: i64) {
        self.signed(value, &TIME_LENGTHS);
    }

    /// Appends a signed number of variable length.
    pub(super) fn varbit_int(&mut self, value: i64) {
        self.signed(value, &VARBIT_LENGTHS);
    }

    /// Appends an unsigned number of variable length.
    pub(super) fn varbit_uint(&mut self, value: u64) {
        if value == 0 {
            return self.bit(false);
        }
        for (ones, length) in (1..).zip(VARBIT_LENGTHS) {
            if value < 1 << length {
                self.ones(ones, 8);
                return self.bits(value, length);
            }
        }
        self.ones(8, 8);
        self.bits(value, 64);
    }

    /// Appends a float as the difference to the previous one.
    pub(super) fn xor(&mut self, before: &mut XorState, bits: u64) {
        let delta = before.bits ^ bits;
        before.bits = bits;
        if delta == 0 {
            return self.bit(false);
        }
        self.bit(true);
        let (leading, trailing) = (delta.leading_zeros().min(LEADING_MAX), delta.trailing_zeros());
        if let Some((known_leading, known_trailing)) = before.window
            && leading >= known_leading
            && trailing >= known_trailing
        {
            self.bit(false);
            let count = 64_u32.saturating_sub(known_leading).saturating_sub(known_trailing);
            return self.bits(delta >> known_trailing, count);
        }
        before.window = Some((leading, trailing));
        let count = 64_u32.saturating_sub(leading).saturating_sub(trailing);
        self.bit(true);
        self.bits(u64::from(leading), 5);
        // 64 does not fit into 6 bits and is stored as 0.
        self.bits(u64::from(count), 6);
        self.bits(delta >> trailing, count);
    }
}

/// Returns a number whose lowest `count` bits are 1, at most 63 of them.
const fn lowest(count: u32) -> u64 {
    (1_u64 << count).wrapping_sub(1)
}
