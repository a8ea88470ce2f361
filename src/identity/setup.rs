//! The first account (docs/specification.md C2 signup first run, and E bootstrap).
//!
//! The set-up token lives in memory: it is printed at every start without an account, and a restart makes a new one.

use std::sync::atomic::Ordering;

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::{OrgSlug, SlugError, Timestamp};

use super::address_proof::AddressProof;
use super::audit::{self, Event};
use super::name::{self, NameError};
use super::org;
use super::password::{WeakPassword, check_policy};
use super::session::{Proof, issue};
use super::user::{AddressRow, UserRow};
use super::{
    AuthMethod, Client, Email, EmailError, Identity, LoggedIn, NewOrg, OrgError, OrgKey, Password, Secret,
    SecretKind, StoreError, User, UserId,
};

/// The first account: instance administrator and owner of the first organisation.
#[derive(Clone, Debug)]
pub struct SetUp<'a> {
    /// The token from the setup link, if given.
    pub token: Option<&'a str>,
    /// Whether the request comes from this machine: then no token is needed.
    pub peer: SetUpPeer,
    /// As typed.
    pub email: &'a str,
    /// Must meet the policy.
    pub password: Password<'a>,
    /// What the person wants to be called; may be empty.
    pub name: &'a str,
    /// The first organisation.
    pub org: NewOrg,
    /// From where.
    pub client: &'a Client,
}

/// Whether a set-up request comes from this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetUpPeer {
    /// It does: trusted.
    Local,
    /// It does not: the token is needed.
    Remote,
}

/// The account that environment variables ask for (docs/specification.md E).
#[derive(Clone, Debug)]
pub struct Bootstrap<'a> {
    /// `PROMLET_BOOTSTRAP_EMAIL`.
    pub email: &'a str,
    /// `PROMLET_BOOTSTRAP_PASSWORD`.
    pub password: Password<'a>,
    /// `PROMLET_BOOTSTRAP_ORG`.
    pub org: &'a str,
}

