//! Whole folders with everything in them that the store keeps: floats, native histograms, start timestamps, exemplars,
//! metadata, accounts. What is done to them is stopped at every operation, and after every cut of the power.

mod stops;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use super::*;
use crate::entropy::Entropy;
use crate::kv::{Control, ControlOptions, DataFolder, DatabaseError, Record, with_sources};
use crate::model::{
    Access, BatchBuilder, BucketSpan, CounterReset, Exemplar, Histogram, HistogramColumns, HistogramCounts,
    HistogramShape, Labels, MetricKind, OrgId, Sample, StartChange, TimeRange, Timestamp,
};
use crate::tsdb::{self, Disk, Faults, Home, Options, SampleColumns, Tsdb};

const NOW: Timestamp = Timestamp::from_ms(1_795_000_000_000);
const ORG: OrgId = OrgId(1);

#[derive(Debug, Serialize, Deserialize)]
struct User(String);

impl Record for User {
    const TABLE: u8 = 1;
    const KIND: u8 = 1;
    const VERSION: u8 = 1;
    type Key = u32;
}

/// What a folder holds.
#[derive(Clone, Debug, Default, PartialEq)]
struct Held {
    floats: BTreeMap<String, Vec<(i64, u64)>>,
    histograms: BTreeMap<String, Vec<(i64, Histogram)>>,
    starts: BTreeMap<String, Vec<StartChange>>,
    exemplars: BTreeMap<String, Vec<Exemplar>>,
    metadata: Vec<String>,
    users: Vec<(u32, String)>,
}

fn missing<T: PartialEq>(
    before: &BTreeMap<String, Vec<T>>,
    now: &BTreeMap<String, Vec<T>>,
) -> Result<u64, String> {
    for (series, have) in now {
        let known = before.get(series);
        if have.iter().any(|one| known.is_none_or(|known| !known.contains(one))) {
            return Err(format!("{series} holds what was never there"));
        }
    }
    let all = |held: &BTreeMap<String, Vec<T>>| held.values().map(|some| some.len() as u64).sum::<u64>();
    Ok(all(before) - all(now))
}

impl Held {
    /// Samples that are missing, start timestamps and exemplars that are missing.
    ///
    /// # Errors
    /// What was invented.
    fn missing(&self, now: &Held) -> Result<(u64, u64, u64), String> {
        let samples = missing(&self.floats, &now.floats)? + missing(&self.histograms, &now.histograms)?;
        Ok((samples, missing(&self.starts, &now.starts)?, missing(&self.exemplars, &now.exemplars)?))
    }
}

struct Opened {
    tsdb: Tsdb,
    control: Arc<Control>,
    said: Vec<String>,
    folder: DataFolder,
}

fn options() -> Options {
    let faults = Faults::default();
    faults.free_bytes.store(1 << 40, Ordering::SeqCst);
    faults.log_file_bytes.store(16 << 10, Ordering::SeqCst);
    Options { disk: Disk::Faulty(Arc::new(faults)), ahead_max: None, ..Options::default() }
}

fn try_open(dir: &Path, accept_loss: bool) -> Result<Opened, String> {
    let mut rng = Entropy::seeded(1);
    let folder = DataFolder::open(dir, NOW, &mut rng).map_err(|e| with_sources(&e))?;
    let control_options = ControlOptions { now: NOW, users_table: User::TABLE };
    let (control, report) = Control::open(&folder, &control_options).map_err(|e| with_sources(&e))?;
    let mut said = report.notes;
    let control = Arc::new(control);
    let home = Home { dir, store: folder.store_id(), control: Arc::clone(&control) };
    if accept_loss {
        let lost = tsdb::accept_loss(&home, NOW).map_err(|e| with_sources(&e))?;
        said.extend(
            lost.into_iter().map(|finding| format!("accepted: {} {:?}", finding.what, finding.count)),
        );
    }
    let (tsdb, report) = Tsdb::open(home, options(), &mut rng, NOW).map_err(|e| with_sources(&e))?;
    said.extend(report.notes);
    said.extend(report.read_only.map(|why| format!("read-only: {why}")));
    Ok(Opened { tsdb, control, said, folder })
}

fn open(dir: &Path) -> Opened {
    try_open(dir, false).expect("opens")
}

