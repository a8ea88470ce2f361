//! Tests of histograms, start timestamps and exemplars through seals, merges, restarts and
//! deletions.

use proptest::prelude::*;

use super::*;
use crate::model::{Exemplar, Histogram, HistogramColumns, Matcher, StartChange};
use crate::tsdb::side_data::tests::{any_histogram, exponential};

pub(super) fn histogram(count: u64) -> Histogram {
    exponential(3, 0.001, &[(-1, 2), (3, 1)], &[], count as f64 / 4.0, count, &[count, 2 * count, 0])
}

pub(super) fn native(job: &str) -> Labels {
    labels(&[("__name__", "native"), ("job", job)])
}

fn at(ms: i64) -> Timestamp {
    NOW.plus_ms(-ms)
}

fn write_native(
    tsdb: &Tsdb,
    org: OrgId,
    series: &Labels,
    samples: impl IntoIterator<Item = (Timestamp, Histogram)>,
) -> AppendReport {
    let mut batch = BatchBuilder::default();
    batch.series(series, []).histograms(samples);
    tsdb.append(org, &batch.batch(), NOW).expect("stored")
}

/// By label set: times and histograms, start changes, and exemplars.
pub(super) type SideContent = BTreeMap<String, (Vec<(i64, Histogram)>, Vec<StartChange>, Vec<Exemplar>)>;

pub(super) fn side_data(tsdb: &Tsdb, org: OrgId) -> SideContent {
    let snapshot = tsdb.snapshot(&Access::whole(org));
    let mut found = SideContent::new();
    let mut out = HistogramColumns::default();
    for series in snapshot.select(&[], TimeRange::ALL) {
        snapshot.read_histograms(series.id, TimeRange::ALL, &mut out);
        let samples = out.times.iter().copied().zip(out.histograms.iter().cloned()).collect();
        let starts = snapshot.starts(series.id, TimeRange::ALL);
        found.insert(series.labels.to_string(), (samples, starts, Vec::new()));
    }
    for series in snapshot.exemplars(&[&[]], TimeRange::ALL, usize::MAX).items {
        found.entry(series.labels.to_string()).or_default().2 = series.exemplars;
    }
    found
}

#[derive(Clone, Debug)]
enum SideStep {
    Append { org: u32, series: usize, samples: Vec<(i64, Histogram)>, start: Option<i64>, exemplar: bool },
    Checkpoint,
    EarlyCheckpoint,
    Seal,
    SealDue,
    FailedSeal,
    StoppedSeal(u8),
    Compact,
    CloseAndOpen,
    DropAndOpen,
}

fn step() -> impl Strategy<Value = SideStep> {
    let samples = prop::collection::vec((0i64..600, any_histogram()), 1..12);
    let starts = prop::option::of(601i64..604);
    let append = (1u32..3, 0usize..4, samples, starts, any::<bool>());
    prop_oneof![
        8 => append.prop_map(|(org, series, samples, start, exemplar)| SideStep::Append { org, series, samples, start, exemplar }),
        1 => Just(SideStep::Checkpoint),
        1 => Just(SideStep::EarlyCheckpoint),
        2 => Just(SideStep::Seal),
        2 => Just(SideStep::SealDue),
        1 => Just(SideStep::FailedSeal),
        1 => (0u8..12).prop_map(SideStep::StoppedSeal),
        1 => Just(SideStep::Compact),
        1 => Just(SideStep::CloseAndOpen),
        1 => Just(SideStep::DropAndOpen),
    ]
}

/// The rules of the head for one series of histograms, in their simplest form.
#[derive(Default)]
struct HistogramSeries {
    last: Option<i64>,
    samples: BTreeMap<i64, Histogram>,
    /// The last start timestamp sent for each time.
    starts: BTreeMap<i64, i64>,
}

