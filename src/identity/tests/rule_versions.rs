//! Versions of groups of rules in the database.

use super::*;
use crate::identity::AlertingActor;
use crate::identity::tables::id::KeyId;
use crate::identity::tables::rule_group::{ReplacedVersion, RuleGroupRow, RuleHistoryRow, RuleTextRow};
use crate::model::OrgId;

/// An API key as the actor.
const KEY: AlertingActor = AlertingActor::Key(KeyId::from_bytes([7; 10]));

fn place(instance: &TestInstance, name: &str) -> RuleGroupPlace {
    RuleGroupPlace { org: instance.acme().id, namespace: "api".into(), name: name.into() }
}

fn set(instance: &TestInstance, name: &str, yaml: &str) -> RuleGroupWrite {
    let new = NewRuleGroup { yaml: yaml.into(), rules: 1, expected: Some(ExpectedVersion::Any) };
    let (actor, place) = (instance.owner().id, place(instance, name));
    instance.identity().set_rule_group(AlertingActor::User(actor), place, new, instance.now).expect("stored")
}

fn remove(instance: &TestInstance, name: &str) {
    let place = place(instance, name);
    let removed = instance.identity().remove_rule_group(KEY, place, ExpectedVersion::Any, instance.now);
    removed.expect("removed");
}

fn versions(instance: &TestInstance, name: &str) -> Vec<RuleGroupVersion> {
    instance.identity().rule_group_versions(&place(instance, name)).expect("read")
}

/// Returns number, begin and end of each version, the times in milliseconds after `since`.
fn spans(instance: &TestInstance, name: &str, since: Timestamp) -> Vec<(u32, i64, Option<i64>)> {
    let after = |at: Timestamp| at.as_ms() - since.as_ms();
    let span = |one: &RuleGroupVersion| (one.version, after(one.valid_from), one.valid_until.map(after));
    versions(instance, name).iter().map(span).collect()
}

fn text(instance: &TestInstance, name: &str, version: u32) -> Result<String, RuleGroupError> {
    instance.identity().rule_group_text(&place(instance, name), version)
}

/// A text that hardly compresses.
fn noise(seed: u64, bytes: usize) -> String {
    let mut rng = Entropy::seeded(seed);
    let mut text = String::new();
    while text.len() < bytes {
        // Characters of one and two bytes, mixed so that a byte has almost eight bits of entropy.
        for byte in rng.bytes::<32>() {
            text.push(if byte < 128 {
                char::from(byte)
            } else {
                char::from_u32(u32::from(byte) * 7).unwrap_or('x')
            });
        }
    }
    while text.len() > bytes {
        text.pop();
    }
    text
}

#[test]
fn each_change_stores_the_version_that_it_replaces() {
    let mut instance = TestInstance::with_owner();
    let (since, owner) = (instance.now, instance.owner().id);
    assert!(matches!(
        instance.identity().rule_group_versions(&place(&instance, "g")),
        Err(RuleGroupError::NotFound)
    ));
    assert!(set(&instance, "g", "first").is_new);
    instance.advance_ms(10);
    let written = set(&instance, "g", "second");
    assert_eq!((written.is_new, written.group.version), (false, 2));
    // Two changes within a millisecond, and a clock that goes back.
    set(&instance, "g", "third");
    instance.advance_ms(-5);
    set(&instance, "g", "fourth");
    instance.advance_ms(25);
    instance.crash();
    assert_eq!(
        spans(&instance, "g", since),
        [(4, 10, None), (3, 10, Some(10)), (2, 10, Some(10)), (1, 0, Some(10))]
    );
    for (version, expected) in (1..).zip(["first", "second", "third", "fourth"]) {
        assert_eq!(text(&instance, "g", version).expect("stored"), expected);
    }
    assert!(matches!(text(&instance, "g", 5), Err(RuleGroupError::NoVersion(5))));
    assert!(matches!(text(&instance, "other", 1), Err(RuleGroupError::NotFound)));
    assert!(versions(&instance, "g").iter().all(|one| one.updated_by == Some(owner)));
    assert_eq!(versions(&instance, "g")[0].bytes, 6);
}

