//! The notifications of one organisation, without a thread or a clock: alerts come in, deliveries
//! go out, and outcomes come back.
//!
//! A message is computed when it is sent, from the alerts and from the alerts that were reported to
//! its integration before. So a receiver that fails for an hour has no growing queue, and gets one
//! message about the present when it works again.

mod deliver;
mod entry;
mod flush;
mod group;
mod intake;
mod mails;
mod restore;
mod suppress;
mod views;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::alertmanager::AmQueue;
use super::alertmanager::discovery::AmEndpoint;
use super::config::NotifyConfig;
use super::delivery::DeliveryHistory;
use super::labels::{AlertFingerprint, AlertLabels};
use super::limits::COMMENT_BYTES_MAX;
use super::message::DeliveryContent;
use super::rows::{NotifyChanges, NotifyRowKey, NotifyRowKind, to_json_bytes};
use super::silence::{AlertSilence, NewSilence, SilenceError, Silences};
use crate::entropy::Entropy;
use crate::model::Timestamp;
use group::{AlertEntries, AlertGroup};
use mails::MailBudget;
use suppress::Inhibitors;

pub use deliver::TestRefusal;
pub use suppress::AlertAcknowledgement;
pub use views::{AlertView, AmStatus, GroupView, IntegrationStatus, NotifyStatus};

/// The settings of an organisation that are not in its configuration.
#[derive(Clone, Debug)]
pub struct OrgOptions {
    /// The most mails in an hour, inclusive.
    pub mails_per_hour: u32,
    /// Labels that Alertmanagers get with each alert that has no label of the same name, as
    /// Prometheus' `external_labels`.
    pub external_labels: Arc<AlertLabels>,
    /// The page of the organisation's alerts, for links; may be empty.
    pub external_url: String,
    /// The page of an expression, before the expression in the form of a query; may be empty.
    pub expr_url: String,
}

/// A request or a mail to send.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The number to report the outcome with.
    pub number: u64,
    /// Identifies the client of the server among those of the organisation: deliveries with equal
    /// keys share connections.
    pub client_key: String,
    /// The contents.
    pub content: DeliveryContent,
}

/// The subject of a delivery whose outcome is not known yet.
#[derive(Debug)]
enum InFlight {
    Group { group: Arc<str>, integration: Arc<str>, message: group::GroupMessage, at: Timestamp },
    Alertmanager { key: String },
}

/// The requests of an integration, those of all groups together.
#[derive(Clone, Debug, Default)]
struct IntegrationRequests {
    in_flight: usize,
    history: DeliveryHistory,
}

/// Counters of an organisation, since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrgCounts {
    /// Alerts that rules or clients sent.
    pub received: u64,
    /// Alerts that were dropped because of a limit.
    pub dropped: u64,
    /// Mails that waited for the next hour because of the limit.
    pub mails_delayed: u64,
}

/// The notifications of one organisation.
#[derive(Debug)]
pub struct OrgNotifier {
    options: OrgOptions,
    config: Arc<NotifyConfig>,
    entries: AlertEntries,
    entries_bytes: usize,
    memberships: usize,
    groups: BTreeMap<Arc<str>, AlertGroup>,
    silences: Silences,
    acknowledgements: BTreeMap<AlertFingerprint, AlertAcknowledgement>,
    inhibitors: Inhibitors,
    /// The time at which `inhibitors` was computed; `None` after a change of an alert.
    inhibitors_at: Option<Timestamp>,
    requests: BTreeMap<Arc<str>, IntegrationRequests>,
    alertmanagers: BTreeMap<String, AmQueue>,
    in_flight: BTreeMap<u64, InFlight>,
    next_number: u64,
    mails: MailBudget,
    changes: NotifyChanges,
    counts: OrgCounts,
    /// The time of the last step, which shows jumps of the clock.
    stepped_at: Option<Timestamp>,
    rng: Entropy,
}

/// The reason why an alert is not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcknowledgeError {
    /// `not_found`.
    #[error("no firing alert has this fingerprint")]
    NotFiring,
    /// `invalid`.
    #[error("a comment has at most {COMMENT_BYTES_MAX} bytes")]
    TooLong,
}

impl OrgNotifier {
    /// Returns the notifier of an organisation without configuration.
    pub fn new(options: OrgOptions, rng: Entropy) -> OrgNotifier {
        OrgNotifier {
            mails: MailBudget::new(options.mails_per_hour),
            options,
            config: Arc::default(),
            entries: AlertEntries::new(),
            entries_bytes: 0,
            memberships: 0,
            groups: BTreeMap::new(),
            silences: Silences::default(),
            acknowledgements: BTreeMap::new(),
            inhibitors: Inhibitors::default(),
            inhibitors_at: None,
            requests: BTreeMap::new(),
            alertmanagers: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            next_number: 1,
            changes: NotifyChanges::new(),
            counts: OrgCounts::default(),
            stepped_at: None,
            rng,
        }
    }

