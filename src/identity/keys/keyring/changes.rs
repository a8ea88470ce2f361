//! Creating, changing and deleting keys.

use std::sync::Arc;

use crate::entropy::Entropy;
use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::keys::api_key::{
    self, ApiKey, ApiKeyChange, CreatedKey, EmbedChange, FieldError, KEYS_MAX, KeyError, NewApiKey,
};
use crate::identity::keys::embed_token;
use crate::identity::tables::id::{KeyId, UserId};
use crate::identity::tables::key::{KeyRow, ReadSettings, RotatedRow, TokenAlgorithm, UsedRow};
use crate::identity::tables::name;
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::store::read;

use super::sealed_for;

impl Identity {
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
        let secret = api_key::random_secret(api_key::KEY_SECRET, id, rng);
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
    /// the remedy. Blocks (commit).
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

    /// Refuses the tokens of a key on the pages of an origin from now on. Blocks (commit).
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn block_origin(
        &self,
        org: OrgId,
        actor: Option<UserId>,
        key: KeyId,
        origin: String,
        now: Timestamp,
    ) -> Result<Arc<ApiKey>, KeyError> {
        self.change(move |txn| {
            let row = read::<KeyRow>(txn, &(org, key))?.ok_or(KeyError::NotFound)?;
            let mut blocked = row.embed.blocked_origins.clone();
            if blocked.contains(&origin) {
                return Ok(());
            }
            blocked.push(origin.clone());
            let embed = EmbedChange { blocked_origins: Some(blocked), ..EmbedChange::default() };
            let changed = changed(row, ApiKeyChange { embed, ..ApiKeyChange::default() }, now)?;
            txn.put(&(org, key), &changed);
            let detail = format!("blocked origin {origin}");
            audit::record(txn, &event(actor, "key.updated", org, key).detail(&detail), now)?;
            Ok::<_, KeyError>(())
        })?;
        self.reload_key(org, key)?.ok_or(KeyError::NotFound)
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
}

/// Creates an entry about a change of a key.
pub(in crate::identity) fn event(
    actor: Option<UserId>,
    action: &'static str,
    org: OrgId,
    key: KeyId,
) -> Event {
    Event::by_actor(actor, action).of(org).target(&key.to_string())
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
        ("embed.query_seconds_per_minute", one.query_seconds_per_minute != other.query_seconds_per_minute),
        ("embed.blocked_origins", one.blocked_origins != other.blocked_origins),
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
