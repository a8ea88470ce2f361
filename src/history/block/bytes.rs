//! A cursor over bytes of Prometheus' files, whose numbers are big-endian.

use crate::ingest::protobuf_write::zigzag;
pub(super) use crate::ingest::put_varint as put_uvarint;
use crate::ingest::unzigzag;

/// The longest varint in bytes.
pub(in crate::history) const VARINT_BYTES_MAX: usize = 10;
/// The most labels of a series.
pub(in crate::history) const LABELS_MAX: usize = 4_096;

/// The unread rest of a record. Every method returns `None` if the bytes are not there.
#[derive(Clone, Copy, Debug)]
pub(in crate::history) struct ByteReader<'b>(&'b [u8]);

impl<'b> ByteReader<'b> {
    pub(in crate::history) const fn new(bytes: &'b [u8]) -> ByteReader<'b> {
        ByteReader(bytes)
    }

    /// Returns the number of unread bytes.
    pub(in crate::history) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(in crate::history) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::history) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(in crate::history) fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first)
    }

    pub(in crate::history) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(in crate::history) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(in crate::history) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(in crate::history) fn f64(&mut self) -> Option<f64> {
        self.u64().map(f64::from_bits)
    }

    /// Reads a varint of at most 64 bits.
    pub(in crate::history) fn uvarint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a zigzag varint.
    pub(in crate::history) fn varint(&mut self) -> Option<i64> {
        self.uvarint().map(unzigzag)
    }

    /// Reads a varint that counts or measures something in memory.
    pub(in crate::history) fn length(&mut self) -> Option<usize> {
        self.uvarint().and_then(|value| usize::try_from(value).ok())
    }

    /// Reads a text with its length.
    pub(in crate::history) fn text(&mut self) -> Option<&'b str> {
        let length = self.length()?;
        std::str::from_utf8(self.take(length)?).ok()
    }
}

/// Appends a zigzag varint.
pub(super) fn put_varint(value: i64, out: &mut Vec<u8>) {
    put_uvarint(zigzag(value), out);
}

/// Appends a text with its length.
pub(super) fn put_text(text: &str, out: &mut Vec<u8>) {
    put_uvarint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}
