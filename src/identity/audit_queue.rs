//! Audit entries that are no part of a change, held in memory until the next tick writes them.
//!
//! There are two kinds, which never displace each other:
//! - **Notices** tell that something happened with a valid credential: a token was minted. Each
//!   organisation has a quota between two ticks.
//! - **Failures** tell that something was refused. Anyone on the network can cause them at any rate,
//!   so they are aggregated: of each organisation, kind, account, key, reason and network the first
//!   one within a minute is written, and at the end of the minute the number of the others. Each
//!   organisation has a quota of such windows.
//!
//! The instance, to which logins belong, counts as an organisation of its own. What exceeds a quota is
//! counted, and one `audit.overflow` entry a minute tells the number. A change writes its own entry in
//! its own transaction and never comes here.

use std::collections::{BTreeMap, HashMap};

use super::audit::Event;
use super::lockout::Network;
use super::{KeyId, UserId};
use crate::model::{OrgId, Timestamp};

/// Notices of one organisation between two ticks. Minting is limited to 20 a second of a key.
pub(super) const NOTICES_MAX: usize = 500;
/// Windows of one organisation that are open at once, and so its rows of failures in a minute: one
/// for the first failure and one for the number of the others.
pub(super) const WINDOWS_MAX: usize = 64;
/// Entries of all organisations that are held at once, in either kind.
const HELD_MAX: usize = 20_000;
/// Entries about failures of one organisation that could not be written and are held for the next tick.
const UNWRITTEN_FAILURES_MAX: usize = 2 * WINDOWS_MAX;
/// The time for which failures are aggregated.
const WINDOW_MS: i64 = 60_000;

/// What failures have in common that one window counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cause {
    action: String,
    detail: String,
    actor: Option<UserId>,
    key: Option<KeyId>,
    network: Option<Network>,
}

impl Cause {
    fn of(event: &Event) -> Cause {
        let (action, detail) = (event.action().to_owned(), event.detail_text().to_owned());
        let network = event.ip().map(Network::of);
        Cause { action, detail, actor: event.actor(), key: event.key(), network }
    }
}

/// Failures of one cause within a minute.
#[derive(Debug)]
struct Window {
    begun: Timestamp,
    /// The first failure, until it is written.
    first: Option<Event>,
    /// The failures after the first one, and the newest of them.
    more: u64,
    newest: Option<(Timestamp, Event)>,
}

impl Window {
    /// A clock that went back ends the window as well.
    fn is_over(&self, now: Timestamp) -> bool {
        !(0..WINDOW_MS).contains(&now.ms_since(self.begun))
    }
}

/// What one organisation has waiting.
#[derive(Debug, Default)]
struct Waiting {
    notices: Vec<(Timestamp, Event)>,
    windows: HashMap<Cause, Window>,
    /// Entries about failures that could not be written; never among the notices, whose quota they would use up.
    unwritten_failures: Vec<(Timestamp, Event)>,
    /// Entries over a quota, and since when.
    left_out: u64,
    left_out_since: Option<Timestamp>,
}

impl Waiting {
    fn leave_out(&mut self, entries: u64, now: Timestamp) {
        self.left_out = self.left_out.saturating_add(entries);
        self.left_out_since.get_or_insert(now);
    }

    fn is_empty(&self) -> bool {
        self.notices.is_empty()
            && self.windows.is_empty()
            && self.unwritten_failures.is_empty()
            && self.left_out == 0
    }
}

/// The entries of all organisations. The instance and existing organisations appear here only, so that
/// their number bounds the number of quotas.
#[derive(Debug, Default)]
pub(super) struct Queue {
    orgs: BTreeMap<OrgId, Waiting>,
    notices: usize,
    windows: usize,
    unwritten_failures: usize,
}

impl Queue {
    /// Holds a notice, or counts it where its organisation has too many.
    pub(super) fn notice(&mut self, event: Event, now: Timestamp) {
        let waiting = self.orgs.entry(event.org()).or_default();
        if waiting.notices.len() < NOTICES_MAX && self.notices < HELD_MAX {
            waiting.notices.push((now, event));
            self.notices += 1;
        } else {
            waiting.leave_out(1, now);
        }
    }

