//! The log of events when it is full (docs/specification.md C3): 90 days or 100,000 rows of an organisation.

use super::*;
use crate::identity::audit::{AuditRow, Event, FAILURE_ROWS_MAX, ROWS_MAX, SWEEP_ROWS};
use crate::model::OrgId;

/// Rows in one change, and threads that make them: the committer writes what comes at once together.
const ROWS_A_CHANGE: usize = 50;
const THREADS: usize = 32;

/// Entries of this action a second apart, the oldest first; every ten-thousandth tells of a change.
fn fill(house: &House, org: OrgId, action: &'static str, count: usize) {
    let start = house.now.plus_ms(-1_000 * i64::try_from(count).expect("few"));
    let identity = house.identity();
    let fill = |first: usize| {
        let filled = identity.change(move |txn| {
            for n in first..(first + ROWS_A_CHANGE).min(count) {
                let action = if n % 10_000 == 0 { "key.created" } else { action };
                let row = Event::by_nobody(action).target("ak_aaaaaaaaaaaaaaaa").into_row();
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

fn count(house: &House, org: OrgId, action: &str) -> usize {
    let (mut count, mut below) = (0, None);
    loop {
        let some = house.identity().audit_page(Some(org), 20_000, below, Some(action)).expect("read");
        count += some.entries.len();
        let Some(next) = some.next else { return count };
        below = Some(next);
    }
}

/// Anyone on the network can cause failures: their rows never remove those of changes or accesses.
#[test]
fn failures_remove_failures_alone() {
    let mut house = House::furnished();
    let org = house.acme().id;
    fill(&house, org, "token.minted", 100);
    fill(&house, org, "token.rejected", FAILURE_ROWS_MAX + 2_500);
    let changes = count(&house, org, "key.created");
    for sweep in 0..2 {
        house.advance_ms(10 * 60 * 1_000);
        house.identity().tick(house.now).expect("swept");
        assert_eq!(
            (count(&house, org, "token.minted"), count(&house, org, "key.created")),
            (99, changes),
            "{sweep}"
        );
    }
    assert_eq!(count(&house, org, "token.rejected"), FAILURE_ROWS_MAX);
}

/// What a page costs does not depend on how much there is, and a sweep leaves what may stay.
#[test]
fn a_hundred_thousand_entries_are_listed_page_by_page_and_no_more_are_kept() {
    let mut house = House::furnished();
    let org = house.acme().id;
    fill(&house, org, "token.minted", ROWS_MAX + 1_000);
    let page = |house: &House, limit, below, action| {
        house.identity().audit_page(Some(org), limit, below, action).expect("read")
    };
    let first = page(&house, 50, None, None);
    assert_eq!((first.entries.len(), first.looked_at), (50, 500), "one read of the store");
    assert!(first.entries.is_sorted_by(|one, next| one.at >= next.at), "newest first");
    // A rare action: pages may be short, none reads more than its share, and all of them are found.
    let (mut found, mut below, mut pages) = (0, None, 0);
    loop {
        let rare = page(&house, 50, below, Some("key.*"));
        assert!(rare.looked_at <= 20_000, "{}", rare.looked_at);
        (found, pages) =
            (found + rare.entries.iter().filter(|entry| entry.action == "key.created").count(), pages + 1);
        match rare.next {
            Some(next) => below = Some(next),
            None => break,
        }
        assert!(pages <= 6, "20,000 rows each");
    }
    assert_eq!(found, 11);
    // A thousand and a few are too many.
    house.advance_ms(10 * 60 * 1_000);
    house.identity().tick(house.now).expect("swept");
    assert_eq!(count(&house, org, "token.minted"), ROWS_MAX);
    assert_eq!(count(&house, org, "key.created"), 11, "changes are counted apart");
    assert_eq!(page(&house, 1, None, None).entries[0].id, first.entries[0].id, "the newest stays");
}

/// An account may log in and out as often as it likes.
#[test]
fn sessions_that_their_users_end_remove_no_row_of_a_change() {
    let mut house = House::furnished();
    fill(&house, OrgId(0), "session.revoked", ROWS_MAX + 1_000);
    let changes = count(&house, OrgId(0), "key.created");
    house.advance_ms(10 * 60 * 1_000);
    house.identity().tick(house.now).expect("swept");
    assert_eq!(count(&house, OrgId(0), "session.revoked"), ROWS_MAX);
    assert_eq!(count(&house, OrgId(0), "key.created"), changes);
}

/// Entries may come faster than one slice of a sweep removes them: the next ticks go on until nothing is overdue.
#[test]
fn a_sweep_goes_on_with_every_tick_until_nothing_is_overdue() {
    let mut house = House::furnished();
    let orgs = [OrgId(0), house.acme().id];
    for org in orgs {
        fill(&house, org, "token.rejected", FAILURE_ROWS_MAX + SWEEP_ROWS + 1_000);
    }
    house.advance_ms(10 * 60 * 1_000);
    let before = count(&house, orgs[0], "*") + count(&house, orgs[1], "*");
    house.identity().tick(house.now).expect("swept");
    let after = count(&house, orgs[0], "*") + count(&house, orgs[1], "*");
    assert_eq!(before - after, SWEEP_ROWS, "a tick is bounded");
    for _ in 0..4 {
        house.advance_ms(5_000);
        house.identity().tick(house.now).expect("swept");
    }
    for org in orgs {
        assert_eq!(count(&house, org, "token.rejected"), FAILURE_ROWS_MAX, "{org:?}");
    }
}

#[test]
fn entries_of_more_than_ninety_days_go() {
    let mut house = House::furnished();
    let org = house.acme().id;
    fill(&house, org, "token.minted", 3_000);
    house.advance_ms(90 * DAY_MS - 1_000 * 1_000);
    let left = |house: &House| house.identity().audit(Some(org), 10_000).expect("read").len();
    house.identity().tick(house.now).expect("swept");
    assert_eq!(left(&house), 1_001, "2,000 were older, and what set the house up is younger");
    house.advance_ms(DAY_MS);
    house.identity().tick(house.now).expect("swept");
    assert_eq!(left(&house), 0);
}
