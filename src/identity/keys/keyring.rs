//! All API keys in memory, indexed by id and by the hash of their secret, so that no request reads
//! the store to look up its key.
//!
//! After every change a key is loaded again from the store, under the ring's lock, so that the ring
//! holds the later of two concurrent changes. A deleted key leaves the ring before its deletion is
//! written.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::entropy::Entropy;
use crate::model::{OrgId, OrgSlug, Timestamp};
use crate::sync::IgnorePoison as _;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::keys::api_key::{
    self, ApiKey, ApiKeyChange, CreatedKey, FieldError, KEYS_MAX, KeyError, KeyUsage, NewApiKey,
};
use crate::identity::keys::embed_token::{
    self, CheckedClaims, CompiledKeyPolicy, EmbedGrant, EmbedRequest, MintError, MintRequest, MintedToken,
    TokenKey, TokenRefusal,
};
use crate::identity::tables::id::{KeyId, Secret, SecretHash, UserId};
use crate::identity::tables::key::{KeyRow, ReadSettings, RotatedRow, TokenAlgorithm, UsedRow};
use crate::identity::tables::master::SealedFor;
use crate::identity::tables::name;
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::store::{StoreError, read};

/// Minimum difference to the stored time of last use that is written.
const LAG_MS: i64 = 60 * 1_000;

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
        (org, id): (OrgId, KeyId),
        slug: &OrgSlug,
        stored: StoredKey,
        policy: &CompiledKeyPolicy,
        usage: Arc<KeyUsage>,
    ) -> KeyEntry {
        let StoredKey { row, rotated } = stored;
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

    /// Returns the number of keys. Only touches memory.
    pub(in crate::identity) fn keys_count(&self) -> usize {
        self.keyring.read().by_id.len()
    }

    /// Loads all keys into the ring.
    pub(in crate::identity) fn load_keys(&self) -> Result<(), StoreError> {
        let slugs: HashMap<OrgId, OrgSlug> = self.orgs()?.into_iter().map(|org| (org.id, org.slug)).collect();
        let used: HashMap<(OrgId, KeyId), UsedRow> = self.rows::<UsedRow>(&())?.into_iter().collect();
        let mut rotations: HashMap<(OrgId, KeyId), RotatedRow> =
            self.rows::<RotatedRow>(&())?.into_iter().collect();
        let mut ring = self.keyring.write();
        for ((org, id), row) in self.rows::<KeyRow>(&())? {
            let Some(slug) = slugs.get(&org) else {
                if self.is_being_removed(org) {
                    continue;
                }
                return Err(StoreError::Inconsistent("an API key of no organisation"));
            };
            let usage = Arc::new(KeyUsage::stored(used.get(&(org, id)).map(|row| row.0)));
            let rotated = rotations.remove(&(org, id));
            let policy = embed_token::compile_key_policy(&row.embed.policy);
            ring.insert(self.entry((org, id), slug, StoredKey { row, rotated }, &policy, usage));
        }
        Ok(())
    }

    /// Updates the ring with the stored state of one key.
    pub(in crate::identity) fn reload_key(
        &self,
        org: OrgId,
        id: KeyId,
    ) -> Result<Option<Arc<ApiKey>>, StoreError> {
        // Compile before the ring is locked: every request with a key or a token reads it.
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
        let entry = self.entry((org, id), &slug, StoredKey { row, rotated }, &policy, usage);
        let key = Arc::clone(&entry.key);
        ring.insert(entry);
        Ok(Some(key))
    }

    /// Creates a key. `creator` is `None` on the command line. Blocks (commit).
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn create_key(
        &self,
        org: OrgId,
        creator: Option<UserId>,
        mut key: NewApiKey,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<CreatedKey, KeyError> {
        key.name = name::parse(&key.name)?;
        api_key::validate(&mut key, now)?;
        let id = KeyId::random(rng);
        let secret = api_key::random_secret(id, rng);
        let verifies = key.scopes.embed && key.embed.alg == TokenAlgorithm::Hs256;
        let sealed = verifies.then(|| self.sealing.seal(sealed_for(&id), secret.expose().as_bytes(), rng));
        let row = KeyRow {
            name: key.name,
            scopes: key.scopes,
            secret: secret.hash(),
            sealed,
            hint: api_key::hint(&secret),
            created_by: creator,
            created_at: now,
            expires_at: key.expires_at,
            disabled: false,
            embed: key.embed,
            ingest: key.ingest,
            tokens_valid_after: None,
            read: key.read,
        };
        if self.keyring.read().by_org.get(&org).is_some_and(|own| own.len() >= KEYS_MAX) {
            return Err(KeyError::TooMany(KEYS_MAX));
        }
        self.change(move |txn| {
            if read::<OrgRow>(txn, &org)?.is_none() {
                return Err(KeyError::NotFound);
            }
            txn.put(&(org, id), &row);
            audit::record(txn, &event(creator, "key.created", org, id), now)?;
            Ok(())
        })?;
        let key = self.reload_key(org, id)?.ok_or(KeyError::NotFound)?;
        Ok(CreatedKey { key, secret })
    }

    /// Returns an organisation's keys, oldest first. Only touches memory.
    pub fn keys(&self, org: OrgId) -> Vec<Arc<ApiKey>> {
        self.keyring.read().by_org.get(&org).into_iter().flat_map(|own| own.values().cloned()).collect()
    }

    /// Returns a key of an organisation; `None` also for another organisation's key. Only touches
    /// memory.
    pub fn key(&self, org: OrgId, key: KeyId) -> Option<Arc<ApiKey>> {
        self.keyring
            .read()
            .by_id
            .get(&key)
            .map(|entry| Arc::clone(&entry.key))
            .filter(|found| found.org == org)
    }

    /// Changes a key; `actor` is `None` on the command line. Blocks (commit).
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn change_key(
        &self,
        org: OrgId,
        actor: Option<UserId>,
        key: KeyId,
        change: ApiKeyChange,
        now: Timestamp,
    ) -> Result<Arc<ApiKey>, KeyError> {
        self.change(move |txn| {
            let row = read::<KeyRow>(txn, &(org, key))?.ok_or(KeyError::NotFound)?;
            let before = row.clone();
            let changed = changed(row, change, now)?;
            txn.put(&(org, key), &changed);
            let said = differences(&before, &changed).join(" ");
            audit::record(txn, &event(actor, "key.updated", org, key).detail(&said), now)?;
            Ok::<_, KeyError>(())
        })?;
        self.reload_key(org, key)?.ok_or(KeyError::NotFound)
    }

    /// Refuses every token that is accepted at `now`.
    ///
    /// The key stores the first valid date (`iat`): one second beyond the allowed clock difference,
    /// and at least one second after its previous first valid date. So these tokens are refused as
    /// well: tokens dated ahead of `now` within the allowed difference, tokens minted since a
    /// revocation in the same second, and tokens minted after a revocation whose clock was ahead.
    /// Tokens minted from then on have the first valid date until the clock has passed it. Their
    /// expiry is not affected.
    ///
    /// A token that another program signs before the first valid date is refused. This lasts half a
    /// minute after the call, or longer if the clock was ahead at a revocation; then a new key is
    /// the remedy. Blocks (commit). longer if the clock was ahead at a revocation. Then a new key
    /// is the remedy. Blocks (commit).
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn revoke_tokens(
        &self,
        org: OrgId,
        actor: Option<UserId>,
        key: KeyId,
        now: Timestamp,
    ) -> Result<(), KeyError> {
        self.change(move |txn| {
            let row = read::<KeyRow>(txn, &(org, key))?.ok_or(KeyError::NotFound)?;
            let tokens_valid_after = Some(embed_token::first_date_after(row.tokens_valid_after, now));
            txn.put(&(org, key), &KeyRow { tokens_valid_after, ..row });
            audit::record(txn, &event(actor, "key.updated", org, key).detail("tokens revoked"), now)?;
            Ok::<_, KeyError>(())
        })?;
        self.reload_key(org, key)?;
        Ok(())
    }

    /// Deletes a key; from then on the key and its tokens are refused. Blocks (commit).
    ///
    /// # Errors
    /// [`KeyError`]. After a [`KeyError::Store`] the key is still refused until the next start.
    pub fn delete_key(
        &self,
        org: OrgId,
        actor: Option<UserId>,
        key: KeyId,
        now: Timestamp,
    ) -> Result<(), KeyError> {
        if self.key(org, key).is_none() {
            return Err(KeyError::NotFound);
        }
        self.keyring.write().remove(key);
        self.change(move |txn| {
            txn.remove::<KeyRow>(&(org, key));
            txn.remove::<UsedRow>(&(org, key));
            txn.remove::<RotatedRow>(&(org, key));
            audit::record(txn, &event(actor, "key.revoked", org, key), now)?;
            Ok::<_, KeyError>(())
        })?;
        // A concurrent change of the same key may have inserted it again.
        self.reload_key(org, key)?;
        Ok(())
    }

    /// Returns the key with this `secret`; `None` for unknown, disabled and expired keys alike
    /// (`api_key_invalid`). Records the use. Only touches memory.
    pub fn api_key(&self, secret: &str, now: Timestamp) -> Option<Arc<ApiKey>> {
        let hash = api_key::secret_hash(secret)?;
        let found = {
            let ring = self.keyring.read();
            let entry = ring.by_id.get(ring.by_secret.get(&hash)?)?;
            if !entry.opens(hash, now) {
                return None;
            }
            Arc::clone(&entry.key)
        };
        if found.is_refused(now) {
            return None;
        }
        self.record_use(&found, now);
        Some(found)
    }

    /// Verifies an embed token in the order of docs/specification.md D7, steps 1 to 8; the caller
    /// performs steps 9 and 10. Records the use or the refusal. Only touches memory.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub fn embed(&self, request: &EmbedRequest<'_>, now: Timestamp) -> Result<EmbedGrant, TokenRefusal> {
        let token = self.verify_token(request, now)?;
        self.grant(token, now)
    }

    /// The first part of [`Identity::embed`]: everything but the compilation of the token's
    /// matchers. Charge the key before calling [`Identity::grant`]. Records a refusal. Only touches
    /// memory.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub fn verify_token(
        &self,
        request: &EmbedRequest<'_>,
        now: Timestamp,
    ) -> Result<VerifiedToken, TokenRefusal> {
        let entry = self.named_by(request)?;
        let verified = verify(&entry, request, now);
        if let Err(refusal) = &verified {
            self.record_refused(entry.key.org, entry.key.id, refusal, now);
        }
        verified
    }

    /// The second part of [`Identity::embed`]: returns the access that the token grants. Compiles
    /// its matchers or takes them from the cache. Records the use or the refusal. Only touches
    /// memory.
    ///
    /// # Errors
    /// [`TokenRefusal`] if the matchers do not compile within a token's limits.
    pub fn grant(&self, token: VerifiedToken, now: Timestamp) -> Result<EmbedGrant, TokenRefusal> {
        let key = Arc::clone(&token.entry.key);
        let granted = self.granted(token, now);
        match &granted {
            Ok(_) => self.record_use(&key, now),
            Err(refusal) => self.record_refused(key.org, key.id, refusal, now),
        }
        granted
    }

    fn granted(&self, token: VerifiedToken, now: Timestamp) -> Result<EmbedGrant, TokenRefusal> {
        let VerifiedToken { entry, claims } = token;
        let tokens = entry.tokens.as_ref().ok_or(UNKNOWN_KEY)?;
        let matchers = self.token_policies.matchers((entry.key.org, entry.key.id), &claims.policy);
        let matchers = matchers.ok_or(embed_token::BAD_PATTERNS)?;
        Ok(embed_token::effective(&entry.key, tokens, claims, &matchers, now))
    }

    /// Returns whether [`Identity::grant`] compiles nothing: the token has no patterns, or they are
    /// cached.
    pub fn grants_at_once(&self, token: &VerifiedToken) -> bool {
        let VerifiedToken { entry, claims } = token;
        self.token_policies.cached((entry.key.org, entry.key.id), &claims.policy).is_some()
    }

    /// Returns the number of token policies compiled so far.
    pub fn token_policies_compiled(&self) -> u64 {
        self.token_policies.compilations()
    }

    /// Explains a token to a member of `org`: returns why it is refused, or its access. Records
    /// nothing, and reveals nothing about keys of other organisations. Only touches memory.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub fn inspect(
        &self,
        org: OrgId,
        request: &EmbedRequest<'_>,
        now: Timestamp,
    ) -> Result<EmbedGrant, TokenRefusal> {
        let entry = self.named_by(request)?;
        if entry.key.org != org {
            return Err(UNKNOWN_KEY);
        }
        self.granted(verify(&entry, request, now)?, now)
    }

    fn named_by(&self, request: &EmbedRequest<'_>) -> Result<Arc<KeyEntry>, TokenRefusal> {
        let id = embed_token::key_id(request.token)?;
        self.keyring.read().by_id.get(&id).cloned().ok_or(UNKNOWN_KEY)
    }

    /// Mints a token with a key's secret. Only touches memory.
    ///
    /// # Errors
    /// [`MintError`].
    pub fn mint(&self, org: OrgId, request: &MintRequest, now: Timestamp) -> Result<MintedToken, MintError> {
        let entry = self.keyring.read().by_id.get(&request.key).cloned().filter(|entry| entry.key.org == org);
        let entry = entry.ok_or(MintError::UnknownKey)?;
        if entry.key.lacks_secret() {
            return Err(MintError::SecretNotKept);
        }
        let tokens = entry.tokens.as_ref().ok_or(MintError::UnknownKey)?;
        embed_token::mint(&entry.key, tokens, request, now)
    }

    fn record_use(&self, key: &Arc<ApiKey>, now: Timestamp) {
        let usage = &key.usage;
        usage.last_ms.fetch_max(now.as_ms(), Ordering::AcqRel);
        let lag_ms = now.as_ms().saturating_sub(usage.stored_ms.load(Ordering::Acquire));
        if lag_ms >= LAG_MS && !usage.queued.swap(true, Ordering::AcqRel) {
            self.keyring.write().used.push(Arc::clone(key));
        }
    }

    /// Writes the times of last use.
    pub(in crate::identity) fn flush_keys(&self) -> Result<(), StoreError> {
        let used = std::mem::take(&mut self.keyring.write().used);
        for key in &used {
            key.usage.queued.store(false, Ordering::Release);
        }
        let times: Vec<_> =
            used.iter().filter_map(|key| Some(((key.org, key.id), UsedRow(key.last_used()?)))).collect();
        self.put_side(times.clone())?;
        for (key, (_, UsedRow(at))) in used.iter().zip(times) {
            key.usage.stored_ms.fetch_max(at.as_ms(), Ordering::AcqRel);
        }
        Ok(())
    }
}

