//! The metrics of notifications.

use super::{MetricFamily, MetricKind, Slugs, count};
use crate::notify::delivery::DeliveryCounts;
use crate::notify::edge::NotifyHub;
use crate::notify::org::NotifyStatus;

/// A receiver: its labels and its numbers.
struct ReceiverRow {
    labels: Vec<(&'static str, String)>,
    lag_ms: u64,
    waiting: usize,
    counts: DeliveryCounts,
}

fn receivers(org: &str, status: &NotifyStatus) -> Vec<ReceiverRow> {
    let labels = |kind: &str, id: &str| {
        vec![("org", org.to_owned()), ("type", kind.to_owned()), ("receiver", id.to_owned())]
    };
    let alertmanagers = status.alertmanagers.iter().map(|one| ReceiverRow {
        labels: labels("alertmanager", &one.url),
        lag_ms: one.lag_ms.unsigned_abs(),
        waiting: one.queued,
        counts: one.counts,
    });
    let integrations = status.integrations.iter().map(|one| ReceiverRow {
        // The id of a recipient ends with the address.
        labels: labels(one.kind, one.id.split('/').next().unwrap_or_default()),
        lag_ms: one.lag_ms.unsigned_abs(),
        waiting: one.pending,
        counts: one.counts,
    });
    let mut rows: Vec<ReceiverRow> = Vec::new();
    // The recipients of one mail integration are one row.
    for one in alertmanagers.chain(integrations) {
        match rows.iter_mut().find(|row| row.labels == one.labels) {
            Some(row) => {
                row.lag_ms = row.lag_ms.max(one.lag_ms);
                row.waiting += one.waiting;
                row.counts.add(&one.counts);
            }
            None => rows.push(one),
        }
    }
    rows
}

/// Returns the families.
pub(super) fn families(hub: &NotifyHub, slugs: &Slugs) -> Vec<MetricFamily> {
    let statuses = hub.statuses();
    let known: Vec<(String, &NotifyStatus)> =
        statuses.iter().filter_map(|(org, status)| Some((slugs.of(*org)?, status))).collect();
    if known.is_empty() {
        return Vec::new();
    }
    let rows: Vec<ReceiverRow> = known.iter().flat_map(|(org, status)| receivers(org, status)).collect();
    let of_receivers = |name, kind, help, value: fn(&ReceiverRow) -> f64| {
        let mut family = MetricFamily::new(name, kind, help);
        for row in &rows {
            family.row(row.labels.clone(), value(row));
        }
        family
    };
    let of_orgs = |name, kind, help, value: fn(&NotifyStatus) -> u64| {
        let mut family = MetricFamily::new(name, kind, help);
        for (org, status) in &known {
            family.row(vec![("org", org.clone())], count(value(status)));
        }
        family
    };
    use MetricKind::{Counter, Gauge};
    let mut families = vec![
        of_orgs(
            "promlet_notify_alerts",
            Gauge,
            "Alerts that fire or wait to be reported as resolved.",
            |s| s.alerts as u64,
        ),
        of_orgs(
            "promlet_notify_received_alerts_total",
            Counter,
            "Alerts that rules and clients sent.",
            |s| s.counts.received,
        ),
        of_orgs(
            "promlet_notify_dropped_alerts_total",
            Counter,
            "Alerts that were dropped because of a limit.",
            |s| s.counts.dropped,
        ),
        of_orgs(
            "promlet_notify_delayed_mails_total",
            Counter,
            "Mails that waited because of the limit of an hour.",
            |s| s.counts.mails_delayed,
        ),
        of_receivers(
            "promlet_notify_lag_seconds",
            Gauge,
            "How long the oldest notification of a receiver has waited.",
            |row| count(row.lag_ms) / 1_000.0,
        ),
        of_receivers("promlet_notify_waiting", Gauge, "Notifications that wait for a receiver.", |row| {
            count(row.waiting as u64)
        }),
        of_receivers("promlet_notify_sent_total", Counter, "Requests that a receiver accepted.", |row| {
            count(row.counts.sent)
        }),
        of_receivers(
            "promlet_notify_retried_total",
            Counter,
            "Requests that failed and were repeated.",
            |row| count(row.counts.retried),
        ),
        of_receivers("promlet_notify_refused_total", Counter, "Requests that a receiver refused.", |row| {
            count(row.counts.refused)
        }),
        of_receivers(
            "promlet_notify_receiver_dropped_alerts_total",
            Counter,
            "Alerts that a receiver never got.",
            |row| count(row.counts.dropped_alerts),
        ),
    ];
    families.extend(of_all(hub));
    families
}

/// Returns the families of all organisations together.
fn of_all(hub: &NotifyHub) -> [MetricFamily; 3] {
    let figures = hub.figures();
    let whole = |name, help, value: u64| {
        let mut family = MetricFamily::new(name, MetricKind::Counter, help);
        family.row(Vec::new(), count(value));
        family
    };
    [
        whole(
            "promlet_notify_inbox_dropped_alerts_total",
            "Alerts that were dropped because the notifier was too slow.",
            figures.inbox_dropped,
        ),
        whole("promlet_notify_panics_total", "Panics of the notifier that were caught.", figures.panics),
        whole(
            "promlet_notify_store_errors_total",
            "Failures to store the state of notifications.",
            figures.store_errors,
        ),
    ]
}