impl HistogramSeries {
    fn put(&mut self, at: i64, histogram: &Histogram, barrier: i64) -> bool {
        if at < barrier {
            self.samples.insert(at, histogram.clone());
            return true;
        }
        if self.last == Some(at) && self.samples.get(&at) != Some(histogram) {
            return false;
        }
        self.last = self.last.max(Some(at));
        self.samples.insert(at, histogram.clone());
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::model::effort::rounds(8, 24), ..ProptestConfig::default() })]

    #[test]
    fn histograms_and_starts_equal_maps_through_restarts_and_exemplars_are_unchanged(steps in prop::collection::vec(step(), 1..30)) {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let faults = faults();
        let open = |dir| open_with(dir, options(&faults));
        let mut tsdb = open(dir.path()).0;
        let mut model: BTreeMap<(u32, usize), HistogramSeries> = BTreeMap::new();
        for step in &steps {
            let before: Vec<SideContent> = (1..3).map(|org| side_data(&tsdb, OrgId(org))).collect();
            match step {
                SideStep::Append { org, series, samples, start, exemplar } => {
                    let time = |ago_s: i64| at(600_000 - ago_s * 1_000);
                    let mut batch = BatchBuilder::default();
                    let name = native(&format!("job-{series}"));
                    batch.series(&name, []).histograms(samples.iter().map(|(ago_s, h)| (time(*ago_s), h.clone())));
                    if let Some(start) = start {
                        batch.start(time(samples[0].0), at(*start * 1_000));
                    }
                    if *exemplar {
                        let labels = labels(&[("trace_id", &samples[0].0.to_string())]);
                        batch.exemplar(Exemplar { labels, value: 0.5, at: time(samples[0].0) });
                    }
                    let barrier = tsdb.stores.org(OrgId(*org)).map_or(i64::MIN, |store| store.head.barrier());
                    let report = tsdb.append(OrgId(*org), &batch.batch(), NOW).expect("stored");
                    let known = model.entry((*org, *series)).or_default();
                    if let Some(start) = start {
                        known.starts.insert(time(samples[0].0).as_ms(), at(*start * 1_000).as_ms());
                    }
                    let stored = samples.iter().filter(|(ago_s, h)| known.put(time(*ago_s).as_ms(), h, barrier)).count();
                    prop_assert_eq!((report.stored, report.histograms), (stored as u64, stored as u64));
                    prop_assert_eq!(report.refused, (samples.len() - stored) as u64);
                }
                SideStep::Checkpoint => drop(tsdb.checkpoint().expect("made")),
                SideStep::EarlyCheckpoint => checkpoint_claiming_less(&tsdb),
                SideStep::Seal => drop(tsdb.seal(NOW).expect("sealed")),
                SideStep::SealDue => seal_due(&tsdb),
                SideStep::FailedSeal => seal::without_room_for_segments(dir.path(), || drop(tsdb.seal(NOW))),
                SideStep::Compact => drop(tsdb.compact(NOW).expect("merged")),
                SideStep::StoppedSeal(_) | SideStep::CloseAndOpen | SideStep::DropAndOpen => {
                    if let SideStep::StoppedSeal(after) = step {
                        faults.seal_steps_left.store(i64::from(*after), Ordering::SeqCst);
                        drop(tsdb.seal(NOW));
                        faults.seal_steps_left.store(-1, Ordering::SeqCst);
                    }
                    if matches!(step, SideStep::CloseAndOpen) {
                        tsdb.close();
                    }
                    drop(tsdb);
                    let (again, report) = open(dir.path());
                    prop_assert_eq!(report.read_only, None);
                    prop_assert_eq!(report.notes, Vec::<String>::new());
                    tsdb = again;
                }
            }
            for org in 1..3u32 {
                let found = side_data(&tsdb, OrgId(org));
                if !matches!(step, SideStep::Append { .. }) {
                    prop_assert_eq!(&found, &before[org as usize - 1]);
                }
                for ((_, series), known) in model.iter().filter(|((o, _), _)| *o == org) {
                    let changes = &found[&native(&format!("job-{series}")).to_string()].1;
                    for (at, start) in &known.starts {
                        let held = changes.iter().take_while(|change| change.at.as_ms() <= *at).last();
                        prop_assert_eq!(held.map(|change| change.start.as_ms()), Some(*start), "at {}", at);
                    }
                }
                let found: BTreeMap<String, Vec<(i64, Histogram)>> =
                    found.into_iter().map(|(name, (samples, ..))| (name, samples)).collect();
                let mut expected = BTreeMap::new();
                for ((_, series), known) in model.iter().filter(|((o, _), _)| *o == org) {
                    let samples = known.samples.iter().map(|(t, h)| (*t, h.clone())).collect();
                    expected.insert(native(&format!("job-{series}")).to_string(), samples);
                }
                prop_assert_eq!(found, expected);
            }
        }
    }
}

