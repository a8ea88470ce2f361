//! Stars and last views of dashboards, per member.
//!
//! Views are collected in memory and written once a minute, so that a view costs no disk sync. A
//! crash loses the last minute.

use std::collections::{BTreeMap, HashMap};

use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;

use crate::identity::Identity;
use crate::identity::dashboards::store::DashboardError;
use crate::identity::tables::dashboard::{DashboardMarksRow, DashboardRow};
use crate::identity::tables::id::UserId;
use crate::identity::tables::org::MemberRow;
use crate::identity::tables::store::{StoreError, read};

/// Maximum number of stars of a member.
const STARS_MAX: usize = 200;
/// Number of dashboards whose last view by a member is kept.
const VIEWED_MAX: usize = 50;
/// Maximum number of views in memory. Further ones are not recorded until the next flush.
const PENDING_MAX: usize = 20_000;
/// Number of members whose views are written in one change; a row of marks has at most four rows.
const MEMBERS_A_CHANGE: usize = 12;
/// Interval between two flushes.
const FLUSH_EVERY_MS: i64 = 60 * 1_000;

/// The views that are not written yet.
#[derive(Debug, Default)]
pub(in crate::identity) struct PendingViews {
    by_member: HashMap<(OrgId, UserId), BTreeMap<String, Timestamp>>,
    count: usize,
    flushed_at: Option<Timestamp>,
}

/// The stars and last views of one member.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DashboardMarks {
    starred: Vec<String>,
    viewed: BTreeMap<String, Timestamp>,
}

impl DashboardMarks {
    /// Returns whether the member has starred a dashboard.
    pub fn is_starred(&self, uid: &str) -> bool {
        self.starred.iter().any(|starred| starred == uid)
    }

    /// Returns the time of the member's last view of a dashboard, if it is among the last 50.
    pub fn last_seen(&self, uid: &str) -> Option<Timestamp> {
        self.viewed.get(uid).copied()
    }
}

impl Identity {
    fn pending_views(&self) -> std::sync::MutexGuard<'_, PendingViews> {
        self.dashboard_views.lock().ignore_poison()
    }

    /// Records in memory that a member views a dashboard.
    pub fn note_dashboard_view(&self, org: OrgId, user: UserId, uid: &str, now: Timestamp) {
        let mut pending = self.pending_views();
        let full = pending.count >= PENDING_MAX;
        let views = match pending.by_member.get_mut(&(org, user)) {
            Some(views) => views,
            None if full => return,
            None => pending.by_member.entry((org, user)).or_default(),
        };
        if let Some(at) = views.get_mut(uid) {
            *at = now;
        } else if !full {
            views.insert(uid.to_owned(), now);
            pending.count += 1;
        }
    }

    /// Returns the stars and last views of a member.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn dashboard_marks(&self, org: OrgId, user: UserId) -> Result<DashboardMarks, StoreError> {
        let row = self.row::<DashboardMarksRow>(&(org, user))?.unwrap_or_default();
        let mut viewed: BTreeMap<String, Timestamp> = row.viewed.into_iter().collect();
        if let Some(pending) = self.pending_views().by_member.get(&(org, user)) {
            viewed.extend(pending.clone());
        }
        Ok(DashboardMarks { starred: row.starred, viewed })
    }

    /// Stars a dashboard for a member, or removes the star. Blocks (commit).
    ///
    /// # Errors
    /// [`DashboardError`]: `NotFound`, `TooManyStars`, `UnknownOrg` for an account that is no
    /// longer a member.
    pub fn star_dashboard(
        &self,
        org: OrgId,
        user: UserId,
        uid: &str,
        starred: bool,
    ) -> Result<(), DashboardError> {
        let provisioned = self.provisioned_dashboards();
        let uid = uid.to_owned();
        self.change(move |txn| {
            if read::<MemberRow>(txn, &(org, user))?.is_none() {
                return Err(DashboardError::UnknownOrg);
            }
            let mut marks = read::<DashboardMarksRow>(txn, &(org, user))?.unwrap_or_default();
            let exists = |uid: &String| -> Result<bool, StoreError> {
                let stored = read::<DashboardRow>(txn, &(org, uid.clone()))?.is_some();
                Ok(stored || provisioned.get(uid).is_some())
            };
            if !exists(&uid)? {
                return Err(DashboardError::NotFound);
            }
            let had = marks.starred.contains(&uid);
            match (had, starred) {
                (true, true) | (false, false) => return Ok(()),
                (true, false) => marks.starred.retain(|other| *other != uid),
                (false, true) => {
                    if marks.starred.len() >= STARS_MAX {
                        let mut left = Vec::new();
                        for other in marks.starred {
                            if exists(&other)? {
                                left.push(other);
                            }
                        }
                        marks.starred = left;
                    }
                    if marks.starred.len() >= STARS_MAX {
                        return Err(DashboardError::TooManyStars(STARS_MAX));
                    }
                    marks.starred.push(uid);
                }
            }
            txn.put(&(org, user), &marks);
            Ok(())
        })
    }

    /// Writes the collected views once a minute, or at once if `now_or_never`. Blocks (commit).
    pub(in crate::identity) fn flush_dashboard_views(
        &self,
        now: Timestamp,
        now_or_never: bool,
    ) -> Result<(), StoreError> {
        let views: Vec<_> = {
            let mut pending = self.pending_views();
            let flushed_at = *pending.flushed_at.get_or_insert(now);
            // A clock that went back does not delay a flush.
            let waits = (0..FLUSH_EVERY_MS).contains(&now.ms_since(flushed_at));
            if waits && !now_or_never {
                return Ok(());
            }
            (pending.flushed_at, pending.count) = (Some(now), 0);
            pending.by_member.drain().collect()
        };
        // Views that cannot be written are lost: they are no reason to hold memory on a full disk.
        for some in views.chunks(MEMBERS_A_CHANGE) {
            let some = some.to_vec();
            self.change(move |txn| {
                for ((org, user), views) in some {
                    if read::<MemberRow>(txn, &(org, user))?.is_none() {
                        continue;
                    }
                    let mut marks = read::<DashboardMarksRow>(txn, &(org, user))?.unwrap_or_default();
                    marks.viewed.retain(|(uid, _)| !views.contains_key(uid));
                    marks.viewed.extend(views);
                    marks.viewed.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
                    marks.viewed.truncate(VIEWED_MAX);
                    txn.put(&(org, user), &marks);
                }
                Ok::<_, StoreError>(())
            })?;
        }
        Ok(())
    }
}