    /// Holds a failure, or counts it in the window of its cause.
    pub(super) fn failure(&mut self, event: Event, now: Timestamp) {
        let waiting = self.orgs.entry(event.org()).or_default();
        let cause = Cause::of(&event);
        if let Some(window) = waiting.windows.get_mut(&cause) {
            window.more = window.more.saturating_add(1);
            window.newest = Some((now, event));
        } else if waiting.windows.len() < WINDOWS_MAX && self.windows < HELD_MAX {
            let window = Window { begun: now, first: Some(event), more: 0, newest: None };
            waiting.windows.insert(cause, window);
            self.windows += 1;
        } else {
            waiting.leave_out(1, now);
        }
    }

    /// Takes what is to be written at `now`; with `all` also the counts of windows that are still open.
    /// In order of time within an organisation.
    pub(super) fn take(&mut self, now: Timestamp, all: bool) -> Vec<(Timestamp, Event)> {
        let mut taken = Vec::new();
        (self.notices, self.unwritten_failures) = (0, 0);
        for (org, waiting) in &mut self.orgs {
            let begin = taken.len();
            taken.append(&mut waiting.notices);
            taken.append(&mut waiting.unwritten_failures);
            waiting.windows.retain(|_, window| {
                if let Some(first) = window.first.take() {
                    taken.push((window.begun, first));
                }
                let ends = all || window.is_over(now);
                if ends && let Some((at, newest)) = window.newest.take() {
                    taken.push((at, newest.more(window.more)));
                }
                !ends
            });
            let is_due = |since: Timestamp| all || !(0..WINDOW_MS).contains(&now.ms_since(since));
            if waiting.left_out_since.is_some_and(is_due) {
                let detail = format!("{} entries not listed", waiting.left_out);
                taken.push((now, Event::by_nobody("audit.overflow").of(*org).detail(&detail)));
                (waiting.left_out, waiting.left_out_since) = (0, None);
            }
            if let Some(own) = taken.get_mut(begin..) {
                own.sort_by_key(|(at, _)| *at);
            }
        }
        self.orgs.retain(|_, waiting| !waiting.is_empty());
        self.windows = self.orgs.values().map(|waiting| waiting.windows.len()).sum();
        taken
    }

    /// Holds entries again that could not be written, as far as the quotas of their kinds allow.
    pub(super) fn put_back(&mut self, entries: Vec<(Timestamp, Event)>) {
        for (at, event) in entries {
            if event.is_failure() {
                self.put_back_failure(event, at);
            } else {
                self.notice(event, at);
            }
        }
    }

