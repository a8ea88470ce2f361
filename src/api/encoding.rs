//! Content codings: their negotiation with the client (RFC 9110, section 12.5.3), and the
//! compression of response bodies.
//!
//! Only bodies of at least 1 KiB are compressed. For smaller ones the headers and the client's work
//! cost more than the saved bytes. Both codings use level 1, except for short responses to pages of
//! other sites, and for files of the UI, which are compressed once. zstd (RFC 8878) is faster than
//! gzip and makes smaller bodies, so it is preferred at equal weights (docs/performance.md).

use std::io::{self, Write as _};

use axum::http::{HeaderMap, HeaderValue, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use zstd::stream::write::Encoder as ZstdEncoder;
use zstd::zstd_safe::CParameter;

/// Shorter bodies are not compressed.
pub const COMPRESSED_BYTES_MIN: usize = 1_024;

/// The window of zstd is 256 KiB, which bounds its memory. This size is half of the default at
/// level 1, and makes bodies 4 % larger.
const ZSTD_WINDOW_LOG: u32 = 18;

/// The greatest length, inclusive, of a body that [`Effort::Internet`] makes smaller.
const SHORT_BYTES_MAX: usize = 64 << 10;

/// The CPU time that the bytes of a body are worth.
#[derive(Clone, Copy, Debug)]
pub enum Effort {
    /// The least.
    Least,
    /// That of a body that crosses the internet. Up to 64 KiB it is smaller than with
    /// [`Effort::Least`]: 40 KB of rates take 0.5 ms instead of 0.1 ms, and are a third smaller in
    /// gzip, 10 % in zstd.
    Internet,
    /// That of a body that is compressed once and sent often: 1.2 ms for 45 KB in gzip, 6 ms in
    /// zstd.
    Once,
}

/// The level of each coding.
#[derive(Clone, Copy)]
struct Levels {
    gzip: u32,
    zstd: i32,
}

impl Levels {
    const FAST: Levels = Levels { gzip: 1, zstd: 1 };

    /// Returns the levels for a whole body.
    fn of(effort: Effort, bytes: usize) -> Levels {
        match effort {
            Effort::Internet if bytes <= SHORT_BYTES_MAX => Levels { gzip: 5, zstd: 8 },
            Effort::Least | Effort::Internet => Levels::FAST,
            Effort::Once => Levels { gzip: 7, zstd: 15 },
        }
    }
}

/// Returns the level of gzip for a whole body of `bytes`.
pub fn gzip_level(effort: Effort, bytes: usize) -> Compression {
    Compression::new(Levels::of(effort, bytes).gzip)
}

/// The compression of a body.
#[derive(Clone, Copy, Debug)]
pub struct BodyCompression {
    /// The coding that the client accepts.
    pub coding: Coding,
    /// The effort, if the body is compressed as a whole.
    pub effort: Effort,
}

/// A content coding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Coding {
    /// No compression.
    #[default]
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

/// The weight of each coding in `Accept-Encoding`, in thousandths. `None` if it does not occur.
#[derive(Debug, Default)]
struct Weights {
    zstd: Option<u16>,
    gzip: Option<u16>,
    identity: Option<u16>,
    any: Option<u16>,
}

impl Weights {
    fn of(headers: &HeaderMap) -> Weights {
        let Weights { mut zstd, mut gzip, mut identity, mut any } = Weights::default();
        for value in headers.get_all(header::ACCEPT_ENCODING) {
            let Ok(text) = value.to_str() else { continue };
            for item in text.split(',') {
                let mut parts = item.split(';').map(str::trim);
                let name = parts.next().unwrap_or_default();
                let weight = parts.find_map(quality).unwrap_or(Some(1_000));
                // A coding with an invalid weight is ignored.
                let Some(weight) = weight else { continue };
                let is = |coding| name.eq_ignore_ascii_case(coding);
                let slot = match name {
                    _ if is("zstd") => &mut zstd,
                    _ if is("gzip") || is("x-gzip") => &mut gzip,
                    _ if is("identity") => &mut identity,
                    "*" => &mut any,
                    _ => continue,
                };
                *slot = Some(slot.unwrap_or(0).max(weight));
            }
        }
        Weights { zstd, gzip, identity, any }
    }

    /// Returns the last of the codings with the greatest weight; the identity coding if the client
    /// accepts none of them.
    fn best(&self, codings: &[Coding]) -> Coding {
        let weight = |coding: &Coding| match coding {
            Coding::Identity => self.identity.unwrap_or(0),
            Coding::Gzip => self.gzip.or(self.any).unwrap_or(0),
            Coding::Zstd => self.zstd.unwrap_or(0),
        };
        // `max_by_key` returns the last of several equal maxima.
        let best = codings.iter().filter(|coding| weight(coding) > 0).max_by_key(|coding| weight(coding));
        best.copied().unwrap_or(Coding::Identity)
    }
}

impl Coding {
    /// Returns the coding with the greatest weight in `Accept-Encoding`. At equal weights zstd is
    /// preferred to gzip, and gzip to no compression. `*` means gzip, which every client supports.
    ///
    /// A client that refuses only the identity coding still gets a short body without compression,
    /// as RFC 9110 allows.
    pub fn of(headers: &HeaderMap) -> Coding {
        Weights::of(headers).best(&[Coding::Identity, Coding::Gzip, Coding::Zstd])
    }

    /// Returns gzip or no compression, by the weights in `Accept-Encoding`, as [`Coding::of`].
    pub fn gzip_or_identity(headers: &HeaderMap) -> Coding {
        Weights::of(headers).best(&[Coding::Identity, Coding::Gzip])
    }

    /// Returns whether a client refuses all codings, which is 406 `not_acceptable`.
    pub fn none_fits(headers: &HeaderMap) -> bool {
        // Most clients refuse no coding. Their headers are not parsed here.
        let refuses =
            |value: &HeaderValue| value.as_bytes().windows(2).any(|pair| pair == b"=0" || pair == b"= ");
        if !headers.get_all(header::ACCEPT_ENCODING).iter().any(refuses) {
            return false;
        }
        let Weights { zstd, gzip, identity, any } = Weights::of(headers);
        let accepts = |weight: Option<u16>, default: u16| weight.or(any).unwrap_or(default) > 0;
        !(accepts(identity, 1) || accepts(gzip, 0) || accepts(zstd, 0))
    }

    /// Returns the value of `Content-Encoding`; `None` for no compression.
    pub fn name(self) -> Option<HeaderValue> {
        match self {
            Coding::Identity => None,
            Coding::Gzip => Some(HeaderValue::from_static("gzip")),
            Coding::Zstd => Some(HeaderValue::from_static("zstd")),
        }
    }

    /// Compresses a whole body of at least 1 KiB. Returns the body with its actual coding.
    pub fn whole(self, body: Vec<u8>, effort: Effort) -> (Vec<u8>, Coding) {
        if self == Coding::Identity || body.len() < COMPRESSED_BYTES_MIN {
            return (body, Coding::Identity);
        }
        let levels = Levels::of(effort, body.len());
        let mut coded = Vec::new();
        let done = Encoder::sized(self, body.len() / 4, Some(body.len()), levels).and_then(|mut encoder| {
            encoder.push(&body)?;
            encoder.finish(&mut coded)
        });
        match done {
            Ok(()) => (coded, self),
            // Writing to memory does not fail. If it did, the body would be sent without
            // compression.
            Err(_) => (body, Coding::Identity),
        }
    }
}

/// Parses the weight of a parameter such as `q=0.5`, in thousandths. Returns `Some(None)` if it is
/// a weight that the grammar does not allow, `None` if it is another parameter.
fn quality(parameter: &str) -> Option<Option<u16>> {
    let (name, value) = parameter.split_once('=')?;
    name.trim().eq_ignore_ascii_case("q").then(|| thousandths(value.trim()))
}

fn thousandths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !matches!(whole, "0" | "1")
        || fraction.len() > 3
        || !fraction.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let fraction: u16 = format!("{fraction:0<3}").parse().ok()?;
    let weight = if whole == "1" { 1_000 + fraction } else { fraction };
    (weight <= 1_000).then_some(weight)
}

