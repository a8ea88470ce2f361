//! How many samples an organisation stored on the newest day it stored any, so that a restart does not begin at nothing.
//!
//! The store of samples counts in memory; the server notes it here each minute in which it grew, and at a clean stop. After
//! a crash the last minute is missing: it is never told more than was stored.

use serde::{Deserialize, Serialize};

use crate::kv::{Record, SideRecord};
use crate::model::OrgId;

use super::org::OrgRow;
use super::{Identity, StoreError};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct DayRow {
    /// Days since 1970 (UTC).
    pub(super) day: i64,
    pub(super) samples: u64,
}

impl Record for DayRow {
    const TABLE: u8 = 0x12;
    const KIND: u8 = 0x12;
    const VERSION: u8 = 1;
    type Key = OrgId;
}

impl SideRecord for DayRow {
    type Main = OrgRow;

    fn main_key(org: &OrgId) -> OrgId {
        *org
    }
}

impl Identity {
    /// Notes what organisations stored on `day`, of days since 1970. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn note_stored(&self, day: i64, samples: &[(OrgId, u64)]) -> Result<(), StoreError> {
        self.put_side(
            samples.iter().map(|(org, samples)| (*org, DayRow { day, samples: *samples })).collect(),
        )
    }

    /// What was noted of `day`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn stored_on(&self, day: i64) -> Result<Vec<(OrgId, u64)>, StoreError> {
        let rows = self.rows::<DayRow>(&())?.into_iter().filter(|(_, row)| row.day == day);
        Ok(rows.map(|(org, row)| (org, row.samples)).collect())
    }
}