#[test]
fn a_series_of_histograms_is_listed_without_floats_and_restored_by_a_restart() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    write(&tsdb, ORG, &up("a"), &[ago(5, 1.0)]);
    let samples = (0..300).map(|n| (at(30_000 - n * 100), histogram(n.cast_unsigned())));
    assert_eq!(write_native(&tsdb, ORG, &native("a"), samples).stored, 300);
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let found = snapshot.select(&[Matcher::equal("__name__", "native")], TimeRange::ALL);
    assert_eq!(found.len(), 1);
    let mut floats = SampleColumns::default();
    snapshot.read(found[0].id, TimeRange::ALL, &mut floats);
    assert!(floats.times.is_empty());
    let early = TimeRange::new(Timestamp::from_ms(0), at(40_000));
    assert!(snapshot.select(&[], early).is_empty(), "selected only where it has samples");
    let (stats, before) = (tsdb.stats(), side_data(&tsdb, ORG));
    assert_eq!((stats.samples, stats.orgs[0].histograms), (301, 300));
    assert!(stats.head_bytes > 2_000);
    tsdb.checkpoint().expect("made");
    drop(tsdb);
    let (tsdb, report) = open(dir.path());
    assert_eq!((report.mode, report.samples), (RecoveryMode::Checkpoint, 0));
    assert_eq!(side_data(&tsdb, ORG), before);
    assert_eq!(tsdb.stats().orgs[0].histograms, 300);
    // The next samples are judged as before the restart.
    let last = at(30_000 - 299 * 100);
    assert_eq!(write_native(&tsdb, ORG, &native("a"), [(last, histogram(299))]).stored, 1);
    let report = write_native(&tsdb, ORG, &native("a"), [(last, histogram(1))]);
    assert_eq!((report.refused, report.refusals[0].code), (1, "duplicate_sample"));
    assert_eq!(side_data(&tsdb, ORG), before);
}

#[test]
fn a_series_has_one_value_at_a_time_and_the_histogram_wins_over_the_float() {
    let tsdb = Tsdb::scaffold();
    let mut batch = BatchBuilder::default();
    batch.series(&native("a"), [ago(30, 1.0), ago(20, 2.0), ago(10, 3.0)]);
    batch.histograms([(at(20), histogram(1)), (at(15), histogram(2))]);
    assert_eq!(tsdb.append(ORG, &batch.batch(), NOW).expect("stored").stored, 5);
    let series = native("a").to_string();
    let floats: Vec<i64> = content(&tsdb, ORG)[&series].iter().map(|(at, _)| *at).collect();
    assert_eq!(floats, [at(30).as_ms(), at(10).as_ms()]);
    let histograms: Vec<i64> = side_data(&tsdb, ORG)[&series].0.iter().map(|(at, _)| *at).collect();
    assert_eq!(histograms, [at(20).as_ms(), at(15).as_ms()]);
}

#[test]
fn refusals_name_the_histogram_and_the_others_are_stored() {
    let tsdb = Tsdb::in_memory(options(&faults()), [0; 32]);
    let mut builder = BatchBuilder::default();
    builder.series(&native("a"), []).histograms([(at(9), histogram(1)), (at(-86_400_000), histogram(2))]);
    let mut batch = builder.batch();
    let wrong = crate::model::HistogramError::Schema(9);
    batch.histograms.push(crate::model::HistogramSample { series: 0, at: at(8), value: Err(wrong) });
    let report = tsdb.append(ORG, &batch, NOW).expect("stored");
    assert_eq!((report.stored, report.refused), (1, 2));
    let codes: Vec<&str> = report.refusals.iter().map(|refusal| refusal.code).collect();
    assert_eq!(codes, ["too_far_in_future", "histogram_schema"]);
    assert!(report.refusals[1].series.contains("native"), "{:?}", report.refusals[1]);
}

