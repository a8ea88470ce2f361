//! Audit entries outside of changes, queued in memory until the next tick writes them.
//!
//! There are two kinds, which never displace each other:
//! - **Notices** record the use of a valid credential, such as a minted token. Each organisation
//!   has a quota of notices between two ticks.
//! - **Failures** record a refusal. Anyone on the network can cause them at any rate, so they are
//!   aggregated by organisation, action, account, key, reason and network. The first failure within
//!   a minute is written, and at the end of the minute the number of the others. Each organisation
//!   has a quota of such windows.
//!
//! The instance, to which logins belong, counts as an organisation of its own. Entries over a quota
//! are counted, and one `audit.overflow` entry a minute reports their number. A change writes its
//! own entry in its own transaction and does not use this queue.

use std::collections::{BTreeMap, HashMap};

use crate::model::{OrgId, Timestamp};

use crate::identity::network::Network;
use crate::identity::tables::id::{KeyId, UserId};

use super::event::Event;

/// Maximum number of notices of one organisation between two ticks. Minting is limited to 20 a
/// second per key.
pub(super) const NOTICES_MAX: usize = 500;
/// Maximum number of open windows of one organisation. A window causes at most two rows a minute:
/// the first failure and the number of the others.
pub(super) const WINDOWS_MAX: usize = 64;
/// Maximum number of queued entries of all organisations, for each kind.
const QUEUED_MAX: usize = 20_000;
/// Maximum number of failures of one organisation that are queued again after a failed write.
const UNWRITTEN_FAILURES_MAX: usize = 2 * WINDOWS_MAX;
/// Length of a window.
const WINDOW_MS: i64 = 60_000;

/// The common properties of the failures of one window.
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
struct FailureWindow {
    begun: Timestamp,
    /// The first failure; `None` after it is written.
    first: Option<Event>,
    /// The failures after the first one, and the newest of them.
    more: u64,
    newest: Option<(Timestamp, Event)>,
}

impl FailureWindow {
    /// Returns whether the window has ended. A clock that went back ends it as well.
    fn is_over(&self, now: Timestamp) -> bool {
        !(0..WINDOW_MS).contains(&now.ms_since(self.begun))
    }
}

/// The queued entries of one organisation.
#[derive(Debug, Default)]
struct OrgBacklog {
    notices: Vec<(Timestamp, Event)>,
    windows: HashMap<Cause, FailureWindow>,
    /// Failures that could not be written. They are queued apart from the notices, so they do not
    /// use up their quota.
    unwritten_failures: Vec<(Timestamp, Event)>,
    /// Number of entries over a quota, and the time of the first of them.
    over_quota: u64,
    over_quota_since: Option<Timestamp>,
}

impl OrgBacklog {
    fn count_over_quota(&mut self, now: Timestamp) {
        self.over_quota = self.over_quota.saturating_add(1);
        self.over_quota_since.get_or_insert(now);
    }

    fn is_empty(&self) -> bool {
        self.notices.is_empty()
            && self.windows.is_empty()
            && self.unwritten_failures.is_empty()
            && self.over_quota == 0
    }
}

/// The queued entries of all organisations. Only the instance and existing organisations occur, so
/// their number bounds the number of quotas.
#[derive(Debug, Default)]
pub(in crate::identity) struct AuditQueue {
    orgs: BTreeMap<OrgId, OrgBacklog>,
    notices: usize,
    windows: usize,
    unwritten_failures: usize,
}

impl AuditQueue {
    /// Queues a notice, or counts it if its organisation has reached its quota.
    pub(in crate::identity) fn notice(&mut self, event: Event, now: Timestamp) {
        let backlog = self.orgs.entry(event.org()).or_default();
        if backlog.notices.len() < NOTICES_MAX && self.notices < QUEUED_MAX {
            backlog.notices.push((now, event));
            self.notices += 1;
        } else {
            backlog.count_over_quota(now);
        }
    }

    /// Queues a failure, or counts it in the window of its cause.
    pub(in crate::identity) fn failure(&mut self, event: Event, now: Timestamp) {
        let backlog = self.orgs.entry(event.org()).or_default();
        let cause = Cause::of(&event);
        if let Some(window) = backlog.windows.get_mut(&cause) {
            window.more = window.more.saturating_add(1);
            window.newest = Some((now, event));
        } else if backlog.windows.len() < WINDOWS_MAX && self.windows < QUEUED_MAX {
            let window = FailureWindow { begun: now, first: Some(event), more: 0, newest: None };
            backlog.windows.insert(cause, window);
            self.windows += 1;
        } else {
            backlog.count_over_quota(now);
        }
    }

