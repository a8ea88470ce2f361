//! Which coding of a body a client takes (RFC 9110, section 12.5.3), and bodies in it.
//!
//! Only bodies of a KiB or more are coded: below that headers and the client's work cost more than the bytes. gzip is
//! level 1: on JSON of numbers the next levels take twice as long for a tenth of the bytes.

use std::io::{self, Write as _};

use axum::http::{HeaderMap, HeaderValue, header};
use flate2::Compression;
use flate2::write::GzEncoder;

/// Shorter bodies are sent as they are.
const WORTH_IT: usize = 1_024;

/// How a body is coded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coding {
    /// As it is.
    #[default]
    Identity,
    /// RFC 1952.
    Gzip,
}

impl Coding {
    /// What `Accept-Encoding` asks for: gzip where its weight is not zero and not below that of the plain body.
    ///
    /// A client that refuses everything gets the plain body, as RFC 9110 lets a server do.
    pub fn of(headers: &HeaderMap) -> Coding {
        let (mut gzip, mut identity, mut any) = (None, None, None);
        for value in headers.get_all(header::ACCEPT_ENCODING) {
            let Ok(text) = value.to_str() else { continue };
            for item in text.split(',') {
                let mut parts = item.split(';').map(str::trim);
                let name = parts.next().unwrap_or_default();
                let weight = parts.find_map(quality).unwrap_or(Some(1_000));
                // A weight that is none says nothing.
                let Some(weight) = weight else { continue };
                let slot = match name {
                    _ if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") => {
                        &mut gzip
                    }
                    _ if name.eq_ignore_ascii_case("identity") => &mut identity,
                    "*" => &mut any,
                    _ => continue,
                };
                *slot = Some(slot.unwrap_or(0).max(weight));
            }
        }
        let gzip: u16 = gzip.or(any).unwrap_or(0);
        if gzip > 0 && gzip >= identity.unwrap_or(0) { Coding::Gzip } else { Coding::Identity }
    }

    /// The value of `Content-Encoding`.
    pub fn name(self) -> Option<HeaderValue> {
        match self {
            Coding::Identity => None,
            Coding::Gzip => Some(HeaderValue::from_static("gzip")),
        }
    }

    /// A whole body in this coding, where that is worth it, and how it is coded then.
    pub fn whole(self, body: Vec<u8>) -> (Vec<u8>, Coding) {
        if self == Coding::Identity || body.len() < WORTH_IT {
            return (body, Coding::Identity);
        }
        let mut encoder = Encoder::new(self, body.len() / 4);
        let mut coded = Vec::new();
        match encoder.push(&body).and_then(|()| encoder.finish(&mut coded)) {
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
}

impl Encoder {
    /// With room for so many coded bytes.
    pub fn new(coding: Coding, room: usize) -> Encoder {
        let out = Vec::with_capacity(room);
        let kind = match coding {
            Coding::Identity => Kind::Plain(out),
            Coding::Gzip => Kind::Gzip(Box::new(GzEncoder::new(out, Compression::new(1)))),
        };
        Encoder { kind }
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// Memory does not refuse; the signature is the encoders'.
    pub fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        match &mut self.kind {
            Kind::Plain(out) => out.extend_from_slice(piece),
            Kind::Gzip(encoder) => encoder.write_all(piece)?,
        }
        Ok(())
    }

    /// Hands over what is coded so far, which may be nothing.
    pub fn take(&mut self) -> Vec<u8> {
        match &mut self.kind {
            Kind::Plain(out) => std::mem::take(out),
            Kind::Gzip(encoder) => std::mem::take(encoder.get_mut()),
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
        }
        Ok(())
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.kind {
            Kind::Plain(_) => "plain",
            Kind::Gzip(_) => "gzip",
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
        let cases: [(&[&str], Coding); 19] = [
            (&[], Coding::Identity),
            (&[""], Coding::Identity),
            (&["gzip"], Coding::Gzip),
            (&["GZIP"], Coding::Gzip),
            (&["x-gzip"], Coding::Gzip),
            (&["gzip, deflate, br, zstd"], Coding::Gzip),
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
    fn short_bodies_are_sent_as_they_are() {
        assert_eq!(Coding::Gzip.whole(vec![b'a'; 1_023]).1, Coding::Identity);
        let (coded, coding) = Coding::Gzip.whole(vec![b'a'; 1_024]);
        assert_eq!((coding, coded.starts_with(&[0x1f, 0x8b])), (Coding::Gzip, true));
        assert!(coded.len() < 100, "{}", coded.len());
        assert_eq!(Coding::Identity.whole(vec![b'a'; 10_000]), (vec![b'a'; 10_000], Coding::Identity));
    }

    proptest! {
        #[test]
        fn pieces_come_back_as_one_body(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5_000), 0..20)) {
            for coding in [Coding::Identity, Coding::Gzip] {
                let mut encoder = Encoder::new(coding, 0);
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
