//! The limit of mails per hour, which survives a restart.

use crate::model::Timestamp;
use crate::notify::limits::TESTS_PER_HOUR_MAX;
use crate::notify::rows::{NotifyChanges, NotifyRowKey, NotifyRowKind, StoredMails, to_json_bytes};

const HOUR_MS: i64 = 3_600_000;

/// The mails and tests of the current hour of the clock.
#[derive(Debug)]
pub(in crate::notify) struct MailBudget {
    most: u32,
    spent: StoredMails,
    tests: (i64, u32),
}

impl MailBudget {
    pub(in crate::notify) const fn new(most: u32) -> MailBudget {
        MailBudget { most, spent: StoredMails { hour: 0, mails: 0 }, tests: (0, 0) }
    }

    pub(in crate::notify) fn restore(&mut self, value: &[u8]) {
        self.spent = serde_json::from_slice(value).unwrap_or_default();
    }

    /// Takes `mails` mails from the budget. Otherwise returns the time of the next
    /// budget.
    pub(in crate::notify) fn spend(
        &mut self,
        mails: usize,
        now: Timestamp,
        changes: &mut NotifyChanges,
    ) -> Result<(), Timestamp> {
        let hour = now.as_ms().div_euclid(HOUR_MS);
        if self.spent.hour != hour {
            self.spent = StoredMails { hour, mails: 0 };
        }
        let after = self.spent.mails.saturating_add(u32::try_from(mails).unwrap_or(u32::MAX));
        if after > self.most {
            return Err(Timestamp::from_ms((hour + 1).saturating_mul(HOUR_MS)));
        }
        self.spent.mails = after;
        let key = NotifyRowKey::new(NotifyRowKind::MailBudget, [0; 16]);
        changes.insert(key, Some(to_json_bytes(&self.spent)));
        Ok(())
    }

    /// Returns whether a test may be sent now, and counts it.
    pub(in crate::notify) fn spend_test(&mut self, now: Timestamp) -> bool {
        let hour = now.as_ms().div_euclid(HOUR_MS);
        if self.tests.0 != hour {
            self.tests = (hour, 0);
        }
        let is_allowed = self.tests.1 < TESTS_PER_HOUR_MAX;
        self.tests.1 += u32::from(is_allowed);
        is_allowed
    }
}
