//! Dashboards in the database after a restart, a crash and a removal.

use super::*;
use crate::identity::tables::dashboard::{
    DashboardMarksRow, DashboardRemovalRow, DashboardRow, DashboardUsageRow, DocumentRow, HistoryRow,
};
use crate::model::OrgId;

fn write(text: &str) -> DashboardWrite {
    let packed = DashboardDocument::parse(text.to_owned()).expect("a dashboard").pack().expect("short");
    DashboardWrite { packed, folder: Some("F".into()), message: "m".into() }
}

/// A document that compresses to about `bytes` bytes.
fn noise(seed: u64, bytes: usize) -> String {
    let mut rng = Entropy::seeded(seed);
    let mut text = String::new();
    while text.len() < 2 * bytes {
        text.push_str(&data_encoding::HEXLOWER.encode(&rng.bytes::<32>()));
    }
    format!(r#"{{"title":"T {seed}","uid":"u{}","x":"{text}"}}"#, seed % 4)
}

fn create(instance: &mut TestInstance, org: OrgId, text: &str) -> Dashboard {
    let now = instance.now;
    instance.identity().create_dashboard(org, None, write(text), now, &mut instance.rng).expect("made")
}

fn update(instance: &TestInstance, org: OrgId, uid: &str, text: &str) -> Dashboard {
    let identity = instance.identity();
    identity
        .update_dashboard(org, None, uid, ExpectedVersion::Any, write(text), instance.now)
        .expect("stored")
}

/// Returns the number of rows of an organisation by table.
fn left(instance: &TestInstance, org: OrgId) -> [usize; 6] {
    let identity = instance.identity();
    [
        identity.rows::<DashboardRow>(&org).expect("read").len(),
        identity.rows::<DocumentRow>(&org).expect("read").len(),
        identity.rows::<HistoryRow>(&org).expect("read").len(),
        identity.rows::<DashboardRemovalRow>(&org).expect("read").len(),
        identity.rows::<DashboardMarksRow>(&org).expect("read").len(),
        identity.rows::<DashboardUsageRow>(&org).expect("read").len(),
    ]
}

/// The totals must equal the sum of the documents.
fn check_usage(instance: &TestInstance, org: OrgId) {
    let identity = instance.identity();
    let usage = identity.row::<DashboardUsageRow>(&org).expect("read").unwrap_or_default();
    let documents = identity.rows::<DocumentRow>(&org).expect("read");
    let sum: u64 = documents.iter().map(|(_, row)| row.compressed.len() as u64).sum();
    assert_eq!(usage.stored_bytes, sum);
    assert_eq!(usage.dashboards as usize, identity.rows::<DashboardRow>(&org).expect("read").len());
}

#[test]
fn the_largest_documents_are_stored_replaced_and_survive_a_crash() {
    let mut instance = TestInstance::with_owner();
    let org = instance.acme().id;
    let longest = noise(0, 180 * 1_024);
    create(&mut instance, org, &longest);
    for seed in 1..=22 {
        update(&instance, org, "u0", &noise(seed * 4, 180 * 1_024));
    }
    check_usage(&instance, org);
    instance.crash();
    let (dashboard, text) =
        instance.identity().dashboard_with_text(org, "u0").expect("read").expect("stored");
    assert_eq!((dashboard.version, text), (23, noise(88, 180 * 1_024)));
    let versions = instance.identity().dashboard_versions(org, "u0").expect("read").expect("there");
    let numbers: Vec<u32> = versions.iter().map(|version| version.version).collect();
    assert_eq!(numbers, (4..=23).rev().collect::<Vec<_>>());
    assert_eq!(left(&instance, org)[..4], [1, 20, 1, 0]);
    check_usage(&instance, org);
}

#[test]
fn a_deletion_that_a_crash_interrupts_is_finished_and_spares_a_new_dashboard() {
    let mut instance = TestInstance::with_owner();
    let (org, now) = (instance.acme().id, instance.now);
    create(&mut instance, org, &noise(0, 150 * 1_024));
    update(&instance, org, "u0", &noise(4, 150 * 1_024));
    let identity = instance.identity();
    let documents = identity.rows::<DocumentRow>(&org).expect("read");
    identity.delete_dashboard(org, None, "u0", ExpectedVersion::Exactly(2), now).expect("deleted");
    assert_eq!(left(&instance, org)[..4], [0, 0, 0, 0]);
    // Simulates a process that ends after the change that deletes the dashboard.
    identity
        .change(move |txn| {
            let mut usage = store::read::<DashboardUsageRow>(txn, &org)?.expect("there");
            let mut rows = Vec::new();
            for (key, row) in &documents[..1] {
                txn.put(key, row);
                let bytes = u32::try_from(row.compressed.len()).expect("short");
                usage.stored_bytes += u64::from(bytes);
                rows.push((key.2, bytes));
            }
            txn.put(&(org, "u0".to_owned(), 2), &DashboardRemovalRow(rows));
            txn.put(&org, &usage);
            Ok::<_, StoreError>(())
        })
        .expect("stored");
    drop(identity);
    instance.crash();
    let made = create(&mut instance, org, r#"{"title":"new","uid":"u0"}"#);
    assert_eq!(made.version, 3, "version numbers only grow");
    assert_eq!(left(&instance, org)[..4], [1, 2, 1, 1]);
    instance.identity().tick(instance.now).expect("written");
    assert_eq!(left(&instance, org)[..4], [1, 1, 1, 0]);
    let (_, text) = instance.identity().dashboard_with_text(org, "u0").expect("read").expect("stored");
    assert_eq!(text, r#"{"title":"new","uid":"u0"}"#);
    check_usage(&instance, org);
}

#[test]
fn nothing_of_a_deleted_organisation_remains_and_nothing_is_stored_afterwards() {
    let mut instance = TestInstance::with_owner();
    let (org, owner, now) = (instance.acme().id, instance.owner().id, instance.now);
    let other = NewOrg { slug: slug("other"), name: String::new() };
    let other = instance.identity().create_org(owner, other, now, &mut instance.rng).expect("made").org.id;
    for org in [org, other] {
        create(&mut instance, org, &noise(0, 150 * 1_024));
        update(&instance, org, "u0", &noise(4, 100 * 1_024));
        for seed in 1..4 {
            create(&mut instance, org, &noise(seed, 1_000));
        }
        instance.identity().star_dashboard(org, owner, "u1", true).expect("starred");
    }
    instance.identity().delete_org(Some(owner), org, now).expect("deleted");
    let identity = instance.identity();
    let late = identity.create_dashboard(org, None, write(r#"{"title":"T"}"#), now, &mut instance.rng);
    assert!(matches!(late, Err(DashboardError::UnknownOrg)));
    let late =
        identity.update_dashboard(org, None, "u1", ExpectedVersion::Any, write(r#"{"title":"T"}"#), now);
    assert!(matches!(late, Err(DashboardError::UnknownOrg)));
    identity.finish_removal(org).expect("removed");
    assert_eq!(left(&instance, org), [0; 6]);
    assert_eq!(left(&instance, other), [4, 5, 4, 0, 1, 1], "of another organisation");
    check_usage(&instance, other);
}

#[test]
fn views_are_written_once_a_minute_and_at_a_clean_stop_and_end_with_the_membership() {
    let mut instance = TestInstance::with_owner();
    let (org, owner) = (instance.acme().id, instance.owner().id);
    let viewer = instance.add_user("vera@example.org");
    instance.identity().add_member(org, viewer, Role::Viewer, instance.now).expect("added");
    create(&mut instance, org, &noise(0, 100));
    instance.identity().tick(instance.now).expect("written");
    instance.identity().note_dashboard_view(org, viewer, "u0", instance.now);
    let seen = |instance: &TestInstance| {
        instance.identity().dashboard_marks(org, viewer).expect("read").last_seen("u0")
    };
    assert_eq!(seen(&instance), Some(instance.now));
    instance.advance_ms(59_000);
    instance.identity().tick(instance.now).expect("written");
    assert_eq!(left(&instance, org)[4], 0, "not yet");
    instance.advance_ms(1_000);
    instance.identity().tick(instance.now).expect("written");
    assert_eq!(left(&instance, org)[4], 1);
    let first = instance.now.plus_ms(-60_000);
    instance.crash();
    assert_eq!(seen(&instance), Some(first));
    instance.identity().note_dashboard_view(org, viewer, "u0", instance.now);
    instance.restart();
    assert_eq!(seen(&instance), Some(instance.now));
    for number in 0..60 {
        instance.advance_ms(1);
        instance.identity().note_dashboard_view(org, viewer, &format!("v{number}"), instance.now);
    }
    instance.identity().note_dashboard_view(org, owner, "u0", instance.now);
    instance.restart();
    let marks = instance.identity().dashboard_marks(org, viewer).expect("read");
    assert_eq!((marks.last_seen("v9"), marks.last_seen("v59")), (None, Some(instance.now)), "the last 50");
    instance.identity().remove_member(Some(owner), org, viewer, instance.now).expect("removed");
    instance.identity().note_dashboard_view(org, viewer, "u0", instance.now);
    instance.restart();
    assert_eq!(left(&instance, org)[4], 1, "the owner's only");
}

/// Of two concurrent changes of one version, one is refused.
#[test]
fn of_concurrent_changes_of_a_version_one_is_stored() {
    let mut instance = TestInstance::with_owner();
    let org = instance.acme().id;
    create(&mut instance, org, &noise(0, 100));
    let (identity, now) = (instance.identity(), instance.now);
    let results = race(4, |number| {
        let text = format!(r#"{{"title":"{number}"}}"#);
        identity.update_dashboard(org, None, "u0", ExpectedVersion::Exactly(1), write(&text), now).is_ok()
    });
    assert_eq!(results.into_iter().filter(|stored| *stored).count(), 1);
    assert_eq!(identity.dashboard(org, "u0").expect("read").expect("there").version, 2);
}
