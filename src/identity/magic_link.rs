//! Links that sign in: asked for by mail, printed by the demo and the command line (API.md D5).
//!
//! One link is outstanding for an address and a kind, the newest. A request for an address that nobody has stores a
//! link all the same, one that opens nothing, so that both requests do the same work.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::entropy::Entropy;
use crate::kv::{Record, TableKey, Txn};
use crate::model::Timestamp;

use super::audit::{self, Event};
use super::login::{Finished, PENDING_MS, PendingRow, finish_login};
use super::session::NewSession;
use super::store::read;
use super::user::{AddressRow, UserRow, active};
use super::{
    AuthMethod, Client, Email, Identity, LoginOutcome, Secret, SecretHash, SecretKind, StoreError, UserId,
};

/// A mail to send, handed to the caller's queue: identity sends nothing itself.
#[derive(Clone, Debug)]
pub struct LinkMail {
    /// To whom.
    pub to: Email,
    /// `mgl_...`: goes into `{public_url}/api/v1/auth/magic-link/verify?token=`.
    pub token: Secret,
    /// How long it is good for.
    pub expires_in: Duration,
}

/// A link that was just made for a known user.
#[derive(Clone, Debug)]
pub struct IssuedLink {
    /// `mgl_...`.
    pub token: Secret,
    /// How long it is good for.
    pub expires_in: Duration,
}

/// A request for a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkRequest<'a> {
    /// Parsed already: a text that is no address is a 422.
    pub email: &'a Email,
    /// Where to go afterwards, already checked to be a path of ours.
    pub redirect: Option<&'a str>,
    /// The value of the cookie `ms_ml` set with the answer: binds the link to this browser.
    pub browser: Option<&'a str>,
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

/// What shows that the right person opened a link.
#[derive(Clone, Copy, Debug)]
pub enum LinkProof<'a> {
    /// Console mode: no scanner reads the console, the link alone is enough.
    Console,
    /// The cookie `ms_ml`, and the address as typed, where given.
    Browser {
        /// `ms_ml`.
        cookie: Option<&'a str>,
        /// As typed.
        email: Option<&'a str>,
    },
}

/// A used link.
#[derive(Debug)]
pub struct LinkOutcome {
    /// In, or a code is needed.
    pub login: LoginOutcome,
    /// Where the request wanted to go.
    pub redirect: Option<String>,
}

/// Why a link was refused.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Unknown, used, expired, burned: one answer, `link_invalid`.
    #[error("this link is not valid any more")]
    Invalid,
    /// Another browser than the one that asked, and no address typed: `email_confirmation_required`.
    #[error("type the address this link was sent to")]
    EmailRequired,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Wrong addresses after which a link is burned.
const WRONG_ADDRESSES_MAX: u8 = 5;

/// Where a link went; one of each is outstanding, so that a stranger's request for a mail does not void a printed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LinkKind {
    /// To an address.
    Mailed,
    /// To whoever runs the program; needs no further proof.
    Printed,
}

/// A link as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LinkRow {
    pub(super) kind: LinkKind,
    /// `None` where nobody has the address.
    pub(super) user: Option<UserId>,
    /// Where the newest link of this address is noted.
    pub(super) slot: LinkSlot,
    pub(super) expires_at: Timestamp,
    pub(super) redirect: Option<String>,
    /// Of the cookie `ms_ml`.
    pub(super) browser: Option<SecretHash>,
    pub(super) wrong_addresses: u8,
}

impl Record for LinkRow {
    const TABLE: u8 = 0x07;
    const KIND: u8 = 0x07;
    const VERSION: u8 = 1;
    type Key = SecretHash;
}

/// HMAC of kind and address: unknown addresses are not kept in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LinkSlot(pub(super) [u8; 16]);

impl TableKey for LinkSlot {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(from: &mut &[u8]) -> Option<LinkSlot> {
        TableKey::read(from).map(LinkSlot)
    }
}

/// The newest link of an address.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct NewestLinkRow(pub(super) SecretHash);

impl Record for NewestLinkRow {
    const TABLE: u8 = 0x08;
    const KIND: u8 = 0x08;
    const VERSION: u8 = 1;
    type Key = LinkSlot;
}

/// Stores a link in place of the one before it.
fn store_link(txn: &mut Txn<'_>, hash: SecretHash, link: &LinkRow) -> Result<(), StoreError> {
    if let Some(NewestLinkRow(old)) = read::<NewestLinkRow>(txn, &link.slot)? {
        txn.remove::<LinkRow>(&old);
    }
    txn.put(&link.slot, &NewestLinkRow(hash));
    txn.put(&hash, link);
    Ok(())
}

/// Removes a link, and the note of it where it is the newest.
pub(super) fn remove_link(txn: &mut Txn<'_>, hash: SecretHash, link: &LinkRow) -> Result<(), StoreError> {
    txn.remove::<LinkRow>(&hash);
    if read::<NewestLinkRow>(txn, &link.slot)? == Some(NewestLinkRow(hash)) {
        txn.remove::<NewestLinkRow>(&link.slot);
    }
    Ok(())
}

