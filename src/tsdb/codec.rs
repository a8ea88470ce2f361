//! Primitives of all binary formats of this module: little-endian numbers, varints (7 bits per
//! byte, low bits first, at most 10 bytes), zigzag numbers, and text with its length.

use super::error::Damage;

/// Parses untrusted bytes. Never panics and never allocates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    whole: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, whole: bytes.len() }
    }

    /// Returns the number of unread bytes.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Returns the unread bytes without consuming them.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns damage at the current offset.
    pub(super) fn damage(&self, what: &'static str) -> Damage {
        Damage::new(self.whole - self.rest.len(), what)
    }

    #[inline]
    pub(super) fn take(&mut self, bytes: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or_else(|| self.damage("cut short"))?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.damage("cut short"))?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Result<u8, Damage> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| self.damage("cut short"))?;
        self.rest = rest;
        Ok(*first)
    }

    #[inline]
    pub(super) fn u16(&mut self) -> Result<u16, Damage> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, Damage> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(super) fn u64(&mut self) -> Result<u64, Damage> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline]
    pub(super) fn i64(&mut self) -> Result<i64, Damage> {
        self.array().map(i64::from_le_bytes)
    }

    /// Reads `count` bytes, at most eight, as the low bytes of a number.
    #[inline]
    pub(super) fn low_bytes(&mut self, count: usize) -> Result<u64, Damage> {
        if let Some(eight) = self.rest.first_chunk::<8>() {
            // Most bodies continue, so eight bytes are available and the surplus is masked.
            let mask = u64::MAX.checked_shr(64 - 8 * u32::try_from(count).unwrap_or(8).min(8)).unwrap_or(0);
            self.rest = self.rest.get(count.min(8)..).unwrap_or_default();
            return Ok(u64::from_le_bytes(*eight) & mask);
        }
        let taken = self.take(count)?;
        Ok(taken.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Damage> {
        match *self.rest {
            [byte @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(byte))
            }
            [low, high @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(low & 0x7f) | u64::from(high) << 7)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Damage> {
        if let Some((value, bytes)) = self.rest.first_chunk().and_then(|eight| short_of_eight(*eight)) {
            self.rest = self.rest.get(bytes..).unwrap_or_default();
            return Ok(value);
        }
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                return Err(self.damage("varint over 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.damage("varint over 64 bits"))
    }

    #[inline]
    pub(super) fn zigzag(&mut self) -> Result<i64, Damage> {
        self.varint().map(unzigzag)
    }

    /// Reads the count of items that take at least `each` bytes. Fails if they cannot fit into the
    /// unread bytes.
    pub(super) fn count(&mut self, each: usize) -> Result<usize, Damage> {
        let value = self.varint()?;
        match usize::try_from(value) {
            Ok(n) if n <= self.left() / each.max(1) => Ok(n),
            _ => Err(self.damage("count beyond the body")),
        }
    }

    /// Reads a varint length and as many bytes of UTF-8.
    pub(super) fn text(&mut self) -> Result<&'a str, Damage> {
        let length = self.count(1)?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| self.damage("text is not UTF-8"))
    }

    /// Fails if bytes are left.
    pub(super) fn end(&self) -> Result<(), Damage> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.damage("bytes after the end")) }
    }
}

/// Decodes a varint of at most eight bytes, without a branch per byte. Returns the value and the
/// number of bytes.
#[inline]
const fn short_of_eight(eight: [u8; 8]) -> Option<(u64, usize)> {
    let word = u64::from_le_bytes(eight);
    let ends = !word & 0x8080_8080_8080_8080;
    if ends == 0 {
        return None;
    }
    // Keeps the bytes up to the first end, seven bits of each. Then joins pairs of bytes, pairs of
    // those, and so on.
    let word = word & (ends ^ (ends - 1)) & 0x7f7f_7f7f_7f7f_7f7f;
    let word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
    let word = word & 0x0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4;
    Some((word, ends.trailing_zeros() as usize / 8 + 1))
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low seven bits are meant")]
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
pub(super) fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    put_varint(out, zigzag(value));
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Maps numbers with a small magnitude of either sign to small numbers.
#[inline]
pub(super) const fn zigzag(value: i64) -> u64 {
    (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned()
}

#[inline]
pub(super) const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

/// Returns the number of whole bytes in at most 64 bits.
pub(super) fn whole_bytes(bits: u32) -> u8 {
    u8::try_from(bits / 8).unwrap_or(8)
}

/// Powers of ten by exponent.
pub(super) const POWERS: [f64; 10] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// Returns the mantissa `m` of `value` as a decimal with `exponent` decimals, if
/// `unscaled(m, exponent)` has the same bits as `value`.
///
/// Mantissas stay below 2^53, where every integer is a double. Minus zero, NaN and infinities have
/// none.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "bounded by 2^53 and checked bit for bit"
)]
pub(super) fn scaled(value: f64, exponent: u8) -> Option<i64> {
    const BOUND: f64 = 9_007_199_254_740_992.0;
    let power = *POWERS.get(usize::from(exponent))?;
    let wide = value * power;
    if !(-BOUND..=BOUND).contains(&wide) {
        return None;
    }
    // Rounds half away from zero. The rounding mode does not matter, since the bits are compared.
    let mantissa = (wide + 0.5f64.copysign(wide)) as i64;
    let back = mantissa as f64 / power;
    (back.to_bits() == value.to_bits()).then_some(mantissa)
}

/// Returns the value of a mantissa; none for an exponent that is never written.
#[inline]
#[expect(
    clippy::cast_precision_loss,
    reason = "mantissas written here are below 2^53; others are hostile and any value will do"
)]
pub(super) fn unscaled(mantissa: i64, exponent: u8) -> Option<f64> {
    if exponent == 0 {
        // Most values are whole numbers, which need no division.
        return Some(mantissa as f64);
    }
    POWERS.get(usize::from(exponent)).map(|power| mantissa as f64 / power)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_decode_to_themselves(value: u64, signed: i64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            put_zigzag(&mut out, signed);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert_eq!(reader.zigzag(), Ok(signed));
            prop_assert_eq!(reader.end(), Ok(()));
        }

        #[test]
        fn a_scaled_value_decodes_to_the_same_bits(bits: u64, exponent in 0u8..=9) {
            let value = f64::from_bits(bits);
            if let Some(mantissa) = scaled(value, exponent) {
                prop_assert_eq!(unscaled(mantissa, exponent).map(f64::to_bits), Some(bits));
            }
        }
    }

    #[test]
    fn decimals_are_recognised() {
        for (value, exponent, mantissa) in
            [(1.5, 1, 15), (0.1, 1, 1), (-2.25, 2, -225), (1e15, 0, 1_000_000_000_000_000)]
        {
            assert_eq!(scaled(value, exponent), Some(mantissa), "{value}");
        }
        for value in [-0.0, f64::NAN, f64::INFINITY, 1e300, std::f64::consts::PI] {
            assert_eq!(scaled(value, 3), None, "{value}");
        }
    }

    #[test]
    fn a_varint_of_more_than_64_bits_is_damage() {
        assert!(Reader::new(&[0xff; 11]).varint().is_err());
        assert_eq!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).varint(),
            Ok(u64::MAX)
        );
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varint().is_err());
    }
}
