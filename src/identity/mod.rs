//! Who is asking, and what they may see: accounts, sessions, organisations, API keys, embed tokens.
//!
//! Synchronous; `now` and `rng` are arguments. A function that says "blocks" waits for a durable commit or
//! hashes a password and belongs on a lane; the others only touch memory or read the store.

mod api_key;
mod embed_token;
mod id;
mod login;
mod magic_link;
mod org;
pub mod password;
mod session;
mod setup;
mod totp;
mod user;

use std::sync::Arc;

use crate::entropy::Entropy;
use crate::model::{OrgId, Timestamp};

pub use api_key::{
    ApiKey, ApiKeyChange, CreatedKey, EmbedPolicy, EmbedSettings, FieldError, IngestSettings, KeyError,
    KeyScopes, NewApiKey, TokenAlgorithm,
};
pub use embed_token::{
    EmbedGrant, EmbedRequest, Endpoint, MintError, MintRequest, MintedToken, TokenRefusal,
};
pub use id::{EventId, IdError, KeyId, OrgKey, Secret, SecretHash, SecretKind, SessionId, UserId};
pub use login::{
    CodeError, CodeLogin, LoggedIn, LoginError, LoginOutcome, Password, PasswordLogin, PendingLogin,
    SecondFactor,
};
pub use magic_link::{IssuedLink, LinkError, LinkLogin, LinkMail, LinkOutcome, LinkProof, LinkRequest};
pub use org::{Limit, Membership, NewOrg, Org, OrgError, OrgSettings, Role};
pub use session::{AuthMethod, Client, SESSION_IDLE, Session, SessionCheck};
pub use setup::{Bootstrap, SetUp, SetUpError, SetUpPeer};
pub use totp::{Enrolment, RecoveryCodes, TwoFactorError, TwoFactorStatus};
pub use user::{Email, EmailError, User};

/// The account store did not take a change, or could not be read: 503 `storage_degraded`.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Interim: the store is not wired yet.
    #[error("the account store is not open")]
    Closed,
}

/// All accounts of this instance.
#[derive(Debug)]
pub struct Identity {}

impl Identity {
    // -- first account ------------------------------------------------------------------------------------------

    /// Whether no account exists yet.
    pub fn needs_setup(&self) -> bool {
        true
    }

    /// Makes the token of the setup link; an earlier one stops working. Lives in memory, until set-up or restart.
    pub fn issue_setup_token(&self, _now: Timestamp, rng: &mut Entropy) -> Secret {
        Secret::random(SecretKind::Setup, rng)
    }

    /// Makes the first account and logs it in. Blocks (hash, commit).
    ///
    /// # Errors
    /// [`SetUpError`]; nothing was stored then.
    pub fn set_up(
        &self,
        _request: &SetUp<'_>,
        _now: Timestamp,
        _rng: &mut Entropy,
    ) -> Result<LoggedIn, SetUpError> {
        Err(StoreError::Closed.into())
    }

    /// Makes the first account from the environment; `None` when an account exists. Blocks.
    ///
    /// # Errors
    /// [`SetUpError`]; nothing was stored then.
    pub fn bootstrap(
        &self,
        _request: &Bootstrap<'_>,
        _now: Timestamp,
        _rng: &mut Entropy,
    ) -> Result<Option<User>, SetUpError> {
        Err(StoreError::Closed.into())
    }

    // -- login --------------------------------------------------------------------------------------------------

    /// First factor by password. Blocks (hash, commit): run it on the password lane.
    ///
    /// # Errors
    /// [`LoginError`].
    pub fn login(
        &self,
        _attempt: &PasswordLogin<'_>,
        _now: Timestamp,
        _rng: &mut Entropy,
    ) -> Result<LoginOutcome, LoginError> {
        Err(StoreError::Closed.into())
    }

    /// Second factor of a pending login, whatever its first was. Blocks (commit).
    ///
    /// # Errors
    /// [`CodeError`].
    pub fn verify_code(
        &self,
        _attempt: &CodeLogin<'_>,
        _now: Timestamp,
        _rng: &mut Entropy,
    ) -> Result<LoggedIn, CodeError> {
        Err(StoreError::Closed.into())
    }

