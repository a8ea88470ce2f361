//! Which coding of a body a client takes (RFC 9110, section 12.5.3), and bodies in it.
//!
//! Only bodies of a KiB or more are coded: below that headers and the client's work cost more than the bytes. Both codings
//! are at level 1: on JSON of numbers the next levels of gzip take twice as long for a tenth of the bytes, and zstd (RFC
//! 8878) at its first is half as long and half as large again, so a client that takes both as gladly gets it.

use std::io::{self, Write as _};

use axum::http::{HeaderMap, HeaderValue, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use zstd::stream::write::Encoder as ZstdEncoder;
use zstd::zstd_safe::CParameter;

/// Shorter bodies are sent as they are.
const WORTH_IT: usize = 1_024;

/// zstd looks back over 256 KiB: half of what it would by itself, for a twenty-fifth more bytes, and its memory is bounded
/// by it.
const ZSTD_WINDOW_LOG: u32 = 18;

/// How a body is coded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coding {
    /// As it is.
    #[default]
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

/// What `Accept-Encoding` says of each coding, in thousandths; `None` where it says nothing of it.
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
                // A weight that is none says nothing.
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
}

impl Coding {
    /// What `Accept-Encoding` asks for: the coding with the greatest weight, of equal ones the smallest body. `*` means gzip,
    /// which everybody knows.
    ///
    /// A client that refuses the plain body alone gets it all the same where it is short, as RFC 9110 lets a server do.
    pub fn of(headers: &HeaderMap) -> Coding {
        let Weights { zstd, gzip, identity, any } = Weights::of(headers);
        let offers: [(u16, Coding); 3] = [
            (identity.unwrap_or(0), Coding::Identity),
            (gzip.or(any).unwrap_or(0), Coding::Gzip),
            (zstd.unwrap_or(0), Coding::Zstd),
        ];
        // The last of the greatest.
        let best = offers.into_iter().filter(|(weight, _)| *weight > 0).max_by_key(|(weight, _)| *weight);
        best.map_or(Coding::Identity, |(_, coding)| coding)
    }

    /// Whether a client takes no body in any way that it could be sent: 406 `not_acceptable`.
    pub fn none_fits(headers: &HeaderMap) -> bool {
        // Whoever refuses nothing, and that is nearly everybody, is not read twice.
        let refuses =
            |value: &HeaderValue| value.as_bytes().windows(2).any(|pair| pair == b"=0" || pair == b"= ");
        if !headers.get_all(header::ACCEPT_ENCODING).iter().any(refuses) {
            return false;
        }
        let Weights { zstd, gzip, identity, any } = Weights::of(headers);
        let taken = |weight: Option<u16>, unsaid: u16| weight.or(any).unwrap_or(unsaid) > 0;
        !(taken(identity, 1) || taken(gzip, 0) || taken(zstd, 0))
    }

    /// The value of `Content-Encoding`.
    pub fn name(self) -> Option<HeaderValue> {
        match self {
            Coding::Identity => None,
            Coding::Gzip => Some(HeaderValue::from_static("gzip")),
            Coding::Zstd => Some(HeaderValue::from_static("zstd")),
        }
    }

    /// A whole body in this coding, where that is worth it, and how it is coded then.
    pub fn whole(self, body: Vec<u8>) -> (Vec<u8>, Coding) {
        if self == Coding::Identity || body.len() < WORTH_IT {
            return (body, Coding::Identity);
        }
        let mut coded = Vec::new();
        let done = Encoder::sized(self, body.len() / 4, Some(body.len())).and_then(|mut encoder| {
            encoder.push(&body)?;
            encoder.finish(&mut coded)
        });
        match done {
            Ok(()) => (coded, self),
            // Memory does not refuse; if it did, the plain body is as good.
            Err(_) => (body, Coding::Identity),
        }
    }
}

/// `q=0.5` in thousandths; `Some(None)` where it is one and no number of the grammar.
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

/// A body that is coded piece by piece.
pub struct Encoder {
    kind: Kind,
}