/// What shows that the right person opened a link, as a change takes it.
struct GivenProof {
    console: bool,
    browser: Option<SecretHash>,
    email: Option<String>,
}

impl GivenProof {
    fn of(proof: LinkProof<'_>) -> GivenProof {
        match proof {
            LinkProof::Console => GivenProof { console: true, browser: None, email: None },
            LinkProof::Browser { cookie, email } => GivenProof {
                console: false,
                browser: cookie.map(SecretHash::of),
                // What is no address is a wrong address.
                email: email.map(|text| {
                    Email::parse(text).map_or_else(|_| String::new(), |email| email.as_str().to_owned())
                }),
            },
        }
    }
}

impl Identity {
    fn link_slot(&self, kind: LinkKind, email: &str) -> LinkSlot {
        let purpose = match kind {
            LinkKind::Mailed => "mailed link",
            LinkKind::Printed => "printed link",
        };
        let [head @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
            self.sealing.derive(purpose, email.as_bytes());
        LinkSlot(head)
    }

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
        let token = Secret::random(SecretKind::MagicLink, rng);
        let (hash, address) = (token.hash(), request.email.as_str().to_owned());
        let slot = self.link_slot(LinkKind::Mailed, &address);
        let expires_in = self.options.link_ttl;
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
                kind: LinkKind::Mailed,
                user,
                slot,
                expires_at,
                redirect,
                browser,
                wrong_addresses: 0,
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
        let drawn = self.draw(user, attempt.client, attempt.replaces, rng);
        let (for_change, proof) = (drawn.for_change(), GivenProof::of(attempt.proof));
        let (finished, redirect) = self.change(move |txn| consume(txn, hash, &proof, &for_change, now))??;
        Ok(LinkOutcome { login: self.outcome(user, drawn, finished)?, redirect })
    }
}

/// Expired rows removed in one sweep at most, and in one change: a link may take its note along.
const SWEEP_ROWS: usize = 1_000;
const SWEEP_ROWS_A_CHANGE: usize = 30;

impl Identity {
    /// Removes expired links and pending logins.
    pub(super) fn sweep_logins(&self, now: Timestamp) -> Result<(), StoreError> {
        let links: Vec<_> = self
            .rows::<LinkRow>(&())?
            .into_iter()
            .filter(|(_, link)| now >= link.expires_at)
            .take(SWEEP_ROWS)
            .collect();
        for some in links.chunks(SWEEP_ROWS_A_CHANGE) {
            let some = some.to_vec();
            self.change(move |txn| some.iter().try_for_each(|(hash, link)| remove_link(txn, *hash, link)))?;
        }
        let expired = |row: &PendingRow| now.ms_since(row.created_at) >= PENDING_MS;
        let pending: Vec<_> = self
            .rows::<PendingRow>(&())?
            .into_iter()
            .filter(|(_, row)| expired(row))
            .take(SWEEP_ROWS)
            .collect();
        for some in pending.chunks(SWEEP_ROWS_A_CHANGE) {
            let some: Vec<SecretHash> = some.iter().map(|(hash, _)| *hash).collect();
            self.change(move |txn| {
                some.iter().for_each(|hash| txn.remove::<PendingRow>(hash));
                Ok::<_, StoreError>(())
            })?;
        }
        Ok(())
    }
}

/// Reads, judges and removes a link in the change that creates the session. A wrong address is counted, so it is the
/// value of the change and not its error.
fn consume(
    txn: &mut Txn<'_>,
    hash: SecretHash,
    proof: &GivenProof,
    drawn: &(NewSession, SecretHash),
    now: Timestamp,
) -> Result<Result<(Finished, Option<String>), LinkError>, LinkError> {
    let link = read::<LinkRow>(txn, &hash)?.filter(|link| now < link.expires_at).ok_or(LinkError::Invalid)?;
    let user = link.user.ok_or(LinkError::Invalid)?;
    let account = active(txn, user)?.ok_or(LinkError::Invalid)?;
    let same_browser = link.browser.is_some() && link.browser == proof.browser;
    if !proof.console && link.kind == LinkKind::Mailed && !same_browser {
        let typed = proof.email.as_deref().ok_or(LinkError::EmailRequired)?;
        if typed != account.email {
            let wrong_addresses = link.wrong_addresses.saturating_add(1);
            if wrong_addresses >= WRONG_ADDRESSES_MAX {
                remove_link(txn, hash, &link)?;
            } else {
                txn.put(&hash, &LinkRow { wrong_addresses, ..link });
            }
            let event = Event::by_nobody("login.fail")
                .target(&account.email)
                .at_ip(drawn.0.client.ip)
                .detail("link: wrong address");
            audit::note(txn, &event, now)?;
            return Ok(Err(LinkError::Invalid));
        }
    }
    remove_link(txn, hash, &link)?;
    let finished = finish_login(txn, user, &account, AuthMethod::MagicLink, drawn, now)?;
    Ok(Ok((finished, link.redirect)))
}
