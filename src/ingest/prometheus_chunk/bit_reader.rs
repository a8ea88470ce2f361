//! A reader of bits, and the number formats of Prometheus' chunks that are built from them
//! (prometheus/tsdb/chunkenc `bstream.go`, `varbit.go`, `xor.go`).

use super::ChunkError;

/// A cursor over the bits of a chunk, the highest bit of each byte first.
#[derive(Clone, Debug)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// The number of bits read.
    at: usize,
}

/// A float that is stored as the difference of its bits to the value before it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct XorValue {
    pub(super) bits: u64,
    /// The zero bits before and after the differing bits of the last difference.
    leading: u32,
    trailing: u32,
}

impl<'a> BitReader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader { bytes, at: 0 }
    }

    /// Reads one bit.
    #[inline]
    pub(super) fn bit(&mut self) -> Result<bool, ChunkError> {
        let byte = self.bytes.get(self.at >> 3).ok_or(ChunkError::Truncated)?;
        let bit = byte >> (7_usize.saturating_sub(self.at & 7)) & 1;
        self.at = self.at.saturating_add(1);
        Ok(bit == 1)
    }

    /// Reads up to 64 bits as a number, the highest first.
    #[inline]
    pub(super) fn bits(&mut self, count: u32) -> Result<u64, ChunkError> {
        if count == 0 {
            return Ok(0);
        }
        let skipped = u32::try_from(self.at & 7).unwrap_or_default();
        let used = skipped.saturating_add(count);
        let rest = self.bytes.get(self.at >> 3..).unwrap_or_default();
        if used <= 64
            && let Some(word) = rest.first_chunk::<8>()
        {
            self.at = self.at.saturating_add(count as usize);
            return Ok(u64::from_be_bytes(*word) << skipped >> 64_u32.saturating_sub(count));
        }
        self.bits_at_the_end(count)
    }

    /// Like [`BitReader::bits`], near the end of the chunk and for numbers in nine bytes.
    fn bits_at_the_end(&mut self, count: u32) -> Result<u64, ChunkError> {
        let count = count.min(64);
        let end = self.at.saturating_add(count as usize);
        if end > self.bytes.len().saturating_mul(8) {
            return Err(ChunkError::Truncated);
        }
        let mut window = 0_u128;
        let mut held = 0_u32;
        for byte in self.bytes.iter().skip(self.at >> 3).take(9) {
            window = window << 8 | u128::from(*byte);
            held = held.saturating_add(8);
        }
        // At most 7 bits of the first byte are read already, so 72 bits suffice.
        let skipped = u32::try_from(self.at & 7).unwrap_or_default();
        let below = held.saturating_sub(skipped).saturating_sub(count);
        let mask = (1_u128 << count).wrapping_sub(1);
        self.at = end;
        Ok(low_u64(window >> below & mask))
    }

    /// Reads a byte.
    pub(super) fn byte(&mut self) -> Result<u8, ChunkError> {
        let [.., byte] = self.bits(8)?.to_be_bytes();
        Ok(byte)
    }

    /// Reads an unsigned varint of whole bytes, at most 10 of them.
    pub(super) fn uvarint(&mut self) -> Result<u64, ChunkError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ChunkError::Invalid("a number has more than 64 bits"))
    }

    /// Reads a signed varint, zigzag encoded.
    pub(super) fn varint(&mut self) -> Result<i64, ChunkError> {
        self.uvarint().map(crate::ingest::protobuf::unzigzag)
    }

    /// Reads the number of leading one bits, at most `most`.
    fn ones(&mut self, most: u32) -> Result<u32, ChunkError> {
        for ones in 0..most {
            if !self.bit()? {
                return Ok(ones);
            }
        }
        Ok(most)
    }

    /// Reads a number of `count` bits whose upper half stands for negative values. The power of two
    /// in the middle is positive.
    fn signed(&mut self, count: u32) -> Result<i64, ChunkError> {
        let bits = self.bits(count)?;
        let half = 1_u64 << count.saturating_sub(1);
        let bits = if bits > half { bits.wrapping_sub(half.wrapping_mul(2)) } else { bits };
        Ok(bits.cast_signed())
    }

    /// Reads the difference of two time differences in a float chunk.
    #[inline]
    pub(super) fn delta_of_delta(&mut self) -> Result<i64, ChunkError> {
        match self.ones(4)? {
            0 => Ok(0),
            1 => self.signed(14),
            2 => self.signed(17),
            3 => self.signed(20),
            _ => self.bits(64).map(u64::cast_signed),
        }
    }

    /// Returns the length of a number in bits, by its prefix. `None` stands for a zero.
    fn varbit_len(&mut self) -> Result<Option<u32>, ChunkError> {
        let ones = self.ones(8)?;
        let lengths = [3, 6, 9, 12, 18, 25, 56, 64];
        Ok(ones.checked_sub(1).and_then(|ones| lengths.get(ones as usize).copied()))
    }

    /// Reads a signed number of variable length.
    #[inline]
    pub(super) fn varbit_int(&mut self) -> Result<i64, ChunkError> {
        match self.varbit_len()? {
            None => Ok(0),
            Some(64) => self.bits(64).map(u64::cast_signed),
            Some(count) => self.signed(count),
        }
    }

    /// Reads an unsigned number of variable length.
    #[inline]
    pub(super) fn varbit_uint(&mut self) -> Result<u64, ChunkError> {
        match self.varbit_len()? {
            None => Ok(0),
            Some(count) => self.bits(count),
        }
    }

    /// Replaces a float by the next one.
    #[inline]
    pub(super) fn xor(&mut self, value: &mut XorValue) -> Result<(), ChunkError> {
        if !self.bit()? {
            return Ok(());
        }
        if self.bit()? {
            let leading = self.bits(5)?;
            let significant = match self.bits(6)? {
                0 => 64,
                significant => significant,
            };
            let used = leading.saturating_add(significant);
            let (Ok(leading), Some(trailing)) = (u32::try_from(leading), 64_u64.checked_sub(used)) else {
                return Err(ChunkError::Invalid("a float has more than 64 bits"));
            };
            value.leading = leading;
            value.trailing = u32::try_from(trailing).unwrap_or_default();
        }
        let count = 64_u32.saturating_sub(value.leading).saturating_sub(value.trailing);
        value.bits ^= self.bits(count)? << value.trailing;
        Ok(())
    }
}

