//! A data folder with everything that the store keeps: floats, native histograms, start timestamps,
//! also late ones, exemplars, metadata, and accounts with two exports; and its content, read back.
//! The tests of `upkeep` and of old formats create their folders here.

mod start;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use promlet::entropy::Entropy;
use promlet::kv::{
    Control, ControlOptions, DataFolder, DatabaseError, KeyBinding, MasterKeySource, Record, Start,
};
use promlet::model::{
    Access, BatchBuilder, BucketSpan, CounterReset, Exemplar, Histogram, HistogramColumns, HistogramCounts,
    HistogramShape, Labels, MetricKind, OrgId, Pace, Sample, StartChange, TimeRange, Timestamp,
};
use promlet::tsdb::{self, Home, SampleColumns, Tsdb};
use serde::{Deserialize, Serialize};
use start::{options, words};

pub(crate) const NOW: Timestamp = Timestamp::from_ms(1_795_000_000_000);
pub(crate) const ORG: OrgId = OrgId(1);
const STEP_MS: i64 = 15_000;

/// The row of an account.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AccountRow(pub(crate) String);

impl Record for AccountRow {
    const TABLE: u8 = 1;
    const KIND: u8 = 1;
    const VERSION: u8 = 1;
    type Key = u32;
}

/// The content of a folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FolderContents {
    pub(crate) floats: BTreeMap<String, Vec<(i64, u64)>>,
    pub(crate) histograms: BTreeMap<String, Vec<(i64, Histogram)>>,
    pub(crate) starts: BTreeMap<String, Vec<StartChange>>,
    pub(crate) exemplars: BTreeMap<String, Vec<Exemplar>>,
    pub(crate) metadata: Vec<String>,
    pub(crate) users: Vec<(u32, String)>,
}

/// Counts the elements of `before` that are missing in `now`. `is_true` decides whether an element
/// of `now` is genuine.
///
/// # Errors
/// The series that contains an element that is not.
fn missing<T: PartialEq>(
    before: &BTreeMap<String, Vec<T>>,
    now: &BTreeMap<String, Vec<T>>,
    is_true: impl Fn(&[T], &T) -> bool,
) -> Result<u64, String> {
    for (series, have) in now {
        let known = before.get(series).map(Vec::as_slice).unwrap_or_default();
        if have.iter().any(|one| !is_true(known, one)) {
            return Err(format!("{series} holds what was never there"));
        }
    }
    let is_there = |series: &String, one: &T| now.get(series).is_some_and(|have| have.contains(one));
    let gone =
        before.iter().map(|(series, all)| all.iter().filter(|one| !is_there(series, one)).count() as u64);
    Ok(gone.sum())
}

/// Returns whether a start timestamp is genuine. If changes are lost, a repeated start is a change;
/// before a late change, only the value that held there is known.
fn is_genuine(said: &[StartChange], one: &StartChange) -> bool {
    let is_a_step = (one.at.as_ms() - at(0).as_ms()) % STEP_MS == 0;
    let held = said.iter().take_while(|change| change.at <= one.at).last();
    !is_a_step || held.is_some_and(|held| held.start == one.start)
}

impl FolderContents {
    /// Returns the numbers of missing samples, start timestamps and exemplars.
    ///
    /// # Errors
    /// The description of an invented element.
    pub(crate) fn missing(&self, now: &FolderContents) -> Result<(u64, u64, u64), String> {
        if let Some(user) = now.users.iter().find(|user| !self.users.contains(user)) {
            return Err(format!("{user:?} was never there"));
        }
        let floats = missing(&self.floats, &now.floats, |all, one| all.contains(one))?;
        let histograms = missing(&self.histograms, &now.histograms, |all, one| all.contains(one))?;
        let exemplars = missing(&self.exemplars, &now.exemplars, |all, one| all.contains(one))?;
        Ok((floats + histograms, missing(&self.starts, &now.starts, is_genuine)?, exemplars))
    }
}

/// An opened folder.
pub(crate) struct OpenedFolder {
    pub(crate) tsdb: Tsdb,
    pub(crate) control: Arc<Control>,
    /// The notes of the start.
    pub(crate) said: Vec<String>,
    /// The reason why the accounts' database was rebuilt.
    pub(crate) rebuilt: Option<String>,
    pub(crate) folder: DataFolder,
}

/// Opens a folder like the server, but without the master key.
///
/// # Errors
/// The text that the server would print before it ends.
pub(crate) fn try_open(dir: &Path, accept_loss: bool) -> Result<OpenedFolder, String> {
    let mut rng = Entropy::seeded(1);
    let folder = DataFolder::open(dir, NOW, &mut rng).map_err(|e| words(&e))?;
    let control_options = ControlOptions { now: NOW, users_table: AccountRow::TABLE };
    let (control, report) = Control::open(&folder, &control_options).map_err(|e| words(&e))?;
    let mut said = report.notes;
    let rebuilt = match report.start {
        Start::Rebuilt { why, .. } => Some(why),
        _ => None,
    };
    let control = Arc::new(control);
    let home = Home { dir, store: folder.store_id(), control: Arc::clone(&control) };
    if accept_loss {
        let lost = tsdb::accept_loss(&home, &mut rng, NOW).map_err(|e| words(&e))?;
        said.extend(
            lost.into_iter().map(|finding| format!("accepted: {} {:?}", finding.what, finding.count)),
        );
    }
    let (tsdb, report) = Tsdb::open(home, options(), &mut rng, NOW).map_err(|e| words(&e))?;
    said.extend(report.notes);
    said.extend(report.torn_tail);
    said.extend(report.read_only.map(|why| format!("read-only: {why}")));
    Ok(OpenedFolder { tsdb, control, said, rebuilt, folder })
}

