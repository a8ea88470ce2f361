//! Who belongs to an organisation (API.md C3).

use crate::model::{OrgId, Timestamp};

use super::org::{MemberRow, MembershipRow};
use super::{Identity, Role, StoreError, User};

/// One of an organisation's people.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Who.
    pub user: User,
    /// What they may do.
    pub role: Role,
    /// Since when.
    pub joined_at: Timestamp,
    /// When one of their live sessions was last used.
    pub last_seen_at: Option<Timestamp>,
}

impl Identity {
    /// An organisation's members, in the order they joined.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn members(&self, org: OrgId, now: Timestamp) -> Result<Vec<Member>, StoreError> {
        let mut found = Vec::new();
        for ((_, user), MemberRow) in self.rows::<MemberRow>(&org)? {
            // A member who is leaving may be gone from one of the two tables only.
            let Some(row) = self.row::<MembershipRow>(&(user, org))? else { continue };
            let last_seen_at = self.sessions(user, now).first().map(|session| session.last_seen());
            let user = self.user(user)?.ok_or(StoreError::Inconsistent("a member without an account"))?;
            found.push(Member { user, role: row.role, joined_at: row.joined_at, last_seen_at });
        }
        found.sort_by(|a, b| (a.joined_at, &a.user.email).cmp(&(b.joined_at, &b.user.email)));
        Ok(found)
    }
}
