//! Links that prove who can read an address: one row each, found by the hash of their secret, used once (docs/specification.md D5).
//!
//! Several mailed links of an address and a kind may be outstanding, so that a stranger's request does not void a link
//! that the owner asked for; using one ends the others. Of printed links and of those that prove a new address the newest
//! alone counts. A request for an address that opens nothing stores a link all the same, so that both requests do the
//! same work. Whoever opens a link shows that they asked for it, by the
//! cookie of the browser that did, or by typing the address; five wrong addresses burn the link.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::entropy::Entropy;
use crate::kv::{Record, TableKey, Txn, decode_body};
use crate::model::Timestamp;

use super::audit::{self, Event};
use super::login::{PENDING_MS, PendingRow};
use super::master::SealedFor;
use super::store::read;
use super::user::UserRow;
use super::{Email, Identity, Secret, SecretHash, StoreError, UserId};

/// A mail to send, handed to the caller's queue: identity sends nothing itself.
#[derive(Clone, Debug)]
pub struct LinkMail {
    /// To whom.
    pub to: Email,
    /// What the link carries: `mgl_...`, `rst_...`, `sgn_...`, `eml_...`.
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
/// How long links live whose time no setting says.
pub const LINK_TTL: Duration = Duration::from_secs(600);

/// Mailed links of one address and kind that are outstanding at most; beyond it the oldest is removed.
///
/// The limits of mails admit fewer while one link lives, or a stranger could void the owner's. A link lives an hour at
/// most (`PROMLET_MAGIC_LINK_TTL`). Within an hour all strangers together get 20 at once and 20 more as their bucket
/// fills, and known devices 5 and 20: 65. A restart fills both buckets again: 25 more.
pub const OUTSTANDING_LINKS_MAX: usize = 128;

/// What a link does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LinkKind {
    /// Signs in; mailed.
    Mailed,
    /// Signs in; printed for whoever runs the program, needs no further proof.
    Printed,
    // Stored by their place in this list: new ones come last.
    /// Sets a new password.
    Reset,
    /// Makes an account.
    Signup,
    /// Proves an account's new address.
    Email,
}

impl LinkKind {
    const ALL: [LinkKind; 5] =
        [LinkKind::Mailed, LinkKind::Printed, LinkKind::Reset, LinkKind::Signup, LinkKind::Email];

    /// Links of one slot that are outstanding at most.
    const fn outstanding_max(self) -> usize {
        match self {
            LinkKind::Mailed | LinkKind::Reset | LinkKind::Signup => OUTSTANDING_LINKS_MAX,
            LinkKind::Printed | LinkKind::Email => 1,
        }
    }

    /// What the slot's HMAC is for.
    const fn purpose(self) -> &'static str {
        match self {
            LinkKind::Mailed => "mailed link",
            LinkKind::Printed => "printed link",
            LinkKind::Reset => "reset link",
            LinkKind::Signup => "signup link",
            LinkKind::Email => "email link",
        }
    }
}

/// A link as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LinkRow {
    pub(super) kind: LinkKind,
    /// `None` where nobody has the address, and in a link that makes an account.
    pub(super) user: Option<UserId>,
    /// Where the outstanding links of this address are noted.
    pub(super) slot: LinkSlot,
    pub(super) expires_at: Timestamp,
    pub(super) redirect: Option<String>,
    /// Of the cookie `ms_ml`.
    pub(super) browser: Option<SecretHash>,
    pub(super) wrong_addresses: u8,
    /// An address that no account has yet, sealed for the link's hash; since version 2.
    pub(super) address: Option<Vec<u8>>,
    /// The session that asked for it, where the link dies with that; since version 3.
    pub(super) asked_by: Option<SecretHash>,
}

/// Version 1 of [`LinkRow`].
#[derive(Deserialize)]
struct LinkRowV1 {
    kind: LinkKind,
    user: Option<UserId>,
    slot: LinkSlot,
    expires_at: Timestamp,
    redirect: Option<String>,
    browser: Option<SecretHash>,
    wrong_addresses: u8,
}