    fn put_back_failure(&mut self, event: Event, at: Timestamp) {
        let waiting = self.orgs.entry(event.org()).or_default();
        if waiting.unwritten_failures.len() < UNWRITTEN_FAILURES_MAX && self.unwritten_failures < HELD_MAX {
            waiting.unwritten_failures.push((at, event));
            self.unwritten_failures += 1;
        } else {
            waiting.leave_out(1, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use super::*;

    const T0: i64 = 1_800_000_000;

    fn at(s: i64) -> Timestamp {
        Timestamp::from_s(T0 + s)
    }

    fn failed(address: &str) -> Event {
        Event::by_nobody("login.fail").at_ip(address.parse().expect("an address")).detail("password")
    }

    fn texts(taken: &[(Timestamp, Event)]) -> Vec<(i64, String, String)> {
        let text = |(at, event): &(Timestamp, Event)| {
            (at.as_ms() / 1_000 - T0, event.action().to_owned(), event.detail_text().to_owned())
        };
        taken.iter().map(text).collect()
    }

    #[test]
    fn failures_of_a_network_are_one_entry_and_a_count_a_minute() {
        let mut queue = Queue::default();
        for s in 0..30 {
            queue.failure(failed("2001:db8::1"), at(s));
            queue.failure(failed("2001:db8::ffff"), at(s));
        }
        let line = |s, detail: &str| (s, "login.fail".to_owned(), detail.to_owned());
        assert_eq!(texts(&queue.take(at(30), false)), [line(0, "password")]);
        assert_eq!(texts(&queue.take(at(59), false)), []);
        queue.failure(failed("2001:db8::1"), at(59));
        let count = line(59, "password and 60 more within a minute");
        assert_eq!(texts(&queue.take(at(60), false)), [count]);
        queue.failure(failed("2001:db8::1"), at(61));
        queue.failure(failed("2001:db8:0:1::1"), at(61));
        let last = queue.take(at(62), true);
        assert_eq!(texts(&last), [line(61, "password"), line(61, "password")], "another network");
        assert!(queue.orgs.is_empty() && queue.windows == 0, "nothing is left: {queue:?}");
    }

    #[test]
    fn a_clock_that_goes_back_ends_windows() {
        let mut queue = Queue::default();
        queue.failure(failed("192.0.2.1"), at(1_000_000));
        queue.failure(failed("192.0.2.1"), at(1_000_000));
        assert_eq!(queue.take(at(0), false).len(), 2);
        assert_eq!(queue.windows, 0);
    }

    #[test]
    fn a_flood_of_failures_displaces_no_notice_and_nothing_of_another_organisation() {
        let mut queue = Queue::default();
        let network = |n: u128| IpAddr::V6(Ipv6Addr::from_bits(n << 64));
        for n in 0..100_000 {
            queue.failure(Event::by_nobody("login.throttled").at_ip(network(n + (1 << 60))), at(0));
        }
        for n in 0..30 {
            queue.notice(Event::by_nobody("token.minted").of(OrgId(7)).target(&n.to_string()), at(1));
        }
        queue.failure(failed("192.0.2.1").of(OrgId(7)), at(2));
        let taken = queue.take(at(3), false);
        let count = |org: u32, action: &str| {
            taken.iter().filter(|(_, e)| e.org() == OrgId(org) && e.action() == action).count()
        };
        assert_eq!(
            (count(7, "token.minted"), count(7, "login.fail"), count(0, "login.throttled")),
            (30, 1, WINDOWS_MAX)
        );
        assert_eq!(taken.len(), 31 + WINDOWS_MAX);
        let told = texts(&queue.take(at(60), false));
        let overflow = format!("{} entries not listed", 100_000 - WINDOWS_MAX);
        assert_eq!(told, [(60, "audit.overflow".to_owned(), overflow)], "once");
        assert_eq!(texts(&queue.take(at(120), true)), []);
    }

    #[test]
    fn memory_is_bounded_over_all_organisations() {
        let mut queue = Queue::default();
        for n in 0..100_000u32 {
            queue.failure(failed("192.0.2.1").of(OrgId(n % 1_000)).detail(&n.to_string()), at(0));
            queue.notice(Event::by_nobody("token.minted").of(OrgId(n % 1_000)), at(0));
        }
        assert!(queue.windows <= HELD_MAX && queue.notices <= HELD_MAX);
        let held: usize = queue.orgs.values().map(|w| w.windows.len() + w.notices.len()).sum();
        assert_eq!(held, queue.windows + queue.notices);
    }

    /// While the store cannot write, every minute puts failures back.
    #[test]
    fn failures_that_could_not_be_written_leave_the_quota_of_notices_alone() {
        let mut queue = Queue::default();
        let network = |n: u128| IpAddr::V6(Ipv6Addr::from_bits(n << 64));
        for minute in 0..30 {
            for n in 0..200 {
                let event = Event::by_nobody("token.rejected").of(OrgId(7)).at_ip(network(n));
                queue.failure(event.clone(), at(60 * minute));
                queue.failure(event, at(60 * minute));
            }
            let taken = queue.take(at(60 * minute + 59), true);
            queue.put_back(taken);
        }
        for n in 0..NOTICES_MAX {
            let minted = Event::by_nobody("token.minted").of(OrgId(7)).target(&n.to_string());
            queue.notice(minted, at(1_800));
        }
        let held = &queue.orgs[&OrgId(7)];
        assert!(held.notices.iter().all(|(_, event)| event.action() == "token.minted"));
        assert!(held.unwritten_failures.iter().all(|(_, event)| event.is_failure()));
        let taken = queue.take(at(1_801), true);
        let count = |action: &str| taken.iter().filter(|(_, event)| event.action() == action).count();
        assert_eq!((count("token.minted"), count("token.rejected")), (NOTICES_MAX, UNWRITTEN_FAILURES_MAX));
        assert_eq!(taken.len(), NOTICES_MAX + UNWRITTEN_FAILURES_MAX + count("audit.overflow"));
    }

    #[test]
    fn what_could_not_be_written_is_taken_again() {
        let mut queue = Queue::default();
        queue.failure(failed("192.0.2.1"), at(0));
        queue.notice(Event::by_nobody("token.minted").of(OrgId(7)), at(1));
        let taken = queue.take(at(2), true);
        let before = texts(&taken);
        queue.put_back(taken);
        assert_eq!(texts(&queue.take(at(3), false)), before);
    }
}
