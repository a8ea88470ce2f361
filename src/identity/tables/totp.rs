//! Second factors.

use serde::{Deserialize, Serialize};

use crate::kv::{Record, decode_body};
use crate::model::Timestamp;

use crate::identity::tables::id::{SecretHash, UserId};

/// A stored second factor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct TotpRow {
    /// The secret of 20 bytes, sealed for the user.
    pub(in crate::identity) sealed: Vec<u8>,
    pub(in crate::identity) started_at: Timestamp,
    /// Time of the first code; `None` before it.
    pub(in crate::identity) enabled_at: Option<Timestamp>,
    /// The newest accepted step; it and older ones are refused.
    pub(in crate::identity) last_step: u64,
    /// Hashes of the unused recovery codes.
    pub(in crate::identity) recovery: Vec<SecretHash>,
    /// Times of wrong codes, at most twenty, oldest first.
    pub(in crate::identity) failures: Vec<Timestamp>,
    /// The session that started the enrolment; the enrolment ends with it. The field exists since
    /// version 2.
    pub(in crate::identity) begun_by: Option<SecretHash>,
}

/// Version 1 of [`TotpRow`].
#[derive(Deserialize)]
struct TotpRowV1 {
    sealed: Vec<u8>,
    started_at: Timestamp,
    enabled_at: Option<Timestamp>,
    last_step: u64,
    recovery: Vec<SecretHash>,
    failures: Vec<Timestamp>,
}

impl Record for TotpRow {
    const TABLE: u8 = 0x03;
    const KIND: u8 = 0x03;
    const VERSION: u8 = 2;
    type Key = UserId;

    fn from_older(version: u8, body: &[u8]) -> Result<TotpRow, String> {
        if version != 1 {
            return Err(format!("version {version} of a second factor"));
        }
        let old: TotpRowV1 = decode_body(body)?;
        Ok(TotpRow {
            sealed: old.sealed,
            started_at: old.started_at,
            enabled_at: old.enabled_at,
            last_step: old.last_step,
            recovery: old.recovery,
            failures: old.failures,
            begun_by: None,
        })
    }
}