#[test]
fn a_refused_sample_creates_no_series() {
    let tsdb = Tsdb::in_memory(options(&faults()), [0; 32]);
    let exemplar = |id: &str| Exemplar { labels: labels(&[("trace_id", id)]), value: 0.25, at: at(5) };
    let mut builder = BatchBuilder::default();
    builder.series(&native("future"), []).histograms([(at(-86_400_000), histogram(2))]);
    builder.exemplar(exemplar("future")).start(at(5), at(9));
    builder.series(&native("wrong"), []).exemplar(exemplar("wrong")).start(at(8), at(9));
    builder.series(&native("alone"), []).exemplar(exemplar("alone"));
    builder.series(&native("empty"), []);
    let mut batch = builder.batch();
    let wrong = crate::model::HistogramError::Schema(9);
    let refused = crate::model::HistogramSample { series: 1, at: at(8), value: Err(wrong) };
    batch.histograms.push(refused.clone());
    let nothing = |report: &AppendReport, refused: u64| {
        assert_eq!((report.stored, report.exemplars, report.refused), (0, 0, refused), "{report:?}");
        assert_eq!((tsdb.stats().series, tsdb.stats().orgs[0].exemplars), (0, 0));
        let snapshot = tsdb.snapshot(&Access::whole(ORG));
        assert_eq!(snapshot.cardinality(9).series, 0);
        assert!(snapshot.series(&[], TimeRange::ALL, 9).items.is_empty());
        assert!(snapshot.label_names(&[], TimeRange::ALL, 9).items.is_empty());
    };
    let report = tsdb.append(ORG, &batch, NOW).expect("answered");
    nothing(&report, 2);
    let codes: Vec<&str> = report.refusals.iter().map(|refusal| refusal.code).collect();
    assert_eq!(codes, ["too_far_in_future", "histogram_schema"]);
    assert!(report.refusals[1].series.contains("wrong"), "{:?}", report.refusals[1]);
    // The result is the same for a repeated request.
    nothing(&tsdb.append(ORG, &batch, NOW).expect("answered"), 2);
    // The start timestamp of a refused sample has no effect on an existing series either. An
    // exemplar in an entry of its own finds the series that another entry of the request creates.
    let mut builder = BatchBuilder::default();
    builder.series(&native("b"), []).exemplar(exemplar("early"));
    builder.series(&native("b"), []).histograms([(at(9), histogram(1))]).start(at(8), at(50));
    let mut batch = builder.batch();
    batch.histograms.push(refused);
    let report = tsdb.append(ORG, &batch, NOW).expect("stored");
    assert_eq!((report.stored, report.exemplars, report.refused), (1, 1, 1));
    assert_eq!(tsdb.stats().series, 1);
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let id = snapshot.select(&[], TimeRange::ALL)[0].id;
    assert_eq!(snapshot.starts(id, TimeRange::ALL), []);
}

#[test]
fn exemplars_are_found_by_selector_time_and_scope_and_survive_a_restart() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let exemplar =
        |id: &str, ms: i64| Exemplar { labels: labels(&[("trace_id", id)]), value: 0.25, at: at(ms) };
    let mut batch = BatchBuilder::default();
    batch.series(&up("a"), [ago(5, 1.0)]).exemplar(exemplar("one", 9)).exemplar(exemplar("two", 8));
    batch.series(&up("b"), [ago(5, 1.0)]).exemplar(exemplar("three", 7)).exemplar(exemplar("three", 7));
    let long = "ä".repeat(121);
    batch.exemplar(exemplar(&long, 6)).exemplar(exemplar("early", 700));
    let report = tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
    // An exemplar that is already stored counts as stored.
    assert_eq!((report.stored, report.exemplars, report.refused), (2, 4, 0));
    assert_eq!(tsdb.stats().orgs[0].exemplars_dropped_total, 2);
    let ids = |tsdb: &Tsdb, selector: &[Matcher], range: TimeRange, limit| {
        let listing = tsdb.snapshot(&Access::whole(ORG)).exemplars(&[selector], range, limit);
        let found = listing
            .items
            .iter()
            .flat_map(|s| s.exemplars.iter().map(|e| e.labels.value("trace_id").to_owned()));
        (found.collect::<Vec<_>>().join(" "), listing.truncated)
    };
    let b = [Matcher::equal("job", "b")];
    for round in 0..2 {
        assert_eq!(ids(&tsdb, &[], TimeRange::ALL, 9), ("one two three".to_owned(), false), "{round}");
        assert_eq!(ids(&tsdb, &b, TimeRange::ALL, 9), ("three".to_owned(), false));
        assert_eq!(ids(&tsdb, &[], TimeRange::new(at(8), at(0)), 9), ("two three".to_owned(), false));
        assert_eq!(ids(&tsdb, &[], TimeRange::ALL, 1), ("one".to_owned(), true));
        tsdb.checkpoint().expect("made");
    }
    drop(tsdb);
    let (tsdb, _) = open(dir.path());
    assert_eq!(ids(&tsdb, &[], TimeRange::ALL, 9), ("one two three".to_owned(), false));
    let mut access = Access::whole(ORG);
    access.scope.matchers.push(Matcher::equal("job", "b"));
    let found = tsdb.snapshot(&access).exemplars(&[&[]], TimeRange::ALL, 9);
    assert_eq!(found.items.len(), 1);
    std::fs::remove_dir_all(dir.path().join("head")).expect("removed");
    drop(tsdb);
    assert_eq!(
        ids(&open(dir.path()).0, &[], TimeRange::ALL, 9),
        ("one two three".to_owned(), false),
        "the log"
    );
}