const UNKNOWN_KEY: TokenRefusal = TokenRefusal::Invalid { reason: "key" };

/// An embed token with verified signature and claims. Its matchers are not compiled yet.
#[derive(Clone, Debug)]
pub struct VerifiedToken {
    entry: Arc<KeyEntry>,
    claims: CheckedClaims,
}

impl VerifiedToken {
    /// The API key that signed it.
    pub fn key(&self) -> KeyId {
        self.entry.key.id
    }

    /// The organisation of that key.
    pub fn org(&self) -> OrgId {
        self.entry.key.org
    }

    /// The requests a second that all tokens of this key share.
    pub fn rate_limit_rps(&self) -> u32 {
        self.entry.key.embed.rate_limit_rps
    }

    /// Returns the allow-lists of [`EmbedGrant::origins`].
    pub fn origins(&self) -> Vec<Vec<String>> {
        embed_token::origins(&self.entry.key, &self.claims.policy)
    }
}

/// Verifies with the current secret, or with the previous one while it is valid.
fn verify(
    entry: &Arc<KeyEntry>,
    request: &EmbedRequest<'_>,
    now: Timestamp,
) -> Result<VerifiedToken, TokenRefusal> {
    let tokens = entry.tokens.as_ref().ok_or(UNKNOWN_KEY)?;
    let mut verified = embed_token::verify(&entry.key, tokens, request, now);
    if verified.as_ref().is_err_and(|refusal| *refusal == embed_token::FOREIGN_SIGNATURE)
        && let Some(tokens) = entry.previous(now).and_then(|previous| previous.tokens.as_ref())
    {
        verified = embed_token::verify(&entry.key, tokens, request, now);
    }
    Ok(VerifiedToken { entry: Arc::clone(entry), claims: verified? })
}

