//! Entries to record, and the classes that bound their number.

use std::net::IpAddr;

use sha2::{Digest, Sha256};

use crate::kv::Txn;
use crate::model::{OrgId, Timestamp};

use crate::identity::origin::origin;
use crate::identity::tables::audit::{AuditRow, INSTANCE};
use crate::identity::tables::id::{EventId, KeyId, UserId};
use crate::identity::tables::store::{StoreError, read};

/// Maximum number of rows of one organisation and class.
pub(in crate::identity) const ROWS_MAX: usize = 100_000;
/// Maximum number of rows about failures of one organisation.
pub(in crate::identity) const FAILURE_ROWS_MAX: usize = 20_000;
/// Maximum length of a target or detail in bytes; longer texts are truncated.
const TEXT_BYTES_MAX: usize = 256;

/// The class of an entry, which determines how many rows of it an organisation keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventClass {
    /// A change of what an account or key may do: [`ROWS_MAX`] rows.
    Change,
    /// The use or the end of a valid credential, which may happen at any rate: at most [`ROWS_MAX`]
    /// rows.
    Access,
    /// A refusal, which anyone on the network can cause: [`FAILURE_ROWS_MAX`] rows.
    Failure,
}

impl EventClass {
    /// Number of classes.
    pub(super) const COUNT: usize = 3;

    /// Returns the class of an action.
    pub(super) fn of(action: &str) -> EventClass {
        match action {
            "login.fail" | "login.throttled" | "twofa.fail" | "token.rejected" | "audit.overflow" => {
                EventClass::Failure
            }
            // Includes the end of a session by its own user, which changes no permissions.
            "login.ok" | "token.minted" | "session.revoked" => EventClass::Access,
            _ => EventClass::Change,
        }
    }

    /// Returns the maximum number of rows of one organisation.
    pub(super) fn rows_max(self) -> usize {
        match self {
            EventClass::Change | EventClass::Access => ROWS_MAX,
            EventClass::Failure => FAILURE_ROWS_MAX,
        }
    }
}

/// The credential that changes rules and silences, backfills rules, or acknowledges alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertingActor {
    /// An account.
    User(UserId),
    /// An API key.
    Key(KeyId),
}

impl AlertingActor {
    /// Returns the account; `None` for a key.
    pub(in crate::identity) fn user(self) -> Option<UserId> {
        match self {
            AlertingActor::User(user) => Some(user),
            AlertingActor::Key(_) => None,
        }
    }

    /// Creates an entry about an action.
    pub(in crate::identity) fn event(self, action: &'static str) -> Event {
        match self {
            AlertingActor::User(user) => Event::by(user, action),
            AlertingActor::Key(key) => Event::unattributed(action).by_key(key),
        }
    }
}

/// An entry to record.
#[derive(Clone, Debug)]
pub(in crate::identity) struct Event {
    org: OrgId,
    row: AuditRow,
}

impl Event {
    /// Creates an entry about an action of an account.
    pub(in crate::identity) fn by(actor: UserId, action: &'static str) -> Event {
        let mut event = Event::unattributed(action);
        event.row.actor = Some(actor);
        event
    }

    /// Creates an entry about an action of the command line, the environment or an unknown caller.
    pub(in crate::identity) fn unattributed(action: &'static str) -> Event {
        let row = AuditRow {
            actor: None,
            action: action.into(),
            target: String::new(),
            ip: None,
            detail: String::new(),
            key: None,
            request_id: None,
        };
        Event { org: INSTANCE, row }
    }

    /// Creates an entry about an action of an account, or of the command line if `actor` is `None`.
    pub(in crate::identity) fn by_actor(actor: Option<UserId>, action: &'static str) -> Event {
        actor.map_or_else(|| Event::unattributed(action), |actor| Event::by(actor, action))
    }

    /// Sets the API key that acted.
    pub(in crate::identity) fn by_key(mut self, key: KeyId) -> Event {
        self.row.key = Some(key);
        self
    }

    #[cfg(test)]
    pub(in crate::identity) fn into_row(self) -> AuditRow {
        self.row
    }

    pub(in crate::identity) fn of(mut self, org: OrgId) -> Event {
        self.org = org;
        self
    }

    pub(in crate::identity) fn target(mut self, target: &str) -> Event {
        self.row.target = cut(target);
        self
    }

    pub(in crate::identity) fn at_ip(mut self, ip: IpAddr) -> Event {
        self.row.ip = Some(ip);
        self
    }

    pub(in crate::identity) fn detail(mut self, detail: &str) -> Event {
        self.row.detail = cut(detail);
        self
    }

    pub(in crate::identity) fn org(&self) -> OrgId {
        self.org
    }

    pub(in crate::identity) fn action(&self) -> &str {
        &self.row.action
    }

    pub(in crate::identity) fn actor(&self) -> Option<UserId> {
        self.row.actor
    }

    pub(in crate::identity) fn key(&self) -> Option<KeyId> {
        self.row.key
    }

    pub(in crate::identity) fn ip(&self) -> Option<IpAddr> {
        self.row.ip
    }

    pub(in crate::identity) fn is_failure(&self) -> bool {
        EventClass::of(&self.row.action) == EventClass::Failure
    }

    pub(in crate::identity) fn detail_text(&self) -> &str {
        &self.row.detail
    }

    /// Turns the newest of `count` aggregated failures into their common entry.
    pub(in crate::identity) fn more(self, count: u64) -> Event {
        let detail = format!("{} and {count} more within a minute", self.row.detail);
        self.detail(detail.trim_start())
    }

    /// Fills a missing address and request id from the origin of this thread.
    pub(in crate::identity) fn with_thread_origin(mut self) -> Event {
        let here = origin();
        self.row.ip = self.row.ip.or(here.ip);
        if self.row.request_id.is_none() {
            self.row.request_id = here.request_id.as_deref().map(cut);
        }
        self
    }
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    text.get(..end).unwrap_or_default().to_owned()
}

/// Records an entry within the change that it describes. Its id is a hash of its content; a counter
/// makes the ids of equal entries distinct.
pub(in crate::identity) fn record(
    txn: &mut Txn<'_>,
    event: &Event,
    now: Timestamp,
) -> Result<(), StoreError> {
    let event = event.clone().with_thread_origin();
    let content = format!("{event:?}");
    let mut duplicates = 0_u32;
    loop {
        let digest = Sha256::digest(format!("{content}{duplicates}").as_bytes());
        let id =
            digest.first_chunk().map_or(EventId::from_bytes([0; 10]), |bytes| EventId::from_bytes(*bytes));
        let key = (event.org, now, id);
        if read::<AuditRow>(txn, &key)?.is_none() {
            txn.put(&key, &event.row);
            return Ok(());
        }
        duplicates = duplicates.wrapping_add(1);
    }
}
