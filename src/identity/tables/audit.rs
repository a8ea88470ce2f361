//! Entries of the audit log.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::kv::{Record, decode_body};
use crate::model::{OrgId, Timestamp};

use crate::identity::tables::id::{EventId, KeyId, UserId};

/// The instance itself; logins belong to no organisation.
pub(in crate::identity) const INSTANCE: OrgId = OrgId(0);

/// A stored entry. Its time and id are in the key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct AuditRow {
    pub(in crate::identity) actor: Option<UserId>,
    pub(in crate::identity) action: String,
    pub(in crate::identity) target: String,
    pub(in crate::identity) ip: Option<IpAddr>,
    pub(in crate::identity) detail: String,
    /// The API key that acted, if no account did.
    pub(in crate::identity) key: Option<KeyId>,
    pub(in crate::identity) request_id: Option<String>,
}

/// Version 1 of [`AuditRow`].
#[derive(Deserialize)]
struct AuditRowV1 {
    actor: Option<UserId>,
    action: String,
    target: String,
    ip: Option<IpAddr>,
    detail: String,
}

impl Record for AuditRow {
    const TABLE: u8 = 0x10;
    const KIND: u8 = 0x10;
    const VERSION: u8 = 2;
    type Key = (OrgId, Timestamp, EventId);

    fn from_older(version: u8, body: &[u8]) -> Result<AuditRow, String> {
        if version != 1 {
            return Err(format!("version {version} is none"));
        }
        let AuditRowV1 { actor, action, target, ip, detail } = decode_body(body)?;
        Ok(AuditRow { actor, action, target, ip, detail, key: None, request_id: None })
    }
}
