//! Tests of limits per organisation, and that no organisation takes resources from another.

use std::time::Duration;

use super::*;

fn many(tsdb: &Tsdb, org: OrgId, names: std::ops::Range<u32>, now: Timestamp) -> AppendReport {
    let mut batch = BatchBuilder::default();
    for n in names {
        batch.series(&up(&n.to_string()), [Sample { at: now, value: 1.0 }]);
    }
    tsdb.append(org, &batch.batch(), now).expect("taken")
}

#[test]
fn new_series_are_limited_by_rate_and_known_ones_are_accepted() {
    let tsdb = Tsdb::scaffold();
    tsdb.set_limits(ORG, OrgLimits { new_series_per_s: Some(2), ..OrgLimits::default() });
    let report = many(&tsdb, ORG, 0..25, NOW);
    assert_eq!((report.stored, report.refused), (20, 5), "ten seconds' worth at once");
    assert_eq!(report.refused_by_code, [("new_series_rate", 5)]);
    assert_eq!(report.refusals[0].reason, "more than 2 new series per second arrived (max_new_series_per_s)");
    let later = NOW.plus_ms(1_500);
    let report = many(&tsdb, ORG, 0..25, later);
    assert_eq!((report.stored, report.refused), (23, 2), "twenty known ones and three new");
    assert_eq!(
        many(&tsdb, ORG, 23..25, later.plus_ms(-1)).refused,
        2,
        "a clock that goes back gives nothing"
    );
    assert_eq!(many(&tsdb, OrgId(4), 0..25, NOW).refused, 0, "another organisation has its own");
    let stats = tsdb.stats();
    assert_eq!(stats.orgs[0].refused_by_code, [("new_series_rate", 9)]);
    assert_eq!((stats.orgs[1].refused_by_code.len(), stats.orgs[1].refused_total), (0, 0));
}

#[test]
fn late_samples_are_accepted_within_the_window_before_the_newest() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let limits = OrgLimits { ooo_window: Some(Duration::from_secs(60)), ..OrgLimits::default() };
    tsdb.set_limits(ORG, limits.clone());
    assert_eq!(
        write(&tsdb, ORG, &up("a"), &[ago(500_000, 1.0), ago(10_000, 2.0)]).refused,
        0,
        "the first request"
    );
    let report = write(&tsdb, ORG, &up("b"), &[ago(70_000, 1.0), ago(70_001, 1.0)]);
    assert_eq!((report.stored, report.refused_by_code), (1, vec![("too_late", 1)]));
    assert!(
        report.refusals[0]
            .reason
            .ends_with("is 60001 ms before the newest sample's, at most 60000 ms are allowed")
    );
    write(&tsdb, ORG, &up("ahead"), &[ago(-600_000, 1.0)]);
    assert_eq!(write(&tsdb, ORG, &up("b"), &[ago(60_000, 1.0)]).refused, 0, "no sample is newer than now");
    tsdb.checkpoint().expect("made");
    drop(tsdb);
    let (tsdb, _) = open(dir.path());
    tsdb.set_limits(ORG, limits);
    assert_eq!(write(&tsdb, ORG, &up("b"), &[ago(60_001, 1.0)]).refused, 1, "known after a start, too");
    tsdb.set_limits(
        ORG,
        OrgLimits {
            retention: Some(Duration::from_secs(10)),
            ooo_window: Some(Duration::MAX),
            ..OrgLimits::default()
        },
    );
    assert_eq!(write(&tsdb, ORG, &up("b"), &[ago(10_001, 1.0)]).refused_by_code, [("too_old", 1)]);
    assert_eq!(write(&tsdb, OrgId(4), &up("b"), &[ago(9_000_000, 1.0)]).refused, 0);
}

/// Writes new series until the store refuses one. Returns how many it accepted.
fn fill(tsdb: &Tsdb, org: OrgId) -> (u32, AppendError) {
    for n in 0..20_000 {
        if let Err(why) = try_write(tsdb, org, &up(&n.to_string()), &[ago(0, 1.0)]) {
            return (n, why);
        }
    }
    panic!("never full");
}

#[test]
fn an_organisation_that_uses_all_memory_it_can_leaves_room_for_others() {
    let tsdb = Tsdb::in_memory(Options { head_bytes_max: 4 << 20, ..Options::default() }, [0; 32]);
    let mut taken = Vec::new();
    for org in 1..=5 {
        let (series, why) = fill(&tsdb, OrgId(org));
        assert!(matches!(why, AppendError::AtCapacity { what: Capacity::MemoryShare, .. }), "{why:?}");
        taken.push(series);
        assert!(series > 10, "{taken:?}");
    }
    let stats = tsdb.stats();
    assert!(stats.orgs.iter().all(|org| org.refused_by_code == [("memory_share", 1)]), "{stats:?}");
    let used: u64 = stats.orgs.iter().map(|org| org.memory_bytes).sum();
    let floors = 5 * (4 << 20) / 256;
    assert!((3 << 20..(4 << 20) + floors).contains(&used), "{used}");
    assert_eq!(content(&tsdb, OrgId(5)).len(), taken[4] as usize, "accepted samples are stored");
}

