//! Mailed and printed links, and the outstanding links of an address.

use serde::{Deserialize, Serialize};

use crate::kv::{Record, TableKey, decode_body};
use crate::model::Timestamp;

use crate::identity::tables::id::{SecretHash, UserId};

/// The kind of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::identity) enum LinkKind {
    /// Signs in; mailed.
    Mailed,
    /// Signs in; printed for the operator, and needs no further proof.
    Printed,
    // Variants are stored by their index: append new ones.
    /// Sets a new password.
    Reset,
    /// Creates an account.
    Signup,
    /// Proves an account's new address.
    Email,
}

/// A stored link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct LinkRow {
    pub(in crate::identity) kind: LinkKind,
    /// `None` if the address has no account, and in a link that creates an account.
    pub(in crate::identity) user: Option<UserId>,
    /// The slot that lists the outstanding links of this address.
    pub(in crate::identity) slot: LinkSlot,
    pub(in crate::identity) expires_at: Timestamp,
    pub(in crate::identity) redirect: Option<String>,
    /// Hash of the cookie `ms_ml`.
    pub(in crate::identity) browser: Option<SecretHash>,
    pub(in crate::identity) wrong_addresses: u8,
    /// An address without an account, sealed for the link's hash; since version 2.
    pub(in crate::identity) address: Option<Vec<u8>>,
    /// The session that requested the link, if the link ends with it; since version 3.
    pub(in crate::identity) asked_by: Option<SecretHash>,
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

/// Version 2 of [`LinkRow`]: the added field is at the end.
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

/// HMAC of kind and address, so that unknown addresses are not stored in plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::identity) struct LinkSlot(pub(in crate::identity) [u8; 16]);

impl TableKey for LinkSlot {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(from: &mut &[u8]) -> Option<LinkSlot> {
        TableKey::read(from).map(LinkSlot)
    }
}

/// The outstanding links of an address and a kind, newest last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct OutstandingRow(pub(in crate::identity) Vec<SecretHash>);

impl Record for OutstandingRow {
    const TABLE: u8 = 0x08;
    const KIND: u8 = 0x08;
    const VERSION: u8 = 2;
    type Key = LinkSlot;

    /// Version 1 stored the newest link only.
    fn from_older(version: u8, body: &[u8]) -> Result<OutstandingRow, String> {
        match version {
            1 => Ok(OutstandingRow(vec![decode_body(body)?])),
            _ => Err(format!("version {version} of outstanding links")),
        }
    }
}
