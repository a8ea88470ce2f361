//! Writes pixels as PNG (RFC 2083): 8 bits of red, green and blue, not interlaced.
//!
//! ```text
//! signature 8 | IHDR | IDAT | IEND
//! chunk: length 4 | type 4 | data | CRC-32 of type and data 4, big-endian
//! IDAT: zlib stream of the rows; each begins with its filter
//! ```

use std::io::Write as _;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

use super::Cancelled;

const SIGNATURE: [u8; 8] = [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n'];
/// 8 bits, red, green and blue, and the only methods of compression, filtering and interlacing.
const FORMAT: [u8; 5] = [8, 2, 0, 0, 0];
/// The bytes as they are. Differences between neighbours would make pictures with texts a third
/// larger.
const FILTER_NONE: u8 = 0;
/// Half the bytes of level 1; a picture of 800 x 320 pixels takes about 3 ms.
const LEVEL: u32 = 6;
/// Rows between two checks whether to continue.
const ROWS_CHECKED: usize = 64;

/// Encodes opaque pixels of four bytes each: red, green, blue, and an opacity that is left out.
pub(super) fn encode(
    pixels: &[u8],
    width: u32,
    height: u32,
    continues: &dyn Fn() -> bool,
) -> Result<Vec<u8>, Cancelled> {
    let row_bytes = 4 * width as usize;
    let mut row = Vec::with_capacity(1 + 3 * width as usize);
    let mut rows = ZlibEncoder::new(Vec::new(), Compression::new(LEVEL));
    for (place, pixels) in pixels.chunks_exact(row_bytes).enumerate() {
        if place % ROWS_CHECKED == 0 && !continues() {
            return Err(Cancelled);
        }
        row.clear();
        row.push(FILTER_NONE);
        row.extend(pixels.chunks_exact(4).flat_map(|pixel| &pixel[..3]));
        rows.write_all(&row).expect("a Vec takes any bytes");
    }
    let rows = rows.finish().expect("a Vec takes any bytes");
    let mut out = Vec::with_capacity(rows.len() + 64);
    out.extend_from_slice(&SIGNATURE);
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &FORMAT].concat();
    for (kind, data) in [(b"IHDR", header.as_slice()), (b"IDAT", rows.as_slice()), (b"IEND", &[])] {
        write_chunk(*kind, data, &mut out);
    }
    Ok(out)
}

fn write_chunk(kind: [u8; 4], data: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(data.len()).expect("a picture has at most 4,000,000 pixels");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&kind);
    out.extend_from_slice(data);
    let mut crc = Crc::new();
    crc.update(&kind);
    crc.update(data);
    out.extend_from_slice(&crc.sum().to_be_bytes());
}
