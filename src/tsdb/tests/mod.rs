//! Tests of the store through its public functions.

mod adversary;
mod clock;
mod crash;
mod decoded;
mod deletions;
mod everything;
mod faults;
mod imports;
mod keyed;
mod late_seal;
mod limits;
mod listings;
mod locks;
mod log_tail;
mod model;
mod planted;
mod power;
mod prefetch;
mod queue;
mod quota;
mod reading;
mod refusing;
mod registry_load;
mod replaying;
mod seal;
mod side;
mod side_rows;
mod tail;
mod upkeep;
mod write_amplification;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::maintenance::checkpoint::{self, Folder};
use super::store::{Record, Stores};
use super::wal::record::RecordKind;
use super::wal::sink::Sink;
use super::*;
use crate::entropy::Entropy;
use crate::kv::{Control, ControlOptions, DataFolder};
use crate::model::{
    Access, BatchBuilder, HistogramColumns, Labels, OrgId, Sample, StoreId, TimeRange, Timestamp,
};

const NOW: Timestamp = Timestamp::from_ms(1_795_000_000_000);
const STORE: StoreId = StoreId([7; 16]);
const ORG: OrgId = OrgId(3);

/// The time and bit pattern of all samples, by label set.
type StoreContent = BTreeMap<String, Vec<(i64, u64)>>;

/// The disk of the tests has space unless a test says otherwise; the machine's own may be nearly
/// full.
fn faults() -> Arc<Faults> {
    let faults = Faults::default();
    faults.free_bytes.store(1 << 40, Ordering::SeqCst);
    Arc::new(faults)
}

/// Options under which retention accepts every clock at once. The tests of its clock are in
/// `clock`.
fn options(faults: &Arc<Faults>) -> Options {
    let days = std::sync::atomic::AtomicU64::new(0);
    let elapsed =
        Elapsed::by(move || Duration::from_secs(days.fetch_add(10_000, Ordering::Relaxed) * 86_400));
    let expiry_grace = Duration::ZERO;
    Options { disk: Disk::Faulty(Arc::clone(faults)), elapsed, expiry_grace, ..Options::default() }
}

/// An open store with its accounts' database in `accounts/`. They are closed in this order.
pub(crate) struct Opened {
    pub(crate) tsdb: Arc<Tsdb>,
    /// Kept open with the store, so that a copy of the folder contains it.
    _control: Arc<Control>,
    _folder: DataFolder,
}

impl std::ops::Deref for Opened {
    type Target = Tsdb;

    fn deref(&self) -> &Tsdb {
        &self.tsdb
    }
}

fn control(dir: &Path) -> (Arc<Control>, DataFolder) {
    let folder =
        DataFolder::open(&dir.join("accounts"), NOW, &mut Entropy::seeded(2)).expect("a folder for accounts");
    let options = ControlOptions { now: NOW, users_table: 1 };
    let (control, _) = Control::open(&folder, &options).expect("accounts");
    (Arc::new(control), folder)
}

fn try_open(dir: &Path, store: StoreId, options: Options) -> Result<(Opened, RecoveryReport), OpenError> {
    try_open_at(dir, store, options, NOW)
}

fn try_open_at(
    dir: &Path,
    store: StoreId,
    options: Options,
    now: Timestamp,
) -> Result<(Opened, RecoveryReport), OpenError> {
    let (control, folder) = control(dir);
    let home = Home { dir, store, control: Arc::clone(&control) };
    let (tsdb, report) = Tsdb::open(home, options, &mut Entropy::seeded(1), now)?;
    Ok((Opened { tsdb: Arc::new(tsdb), _control: control, _folder: folder }, report))
}

pub(crate) fn open_with(dir: &Path, options: Options) -> (Opened, RecoveryReport) {
    try_open(dir, STORE, options).expect("opens")
}

fn open(dir: &Path) -> (Opened, RecoveryReport) {
    open_with(dir, options(&faults()))
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::from_pairs(pairs.iter().copied())
}

/// Writes a checkpoint that claims less than it holds: the last five records are replayed over rows
/// that contain them.
fn checkpoint_claiming_less(tsdb: &Tsdb) {
    let folder = tsdb.folder.clone().expect("on disk");
    let early = tsdb.stats().last_seq.saturating_sub(5);
    let barriers = checkpoint::barriers(&tsdb.stores);
    let start = checkpoint::CheckpointStart { replay_seq: early, barriers };
    checkpoint::write(&folder, &tsdb.stores, start, || Ok(())).expect("made");
}

/// Seals like the server's task. A window closes only after a quiet time.
fn seal_due(tsdb: &Tsdb) {
    for later in [0, 10_000] {
        tsdb.seal_if_due(NOW.plus_ms(later)).expect("sealed");
    }
}