    /// Takes the entries to write at `now`; with `all` also the counts of open windows. They are
    /// ordered by time within an organisation.
    pub(in crate::identity) fn take(&mut self, now: Timestamp, all: bool) -> Vec<(Timestamp, Event)> {
        let mut taken = Vec::new();
        (self.notices, self.unwritten_failures) = (0, 0);
        for (org, backlog) in &mut self.orgs {
            let begin = taken.len();
            taken.append(&mut backlog.notices);
            taken.append(&mut backlog.unwritten_failures);
            backlog.windows.retain(|_, window| {
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
            if backlog.over_quota_since.is_some_and(is_due) {
                let detail = format!("{} entries not listed", backlog.over_quota);
                taken.push((now, Event::unattributed("audit.overflow").of(*org).detail(&detail)));
                (backlog.over_quota, backlog.over_quota_since) = (0, None);
            }
            if let Some(own) = taken.get_mut(begin..) {
                own.sort_by_key(|(at, _)| *at);
            }
        }
        self.orgs.retain(|_, backlog| !backlog.is_empty());
        self.windows = self.orgs.values().map(|backlog| backlog.windows.len()).sum();
        taken
    }

    /// Queues entries again that could not be written, as far as the quotas of their kinds allow.
    pub(in crate::identity) fn put_back(&mut self, entries: Vec<(Timestamp, Event)>) {
        for (at, event) in entries {
            if event.is_failure() {
                self.put_back_failure(event, at);
            } else {
                self.notice(event, at);
            }
        }
    }

    fn put_back_failure(&mut self, event: Event, at: Timestamp) {
        let backlog = self.orgs.entry(event.org()).or_default();
        if backlog.unwritten_failures.len() < UNWRITTEN_FAILURES_MAX && self.unwritten_failures < QUEUED_MAX {
            backlog.unwritten_failures.push((at, event));
            self.unwritten_failures += 1;
        } else {
            backlog.count_over_quota(at);
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
        Event::unattributed("login.fail").at_ip(address.parse().expect("an address")).detail("password")
    }

    fn texts(taken: &[(Timestamp, Event)]) -> Vec<(i64, String, String)> {
        let text = |(at, event): &(Timestamp, Event)| {
            (at.as_ms() / 1_000 - T0, event.action().to_owned(), event.detail_text().to_owned())
        };
        taken.iter().map(text).collect()
    }

    #[test]
    fn failures_of_a_network_are_one_entry_and_a_count_a_minute() {
        let mut queue = AuditQueue::default();
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
        let mut queue = AuditQueue::default();
        queue.failure(failed("192.0.2.1"), at(1_000_000));
        queue.failure(failed("192.0.2.1"), at(1_000_000));
        assert_eq!(queue.take(at(0), false).len(), 2);
        assert_eq!(queue.windows, 0);
    }

    #[test]
    fn a_flood_of_failures_displaces_no_notice_and_nothing_of_another_organisation() {
        let mut queue = AuditQueue::default();
        let network = |n: u128| IpAddr::V6(Ipv6Addr::from_bits(n << 64));
        for n in 0..100_000 {
            queue.failure(Event::unattributed("login.throttled").at_ip(network(n + (1 << 60))), at(0));
        }
        for n in 0..30 {
            queue.notice(Event::unattributed("token.minted").of(OrgId(7)).target(&n.to_string()), at(1));
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
        let overflow_entries = texts(&queue.take(at(60), false));
        let overflow = format!("{} entries not listed", 100_000 - WINDOWS_MAX);
        assert_eq!(overflow_entries, [(60, "audit.overflow".to_owned(), overflow)], "once");
        assert_eq!(texts(&queue.take(at(120), true)), []);
    }

    #[test]
    fn memory_is_bounded_over_all_organisations() {
        let mut queue = AuditQueue::default();
        for n in 0..100_000u32 {
            queue.failure(failed("192.0.2.1").of(OrgId(n % 1_000)).detail(&n.to_string()), at(0));
            queue.notice(Event::unattributed("token.minted").of(OrgId(n % 1_000)), at(0));
        }
        assert!(queue.windows <= QUEUED_MAX && queue.notices <= QUEUED_MAX);
        let queued: usize = queue.orgs.values().map(|w| w.windows.len() + w.notices.len()).sum();
        assert_eq!(queued, queue.windows + queue.notices);
    }

    /// While the store cannot write, failures are put back every minute.
    #[test]
    fn failures_that_could_not_be_written_leave_the_quota_of_notices_alone() {
        let mut queue = AuditQueue::default();
        let network = |n: u128| IpAddr::V6(Ipv6Addr::from_bits(n << 64));
        for minute in 0..30 {
            for n in 0..200 {
                let event = Event::unattributed("token.rejected").of(OrgId(7)).at_ip(network(n));
                queue.failure(event.clone(), at(60 * minute));
                queue.failure(event, at(60 * minute));
            }
            let taken = queue.take(at(60 * minute + 59), true);
            queue.put_back(taken);
        }
        for n in 0..NOTICES_MAX {
            let minted = Event::unattributed("token.minted").of(OrgId(7)).target(&n.to_string());
            queue.notice(minted, at(1_800));
        }
        let queued = &queue.orgs[&OrgId(7)];
        assert!(queued.notices.iter().all(|(_, event)| event.action() == "token.minted"));
        assert!(queued.unwritten_failures.iter().all(|(_, event)| event.is_failure()));
        let taken = queue.take(at(1_801), true);
        let count = |action: &str| taken.iter().filter(|(_, event)| event.action() == action).count();
        assert_eq!((count("token.minted"), count("token.rejected")), (NOTICES_MAX, UNWRITTEN_FAILURES_MAX));
        assert_eq!(taken.len(), NOTICES_MAX + UNWRITTEN_FAILURES_MAX + count("audit.overflow"));
    }

    #[test]
    fn entries_that_could_not_be_written_are_taken_again() {
        let mut queue = AuditQueue::default();
        queue.failure(failed("192.0.2.1"), at(0));
        queue.notice(Event::unattributed("token.minted").of(OrgId(7)), at(1));
        let taken = queue.take(at(2), true);
        let before = texts(&taken);
        queue.put_back(taken);
        assert_eq!(texts(&queue.take(at(3), false)), before);
    }
}
