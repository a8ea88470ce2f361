//! What the audit log is told of tokens: each kind of event of a key once a minute, with the number of those in between.
//!
//! A token that goes wrong goes wrong with every request of every open page, and who knows a key's id, which stands in
//! each of its tokens, can send bad ones as fast as the limits allow: one row each would push everything else out of the
//! organisation's log.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;

use super::audit::Event;
use super::keyring::event;
use super::{Identity, KeyId, TokenRefusal, UserId};

const APART_MS: i64 = 60 * 1_000;
/// Kinds of events remembered; beyond it everything is forgotten, which costs a row each.
const KINDS_MAX: usize = 20_000;

/// When each kind was noted last, and how many came since.
#[derive(Debug, Default)]
pub(super) struct TokenNotes(Mutex<HashMap<(KeyId, &'static str), Noted>>);

#[derive(Clone, Copy, Debug)]
struct Noted {
    at: Timestamp,
    since: u64,
}

impl TokenNotes {
    /// Whether this one is to be written, and how many were not since the last that was.
    fn admit(&self, key: KeyId, kind: &'static str, now: Timestamp) -> Option<u64> {
        let mut kinds = self.0.lock().ignore_poison();
        if kinds.len() >= KINDS_MAX && !kinds.contains_key(&(key, kind)) {
            kinds.clear();
        }
        match kinds.get_mut(&(key, kind)) {
            Some(noted) if now.ms_since(noted.at) < APART_MS => {
                noted.since += 1;
                None
            }
            known => {
                let since = known.map_or(0, |noted| noted.since);
                kinds.insert((key, kind), Noted { at: now, since: 0 });
                Some(since)
            }
        }
    }
}

impl Identity {
    /// Notes a token of `key` that was refused.
    pub(super) fn note_refused(&self, org: OrgId, key: KeyId, refusal: &TokenRefusal, now: Timestamp) {
        let reason = refusal.reason();
        if let Some(since) = self.token_notes.admit(key, reason, now) {
            self.note_failure(told(event(None, "token.rejected", org, key), reason, since), now);
        }
    }

    /// Notes a token that was minted: each one that a person asked for, and of a key's own once a minute. Touches memory
    /// only; written with the next tick.
    pub fn note_minted(&self, org: OrgId, key: KeyId, actor: Option<UserId>, now: Timestamp) {
        let since = match actor {
            Some(_) => Some(0),
            None => self.token_notes.admit(key, "minted", now),
        };
        if let Some(since) = since {
            let minted = event(actor, "token.minted", org, key);
            let minted = if actor.is_none() { minted.by_key(key) } else { minted };
            self.note_access(told(minted, "", since), now);
        }
    }
}

fn told(event: Event, reason: &str, since: u64) -> Event {
    match since {
        0 => event.detail(reason),
        _ => event.detail(format!("{reason} and {since} more since the last entry").trim_start()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_noted_once_a_minute_and_what_was_left_out_is_counted() {
        let notes = TokenNotes::default();
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
    fn the_memory_for_it_is_bounded() {
        let notes = TokenNotes::default();
        for n in 0..50_000u32 {
            let mut bytes = [0; 10];
            bytes[..4].copy_from_slice(&n.to_le_bytes());
            assert_eq!(notes.admit(KeyId::from_bytes(bytes), "aud", Timestamp::from_s(1)), Some(0));
        }
        assert!(notes.0.lock().expect("no panic").len() <= KINDS_MAX);
    }
}
