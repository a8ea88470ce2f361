//! Accounts that people create themselves (`PROMLET_SIGNUP=open`, docs/specification.md C2).
//!
//! An account exists only once its mailed link is opened, so an account cannot be created for an
//! address whose mail one cannot read.

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::auth::credentials::Password;
use crate::identity::auth::link::{
    GivenProof, LINK_TTL, LinkError, LinkMail, LinkProof, LinkRequest, Opening, open_link, store_link,
    use_up_link,
};
use crate::identity::auth::login::{LoginOutcome, finish_login};
use crate::identity::auth::password::{WeakPassword, check_policy};
use crate::identity::auth::session::Client;
use crate::identity::options::{OrgCreate, SignupMode};
use crate::identity::orgs::org::{self, NewOrg, OrgError};
use crate::identity::tables::id::{OrgKey, Secret, SecretHash, SecretKind, UserId};
use crate::identity::tables::link::{LinkKind, LinkRow};
use crate::identity::tables::name::{self, NameError};
use crate::identity::tables::session::AuthMethod;
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::{AddressProof, AddressRow, UserRow};

/// The mail that answers a request to sign up.
#[derive(Clone, Debug)]
pub enum SignupMail {
    /// The link that creates the account.
    Link(LinkMail),
    /// A notice that the address already has an account.
    Known,
}

/// A request to create an account with a mailed link.
#[derive(Clone, Debug)]
pub struct NewAccount<'a> {
    /// Token of the link, `sgn_...`.
    pub token: &'a str,
    /// Evidence that the link was opened by the person who requested it.
    pub proof: LinkProof<'a>,
    /// The password, which must meet the policy; without one, the account is used with mailed
    /// links.
    pub password: Option<Password<'a>>,
    /// Display name; may be empty.
    pub name: &'a str,
    /// An organisation to create, if all accounts may create them.
    pub org: Option<NewOrg>,
    /// The client of the request.
    pub client: &'a Client,
    /// The session cookie of the request, if any: its session is revoked when the new one is
    /// issued.
    pub replaces: Option<&'a str>,
}

/// Errors of signing up. Unless the link is invalid, it can be used again.
#[derive(Debug, thiserror::Error)]
pub enum SignupError {
    /// `PROMLET_SIGNUP` does not allow new accounts: `signup_closed`.
    #[error("accounts are created by invitation here")]
    Closed,
    /// `link_invalid`, `email_confirmation_required`.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Another request created an account with this address: `email_taken`.
    #[error("this address has an account now; sign in")]
    EmailTaken,
    /// `weak_password`.
    #[error(transparent)]
    Weak(#[from] WeakPassword),
    /// `validation_failed`.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Errors of the organisation: `slug_taken`, `forbidden`.
    #[error(transparent)]
    Org(OrgError),
}

impl From<StoreError> for SignupError {
    fn from(error: StoreError) -> SignupError {
        SignupError::Link(LinkError::Store(error))
    }
}

/// A validated request to create an account.
struct PendingAccount {
    hash: SecretHash,
    address: String,
    proof: GivenProof,
    user: UserId,
    account: UserRow,
    org: Option<(NewOrg, OrgKey)>,
}

impl PendingAccount {
    /// Checks the proof of the link and stores account and organisation.
    fn store(
        &self,
        txn: &mut Txn<'_>,
        client: &Client,
        now: Timestamp,
    ) -> Result<Result<(), LinkError>, SignupError> {
        let (hash, address) = (self.hash, self.address.as_str());
        let kinds = &[LinkKind::Signup];
        let opening = Opening { hash, kinds, address, proof: &self.proof, from: client.ip };
        let link = match open_link(txn, &opening, now)? {
            Ok(link) => link,
            Err(refused) => return Ok(Err(refused)),
        };
        if read::<AddressRow>(txn, &self.address)?.is_some() {
            return Err(SignupError::EmailTaken);
        }
        use_up_link(txn, hash, &link);
        txn.put(&self.user, &self.account);
        txn.put(&self.address, &AddressRow(self.user));
        audit::record(txn, &Event::by(self.user, "account.created").target(address).at_ip(client.ip), now)?;
        if let Some((new, key)) = &self.org {
            let made = org::create(txn, self.user, new, *key, now).map_err(SignupError::Org)?;
            let event = Event::by(self.user, "org.created").of(made.org.id).target(new.slug.as_str());
            audit::record(txn, &event, now)?;
        }
        Ok(Ok(()))
    }
}

impl Identity {
    /// Returns the setting that says who may create an account.
    pub const fn signup_mode(&self) -> SignupMode {
        self.options.signup
    }

