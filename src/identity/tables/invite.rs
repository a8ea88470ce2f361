//! Invitations and their links.

use serde::{Deserialize, Serialize};

use crate::kv::{Record, decode_body};
use crate::model::{OrgId, Timestamp};

use crate::identity::tables::id::{InviteId, SecretHash, UserId};
use crate::identity::tables::org::Role;
use crate::identity::tables::user::AddressProof;

/// A stored invitation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct InviteRow {
    pub(in crate::identity) email: String,
    pub(in crate::identity) role: Role,
    pub(in crate::identity) token: SecretHash,
    pub(in crate::identity) invited_by: Option<UserId>,
    pub(in crate::identity) created_at: Timestamp,
    pub(in crate::identity) expires_at: Timestamp,
    /// The proof of the address that accepting gives; since version 2.
    pub(in crate::identity) address_proof: AddressProof,
}

/// Version 1 of [`InviteRow`].
#[derive(Deserialize)]
struct InviteRowV1 {
    email: String,
    role: Role,
    token: SecretHash,
    invited_by: Option<UserId>,
    created_at: Timestamp,
    expires_at: Timestamp,
}

impl Record for InviteRow {
    const TABLE: u8 = 0x18;
    const KIND: u8 = 0x18;
    const VERSION: u8 = 2;
    type Key = (OrgId, InviteId);

    fn from_older(version: u8, body: &[u8]) -> Result<InviteRow, String> {
        let old: InviteRowV1 = match version {
            1 => decode_body(body)?,
            _ => return Err(format!("version {version} of an invitation")),
        };
        Ok(InviteRow {
            email: old.email,
            role: old.role,
            token: old.token,
            invited_by: old.invited_by,
            created_at: old.created_at,
            expires_at: old.expires_at,
            // Version 1 did not record whether the invitation was mailed.
            address_proof: AddressProof::Missing,
        })
    }
}

/// Maps the secret of a link to its invitation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct InviteTokenRow(
    pub(in crate::identity) OrgId,
    pub(in crate::identity) InviteId,
);

impl Record for InviteTokenRow {
    const TABLE: u8 = 0x19;
    const KIND: u8 = 0x19;
    const VERSION: u8 = 1;
    type Key = SecretHash;
}