/// Why there is no first account now.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// An account exists: `signup_closed`.
    #[error("set-up is over: an account exists")]
    Closed,
    /// From another machine without the right token: `setup_token_required`.
    #[error("the set-up token is needed")]
    TokenRequired,
    /// `validation_failed`, field `email`.
    #[error(transparent)]
    Email(#[from] EmailError),
    /// `weak_password`.
    #[error(transparent)]
    Password(#[from] WeakPassword),
    /// `validation_failed`, field `org.slug`.
    #[error(transparent)]
    Slug(#[from] SlugError),
    /// `validation_failed`.
    #[error(transparent)]
    Name(#[from] NameError),
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A checked request: what the change stores.
#[derive(Clone)]
struct First {
    id: UserId,
    account: UserRow,
    org: NewOrg,
    org_key: OrgKey,
}

impl First {
    /// Stores account and organisation, if there is no account yet.
    fn store(&self, txn: &mut Txn<'_>, now: Timestamp) -> Result<(), SetUpError> {
        if !txn.scan::<UserRow>(&()).map_err(StoreError::from)?.is_empty() {
            return Err(SetUpError::Closed);
        }
        txn.put(&self.id, &self.account);
        txn.put(&self.account.email, &AddressRow(self.id));
        let made = org::create(txn, self.id, &self.org, self.org_key, now).map_err(|error| match error {
            OrgError::Store(error) => SetUpError::Store(error),
            OrgError::Name(error) => SetUpError::Name(error),
            OrgError::Slug(error) => SetUpError::Slug(error),
            // An account that is being made may, and a store without accounts has neither slugs nor numbers in use.
            OrgError::SlugTaken(_)
            | OrgError::TooMany
            | OrgError::Forbidden
            | OrgError::UnknownUser
            | OrgError::Exhausted => StoreError::Inconsistent("an organisation without any account").into(),
        })?;
        audit::note(txn, &Event::by(self.id, "admin.set_up").target(&self.account.email), now)?;
        audit::note(
            txn,
            &Event::by(self.id, "org.created").of(made.org.id).target(self.org.slug.as_str()),
            now,
        )?;
        Ok(())
    }
}

/// Who the first account is to be.
struct Person<'a> {
    email: &'a str,
    password: Password<'a>,
    name: &'a str,
}

impl Identity {
    /// Whether no account exists yet.
    pub fn needs_setup(&self) -> bool {
        !self.has_users.load(Ordering::Acquire)
    }

    /// Makes the token of the setup link; an earlier one stops working. Lives in memory, until set-up or restart.
    pub fn issue_setup_token(&self, _now: Timestamp, rng: &mut Entropy) -> Secret {
        let token = Secret::random(SecretKind::Setup, rng);
        *self.setup() = Some(token.hash());
        token
    }

    /// Makes the first account and logs it in. Blocks (hash, commit).
    ///
    /// # Errors
    /// [`SetUpError`]; nothing was stored then.
    pub fn set_up(
        &self,
        request: &SetUp<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<LoggedIn, SetUpError> {
        if !self.needs_setup() {
            return Err(SetUpError::Closed);
        }
        let given = request.token.and_then(|token| SecretKind::Setup.hash_of(token));
        let right = given.is_some() && given == *self.setup();
        if request.peer == SetUpPeer::Remote && !right {
            return Err(SetUpError::TokenRequired);
        }
        let person = Person { email: request.email, password: request.password, name: request.name };
        let first = self.first(&person, request.org.clone(), now, rng)?;
        let user = first.id;
        let drawn = self.draw(user, request.client, None, rng);
        let new = drawn.new.clone();
        let row = self.change(move |txn| {
            first.store(txn, now)?;
            let proof = Proof { method: AuthMethod::Setup, second_factor: false };
            Ok::<_, SetUpError>(issue(txn, user, &first.account, &new, proof, now))
        })?;
        self.first_account_made(now)?;
        Ok(self.logged_in(user, drawn.session, &drawn.new, row)?)
    }

    /// Makes the first account from the environment; `None` when an account exists. Blocks.
    ///
    /// # Errors
    /// [`SetUpError`]; nothing was stored then.
    pub fn bootstrap(
        &self,
        request: &Bootstrap<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Option<User>, SetUpError> {
        if !self.needs_setup() {
            return Ok(None);
        }
        let person = Person { email: request.email, password: request.password, name: "" };
        let org = NewOrg { slug: OrgSlug::parse(request.org)?, name: String::new() };
        let first = self.first(&person, org, now, rng)?;
        let user = first.id;
        self.change(move |txn| first.store(txn, now))?;
        self.first_account_made(now)?;
        Ok(self.user(user)?)
    }

    fn first(
        &self,
        person: &Person<'_>,
        org: NewOrg,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<First, SetUpError> {
        let email = Email::parse(person.email)?;
        let name = name::parse(person.name)?;
        name::parse(&org.name)?;
        check_policy(person.password, &[email.as_str(), org.slug.as_str(), &org.name])?;
        let account = UserRow {
            email: email.as_str().to_owned(),
            name,
            is_admin: true,
            disabled: false,
            password: Some(self.passwords.hash(person.password, rng)),
            created_at: now,
            sessions_epoch: 0,
            address_proof: AddressProof::Given,
        };
        Ok(First { id: UserId::random(rng), account, org, org_key: OrgKey::random(rng) })
    }

    /// As [`Identity::first_account_made`] for one of which it is not known whether it is the first.
    pub(super) fn account_made(&self, now: Timestamp) -> Result<(), StoreError> {
        if self.needs_setup() { self.first_account_made(now) } else { Ok(()) }
    }

    /// The mark comes after the commit and before the answer: a folder with the mark never offers set-up again.
    fn first_account_made(&self, now: Timestamp) -> Result<(), StoreError> {
        self.has_users.store(true, Ordering::Release);
        *self.setup() = None;
        (self.mark_initialised)(now)?;
        Ok(())
    }
}
