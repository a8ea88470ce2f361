//! The last refusals of each organisation, with their reasons, for the senders of samples
//! (docs/specification.md C8).
//!
//! A repeated refusal has one entry: if a series of a sender is refused again with the same code,
//! the entry's count increases and the entry becomes the newest. The entries are in memory only and
//! end with the process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use axum::extract::State;
use serde_json::{Value, json};

use super::OrgDeps;
use crate::api::body::Json;
use crate::api::callers::{IngestCaller, Sender};
use crate::api::error::ApiResult;
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Routes};
use crate::model::{OrgId, Refusal, Timestamp};
use crate::sync::IgnorePoison as _;

/// The route, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new().get(
        "/orgs/{slug}/ingest/rejects",
        Auth::IngestCaller,
        "List the last refused samples and series, with reasons",
        list,
    )
}

/// The most entries of one organisation, inclusive.
const ENTRIES_MAX: usize = 100;
/// The most organisations with entries, inclusive. The one whose newest entry is oldest is removed
/// first.
const ORGS_MAX: usize = 1_000;
/// The most bytes of a stored reason. A series has at most 200, so an organisation has at most 60
/// kB.
const REASON_BYTES_MAX: usize = 400;

/// The last refusals by organisation.
#[derive(Debug, Default)]
pub struct Rejects(Mutex<BTreeMap<OrgId, VecDeque<Reject>>>);

/// A refusal, with the time of its first and its last occurrence and the number of occurrences.
#[derive(Clone, Debug)]
struct Reject {
    sender: Sender,
    refusal: Refusal,
    first_at: Timestamp,
    last_at: Timestamp,
    count: u64,
}

impl Reject {
    fn matches(&self, sender: &Sender, refusal: &Refusal) -> bool {
        self.refusal.code == refusal.code && self.refusal.series == refusal.series && self.sender == *sender
    }

    /// Returns whether `sender` sent the refused samples. An API key stays the same sender when it
    /// is renamed.
    fn is_from(&self, sender: &Sender) -> bool {
        match (&self.sender, sender) {
            (Sender::Key { id, .. }, Sender::Key { id: other, .. }) => id == other,
            (one, other) => one == other,
        }
    }
}

impl Rejects {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<OrgId, VecDeque<Reject>>> {
        // Consistent after every statement.
        self.0.lock().ignore_poison()
    }

    /// Records refusals of a request from `sender`. A refusal without a series concerns the whole
    /// request.
    pub(super) fn record(
        &self,
        org: OrgId,
        sender: &Sender,
        refusals: impl IntoIterator<Item = Refusal>,
        now: Timestamp,
    ) {
        let mut orgs = self.lock();
        if orgs.len() >= ORGS_MAX && !orgs.contains_key(&org) {
            let newest =
                |entries: &VecDeque<Reject>| entries.back().map_or(Timestamp::MIN, |entry| entry.last_at);
            let oldest_org = orgs.iter().min_by_key(|(_, entries)| newest(entries)).map(|(org, _)| *org);
            if let Some(oldest_org) = oldest_org {
                orgs.remove(&oldest_org);
            }
        }
        let entries = orgs.entry(org).or_default();
        for mut refusal in refusals {
            let end = (0..=REASON_BYTES_MAX).rev().find(|end| refusal.reason.is_char_boundary(*end));
            refusal.reason.truncate(end.unwrap_or(0));
            let earlier = entries.iter().position(|entry| entry.matches(sender, &refusal));
            let (first_at, count) = match earlier.and_then(|index| entries.remove(index)) {
                Some(Reject { first_at, count, .. }) => (first_at, count + 1),
                None => (now, 1),
            };
            if entries.len() == ENTRIES_MAX {
                entries.pop_front();
            }
            entries.push_back(Reject { sender: sender.clone(), refusal, first_at, last_at: now, count });
        }
    }

    /// Returns the entries of an organisation, the newest first.
    fn of(&self, org: OrgId) -> Vec<Reject> {
        self.lock().get(&org).map_or_else(Vec::new, |entries| entries.iter().rev().cloned().collect())
    }
}