    /// Creates a link that creates an account. The response must not reveal whether the account
    /// exists. Blocks (commit).
    ///
    /// # Errors
    /// [`SignupError::Closed`], or [`StoreError`].
    pub fn request_signup(
        &self,
        request: &LinkRequest<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<SignupMail, SignupError> {
        if self.options.signup != SignupMode::Open {
            return Err(SignupError::Closed);
        }
        let token = Secret::random(SecretKind::Setup, rng);
        let (hash, address) = (token.hash(), request.email.as_str().to_owned());
        let sealed = self.seal_address(hash, request.email, rng);
        let slot = self.link_slot(LinkKind::Signup, &address);
        let browser = request.browser.map(SecretHash::of);
        let known = self.change(move |txn| {
            let known = read::<AddressRow>(txn, &address)?.is_some();
            let link = LinkRow {
                kind: LinkKind::Signup,
                user: None,
                slot,
                expires_at: now.plus(LINK_TTL),
                redirect: None,
                browser,
                wrong_addresses: 0,
                address: Some(sealed),
                asked_by: None,
            };
            store_link(txn, hash, &link)?;
            Ok::<_, SignupError>(known)
        })?;
        Ok(match known {
            true => SignupMail::Known,
            false => SignupMail::Link(LinkMail { to: request.email.clone(), token, expires_in: LINK_TTL }),
        })
    }

    /// Creates an account with a mailed link, exactly once, and logs it in. Blocks (hash, commit):
    /// run it on the password lane.
    ///
    /// # Errors
    /// [`SignupError`].
    pub fn complete_signup(
        &self,
        request: &NewAccount<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<LoginOutcome, SignupError> {
        if self.options.signup != SignupMode::Open {
            return Err(SignupError::Closed);
        }
        let pending = self.pending_account(request, now, rng)?;
        let (user, account) = (pending.user, pending.account.clone());
        let drawn = self.draw(user, request.client, request.replaces, rng);
        let for_change = drawn.for_change();
        let finished = self.change(move |txn| {
            if let Err(refused) = pending.store(txn, &for_change.0.client, now)? {
                return Ok(Err(refused));
            }
            let method = AuthMethod::Signup;
            Ok::<_, SignupError>(Ok(finish_login(txn, user, &account, method, &for_change, now)?))
        })??;
        Ok(self.outcome(user, drawn, finished)?)
    }

    /// Validates everything that can be checked before the change.
    fn pending_account(
        &self,
        request: &NewAccount<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<PendingAccount, SignupError> {
        let hash = SecretKind::Setup.hash_of(request.token).ok_or(LinkError::Invalid)?;
        let link = self.row::<LinkRow>(&hash)?.filter(|link| now < link.expires_at);
        let link = link.ok_or(LinkError::Invalid)?;
        let address = self.sealed_address(hash, &link)?.ok_or(LinkError::Invalid)?;
        let org_name = request.org.as_ref().map_or("", |org| &org.name);
        let name = name::parse(request.name)?;
        name::parse(org_name)?;
        if request.org.is_some() && self.options.org_create != OrgCreate::Any {
            return Err(SignupError::Org(OrgError::Forbidden));
        }
        let password = match request.password {
            None => None,
            Some(password) => {
                let slug = request.org.as_ref().map_or("", |org| org.slug.as_str());
                check_policy(password, &[&address, slug, org_name])?;
                Some(self.passwords.hash(password, rng))
            }
        };
        let account = UserRow {
            email: address.clone(),
            name,
            is_admin: false,
            disabled: false,
            password,
            created_at: now,
            sessions_epoch: 0,
            address_proof: AddressProof::from_bool(self.mail_proves()),
        };
        Ok(PendingAccount {
            hash,
            address,
            proof: GivenProof::of(request.proof),
            user: UserId::random(rng),
            account,
            org: request.org.clone().map(|org| (org, OrgKey::random(rng))),
        })
    }
}
