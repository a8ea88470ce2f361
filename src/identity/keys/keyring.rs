//! All API keys in memory, indexed by id and by the hash of their secret, so that no request reads
//! the store to look up its key.
//!
//! After every change a key is loaded again from the store, under the ring's lock, so that the ring
//! holds the later of two concurrent changes. A deleted key leaves the ring before its deletion is
//! written.
//!
//! | file | subject |
//! |---|---|
//! | `changes` | creating, changing and deleting keys |
//! | `lookup` | requests with a key or an embed token, and the time of last use |

mod changes;
mod lookup;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::model::{OrgId, OrgSlug, Timestamp};
use crate::sync::IgnorePoison as _;

use crate::identity::Identity;
use crate::identity::keys::api_key::{ApiKey, KeyUsage};
use crate::identity::keys::embed_token::{self, CompiledKeyPolicy, TokenKey};
use crate::identity::tables::id::{KeyId, Secret, SecretHash};
use crate::identity::tables::key::{EmbedPolicy, KeyRow, RotatedRow, TokenAlgorithm, UsedRow};
use crate::identity::tables::master::SealedFor;
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::store::StoreError;

pub(in crate::identity) use changes::event;
pub use lookup::{SharedDashboard, VerifiedToken};

/// A key with its verification material.
#[derive(Debug)]
struct KeyEntry {
    key: Arc<ApiKey>,
    secret: SecretHash,
    /// `None` if the key may not sign tokens, or its material is damaged.
    tokens: Option<TokenKey>,
    /// The secret before the last rotation.
    previous: Option<PreviousSecret>,
}

/// The secret of a key before its last rotation.
#[derive(Debug)]
struct PreviousSecret {
    secret: SecretHash,
    tokens: Option<TokenKey>,
    /// The secret is refused from this time on.
    until: Timestamp,
}

impl KeyEntry {
    /// Returns the previous secret while it is valid.
    fn previous(&self, now: Timestamp) -> Option<&PreviousSecret> {
        self.previous.as_ref().filter(|previous| now < previous.until)
    }

    fn opens(&self, secret: SecretHash, now: Timestamp) -> bool {
        self.secret == secret || self.previous(now).is_some_and(|previous| previous.secret == secret)
    }
}

/// All rows of one key.
struct StoredKey {
    org: OrgId,
    id: KeyId,
    row: KeyRow,
    rotated: Option<RotatedRow>,
}

/// The keys of all organisations.
#[derive(Debug, Default)]
pub(in crate::identity) struct Keyring(RwLock<Ring>);

#[derive(Debug, Default)]
struct Ring {
    by_id: HashMap<KeyId, Arc<KeyEntry>>,
    by_secret: HashMap<SecretHash, KeyId>,
    /// Oldest first within an organisation.
    by_org: BTreeMap<OrgId, BTreeMap<(Timestamp, KeyId), Arc<ApiKey>>>,
    /// Keys whose last use waits for the next flush.
    used: Vec<Arc<ApiKey>>,
}

impl Ring {
    fn insert(&mut self, entry: KeyEntry) {
        let (key, secret) = (Arc::clone(&entry.key), entry.secret);
        let previous = entry.previous.as_ref().map(|previous| previous.secret);
        self.remove(key.id);
        self.by_org.entry(key.org).or_default().insert((key.created_at, key.id), Arc::clone(&key));
        for secret in previous.into_iter().chain([secret]) {
            self.by_secret.insert(secret, key.id);
        }
        self.by_id.insert(key.id, Arc::new(entry));
    }

    fn remove(&mut self, id: KeyId) {
        let Some(entry) = self.by_id.remove(&id) else { return };
        self.by_secret.remove(&entry.secret);
        if let Some(previous) = &entry.previous {
            self.by_secret.remove(&previous.secret);
        }
        if let Some(own) = self.by_org.get_mut(&entry.key.org) {
            own.remove(&(entry.key.created_at, id));
        }
    }
}

