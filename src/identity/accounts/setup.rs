//! The first account (docs/specification.md C2 signup first run, and E bootstrap).
//!
//! The set-up token is in memory only. It is printed at every start without an account, and each
//! start creates a new one.

use std::sync::atomic::Ordering;

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::{OrgSlug, SlugError, Timestamp};

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::auth::credentials::Password;
use crate::identity::auth::login::LoggedIn;
use crate::identity::auth::password::{WeakPassword, check_policy};
use crate::identity::auth::session::{Client, LoginProof, issue};
use crate::identity::orgs::org::{self, NewOrg, OrgError};
use crate::identity::tables::id::{OrgKey, Secret, SecretKind, UserId};
use crate::identity::tables::name::{self, NameError};
use crate::identity::tables::session::AuthMethod;
use crate::identity::tables::store::StoreError;
use crate::identity::tables::user::{AddressProof, AddressRow, Email, EmailError, User, UserRow};

/// A request to create the first account: instance administrator and owner of the first
/// organisation.
#[derive(Clone, Debug)]
pub struct SetUp<'a> {
    /// The token of the setup link, if given.
    pub token: Option<&'a str>,
    /// Whether the request comes from this machine and so needs no token.
    pub peer: SetUpPeer,
    /// The address as typed.
    pub email: &'a str,
    /// The password, which must meet the policy.
    pub password: Password<'a>,
    /// Display name; may be empty.
    pub name: &'a str,
    /// The first organisation.
    pub org: NewOrg,
    /// The client of the request.
    pub client: &'a Client,
}

/// The origin of a set-up request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetUpPeer {
    /// A request from this machine, which is trusted.
    Local,
    /// Another machine: the token is required.
    Remote,
}

/// The first account as configured by environment variables (docs/specification.md E).
#[derive(Clone, Debug)]
pub struct Bootstrap<'a> {
    /// `PROMLET_BOOTSTRAP_EMAIL`.
    pub email: &'a str,
    /// `PROMLET_BOOTSTRAP_PASSWORD`.
    pub password: Password<'a>,
    /// `PROMLET_BOOTSTRAP_ORG`.
    pub org: &'a str,
}

/// Errors of creating the first account.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// An account exists: `signup_closed`.
    #[error("set-up has finished: an account exists")]
    Closed,
    /// The request comes from another machine without the right token: `setup_token_required`.
    #[error("the set-up token is required")]
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

/// The rows of the first account and organisation.
#[derive(Clone)]
struct FirstAccount {
    id: UserId,
    account: UserRow,
    org: NewOrg,
    org_key: OrgKey,
}

impl FirstAccount {
    /// Stores account and organisation if there is no account yet.
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
            // The first account is an administrator, and a store without accounts has no slugs or
            // numbers in use.
            OrgError::SlugTaken(_)
            | OrgError::TooMany
            | OrgError::Forbidden
            | OrgError::UnknownUser
            | OrgError::Exhausted => StoreError::Inconsistent("an organisation without any account").into(),
        })?;
        audit::record(txn, &Event::by(self.id, "admin.set_up").target(&self.account.email), now)?;
        audit::record(
            txn,
            &Event::by(self.id, "org.created").of(made.org.id).target(self.org.slug.as_str()),
            now,
        )?;
        Ok(())
    }
}

/// The owner of the first account.
struct FirstOwner<'a> {
    email: &'a str,
    password: Password<'a>,
    name: &'a str,
}

impl Identity {
    /// Returns whether no account exists yet.
    pub fn needs_setup(&self) -> bool {
        !self.has_users.load(Ordering::Acquire)
    }

    /// Creates the token of the setup link. An earlier token ends. It is held in memory until
    /// set-up or restart.
    pub fn issue_setup_token(&self, rng: &mut Entropy) -> Secret {
        let token = Secret::random(SecretKind::Setup, rng);
        *self.setup() = Some(token.hash());
        token
    }

    /// Creates the first account and logs it in. Blocks (hash, commit).
    ///
    /// # Errors
    /// [`SetUpError`]; nothing is stored then.
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
        let owner = FirstOwner { email: request.email, password: request.password, name: request.name };
        let first = self.first(&owner, request.org.clone(), now, rng)?;
        let user = first.id;
        let drawn = self.draw(user, request.client, None, rng);
        let new = drawn.new.clone();
        let row = self.change(move |txn| {
            first.store(txn, now)?;
            let proof = LoginProof { method: AuthMethod::Setup, second_factor: false };
            Ok::<_, SetUpError>(issue(txn, user, &first.account, &new, proof, now))
        })?;
        self.first_account_made(now)?;
        Ok(self.logged_in(user, drawn.session, &drawn.new, row)?)
    }

    /// Creates the first account from the environment; returns `None` if an account exists. Blocks
    /// (hash, commit).
    ///
    /// # Errors
    /// [`SetUpError`]; nothing is stored then.
    pub fn bootstrap(
        &self,
        request: &Bootstrap<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Option<User>, SetUpError> {
        if !self.needs_setup() {
            return Ok(None);
        }
        let owner = FirstOwner { email: request.email, password: request.password, name: "" };
        let org = NewOrg { slug: OrgSlug::parse(request.org)?, name: String::new() };
        let first = self.first(&owner, org, now, rng)?;
        let user = first.id;
        self.change(move |txn| first.store(txn, now))?;
        self.first_account_made(now)?;
        Ok(self.user(user)?)
    }

    fn first(
        &self,
        owner: &FirstOwner<'_>,
        org: NewOrg,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<FirstAccount, SetUpError> {
        let email = Email::parse(owner.email)?;
        let name = name::parse(owner.name)?;
        name::parse(&org.name)?;
        check_policy(owner.password, &[email.as_str(), org.slug.as_str(), &org.name])?;
        let account = UserRow {
            email: email.as_str().to_owned(),
            name,
            is_admin: true,
            disabled: false,
            password: Some(self.passwords.hash(owner.password, rng)),
            created_at: now,
            sessions_epoch: 0,
            address_proof: AddressProof::Given,
        };
        Ok(FirstAccount { id: UserId::random(rng), account, org, org_key: OrgKey::random(rng) })
    }

    /// Like [`Identity::first_account_made`], for an account that may not be the first.
    pub(super) fn account_made(&self, now: Timestamp) -> Result<(), StoreError> {
        if self.needs_setup() { self.first_account_made(now) } else { Ok(()) }
    }

    /// Ends set-up. The marker is written after the commit and before the response: a folder with
    /// the marker never offers set-up again.
    fn first_account_made(&self, now: Timestamp) -> Result<(), StoreError> {
        self.has_users.store(true, Ordering::Release);
        *self.setup() = None;
        (self.mark_initialised)(now)?;
        Ok(())
    }
}
