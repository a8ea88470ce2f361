//! Rotation of an API key's secret; the previous secret stays valid for a while
//! (docs/specification.md C4).
//!
//! A key has at most two secrets: another rotation ends the older one at once. The older secret
//! identifies the key and verifies tokens as before; new tokens are signed with the newer one.

use std::time::Duration;

use crate::entropy::Entropy;
use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::audit;
use crate::identity::keys::api_key::{self, CreatedKey, KeyError};
use crate::identity::keys::keyring::{event, sealed_for};
use crate::identity::tables::id::{KeyId, UserId};
use crate::identity::tables::key::{KeyRow, RotatedRow, TokenAlgorithm};
use crate::identity::tables::store::{StoreError, read};

/// A request to rotate a key.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// The organisation of the key.
    pub org: OrgId,
    /// The key.
    pub key: KeyId,
    /// The actor; `None` on the command line.
    pub actor: Option<UserId>,
    /// Time for which the previous secret stays valid; zero ends it at once.
    pub overlap: Duration,
}

/// Maximum number of rows that one change of the sweep removes.
const ROWS_A_CHANGE: usize = 50;

impl Identity {
    /// Rotates the secret of a key. Blocks (commit).
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn rotate_key(
        &self,
        rotation: Rotation,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<CreatedKey, KeyError> {
        let Rotation { org, key, actor, overlap } = rotation;
        let secret = api_key::random_secret(api_key::KEY_SECRET, key, rng);
        let sealed = self.sealing.seal(sealed_for(&key), secret.expose().as_bytes(), rng);
        let (hash, hint, until) = (secret.hash(), api_key::hint(&secret), now.plus(overlap));
        self.change(move |txn| {
            let row = read::<KeyRow>(txn, &(org, key))?.ok_or(KeyError::NotFound)?;
            // The secret is stored only if it has to verify tokens.
            let verifies = row.scopes.embed && row.embed.alg == TokenAlgorithm::Hs256;
            let sealed = verifies.then_some(sealed);
            let before = RotatedRow { secret: row.secret, sealed: row.sealed.clone(), until };
            txn.put(&(org, key), &KeyRow { secret: hash, sealed, hint, ..row });
            match overlap.is_zero() {
                true => txn.remove::<RotatedRow>(&(org, key)),
                false => txn.put(&(org, key), &before),
            }
            let overlap = format!("the secret before works for {} s", overlap.as_secs());
            audit::record(txn, &event(actor, "key.rotated", org, key).detail(&overlap), now)?;
            Ok::<_, KeyError>(())
        })?;
        let key = self.reload_key(org, key)?.ok_or(KeyError::NotFound)?;
        Ok(CreatedKey { key, secret })
    }

    /// Removes previous secrets whose overlap has ended.
    pub(in crate::identity) fn sweep_rotations(&self, now: Timestamp) -> Result<(), StoreError> {
        let ended: Vec<(OrgId, KeyId)> = self
            .rows::<RotatedRow>(&())?
            .into_iter()
            .filter(|(_, row)| row.until <= now)
            .map(|(key, _)| key)
            .collect();
        for some in ended.chunks(ROWS_A_CHANGE) {
            let keys = some.to_vec();
            self.change(move |txn| {
                for key in &keys {
                    // The key may have been rotated again since the row was read.
                    if read::<RotatedRow>(txn, key)?.is_some_and(|row| row.until <= now) {
                        txn.remove::<RotatedRow>(key);
                    }
                }
                Ok::<_, StoreError>(())
            })?;
            for (org, key) in some {
                self.reload_key(*org, *key)?;
            }
        }
        Ok(())
    }
}