pub(in crate::identity) fn event(
    actor: Option<UserId>,
    action: &'static str,
    org: OrgId,
    key: KeyId,
) -> Event {
    let event = actor.map_or_else(|| Event::unattributed(action), |actor| Event::by(actor, action));
    event.of(org).target(&key.to_string())
}

/// Returns the API names of the settings that differ, without their values.
fn differences(before: &KeyRow, after: &KeyRow) -> Vec<&'static str> {
    let ((one, other), (wrote, writes)) = ((&before.embed, &after.embed), (&before.ingest, &after.ingest));
    let all = [
        ("name", before.name != after.name),
        ("scopes", before.scopes != after.scopes),
        ("expires_at", before.expires_at != after.expires_at),
        ("disabled", before.disabled != after.disabled),
        ("embed.public_key", one.public_key != other.public_key),
        ("embed.rate_limit_rps", one.rate_limit_rps != other.rate_limit_rps),
        ("embed.max_token_ttl_s", one.max_token_ttl_s != other.max_token_ttl_s),
        ("embed.origins", one.origins != other.origins),
        ("embed.policy", one.policy != other.policy),
        ("ingest.rate_limit_rps", wrote.rate_limit_rps != writes.rate_limit_rps),
        ("ingest.samples_per_s", wrote.samples_per_s != writes.samples_per_s),
        ("ingest.labels", wrote.labels != writes.labels),
        ("read.rate_limit_rps", before.read != after.read),
    ];
    all.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