fn up(job: &str) -> Labels {
    labels(&[("__name__", "up"), ("job", job)])
}

/// Returns a sample `ms` milliseconds before now.
fn ago(ms: i64, value: f64) -> Sample {
    Sample { at: NOW.plus_ms(-ms), value }
}

fn write(tsdb: &Tsdb, org: OrgId, series: &Labels, samples: &[Sample]) -> AppendReport {
    try_write(tsdb, org, series, samples).expect("stored")
}

fn try_write(
    tsdb: &Tsdb,
    org: OrgId,
    series: &Labels,
    samples: &[Sample],
) -> Result<AppendReport, AppendError> {
    let mut batch = BatchBuilder::default();
    batch.series(series, samples.iter().copied());
    tsdb.append(org, &batch.batch(), NOW)
}

/// Returns everything in a store without writers. Also checks that reads of a few samples of each
/// series, and of the newest alone, agree with it.
fn content(tsdb: &Tsdb, org: OrgId) -> StoreContent {
    let snapshot = tsdb.snapshot(&Access::whole(org));
    let content = read_whole(&snapshot);
    check_short_reads(&snapshot, &content);
    content
}

/// Reads like a query: one series after the other, with a prefetch of all of them.
fn read_whole(snapshot: &Snapshot) -> StoreContent {
    let found = snapshot.select(&[], TimeRange::ALL);
    let mut reader = snapshot.reader(TimeRange::ALL, NOW);
    reader.look_ahead(found.iter().map(|series| series.id));
    let (mut out, mut histograms) = (ReadColumns::default(), HistogramColumns::default());
    let mut content = StoreContent::new();
    for series in found {
        reader.read(series.id, &mut out, &mut histograms);
        let is_non_decreasing =
            out.values().windows(2).all(|two| two[0] <= two[1]) && !out.values().iter().any(|v| v.is_nan());
        assert!(is_non_decreasing || !out.is_known_to_rise(), "{}: {:?}", series.labels, out.values());
        let samples = out.times().iter().copied().zip(out.values().iter().map(|v| v.to_bits()));
        content.insert(series.labels.to_string(), samples.collect());
    }
    content
}

/// Reads a few samples of each series, and the newest alone, at some times, and compares them with
/// the content.
fn check_short_reads(snapshot: &Snapshot, content: &StoreContent) {
    let times: BTreeSet<i64> = content.values().flatten().map(|(at, _)| *at).collect();
    let times: Vec<i64> = times.into_iter().collect();
    let indices = [times.len() / 2, times.len().saturating_sub(1)];
    for (at, length) in indices.iter().filter_map(|index| times.get(*index)).zip([60_000, 300_000]) {
        let range = TimeRange::new(Timestamp::from_ms(at - length), Timestamp::from_ms(*at));
        let mut found = snapshot.select(&[], range);
        // In the order of ids, as queries read them. Blocks ordered by labels differ.
        found.sort_unstable_by_key(|series| series.id);
        for newest in [false, true] {
            let reader = snapshot.reader(range, NOW);
            let mut reader = if newest { reader.newest_only() } else { reader };
            let (mut out, mut histograms) = (ReadColumns::default(), HistogramColumns::default());
            let mut left = content.clone();
            for block in found.chunks(100) {
                reader.look_ahead(block.iter().map(|series| series.id));
                for series in block {
                    reader.read(series.id, &mut out, &mut histograms);
                    let samples = out.times().iter().copied().zip(out.values().iter().map(|v| v.to_bits()));
                    let samples: Vec<(i64, u64)> = samples.collect();
                    let all = left.remove(&series.labels.to_string()).unwrap_or_default();
                    let within = all.into_iter().filter(|(at, _)| range.contains(Timestamp::from_ms(*at)));
                    let mut expected: Vec<(i64, u64)> = within.collect();
                    if newest && !histograms.is_empty() {
                        // A histogram may be the newest.
                        continue;
                    }
                    expected.drain(..if newest { expected.len().saturating_sub(1) } else { 0 });
                    assert_eq!(samples, expected, "{} in {range:?}, newest alone: {newest}", series.labels);
                }
            }
            let missed = left.values().flatten().find(|(at, _)| range.contains(Timestamp::from_ms(*at)));
            assert_eq!(missed, None, "not selected in {range:?}");
        }
    }
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("created");
    for entry in std::fs::read_dir(from).expect("listed") {
        let path = entry.expect("entry").path();
        let target = to.join(path.file_name().expect("named"));
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            // A spare file may be renamed during the copy. It holds no records.
            let copied = std::fs::copy(&path, &target);
            assert!(copied.is_ok() || path.extension().is_some_and(|e| e == "new"), "{}", path.display());
        }
    }
}
