//! Groups of rule files in the database.

use super::*;
use crate::identity::tables::rule_group::FileRuleGroupRow;

const HOUR_MS: i64 = 3_600_000;

fn group(instance: &TestInstance, path: &str, yaml: &str) -> FileRuleGroup {
    FileRuleGroup { org: instance.acme().id, path: path.into(), name: "g".into(), yaml: yaml.into() }
}

/// Loads groups, and returns the path, the text and the age in milliseconds of the removed ones.
fn load(instance: &TestInstance, groups: &[FileRuleGroup]) -> Vec<(String, String, i64)> {
    let now = instance.now;
    let (identity, since) = (instance.identity(), now.plus_ms(-HOUR_MS));
    let removed = identity.removed_file_rule_groups(groups, since, now).expect("read");
    identity.set_file_rule_groups(groups, since, now).expect("stored");
    let again = identity.removed_file_rule_groups(groups, since, now).expect("read");
    assert_eq!(again, removed, "storing changes nothing of it");
    let mut removed: Vec<_> = removed
        .into_iter()
        .map(|one| (one.group.path, one.group.yaml, now.ms_since(one.removed_at)))
        .collect();
    removed.sort();
    removed
}

#[test]
fn removed_and_changed_groups_of_files_are_known_for_an_hour_also_after_kills() {
    let mut instance = TestInstance::with_owner();
    let [a, changed, b] =
        [("a", "1"), ("a", "2"), ("b", "1")].map(|(path, yaml)| group(&instance, path, yaml));
    assert_eq!(load(&instance, &[a.clone(), b.clone()]), []);
    instance.advance_ms(10);
    instance.crash();
    // Nothing has changed.
    assert_eq!(load(&instance, &[a.clone(), b.clone()]), []);
    let both = |age: i64| vec![("a".to_owned(), "1".to_owned(), age), ("b".to_owned(), "1".to_owned(), age)];
    assert_eq!(load(&instance, std::slice::from_ref(&changed)), both(0));
    instance.advance_ms(10);
    instance.crash();
    assert_eq!(load(&instance, std::slice::from_ref(&changed)), both(10));
    // One is back.
    assert_eq!(load(&instance, &[changed.clone(), b.clone()]), both(10)[..1]);
    instance.advance_ms(HOUR_MS);
    assert_eq!(load(&instance, &[changed.clone(), b]), []);
    assert_eq!(instance.identity().rows::<FileRuleGroupRow>(&()).expect("read").len(), 2);
    // No files are loaded any more.
    assert_eq!(load(&instance, &[]).len(), 2);
}

#[test]
fn groups_of_files_are_stored_within_bounds_and_removed_with_their_organisation() {
    let instance = TestInstance::with_owner();
    let long = "x".repeat(10 << 20);
    let noise: String = {
        let mut rng = Entropy::seeded(1);
        (0..40_000).flat_map(|_| rng.bytes::<8>()).map(|byte| char::from(b' ' + byte % 90)).collect()
    };
    let count = || instance.identity().rows::<FileRuleGroupRow>(&()).expect("read").len();
    load(&instance, &[group(&instance, "a", &long), group(&instance, "b", &noise)]);
    assert_eq!(count(), 1, "one does not compress");
    assert_eq!(load(&instance, &[]), [("a".to_owned(), long, 0)]);
    let many: Vec<FileRuleGroup> =
        (0..600).map(|place| group(&instance, &format!("{place}"), &noise[place..30_000 + place])).collect();
    load(&instance, &many);
    assert!((500..570).contains(&count()), "{}", count());
    let (org, owner, now) = (instance.acme().id, instance.owner().id, instance.now);
    instance.identity().delete_org(Some(owner), org, now).expect("deleted");
    instance.identity().finish_removal(org).expect("removed");
    assert_eq!(count(), 0);
    load(&instance, &many[..2]);
    assert_eq!(count(), 0, "the organisation is gone");
}