#[test]
fn start_timestamps_are_changes_that_samples_of_either_kind_can_bring() {
    let tsdb = Tsdb::scaffold();
    let mut batch = BatchBuilder::default();
    batch.series(&up("a"), (0..10).rev().map(|n| ago(n * 10, 1.0)));
    for n in 0..10 {
        batch.start(at(n * 10), at(if n > 4 { 1_000 } else { 45 }));
    }
    // Zero means unknown. A start timestamp after its sample is kept as sent.
    let none = Timestamp::from_ms(0);
    batch.start(at(10), none).start(at(0), at(-5));
    tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let id = snapshot.select(&[], TimeRange::ALL)[0].id;
    let change = |at, start| StartChange { at, start };
    let newest = [change(at(40), at(45)), change(at(10), none), change(at(0), at(-5))];
    let all = [&[change(at(90), at(1_000))], &newest[..]].concat();
    assert_eq!(snapshot.starts(id, TimeRange::ALL), all);
    assert_eq!(snapshot.starts(id, TimeRange::new(at(20), at(0))), newest);
    assert_eq!(snapshot.starts(id, TimeRange::new(at(60), at(60))), [change(at(90), at(1_000))]);
}

/// All side data, in segments of both orders, then in one.
#[test]
fn sealed_side_data_is_read_merged_deleted_and_verified_like_floats() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let write_all = |from: i64, count: i64, start: i64| {
        let mut batch = BatchBuilder::default();
        for job in ["a", "b"] {
            batch.series(&native(job), []);
            batch.histograms((0..count).map(|n| (at(from - n * 10), histogram(n.cast_unsigned()))));
            for n in 0..count {
                batch.start(at(from - n * 10), at(start));
            }
            let labels = labels(&[("trace_id", &from.to_string())]);
            batch.exemplar(Exemplar { labels, value: 0.5, at: at(from) });
        }
        batch.series(&up("a"), (0..count).map(|n| ago(from - n * 10, n as f64)));
        batch.start(at(from), at(start));
        tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
    };
    write_all(50_000, 500, 60_000);
    let report = tsdb.seal(NOW).expect("sealed");
    assert_eq!((report.segments, report.samples), (2, 1_500), "floats and histograms apart");
    write_all(40_005, 100, 41_000);
    write_all(30_000, 200, 31_000);
    let before = (side_data(&tsdb, ORG), content(&tsdb, ORG));
    let native_a = native("a").to_string();
    assert_eq!(
        (before.0[&native_a].0.len(), before.0[&native_a].1.len(), before.0[&native_a].2.len()),
        (800, 3, 3)
    );
    assert_eq!(before.0[&up("a").to_string()].1.len(), 3, "floats have start timestamps, too");
    assert!(content(&tsdb, ORG)[&native_a].is_empty(), "observation counts are not read as samples");
    let report = tsdb.seal(NOW).expect("sealed");
    assert_eq!(report.samples, 900);
    assert_eq!((side_data(&tsdb, ORG), content(&tsdb, ORG)), before);
    let stats = tsdb.stats();
    assert_eq!((stats.samples, stats.orgs[0].histograms), (0, 0), "the head released them");
    let merged = tsdb.compact(NOW).expect("merged");
    assert_eq!((merged.jobs, merged.made), (2, 2), "{merged:?}");
    assert_eq!((side_data(&tsdb, ORG), content(&tsdb, ORG)), before);
    for part in &tsdb.stores.org(ORG).expect("there").segments().parts {
        part.segment.verify(true).expect("whole");
    }
    tsdb.close();
    drop(tsdb);
    let (tsdb, report) = open(dir.path());
    assert_eq!((report.read_only, report.notes, report.samples), (None, Vec::new(), 0));
    assert_eq!((side_data(&tsdb, ORG), content(&tsdb, ORG)), before);
    let (from, to) = (at(41_000), at(29_900));
    let selector = vec![Matcher::equal("job", "a")];
    tsdb.delete(ORG, &[selector], TimeRange::new(from, to), NOW).expect("deleted");
    let check = |tsdb: &Tsdb| {
        let found = side_data(tsdb, ORG);
        let left = found[&native_a].0.iter().all(|(at, _)| *at < from.as_ms() || to.as_ms() < *at);
        assert!(left && found[&native_a].0.len() > 500, "{}", found[&native_a].0.len());
        assert_eq!(found[&native_a].2.len(), 1, "its exemplars too");
        assert_eq!(found[&native("b").to_string()], before.0[&native("b").to_string()]);
    };
    check(&tsdb);
    tsdb.compact(NOW).expect("merged");
    check(&tsdb);
    drop(tsdb);
    check(&open(dir.path()).0);
}

