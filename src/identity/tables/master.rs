//! The master key, which is kept outside the database (docs/specification.md D8).
//!
//! Without it, no sealed secret in a copied database can be opened. A sealed value is `u8 version =
//! 1, 12 byte random nonce, AES-256-GCM ciphertext, 16 byte tag`. The associated data is `record
//! kind, 0x00, record id`, so a value moved to another record does not open. Values derived from
//! the key are HMAC-SHA-256 of `purpose, 0x00, input`.

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::entropy::Entropy;
use crate::kv::MasterKey;
use crate::model::StoreId;

const VERSION: u8 = 1;
const NONCE_BYTES: usize = 12;

/// The master key with its operations. It prints as `***`.
#[derive(Clone)]
pub(in crate::identity) struct SealingKey([u8; 32]);

/// A sealed value that cannot be opened: another key, another record, or damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a sealed secret cannot be opened: it is damaged, or was sealed with another master key")]
pub struct SealError;

/// The record that a sealed value belongs to.
#[derive(Clone, Copy, Debug)]
pub(in crate::identity) struct SealedFor<'a> {
    /// The kind of record: `totp`, `api_key`.
    pub(in crate::identity) kind: &'static str,
    /// The key.
    pub(in crate::identity) id: &'a [u8],
}

impl SealedFor<'_> {
    fn associated(&self) -> Vec<u8> {
        [self.kind.as_bytes(), &[0], self.id].concat()
    }
}

/// Returns the value by which a store recognises its master key: HMAC of the store's id, for
/// `Control::bind_master_key`.
pub fn master_key_mark(key: &MasterKey, store: StoreId) -> [u8; 32] {
    SealingKey::new(key).derive("store", &store.0)
}

impl SealingKey {
    /// Wraps the 32 bytes of the key.
    pub(in crate::identity) const fn new(key: &MasterKey) -> SealingKey {
        SealingKey(key.0)
    }

    /// Returns a keyed hash, for maps and indexes that must not contain the plain value.
    pub(in crate::identity) fn derive(&self, purpose: &'static str, input: &[u8]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(purpose.as_bytes());
        mac.update(&[0]);
        mac.update(input);
        mac.finalize().into_bytes().into()
    }

    /// Seals a secret for one record.
    pub(in crate::identity) fn seal(
        &self,
        record: SealedFor<'_>,
        plain: &[u8],
        rng: &mut Entropy,
    ) -> Vec<u8> {
        let nonce: [u8; NONCE_BYTES] = rng.bytes();
        let payload = Payload { msg: plain, aad: &record.associated() };
        let sealed = self
            .cipher()
            .encrypt(&Nonce::from(nonce), payload)
            .expect("a few hundred bytes: far below GCM's limit of 64 GiB");
        [&[VERSION], nonce.as_slice(), &sealed].concat()
    }

    /// Opens a value sealed for the same record.
    pub(in crate::identity) fn open(
        &self,
        record: SealedFor<'_>,
        sealed: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let (version, rest) = sealed.split_first().ok_or(SealError)?;
        let (nonce, text) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(SealError)?;
        if *version != VERSION {
            return Err(SealError);
        }
        let payload = Payload { msg: text, aad: &record.associated() };
        self.cipher().decrypt(&Nonce::from(*nonce), payload).map_err(|_| SealError)
    }

    fn cipher(&self) -> Aes256Gcm {
        Aes256Gcm::new(&self.0.into())
    }
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealingKey(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: SealedFor<'_> = SealedFor { kind: "totp", id: b"user one" };

    #[test]
    fn a_sealed_secret_opens_only_for_its_record_and_key() {
        let key = SealingKey([7; 32]);
        let sealed = key.seal(HERE, b"secret", &mut Entropy::seeded(3));
        assert_eq!(key.open(HERE, &sealed).expect("opens"), b"secret");
        assert_eq!(key.open(SealedFor { id: b"user two", ..HERE }, &sealed), Err(SealError));
        assert_eq!(key.open(SealedFor { kind: "api_key", ..HERE }, &sealed), Err(SealError));
        assert_eq!(SealingKey([8; 32]).open(HERE, &sealed), Err(SealError));
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert_eq!(key.open(HERE, &bad), Err(SealError), "byte {at}");
            assert_eq!(key.open(HERE, &sealed[..at]), Err(SealError), "cut at {at}");
        }
    }

    #[test]
    fn the_key_mark_depends_on_key_and_store() {
        let of = |key: u8, store: u8| master_key_mark(&MasterKey([key; 32]), StoreId([store; 16]));
        assert_eq!(of(1, 1), of(1, 1));
        assert_ne!(of(1, 1), of(2, 1));
        assert_ne!(of(1, 1), of(1, 2));
    }

    #[test]
    fn the_key_does_not_print() {
        assert_eq!(format!("{:?}", SealingKey([7; 32])), "SealingKey(***)");
    }
}