impl Opened {
    fn held(&self) -> Held {
        let snapshot = self.tsdb.snapshot(&Access::whole(ORG));
        let (mut floats, mut histograms) = (SampleColumns::default(), HistogramColumns::default());
        let mut held = Held::default();
        for series in snapshot.select(&[], TimeRange::ALL) {
            let name = series.labels.to_string();
            snapshot.read(series.id, TimeRange::ALL, &mut floats);
            snapshot.read_histograms(series.id, TimeRange::ALL, &mut histograms);
            let bits = floats.values.iter().map(|value| value.to_bits());
            held.floats.insert(name.clone(), floats.times.iter().copied().zip(bits).collect());
            let pairs = histograms.times.iter().copied().zip(histograms.histograms.iter().cloned());
            held.histograms.insert(name.clone(), pairs.collect());
            held.starts.insert(name, snapshot.starts(series.id, TimeRange::ALL));
        }
        for series in snapshot.exemplars(&[&[]], TimeRange::ALL, usize::MAX).items {
            held.exemplars.insert(series.labels.to_string(), series.exemplars);
        }
        let metadata = snapshot.metadata(None, usize::MAX).items;
        held.metadata = metadata.iter().map(|known| format!("{known:?}")).collect();
        let users = self.control.scan::<User>(&()).expect("users");
        held.users = users.into_iter().map(|(id, user)| (id, user.0)).collect();
        // That expressions do not look at histograms is no news here.
        let warnings = snapshot.warnings();
        assert!(warnings.iter().all(|warning| warning.contains("native histograms")), "{warnings:?}");
        held
    }

    /// An ordered end.
    fn close(self) {
        self.tsdb.close();
        drop(self.tsdb);
        Arc::into_inner(self.control).expect("let go of").close().expect("closed");
        self.folder.close_clean(NOW).expect("closed");
    }
}

fn histogram(count: u64, wide: bool) -> Histogram {
    let spans = vec![BucketSpan { offset: -2, length: if wide { 9 } else { 3 } }];
    let shape = HistogramShape::new(2, 1e-9, Vec::new(), spans, Vec::new()).expect("valid");
    let buckets: Vec<u64> = (0..shape.buckets() as u64).map(|bucket| count * (bucket % 3)).collect();
    let counts = HistogramCounts::Integer { count: 1 + buckets.iter().sum::<u64>(), zero: 1, buckets };
    Histogram::new(Arc::new(shape), CounterReset::Unknown, count as f64 / 3.0, counts).expect("valid")
}

/// So many steps of 15 s, the first one so many before now.
fn write(tsdb: &Tsdb, first: i64, count: i64) {
    for step in first..first + count {
        let at = NOW.plus_ms(step * 15_000 - 90_000_000);
        let mut batch = BatchBuilder::default();
        for n in 0..3i64 {
            let labels =
                |name: &str| Labels::from_pairs([("__name__", name.to_owned()), ("n", n.to_string())]);
            let bits = ((step * 7 + n) as u64 + 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2;
            batch.series(&labels("float"), [Sample { at, value: f64::from_bits(bits) }]);
            batch.start(at, at.plus_ms(-(step % 40) * 15_000 - 1));
            batch.series(&labels("native"), []);
            batch.histograms([(at, histogram((step * 5 + n).cast_unsigned(), step % 60 < 30))]);
            batch.start(at, at.plus_ms(-(step % 25) * 15_000 - 1));
            if step % 10 == 0 {
                let id = Labels::from_pairs([("trace_id", step.to_string())]);
                batch.exemplar(Exemplar { labels: id, value: 0.5, at });
            }
        }
        batch.describe("native", MetricKind::Histogram, &format!("help {}", step / 100), "seconds");
        let report = tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
        assert_eq!((report.stored, report.refused), (6, 0));
    }
}

fn put_user(control: &Control, id: u32) {
    let user = User(format!("user {id}"));
    let put = control.commit(move |tx| {
        tx.put(&id, &user);
        Ok::<(), DatabaseError>(())
    });
    put.expect("put");
}

/// A stopped folder with sealed segments of both kinds, a checkpoint, and more in the log; and what it holds.
fn make(dir: &Path) -> Held {
    let opened = open(dir);
    put_user(&opened.control, 1);
    opened.folder.mark_initialised(NOW).expect("marked");
    fs::write(dir.join("master.key"), "00".repeat(32)).expect("written");
    write(&opened.tsdb, 0, 120);
    opened.tsdb.seal(NOW).expect("sealed");
    write(&opened.tsdb, 1_000, 40);
    opened.tsdb.checkpoint(NOW).expect("made");
    write(&opened.tsdb, 2_000, 40);
    put_user(&opened.control, 2);
    let held = opened.held();
    assert_eq!((held.floats.len(), held.histograms["{__name__=\"native\", n=\"1\"}"].len()), (6, 200));
    assert!(held.exemplars.values().all(|some| some.len() == 20) && held.exemplars.len() == 3);
    assert!(held.starts.values().all(|some| some.len() > 3) && held.metadata.len() == 1);
    assert_eq!((held.users.len(), opened.said.len()), (2, 0));
    // As a kill leaves it: the next start reads the log.
    drop(opened);
    held
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("created");
    for entry in fs::read_dir(from).expect("listed") {
        let path = entry.expect("entry").path();
        let target = to.join(path.file_name().expect("named"));
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            fs::copy(&path, &target).expect("copied");
        }
    }
}

fn files_below(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let found = tree::files(dir).expect("listed").into_iter().map(|(path, _)| dir.join(path));
    found.filter(|path| path.to_string_lossy().ends_with(ending)).collect()
}

fn check_deep(dir: &Path) -> CheckReport {
    let scratch = tempfile::tempdir().expect("made");
    let options =
        CheckOptions { deep: true, users_table: User::TABLE, scratch: scratch.path().join("scratch") };
    check(dir, &options, &mut |_| ()).expect("checked")
}