#[test]
fn a_refused_change_stores_no_version() {
    let instance = TestInstance::with_owner();
    set(&instance, "g", "first");
    let new = NewRuleGroup { yaml: "x".into(), rules: 1, expected: Some(ExpectedVersion::Exactly(7)) };
    let refused = instance.identity().set_rule_group(KEY, place(&instance, "g"), new, instance.now);
    assert!(matches!(refused, Err(RuleGroupError::Conflict(1))));
    let kept = ExpectedVersion::Exactly(7);
    let refused = instance.identity().remove_rule_group(KEY, place(&instance, "g"), kept, instance.now);
    assert!(matches!(refused, Err(RuleGroupError::Conflict(1))));
    assert_eq!(versions(&instance, "g").len(), 1);
    assert_eq!(instance.identity().rows::<RuleTextRow>(&()).expect("read"), []);
}

#[test]
fn a_removed_group_keeps_its_versions_and_a_new_one_continues_their_numbers() {
    let mut instance = TestInstance::with_owner();
    let since = instance.now;
    set(&instance, "g", "first");
    instance.advance_ms(10);
    remove(&instance, "g");
    assert_eq!(spans(&instance, "g", since), [(1, 0, Some(10))]);
    assert_eq!(text(&instance, "g", 1).expect("stored"), "first");
    instance.advance_ms(10);
    let written = set(&instance, "g", "again");
    assert_eq!((written.is_new, written.group.version), (true, 2));
    instance.advance_ms(10);
    let namespace = (instance.acme().id, "api".to_owned());
    instance.identity().remove_rule_namespace(KEY, namespace, || instance.now, |_| {}).expect("removed");
    assert_eq!(spans(&instance, "g", since), [(2, 20, Some(30)), (1, 0, Some(10))]);
}

/// A group of a folder that has no versions yet: its text becomes a version at the first change.
#[test]
fn a_group_of_an_older_program_has_its_current_version_and_keeps_it() {
    let mut instance = TestInstance::with_owner();
    let (since, owner, org) = (instance.now, instance.owner().id, instance.acme().id);
    let row = RuleGroupRow {
        yaml: "old".into(),
        rules: 1,
        version: 7,
        updated_at: since.plus_ms(-1_000),
        updated_by: Some(owner),
    };
    let key = (org, "api".to_owned(), "g".to_owned());
    let put = move |txn: &mut crate::kv::Txn<'_>| {
        txn.put(&key, &row);
        Ok::<_, StoreError>(())
    };
    instance.identity().change(put).expect("stored");
    instance.crash();
    assert_eq!(spans(&instance, "g", since), [(7, -1_000, None)]);
    assert_eq!(text(&instance, "g", 7).expect("the current one"), "old");
    assert_eq!(set(&instance, "g", "new").group.version, 8);
    assert_eq!(spans(&instance, "g", since), [(8, 0, None), (7, -1_000, Some(0))]);
    assert_eq!(text(&instance, "g", 7).expect("replaced"), "old");
}

#[test]
fn the_longest_texts_are_replaced_and_removed_even_if_they_do_not_compress() {
    let mut instance = TestInstance::with_owner();
    let texts: Vec<String> = (0..3).map(|seed| noise(seed, RULE_GROUP_BYTES_MAX)).collect();
    for text in &texts {
        set(&instance, "g", text);
    }
    let org = instance.acme().id;
    let longest = instance.identity().rows::<RuleTextRow>(&org).expect("read").remove(0).1;
    assert!(longest.compressed.len() > 100_000, "{} bytes are stored before", longest.compressed.len());
    remove(&instance, "g");
    instance.crash();
    for (version, expected) in (1..).zip(&texts) {
        assert_eq!(&text(&instance, "g", version).expect("stored"), expected);
    }
}

#[test]
fn the_oldest_versions_of_a_group_are_removed_beyond_their_number() {
    let instance = TestInstance::with_owner();
    let last = u32::try_from(RULE_VERSIONS_MAX).expect("small") + 3;
    for version in 1..=last {
        set(&instance, "g", &format!("text {version}"));
    }
    let numbers: Vec<u32> = versions(&instance, "g").iter().map(|one| one.version).collect();
    assert_eq!(numbers, (last - 100..=last).rev().collect::<Vec<_>>(), "the current one and 100 before it");
    let refused = text(&instance, "g", last - 101).expect_err("removed");
    assert!(matches!(refused, RuleGroupError::NoVersion(_)), "{refused}");
    assert_eq!(text(&instance, "g", last - 100).expect("stored"), format!("text {}", last - 100));
    let texts = instance.identity().rows::<RuleTextRow>(&instance.acme().id).expect("read");
    assert_eq!(texts.len(), RULE_VERSIONS_MAX);
}

