//! Links that sign in: asked for by mail, printed by the demo and the command line (docs/specification.md D5).

use std::time::Duration;

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::Timestamp;

use super::address_proof;
use super::link::{GivenProof, LinkKind, LinkRow, LinkSlot, Opening, open_link, store_link, use_up_link};
use super::login::{Finished, finish_login};
use super::session::NewSession;
use super::store::read;
use super::user::{AddressRow, UserRow, active};
use super::{
    AuthMethod, Client, Identity, LinkError, LinkMail, LinkProof, LinkRequest, LoginOutcome, Secret,
    SecretHash, SecretKind, StoreError, UserId,
};

/// A link that was just made for a known user.
#[derive(Clone, Debug)]
pub struct IssuedLink {
    /// `mgl_...`.
    pub token: Secret,
    /// How long it is good for.
    pub expires_in: Duration,
}

/// An attempt to use a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkLogin<'a> {
    /// `mgl_...`.
    pub token: &'a str,
    /// What shows that the right person opened it.
    pub proof: LinkProof<'a>,
    /// From where.
    pub client: &'a Client,
    /// The session cookie that came with the request, if any: revoked when the new session is issued.
    pub replaces: Option<&'a str>,
}

/// A used link.
#[derive(Debug)]
pub struct LinkOutcome {
    /// In, or a code is needed.
    pub login: LoginOutcome,
    /// Where the request wanted to go.
    pub redirect: Option<String>,
}

/// What a mailed link of an existing account is made of.
pub(super) struct ForAccount {
    pub(super) kind: LinkKind,
    pub(super) secret: SecretKind,
    pub(super) ttl: Duration,
}

impl Identity {
    /// A link by mail. Always accepted: `None` when there is nobody to mail, after the same work. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn request_link(
        &self,
        request: &LinkRequest<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Option<LinkMail>, StoreError> {
        let made =
            ForAccount { kind: LinkKind::Mailed, secret: SecretKind::MagicLink, ttl: self.options.link_ttl };
        self.mail_to_account(&made, request, now, rng)
    }

    /// A link for whoever has the address, if that is an account that may log in.
    pub(super) fn mail_to_account(
        &self,
        made: &ForAccount,
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

    /// A link for a known user, handed to whoever runs the program: demo, `promlet login-link`. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`], also where there is no such user.
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

    /// Uses a link, exactly once. Blocks (commit).
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
        let using = Using {
            hash,
            user,
            proof: GivenProof::of(attempt.proof),
            drawn: drawn.for_change(),
            slots: self.slots(user, &account),
            mail_proves: self.mail_proves(),
        };
        let used = self.change(move |txn| using.consume(txn, now))??;
        if let Some(epoch) = used.epoch {
            self.settle_epoch(user, epoch, None, &[]);
        }
        Ok(LinkOutcome { login: self.outcome(user, drawn, used.finished)?, redirect: used.redirect })
    }
}

/// A link that is about to sign in.
struct Using {
    hash: SecretHash,
    user: UserId,
    proof: GivenProof,
    drawn: (NewSession, SecretHash),
    /// Of the account's links.
    slots: Vec<LinkSlot>,
    mail_proves: bool,
}

/// A link that signed in.
struct Used {
    finished: Finished,
    redirect: Option<String>,
    /// Of the account's sessions, if the older ones ended.
    epoch: Option<u32>,
}

impl Using {
    /// Reads, judges and removes a link in the change that creates the session.
    fn consume(&self, txn: &mut Txn<'_>, now: Timestamp) -> Result<Result<Used, LinkError>, LinkError> {
        let Using { hash, user, proof, drawn, slots, mail_proves } = self;
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
        Ok(Ok(Used { finished, redirect: link.redirect, epoch }))
    }
}