    /// A link by mail. Always accepted: `None` when there is nobody to mail, after the same work. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn request_link(
        &self,
        _request: &LinkRequest<'_>,
        _now: Timestamp,
        _rng: &mut Entropy,
    ) -> Result<Option<LinkMail>, StoreError> {
        Err(StoreError::Closed)
    }

    /// A link for a known user, handed to whoever runs the program: demo, `promlet login-link`. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn issue_login_link(
        &self,
        _user: UserId,
        _now: Timestamp,
        _rng: &mut Entropy,
    ) -> Result<IssuedLink, StoreError> {
        Err(StoreError::Closed)
    }

    /// Uses a link, exactly once. Blocks (commit).
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn use_link(
        &self,
        _attempt: &LinkLogin<'_>,
        _now: Timestamp,
        _rng: &mut Entropy,
    ) -> Result<LinkOutcome, LinkError> {
        Err(StoreError::Closed.into())
    }

    // -- sessions -----------------------------------------------------------------------------------------------

    /// What the value of a cookie `ms_session` is, and renews it. Touches memory only.
    pub fn session(&self, _cookie: &str, _now: Timestamp) -> SessionCheck {
        SessionCheck::Unknown
    }

    /// Makes the renewal durable ([`SessionCheck::LiveOncePersisted`]). Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn persist_session(&self, _session: &Session) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }

    /// Ends a session: logout, revocation, expiry. Dead in memory at once, durable when this returns. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn end_session(&self, _session: &Session, _now: Timestamp) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }

    /// A user's live sessions, most recently seen first.
    pub fn sessions(&self, _user: UserId, _now: Timestamp) -> Vec<Arc<Session>> {
        Vec::new()
    }

    /// Ends one of a user's sessions by its id; `false` when that user has none such. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn revoke_session(
        &self,
        _user: UserId,
        _session: SessionId,
        _now: Timestamp,
    ) -> Result<bool, StoreError> {
        Err(StoreError::Closed)
    }

    /// Ends all of a user's sessions, except `keep`; says how many. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn revoke_sessions(
        &self,
        _user: UserId,
        _keep: Option<SessionId>,
        _now: Timestamp,
    ) -> Result<usize, StoreError> {
        Err(StoreError::Closed)
    }

    // -- users --------------------------------------------------------------------------------------------------

    /// An account by its id.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn user(&self, _user: UserId) -> Result<Option<User>, StoreError> {
        Err(StoreError::Closed)
    }

    /// An account by its address.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn user_by_email(&self, _email: &Email) -> Result<Option<User>, StoreError> {
        Err(StoreError::Closed)
    }

    // -- second factor ------------------------------------------------------------------------------------------

    /// Whether a second factor is enabled.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn twofa_status(&self, _user: UserId) -> Result<TwoFactorStatus, StoreError> {
        Err(StoreError::Closed)
    }

    /// Begins enrolment; replaces an unconfirmed one. Blocks (commit).
    ///
    /// # Errors
    /// [`TwoFactorError`].
    pub fn enroll_totp(
        &self,
        _user: UserId,
        _now: Timestamp,
        _rng: &mut Entropy,
    ) -> Result<Enrolment, TwoFactorError> {
        Err(StoreError::Closed.into())
    }

    /// Confirms enrolment with its first code, consumes that code, ends all other sessions and replaces this one. Blocks.
    ///
    /// # Errors
    /// [`TwoFactorError`].
    pub fn confirm_totp(
        &self,
        _session: &Session,
        _code: &str,
        _now: Timestamp,
        _rng: &mut Entropy,
    ) -> Result<(RecoveryCodes, LoggedIn), TwoFactorError> {
        Err(StoreError::Closed.into())
    }

    /// Removes the second factor. Needs the password where the account has one. Blocks (hash, commit).
    ///
    /// # Errors
    /// [`TwoFactorError`].
    pub fn disable_totp(
        &self,
        _user: UserId,
        _password: Option<Password<'_>>,
        _factor: SecondFactor<'_>,
        _now: Timestamp,
    ) -> Result<(), TwoFactorError> {
        Err(StoreError::Closed.into())
    }

    // -- organisations ------------------------------------------------------------------------------------------

    /// Makes an organisation, its maker the owner. Blocks (commit).
    ///
    /// # Errors
    /// [`OrgError`].
    pub fn create_org(
        &self,
        _creator: UserId,
        _org: NewOrg,
        _now: Timestamp,
        _rng: &mut Entropy,
    ) -> Result<Membership, OrgError> {
        Err(StoreError::Closed.into())
    }

    /// A user's organisations, by slug.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn memberships(&self, _user: UserId) -> Result<Vec<Membership>, StoreError> {
        Err(StoreError::Closed)
    }

    /// A user's place in the organisation of this slug; `None` both where there is no such organisation and where
    /// they are no member: one 404 `org_not_found`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn membership(&self, _user: UserId, _slug: &str) -> Result<Option<Membership>, StoreError> {
        Err(StoreError::Closed)
    }

    /// All organisations: for the store's retention and limits, not for callers.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn orgs(&self) -> Result<Vec<Org>, StoreError> {
        Err(StoreError::Closed)
    }

    // -- API keys and embed tokens ------------------------------------------------------------------------------

    /// Makes a key. `creator` is `None` at the command line. Blocks (commit).
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn create_key(
        &self,
        _org: OrgId,
        _creator: Option<UserId>,
        _key: NewApiKey,
        _now: Timestamp,
        _rng: &mut Entropy,
    ) -> Result<CreatedKey, KeyError> {
        Err(StoreError::Closed.into())
    }

    /// An organisation's keys, oldest first. Touches memory only.
    pub fn keys(&self, _org: OrgId) -> Vec<Arc<ApiKey>> {
        Vec::new()
    }

    /// One key of an organisation. Touches memory only.
    pub fn key(&self, _org: OrgId, _key: KeyId) -> Option<Arc<ApiKey>> {
        None
    }

    /// Changes a key. Blocks (commit).
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn change_key(
        &self,
        _org: OrgId,
        _key: KeyId,
        _change: ApiKeyChange,
        _now: Timestamp,
    ) -> Result<Arc<ApiKey>, KeyError> {
        Err(StoreError::Closed.into())
    }

    /// Refuses every token made before `now`. Blocks (commit).
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn revoke_tokens(&self, _org: OrgId, _key: KeyId, _now: Timestamp) -> Result<(), KeyError> {
        Err(StoreError::Closed.into())
    }

    /// Deletes a key; it and its tokens are refused from here on. Blocks (commit).
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn delete_key(&self, _org: OrgId, _key: KeyId, _now: Timestamp) -> Result<(), KeyError> {
        Err(StoreError::Closed.into())
    }

    /// The key that `secret` opens: `None` for unknown, disabled and expired ones alike (`api_key_invalid`).
    /// Notes the use. Touches memory only.
    pub fn api_key(&self, _secret: &str, _now: Timestamp) -> Option<Arc<ApiKey>> {
        None
    }

    /// Verifies an embed token in the order of API.md D7, steps 1 to 8; 9 and 10 are the caller's. Touches memory only.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub fn embed(&self, _request: &EmbedRequest<'_>, _now: Timestamp) -> Result<EmbedGrant, TokenRefusal> {
        Err(TokenRefusal::Invalid { reason: "key" })
    }

    /// Mints a token with a key's secret. Touches memory only.
    ///
    /// # Errors
    /// [`MintError`].
    pub fn mint(
        &self,
        _org: OrgId,
        _request: &MintRequest,
        _now: Timestamp,
    ) -> Result<MintedToken, MintError> {
        Err(MintError::UnknownKey)
    }

    // -- housekeeping -------------------------------------------------------------------------------------------

    /// Every 5 s: writes renewals that lag, sweeps what expired; bounded work. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn tick(&self, _now: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    /// Clean stop: writes every renewal that lags at all. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn close(&self, _now: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }
}
