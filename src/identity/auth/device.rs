//! The cookie `ms_device`, which identifies a browser that has logged in before
//! (docs/specification.md D4).
//!
//! The cookie grants no access. It gives a known browser a gate of its own, so that failures of
//! other clients do not delay the owner. The value is `dvc_` and base64url of `16 byte random id,
//! u64 BE expiry in ms, 16 byte tag`. The tag is an HMAC of those 24 bytes and the address, keyed
//! from the master key. Nothing is stored, and the cookie is valid for one address only.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;

use crate::entropy::Entropy;
use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::tables::id::Secret;
use crate::identity::tables::user::Email;

/// Lifetime of the cookie after a login: longer than that of the longest unused session.
pub const DEVICE_TTL: Duration = Duration::from_secs(365 * 24 * 3_600);

const PREFIX: &str = "dvc_";
const ID_BYTES: usize = 16;
const SIGNED_BYTES: usize = ID_BYTES + 8;

/// Id of a known browser.
pub(super) type DeviceId = [u8; ID_BYTES];

impl Identity {
    /// Creates the cookie `ms_device` for a browser that just logged in to the account of this
    /// address.
    pub fn device_token(&self, address: &str, now: Timestamp, rng: &mut Entropy) -> Secret {
        let expiry_ms = u64::try_from(now.plus(DEVICE_TTL).as_ms()).unwrap_or_default();
        let signed = [rng.bytes::<ID_BYTES>().as_slice(), &expiry_ms.to_be_bytes()].concat();
        let token = [signed.as_slice(), &self.device_tag(&signed, address)].concat();
        Secret::new(format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&token)))
    }

    fn device_tag(&self, signed: &[u8], address: &str) -> [u8; 16] {
        let [tag @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
            self.sealing.derive("device", &[signed, address.as_bytes()].concat());
        tag
    }

    /// Returns whether the cookie `ms_device` is that of a browser that logged in to the account of
    /// this address.
    pub fn knows_device(&self, cookie: Option<&str>, address: &Email, now: Timestamp) -> bool {
        self.known_device(cookie, address.as_str(), now).is_some()
    }

    /// Returns the id of the browser if it has logged in to this address before.
    pub(in crate::identity) fn known_device(
        &self,
        token: Option<&str>,
        address: &str,
        now: Timestamp,
    ) -> Option<DeviceId> {
        let text = token?.strip_prefix(PREFIX).filter(|text| text.len() == 54)?;
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
        let (signed, tag) = bytes.split_at_checked(SIGNED_BYTES)?;
        let (id, expiry) = signed.split_first_chunk::<ID_BYTES>()?;
        let expiry_ms = u64::from_be_bytes(expiry.try_into().ok()?);
        let made_here = same(&self.device_tag(signed, address), tag);
        (made_here && u64::try_from(now.as_ms()).is_ok_and(|now_ms| now_ms < expiry_ms)).then_some(*id)
    }
}

/// Compares two byte strings in a time that does not depend on the position of a difference.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}
