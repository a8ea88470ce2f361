//! Links that sign in: requested by mail, or printed by the demo and the command line
//! (docs/specification.md D5).

use std::time::Duration;

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::auth::address_proof;
use crate::identity::auth::link::{
    GivenProof, LinkError, LinkMail, LinkProof, LinkRequest, Opening, open_link, store_link, use_up_link,
};
use crate::identity::auth::login::{FinishedLogin, LoginOutcome, finish_login};
use crate::identity::auth::session::{Client, NewSession};
use crate::identity::tables::id::{Secret, SecretHash, SecretKind, UserId};
use crate::identity::tables::link::{LinkKind, LinkRow, LinkSlot};
use crate::identity::tables::session::AuthMethod;
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::{AddressRow, UserRow, active};

/// A newly created link for an existing user.
#[derive(Clone, Debug)]
pub struct IssuedLink {
    /// `mgl_...`.
    pub token: Secret,
    /// Lifetime of the link.
    pub expires_in: Duration,
}

/// An attempt to sign in with a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkLogin<'a> {
    /// Token of the link, `mgl_...`.
    pub token: &'a str,
    /// Evidence that the link was opened by the person who requested it.
    pub proof: LinkProof<'a>,
    /// The client of the request.
    pub client: &'a Client,
    /// The session cookie of the request, if any: its session is revoked when the new one is
    /// issued.
    pub replaces: Option<&'a str>,
}

/// The result of signing in with a link.
#[derive(Debug)]
pub struct LinkOutcome {
    /// A session, or a pending login that needs a code.
    pub login: LoginOutcome,
    /// The path that the request for the link named.
    pub redirect: Option<String>,
}

/// The kind of a link that is mailed to an existing account.
pub(super) struct AccountLink {
    pub(in crate::identity) kind: LinkKind,
    pub(in crate::identity) secret: SecretKind,
    pub(in crate::identity) ttl: Duration,
}

impl Identity {
    /// Creates a mailed sign-in link. Returns `None`, after the same work, if there is no account
    /// to mail. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn request_link(
        &self,
        request: &LinkRequest<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Option<LinkMail>, StoreError> {
        let kind =
            AccountLink { kind: LinkKind::Mailed, secret: SecretKind::MagicLink, ttl: self.options.link_ttl };
        self.mail_to_account(&kind, request, now, rng)
    }

    /// Creates a link for the account with the requested address, if it has one that may log in.
    pub(super) fn mail_to_account(
        &self,
        made: &AccountLink,
        request: &LinkRequest<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Option<LinkMail>, StoreError> {
        let token = Secret::random(made.secret, rng);
        let (hash, address) = (token.hash(), request.email.as_str().to_owned());
        let (kind, expires_in) = (made.kind, made.ttl);
        let slot = self.link_slot(kind, &address);
        let redirect = request.redirect.map(str::to_owned);
        let browser = request.browser.map(SecretHash::of);
        let user = self.change(move |txn| {
            let known = read::<AddressRow>(txn, &address)?.map(|row| row.0);
            let user = match known {
                Some(user) => active(txn, user)?.map(|_| user),
                None => None,
            };
            let expires_at = now.plus(expires_in);
            let link = LinkRow {
                kind,
                user,
                slot,
                expires_at,
                redirect,
                browser,
                wrong_addresses: 0,
                address: None,
                asked_by: None,
            };
            store_link(txn, hash, &link)?;
            Ok::<_, StoreError>(user)
        })?;
        Ok(user.map(|_| LinkMail { to: request.email.clone(), token, expires_in }))
    }

    /// Creates a printed link for an existing user, for the operator: demo, `promlet login-link`.
    /// Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`], also if the user does not exist.
    pub fn issue_login_link(
        &self,
        user: UserId,
        redirect: Option<String>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<IssuedLink, StoreError> {
        let account = self.row::<UserRow>(&user)?.ok_or(StoreError::Inconsistent("a link for no account"))?;
        let token = Secret::random(SecretKind::MagicLink, rng);
        let hash = token.hash();
        let expires_in = self.options.link_ttl;
        let slot = self.link_slot(LinkKind::Printed, &account.email);
        let expires_at = now.plus(expires_in);
        self.change(move |txn| {
            let link = LinkRow {
                kind: LinkKind::Printed,
                user: Some(user),
                slot,
                expires_at,
                redirect,
                browser: None,
                wrong_addresses: 0,
                address: None,
                asked_by: None,
            };
            store_link(txn, hash, &link)
        })?;
        Ok(IssuedLink { token, expires_in })
    }

    /// Signs in with a link, exactly once. Blocks (commit).
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn use_link(
        &self,
        attempt: &LinkLogin<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<LinkOutcome, LinkError> {
        let hash = SecretKind::MagicLink.hash_of(attempt.token).ok_or(LinkError::Invalid)?;
        let link = self.row::<LinkRow>(&hash).map_err(LinkError::Store)?.ok_or(LinkError::Invalid)?;
        let user = link.user.ok_or(LinkError::Invalid)?;
        let account = self.row::<UserRow>(&user).map_err(LinkError::Store)?.ok_or(LinkError::Invalid)?;
        let drawn = self.draw(user, attempt.client, attempt.replaces, rng);
        let using = LinkUse {
            hash,
            user,
            proof: GivenProof::of(attempt.proof),
            drawn: drawn.for_change(),
            slots: self.slots(user, &account),
            mail_proves: self.mail_proves(),
        };
        let used = self.change(move |txn| using.consume(txn, now))??;
        if let Some(epoch) = used.epoch {
            self.apply_epoch(user, epoch, None, &[]);
        }
        Ok(LinkOutcome { login: self.outcome(user, drawn, used.finished)?, redirect: used.redirect })
    }
}

/// A sign-in with a link, before its change.
struct LinkUse {
    hash: SecretHash,
    user: UserId,
    proof: GivenProof,
    drawn: (NewSession, SecretHash),
    /// Slots of the account's links.
    slots: Vec<LinkSlot>,
    mail_proves: bool,
}

/// The result of the change of a sign-in with a link.
struct UsedLink {
    finished: FinishedLogin,
    redirect: Option<String>,
    /// The new epoch of the account's sessions, if the older ones ended.
    epoch: Option<u32>,
}

impl LinkUse {
    /// Checks and removes a link within the change that creates the session.
    fn consume(&self, txn: &mut Txn<'_>, now: Timestamp) -> Result<Result<UsedLink, LinkError>, LinkError> {
        let LinkUse { hash, user, proof, drawn, slots, mail_proves } = self;
        let (user, ip) = (*user, drawn.0.client.ip);
        let account = active(txn, user)?.ok_or(LinkError::Invalid)?;
        let kinds = &[LinkKind::Mailed, LinkKind::Printed];
        let opening = Opening { hash: *hash, kinds, address: &account.email, proof, from: ip };
        let link = match open_link(txn, &opening, now)? {
            Ok(link) => link,
            Err(refused) => return Ok(Err(refused)),
        };
        use_up_link(txn, *hash, &link);
        let epoch = match link.kind {
            LinkKind::Mailed if *mail_proves => address_proof::prove(txn, user, slots, ip, now)?,
            _ => None,
        };
        let account = active(txn, user)?.ok_or(LinkError::Invalid)?;
        let finished = finish_login(txn, user, &account, AuthMethod::MagicLink, drawn, now)?;
        Ok(Ok(UsedLink { finished, redirect: link.redirect, epoch }))
    }
}
