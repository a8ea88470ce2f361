//! Requests with a key or an embed token: lookup, verification, and the time of last use.

use std::sync::Arc;

use crate::model::{OrgId, OrgSlug, Timestamp};

use crate::identity::Identity;
use crate::identity::keys::api_key::{self, ApiKey};
use crate::identity::keys::embed_token::{
    self, CheckedClaims, EmbedGrant, EmbedRequest, MintError, MintRequest, MintedToken, TokenRefusal,
};
use crate::identity::tables::key::{Endpoint, UsedRow};
use crate::identity::tables::store::StoreError;

use super::KeyEntry;

const UNKNOWN_KEY: TokenRefusal = TokenRefusal::Invalid { reason: "key" };

/// An embed token with verified signature and claims. Its matchers are not compiled yet.
#[derive(Clone, Debug)]
pub struct VerifiedToken {
    entry: Arc<KeyEntry>,
    claims: CheckedClaims,
}

/// A dashboard that a page shows with a public link or an embed token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDashboard {
    /// The slug of the organisation.
    pub slug: OrgSlug,
    /// The uid of the dashboard.
    pub uid: String,
    /// Allow-lists of origins whose pages may frame the page; an origin must be in each list.
    pub origins: Vec<Vec<String>>,
}

impl VerifiedToken {
    /// Returns the API key that signed it, as it was when the token was verified.
    pub fn source(&self) -> Arc<ApiKey> {
        Arc::clone(&self.entry.key)
    }

    /// The organisation of that key.
    pub fn org(&self) -> OrgId {
        self.entry.key.org
    }

    /// Returns the uid of the dashboard that the token or its key names.
    pub fn dashboard(&self) -> Option<&str> {
        embed_token::dashboard_of(&self.entry.key, &self.claims.policy)
    }

    /// Returns the viewer that the token names.
    pub fn sub(&self) -> Option<&str> {
        self.claims.sub.as_deref()
    }

    /// Returns the allow-lists of [`EmbedGrant::origins`].
    pub fn origins(&self) -> Vec<Vec<String>> {
        embed_token::origins(&self.entry.key, &self.claims.policy)
    }
}

impl Identity {
    /// Returns the key with this `secret`; `None` for unknown, disabled and expired keys alike
    /// (`api_key_invalid`). Records the use. Does not access the disk.
    pub fn api_key(&self, secret: &str, now: Timestamp) -> Option<Arc<ApiKey>> {
        let hash = api_key::secret_hash(api_key::KEY_SECRET, secret)?;
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
    /// performs steps 9 and 10. Records the use or the refusal. Does not access the disk.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub fn embed(&self, request: &EmbedRequest<'_>, now: Timestamp) -> Result<EmbedGrant, TokenRefusal> {
        let token = self.verify_token(request, now)?;
        self.grant(token, now)
    }

