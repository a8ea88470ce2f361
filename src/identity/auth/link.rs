//! Links that prove who reads mail to an address: one row each, looked up by the hash of their
//! secret, used once (docs/specification.md D5).
//!
//! Several mailed links of an address and a kind may be outstanding, so that another person's
//! request does not invalidate a link that the owner requested. The use of one link ends the other
//! links. Of printed links and of links that prove a new address, only the newest is valid. A
//! request for an address without an account stores a link as well, so that both requests do the
//! same work. The person who opens a link proves that they requested it: by the cookie of the
//! browser that did, or by typing the address. Five wrong addresses burn the link.

use std::net::IpAddr;
use std::time::Duration;

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::auth::login::PENDING_MS;
use crate::identity::tables::id::{Secret, SecretHash, UserId};
use crate::identity::tables::link::{LinkKind, LinkRow, LinkSlot, OutstandingRow};
use crate::identity::tables::master::SealedFor;
use crate::identity::tables::session::PendingRow;
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::{Email, UserRow};

/// A mail to send. The caller queues it: identity itself sends nothing.
#[derive(Clone, Debug)]
pub struct LinkMail {
    /// The recipient.
    pub to: Email,
    /// The secret of the link: `mgl_...`, `rst_...`, `sgn_...`, `eml_...`.
    pub token: Secret,
    /// Lifetime of the link.
    pub expires_in: Duration,
}

/// A request for a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkRequest<'a> {
    /// The address, already parsed: a text that is not an address is refused with 422.
    pub email: &'a Email,
    /// The path to open afterwards; already checked to be on this server.
    pub redirect: Option<&'a str>,
    /// The value of the cookie `ms_ml` set by the response, which binds the link to this browser.
    pub browser: Option<&'a str>,
}

/// Evidence that a link was opened by the person who requested it.
#[derive(Clone, Copy, Debug)]
pub enum LinkProof<'a> {
    /// Console mode: no mail scanner reads the console, so the link alone is enough.
    Console,
    /// The cookie `ms_ml` and the typed address, as far as given.
    Browser {
        /// Value of the cookie `ms_ml`.
        cookie: Option<&'a str>,
        /// The address as typed.
        email: Option<&'a str>,
    },
}

/// Errors of opening a link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Unknown, used, expired or burned: always `link_invalid`.
    #[error("this link is not valid any more")]
    Invalid,
    /// The browser is not the one that requested the link, and no address was typed:
    /// `email_confirmation_required`.
    #[error("type the address this link was sent to")]
    EmailRequired,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The number of wrong addresses after which a link becomes invalid.
const WRONG_ADDRESSES_MAX: u8 = 5;
/// Lifetime of links without a setting for it.
pub const LINK_TTL: Duration = Duration::from_secs(600);

/// Maximum number of outstanding mailed links of one address and kind; beyond it the oldest is
/// removed.
///
/// The rate limits of mails admit fewer during the lifetime of a link; otherwise strangers could
/// invalidate the owner's link. A link is valid for an hour at most (`PROMLET_MAGIC_LINK_TTL`).
/// Within an hour all unknown browsers together get 20 mails at once and 20 more as their bucket
/// refills, and known devices 5 and 20: 65. A restart refills both buckets: 25 more.
pub const OUTSTANDING_LINKS_MAX: usize = 128;

impl LinkKind {
    const ALL: [LinkKind; 5] =
        [LinkKind::Mailed, LinkKind::Printed, LinkKind::Reset, LinkKind::Signup, LinkKind::Email];

    /// Returns the maximum number of outstanding links of one slot.
    const fn outstanding_max(self) -> usize {
        match self {
            LinkKind::Mailed | LinkKind::Reset | LinkKind::Signup => OUTSTANDING_LINKS_MAX,
            LinkKind::Printed | LinkKind::Email => 1,
        }
    }

