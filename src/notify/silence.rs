//! Silences: matchers that suppress alerts for a limited time.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::labels::AlertLabels;
use super::limits::{COMMENT_BYTES_MAX, MATCHERS_MEMORY_MAX, SILENCES_MAX};
use super::matcher::AlertMatchers;
use super::rows::{NotifyChanges, NotifyRowKey, NotifyRowKind, to_json_bytes};
use crate::entropy::Entropy;
use crate::model::Timestamp;

/// How long an expired silence is kept, in milliseconds: 5 days, as in Alertmanager.
const KEPT_MS: i64 = 5 * 86_400_000;

/// The state of a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilenceState {
    /// The silence begins later.
    Pending,
    /// The silence is active.
    Active,
    /// The silence has ended.
    Expired,
}

impl SilenceState {
    /// Returns the name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            SilenceState::Pending => "pending",
            SilenceState::Active => "active",
            SilenceState::Expired => "expired",
        }
    }
}

/// A silence.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertSilence {
    /// The id, a random UUID.
    pub id: Arc<str>,
    /// The matchers.
    pub matchers: AlertMatchers,
    /// The start, inclusive.
    pub starts_at: Timestamp,
    /// The end, exclusive.
    pub ends_at: Timestamp,
    /// The last change.
    pub updated_at: Timestamp,
    /// The author.
    pub created_by: String,
    /// The reason.
    pub comment: String,
}

impl AlertSilence {
    /// Returns the state at a time.
    pub fn state(&self, now: Timestamp) -> SilenceState {
        match (now < self.starts_at, now < self.ends_at) {
            (_, false) => SilenceState::Expired,
            (true, true) => SilenceState::Pending,
            (false, true) => SilenceState::Active,
        }
    }

    /// Returns the silence in the form of Alertmanager's API.
    pub fn to_json(&self, now: Timestamp) -> Value {
        json!({
            "id": *self.id,
            "matchers": self.matchers.to_json(),
            "startsAt": self.starts_at.to_rfc3339(),
            "endsAt": self.ends_at.to_rfc3339(),
            "updatedAt": self.updated_at.to_rfc3339(),
            "createdBy": self.created_by,
            "comment": self.comment,
            "status": { "state": self.state(now).as_str() },
        })
    }
}

/// A new or changed silence.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSilence {
    /// The matchers.
    pub matchers: AlertMatchers,
    /// The start, inclusive; a start in the past becomes now.
    pub starts_at: Timestamp,
    /// The end, exclusive.
    pub ends_at: Timestamp,
    /// The author.
    pub created_by: String,
    /// The reason.
    pub comment: String,
}

/// The reason why a silence is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SilenceError {
    /// `not_found`.
    #[error("no such silence")]
    NotFound,
    /// `limit_reached`.
    #[error(
        "an organisation has at most {SILENCES_MAX} silences, and {MATCHERS_MEMORY_MAX} bytes of patterns"
    )]
    TooMany,
    /// `invalid`.
    #[error("{field}: {message}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The reason.
        message: String,
    },
}

impl NewSilence {
    fn check(&self, now: Timestamp) -> Result<(), SilenceError> {
        let invalid =
            |field, message: &str| Err(SilenceError::Invalid { field, message: message.to_owned() });
        if self.matchers.is_empty() {
            return invalid("matchers", "at least one matcher is required");
        }
        if self.matchers.select_nothing() {
            return invalid("matchers", "at least one matcher must not match the empty text");
        }
        if self.ends_at <= self.starts_at {
            return invalid("endsAt", "must be after startsAt");
        }
        if self.ends_at <= now {
            return invalid("endsAt", "must be in the future");
        }
        for (field, text) in [("createdBy", &self.created_by), ("comment", &self.comment)] {
            if text.len() > COMMENT_BYTES_MAX {
                return invalid(field, &format!("at most {COMMENT_BYTES_MAX} bytes are allowed"));
            }
        }
        Ok(())
    }

    fn with_id(self, id: Arc<str>, now: Timestamp) -> AlertSilence {
        let NewSilence { matchers, starts_at, ends_at, created_by, comment } = self;
        AlertSilence { id, matchers, starts_at, ends_at, updated_at: now, created_by, comment }
    }
}

/// The silences of an organisation.
#[derive(Debug, Default)]
pub(super) struct Silences {
    all: BTreeMap<Arc<str>, AlertSilence>,
    /// Increases when the set of active silences may have changed.
    epoch: u64,
    /// The ids that were active at the last [`Silences::tick`].
    active: Vec<Arc<str>>,
}

#[derive(Serialize, Deserialize)]
struct StoredSilence {
    id: String,
    /// The matchers as text.
    matchers: String,
    starts_at_ms: i64,
    ends_at_ms: i64,
    updated_at_ms: i64,
    created_by: String,
    comment: String,
}