/// The bytes of an organisation are bounded: the versions that were replaced first are removed, of
/// whichever group.
#[test]
fn the_oldest_versions_of_an_organisation_are_removed_beyond_their_bytes() {
    let mut instance = TestInstance::with_owner();
    let noise = noise(1, 120_000);
    set(&instance, "old", "short");
    remove(&instance, "old");
    for round in 0..80 {
        for name in ["a", "b"] {
            instance.advance_ms(1);
            set(&instance, name, &format!("{round} {noise}"));
        }
    }
    let org = instance.acme().id;
    let histories = instance.identity().rows::<RuleHistoryRow>(&org).expect("read");
    let entries = histories.iter().flat_map(|(_, row)| &row.0);
    let bytes: u64 = entries.map(|one| u64::from(one.stored_bytes) + 512).sum();
    assert!((RULE_VERSIONS_BYTES_MAX - 130_000..=RULE_VERSIONS_BYTES_MAX).contains(&bytes), "{bytes}");
    assert!(matches!(
        instance.identity().rule_group_versions(&place(&instance, "old")),
        Err(RuleGroupError::NotFound)
    ));
    let (a, b) = (versions(&instance, "a"), versions(&instance, "b"));
    assert!(a.len().abs_diff(b.len()) <= 1, "both lose their oldest: {} and {}", a.len(), b.len());
    assert_eq!((a[0].version, b[0].version), (80, 80));
    let texts = instance.identity().rows::<RuleTextRow>(&org).expect("read").len();
    let replaced = |versions: &[RuleGroupVersion]| versions.len() - 1;
    let current_texts = 2;
    assert!((replaced(&a) + replaced(&b)..=replaced(&a) + replaced(&b) + current_texts).contains(&texts));
    let oldest = a.last().expect("some").version;
    assert!(text(&instance, "a", oldest).expect("stored").ends_with(&noise));
}

#[test]
fn versions_end_with_their_organisation() {
    let mut instance = TestInstance::with_owner();
    let long = noise(1, RULE_GROUP_BYTES_MAX);
    for round in 0..40 {
        set(&instance, &format!("g{}", round % 15), if round % 4 == 0 { &long } else { "short" });
    }
    remove(&instance, "g0");
    let org = instance.acme().id;
    instance.identity().delete_org(None, org, instance.now).expect("deleted");
    let late = NewRuleGroup { yaml: "late".into(), rules: 1, expected: Some(ExpectedVersion::Any) };
    let g = RuleGroupPlace { org, namespace: "api".into(), name: "g1".into() };
    let refused = instance.identity().set_rule_group(KEY, g.clone(), late, instance.now);
    assert!(matches!(refused, Err(RuleGroupError::UnknownOrg)));
    let refused = instance.identity().remove_rule_group(KEY, g, ExpectedVersion::Any, instance.now);
    assert!(matches!(refused, Err(RuleGroupError::UnknownOrg)));
    instance.identity().finish_removal(org).expect("removed");
    instance.crash();
    let identity = instance.identity();
    assert_eq!(identity.rows::<RuleGroupRow>(&org).expect("read"), []);
    assert_eq!(identity.rows::<RuleHistoryRow>(&org).expect("read"), []);
    assert_eq!(identity.rows::<RuleTextRow>(&org).expect("read"), []);
}

#[test]
fn an_entry_of_a_history_is_short() {
    let entry = ReplacedVersion {
        version: u32::MAX,
        valid_from: Timestamp::from_ms(i64::MAX),
        valid_until: Timestamp::from_ms(i64::MAX),
        updated_by: Some(UserId::from_bytes([1; 10])),
        bytes: u32::MAX,
        stored_bytes: u32::MAX,
    };
    let history = RuleHistoryRow(vec![entry; RULE_VERSIONS_MAX + 1]);
    let bytes = crate::kv::encode_body(&history).expect("encoded").len();
    assert!(bytes <= 2 * crate::kv::BODY_BYTES_MAX, "two rows of a change: {bytes} bytes");
}

#[test]
fn organisations_do_not_see_each_others_versions() {
    let mut instance = TestInstance::with_owner();
    set(&instance, "g", "first");
    let other = NewOrg { slug: slug("other"), name: String::new() };
    let owner = instance.owner().id;
    let made = instance.identity().create_org(owner, other, instance.now, &mut instance.rng).expect("made");
    let other: OrgId = made.org.id;
    let place = RuleGroupPlace { org: other, namespace: "api".into(), name: "g".into() };
    let read = instance.identity().rule_group_versions(&place);
    assert!(matches!(read, Err(RuleGroupError::NotFound)));
    assert!(matches!(instance.identity().rule_group_text(&place, 1), Err(RuleGroupError::NotFound)));
}
