//! Rate limit of audit entries about tokens: one entry per key and kind of event each minute, with
//! the number of suppressed events.
//!
//! A bad token fails with every request of every open page. The id of a key is part of each of its
//! tokens. A sender that knows it can send bad tokens as fast as the rate limits allow. One row
//! each would push all other entries out of the organisation's log.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;

use crate::identity::Identity;
use crate::identity::audit::Event;
use crate::identity::keys::embed_token::TokenRefusal;
use crate::identity::keys::keyring::event;
use crate::identity::tables::id::{KeyId, UserId};

/// Minimum time between two entries of one key and kind.
const INTERVAL_MS: i64 = 60 * 1_000;
/// Maximum number of remembered (key, kind) pairs. Beyond it all are forgotten, which costs one
/// extra row each.
const KINDS_MAX: usize = 20_000;

/// Time of the last entry of each (key, kind), and the number of events suppressed since.
#[derive(Debug, Default)]
pub(in crate::identity) struct RefusalLog(Mutex<HashMap<(KeyId, &'static str), LastEntry>>);

#[derive(Clone, Copy, Debug)]
struct LastEntry {
    at: Timestamp,
    suppressed: u64,
}

impl RefusalLog {
    /// Returns the number of events suppressed since the last entry, or `None` if this event is
    /// suppressed as well.
    fn admit(&self, key: KeyId, kind: &'static str, now: Timestamp) -> Option<u64> {
        let mut kinds = self.0.lock().ignore_poison();
        if kinds.len() >= KINDS_MAX && !kinds.contains_key(&(key, kind)) {
            kinds.clear();
        }
        match kinds.get_mut(&(key, kind)) {
            Some(last) if now.ms_since(last.at) < INTERVAL_MS => {
                last.suppressed += 1;
                None
            }
            last => {
                let suppressed = last.map_or(0, |last| last.suppressed);
                kinds.insert((key, kind), LastEntry { at: now, suppressed: 0 });
                Some(suppressed)
            }
        }
    }
}

impl Identity {
    /// Records a refused token of `key`.
    pub(super) fn record_refused(&self, org: OrgId, key: KeyId, refusal: &TokenRefusal, now: Timestamp) {
        let reason = refusal.reason();
        if let Some(suppressed) = self.refusal_log.admit(key, reason, now) {
            let rejected = event(None, "token.rejected", org, key);
            self.record_failure(with_count(rejected, reason, suppressed), now);
        }
    }

    /// Records a minted token: each one that a person requested, and at most one a minute of those
    /// that a key requested. Does not access the disk; the next tick writes the entry.
    pub fn note_minted(&self, org: OrgId, key: KeyId, actor: Option<UserId>, now: Timestamp) {
        let suppressed = match actor {
            Some(_) => Some(0),
            None => self.refusal_log.admit(key, "minted", now),
        };
        if let Some(suppressed) = suppressed {
            let minted = event(actor, "token.minted", org, key);
            let minted = if actor.is_none() { minted.by_key(key) } else { minted };
            self.record_access(with_count(minted, "", suppressed), now);
        }
    }
}

/// Adds the reason and the number of suppressed events to an entry.
fn with_count(event: Event, reason: &str, suppressed: u64) -> Event {
    match suppressed {
        0 => event.detail(reason),
        _ => event.detail(format!("{reason} and {suppressed} more since the last entry").trim_start()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_recorded_once_a_minute_and_suppressed_events_are_counted() {
        let notes = RefusalLog::default();
        let (key, other) = (KeyId::from_bytes([1; 10]), KeyId::from_bytes([2; 10]));
        let at = |s: i64| Timestamp::from_s(1_800_000_000 + s);
        assert_eq!(notes.admit(key, "aud", at(0)), Some(0));
        for s in 1..60 {
            assert_eq!(notes.admit(key, "aud", at(s)), None);
        }
        assert_eq!(notes.admit(key, "exp", at(30)), Some(0), "another kind");
        assert_eq!(notes.admit(other, "aud", at(30)), Some(0), "another key");
        assert_eq!(notes.admit(key, "aud", at(60)), Some(59));
        assert_eq!(notes.admit(key, "aud", at(200)), Some(0));
    }

    #[test]
    fn the_number_of_remembered_kinds_is_bounded() {
        let notes = RefusalLog::default();
        for n in 0..50_000u32 {
            let mut bytes = [0; 10];
            bytes[..4].copy_from_slice(&n.to_le_bytes());
            assert_eq!(notes.admit(KeyId::from_bytes(bytes), "aud", Timestamp::from_s(1)), Some(0));
        }
        assert!(notes.0.lock().expect("no panic").len() <= KINDS_MAX);
    }
}
