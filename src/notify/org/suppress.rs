//! Suppression of alerts by silences, inhibition rules and acknowledgements.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::entry::AlertEntry;
use super::group::AlertEntries;
use crate::model::Timestamp;
use crate::notify::config::{InhibitRule, NotifyConfig};
use crate::notify::labels::{AlertFingerprint, AlertLabels};

/// A member's statement that an alert is being worked on. It holds back repeated notifications
/// until the alert is resolved or fires again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertAcknowledgement {
    /// The start of the alert that it concerns.
    pub starts_at: Timestamp,
    /// The author.
    pub author: String,
    /// The comment; may be empty.
    pub comment: String,
    /// The time of the acknowledgement.
    pub at: Timestamp,
}

#[derive(Serialize, Deserialize)]
pub(in crate::notify) struct StoredAcknowledgement {
    pub(in crate::notify) starts_at_ms: i64,
    pub(in crate::notify) author: String,
    pub(in crate::notify) comment: String,
    pub(in crate::notify) at_ms: i64,
}

impl AlertAcknowledgement {
    pub(in crate::notify) fn to_stored(&self) -> StoredAcknowledgement {
        StoredAcknowledgement {
            starts_at_ms: self.starts_at.as_ms(),
            author: self.author.clone(),
            comment: self.comment.clone(),
            at_ms: self.at.as_ms(),
        }
    }

    pub(in crate::notify) fn from_stored(stored: StoredAcknowledgement) -> AlertAcknowledgement {
        AlertAcknowledgement {
            starts_at: Timestamp::from_ms(stored.starts_at_ms),
            author: stored.author,
            comment: stored.comment,
            at: Timestamp::from_ms(stored.at_ms),
        }
    }
}

/// The values of a rule's `equal` labels.
type EqualValues = Vec<String>;

/// The source alerts of each inhibition rule, at one moment.
#[derive(Debug, Default)]
pub(in crate::notify) struct Inhibitors {
    /// The sources of each rule, by the values of its `equal` labels.
    sources: Vec<BTreeMap<EqualValues, InhibitSources>>,
}

#[derive(Debug, Default)]
struct InhibitSources {
    /// A source that is not a target of the same rule.
    only_source: Option<AlertFingerprint>,
    /// A source that is a target, too. It inhibits targets that are not sources.
    both_sides: Option<AlertFingerprint>,
}

fn equal_values(rule: &InhibitRule, labels: &AlertLabels) -> EqualValues {
    rule.equal.iter().map(|name| labels.get(name).cloned().unwrap_or_default()).collect()
}

impl Inhibitors {
    /// Finds the sources among the firing alerts.
    pub(in crate::notify) fn of(config: &NotifyConfig, entries: &AlertEntries, now: Timestamp) -> Inhibitors {
        let find = |rule: &InhibitRule| {
            let mut sources: BTreeMap<EqualValues, InhibitSources> = BTreeMap::new();
            for (fingerprint, entry) in entries {
                if entry.is_firing(now) && rule.source.matches(&entry.labels) {
                    let found = sources.entry(equal_values(rule, &entry.labels)).or_default();
                    if rule.target.matches(&entry.labels) {
                        found.both_sides.get_or_insert(*fingerprint);
                    } else {
                        found.only_source = Some(*fingerprint);
                    }
                }
            }
            sources
        };
        Inhibitors { sources: config.inhibit_rules.iter().map(find).collect() }
    }

    /// Returns an alert that inhibits `alert`. As in Alertmanager, an alert that matches both sides
    /// of a rule is not inhibited by another one that does.
    pub(in crate::notify) fn source_of(
        &self,
        config: &NotifyConfig,
        labels: &AlertLabels,
    ) -> Option<AlertFingerprint> {
        config.inhibit_rules.iter().zip(&self.sources).find_map(|(rule, sources)| {
            if sources.is_empty() || !rule.target.matches(labels) {
                return None;
            }
            let found = sources.get(&equal_values(rule, labels))?;
            found.only_source.or_else(|| found.both_sides.filter(|_| !rule.source.matches(labels)))
        })
    }
}

/// The silences, inhibitions and acknowledgements that suppress alerts at one moment.
pub(in crate::notify) struct Suppression<'s> {
    pub(in crate::notify) config: &'s NotifyConfig,
    pub(in crate::notify) inhibitors: &'s Inhibitors,
    pub(in crate::notify) acknowledgements: &'s BTreeMap<AlertFingerprint, AlertAcknowledgement>,
}

impl Suppression<'_> {
    /// Returns the acknowledgement of an alert, if it concerns this start of it.
    pub(in crate::notify) fn acknowledgement(
        &self,
        fingerprint: AlertFingerprint,
        entry: &AlertEntry,
    ) -> Option<&AlertAcknowledgement> {
        self.acknowledgements.get(&fingerprint).filter(|one| one.starts_at == entry.starts_at)
    }

    /// Returns whether an alert is suppressed. The silences of the alert must be known.
    pub(in crate::notify) fn holds_back(&self, fingerprint: AlertFingerprint, entry: &AlertEntry) -> bool {
        !entry.silenced.1.is_empty()
            || self.acknowledgement(fingerprint, entry).is_some()
            || self.inhibitors.source_of(self.config, &entry.labels).is_some()
    }

    /// Returns the members that are held back.
    pub(in crate::notify) fn among(
        &self,
        members: &BTreeSet<AlertFingerprint>,
        entries: &AlertEntries,
    ) -> BTreeSet<AlertFingerprint> {
        let is_held = |fingerprint: &&AlertFingerprint| {
            entries.get(fingerprint).is_some_and(|entry| self.holds_back(**fingerprint, entry))
        };
        members.iter().filter(is_held).copied().collect()
    }
}
