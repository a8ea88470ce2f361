//! Removal of entries that are too old or too many.

use std::collections::VecDeque;

use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::tables::audit::{AuditRow, INSTANCE};
use crate::identity::tables::id::EventId;
use crate::identity::tables::store::StoreError;

use super::ROWS_AT_ONCE;
use super::event::EventClass;

/// Maximum age of a row: 90 days.
pub(in crate::identity) const AGE_MAX_MS: i64 = 90 * 24 * 3_600 * 1_000;
/// Maximum number of rows that one tick removes, over all organisations.
pub(in crate::identity) const SWEEP_ROWS: usize = 20_000;

/// The progress of a sweep over all organisations, which may take several ticks.
#[derive(Debug, Default)]
pub(in crate::identity) struct AuditSweep {
    is_due: bool,
    /// The organisation that was swept last; the next tick continues after it.
    after: Option<OrgId>,
    /// Whether an organisation may have overdue rows left, so that another sweep follows at once.
    is_incomplete: bool,
}

impl AuditSweep {
    /// Starts a sweep unless one is in progress.
    pub(in crate::identity) const fn begin(&mut self) {
        self.is_due = true;
    }
}

impl Identity {
    /// Continues a sweep in progress: removes at most [`SWEEP_ROWS`] entries that are too old or
    /// too many. The sweep ends when no organisation has such an entry left, so the log is bounded
    /// at any rate of new entries. After an error the next regular sweep starts over.
    pub(in crate::identity) fn sweep_audit(&self, now: Timestamp) -> Result<(), StoreError> {
        let mut sweep = std::mem::take(&mut *self.audit_sweep());
        if !sweep.is_due {
            return Ok(());
        }
        let all = std::iter::once(INSTANCE).chain(self.orgs()?.into_iter().map(|org| org.id));
        let mut orgs: Vec<OrgId> = all.filter(|org| sweep.after.is_none_or(|after| *org > after)).collect();
        orgs.sort_unstable();
        let oldest = now.plus_ms(-AGE_MAX_MS);
        let mut left = SWEEP_ROWS;
        for org in orgs {
            let overdue = self.overdue(org, oldest, left)?;
            sweep.is_incomplete |= overdue.len() == left;
            left -= overdue.len();
            self.remove_all::<AuditRow>(&overdue)?;
            sweep.after = Some(org);
            if left == 0 {
                *self.audit_sweep() = sweep;
                return Ok(());
            }
        }
        self.audit_sweep().is_due = sweep.is_incomplete;
        Ok(())
    }

    /// Returns the oldest entries that are too old or too many, at most `most`. Reads a page at a
    /// time, because a hundred thousand entries are tens of megabytes.
    fn overdue(
        &self,
        org: OrgId,
        oldest: Timestamp,
        most: usize,
    ) -> Result<Vec<(OrgId, Timestamp, EventId)>, StoreError> {
        let (mut kept, mut below, mut gone) = ([0_usize; EventClass::COUNT], None, VecDeque::new());
        loop {
            let rows = self.rows_back::<AuditRow>(&org, below.as_ref(), ROWS_AT_ONCE)?;
            let is_last = rows.len() < ROWS_AT_ONCE;
            for (key, row) in rows {
                below = Some(key);
                let class = EventClass::of(&row.action);
                if let Some(kept) = kept.get_mut(class as usize)
                    && *kept < class.rows_max()
                    && key.1 >= oldest
                {
                    *kept += 1;
                    continue;
                }
                gone.push_back(key);
                if gone.len() > most {
                    gone.pop_front();
                }
            }
            if is_last {
                return Ok(gone.into());
            }
        }
    }
}
