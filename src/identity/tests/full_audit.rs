//! A full audit log (docs/specification.md C3): 90 days or 100,000 rows of an organisation.

use super::*;
use crate::identity::audit::event::{Event, FAILURE_ROWS_MAX, ROWS_MAX};
use crate::identity::audit::sweep::SWEEP_ROWS;
use crate::identity::tables::audit::AuditRow;
use crate::model::OrgId;

/// Number of rows in one change.
const ROWS_A_CHANGE: usize = 50;
/// Number of writing threads: the committer groups concurrent changes.
const THREADS: usize = 32;

/// Adds entries of `action` one second apart, oldest first; every ten-thousandth describes a
/// change.
fn fill(instance: &TestInstance, org: OrgId, action: &'static str, count: usize) {
    let start = instance.now.plus_ms(-1_000 * i64::try_from(count).expect("few"));
    let identity = instance.identity();
    let fill = |first: usize| {
        let filled = identity.change(move |txn| {
            for n in first..(first + ROWS_A_CHANGE).min(count) {
                let action = if n % 10_000 == 0 { "key.created" } else { action };
                let row = Event::unattributed(action).target("ak_aaaaaaaaaaaaaaaa").into_row();
                let at = start.plus_ms(1_000 * i64::try_from(n).expect("few"));
                let mut id = [0; 10];
                id[..8].copy_from_slice(&u64::try_from(n).expect("few").to_be_bytes());
                txn.put::<AuditRow>(&(org, at, EventId::from_bytes(id)), &row);
            }
            Ok::<_, StoreError>(())
        });
        filled.expect("stored");
    };
    race(THREADS, |thread| {
        (0..count).step_by(ROWS_A_CHANGE).skip(thread).step_by(THREADS).for_each(fill);
    });
}

fn count(instance: &TestInstance, org: OrgId, action: &str) -> usize {
    let (mut count, mut below) = (0, None);
    loop {
        let some = instance.identity().audit_page(Some(org), 20_000, below, Some(action)).expect("read");
        count += some.entries.len();
        let Some(next) = some.next else { return count };
        below = Some(next);
    }
}

/// Anyone on the network can cause failures, so their rows must not remove those of changes or
/// accesses.
#[test]
fn a_flood_of_failures_removes_only_failures() {
    let mut instance = TestInstance::with_owner();
    let org = instance.acme().id;
    fill(&instance, org, "token.minted", 100);
    fill(&instance, org, "token.rejected", FAILURE_ROWS_MAX + 2_500);
    let changes = count(&instance, org, "key.created");
    for sweep in 0..2 {
        instance.advance_ms(10 * 60 * 1_000);
        instance.identity().tick(instance.now).expect("swept");
        assert_eq!(
            (count(&instance, org, "token.minted"), count(&instance, org, "key.created")),
            (99, changes),
            "{sweep}"
        );
    }
    assert_eq!(count(&instance, org, "token.rejected"), FAILURE_ROWS_MAX);
}

/// The cost of a page does not depend on the number of entries, and a sweep keeps entries within
/// the limits.
#[test]
fn a_hundred_thousand_entries_are_listed_page_by_page_and_no_more_are_kept() {
    let mut instance = TestInstance::with_owner();
    let org = instance.acme().id;
    fill(&instance, org, "token.minted", ROWS_MAX + 1_000);
    let page = |instance: &TestInstance, limit, below, action| {
        instance.identity().audit_page(Some(org), limit, below, action).expect("read")
    };
    let first = page(&instance, 50, None, None);
    assert_eq!((first.entries.len(), first.rows_read), (50, 500), "one read of the store");
    assert!(first.entries.is_sorted_by(|one, next| one.at >= next.at), "newest first");
    // A rare action: pages may be short, none reads more than its limit, and all entries are found.
    let (mut found, mut below, mut pages) = (0, None, 0);
    loop {
        let rare = page(&instance, 50, below, Some("key.*"));
        assert!(rare.rows_read <= 20_000, "{}", rare.rows_read);
        (found, pages) =
            (found + rare.entries.iter().filter(|entry| entry.action == "key.created").count(), pages + 1);
        match rare.next {
            Some(next) => below = Some(next),
            None => break,
        }
        assert!(pages <= 6, "20,000 rows each");
    }
    assert_eq!(found, 11);
    // A thousand and a few entries are over the limit.
    instance.advance_ms(10 * 60 * 1_000);
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(count(&instance, org, "token.minted"), ROWS_MAX);
    assert_eq!(count(&instance, org, "key.created"), 11, "changes are counted separately");
    assert_eq!(page(&instance, 1, None, None).entries[0].id, first.entries[0].id, "the newest stays");
}

/// An account may log in and out at any rate.
#[test]
fn ended_sessions_remove_no_row_of_a_change() {
    let mut instance = TestInstance::with_owner();
    fill(&instance, OrgId(0), "session.revoked", ROWS_MAX + 1_000);
    let changes = count(&instance, OrgId(0), "key.created");
    instance.advance_ms(10 * 60 * 1_000);
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(count(&instance, OrgId(0), "session.revoked"), ROWS_MAX);
    assert_eq!(count(&instance, OrgId(0), "key.created"), changes);
}

/// Entries may be added faster than one slice of a sweep removes them: the next ticks continue
/// until none is overdue.
#[test]
fn a_sweep_continues_with_every_tick_until_nothing_is_overdue() {
    let mut instance = TestInstance::with_owner();
    let orgs = [OrgId(0), instance.acme().id];
    for org in orgs {
        fill(&instance, org, "token.rejected", FAILURE_ROWS_MAX + SWEEP_ROWS + 1_000);
    }
    instance.advance_ms(10 * 60 * 1_000);
    let before = count(&instance, orgs[0], "*") + count(&instance, orgs[1], "*");
    instance.identity().tick(instance.now).expect("swept");
    let after = count(&instance, orgs[0], "*") + count(&instance, orgs[1], "*");
    assert_eq!(before - after, SWEEP_ROWS, "a tick is bounded");
    for _ in 0..4 {
        instance.advance_ms(5_000);
        instance.identity().tick(instance.now).expect("swept");
    }
    for org in orgs {
        assert_eq!(count(&instance, org, "token.rejected"), FAILURE_ROWS_MAX, "{org:?}");
    }
}

#[test]
fn entries_older_than_ninety_days_are_removed() {
    let mut instance = TestInstance::with_owner();
    let org = instance.acme().id;
    fill(&instance, org, "token.minted", 3_000);
    instance.advance_ms(90 * DAY_MS - 1_000 * 1_000);
    let left = |instance: &TestInstance| instance.identity().audit(Some(org), 10_000).expect("read").len();
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(left(&instance), 1_001, "2,000 are older; the entry of the set-up is newer");
    instance.advance_ms(DAY_MS);
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(left(&instance), 0);
}