/// A compressor of a body that is sent in chunks.
pub struct Encoder {
    stream: EncoderStream,
}

/// The encoder of a coding and its output.
enum EncoderStream {
    Plain(Vec<u8>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Zstd(ZstdEncoder<'static, Vec<u8>>),
}

impl Encoder {
    /// Returns an encoder with an output buffer of `capacity` bytes, and its coding. If zstd cannot
    /// allocate its tables, that is [`Coding::Identity`].
    pub fn new(coding: Coding, capacity: usize) -> (Encoder, Coding) {
        let plain =
            |_| (Encoder { stream: EncoderStream::Plain(Vec::with_capacity(capacity)) }, Coding::Identity);
        Encoder::sized(coding, capacity, None, Levels::FAST).map_or_else(plain, |encoder| (encoder, coding))
    }

    /// Returns an encoder whose tables fit a body of `bytes`, if that is known.
    fn sized(coding: Coding, capacity: usize, bytes: Option<usize>, levels: Levels) -> io::Result<Encoder> {
        let out = Vec::with_capacity(capacity);
        let stream = match coding {
            Coding::Identity => EncoderStream::Plain(out),
            Coding::Gzip => EncoderStream::Gzip(Box::new(GzEncoder::new(out, Compression::new(levels.gzip)))),
            Coding::Zstd => {
                let mut encoder = ZstdEncoder::new(out, levels.zstd)?;
                encoder.set_parameter(CParameter::WindowLog(ZSTD_WINDOW_LOG))?;
                encoder.set_pledged_src_size(bytes.map(|bytes| bytes as u64))?;
                EncoderStream::Zstd(encoder)
            }
        };
        Ok(Encoder { stream })
    }

    /// Compresses the next chunk.
    ///
    /// # Errors
    /// The errors of the encoder. Writing to memory does not fail.
    pub fn push(&mut self, chunk: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            EncoderStream::Plain(out) => out.extend_from_slice(chunk),
            EncoderStream::Gzip(encoder) => encoder.write_all(chunk)?,
            EncoderStream::Zstd(encoder) => encoder.write_all(chunk)?,
        }
        Ok(())
    }

    /// Compresses the next chunk, clears it, and returns the output so far, which may be empty.
    ///
    /// # Errors
    /// Those of [`Encoder::push`].
    pub fn code(&mut self, chunk: &mut Vec<u8>) -> io::Result<Vec<u8>> {
        if let EncoderStream::Plain(out) = &mut self.stream
            && out.is_empty()
        {
            return Ok(std::mem::take(chunk));
        }
        self.push(chunk)?;
        chunk.clear();
        Ok(self.take())
    }

    /// Makes the output contain all bytes so far, so that the client can decompress them.
    ///
    /// # Errors
    /// Those of [`Encoder::push`].
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.stream {
            EncoderStream::Plain(_) => Ok(()),
            EncoderStream::Gzip(encoder) => encoder.flush(),
            EncoderStream::Zstd(encoder) => encoder.flush(),
        }
    }