impl BitReader<'_> {
    /// Reads a sample of a float chunk that is not one of the first two: adds to the time
    /// difference, and replaces the float by the next one.
    #[inline]
    pub(super) fn float_sample(&mut self, delta: &mut i64, value: &mut XorValue) -> Result<(), ChunkError> {
        let word = self.bytes.get(self.at >> 3..).and_then(|rest| rest.first_chunk::<8>());
        let word = word.map(|word| u64::from_be_bytes(*word) << (self.at & 7));
        if let Some(used) = word.and_then(|word| value.take_short(word)) {
            self.at = self.at.saturating_add(used as usize);
            return Ok(());
        }
        *delta = delta.wrapping_add(self.delta_of_delta()?);
        self.xor(value)
    }
}

/// The highest bits of a word that are valid, wherever it begins in a byte.
const WORD_BITS: u32 = 57;

impl XorValue {
    /// Replaces the float by the next one, if its sample has the time difference of the sample
    /// before it, is valid and ends within the first [`WORD_BITS`] bits of `word`. Returns its
    /// length in bits.
    #[inline]
    fn take_short(&mut self, word: u64) -> Option<u32> {
        // The first bit is that of the time, the next ones are those of the float.
        match word >> 61 {
            0b000 | 0b001 => Some(2),
            0b010 => self.take_difference(word, 3),
            0b011 => {
                let leading = u32::try_from(word >> 56 & 31).ok()?;
                let significant = match u32::try_from(word >> 50 & 63).ok()? {
                    0 => 64,
                    significant => significant,
                };
                let trailing = 64_u32.checked_sub(leading.checked_add(significant)?)?;
                let mut next = XorValue { bits: self.bits, leading, trailing };
                let used = next.take_difference(word, 14)?;
                *self = next;
                Some(used)
            }
            _ => None,
        }
    }

    /// Applies the difference that begins after `start` bits of `word`. Returns the number of bits
    /// up to its end.
    #[inline]
    fn take_difference(&mut self, word: u64, start: u32) -> Option<u32> {
        let count = 64_u32.checked_sub(self.leading.checked_add(self.trailing)?)?;
        let end = start.checked_add(count).filter(|end| *end <= WORD_BITS && count > 0)?;
        self.bits ^= (word << start >> 64_u32.checked_sub(count)?) << self.trailing;
        Some(end)
    }

    pub(super) const fn new(bits: u64) -> XorValue {
        XorValue { bits, leading: 0, trailing: 0 }
    }

    pub(super) const fn float(self) -> f64 {
        f64::from_bits(self.bits)
    }
}

/// Returns the low half of a number.
fn low_u64(value: u128) -> u64 {
    u64::try_from(value & u128::from(u64::MAX)).unwrap_or_default()
}
