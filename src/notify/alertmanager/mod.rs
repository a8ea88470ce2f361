//! The queue of one Alertmanager of one organisation, without a thread or a clock.
//!
//! Each pair of organisation and Alertmanager has its own queue, so neither another organisation
//! nor another Alertmanager can push alerts out of it. A newer state of an alert replaces the
//! queued one and takes its position.

pub mod discovery;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use self::discovery::AmEndpoint;
use super::delivery::{DeliveryHistory, DeliveryOutcome};
use super::labels::{AlertFingerprint, AlertLabels};
use super::limits::{AM_BATCH_MAX, AM_QUEUED_MAX};
use crate::entropy::Entropy;
use crate::model::Timestamp;

/// The state of an alert, as Alertmanagers get it.
#[derive(Clone, Debug, PartialEq)]
pub struct AmAlert {
    /// The labels.
    pub labels: Arc<AlertLabels>,
    /// The annotations.
    pub annotations: Arc<AlertLabels>,
    /// When the alert began to fire.
    pub starts_at: Timestamp,
    /// When it ended or ends unless it is sent again.
    pub ends_at: Timestamp,
    /// The page of the expression.
    pub generator_url: String,
}

impl AmAlert {
    fn to_json(&self) -> Value {
        json!({
            "labels": *self.labels,
            "annotations": *self.annotations,
            "startsAt": self.starts_at.to_rfc3339(),
            "endsAt": self.ends_at.to_rfc3339(),
            "generatorURL": self.generator_url,
        })
    }
}

#[derive(Clone, Debug)]
struct QueuedAlert {
    fingerprint: AlertFingerprint,
    alert: AmAlert,
    queued_at: Timestamp,
}

/// The queue of one Alertmanager.
#[derive(Debug)]
pub(super) struct AmQueue {
    pub(super) endpoint: AmEndpoint,
    /// The entries by number; the smallest number is the oldest.
    queued: BTreeMap<u64, QueuedAlert>,
    numbers: BTreeMap<AlertFingerprint, u64>,
    next_number: u64,
    in_flight: Vec<QueuedAlert>,
    is_in_flight: bool,
    pub(super) history: DeliveryHistory,
}

impl AmQueue {
    pub(super) fn new(endpoint: AmEndpoint) -> AmQueue {
        AmQueue {
            endpoint,
            queued: BTreeMap::new(),
            numbers: BTreeMap::new(),
            next_number: 0,
            in_flight: Vec::new(),
            is_in_flight: false,
            history: DeliveryHistory::default(),
        }
    }

    /// Queues the state of an alert; drops the oldest one if the queue is full.
    pub(super) fn push(&mut self, fingerprint: AlertFingerprint, alert: AmAlert, now: Timestamp) {
        if let Some(queued) = self.numbers.get(&fingerprint).and_then(|number| self.queued.get_mut(number)) {
            queued.alert = alert;
            return;
        }
        if self.queued.len() >= AM_QUEUED_MAX
            && let Some((_, oldest)) = self.queued.pop_first()
        {
            self.numbers.remove(&oldest.fingerprint);
            self.history.counts.dropped_alerts += 1;
        }
        self.numbers.insert(fingerprint, self.next_number);
        self.queued.insert(self.next_number, QueuedAlert { fingerprint, alert, queued_at: now });
        self.next_number += 1;
    }

    /// Returns the number of alerts that wait or are being sent.
    pub(super) fn len(&self) -> usize {
        self.queued.len() + self.in_flight.len()
    }

    /// Returns how long the oldest alert has waited, in milliseconds.
    pub(super) fn lag_ms(&self, now: Timestamp) -> i64 {
        let oldest = self.in_flight.iter().chain(self.queued.values()).map(|one| one.queued_at).min();
        oldest.map_or(0, |at| now.ms_since(at).max(0))
    }

    /// Returns when the next attempt begins, if alerts wait for one.
    pub(super) fn next_retry(&self) -> Option<Timestamp> {
        self.history.retry_at.filter(|_| self.len() > 0)
    }

    /// Returns the body of the next request; none if one is in flight or has to wait.
    pub(super) fn take(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        if self.is_in_flight || self.history.has_to_wait(now) || self.queued.is_empty() {
            return None;
        }
        while self.in_flight.len() < AM_BATCH_MAX {
            let Some((_, one)) = self.queued.pop_first() else { break };
            self.numbers.remove(&one.fingerprint);
            self.in_flight.push(one);
        }
        self.is_in_flight = true;
        let body: Value = self.in_flight.iter().map(|one| one.alert.to_json()).collect();
        Some(body.to_string().into_bytes())
    }

    /// Records the outcome of the request in flight.
    pub(super) fn finish(&mut self, outcome: DeliveryOutcome, now: Timestamp, rng: &mut Entropy) {
        self.is_in_flight = false;
        let batch = std::mem::take(&mut self.in_flight);
        match &outcome {
            DeliveryOutcome::Sent => {}
            DeliveryOutcome::Refused { .. } => self.history.counts.dropped_alerts += batch.len() as u64,
            DeliveryOutcome::Retry { .. } => self.put_back(batch),
        }
        self.history.record(outcome, now, rng);
    }

    /// Puts a batch back to the front. An alert with a newer queued state keeps that.
    fn put_back(&mut self, batch: Vec<QueuedAlert>) {
        let mut all: Vec<QueuedAlert> =
            batch.into_iter().filter(|one| !self.numbers.contains_key(&one.fingerprint)).collect();
        all.extend(std::mem::take(&mut self.queued).into_values());
        let excess = all.len().saturating_sub(AM_QUEUED_MAX);
        self.history.counts.dropped_alerts += excess as u64;
        self.numbers.clear();
        self.next_number = 0;
        for one in all.into_iter().skip(excess) {
            self.numbers.insert(one.fingerprint, self.next_number);
            self.queued.insert(self.next_number, one);
            self.next_number += 1;
        }
    }
}

#[cfg(test)]
mod tests;
