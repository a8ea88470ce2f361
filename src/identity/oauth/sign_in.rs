//! Which account an identity opens (docs/specification.md D6): the one it is linked to, the one of its address where the provider is
//! trusted so far, a new one where that is allowed, or none.

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::Timestamp;

use crate::identity::address_proof::AddressProof;
use crate::identity::audit::Event;
use crate::identity::login::{Finished, finish_login};
use crate::identity::name;
use crate::identity::session::{NewSession, stands};
use crate::identity::store::read;
use crate::identity::user::{AddressRow, UserRow, active};
use crate::identity::{
    Client, Email, Identity, IdentityId, LoginOutcome, SecretHash, Session, SignupMode, StoreError, UserId,
};

use super::{
    ExternalAccount, IDENTITIES_MAX, IdentityKey, IdentityRow, OauthAttempt, OwnIdentityRow, Profile,
    Provider, UsedStateRow, link, owner,
};

/// Somebody who came back from a provider, verified.
#[derive(Clone, Copy, Debug)]
pub struct OauthLogin<'a> {
    /// What they began with.
    pub attempt: &'a OauthAttempt,
    /// Who they are there.
    pub account: &'a ExternalAccount,
    /// From where.
    pub client: &'a Client,
    /// The session cookie that came with the request, if any: revoked when the new session is issued.
    pub replaces: Option<&'a str>,
}

/// What a sign-in elsewhere led to.
#[derive(Debug)]
pub struct OauthOutcome {
    /// In, or a code is needed.
    pub login: LoginOutcome,
    /// An account was made.
    pub created: bool,
    /// The identity was linked to an account that was there.
    pub linked: bool,
    /// Whom to tell that it was linked.
    pub tell: Option<Email>,
}

/// Why a sign-in elsewhere opened nothing.
#[derive(Debug, thiserror::Error)]
pub enum OauthError {
    /// The state was used: `invalid_state`.
    #[error("this sign-in was used already, start again")]
    InvalidState,
    /// `signup_closed`.
    #[error("no account belongs to this identity, and none is made for it: {0}")]
    SignupClosed(&'static str),
    /// `domain_not_allowed`.
    #[error("accounts of this domain or organisation may not sign in here")]
    DomainNotAllowed,
    /// `link_required`: the address has an account, and either the provider's word is not enough to open it, or the
    /// address of the account was never proven.
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
    /// Who wanted to link is gone: `session_invalid`.
    #[error("this account is gone")]
    UnknownUser,
    /// Who wanted to link was logged out meanwhile: `session_invalid`.
    #[error("the session is over")]
    SessionOver,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the operator says about whom a provider may send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// `…_ALLOWED_DOMAINS`; empty: all.
    pub domains: Vec<String>,
    /// `PROMLET_OAUTH_OIDC_TRUST_EMAIL`.
    pub trust_email: bool,
}

/// Judges what an OpenID provider says: who it is, what their address is worth, and whether they may come at all.
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
    // An operator who trusts an issuer for addresses does so where it says nothing of them; never against its word.
    let email_verified = match profile.email_verified {
        Some(said) => said,
        None => rules.trust_email && provider == Provider::Oidc,
    };
    let mailbox_is_googles = matches!(domain, Some("gmail.com" | "googlemail.com"));
    let organisation = profile.hd.as_deref().filter(|hd| !hd.is_empty());
    let email_trusted = email_verified
        && match provider {
            // Of other addresses Google knows only that they were somebody's once.
            Provider::Google => mailbox_is_googles || organisation.is_some(),
            Provider::GitHub => true,
            Provider::Oidc => rules.trust_email,
        };
    let home = match provider {
        Provider::Google => organisation.or(domain.filter(|_| mailbox_is_googles)),
        _ => domain,
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

/// What an identity opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// The account it is linked to.
    Known(UserId),
    /// The account of its address, to which it will be linked.
    Address(UserId),
    /// An account that is to be made.
    New,
}

impl Target {
    const fn user(self) -> Option<UserId> {
        match self {
            Target::Known(user) | Target::Address(user) => Some(user),
            Target::New => None,
        }
    }
}

/// Why a change was not made.
enum Refusal {
    /// Meanwhile the identity opens another account than the one that secrets were drawn for.
    Moved,
    Error(OauthError),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Refusal {
        Refusal::Error(error.into())
    }
}

impl From<OauthError> for Refusal {
    fn from(error: OauthError) -> Refusal {
        Refusal::Error(error)
    }
}

/// A sign-in as its change takes it.
#[derive(Clone)]
struct SignIn {
    attempt: OauthAttempt,
    account: ExternalAccount,
    /// Whom secrets were drawn for; new where `drawn_for_new`.
    user: UserId,
    drawn_for_new: bool,
    identity: IdentityId,
    /// An account may be made for it.
    may_be_made: bool,
    drawn: (NewSession, SecretHash),
}

/// Times that an account may change hands while it is signed in to.
const ATTEMPTS: usize = 4;

impl Identity {
    /// The end of a sign-in elsewhere: a session, or a pending login where the account has a second factor. Each state
    /// opens one. Blocks (commit).
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
                may_be_made: self.may_be_made(login.account, now)?,
                drawn: drawn.for_change(),
            };
            let result = self.change(move |txn| sign_in(txn, &change, now));
            let (finished, target) = match result {
                Ok(done) => done,
                Err(Refusal::Moved) => continue,
                Err(Refusal::Error(error)) => {
                    let provider = login.account.provider.as_str();
                    let event = Event::by_nobody("login.fail").target(provider).at_ip(login.client.ip);
                    self.note_failure(event.detail(&error.to_string()), now);
                    return Err(error);
                }
            };
            let linked = matches!((&target, &finished), (Target::Address(_), Finished::Session(_)));
            let tell = login.account.email.clone().filter(|_| linked);
            let login = self.outcome(user, drawn, finished)?;
            return Ok(OauthOutcome { login, created: target == Target::New, linked, tell });
        }
        Err(StoreError::Inconsistent("an identity opens another account at each look").into())
    }

    /// Links an identity to the account that the attempt was begun for, by the `session` that began it. Answers whether it
    /// was not linked to it before. Blocks (commit).
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
            // Asking the provider took a while: whoever was logged out meanwhile leaves no way back in.
            if !stands(txn, own)? {
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

    /// The account that an identity opens at the moment; `None` where one would have to be made.
    fn opens(&self, account: &ExternalAccount) -> Result<Option<UserId>, StoreError> {
        if let Some(row) = self.row::<IdentityRow>(&IdentityKey::of(account))?
            && self.row::<UserRow>(&row.user)?.is_some()
        {
            return Ok(Some(row.user));
        }
        let Some(email) = &account.email else { return Ok(None) };
        Ok(self.row::<AddressRow>(&email.as_str().to_owned())?.map(|row| row.0))
    }

    /// Whether the operator lets somebody like this have an account.
    fn may_be_made(&self, account: &ExternalAccount, now: Timestamp) -> Result<bool, StoreError> {
        match (self.signup_mode(), &account.email) {
            (SignupMode::Open, _) => Ok(true),
            (SignupMode::Closed, _) => Ok(false),
            (SignupMode::First | SignupMode::Invite, _) if account.welcome => Ok(true),
            (SignupMode::First | SignupMode::Invite, Some(email)) => self.is_invited(email, now),
            (SignupMode::First | SignupMode::Invite, None) => Ok(false),
        }
    }
}

