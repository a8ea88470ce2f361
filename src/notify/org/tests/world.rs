//! Rules, receivers and a store around a notifier.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use crate::entropy::Entropy;
use crate::model::{Alert, Timestamp};
use crate::notify::config::{NotifyConfig, NotifyDocument};
use crate::notify::delivery::DeliveryOutcome;
use crate::notify::labels::{AlertFingerprint, AlertLabels};
use crate::notify::matcher::AlertMatchers;
use crate::notify::message::DeliveryContent;
use crate::notify::org::{OrgNotifier, OrgOptions};
use crate::notify::rows::{NotifyRow, NotifyRowKey};
use crate::notify::silence::NewSilence;

/// Seconds between two evaluations of the rules, each of which sends alerts.
const EVALUATION_S: i64 = 60;
/// Seconds for which a firing alert stays valid after it was sent.
const VALIDITY_S: i64 = 240;
/// Seconds for which a resolved alert is sent.
const RESOLVED_S: i64 = 900;

pub(super) fn at(s: i64) -> Timestamp {
    Timestamp::from_s(s)
}

fn labels(name: &str, pairs: &[(&str, &str)]) -> AlertLabels {
    let all = pairs.iter().copied().chain([("alertname", name)]);
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub(super) fn print_of(name: &str, pairs: &[(&str, &str)]) -> AlertFingerprint {
    AlertFingerprint::of(&labels(name, pairs))
}

/// An alert that fires for a while.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) labels: AlertLabels,
    pub(super) fires: Range<i64>,
}

/// A notification that a receiver accepted.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) at_s: i64,
    pub(super) integration: String,
    /// `alertname` of the group, or of the first alert.
    pub(super) name: String,
    /// Fingerprint and start.
    pub(super) firing: Vec<(String, String)>,
    pub(super) resolved: Vec<(String, String)>,
}

pub(super) struct World {
    pub(super) notifier: OrgNotifier,
    pub(super) rows: BTreeMap<NotifyRowKey, Vec<u8>>,
    pub(super) rules: Vec<Rule>,
    pub(super) rules_stop_at: Option<i64>,
    pub(super) mails: usize,
    seen: Vec<Seen>,
    failures: Vec<(String, Range<i64>, DeliveryOutcome)>,
    config: Arc<NotifyConfig>,
    now_s: i64,
    /// Seconds between two steps.
    pub(super) step_s: i64,
    starts: u64,
}

fn config_of(value: &Value) -> Arc<NotifyConfig> {
    let document = NotifyDocument::parse(&value.to_string(), None, &mut Entropy::seeded(1));
    Arc::clone(document.unwrap_or_else(|problems| panic!("{problems:?}")).config())
}

fn new_notifier(seed: u64) -> OrgNotifier {
    let options = OrgOptions {
        mails_per_hour: 20,
        external_labels: Arc::default(),
        external_url: "http://p/alerts".to_owned(),
        expr_url: "http://p/graph?expr=".to_owned(),
    };
    OrgNotifier::new(options, Entropy::seeded(seed))
}

impl World {
    pub(super) fn new(config: &Value) -> World {
        let mut world = World {
            notifier: new_notifier(1),
            rows: BTreeMap::new(),
            rules: Vec::new(),
            rules_stop_at: None,
            mails: 0,
            seen: Vec::new(),
            failures: Vec::new(),
            config: config_of(config),
            now_s: 0,
            step_s: 10,
            starts: 1,
        };
        world.notifier.restore(Vec::new(), Arc::clone(&world.config), at(0));
        world
    }

    pub(super) fn now(&self) -> Timestamp {
        at(self.now_s)
    }

    pub(super) fn set_config(&mut self, config: &Value) {
        self.config = config_of(config);
        self.notifier.set_config(Arc::clone(&self.config), self.now());
    }

    pub(super) fn fire(&mut self, name: &str, pairs: &[(&str, &str)], fires: Range<i64>) {
        self.rules.push(Rule { name: name.to_owned(), labels: labels(name, pairs), fires });
    }

    pub(super) fn fail(&mut self, integration: &str, range: Range<i64>, outcome: DeliveryOutcome) {
        self.failures.push((integration.to_owned(), range, outcome));
    }

    pub(super) fn silence(&mut self, text: &str, start: i64, end: i64) -> Arc<str> {
        let mut matchers = AlertMatchers::default();
        matchers.push_text(text).expect("valid");
        let (starts_at, ends_at) = (at(start), at(end));
        let new = NewSilence { matchers, starts_at, ends_at, created_by: "ada".into(), comment: "x".into() };
        self.notifier.set_silence(None, new, self.now()).expect("valid")
    }

    pub(super) fn offer(&mut self, name: &str, pairs: &[(&str, &str)], start: i64, resolved: bool) {
        self.offer_labels(name, labels(name, pairs), (start, resolved.then_some(self.now_s)));
    }