impl Keyring {
    fn read(&self) -> RwLockReadGuard<'_, Ring> {
        self.0.read().ignore_poison()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Ring> {
        self.0.write().ignore_poison()
    }
}

pub(in crate::identity) fn sealed_for(id: &KeyId) -> SealedFor<'_> {
    SealedFor { kind: "api_key", id: id.as_bytes() }
}

impl Identity {
    fn entry(
        &self,
        slug: &OrgSlug,
        stored: StoredKey,
        policy: &CompiledKeyPolicy,
        usage: Arc<KeyUsage>,
    ) -> KeyEntry {
        let StoredKey { org, id, row, rotated } = stored;
        let (secret, sealed) = (row.secret, row.sealed);
        let key = Arc::new(ApiKey {
            id,
            org,
            slug: slug.clone(),
            name: row.name,
            scopes: row.scopes,
            hint: row.hint,
            created_by: row.created_by,
            created_at: row.created_at,
            expires_at: row.expires_at,
            disabled: row.disabled,
            embed: row.embed,
            ingest: row.ingest,
            read: row.read,
            tokens_valid_after: row.tokens_valid_after,
            secret_kept: sealed.is_some(),
            usage,
        });
        let previous = rotated.map(|rotated| PreviousSecret {
            secret: rotated.secret,
            // An uploaded public key does not depend on the secret, so there is no previous one.
            tokens: rotated.sealed.and_then(|sealed| self.token_key(&key, Some(&sealed), policy)),
            until: rotated.until,
        });
        let tokens = self.token_key(&key, sealed.as_deref(), policy);
        KeyEntry { key, secret, tokens, previous }
    }

    /// Returns the verification material of `key`; `None` if it may not sign tokens, or its
    /// material is damaged.
    fn token_key(&self, key: &ApiKey, sealed: Option<&[u8]>, policy: &CompiledKeyPolicy) -> Option<TokenKey> {
        let lacks_secret = key.embed.alg == TokenAlgorithm::Hs256 && sealed.is_none();
        if !key.scopes.embed || lacks_secret {
            return None;
        }
        let opened = sealed.map(|sealed| self.sealing.open(sealed_for(&key.id), sealed));
        // With another master key or a damaged row this key verifies nothing; the other keys still
        // work.
        let secret = match opened.transpose() {
            Ok(bytes) => bytes.and_then(|bytes| String::from_utf8(bytes).ok()).map(Secret::new),
            Err(error) => {
                tracing::error!(key.id = %key.id, %error, "this API key cannot verify embed tokens");
                None
            }
        };
        let tokens = TokenKey::new(key, secret, policy);
        if let Err(error) = &tokens {
            tracing::error!(key.id = %key.id, %error, "this API key cannot verify embed tokens");
        }
        tokens.ok()
    }

    /// Removes all keys of an organisation from the ring. Returns their number.
    pub(in crate::identity) fn forget_keys_of(&self, org: OrgId) -> usize {
        let mut ring = self.keyring.write();
        let own: Vec<KeyId> =
            ring.by_org.get(&org).into_iter().flat_map(|own| own.keys().map(|(_, id)| *id)).collect();
        own.iter().for_each(|id| ring.remove(*id));
        ring.by_org.remove(&org);
        own.len()
    }

    /// Returns the number of keys. Does not access the disk.
    pub(in crate::identity) fn keys_count(&self) -> usize {
        self.keyring.read().by_id.len()
    }