fn repair_to(dir: &Path, to: &Path) -> Result<RepairReport, RepairError> {
    let scratch = tempfile::tempdir().expect("made");
    repair(dir, to, &scratch.path().join("scratch"), &mut |_| ())
}

/// What the server sets aside.
fn stage(opened: &Opened, dir: &Path, to: &Path) -> Facts {
    fs::create_dir(to).expect("made");
    let mut changes = 0;
    let staged = opened.tsdb.stage_backup(to, &mut || {
        changes = opened.control.copy_to(to).map_err(|e| with_sources(&e))?.seq;
        Ok(())
    });
    for name in ["STORE", "INITIALISED", "master.key"] {
        fs::copy(dir.join(name), to.join(name)).expect("copied");
    }
    Facts {
        store: opened.folder.store_id().to_string(),
        made_at: NOW.to_rfc3339(),
        with_key: true,
        account_changes: changes,
        log_records: staged.expect("set aside"),
    }
}

#[test]
fn a_backup_and_a_repaired_copy_hold_everything_that_the_folder_holds() {
    let dir = tempfile::tempdir().expect("made");
    let held = make(dir.path());
    assert_eq!(check_deep(dir.path()).findings, []);
    let out = tempfile::tempdir().expect("made");
    let (staged, backup) = (dir.path().join("backup.new"), out.path().join("backup"));
    let opened = open(dir.path());
    let facts = stage(&opened, dir.path(), &staged);
    write(&opened.tsdb, 3_000, 5);
    finish_backup(&staged, &backup, &facts, &mut |_| ()).expect("backed up");
    drop(opened);
    assert_eq!(check_deep(&backup).findings, []);
    let restored = out.path().join("restored");
    restore(&restored, &backup, &mut |_| ()).expect("restored");
    let repaired = out.path().join("repaired");
    let report = repair_to(&backup, &repaired).expect("repaired");
    assert_eq!(report.lost, []);
    for folder in [&restored, &repaired] {
        let opened = open(folder);
        assert_eq!(opened.said, Vec::<String>::new());
        assert!(opened.held() == held, "{}", folder.display());
        opened.tsdb.seal_and_merge(NOW).expect("sealed");
        assert!(opened.held() == held, "{}, sealed", folder.display());
        opened.close();
        assert_eq!(check_deep(folder).findings, []);
    }
}

/// Whatever byte of a segment flips: the deep check names the file, nothing is invented, and of what is missing after a
/// repair every sample is counted, everything else told.
#[test]
fn of_a_damaged_segment_every_sample_that_a_repair_loses_is_counted() {
    let origin = tempfile::tempdir().expect("made");
    let held = make(origin.path());
    let segments = files_below(&origin.path().join("segments"), ".seg");
    assert_eq!(segments.len(), 2, "floats, and histograms");
    let (mut lossy, mut salvaged, mut told_beside) = (0, 0, 0);
    for segment in &segments {
        let bytes = fs::read(segment).expect("read");
        let stride = (bytes.len() / 24) | 1;
        for place in (3..bytes.len()).step_by(stride) {
            let copy = tempfile::tempdir().expect("made");
            let (dir, to) = (copy.path().join("damaged"), copy.path().join("repaired"));
            copy_tree(origin.path(), &dir);
            let below = segment.strip_prefix(origin.path()).expect("inside");
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x10;
            fs::write(dir.join(below), damaged).expect("written");
            let found = check_deep(&dir);
            let named = found.findings.iter().any(|finding| finding.file == below);
            let report = repair_to(&dir, &to).expect("repaired");
            let opened = open(&to);
            assert_eq!(opened.said, Vec::<String>::new(), "byte {place}");
            let (samples, starts, exemplars) =
                held.missing(&opened.held()).unwrap_or_else(|what| panic!("byte {place}: {what}"));
            assert!(named || (samples, starts, exemplars) == (0, 0, 0), "byte {place}: {found:?}");
            let whole = report.lost.iter().find(|finding| finding.file == below);
            assert_eq!(
                whole.and_then(|finding| finding.count).unwrap_or(0),
                samples,
                "byte {place}: {report:?}"
            );
            let says = |words: &str| report.lost.iter().any(|finding| finding.what.contains(words));
            let all = says("cannot be opened") || says("wrong") || says("damaged");
            assert!(starts == 0 || says("start timestamps") || all, "byte {place}: {report:?}");
            assert!(exemplars == 0 || says("exemplars") || all, "byte {place}: {report:?}");
            lossy += u64::from(samples > 0);
            salvaged += u64::from(samples > 0 && samples < 360);
            told_beside += u64::from(says("histograms of {") || says("exemplars"));
            drop(opened);
            assert!(check_deep(&to).findings.iter().all(|finding| finding.weight == Weight::Note));
        }
    }
    assert!(lossy > 20 && salvaged > 10 && told_beside > 3, "{lossy} {salvaged} {told_beside}");
}