enum Kind {
    Plain(Vec<u8>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Zstd(ZstdEncoder<'static, Vec<u8>>),
}

impl Encoder {
    /// With room for so many coded bytes. Where zstd has no memory for its tables the body is sent as it is.
    pub fn new(coding: Coding, room: usize) -> (Encoder, Coding) {
        let plain = |_| (Encoder { kind: Kind::Plain(Vec::with_capacity(room)) }, Coding::Identity);
        Encoder::sized(coding, room, None).map_or_else(plain, |encoder| (encoder, coding))
    }

    /// Tables fit the body's size where it is known: most bodies are short.
    fn sized(coding: Coding, room: usize, bytes: Option<usize>) -> io::Result<Encoder> {
        let out = Vec::with_capacity(room);
        let kind = match coding {
            Coding::Identity => Kind::Plain(out),
            Coding::Gzip => Kind::Gzip(Box::new(GzEncoder::new(out, Compression::new(1)))),
            Coding::Zstd => {
                let mut encoder = ZstdEncoder::new(out, 1)?;
                encoder.set_parameter(CParameter::WindowLog(ZSTD_WINDOW_LOG))?;
                encoder.set_pledged_src_size(bytes.map(|bytes| bytes as u64))?;
                Kind::Zstd(encoder)
            }
        };
        Ok(Encoder { kind })
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// Memory does not refuse; the signature is the encoders'.
    pub fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        match &mut self.kind {
            Kind::Plain(out) => out.extend_from_slice(piece),
            Kind::Gzip(encoder) => encoder.write_all(piece)?,
            Kind::Zstd(encoder) => encoder.write_all(piece)?,
        }
        Ok(())
    }

    /// Takes the next piece, which is empty then, and hands over what is coded so far. That may be nothing.
    ///
    /// # Errors
    /// As [`Encoder::push`].
    pub fn code(&mut self, piece: &mut Vec<u8>) -> io::Result<Vec<u8>> {
        if let Kind::Plain(out) = &mut self.kind
            && out.is_empty()
        {
            return Ok(std::mem::take(piece));
        }
        self.push(piece)?;
        piece.clear();
        Ok(self.take())
    }

    /// Hands over what is coded so far, which may be nothing.
    pub fn take(&mut self) -> Vec<u8> {
        match &mut self.kind {
            Kind::Plain(out) => std::mem::take(out),
            Kind::Gzip(encoder) => std::mem::take(encoder.get_mut()),
            Kind::Zstd(encoder) => std::mem::take(encoder.get_mut()),
        }
    }

    /// Appends the last coded bytes to `out`; nothing comes after.
    ///
    /// # Errors
    /// As [`Encoder::push`].
    pub fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        match &mut self.kind {
            Kind::Plain(rest) => out.append(rest),
            Kind::Gzip(encoder) => {
                encoder.try_finish()?;
                out.append(encoder.get_mut());
            }
            Kind::Zstd(encoder) => {
                encoder.do_finish()?;
                out.append(encoder.get_mut());
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.kind {
            Kind::Plain(_) => "plain",
            Kind::Gzip(_) => "gzip",
            Kind::Zstd(_) => "zstd",
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
    fn the_clients_weights_decide() {
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
    fn only_who_refuses_everything_gets_nothing() {
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
    fn short_bodies_are_sent_as_they_are() {
        assert_eq!(Coding::Gzip.whole(vec![b'a'; 1_023]).1, Coding::Identity);
        let (coded, coding) = Coding::Gzip.whole(vec![b'a'; 1_024]);
        assert_eq!((coding, coded.starts_with(&[0x1f, 0x8b])), (Coding::Gzip, true));
        assert!(coded.len() < 100, "{}", coded.len());
        let (coded, coding) = Coding::Zstd.whole(vec![b'a'; 1_024]);
        assert_eq!((coding, coded.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])), (Coding::Zstd, true));
        assert!(coded.len() < 100, "{}", coded.len());
        assert_eq!(Coding::Identity.whole(vec![b'a'; 10_000]), (vec![b'a'; 10_000], Coding::Identity));
    }

    proptest! {
        #[test]
        fn pieces_come_back_as_one_body(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5_000), 0..20)) {
            for coding in [Coding::Identity, Coding::Gzip, Coding::Zstd] {
                let mut encoder = Encoder::new(coding, 0).0;
                let mut coded = Vec::new();
                for piece in &pieces {
                    encoder.push(piece).expect("memory");
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
                prop_assert_eq!(body, pieces.concat());
            }
        }

        #[test]
        fn hostile_headers_are_no_panic(bytes in prop::collection::vec(0x20_u8..0x7f, 0..60)) {
            let mut headers = HeaderMap::new();
            headers.append(header::ACCEPT_ENCODING, HeaderValue::from_bytes(&bytes).expect("visible"));
            let _ = Coding::of(&headers);
        }
    }
}
