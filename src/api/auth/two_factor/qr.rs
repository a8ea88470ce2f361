//! Encodes a text as a QR code in a PNG, for an authenticator app.
//!
//! The picture has one bit a pixel and eight pixels a module, so a module is one byte of a row and
//! no drawing is needed.

use std::io::Write as _;

use data_encoding::BASE64;
use flate2::Compression;
use flate2::Crc;
use flate2::write::ZlibEncoder;
use qrcodegen::{QrCode, QrCodeEcc};

/// The width of the light border in modules.
const QUIET: i32 = 4;
const LIGHT: u8 = 0xff;
const DARK: u8 = 0x00;

/// Returns `data:image/png;base64,...`, or `None` for a text that no QR code can hold.
pub(super) fn data_url(text: &str) -> Option<String> {
    let code = QrCode::encode_text(text, QrCodeEcc::Medium).ok()?;
    Some(format!("data:image/png;base64,{}", BASE64.encode(&png(&code)?)))
}

fn png(code: &QrCode) -> Option<Vec<u8>> {
    let modules = -QUIET..code.size() + QUIET;
    let side = u32::try_from(modules.len()).ok()?.checked_mul(8)?;
    let mut pixels = ZlibEncoder::new(Vec::new(), Compression::best());
    for y in modules.clone() {
        // Each row begins with its filter type: none.
        let row: Vec<u8> = std::iter::once(0)
            .chain(modules.clone().map(|x| if code.get_module(x, y) { DARK } else { LIGHT }))
            .collect();
        for _ in 0..8 {
            pixels.write_all(&row).ok()?;
        }
    }
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let side = side.to_be_bytes();
    // Width, height, one bit a pixel, greyscale, and the only defined compression and filter
    // methods, not interlaced.
    chunk(&mut out, b"IHDR", &[&side[..], &side[..], &[1, 0, 0, 0, 0]].concat())?;
    chunk(&mut out, b"IDAT", &pixels.finish().ok()?)?;
    chunk(&mut out, b"IEND", &[])?;
    Some(out)
}

/// Appends a chunk: length, type, content, and the CRC-32 of type and content.
fn chunk(out: &mut Vec<u8>, kind: &[u8; 4], content: &[u8]) -> Option<()> {
    let mut crc = Crc::new();
    crc.update(kind);
    crc.update(content);
    out.extend_from_slice(&u32::try_from(content.len()).ok()?.to_be_bytes());
    out.extend_from_slice(kind);
    out.extend_from_slice(content);
    out.extend_from_slice(&crc.sum().to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_picture_contains_every_module_of_its_code_with_a_light_border() {
        let code = QrCode::encode_text("otpauth://totp/x", QrCodeEcc::Medium).expect("short");
        let png = png(&code).expect("a picture");
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
        assert_eq!(&png[8..16], b"\0\0\0\x0dIHDR");
        let modules = usize::try_from(code.size() + 2 * QUIET).expect("small");
        let side = u32::try_from(modules * 8).expect("small").to_be_bytes();
        assert_eq!((&png[16..20], &png[20..24]), (&side[..], &side[..]));
        assert_eq!(&png[png.len() - 12..], b"\0\0\0\0IEND\xae\x42\x60\x82");
        let length = u32::from_be_bytes(png[33..37].try_into().expect("four")) as usize;
        assert_eq!(&png[37..41], b"IDAT");
        let mut pixels = Vec::new();
        flate2::read::ZlibDecoder::new(&png[41..41 + length]).read_to_end(&mut pixels).expect("zlib");
        assert_eq!(pixels.len(), (1 + modules) * modules * 8);
        for (row, pixels) in pixels.chunks(1 + modules).enumerate() {
            let y = i32::try_from(row / 8).expect("small") - QUIET;
            for (column, pixel) in pixels[1..].iter().enumerate() {
                let x = i32::try_from(column).expect("small") - QUIET;
                assert_eq!(*pixel == DARK, code.get_module(x, y), "{x} {y}");
            }
        }
    }

    #[test]
    fn a_text_that_fits_into_no_qr_code_is_none() {
        assert_eq!(data_url(&"x".repeat(5_000)), None);
        assert!(data_url("x").expect("a code").starts_with("data:image/png;base64,iVBORw0KGgo"));
    }
}