/// The whole decision, in the change that creates the session.
fn sign_in(txn: &mut Txn<'_>, change: &SignIn, now: Timestamp) -> Result<(Finished, Target), Refusal> {
    let (account, method) = (&change.account, change.account.provider.method());
    use_state(txn, &change.attempt)?;
    let target = target(txn, account)?;
    let drawn_for = (!change.drawn_for_new).then_some(change.user);
    if target.user() != drawn_for {
        return Err(Refusal::Moved);
    }
    let user = change.user;
    let row = match target {
        Target::Known(_) => read::<UserRow>(txn, &user)?.ok_or(OauthError::UnknownUser)?,
        Target::Address(_) => {
            let row = read::<UserRow>(txn, &user)?.ok_or(OauthError::UnknownUser)?;
            // An account that another person made on this address does not become theirs by signing in elsewhere.
            if !account.email_trusted || row.address_proof != AddressProof::Given {
                return Err(OauthError::LinkRequired.into());
            }
            row
        }
        Target::New => new_account(txn, change, now)?,
    };
    if row.disabled {
        return Err(OauthError::Disabled.into());
    }
    let finished = finish_login(txn, user, &row, method, &change.drawn, now)?;
    match (&target, &finished) {
        (Target::Known(_), _) => note_address(txn, account)?,
        // An address is not enough for a way in that stays: whoever has the second factor as well links it from within.
        (Target::Address(_), Finished::Pending) => {}
        (Target::Address(_) | Target::New, _) => {
            link_within_bounds(txn, user, change.identity, account, now)?;
        }
    }
    Ok((finished, target))
}

/// Uses a state up, or finds that it is.
fn use_state(txn: &mut Txn<'_>, attempt: &OauthAttempt) -> Result<(), OauthError> {
    if read::<UsedStateRow>(txn, &attempt.state)?.is_some() {
        return Err(OauthError::InvalidState);
    }
    txn.put(&attempt.state, &UsedStateRow(attempt.expires_at));
    Ok(())
}

fn target(txn: &Txn<'_>, account: &ExternalAccount) -> Result<Target, StoreError> {
    if let Some(row) = owner(txn, IdentityKey::of(account))? {
        return Ok(Target::Known(row.user));
    }
    let Some(email) = &account.email else { return Ok(Target::New) };
    let known = read::<AddressRow>(txn, &email.as_str().to_owned())?;
    Ok(known.map_or(Target::New, |row| Target::Address(row.0)))
}

/// Makes an account, where the operator lets somebody like this have one.
fn new_account(txn: &mut Txn<'_>, change: &SignIn, now: Timestamp) -> Result<UserRow, OauthError> {
    let account = &change.account;
    let Some(email) = account.email.as_ref().filter(|_| account.email_verified) else {
        return Err(OauthError::SignupClosed("the provider does not say that the address is yours"));
    };
    if txn.scan::<UserRow>(&()).map_err(StoreError::from)?.is_empty() {
        // It would be nobody's administrator, and set-up would be over.
        return Err(OauthError::SignupClosed("the server is not set up yet"));
    }
    if !change.may_be_made {
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

/// Notes the address that the provider says now, for the list of identities alone.
fn note_address(txn: &mut Txn<'_>, account: &ExternalAccount) -> Result<(), StoreError> {
    let key = IdentityKey::of(account);
    let Some(row) = read::<IdentityRow>(txn, &key)? else { return Ok(()) };
    let email = account.email.as_ref().map(|email| email.as_str().to_owned());
    if row.email != email {
        txn.put(&key, &IdentityRow { email, ..row });
    }
    Ok(())
}