    /// Loads all keys into a new ring, which replaces the present one only if it is complete.
    pub(in crate::identity) fn load_keys(&self) -> Result<(), StoreError> {
        // Compiled before the ring is locked, which every request with a credential reads.
        let ahead = self.rows::<KeyRow>(&())?.into_iter();
        let compiled = |policy: EmbedPolicy| (embed_token::compile_key_policy(&policy), policy);
        let mut ahead: HashMap<_, _> = ahead.map(|(key, row)| (key, compiled(row.embed.policy))).collect();
        let mut ring = self.keyring.write();
        let slugs: HashMap<OrgId, OrgSlug> = self.orgs()?.into_iter().map(|org| (org.id, org.slug)).collect();
        let used: HashMap<(OrgId, KeyId), UsedRow> = self.rows::<UsedRow>(&())?.into_iter().collect();
        let mut rotations: HashMap<(OrgId, KeyId), RotatedRow> =
            self.rows::<RotatedRow>(&())?.into_iter().collect();
        let mut loaded = Ring::default();
        for ((org, id), row) in self.rows::<KeyRow>(&())? {
            let Some(slug) = slugs.get(&org) else {
                if self.is_being_removed(org) {
                    continue;
                }
                return Err(StoreError::Inconsistent("an API key of no organisation"));
            };
            let known = ring.by_id.get(&id).map(|entry| Arc::clone(&entry.key.usage));
            let stored = || Arc::new(KeyUsage::stored(used.get(&(org, id)).map(|row| row.0)));
            let rotated = rotations.remove(&(org, id));
            let policy = match ahead.remove(&(org, id)) {
                Some((compiled, policy)) if policy == row.embed.policy => compiled,
                // Another change was committed in between.
                _ => embed_token::compile_key_policy(&row.embed.policy),
            };
            let usage = known.unwrap_or_else(stored);
            loaded.insert(self.entry(slug, StoredKey { org, id, row, rotated }, &policy, usage));
        }
        loaded.used = std::mem::take(&mut ring.used);
        *ring = loaded;
        Ok(())
    }

    /// Updates the ring with the stored state of one key.
    pub(in crate::identity) fn reload_key(
        &self,
        org: OrgId,
        id: KeyId,
    ) -> Result<Option<Arc<ApiKey>>, StoreError> {
        // Compiled before the ring is locked, which every request with a credential reads.
        let ahead = self.row::<KeyRow>(&(org, id))?.map(|row| row.embed.policy);
        let ahead = ahead.map(|policy| (embed_token::compile_key_policy(&policy), policy));
        let mut ring = self.keyring.write();
        let Some(row) = self.row::<KeyRow>(&(org, id))? else {
            ring.remove(id);
            return Ok(None);
        };
        let slug = match ring.by_id.get(&id) {
            Some(entry) => entry.key.slug.clone(),
            None => {
                // The organisation was deleted meanwhile, and the key with it.
                let Some(row) = self.row::<OrgRow>(&org)? else { return Ok(None) };
                OrgSlug::parse(&row.slug)
                    .map_err(|_| StoreError::Inconsistent("an organisation's slug is none"))?
            }
        };
        let usage = ring
            .by_id
            .get(&id)
            .map_or_else(|| Arc::new(KeyUsage::stored(None)), |entry| Arc::clone(&entry.key.usage));
        let rotated = self.row::<RotatedRow>(&(org, id))?;
        let policy = match ahead {
            Some((compiled, policy)) if policy == row.embed.policy => compiled,
            // Another change was committed in between.
            _ => embed_token::compile_key_policy(&row.embed.policy),
        };
        let entry = self.entry(&slug, StoredKey { org, id, row, rotated }, &policy, usage);
        let key = Arc::clone(&entry.key);
        ring.insert(entry);
        Ok(Some(key))
    }

    /// Returns an organisation's keys, oldest first. Does not access the disk.
    pub fn keys(&self, org: OrgId) -> Vec<Arc<ApiKey>> {
        self.keyring.read().by_org.get(&org).into_iter().flat_map(|own| own.values().cloned()).collect()
    }

    /// Returns a key of an organisation; `None` also for another organisation's key. Does not
    /// access the disk.
    pub fn key(&self, org: OrgId, key: KeyId) -> Option<Arc<ApiKey>> {
        self.keyring
            .read()
            .by_id
            .get(&key)
            .map(|entry| Arc::clone(&entry.key))
            .filter(|found| found.org == org)
    }
}