    /// Returns the output so far, which may be empty.
    pub fn take(&mut self) -> Vec<u8> {
        match &mut self.stream {
            EncoderStream::Plain(out) => std::mem::take(out),
            EncoderStream::Gzip(encoder) => std::mem::take(encoder.get_mut()),
            EncoderStream::Zstd(encoder) => std::mem::take(encoder.get_mut()),
        }
    }

    /// Ends the body, and appends the rest of the output to `out`.
    ///
    /// # Errors
    /// Those of [`Encoder::push`].
    pub fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        match &mut self.stream {
            EncoderStream::Plain(rest) => out.append(rest),
            EncoderStream::Gzip(encoder) => {
                encoder.try_finish()?;
                out.append(encoder.get_mut());
            }
            EncoderStream::Zstd(encoder) => {
                encoder.do_finish()?;
                out.append(encoder.get_mut());
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.stream {
            EncoderStream::Plain(_) => "plain",
            EncoderStream::Gzip(_) => "gzip",
            EncoderStream::Zstd(_) => "zstd",
        };
        f.debug_tuple("Encoder").field(&name).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_clients_weights_determine_the_coding() {
        let cases: [(&[&str], Coding); 24] = [
            (&[], Coding::Identity),
            (&[""], Coding::Identity),
            (&["gzip"], Coding::Gzip),
            (&["GZIP"], Coding::Gzip),
            (&["x-gzip"], Coding::Gzip),
            (&["gzip, deflate, br, zstd"], Coding::Zstd),
            (&["zstd"], Coding::Zstd),
            (&["ZSTD;q=0.5, gzip;q=0.6"], Coding::Gzip),
            (&["zstd;q=0.5, identity;q=0.6"], Coding::Identity),
            (&["zstd;q=0, gzip"], Coding::Gzip),
            (&["zstd;q=0.4", "*;q=0.4"], Coding::Zstd),
            (&["deflate", "gzip;q=0.5"], Coding::Gzip),
            (&["gzip;q=0"], Coding::Identity),
            (&["gzip;q=0.000"], Coding::Identity),
            (&["gzip; q=0.001"], Coding::Gzip),
            (&["identity;q=1, gzip;q=0.5"], Coding::Identity),
            (&["identity;q=0.5, gzip;q=0.5"], Coding::Gzip),
            (&["identity;q=0"], Coding::Identity),
            (&["*"], Coding::Gzip),
            (&["*;q=0"], Coding::Identity),
            (&["gzip;q=0, *"], Coding::Identity),
            (&["gzip;q=2"], Coding::Identity),
            (&["gzip;q=1.0001"], Coding::Identity),
            (&["br"], Coding::Identity),
        ];
        for (values, expected) in cases {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::ACCEPT_ENCODING, value.parse().expect("a value"));
            }
            assert_eq!(Coding::of(&headers), expected, "{values:?}");
        }
    }

