//! The number of samples that an organisation stored on the newest day on which it stored any, so
//! that the daily usage continues after a restart.
//!
//! The store of samples counts in memory. The server records the count here each minute in which it
//! grew, and at a clean stop. A crash loses the last minute, so the recorded number is never more
//! than was stored.

use crate::model::OrgId;

use crate::identity::Identity;
use crate::identity::tables::org::DailyUsageRow;
use crate::identity::tables::store::StoreError;

impl Identity {
    /// Records the numbers of samples that organisations stored on `day`, in days since 1970.
    /// Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn note_stored(&self, day: i64, samples: &[(OrgId, u64)]) -> Result<(), StoreError> {
        self.put_side(
            samples.iter().map(|(org, samples)| (*org, DailyUsageRow { day, samples: *samples })).collect(),
        )
    }

    /// Returns the numbers of samples recorded for `day`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn stored_on(&self, day: i64) -> Result<Vec<(OrgId, u64)>, StoreError> {
        let rows = self.rows::<DailyUsageRow>(&())?.into_iter().filter(|(_, row)| row.day == day);
        Ok(rows.map(|(org, row)| (org, row.samples)).collect())
    }
}