impl OpenedFolder {
    /// Binds the accounts to the folder's master key, or checks that they are.
    ///
    /// # Errors
    /// The text that the server would print before it ends.
    pub(crate) fn bind_key(&self) -> Result<(), String> {
        let mut rng = Entropy::seeded(3);
        let key = self.folder.master_key(&MasterKeySource::Folder, &mut rng).map_err(|e| words(&e))?;
        match self.control.bind_master_key(key.0).map_err(|e| words(&e))? {
            KeyBinding::Other => Err("master.key is not the key that this store was bound to".to_owned()),
            _ => Ok(()),
        }
    }

    /// Returns the content of the folder, and the warnings about unreadable parts.
    pub(crate) fn read(&self) -> (FolderContents, Vec<String>) {
        let snapshot = self.tsdb.snapshot(&Access::whole(ORG));
        let (mut floats, mut histograms) = (SampleColumns::default(), HistogramColumns::default());
        let mut held = FolderContents::default();
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
        for series in snapshot
            .paced(&Pace::endless())
            .exemplars(&[&[]], TimeRange::ALL, usize::MAX)
            .expect("no deadline")
            .items
        {
            held.exemplars.insert(series.labels.to_string(), series.exemplars);
        }
        let metadata =
            snapshot.paced(&Pace::endless()).metadata(None, usize::MAX).expect("no deadline").items;
        held.metadata = metadata.iter().map(|known| format!("{known:?}")).collect();
        let users = self.control.scan::<AccountRow>(&()).expect("users");
        held.users = users.into_iter().map(|(id, user)| (id, user.0)).collect();
        (held, snapshot.warnings())
    }

    /// Returns the content of the folder, all of which must be readable.
    pub(crate) fn held(&self) -> FolderContents {
        let (held, warnings) = self.read();
        assert_eq!(warnings, Vec::<String>::new());
        held
    }

    /// Closes the folder cleanly, which writes an export of the accounts.
    pub(crate) fn close(self) {
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

fn at(step: i64) -> Timestamp {
    NOW.plus_ms(step * STEP_MS - 90_000_000)
}

fn labels(name: &str, n: i64) -> Labels {
    Labels::from_pairs([("__name__", name.to_owned()), ("n", n.to_string())])
}

/// Writes `count` steps of 15 s from step `first` on.
pub(crate) fn write(tsdb: &Tsdb, first: i64, count: i64) {
    for step in first..first + count {
        let at = at(step);
        let mut batch = BatchBuilder::default();
        for n in 0..3i64 {
            let bits = ((step * 7 + n) as u64 + 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2;
            batch.series(&labels("float", n), [Sample { at, value: f64::from_bits(bits) }]);
            batch.start(at, at.plus_ms(-(step % 40) * 15_000 - 1));
            batch.series(&labels("native", n), []);
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

/// Writes another start timestamp for a sealed step.
fn correct(tsdb: &Tsdb, step: i64) {
    let mut batch = BatchBuilder::default();
    batch.series(&labels("native", 1), []);
    batch.start(at(step), at(step).plus_ms(-7));
    assert_eq!(tsdb.append(ORG, &batch.batch(), NOW).expect("stored").refused, 0);
}

fn put_user(control: &Control, id: u32) {
    let user = AccountRow(format!("user {id}"));
    let put = control.commit(move |tx| {
        tx.put(&id, &user);
        Ok::<(), DatabaseError>(())
    });
    put.expect("put");
}

/// Creates an open folder with sealed segments of both kinds, a checkpoint, and more in the log,
/// and returns its content.
pub(crate) fn make(dir: &Path) -> (OpenedFolder, FolderContents) {
    make_of(dir, 30, 50)
}

/// As [`make`], with `in_checkpoint` steps after the last seal in the checkpoint and `in_log` steps
/// after it.
pub(crate) fn make_of(dir: &Path, in_checkpoint: i64, in_log: i64) -> (OpenedFolder, FolderContents) {
    for round in 0..2 {
        let opened = try_open(dir, false).expect("opens");
        opened.bind_key().expect("bound");
        put_user(&opened.control, round);
        opened.folder.mark_initialised(NOW).expect("marked");
        opened.close();
    }
    let opened = try_open(dir, false).expect("opens");
    put_user(&opened.control, 7);
    write(&opened.tsdb, 0, 60);
    opened.tsdb.seal(NOW).expect("sealed");
    correct(&opened.tsdb, 20);
    write(&opened.tsdb, 60, 60);
    opened.tsdb.seal_and_merge(NOW).expect("sealed");
    correct(&opened.tsdb, 30);
    write(&opened.tsdb, 1_000, in_checkpoint);
    opened.tsdb.checkpoint().expect("made");
    correct(&opened.tsdb, 40);
    write(&opened.tsdb, 2_000, in_log);
    put_user(&opened.control, 8);
    let held = opened.held();
    let lengths = |name: &str| held.histograms.get(&labels(name, 1).to_string()).map(Vec::len);
    assert_eq!((held.floats.len(), lengths("native"), lengths("float")), (6, Some(200), Some(0)));
    assert!(held.exemplars.values().all(|some| some.len() == 20) && held.exemplars.len() == 3);
    assert!(held.starts.values().all(|some| some.len() > 3) && held.metadata.len() == 1);
    for step in [20, 30, 40] {
        let said = StartChange { at: at(step), start: at(step).plus_ms(-7) };
        assert!(held.starts.get(&labels("native", 1).to_string()).is_some_and(|all| all.contains(&said)));
    }
    assert!(held.users.len() == 4 && opened.said.is_empty());
    (opened, held)
}

pub(crate) fn copy_tree(from: &Path, to: &Path) {
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
