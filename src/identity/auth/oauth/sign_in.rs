//! The account that an identity signs in to (docs/specification.md D6): the account it is linked
//! to, the account with its address if the provider is trusted for it, a new account if one is
//! allowed, or none.

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::audit::Event;
use crate::identity::auth::login::{FinishedLogin, LoginOutcome, finish_login};
use crate::identity::auth::session::{Client, NewSession, Session, is_live};
use crate::identity::options::SignupMode;
use crate::identity::tables::id::{IdentityId, SecretHash, UserId};
use crate::identity::tables::name;
use crate::identity::tables::oauth::{
    AddressTrust, IdentityKey, IdentityRow, OwnIdentityRow, Provider, UsedStateRow,
};
use crate::identity::tables::session::AuthMethod;
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::{AddressProof, AddressRow, Email, UserRow, active};

use super::{ExternalAccount, IDENTITIES_MAX, OauthAttempt, Profile, link, owner};

/// A verified sign-in at a provider.
#[derive(Clone, Copy, Debug)]
pub struct OauthLogin<'a> {
    /// The attempt from the state cookie.
    pub attempt: &'a OauthAttempt,
    /// The account at the provider.
    pub account: &'a ExternalAccount,
    /// The client of the request.
    pub client: &'a Client,
    /// The session cookie of the request, if any: its session is revoked when the new one is
    /// issued.
    pub replaces: Option<&'a str>,
}

/// The result of a sign-in at a provider.
#[derive(Debug)]
pub struct OauthOutcome {
    /// A session, or a pending login that needs a code.
    pub login: LoginOutcome,
    /// An account was created.
    pub created: bool,
    /// The identity was linked to an existing account.
    pub linked: bool,
    /// The address to notify that an identity was linked.
    pub tell: Option<Email>,
}

/// Errors of a sign-in at a provider.
#[derive(Debug, thiserror::Error)]
pub enum OauthError {
    /// The state was already used: `invalid_state`.
    #[error("this sign-in was already used; start again")]
    InvalidState,
    /// `signup_closed`.
    #[error("no account is linked to this identity, and none is created for it: {0}")]
    SignupClosed(&'static str),
    /// `domain_not_allowed`.
    #[error("accounts of this domain or organisation may not sign in here")]
    DomainNotAllowed,
    /// `link_required`: the address has an account, and either the provider is not trusted for it,
    /// or the account's own address was never proven.
    #[error("an account with this address exists: sign in to it, then link this identity in its settings")]
    LinkRequired,
    /// `identity_in_use`.
    #[error("this identity is linked to another account")]
    IdentityInUse,
    /// `conflict`.
    #[error("an account has at most {IDENTITIES_MAX} identities")]
    TooMany,
    /// `account_disabled`.
    #[error("this account is disabled")]
    Disabled,
    /// The account to link to no longer exists: `session_invalid`.
    #[error("this account no longer exists")]
    UnknownUser,
    /// The session that started the linking has ended: `session_invalid`.
    #[error("the session has ended")]
    SessionOver,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The operator's rules for accounts at a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// `…_ALLOWED_DOMAINS`; an empty list allows all domains.
    pub domains: Vec<String>,
    /// `PROMLET_OAUTH_OIDC_TRUST_EMAIL`.
    pub trust_email: bool,
}

/// Applies the operator's rules to a profile of an OpenID provider. Returns the external account
/// with its trust decisions.
///
/// # Errors
/// [`OauthError::DomainNotAllowed`].
pub fn admission(
    provider: Provider,
    issuer: &str,
    profile: &Profile,
    rules: &Admission,
) -> Result<ExternalAccount, OauthError> {
    let email = profile.email.as_deref().and_then(|text| Email::parse(text).ok());
    let domain = email.as_ref().and_then(|email| email.as_str().rsplit_once('@')).map(|(_, domain)| domain);
    // `trust_email` applies only if the issuer makes no statement about the address; it never
    // overrides a `false`.
    let trust = provider.address_trust();
    let email_verified = match profile.email_verified {
        Some(said) => said,
        None => rules.trust_email && trust == AddressTrust::Operator,
    };
    let mailbox_is_googles = matches!(domain, Some("gmail.com" | "googlemail.com"));
    let organisation = profile.hd.as_deref().filter(|hd| !hd.is_empty());
    let email_trusted = email_verified
        && match trust {
            AddressTrust::GoogleMailboxes => mailbox_is_googles || organisation.is_some(),
            AddressTrust::Verified => true,
            AddressTrust::Operator => rules.trust_email,
        };
    let home = match trust {
        AddressTrust::GoogleMailboxes => organisation.or(domain.filter(|_| mailbox_is_googles)),
        AddressTrust::Verified | AddressTrust::Operator => domain,
    };
    let listed = home
        .filter(|_| email_verified)
        .is_some_and(|home| rules.domains.iter().any(|domain| domain.eq_ignore_ascii_case(home)));
    if !rules.domains.is_empty() && !listed {
        return Err(OauthError::DomainNotAllowed);
    }
    Ok(ExternalAccount {
        provider,
        issuer: issuer.to_owned(),
        subject: profile.sub.clone(),
        email,
        email_verified,
        email_trusted,
        name: name::cleaned(profile.name.as_deref().unwrap_or_default()),
        welcome: listed,
    })
}

/// The account that an identity signs in to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignInTarget {
    /// The account that the identity is linked to.
    Known(UserId),
    /// The account with the same address, to which the identity will be linked.
    Address(UserId),
    /// An account that has to be created.
    New,
}