/// Returns a random UUID, version 4.
fn new_id(rng: &mut Entropy) -> [u8; 16] {
    let mut bytes = rng.bytes::<16>();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

fn id_text(bytes: [u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}

fn id_bytes(text: &str) -> Option<[u8; 16]> {
    let hex: String = text.chars().filter(|c| *c != '-').collect();
    let number = (hex.len() == 32).then(|| u128::from_str_radix(&hex, 16).ok())??;
    let bytes = number.to_be_bytes();
    (id_text(bytes) == text).then_some(bytes)
}

impl Silences {
    pub(super) fn get(&self, id: &str) -> Option<&AlertSilence> {
        self.all.get(id)
    }

    pub(super) fn list(&self) -> impl Iterator<Item = &AlertSilence> {
        self.all.values()
    }

    fn store(&mut self, silence: AlertSilence, changes: &mut NotifyChanges) {
        self.epoch += 1;
        if let Some(id) = id_bytes(&silence.id) {
            let stored = StoredSilence {
                id: silence.id.to_string(),
                matchers: silence.matchers.text(),
                starts_at_ms: silence.starts_at.as_ms(),
                ends_at_ms: silence.ends_at.as_ms(),
                updated_at_ms: silence.updated_at.as_ms(),
                created_by: silence.created_by.clone(),
                comment: silence.comment.clone(),
            };
            let key = NotifyRowKey::new(NotifyRowKind::Silence, id);
            changes.insert(key, Some(to_json_bytes(&stored)));
        }
        self.all.insert(Arc::clone(&silence.id), silence);
    }

    /// Restores a stored silence; ignores one that cannot be read.
    pub(super) fn restore(&mut self, value: &[u8]) {
        let Ok(stored) = serde_json::from_slice::<StoredSilence>(value) else { return };
        let mut matchers = AlertMatchers::default();
        if matchers.push_text(&stored.matchers).is_err() || id_bytes(&stored.id).is_none() {
            return;
        }
        self.epoch += 1;
        let id: Arc<str> = stored.id.into();
        let silence = AlertSilence {
            id: Arc::clone(&id),
            matchers,
            starts_at: Timestamp::from_ms(stored.starts_at_ms),
            ends_at: Timestamp::from_ms(stored.ends_at_ms),
            updated_at: Timestamp::from_ms(stored.updated_at_ms),
            created_by: stored.created_by,
            comment: stored.comment,
        };
        self.all.insert(id, silence);
    }

    /// Creates a silence. Returns its id.
    pub(super) fn create(
        &mut self,
        new: NewSilence,
        now: Timestamp,
        rng: &mut Entropy,
        changes: &mut NotifyChanges,
    ) -> Result<Arc<str>, SilenceError> {
        new.check(now)?;
        let memory: usize = self.all.values().map(|one| one.matchers.memory_usage()).sum();
        if self.all.len() >= SILENCES_MAX || memory + new.matchers.memory_usage() > MATCHERS_MEMORY_MAX {
            return Err(SilenceError::TooMany);
        }
        let id: Arc<str> = id_text(new_id(rng)).into();
        let starts_at = new.starts_at.max(now);
        self.store(NewSilence { starts_at, ..new }.with_id(Arc::clone(&id), now), changes);
        Ok(id)
    }

    /// Changes a silence. One that has expired, or whose matchers or begun start change, is ended
    /// and replaced by a new one, as in Alertmanager. Returns the id of the resulting silence.
    pub(super) fn replace(
        &mut self,
        id: &str,
        new: NewSilence,
        now: Timestamp,
        rng: &mut Entropy,
        changes: &mut NotifyChanges,
    ) -> Result<Arc<str>, SilenceError> {
        new.check(now)?;
        let before = self.all.get(id).ok_or(SilenceError::NotFound)?.clone();
        let keeps_start = before.starts_at == new.starts_at
            || (before.state(now) == SilenceState::Pending && new.starts_at >= now);
        let in_place =
            before.state(now) != SilenceState::Expired && before.matchers == new.matchers && keeps_start;
        if in_place {
            self.store(new.with_id(Arc::clone(&before.id), now), changes);
            return Ok(before.id);
        }
        let created = self.create(new, now, rng, changes)?;
        if before.state(now) != SilenceState::Expired {
            self.expire(id, now, changes)?;
        }
        Ok(created)
    }

    /// Ends a silence now. A silence that has already ended is not changed.
    pub(super) fn expire(
        &mut self,
        id: &str,
        now: Timestamp,
        changes: &mut NotifyChanges,
    ) -> Result<(), SilenceError> {
        let mut silence = self.all.get(id).ok_or(SilenceError::NotFound)?.clone();
        if silence.state(now) != SilenceState::Expired {
            silence.starts_at = silence.starts_at.min(now);
            silence.ends_at = now;
            silence.updated_at = now;
            self.store(silence, changes);
        }
        Ok(())
    }

    /// Removes silences that expired more than [`KEPT_MS`] ago, and increases the epoch if a
    /// silence has begun or ended.
    pub(super) fn tick(&mut self, now: Timestamp, changes: &mut NotifyChanges) {
        let is_old = |silence: &AlertSilence| now.ms_since(silence.ends_at) > KEPT_MS;
        let old: Vec<Arc<str>> =
            self.all.values().filter(|one| is_old(one)).map(|one| Arc::clone(&one.id)).collect();
        for id in old {
            self.all.remove(&id);
            if let Some(bytes) = id_bytes(&id) {
                changes.insert(NotifyRowKey::new(NotifyRowKind::Silence, bytes), None);
            }
        }
        let is_active = |silence: &&AlertSilence| silence.state(now) == SilenceState::Active;
        let active: Vec<Arc<str>> =
            self.all.values().filter(is_active).map(|one| Arc::clone(&one.id)).collect();
        if active != self.active {
            self.active = active;
            self.epoch += 1;
        }
    }

    /// Returns the number of active silences at the last [`Silences::tick`].
    pub(super) fn active_count(&self) -> usize {
        self.active.len()
    }

    /// Returns the number of the current set of active silences; see [`Silences::tick`].
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the ids of the active silences that match.
    pub(super) fn matching(&self, labels: &AlertLabels, now: Timestamp) -> Vec<Arc<str>> {
        let matches =
            |one: &&AlertSilence| one.state(now) == SilenceState::Active && one.matchers.matches(labels);
        self.all.values().filter(matches).map(|one| Arc::clone(&one.id)).collect()
    }
}
