//! ULIDs, the names of blocks: 48 bits of milliseconds and 80 random bits, in base 32 of Crockford.

use std::fmt;

use crate::model::Timestamp;

/// The digits of base 32.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// The digits of a ULID.
const LENGTH: u32 = 26;

/// A ULID. The order is that of the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ulid(u128);

impl Ulid {
    /// Returns the ULID of a time and of the lowest 80 bits of `random`.
    pub fn new(now: Timestamp, random: u128) -> Ulid {
        let time = u128::from(now.as_ms().max(0).cast_unsigned() & ((1 << 48) - 1));
        Ulid(time << 80 | random & ((1 << 80) - 1))
    }

    /// Parses the 26 digits of a ULID in upper case, as folders are named.
    pub fn parse(text: &str) -> Option<Ulid> {
        if text.len() != LENGTH as usize {
            return None;
        }
        let mut value = 0_u128;
        for (place, byte) in text.bytes().enumerate() {
            let digit = DIGITS.iter().position(|digit| *digit == byte)?;
            if place == 0 && digit > 7 {
                return None;
            }
            value = value << 5 | digit as u128;
        }
        Some(Ulid(value))
    }
}

impl fmt::Display for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in (0..LENGTH).rev() {
            let digit = usize::try_from(self.0 >> place.saturating_mul(5) & 31).unwrap_or_default();
            let digit = DIGITS.get(digit).copied().unwrap_or(b'0');
            write!(f, "{}", char::from(digit))?;
        }
        Ok(())
    }
}
