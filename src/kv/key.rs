//! Keys of control's tables: byte strings with the order of their values, none of which is a prefix
//! of another.
//!
//! Integers are big-endian, signed ones with the sign bit inverted. Texts end with two zero bytes,
//! and a zero byte inside is followed by 0xff. A tuple is the concatenation of its parts, so the
//! leading parts of a key are a prefix for scans.

use crate::model::{OrgId, Timestamp};

/// A key, or the leading parts of one.
pub trait TableKey: Sized {
    /// Appends the bytes of the key.
    fn write(&self, out: &mut Vec<u8>);

    /// Takes a key from the front of `from`; `None` if the bytes are not a key.
    fn read(from: &mut &[u8]) -> Option<Self>;
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*head)
}

impl TableKey for () {
    fn write(&self, _: &mut Vec<u8>) {}

    fn read(_: &mut &[u8]) -> Option<()> {
        Some(())
    }
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl TableKey for $t {
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            fn read(from: &mut &[u8]) -> Option<$t> {
                take(from).map(<$t>::from_be_bytes)
            }
        }
    )*};
}
integers!(u8, u16, u32, u64);

impl TableKey for i64 {
    fn write(&self, out: &mut Vec<u8>) {
        (self.cast_unsigned() ^ (1 << 63)).write(out);
    }

    fn read(from: &mut &[u8]) -> Option<i64> {
        u64::read(from).map(|n| (n ^ (1 << 63)).cast_signed())
    }
}

impl TableKey for Timestamp {
    fn write(&self, out: &mut Vec<u8>) {
        self.as_ms().write(out);
    }

    fn read(from: &mut &[u8]) -> Option<Timestamp> {
        i64::read(from).map(Timestamp::from_ms)
    }
}

impl TableKey for OrgId {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(from: &mut &[u8]) -> Option<OrgId> {
        u32::read(from).map(OrgId)
    }
}

impl<const N: usize> TableKey for [u8; N] {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn read(from: &mut &[u8]) -> Option<[u8; N]> {
        take(from)
    }
}

impl TableKey for String {
    fn write(&self, out: &mut Vec<u8>) {
        for &byte in self.as_bytes() {
            out.push(byte);
            if byte == 0 {
                out.push(0xff);
            }
        }
        out.extend_from_slice(&[0, 0]);
    }

    fn read(from: &mut &[u8]) -> Option<String> {
        let mut text = Vec::new();
        loop {
            match take::<1>(from)? {
                [0] => match take::<1>(from)? {
                    [0] => return String::from_utf8(text).ok(),
                    [0xff] => text.push(0),
                    _ => return None,
                },
                [byte] => text.push(byte),
            }
        }
    }
}

impl<A: TableKey, B: TableKey> TableKey for (A, B) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(from: &mut &[u8]) -> Option<(A, B)> {
        Some((A::read(from)?, B::read(from)?))
    }
}

impl<A: TableKey, B: TableKey, C: TableKey> TableKey for (A, B, C) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
        self.2.write(out);
    }

    fn read(from: &mut &[u8]) -> Option<(A, B, C)> {
        Some((A::read(from)?, B::read(from)?, C::read(from)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes<K: TableKey>(key: &K) -> Vec<u8> {
        let mut out = Vec::new();
        key.write(&mut out);
        out
    }

    type SampleKey = (String, i64, (u32, [u8; 2]));

    proptest! {
        #[test]
        fn keys_keep_their_order_survive_encoding_and_are_never_a_prefix_of_another(
                a: SampleKey,
                b in prop_oneof![any::<SampleKey>(), ("[\u{0}a]{0,3}", -1..2_i64, any::<(u32, [u8; 2])>())],
            c in "[\u{0}a]{0,3}",
        ) {
            for x in [&a, &b, &(c, 0, (0, [0, 0]))] {
                let (xs, bs) = (bytes(x), bytes(&b));
                prop_assert_eq!(xs.cmp(&bs), x.cmp(&b));
                prop_assert!(x == &b || !(xs.starts_with(&bs) || bs.starts_with(&xs)));
                let mut rest = xs.as_slice();
                let back = SampleKey::read(&mut rest);
                prop_assert_eq!(back.as_ref(), Some(x));
                prop_assert!(rest.is_empty());
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = SampleKey::read(&mut bytes.as_slice());
        }
    }
}