/// Applies a change to a row and validates the result as a whole.
fn changed(row: KeyRow, change: ApiKeyChange, now: Timestamp) -> Result<KeyRow, KeyError> {
    let refuse = |field, message: &str| {
        Err(KeyError::Validation(vec![FieldError { field, code: "invalid", message: message.into() }]))
    };
    let mut wanted = NewApiKey {
        // A stored name that today's rules refuse stays while another field changes.
        name: change.name.map_or(Ok(row.name), |text| name::parse(&text))?,
        scopes: change.scopes.unwrap_or(row.scopes),
        expires_at: change.expires_at.unwrap_or(row.expires_at),
        embed: row.embed.clone(),
        ingest: row.ingest.clone(),
        read: change.read_rate_limit_rps.map_or(row.read, |rate_limit_rps| ReadSettings { rate_limit_rps }),
    };
    change.embed.apply(&mut wanted.embed);
    change.ingest.apply(&mut wanted.ingest);
    if wanted.embed.alg != row.embed.alg {
        return refuse("embed.alg", "is fixed when the key is created");
    }
    // An expiry in the past may stay while another field changes.
    let checked_at = if change.expires_at.is_some() { now } else { Timestamp::MIN };
    api_key::validate(&mut wanted, checked_at)?;
    Ok(KeyRow {
        name: wanted.name,
        scopes: wanted.scopes,
        expires_at: wanted.expires_at,
        disabled: change.disabled.unwrap_or(row.disabled),
        embed: wanted.embed,
        ingest: wanted.ingest,
        read: wanted.read,
        ..row
    })
}