async fn list(
    State(deps): State<OrgDeps>,
    machine: IngestCaller,
    PathOf(slug): PathOf<String>,
) -> ApiResult<Json<Value>> {
    let access = machine.enter(&slug)?;
    let org = access.org;
    // An API key for writing sees only the refusals of its own samples. An editor sees all of them.
    let own = access.sender().filter(|sender| matches!(sender, Sender::Key { .. }));
    let rejects = deps.rejects.of(org);
    let shown = rejects.iter().filter(|reject| own.as_ref().is_none_or(|own| reject.is_from(own)));
    let rows: Vec<Value> = shown.map(to_json).collect();
    let stats = deps.tsdb.stats();
    let counts = stats.orgs.iter().find(|stats| stats.org == org).map(|stats| &stats.refused_by_code);
    let refused = counts.into_iter().flatten().map(|(code, samples)| ((*code).to_owned(), (*samples).into()));
    Ok(Json(json!({ "data": rows, "refused": Value::Object(refused.collect()) })))
}

fn to_json(reject: &Reject) -> Value {
    let Reject { sender, refusal, first_at, last_at, count } = reject;
    let sender = match sender {
        Sender::Key { id, name } => json!({ "type": "api_key", "id": id.to_string(), "name": name }),
        Sender::User(id) => json!({ "type": "user", "id": id.to_string() }),
    };
    let series = (!refusal.series.is_empty()).then_some(&refusal.series);
    json!({
        "at": last_at.to_rfc3339(),
        "first_at": first_at.to_rfc3339(),
        "count": count,
        "code": refusal.code,
        "reason": refusal.reason,
        "series": series,
        "sender": sender,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Entropy;
    use crate::identity::UserId;

    fn sender(seed: u64) -> Sender {
        Sender::User(UserId::random(&mut Entropy::seeded(seed)))
    }

    fn refusal(series: &str, code: &'static str, reason: &str) -> Refusal {
        Refusal { series: series.to_owned(), code, reason: reason.to_owned() }
    }

    fn shown(rejects: &Rejects, org: u32) -> Vec<(String, u64, i64)> {
        let entries = rejects.of(OrgId(org));
        entries.into_iter().map(|e| (e.refusal.series, e.count, e.last_at.as_ms())).collect()
    }

    #[test]
    fn a_repeated_refusal_is_counted_and_becomes_the_newest() {
        let rejects = Rejects::default();
        let (ada, bob) = (sender(1), sender(2));
        let record = |sender: &Sender, series: &str, code, at| {
            rejects.record(OrgId(1), sender, [refusal(series, code, "reason")], Timestamp::from_ms(at));
        };
        record(&ada, "a", "x", 1);
        record(&ada, "b", "x", 2);
        record(&ada, "a", "x", 3);
        record(&bob, "a", "x", 4);
        record(&ada, "a", "y", 5);
        let entry = |series: &str, count, at| (series.to_owned(), count, at);
        assert_eq!(
            shown(&rejects, 1),
            [entry("a", 1, 5), entry("a", 1, 4), entry("a", 2, 3), entry("b", 1, 2)]
        );
        assert_eq!(rejects.of(OrgId(1))[2].first_at, Timestamp::from_ms(1));
        assert_eq!(shown(&rejects, 2), []);
    }

    #[test]
    fn entries_texts_and_organisations_are_bounded() {
        let rejects = Rejects::default();
        let sender = sender(1);
        let long = "ä".repeat(1_000);
        for n in 0..150 {
            rejects.record(OrgId(1), &sender, [refusal(&n.to_string(), "x", &long)], Timestamp::from_ms(n));
        }
        let entries = rejects.of(OrgId(1));
        assert_eq!((entries.len(), entries[0].refusal.series.as_str()), (ENTRIES_MAX, "149"));
        assert_eq!(entries[0].refusal.reason.len(), REASON_BYTES_MAX);
        for n in 2..=1_001 {
            rejects.record(OrgId(n), &sender, [refusal("", "x", "")], Timestamp::from_ms(1_000));
        }
        assert_eq!(rejects.lock().len(), ORGS_MAX);
        assert_eq!(shown(&rejects, 1), [], "its newest entry was the oldest");
    }
}