    fn offer_labels(&mut self, name: &str, labels: AlertLabels, (start, end): (i64, Option<i64>)) {
        let alert = Alert {
            labels,
            annotations: AlertLabels::new(),
            value: 1.0,
            starts_at: at(start),
            ends_at: at(end.unwrap_or(self.now_s + VALIDITY_S)),
            has_own_end: false,
            resolved: end.is_some(),
            expr: format!("up{{job=\"{name}\"}}"),
        };
        self.notifier.offer(alert, self.now());
    }

    /// Sends a firing alert whose end the sender sets.
    pub(super) fn post_until(&mut self, name: &str, end_s: i64) {
        let alert = Alert {
            labels: labels(name, &[]),
            annotations: AlertLabels::new(),
            value: 0.0,
            starts_at: at(0),
            ends_at: at(end_s),
            has_own_end: true,
            resolved: false,
            expr: String::new(),
        };
        self.notifier.offer(alert, self.now());
    }

    /// Returns the end of the only alert, in seconds.
    pub(super) fn end_s(&self) -> i64 {
        let alerts = self.notifier.alerts(self.now());
        assert_eq!(alerts.len(), 1);
        alerts[0].ends_at.as_ms() / 1_000
    }

    /// Sends the alerts that rules send at this moment.
    fn evaluate(&mut self) {
        if self.rules_stop_at.is_some_and(|stop| self.now_s >= stop) {
            return;
        }
        let now = self.now_s;
        for Rule { name, labels, fires } in self.rules.clone() {
            let is_due = |since: i64| (now - since) % EVALUATION_S < self.step_s;
            if fires.contains(&now) && is_due(fires.start) {
                self.offer_labels(&name, labels, (fires.start, None));
            } else if (fires.end..fires.end + RESOLVED_S).contains(&now) && is_due(fires.end) {
                self.offer_labels(&name, labels, (fires.start, Some(fires.end)));
            }
        }
    }

    /// Runs rules and receivers. Deliveries take no time.
    pub(super) fn run(&mut self, range: Range<i64>) {
        for now in range.step_by(usize::try_from(self.step_s).expect("positive")) {
            self.now_s = now;
            self.evaluate();
            self.deliver(usize::MAX);
        }
    }

    /// Like [`World::run`], second by second and without rules.
    pub(super) fn run_steps(&mut self, range: Range<i64>) {
        for now in range {
            self.now_s = now;
            self.deliver(usize::MAX);
        }
    }

    /// Delivers until nothing is left, storing the state after each delivery. Stops without storing
    /// after `most` deliveries; returns whether that happened.
    pub(super) fn deliver(&mut self, most: usize) -> bool {
        let mut done = 0;
        loop {
            let deliveries = self.notifier.step(self.now());
            self.save();
            if deliveries.is_empty() {
                return false;
            }
            for delivery in deliveries {
                let outcome = self.outcome(&delivery.client_key);
                if outcome == DeliveryOutcome::Sent {
                    self.accept(&delivery.client_key, &delivery.content);
                }
                done += 1;
                if done > most {
                    return true;
                }
                self.notifier.finish(delivery.number, outcome, self.now());
                self.save();
            }
        }
    }

    fn outcome(&self, client_key: &str) -> DeliveryOutcome {
        let fails = |(name, range, _): &&(String, Range<i64>, DeliveryOutcome)| {
            client_key.split(' ').next() == Some(name) && range.contains(&self.now_s)
        };
        self.failures.iter().find(fails).map_or(DeliveryOutcome::Sent, |(_, _, outcome)| outcome.clone())
    }

    fn accept(&mut self, client_key: &str, content: &DeliveryContent) {
        let DeliveryContent::Request(request) = content else {
            self.mails += 1;
            return;
        };
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        let Some(alerts) = body["alerts"].as_array() else { return };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = |status: &str| {
            let alerts = alerts.iter().filter(|alert| alert["status"] == status);
            alerts.map(|alert| (text(&alert["fingerprint"]), text(&alert["startsAt"]))).collect()
        };
        self.seen.push(Seen {
            at_s: self.now_s,
            integration: client_key.to_owned(),
            name: text(&alerts[0]["labels"]["alertname"]),
            firing: of("firing"),
            resolved: of("resolved"),
        });
    }

    fn save(&mut self) {
        for (key, value) in self.notifier.take_changes() {
            match value {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
    }

    /// Ends the process without a warning, and starts it from the stored rows.
    pub(super) fn kill_and_restart(&mut self) {
        self.starts += 1;
        self.notifier = new_notifier(self.starts);
        let row = |(key, value): (&NotifyRowKey, &Vec<u8>)| NotifyRow { key: *key, value: value.clone() };
        let rows = self.rows.iter().map(row).collect();
        self.notifier.restore(rows, Arc::clone(&self.config), self.now());
    }

    pub(super) fn seen(&self, integration: &str, name: &str) -> Vec<Seen> {
        let is_asked = |one: &&Seen| one.integration == integration && one.name == name;
        self.seen.iter().filter(is_asked).cloned().collect()
    }

    pub(super) fn all_seen(&self) -> &[Seen] {
        &self.seen
    }
}