impl SignInTarget {
    const fn user(self) -> Option<UserId> {
        match self {
            SignInTarget::Known(user) | SignInTarget::Address(user) => Some(user),
            SignInTarget::New => None,
        }
    }
}

/// Reasons to abort the change of a sign-in.
enum SignInAbort {
    /// The identity now signs in to another account than the one for which secrets were drawn.
    Moved,
    Error(OauthError),
}

impl From<StoreError> for SignInAbort {
    fn from(error: StoreError) -> SignInAbort {
        SignInAbort::Error(error.into())
    }
}

impl From<OauthError> for SignInAbort {
    fn from(error: OauthError) -> SignInAbort {
        SignInAbort::Error(error)
    }
}

/// The input of the change of a sign-in.
#[derive(Clone)]
struct SignIn {
    attempt: OauthAttempt,
    account: ExternalAccount,
    /// The account for which secrets were drawn; a new id if `drawn_for_new`.
    user: UserId,
    drawn_for_new: bool,
    identity: IdentityId,
    /// The operator's rules allow a new account for this identity.
    may_be_created: bool,
    drawn: (NewSession, SecretHash),
}

/// Attempts if the account of the identity changes during the sign-in.
const ATTEMPTS: usize = 4;

impl Identity {
    /// Finishes a sign-in at a provider with a session, or with a pending login if the account has
    /// a second factor. Each state can be used once. Blocks (commit).
    ///
    /// # Errors
    /// [`OauthError`].
    pub fn oauth_login(
        &self,
        login: &OauthLogin<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<OauthOutcome, OauthError> {
        for _ in 0..ATTEMPTS {
            let seen = self.opens(login.account)?;
            let user = seen.unwrap_or_else(|| UserId::random(rng));
            let drawn = self.draw(user, login.client, login.replaces, rng);
            let change = SignIn {
                attempt: login.attempt.clone(),
                account: login.account.clone(),
                user,
                drawn_for_new: seen.is_none(),
                identity: IdentityId::random(rng),
                may_be_created: self.may_be_created(login.account, now)?,
                drawn: drawn.for_change(),
            };
            let result = self.change(move |txn| sign_in(txn, &change, now));
            let (finished, target) = match result {
                Ok(done) => done,
                Err(SignInAbort::Moved) => continue,
                Err(SignInAbort::Error(error)) => {
                    let provider = login.account.provider.as_str();
                    let event = Event::unattributed("login.fail").target(provider).at_ip(login.client.ip);
                    self.record_failure(event.detail(&error.to_string()), now);
                    return Err(error);
                }
            };
            let linked =
                matches!((&target, &finished), (SignInTarget::Address(_), FinishedLogin::Session(_)));
            let tell = login.account.email.clone().filter(|_| linked);
            let login = self.outcome(user, drawn, finished)?;
            return Ok(OauthOutcome { login, created: target == SignInTarget::New, linked, tell });
        }
        Err(StoreError::Inconsistent("an identity opens another account at each look").into())
    }

    /// Links an identity to the account that started the attempt. `session` must be the session
    /// that started it. Returns `false` if the identity was linked to this account already. Blocks
    /// (commit).
    ///
    /// # Errors
    /// [`OauthError`].
    pub fn oauth_link(
        &self,
        attempt: &OauthAttempt,
        account: &ExternalAccount,
        session: &Session,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<bool, OauthError> {
        let (user, own) = (session.user, session.key());
        if attempt.mode != session.link_mode() {
            return Err(OauthError::InvalidState);
        }
        let (attempt, account, id) = (attempt.clone(), account.clone(), IdentityId::random(rng));
        self.change(move |txn| {
            use_state(txn, &attempt)?;
            active(txn, user)?.ok_or(OauthError::UnknownUser)?;
            // The request to the provider takes time. A session that ended meanwhile must not leave
            // a new way to sign in.
            if !is_live(txn, own)? {
                return Err(OauthError::SessionOver);
            }
            match owner(txn, IdentityKey::of(&account))? {
                Some(row) if row.user == user => Ok(false),
                Some(_) => Err(OauthError::IdentityInUse),
                None => {
                    link_within_bounds(txn, user, id, &account, now)?;
                    Ok(true)
                }
            }
        })
    }

    /// Returns the account that an identity signs in to at this moment; `None` if one would have to
    /// be created.
    fn opens(&self, account: &ExternalAccount) -> Result<Option<UserId>, StoreError> {
        if let Some(row) = self.row::<IdentityRow>(&IdentityKey::of(account))?
            && self.row::<UserRow>(&row.user)?.is_some()
        {
            return Ok(Some(row.user));
        }
        let Some(email) = &account.email else { return Ok(None) };
        Ok(self.row::<AddressRow>(&email.as_str().to_owned())?.map(|row| row.0))
    }

    /// Returns whether the operator's rules allow a new account for `account`.
    fn may_be_created(&self, account: &ExternalAccount, now: Timestamp) -> Result<bool, StoreError> {
        match (self.signup_mode(), &account.email) {
            (SignupMode::Open, _) => Ok(true),
            (SignupMode::Closed, _) => Ok(false),
            (SignupMode::First | SignupMode::Invite, _) if account.welcome => Ok(true),
            (SignupMode::First | SignupMode::Invite, Some(email)) => self.is_invited(email, now),
            (SignupMode::First | SignupMode::Invite, None) => Ok(false),
        }
    }
}

/// Decides on a sign-in within the change that creates the session.
fn sign_in(
    txn: &mut Txn<'_>,
    change: &SignIn,
    now: Timestamp,
) -> Result<(FinishedLogin, SignInTarget), SignInAbort> {
    let (account, method) = (&change.account, AuthMethod::Provider(change.account.provider));
    use_state(txn, &change.attempt)?;
    let target = target(txn, account)?;
    let drawn_for = (!change.drawn_for_new).then_some(change.user);
    if target.user() != drawn_for {
        return Err(SignInAbort::Moved);
    }
    let user = change.user;
    let row = match target {
        SignInTarget::Known(_) => read::<UserRow>(txn, &user)?.ok_or(OauthError::UnknownUser)?,
        SignInTarget::Address(_) => {
            let row = read::<UserRow>(txn, &user)?.ok_or(OauthError::UnknownUser)?;
            // If another person created the account with this address, the provider's account does
            // not open it.
            if !account.email_trusted || row.address_proof != AddressProof::Given {
                return Err(OauthError::LinkRequired.into());
            }
            row
        }
        SignInTarget::New => new_account(txn, change, now)?,
    };
    if row.disabled {
        return Err(OauthError::Disabled.into());
    }
    let finished = finish_login(txn, user, &row, method, &change.drawn, now)?;
    match (&target, &finished) {
        (SignInTarget::Known(_), _) => update_address(txn, account)?,
        // An address alone must not add a permanent way to sign in. The owner links the identity
        // after the second factor.
        (SignInTarget::Address(_), FinishedLogin::Pending) => {}
        (SignInTarget::Address(_) | SignInTarget::New, _) => {
            link_within_bounds(txn, user, change.identity, account, now)?;
        }
    }
    Ok((finished, target))
}

/// Marks a state as used; fails if it is already.
fn use_state(txn: &mut Txn<'_>, attempt: &OauthAttempt) -> Result<(), OauthError> {
    if read::<UsedStateRow>(txn, &attempt.state)?.is_some() {
        return Err(OauthError::InvalidState);
    }
    txn.put(&attempt.state, &UsedStateRow(attempt.expires_at));
    Ok(())
}

fn target(txn: &Txn<'_>, account: &ExternalAccount) -> Result<SignInTarget, StoreError> {
    if let Some(row) = owner(txn, IdentityKey::of(account))? {
        return Ok(SignInTarget::Known(row.user));
    }
    let Some(email) = &account.email else { return Ok(SignInTarget::New) };
    let known = read::<AddressRow>(txn, &email.as_str().to_owned())?;
    Ok(known.map_or(SignInTarget::New, |row| SignInTarget::Address(row.0)))
}

/// Creates an account if the operator's rules allow it.
fn new_account(txn: &mut Txn<'_>, change: &SignIn, now: Timestamp) -> Result<UserRow, OauthError> {
    let account = &change.account;
    let Some(email) = account.email.as_ref().filter(|_| account.email_verified) else {
        return Err(OauthError::SignupClosed("the provider does not confirm that the address is yours"));
    };
    if txn.scan::<UserRow>(&()).map_err(StoreError::from)?.is_empty() {
        // The account would not be an administrator, and set-up would end without one.
        return Err(OauthError::SignupClosed("the server is not set up yet"));
    }
    if !change.may_be_created {
        return Err(OauthError::SignupClosed("ask an administrator for an invitation"));
    }
    let row = UserRow {
        email: email.as_str().to_owned(),
        name: account.name.clone(),
        is_admin: false,
        disabled: false,
        password: None,
        created_at: now,
        sessions_epoch: 0,
        address_proof: AddressProof::from_bool(account.email_trusted),
    };
    txn.put(&change.user, &row);
    txn.put(&row.email, &AddressRow(change.user));
    Ok(row)
}

fn link_within_bounds(
    txn: &mut Txn<'_>,
    user: UserId,
    id: IdentityId,
    account: &ExternalAccount,
    now: Timestamp,
) -> Result<(), OauthError> {
    if txn.scan::<OwnIdentityRow>(&user).map_err(StoreError::from)?.len() >= IDENTITIES_MAX {
        return Err(OauthError::TooMany);
    }
    Ok(link(txn, user, id, account, now)?)
}

/// Updates the stored address, which is only shown in the list of identities.
fn update_address(txn: &mut Txn<'_>, account: &ExternalAccount) -> Result<(), StoreError> {
    let key = IdentityKey::of(account);
    let Some(row) = read::<IdentityRow>(txn, &key)? else { return Ok(()) };
    let email = account.email.as_ref().map(|email| email.as_str().to_owned());
    if row.email != email {
        txn.put(&key, &IdentityRow { email, ..row });
    }
    Ok(())
}