    /// Returns the configuration in use.
    pub const fn config(&self) -> &Arc<NotifyConfig> {
        &self.config
    }

    /// Returns whether nothing is to be done before the next alert or change.
    pub fn is_idle(&self) -> bool {
        self.entries.is_empty()
            && self.groups.is_empty()
            && self.changes.is_empty()
            && self.in_flight.is_empty()
            && self.silences.list().next().is_none()
            && self.alertmanagers.values().all(|queue| queue.len() == 0)
    }

    /// Sets the Alertmanagers. A queue stays while its Alertmanager does.
    pub fn set_alertmanagers(&mut self, endpoints: Vec<AmEndpoint>) {
        let mut before = std::mem::take(&mut self.alertmanagers);
        for endpoint in endpoints {
            let queue = match before.remove(&endpoint.key) {
                Some(mut queue) => {
                    queue.endpoint = endpoint;
                    queue
                }
                None => AmQueue::new(endpoint),
            };
            // A file may name a server twice.
            self.alertmanagers.entry(queue.endpoint.key.clone()).or_insert(queue);
        }
    }

    /// Takes the changes of rows since the last call. The caller stores them, or gives them back
    /// with [`OrgNotifier::return_changes`].
    pub fn take_changes(&mut self) -> NotifyChanges {
        std::mem::take(&mut self.changes)
    }

    /// Takes back changes that could not be stored. Newer ones prevail.
    pub fn return_changes(&mut self, failed: NotifyChanges) {
        let newer = std::mem::replace(&mut self.changes, failed);
        self.changes.extend(newer);
    }

    /// Returns all silences in order of their ids.
    pub fn silences(&self) -> impl Iterator<Item = &AlertSilence> {
        self.silences.list()
    }

    /// Returns a silence.
    pub fn silence(&self, id: &str) -> Option<&AlertSilence> {
        self.silences.get(id)
    }

    /// Creates a silence, or changes the one with this id. Returns the id of the resulting silence.
    ///
    /// # Errors
    /// [`SilenceError`]; then nothing is changed.
    pub fn set_silence(
        &mut self,
        id: Option<&str>,
        new: NewSilence,
        now: Timestamp,
    ) -> Result<Arc<str>, SilenceError> {
        match id {
            Some(id) => self.silences.replace(id, new, now, &mut self.rng, &mut self.changes),
            None => self.silences.create(new, now, &mut self.rng, &mut self.changes),
        }
    }

    /// Ends a silence.
    ///
    /// # Errors
    /// [`SilenceError::NotFound`].
    pub fn expire_silence(&mut self, id: &str, now: Timestamp) -> Result<(), SilenceError> {
        self.silences.expire(id, now, &mut self.changes)
    }

    /// Acknowledges a firing alert until it is resolved.
    ///
    /// # Errors
    /// [`AcknowledgeError`].
    pub fn acknowledge(
        &mut self,
        fingerprint: AlertFingerprint,
        author: &str,
        comment: &str,
        now: Timestamp,
    ) -> Result<AlertAcknowledgement, AcknowledgeError> {
        if comment.len() > COMMENT_BYTES_MAX || author.len() > COMMENT_BYTES_MAX {
            return Err(AcknowledgeError::TooLong);
        }
        let entry = self.entries.get(&fingerprint).filter(|entry| entry.is_firing(now));
        let entry = entry.ok_or(AcknowledgeError::NotFiring)?;
        let one = AlertAcknowledgement {
            starts_at: entry.starts_at,
            author: author.to_owned(),
            comment: comment.to_owned(),
            at: now,
        };
        let key = NotifyRowKey::of_alert(NotifyRowKind::Acknowledgement, fingerprint);
        self.changes.insert(key, Some(to_json_bytes(&one.to_stored())));
        self.acknowledgements.insert(fingerprint, one.clone());
        Ok(one)
    }

    /// Withdraws an acknowledgement. Returns whether there was one.
    pub fn withdraw_acknowledgement(&mut self, fingerprint: AlertFingerprint) -> bool {
        let had = self.acknowledgements.remove(&fingerprint).is_some();
        if had {
            self.changes.insert(NotifyRowKey::of_alert(NotifyRowKind::Acknowledgement, fingerprint), None);
        }
        had
    }

    /// Returns the page of an expression; empty without an address or an expression.
    fn expr_link(&self, expr: &str) -> String {
        let mut link = self.options.expr_url.clone();
        if link.is_empty() || expr.is_empty() {
            return String::new();
        }
        for byte in expr.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                link.push(char::from(byte));
            } else {
                link.push_str(&format!("%{byte:02X}"));
            }
        }
        link
    }
}

#[cfg(test)]
mod tests;