    /// The first part of [`Identity::embed`]: everything but the compilation of the token's
    /// matchers. Charge the key before calling [`Identity::grant`]. Records a refusal. Does not
    /// access the disk.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub fn verify_token(
        &self,
        request: &EmbedRequest<'_>,
        now: Timestamp,
    ) -> Result<VerifiedToken, TokenRefusal> {
        let entry = self.named_by(request)?;
        let verified = self.verify_with(&entry, request, now);
        if let Err(refusal) = &verified {
            self.record_refused(entry.key.org, entry.key.id, refusal, now);
        }
        verified
    }

    /// The second part of [`Identity::embed`]: returns the access that the token grants. Compiles
    /// its matchers or takes them from the cache. Records the use or the refusal. Does not access
    /// the disk.
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
        let matchers = self.token_policies.matchers(entry.key.org, entry.key.id, &claims.policy);
        let matchers = matchers.ok_or(embed_token::BAD_PATTERNS)?;
        Ok(embed_token::effective(&entry.key, &tokens.restriction, claims, &matchers, now))
    }

    /// Returns whether [`Identity::grant`] compiles nothing: the token has no patterns, or they are
    /// cached.
    pub fn grants_at_once(&self, token: &VerifiedToken) -> bool {
        let VerifiedToken { entry, claims } = token;
        self.token_policies.cached(entry.key.org, entry.key.id, &claims.policy).is_some()
    }

    /// Returns the number of token policies compiled so far.
    pub fn token_policies_compiled(&self) -> u64 {
        self.token_policies.compilations()
    }

    /// Explains a token to a member of `org`: returns why it is refused, or its access. Records
    /// nothing, and reveals nothing about keys of other organisations. Does not access the disk.
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
        self.granted(self.verify_with(&entry, request, now)?, now)
    }

    /// Returns the dashboard that a page may show with an embed token, and its organisation; `None`
    /// if the token grants no dashboard. Records nothing and compiles nothing: the requests of the
    /// page are checked by themselves. Does not access the disk.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub fn shared_by_token(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Option<SharedDashboard>, TokenRefusal> {
        let entry = self.named_by(&EmbedRequest { token, slug: "", origin: None })?;
        // The page names no organisation, so it is that of the key.
        let slug = entry.key.slug.clone();
        let verified =
            self.verify_with(&entry, &EmbedRequest { token, slug: slug.as_str(), origin: None }, now)?;
        let origins = verified.origins();
        let tokens = entry.tokens.as_ref().ok_or(UNKNOWN_KEY)?;
        let grant = embed_token::effective(&entry.key, &tokens.restriction, verified.claims, &[], now);
        let uid = grant.allows(Endpoint::Dashboard).then_some(grant.dashboard).flatten().map(|one| one.uid);
        Ok(uid.map(|uid| SharedDashboard { slug, uid, origins }))
    }

    fn named_by(&self, request: &EmbedRequest<'_>) -> Result<Arc<KeyEntry>, TokenRefusal> {
        let id = embed_token::key_id(request.token)?;
        self.keyring.read().by_id.get(&id).cloned().ok_or(UNKNOWN_KEY)
    }

    /// Mints a token with a key's secret. Does not access the disk.
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
        let dashboards = |uid: &str| self.dashboard_tokens.first_valid(org, uid);
        embed_token::mint(&entry.key, tokens, request, &dashboards, now)
    }

    fn record_use(&self, key: &Arc<ApiKey>, now: Timestamp) {
        if key.usage.record(now) {
            self.keyring.write().used.push(Arc::clone(key));
        }
    }

    /// Writes the times of last use.
    pub(in crate::identity) fn flush_keys(&self) -> Result<(), StoreError> {
        let used = std::mem::take(&mut self.keyring.write().used);
        let times: Vec<_> = used.iter().filter_map(|key| Some((key, key.usage.begin_flush()?))).collect();
        self.put_side(times.iter().map(|(key, at)| ((key.org, key.id), UsedRow(*at))).collect())?;
        times.iter().for_each(|(key, at)| key.usage.flushed(*at));
        Ok(())
    }

    /// Verifies with the current secret, or with the previous one while it is valid.
    fn verify_with(
        &self,
        entry: &Arc<KeyEntry>,
        request: &EmbedRequest<'_>,
        now: Timestamp,
    ) -> Result<VerifiedToken, TokenRefusal> {
        let dashboards = |uid: &str| self.dashboard_tokens.first_valid(entry.key.org, uid);
        let verify = |tokens| embed_token::verify(&entry.key, tokens, request, &dashboards, now);
        let mut verified = verify(entry.tokens.as_ref().ok_or(UNKNOWN_KEY)?);
        if verified.as_ref().is_err_and(|refusal| *refusal == embed_token::FOREIGN_SIGNATURE)
            && let Some(tokens) = entry.previous(now).and_then(|previous| previous.tokens.as_ref())
        {
            verified = verify(tokens);
        }
        Ok(VerifiedToken { entry: Arc::clone(entry), claims: verified? })
    }
}
