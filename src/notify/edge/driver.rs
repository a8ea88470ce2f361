//! The thread that drives all notifiers.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::hub::{FinishedDelivery, HubShared, NotifyUnavailable, OrgSlot};
use crate::clock::Stopwatch;
use crate::model::{Alert, OrgId};
use crate::notify::limits::INBOX_MAX;
use crate::notify::org::Delivery;
use crate::sync::IgnorePoison as _;

/// The longest time between two steps of an organisation that is not idle.
const STEP_EVERY: Duration = Duration::from_secs(1);
/// The shortest time between two rounds of the thread.
const ROUND_PAUSE: Duration = Duration::from_millis(10);
/// The pause of an organisation after a panic or an error of the store, in milliseconds.
const PAUSE_MS: i64 = 10_000;
/// How long a stop waits for the outcomes of running deliveries.
const STOP_WAIT_MAX: Duration = Duration::from_secs(5);

/// The events of organisations: alerts, and outcomes of deliveries.
type OrgEvents = BTreeMap<OrgId, (VecDeque<Alert>, Vec<FinishedDelivery>)>;

impl HubShared {
    /// The thread `notify`. A panic outside of the step of an organisation is counted, and the
    /// thread continues.
    pub(super) fn run(self: &Arc<Self>) {
        let mut closing: Option<Stopwatch> = None;
        loop {
            let ended = catch_unwind(AssertUnwindSafe(|| self.round(&mut closing)));
            match ended {
                Ok(true) => return,
                Ok(false) => {}
                Err(_) => self.count_panic(None),
            }
        }
    }

    fn count_panic(&self, org: Option<OrgId>) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        tracing::error!(org = org.map(|org| org.0), "the notifier panicked and continues");
    }

    /// Waits for work and executes it. Returns whether the thread ends.
    fn round(self: &Arc<Self>, closing: &mut Option<Stopwatch>) -> bool {
        let (alerts, finished) = {
            let mut inbox = self.inbox.lock().ignore_poison();
            if !inbox.is_woken && !inbox.is_closing {
                inbox = self.wake.wait_timeout(inbox, STEP_EVERY).ignore_poison().0;
            } else if inbox.is_closing && inbox.finished.is_empty() && closing.is_some() {
                inbox = self.wake.wait_timeout(inbox, STEP_EVERY / 10).ignore_poison().0;
            }
            if inbox.is_woken && !inbox.is_closing {
                // Events that arrive together share a round.
                drop(inbox);
                std::thread::sleep(ROUND_PAUSE);
                inbox = self.inbox.lock().ignore_poison();
            }
            inbox.is_woken = false;
            if inbox.is_closing && closing.is_none() {
                *closing = Some(Stopwatch::start());
            }
            (std::mem::take(&mut inbox.alerts), std::mem::take(&mut inbox.finished))
        };
        let mut work = OrgEvents::new();
        for (org, alerts) in alerts {
            work.entry(org).or_default().0 = alerts;
        }
        for one in finished {
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            work.entry(one.org).or_default().1.push(one);
        }
        let known: Vec<OrgId> = self.orgs.lock().ignore_poison().keys().copied().collect();
        for org in known {
            work.entry(org).or_default();
        }
        for (org, (alerts, finished)) in work {
            let stepped =
                catch_unwind(AssertUnwindSafe(|| self.step_org(org, alerts, finished, closing.is_some())));
            if stepped.is_err() {
                self.count_panic(Some(org));
                // The state in memory is uncertain: it is read from the store again.
                self.orgs.lock().ignore_poison().remove(&org);
                self.pause(org, VecDeque::new());
            }
        }
        closing.is_some_and(|since| {
            self.in_flight.load(Ordering::SeqCst) == 0 || since.elapsed() > STOP_WAIT_MAX
        })
    }

    /// Tries to load an organisation again after [`PAUSE_MS`], and keeps its alerts until then.
    fn pause(&self, org: OrgId, alerts: VecDeque<Alert>) {
        let until = self.deps.clock.now().plus_ms(PAUSE_MS);
        self.paused.lock().ignore_poison().insert(org, until);
        self.put_back(org, alerts, Vec::new());
    }

    fn step_org(
        self: &Arc<Self>,
        org: OrgId,
        alerts: VecDeque<Alert>,
        finished: Vec<FinishedDelivery>,
        is_closing: bool,
    ) {
        let now = self.deps.clock.now();
        {
            let mut paused = self.paused.lock().ignore_poison();
            if let Some(until) = paused.get(&org) {
                if (0..=PAUSE_MS).contains(&until.ms_since(now)) {
                    return self.put_back(org, alerts, Vec::new());
                }
                paused.remove(&org);
            }
        }
        let slot = match self.slot(org) {
            Ok(slot) => slot,
            Err(NotifyUnavailable::Store(_)) => return self.pause(org, alerts),
            Err(NotifyUnavailable::NoOrg | NotifyUnavailable::Inactive) => return,
        };
        let deliveries = {
            // A request reads this organisation: the others do not wait for it.
            let Some(mut state) = slot.state.try_lock().ignore_poison() else {
                self.put_back(org, alerts, finished);
                return self.wake();
            };
            let has_work = !alerts.is_empty() || !finished.is_empty();
            for one in finished {
                if one.generation == slot.generation {
                    state.notifier.finish(one.number, one.outcome, now);
                }
            }
            for alert in alerts {
                state.notifier.offer(alert, now);
            }
            let every = i64::try_from(STEP_EVERY.as_millis()).unwrap_or(i64::MAX);
            let is_recent = state.stepped_at.is_some_and(|at| now.ms_since(at).abs() < every);
            if is_closing || state.notifier.is_idle() || (is_recent && !has_work) {
                Vec::new()
            } else {
                state.stepped_at = Some(now);
                state.read_files(&self.deps, now);
                state.notifier.step(now)
            }
        };
        // A failure is logged, and storing is tried again in the next round.
        let _ = self.save(&slot);
        self.deliver(&slot, deliveries);
    }

    /// Keeps events for a later round, before newer ones. The organisation is stepped in that round
    /// even if there are none.
    fn put_back(&self, org: OrgId, mut alerts: VecDeque<Alert>, finished: Vec<FinishedDelivery>) {
        let mut inbox = self.inbox.lock().ignore_poison();
        let newer = inbox.alerts.entry(org).or_default();
        alerts.append(newer);
        let excess = alerts.len().saturating_sub(INBOX_MAX);
        alerts.drain(..excess);
        self.inbox_dropped.fetch_add(excess as u64, Ordering::Relaxed);
        *newer = alerts;
        self.in_flight.fetch_add(finished.len() as u64, Ordering::SeqCst);
        inbox.finished.extend(finished);
    }

    /// Starts deliveries, whose outcomes come back as events.
    fn deliver(self: &Arc<Self>, slot: &OrgSlot, deliveries: Vec<Delivery>) {
        for delivery in deliveries {
            self.in_flight.fetch_add(1, Ordering::SeqCst);
            let (shared, generation, number) = (Arc::clone(self), slot.generation, delivery.number);
            let org = slot.org;
            let report = Box::new(move |outcome| {
                let finished = FinishedDelivery { org, generation, number, outcome };
                {
                    let mut inbox = shared.inbox.lock().ignore_poison();
                    inbox.finished.push(finished);
                    inbox.is_woken = true;
                }
                shared.wake.notify_all();
            });
            self.deliverer.start(org, delivery.client_key, delivery.content, report);
        }
    }
}
