//! Streams in gzip (RFC 1952) that share their compressed events.
//!
//! A compressed text is a part of deflate (RFC 1951) that refers to nothing before it and ends with
//! a whole byte. So it is compressed once, and all streams send the same bytes. What only one
//! stream sends is stored without compression. A stream combines the checksums of its parts.

use axum::body::Bytes;
use flate2::{Compress, Crc, FlushCompress, Status};

use crate::api::encoding::{COMPRESSED_BYTES_MIN, Effort, gzip_level};

/// Deflate, no further fields, no time, an unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// An empty block, the last one, in the codes of RFC 1951.
const LAST_BLOCK: [u8; 2] = [3, 0];
/// The most bytes of a block without compression, inclusive.
const STORED_BYTES_MAX: usize = 0xffff;

/// The longest text that is compressed, in bytes: it takes a thread about 10 ms.
const DEFLATED_BYTES_MAX: usize = 1 << 20;

/// A text as a part of deflate.
pub(super) struct Deflated {
    pub(super) bytes: Bytes,
    /// The checksum and the length of the text.
    pub(super) checksum: Crc,
}

/// Returns whether a text of this length is compressed.
pub(super) fn is_worthwhile(bytes: usize) -> bool {
    (COMPRESSED_BYTES_MIN..=DEFLATED_BYTES_MAX).contains(&bytes)
}

/// Compresses a text. Returns `None` if it would not become smaller.
pub(super) fn deflate(text: &[u8]) -> Option<Deflated> {
    let mut compressor = Compress::new(gzip_level(Effort::Internet, text.len()), false);
    let mut out = Vec::with_capacity(text.len());
    let status = compressor.compress_vec(text, &mut out, FlushCompress::Sync).ok()?;
    // Without room the part may not be complete.
    let is_complete = matches!(status, Status::Ok) && compressor.total_in() == text.len() as u64;
    if !is_complete || out.len() == out.capacity() {
        return None;
    }
    out.shrink_to_fit();
    let mut checksum = Crc::new();
    checksum.update(text);
    Some(Deflated { bytes: out.into(), checksum })
}

/// The state of one stream in gzip.
#[derive(Debug, Default)]
pub(super) struct GzipStream {
    has_header: bool,
    checksum: Crc,
}

impl GzipStream {
    /// Returns the frame of a text without compression.
    pub(super) fn store(&mut self, text: &[u8]) -> Bytes {
        self.checksum.update(text);
        let mut frame = Vec::with_capacity(HEADER.len() + text.len() + 16);
        if !std::mem::replace(&mut self.has_header, true) {
            frame.extend_from_slice(&HEADER);
        }
        for block in text.chunks(STORED_BYTES_MAX) {
            // At most `STORED_BYTES_MAX`.
            let length = u16::try_from(block.len()).unwrap_or_default();
            frame.push(0);
            frame.extend_from_slice(&length.to_le_bytes());
            frame.extend_from_slice(&(!length).to_le_bytes());
            frame.extend_from_slice(block);
        }
        frame.into()
    }

    /// Adds a compressed text, all of whose bytes the stream has sent after its first frame.
    pub(super) fn add(&mut self, checksum: &Crc) {
        self.checksum.combine(checksum);
    }

    /// Returns the last frame.
    pub(super) fn end(self) -> Bytes {
        let mut frame = LAST_BLOCK.to_vec();
        frame.extend_from_slice(&self.checksum.sum().to_le_bytes());
        frame.extend_from_slice(&self.checksum.amount().to_le_bytes());
        frame.into()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Returns a text of an event, which compresses well.
    fn event(values: &[u16]) -> Vec<u8> {
        let points: Vec<String> =
            values.iter().map(|value| format!("{{\"host\":\"h{}\",\"value\":{value}}}", value % 7)).collect();
        format!("event: points\ndata: [{}]\n\n", points.join(",")).into_bytes()
    }

    proptest! {
        #[test]
        fn a_stream_of_stored_and_shared_parts_decodes_to_its_texts(
            parts in vec((any::<bool>(), vec(any::<u16>(), 0..6_000)), 0..6),
        ) {
            let mut stream = GzipStream::default();
            let mut sent = stream.store(b"retry: 2000\n\n").to_vec();
            let mut expected = b"retry: 2000\n\n".to_vec();
            for (is_shared, values) in &parts {
                let text = event(values);
                if *is_shared && is_worthwhile(text.len()) {
                    let Deflated { bytes, checksum } = deflate(&text).expect("it is smaller");
                    sent.extend_from_slice(&bytes);
                    stream.add(&checksum);
                } else {
                    sent.extend_from_slice(&stream.store(&text));
                }
                expected.extend_from_slice(&text);
            }
            // Every text can be read as soon as it has arrived.
            let mut decoder = flate2::Decompress::new(false);
            let mut arrived = Vec::with_capacity(expected.len() + 64);
            decoder.decompress_vec(&sent[HEADER.len()..], &mut arrived, flate2::FlushDecompress::Sync).unwrap();
            prop_assert_eq!(&arrived, &expected);
            sent.extend_from_slice(&stream.end());
            let mut decoded = Vec::new();
            flate2::read::GzDecoder::new(&*sent).read_to_end(&mut decoded).unwrap();
            prop_assert_eq!(decoded, expected);
        }
    }

    #[test]
    fn a_text_that_does_not_become_smaller_is_not_compressed() {
        assert!(deflate(&crate::entropy::Entropy::seeded(7).bytes::<4_096>()).is_none());
    }
}