    #[test]
    fn only_a_client_that_refuses_all_codings_is_refused() {
        let refused =
            ["identity;q=0", "*;q=0", "br, *;q=0", "gzip;q=0, *;q=0.0", "deflate, identity; q=0.000"];
        let taken = [
            "",
            "*",
            "gzip;q=0",
            "identity;q=0, gzip",
            "identity;q=0, *;q=0.1",
            "zstd, *;q=0",
            "br;q=0",
            "identity;q=2",
        ];
        for (values, expected) in [(&refused[..], true), (&taken[..], false)] {
            for value in values {
                let headers =
                    HeaderMap::from_iter([(header::ACCEPT_ENCODING, value.parse().expect("a value"))]);
                assert_eq!(Coding::none_fits(&headers), expected, "{value}");
            }
        }
        assert!(!Coding::none_fits(&HeaderMap::new()));
    }

    #[test]
    fn short_bodies_are_not_compressed() {
        assert_eq!(Coding::Gzip.whole(vec![b'a'; 1_023], Effort::Least).1, Coding::Identity);
        let (coded, coding) = Coding::Gzip.whole(vec![b'a'; 1_024], Effort::Least);
        assert_eq!((coding, coded.starts_with(&[0x1f, 0x8b])), (Coding::Gzip, true));
        assert!(coded.len() < 100, "{}", coded.len());
        let (coded, coding) = Coding::Zstd.whole(vec![b'a'; 1_024], Effort::Least);
        assert_eq!((coding, coded.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])), (Coding::Zstd, true));
        assert!(coded.len() < 100, "{}", coded.len());
        assert_eq!(
            Coding::Identity.whole(vec![b'a'; 10_000], Effort::Least),
            (vec![b'a'; 10_000], Coding::Identity)
        );
    }

    #[test]
    fn a_short_body_for_the_internet_is_smaller_and_a_long_one_is_not() {
        let text = |numbers: u32| -> Vec<u8> {
            let number =
                |n: u32| format!("[{},\"{}\"],", 1_795_871_160 + n * 15, f64::from(n * n % 977) / 285.0);
            (0..numbers).flat_map(|n| number(n).into_bytes()).collect()
        };
        let bytes = |body: &[u8], effort| {
            [Coding::Gzip, Coding::Zstd].map(|coding| coding.whole(body.to_vec(), effort).0.len())
        };
        let (short, long) = (text(1_200), text(2_400));
        assert!(short.len() <= SHORT_BYTES_MAX && long.len() > SHORT_BYTES_MAX);
        let [gzip, zstd] = bytes(&short, Effort::Internet);
        let [gzip_fast, zstd_fast] = bytes(&short, Effort::Least);
        assert!(gzip * 4 < gzip_fast * 3 && zstd < zstd_fast, "{gzip} {gzip_fast} {zstd} {zstd_fast}");
        assert_eq!(bytes(&long, Effort::Internet), bytes(&long, Effort::Least));
    }

    proptest! {
        #[test]
        fn compressed_chunks_decompress_to_the_body(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5_000), 0..20),
        ) {
            for coding in [Coding::Identity, Coding::Gzip, Coding::Zstd] {
                let mut encoder = Encoder::new(coding, 0).0;
                let mut coded = Vec::new();
                for chunk in &chunks {
                    encoder.push(chunk).expect("memory");
                    coded.extend(encoder.take());
                }
                encoder.finish(&mut coded).expect("memory");
                let body = match coding {
                    Coding::Identity => coded,
                    Coding::Gzip => {
                        let mut body = Vec::new();
                        flate2::read::GzDecoder::new(&coded[..]).read_to_end(&mut body).expect("gzip");
                        body
                    }
                    Coding::Zstd => zstd::stream::decode_all(&coded[..]).expect("zstd"),
                };
                prop_assert_eq!(body, chunks.concat());
            }
        }

        #[test]
        fn no_header_causes_a_panic(bytes in prop::collection::vec(0x20_u8..0x7f, 0..60)) {
            let mut headers = HeaderMap::new();
            headers.append(header::ACCEPT_ENCODING, HeaderValue::from_bytes(&bytes).expect("visible"));
            let _ = Coding::of(&headers);
        }
    }
}