/// Version 2 of [`LinkRow`]: what was added stands at the end.
#[derive(Deserialize)]
struct LinkRowV2 {
    before: LinkRowV1,
    address: Option<Vec<u8>>,
}

impl Record for LinkRow {
    const TABLE: u8 = 0x07;
    const KIND: u8 = 0x07;
    const VERSION: u8 = 3;
    type Key = SecretHash;

    fn from_older(version: u8, body: &[u8]) -> Result<LinkRow, String> {
        let LinkRowV2 { before: old, address } = match version {
            1 => LinkRowV2 { before: decode_body(body)?, address: None },
            2 => decode_body(body)?,
            _ => return Err(format!("version {version} of a link")),
        };
        Ok(LinkRow {
            kind: old.kind,
            user: old.user,
            slot: old.slot,
            expires_at: old.expires_at,
            redirect: old.redirect,
            browser: old.browser,
            wrong_addresses: old.wrong_addresses,
            address,
            asked_by: None,
        })
    }
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

/// The outstanding links of an address and a kind, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct OutstandingRow(pub(super) Vec<SecretHash>);

impl Record for OutstandingRow {
    const TABLE: u8 = 0x08;
    const KIND: u8 = 0x08;
    const VERSION: u8 = 2;
    type Key = LinkSlot;