#[test]
fn an_organisations_own_limits_of_memory_and_disk_hold() {
    let tsdb = Tsdb::scaffold();
    tsdb.set_limits(ORG, OrgLimits { memory_bytes_max: Some(20_000), ..OrgLimits::default() });
    let (_, why) = fill(&tsdb, ORG);
    assert!(
        matches!(why, AppendError::AtCapacity { what: Capacity::Memory, allowed: 20_000, .. }),
        "{why:?}"
    );
    let other = OrgId(4);
    tsdb.set_limits(other, OrgLimits { disk_bytes_max: Some(2_000), ..OrgLimits::default() });
    let (_, why) = fill(&tsdb, other);
    assert!(matches!(why, AppendError::AtCapacity { what: Capacity::Disk, allowed: 2_000, .. }), "{why:?}");
    tsdb.set_limits(other, OrgLimits::default());
    write(&tsdb, other, &up("more"), &[ago(0, 1.0)]);
}

#[test]
fn series_names_leave_half_of_the_memory_to_samples() {
    let tsdb = Tsdb::scaffold();
    tsdb.set_limits(ORG, OrgLimits { memory_bytes_max: Some(200_000), ..OrgLimits::default() });
    let long = "x".repeat(4_000);
    let mut refused = 0;
    for n in 0..40 {
        let series = labels(&[("__name__", "up"), ("x", &format!("{n}{long}"))]);
        let report = write(&tsdb, ORG, &series, &[ago(0, 1.0)]);
        refused += report.refused;
        assert!(report.refusals.iter().all(|refusal| refusal.code == "memory_limit"), "{report:?}");
    }
    assert!((10..20).contains(&refused), "{refused}");
    let known = labels(&[("__name__", "up"), ("x", &format!("0{long}"))]);
    assert_eq!(write(&tsdb, ORG, &known, &[ago(-1, 1.0)]).stored, 1, "known series are accepted");
}

#[test]
fn the_samples_stored_today_are_counted_from_midnight() {
    let tsdb = Tsdb::scaffold();
    many(&tsdb, ORG, 0..3, NOW);
    assert_eq!((tsdb.stored_today(ORG, NOW), tsdb.stored_today(OrgId(4), NOW)), (3, 0));
    let tomorrow = NOW.plus_ms(86_400_000);
    assert_eq!(tsdb.stored_today(ORG, tomorrow), 0);
    many(&tsdb, ORG, 0..2, tomorrow);
    assert_eq!(tsdb.stored_today(ORG, tomorrow), 2);
}

#[test]
fn an_organisation_out_of_memory_is_sealed_and_accepts_samples_again() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    tsdb.set_limits(ORG, OrgLimits { memory_bytes_max: Some(1 << 20), ..OrgLimits::default() });
    write(&tsdb, OrgId(4), &up("a"), &[ago(0, 1.0)]);
    let mut at = NOW.plus_ms(-60_000_000);
    let mut refused = None;
    for _ in 0..100 {
        let samples =
            (0..5_000i32).map(|n| Sample { at: at.plus_ms(i64::from(n)), value: f64::from(n).sqrt() });
        let samples: Vec<Sample> = samples.collect();
        at = at.plus_ms(5_000);
        if let Err(why) = try_write(&tsdb, ORG, &up("a"), &samples) {
            refused = Some(why);
            break;
        }
    }
    assert!(matches!(refused, Some(AppendError::AtCapacity { what: Capacity::Memory, .. })), "{refused:?}");
    let before = content(&tsdb, ORG);
    let report = tsdb.seal_if_due(NOW).expect("sealed");
    assert_eq!(report.orgs, 1, "its own memory is no reason to seal another's");
    assert_eq!(content(&tsdb, ORG), before);
    write(&tsdb, ORG, &up("a"), &[ago(0, 1.0)]);
}

#[test]
fn samples_that_a_longer_retention_admits_are_read_before_the_next_maintenance() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let keep = |hours: Option<u64>| {
        let retention = hours.map(|hours| Duration::from_secs(hours * 3_600));
        tsdb.set_limits(ORG, OrgLimits { retention, ..OrgLimits::default() });
    };
    let count = || content(&tsdb, ORG).values().map(Vec::len).sum::<usize>();
    let upkeep = || {
        tsdb.maintain(NOW).expect("done");
    };
    let hour = 3_600_000;
    keep(Some(1));
    assert_eq!(write(&tsdb, ORG, &up("a"), &[ago(0, 1.0), ago(2 * hour, 2.0)]).stored, 1);
    upkeep();
    let version = || tsdb.snapshot(&Access::whole(ORG)).version();
    let before = version();
    keep(Some(3));
    assert!(version() > before, "cached results are invalidated");
    assert_eq!((write(&tsdb, ORG, &up("a"), &[ago(2 * hour, 2.0)]).stored, count()), (1, 2));
    keep(None);
    // Times before 1970 and in the year 1.
    let old = [-5_000, -62_135_596_800_000].map(|ms| Sample { at: Timestamp::from_ms(ms), value: 3.0 });
    assert_eq!((write(&tsdb, ORG, &up("b"), &old).stored, count()), (2, 4));
    upkeep();
    assert_eq!(count(), 4, "and maintenance removes none");
    keep(Some(3));
    upkeep();
    assert_eq!(count(), 2, "the next maintenance hides what a shorter retention excludes");
}
