//! Accounts that people make themselves (`PROMLET_SIGNUP=open`, docs/specification.md C2).
//!
//! An account exists from the moment its mailed link is opened, and not before: nobody can plant one on an address
//! that they cannot read.

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::Timestamp;

use super::address_proof::AddressProof;
use super::audit::{self, Event};
use super::link::{GivenProof, LINK_TTL, LinkKind, LinkRow, Opening, open_link, store_link, use_up_link};
use super::login::finish_login;
use super::name::{self, NameError};
use super::org;
use super::password::{WeakPassword, check_policy};
use super::store::read;
use super::user::{AddressRow, UserRow};
use super::{
    AuthMethod, Client, Identity, LinkError, LinkMail, LinkProof, LinkRequest, LoginOutcome, NewOrg,
    OrgCreate, OrgError, OrgKey, Password, Secret, SecretHash, SecretKind, StoreError, UserId,
};

/// Who may make an account (`PROMLET_SIGNUP`). The first account of an instance is another matter: it can always be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignupMode {
    /// Nobody but the first, and who is invited.
    #[default]
    First,
    /// Everybody who can read a mail.
    Open,
    /// Who is invited.
    Invite,
    /// Nobody, invited or not.
    Closed,
}

impl SignupMode {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            SignupMode::First => "first",
            SignupMode::Open => "open",
            SignupMode::Invite => "invite",
            SignupMode::Closed => "closed",
        }
    }

    /// Whether an invitation may make an account.
    pub const fn takes_invited(self) -> bool {
        !matches!(self, SignupMode::Closed)
    }
}

/// What to mail to somebody who wants an account.
#[derive(Clone, Debug)]
pub enum SignupMail {
    /// The link that makes it.
    Link(LinkMail),
    /// Nothing but word that there is one already.
    Known,
}

/// Somebody with a mailed link makes their account.
#[derive(Clone, Debug)]
pub struct NewAccount<'a> {
    /// `sgn_...`.
    pub token: &'a str,
    /// What shows that the right person opened it.
    pub proof: LinkProof<'a>,
    /// Must meet the policy, where given; without one, sign-in links are the way in.
    pub password: Option<Password<'a>>,
    /// What the person wants to be called; may be empty.
    pub name: &'a str,
    /// An organisation of their own, where everybody may make one.
    pub org: Option<NewOrg>,
    /// From where.
    pub client: &'a Client,
    /// The session cookie that came with the request, if any: revoked when the new session is issued.
    pub replaces: Option<&'a str>,
}

/// Why no account was made; except for a link that is not valid, it still works.
#[derive(Debug, thiserror::Error)]
pub enum SignupError {
    /// `PROMLET_SIGNUP` says no: `signup_closed`.
    #[error("accounts are made by invitation here")]
    Closed,
    /// `link_invalid`, `email_confirmation_required`.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Meanwhile the address has an account: `email_taken`.
    #[error("this address has an account by now; sign in")]
    EmailTaken,
    /// `weak_password`.
    #[error(transparent)]
    Weak(#[from] WeakPassword),
    /// `validation_failed`.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The organisation: `slug_taken`, `forbidden`.
    #[error(transparent)]
    Org(OrgError),
}

impl From<StoreError> for SignupError {
    fn from(error: StoreError) -> SignupError {
        SignupError::Link(LinkError::Store(error))
    }
}

/// An account as a link makes it.
struct Making {
    hash: SecretHash,
    address: String,
    proof: GivenProof,
    user: UserId,
    account: UserRow,
    org: Option<(NewOrg, OrgKey)>,
}

impl Making {
    /// Judges the link and stores account and organisation.
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
        audit::note(txn, &Event::by(self.user, "account.created").target(address).at_ip(client.ip), now)?;
        if let Some((new, key)) = &self.org {
            let made = org::create(txn, self.user, new, *key, now).map_err(SignupError::Org)?;
            let event = Event::by(self.user, "org.created").of(made.org.id).target(new.slug.as_str());
            audit::note(txn, &event, now)?;
        }
        Ok(Ok(()))
    }
}

impl Identity {
    /// Who may make an account.
    pub const fn signup_mode(&self) -> SignupMode {
        self.options.signup
    }

    /// A link that makes an account. Nothing tells who asks whether there is one already. Blocks (commit).
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

    /// Makes an account by a mailed link, exactly once, and logs it in. Blocks (hash, commit): run it on the password
    /// lane.
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
        let making = self.making(request, now, rng)?;
        let (user, account) = (making.user, making.account.clone());
        let drawn = self.draw(user, request.client, request.replaces, rng);
        let for_change = drawn.for_change();
        let finished = self.change(move |txn| {
            if let Err(refused) = making.store(txn, &for_change.0.client, now)? {
                return Ok(Err(refused));
            }
            let method = AuthMethod::Signup;
            Ok::<_, SignupError>(Ok(finish_login(txn, user, &account, method, &for_change, now)?))
        })??;
        Ok(self.outcome(user, drawn, finished)?)
    }

    /// Everything that can be judged before the change.
    fn making(
        &self,
        request: &NewAccount<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Making, SignupError> {
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
        Ok(Making {
            hash,
            address,
            proof: GivenProof::of(request.proof),
            user: UserId::random(rng),
            account,
            org: request.org.clone().map(|org| (org, OrgKey::random(rng))),
        })
    }
}