    /// Returns the purpose string of the slot's HMAC.
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

/// Stores a link. If its slot has too many outstanding links, removes the oldest.
pub(in crate::identity) fn store_link(
    txn: &mut Txn<'_>,
    hash: SecretHash,
    link: &LinkRow,
) -> Result<(), StoreError> {
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

/// Returns a valid link of one of these kinds: it has not expired, and its slot still lists it.
pub(in crate::identity) fn outstanding(
    txn: &Txn<'_>,
    hash: SecretHash,
    kinds: &[LinkKind],
    now: Timestamp,
) -> Result<Option<LinkRow>, StoreError> {
    let Some(link) = read::<LinkRow>(txn, &hash)? else { return Ok(None) };
    let noted = read::<OutstandingRow>(txn, &link.slot)?.is_some_and(|row| row.0.contains(&hash));
    Ok(Some(link).filter(|link| noted && now < link.expires_at && kinds.contains(&link.kind)))
}

/// Removes an expired or burned link; the others of its slot stay.
pub(in crate::identity) fn remove_link(
    txn: &mut Txn<'_>,
    hash: SecretHash,
    link: &LinkRow,
) -> Result<(), StoreError> {
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

/// Removes a used link and ends the others of its slot.
pub(in crate::identity) fn use_up_link(txn: &mut Txn<'_>, hash: SecretHash, link: &LinkRow) {
    txn.remove::<LinkRow>(&hash);
    end_outstanding(txn, &[link.slot]);
}

/// Ends the links of these slots, such as all outstanding links of an account
/// ([`Identity::slots`]). It removes one row per slot, because the number of rows of a change is
/// limited; the links themselves are swept when they expire.
pub(in crate::identity) fn end_outstanding(txn: &mut Txn<'_>, slots: &[LinkSlot]) {
    slots.iter().for_each(|slot| txn.remove::<OutstandingRow>(slot));
}

/// A [`LinkProof`] in owned form, for a change.
#[derive(Clone)]
pub(in crate::identity) struct GivenProof {
    console: bool,
    browser: Option<SecretHash>,
    email: Option<String>,
}

impl GivenProof {
    pub(in crate::identity) fn of(proof: LinkProof<'_>) -> GivenProof {
        match proof {
            LinkProof::Console => GivenProof { console: true, browser: None, email: None },
            LinkProof::Browser { cookie, email } => GivenProof {
                console: false,
                browser: cookie.map(SecretHash::of),
                // A text that is not an address counts as a wrong address.
                email: email.map(|text| {
                    Email::parse(text).map_or_else(|_| String::new(), |email| email.as_str().to_owned())
                }),
            },
        }
    }
}

/// An attempt to open a link.
pub(in crate::identity) struct Opening<'a> {
    pub(in crate::identity) hash: SecretHash,
    /// The kinds that are accepted.
    pub(in crate::identity) kinds: &'a [LinkKind],
    /// The address that the link was sent to.
    pub(in crate::identity) address: &'a str,
    pub(in crate::identity) proof: &'a GivenProof,
    pub(in crate::identity) from: IpAddr,
}

/// Checks the proof of an opened link within the change that uses the link up; the caller removes
/// it. A wrong address must be counted, so it is the value of the change and not its error.
pub(in crate::identity) fn open_link(
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
    let event = Event::unattributed("login.fail").target(address).at_ip(*from).detail("link: wrong address");
    audit::record(txn, &event, now)?;
    Ok(Err(LinkError::Invalid))
}

fn sealed_for(hash: &SecretHash) -> SealedFor<'_> {
    SealedFor { kind: "link", id: &hash.0 }
}

impl Identity {
    /// Returns the slot of a kind for its subject: an address, or an account's id for `Email`.
    pub(in crate::identity) fn link_slot(&self, kind: LinkKind, whose: &str) -> LinkSlot {
        let [head @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
            self.sealing.derive(kind.purpose(), whose.as_bytes());
        LinkSlot(head)
    }

    /// Returns the slots of all kinds of an account.
    pub(in crate::identity) fn slots(&self, user: UserId, account: &UserRow) -> Vec<LinkSlot> {
        let slot = |kind| match kind {
            LinkKind::Email => self.link_slot(kind, &user.to_string()),
            _ => self.link_slot(kind, &account.email),
        };
        LinkKind::ALL.into_iter().map(slot).collect()
    }

    /// Seals an address that has no account yet, for the row of its link.
    pub(in crate::identity) fn seal_address(
        &self,
        hash: SecretHash,
        email: &Email,
        rng: &mut Entropy,
    ) -> Vec<u8> {
        self.sealing.seal(sealed_for(&hash), email.as_str().as_bytes(), rng)
    }

    /// Returns the address sealed in a link, if any.
    pub(in crate::identity) fn sealed_address(
        &self,
        hash: SecretHash,
        link: &LinkRow,
    ) -> Result<Option<String>, StoreError> {
        let Some(sealed) = &link.address else { return Ok(None) };
        let plain = self.sealing.open(sealed_for(&hash), sealed)?;
        String::from_utf8(plain)
            .map(Some)
            .map_err(|_| StoreError::Inconsistent("the address of a link is not valid UTF-8"))
    }
}

/// Maximum number of expired rows that one sweep removes.
const SWEEP_ROWS: usize = 1_000;

impl Identity {
    /// Removes expired links and pending logins.
    pub(in crate::identity) fn sweep_logins(&self, now: Timestamp) -> Result<(), StoreError> {
        let links: Vec<_> = self
            .rows::<LinkRow>(&())?
            .into_iter()
            .filter(|(_, link)| now >= link.expires_at)
            .take(SWEEP_ROWS)
            .collect();
        self.change_each(&links, |txn, (hash, link)| remove_link(txn, *hash, link))?;
        let expired = |row: &PendingRow| now.ms_since(row.created_at) >= PENDING_MS;
        let pending: Vec<_> = self
            .rows::<PendingRow>(&())?
            .into_iter()
            .filter(|(_, row)| expired(row))
            .map(|(hash, _)| hash)
            .take(SWEEP_ROWS)
            .collect();
        self.remove_all::<PendingRow>(&pending)
    }
}