#[test]
fn damaged_histograms_are_reported_and_the_others_are_read() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    for job in ["a", "b"] {
        write_native(&tsdb, ORG, &native(job), (0..50).map(|n| (at(5_000 - n * 10), histogram(3))));
    }
    tsdb.seal(NOW).expect("sealed");
    let before = side_data(&tsdb, ORG);
    let (path, place) = {
        let set = tsdb.stores.org(ORG).expect("there").segments();
        let part = set.beside().next().expect("one");
        let id = part.segment.side_data_ids().next().expect("one");
        let run = part.segment.side_data(id).expect("whole").expect("there").to_vec();
        let path = dir.path().join("segments").join(ORG.to_string()).join(part.meta().file_name());
        let bytes = std::fs::read(&path).expect("read");
        let place = bytes.windows(run.len()).position(|window| window == run).expect("in the file");
        (path, place)
    };
    drop(tsdb);
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[place + 20] ^= 1;
    std::fs::write(&path, &bytes).expect("written");
    let (tsdb, _) = open(dir.path());
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let found = snapshot.select(&[Matcher::equal("__name__", "native")], TimeRange::ALL);
    let mut lens = Vec::new();
    for series in &found {
        let mut out = HistogramColumns::default();
        snapshot.read_histograms(series.id, TimeRange::ALL, &mut out);
        lens.push((out.len(), before[&series.labels.to_string()].0.len()));
    }
    assert_eq!(lens, [(0, 50), (50, 50)]);
    assert_eq!(snapshot.warnings().len(), 1, "{:?}", snapshot.warnings());
}

#[test]
fn two_months_of_late_samples_and_histograms_are_sealed() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let day = 86_400_000;
    let both = |from: i64, count: i64| {
        for n in 0..count {
            write(&tsdb, ORG, &up("a"), &[ago(from - n * day, 1.0)]);
            write_native(&tsdb, ORG, &native("a"), [(at(from - n * day), histogram(9))]);
        }
    };
    both(0, 1);
    tsdb.seal(NOW).expect("sealed");
    both(60 * day, 60);
    both(-1_000, 1);
    let (floats, histograms) = (content(&tsdb, ORG), side_data(&tsdb, ORG));
    let report = tsdb.seal(NOW.plus_ms(2_000)).expect("sealed");
    assert!((10..=124).contains(&report.segments), "{report:?}");
    assert_eq!((content(&tsdb, ORG), side_data(&tsdb, ORG)), (floats.clone(), histograms.clone()));
    drop(tsdb);
    let (tsdb, _) = open(dir.path());
    assert_eq!((content(&tsdb, ORG), side_data(&tsdb, ORG)), (floats, histograms));
}

#[test]
fn samples_after_a_deletion_of_the_newest_histogram_are_judged_alike_after_a_start() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let put =
        |ms: i64, count: u64| write_native(&tsdb, ORG, &native("a"), [(at(ms), histogram(count))]).stored;
    assert_eq!((put(9_000, 1), put(1_000, 2)), (1, 1));
    let matcher = Matcher::new("job", crate::model::MatchOp::Equal, "a").expect("one");
    tsdb.delete(ORG, &[vec![matcher]], TimeRange::new(at(2_000), NOW), NOW).expect("deleted");
    tsdb.checkpoint().expect("made");
    assert_eq!((put(5_000, 3), put(5_000, 4)), (1, 0), "in order, and then refused: the newest is gone");
    let before = side_data(&tsdb, ORG);
    drop(tsdb);
    assert_eq!(side_data(&open(dir.path()).0, ORG), before);
}