    /// Version 1 held the newest link alone.
    fn from_older(version: u8, body: &[u8]) -> Result<OutstandingRow, String> {
        match version {
            1 => Ok(OutstandingRow(vec![decode_body(body)?])),
            _ => Err(format!("version {version} of outstanding links")),
        }
    }
}

/// Stores a link. Where too many of its slot are outstanding, the oldest of them are removed.
pub(super) fn store_link(txn: &mut Txn<'_>, hash: SecretHash, link: &LinkRow) -> Result<(), StoreError> {
    let mut outstanding = read::<OutstandingRow>(txn, &link.slot)?.unwrap_or_default().0;
    let surplus = (outstanding.len() + 1).saturating_sub(link.kind.outstanding_max());
    for old in outstanding.drain(..surplus) {
        txn.remove::<LinkRow>(&old);
    }
    outstanding.push(hash);
    txn.put(&link.slot, &OutstandingRow(outstanding));
    txn.put(&hash, link);
    Ok(())
}

/// A link of one of these kinds that may be used: it has not expired, and its slot still notes it.
pub(super) fn outstanding(
    txn: &Txn<'_>,
    hash: SecretHash,
    kinds: &[LinkKind],
    now: Timestamp,
) -> Result<Option<LinkRow>, StoreError> {
    let Some(link) = read::<LinkRow>(txn, &hash)? else { return Ok(None) };
    let noted = read::<OutstandingRow>(txn, &link.slot)?.is_some_and(|row| row.0.contains(&hash));
    Ok(Some(link).filter(|link| noted && now < link.expires_at && kinds.contains(&link.kind)))
}

/// Removes a link that expired or was burned; the others of its slot stay.
pub(super) fn remove_link(txn: &mut Txn<'_>, hash: SecretHash, link: &LinkRow) -> Result<(), StoreError> {
    txn.remove::<LinkRow>(&hash);
    let Some(OutstandingRow(mut outstanding)) = read::<OutstandingRow>(txn, &link.slot)? else {
        return Ok(());
    };
    outstanding.retain(|other| *other != hash);
    if outstanding.is_empty() {
        txn.remove::<OutstandingRow>(&link.slot);
    } else {
        txn.put(&link.slot, &OutstandingRow(outstanding));
    }
    Ok(())
}

/// Removes a link that was used, and ends the others of its slot.
pub(super) fn use_up_link(txn: &mut Txn<'_>, hash: SecretHash, link: &LinkRow) {
    txn.remove::<LinkRow>(&hash);
    end_outstanding(txn, &[link.slot]);
}

/// Ends the links of these slots: all that are outstanding for an account ([`Identity::slots`]). One row each, because a
/// change has few rows; the links themselves are swept when they expire.
pub(super) fn end_outstanding(txn: &mut Txn<'_>, slots: &[LinkSlot]) {
    slots.iter().for_each(|slot| txn.remove::<OutstandingRow>(slot));
}

/// What shows that the right person opened a link, as a change takes it.
#[derive(Clone)]
pub(super) struct GivenProof {
    console: bool,
    browser: Option<SecretHash>,
    email: Option<String>,
}

impl GivenProof {
    pub(super) fn of(proof: LinkProof<'_>) -> GivenProof {
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

/// Somebody who opens a link.
pub(super) struct Opening<'a> {
    pub(super) hash: SecretHash,
    /// What the link may be.
    pub(super) kinds: &'a [LinkKind],
    /// To whom it was sent.
    pub(super) address: &'a str,
    pub(super) proof: &'a GivenProof,
    pub(super) from: IpAddr,
}

/// Judges who opens a link, in the change that uses it up; the caller removes it. A wrong address is counted, so it is
/// the value of the change and not its error.
pub(super) fn open_link(
    txn: &mut Txn<'_>,
    opening: &Opening<'_>,
    now: Timestamp,
) -> Result<Result<LinkRow, LinkError>, LinkError> {
    let Opening { hash, kinds, address, proof, from } = opening;
    let link = outstanding(txn, *hash, kinds, now)?.ok_or(LinkError::Invalid)?;
    let same_browser = link.browser.is_some() && link.browser == proof.browser;
    if proof.console || link.kind == LinkKind::Printed || same_browser {
        return Ok(Ok(link));
    }
    let typed = proof.email.as_deref().ok_or(LinkError::EmailRequired)?;
    if typed == *address {
        return Ok(Ok(link));
    }
    let wrong_addresses = link.wrong_addresses.saturating_add(1);
    if wrong_addresses >= WRONG_ADDRESSES_MAX {
        remove_link(txn, *hash, &link)?;
    } else {
        txn.put(hash, &LinkRow { wrong_addresses, ..link });
    }
    let event = Event::by_nobody("login.fail").target(address).at_ip(*from).detail("link: wrong address");
    audit::note(txn, &event, now)?;
    Ok(Err(LinkError::Invalid))
}

fn sealed_for(hash: &SecretHash) -> SealedFor<'_> {
    SealedFor { kind: "link", id: &hash.0 }
}

impl Identity {
    /// Where the outstanding links of a kind are noted for whom they concern: an address, or for `Email` an account's id.
    pub(super) fn link_slot(&self, kind: LinkKind, whose: &str) -> LinkSlot {
        let [head @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
            self.sealing.derive(kind.purpose(), whose.as_bytes());
        LinkSlot(head)
    }

    /// Where the links of an account are noted.
    pub(super) fn slots(&self, user: UserId, account: &UserRow) -> Vec<LinkSlot> {
        let slot = |kind| match kind {
            LinkKind::Email => self.link_slot(kind, &user.to_string()),
            _ => self.link_slot(kind, &account.email),
        };
        LinkKind::ALL.into_iter().map(slot).collect()
    }

    /// An address as a link keeps it that no account has.
    pub(super) fn seal_address(&self, hash: SecretHash, email: &Email, rng: &mut Entropy) -> Vec<u8> {
        self.sealing.seal(sealed_for(&hash), email.as_str().as_bytes(), rng)
    }

    /// The address that a link keeps; `None` where it keeps none.
    pub(super) fn sealed_address(
        &self,
        hash: SecretHash,
        link: &LinkRow,
    ) -> Result<Option<String>, StoreError> {
        let Some(sealed) = &link.address else { return Ok(None) };
        let plain = self.sealing.open(sealed_for(&hash), sealed)?;
        String::from_utf8(plain)
            .map(Some)
            .map_err(|_| StoreError::Inconsistent("a link's address is no text"))
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
