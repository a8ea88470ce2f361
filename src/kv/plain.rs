//! Records of version 1 in log and journal files: a checksum without a key.
//!
//! ```text
//!  0 u32 body bytes L    4 u32 CRC32C of bytes 0..4, then 8..24+L
//!  8 16  sequence number, type and more
//! 24 body
//! ```

/// Length of a record's header.
const HEADER_BYTES: usize = 24;

/// Returns the lengths with which the record at the start of `bytes` verifies, assuming that at
/// most one byte of the length is damaged and all other bytes are intact. Ascending; at most
/// `body_max`.
///
/// A sender can plant records in the body, so the end of a damaged record is certain only if
/// exactly one length remains.
pub(crate) fn verifying_lengths(bytes: &[u8], body_max: usize) -> Vec<usize> {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Vec::new() };
    let [l0, l1, l2, l3, c0, c1, c2, c3, fields @ ..] = *header;
    let (length, crc) = ([l0, l1, l2, l3], u32::from_le_bytes([c0, c1, c2, c3]));
    let mut lengths: Vec<u32> = Vec::with_capacity(4 * 256);
    for index in 0..length.len() {
        for byte in 0..=u8::MAX {
            let mut other = length;
            if let Some(changed) = other.get_mut(index) {
                *changed = byte;
            }
            lengths.push(u32::from_le_bytes(other));
        }
    }
    lengths.sort_unstable();
    lengths.dedup();
    let (mut found, mut done, mut of_body) = (Vec::new(), 0, 0);
    for length in lengths {
        let end = length as usize;
        let Some(more) = body.get(done..end).filter(|_| (1..=body_max).contains(&end)) else { continue };
        // The lengths ascend, so each byte of the body is checksummed once.
        of_body = crc32c::crc32c_append(of_body, more);
        done = end;
        let of_head = crc32c::crc32c_append(crc32c::crc32c(&length.to_le_bytes()), &fields);
        if crc32c::crc32c_combine(of_head, of_body, end) == crc {
            found.push(end);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_recovered_after_one_byte_of_it_changed() {
        for length in [1_usize, 200, 300, 70_000, 200_000] {
            let body: Vec<u8> = (0..=250_u8).cycle().take(length).collect();
            let written = u32::try_from(length).expect("small").to_le_bytes();
            let fields = [7; 16];
            let covered = [&written[..], &fields, &body].concat();
            let crc = crc32c::crc32c(&covered).to_le_bytes();
            let whole = [&written[..], &crc, &fields, &body, &[0; 80_000]].concat();
            assert_eq!(verifying_lengths(&whole, 16 << 20), [length]);
            for (index, byte) in (0..4).flat_map(|index| [(index, 0), (index, 1), (index, 0xff)]) {
                let mut bytes = whole.clone();
                bytes[index] = byte;
                assert_eq!(verifying_lengths(&bytes, 16 << 20), [length], "byte {index} is {byte}");
                bytes[30] ^= 1;
                assert!(length < 7 || verifying_lengths(&bytes, 16 << 20).is_empty());
            }
        }
    }
}
