//! The id of a request, which is logged, returned in a header, and part of every error body.

use std::sync::Mutex;

use axum::http::HeaderValue;
use data_encoding::HEXLOWER;

use crate::entropy::Entropy;
use crate::sync::IgnorePoison as _;

/// The id of a request.
#[derive(Clone, Debug)]
pub(super) struct RequestId(HeaderValue);

impl RequestId {
    /// Takes the id of the request if it has 1 to 64 letters, digits, `-`, `_`, `.`. Any other id
    /// is replaced, so that no foreign characters reach logs and headers.
    pub(super) fn of(inbound: Option<&HeaderValue>, ids: &Mutex<Entropy>) -> RequestId {
        let sane = |value: &&HeaderValue| {
            let bytes = value.as_bytes();
            (1..=64).contains(&bytes.len())
                && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        };
        match inbound.filter(sane) {
            Some(value) => RequestId(value.clone()),
            None => RequestId::random(&mut ids.lock().ignore_poison()),
        }
    }

    /// Returns 80 random bits in hexadecimal.
    fn random(rng: &mut Entropy) -> RequestId {
        let mut text = [0; 20];
        HEXLOWER.encode_mut(&rng.bytes::<10>(), &mut text);
        RequestId(HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("none")))
    }

    /// Returns the id as text.
    pub(super) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or("none")
    }

    /// Returns the value of `X-Request-Id`.
    pub(super) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sane_ids_are_echoed() {
        let ids = Mutex::new(Entropy::seeded(1));
        let of = |value: Option<&HeaderValue>| RequestId::of(value, &ids);
        for sane in ["a", "01J-abc_D.9", &"x".repeat(64)] {
            assert_eq!(of(Some(&HeaderValue::from_str(sane).expect("a value"))).as_str(), sane);
        }
        for foreign in ["", "a b", "a%0d%0aX: y", "<b>", "\u{e4}", &"x".repeat(65)] {
            let value = HeaderValue::from_bytes(foreign.as_bytes()).expect("a value");
            let id = of(Some(&value));
            assert_eq!(id.as_str().len(), 20, "{foreign}");
            assert_ne!(id.as_str(), foreign);
        }
        assert_ne!(of(None).as_str(), of(None).as_str());
    }
}
