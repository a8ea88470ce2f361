//! The log on a disk that loses power at any moment: every state that a cut can leave opens, with everything that was
//! answered and nothing that was never sent; and each sync is needed, since without it some cut loses something.

mod failing;
mod sealing;
mod shrinking;

use std::collections::BTreeSet;

use super::*;
use crate::kv::ops::recording::{Cut, Op, Recording, Trace};

/// States tried after each operation.
const STATES: usize = 6;

/// Bytes of a log file: some batches fill it.
const FILE_BYTES: u32 = 8_160;

/// What was sent, by the number of its answer: values without a pattern, some 730 B a batch. So many that the last file
/// is not half full: the next one would be made ready, and syncs of a file that takes nothing are nobody's loss.
fn batches() -> Vec<(Labels, Vec<Sample>)> {
    let value = |i: i64| f64::from_bits((i as u64 + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2);
    let batch = |n: i64| {
        let samples = (0..80).map(|i| ago(100_000 - n * 100 - i, value(n * 100 + i))).collect();
        (up(&format!("job-{}", n % 3)), samples)
    };
    (0..12).map(batch).collect()
}

fn small_files() -> Options {
    let faults = faults();
    faults.log_file_bytes.store(FILE_BYTES, Ordering::SeqCst);
    options(&faults)
}

/// Opens the log beside accounts that no cut touches: nothing is sealed here, so they have nothing to say about it.
fn open_beside(dir: &Path, control: &Arc<Control>) -> Result<(Tsdb, RecoveryReport), OpenError> {
    let home = Home { dir, store: STORE, control: Arc::clone(control) };
    Tsdb::open(home, small_files(), &mut Entropy::seeded(1), NOW)
}

fn trace(control: &Arc<Control>) -> Trace {
    trace_with(control, small_files())
}

fn trace_with(control: &Arc<Control>, options: Options) -> Trace {
    let dir = tempfile::tempdir().expect("made");
    let recording = Recording::start(dir.path());
    let home = Home { dir: dir.path(), store: STORE, control: Arc::clone(control) };
    let (tsdb, _) = Tsdb::open(home, options, &mut Entropy::seeded(1), NOW).expect("opens");
    for (number, (series, samples)) in batches().iter().enumerate() {
        write(&tsdb, ORG, series, samples);
        recording.answered(number);
    }
    drop(tsdb);
    recording.finish()
}

/// What is wrong with what a cut left.
fn judge(cut: &Cut, control: &Arc<Control>) -> Option<String> {
    let dir = tempfile::tempdir().expect("made");
    cut.put(dir.path());
    let (tsdb, report) = match open_beside(dir.path(), control) {
        Ok(opened) => opened,
        Err(e) => return Some(format!("after {} operations it does not open: {e}", cut.at)),
    };
    if let Some(why) = report.read_only {
        return Some(format!("after {} operations it is read-only: {why}", cut.at));
    }
    judge_content(cut, &tsdb)
}

/// The store that a cut left, put into a folder, and what its start complains of.
///
/// # Errors
/// What is wrong where it does not open.
fn opened(cut: &Cut, dir: &Path) -> Result<(Opened, Option<String>), String> {
    cut.put(dir);
    let (tsdb, report) = try_open(dir, STORE, small_files())
        .map_err(|e| format!("after {} operations it does not open: {e}", cut.at))?;
    Ok((tsdb, report.read_only.or_else(|| report.notes.first().cloned())))
}

/// What is lost, or invented.
fn judge_content(cut: &Cut, tsdb: &Tsdb) -> Option<String> {
    judge_stored(&cut.answered, tsdb).map(|what| format!("after {} operations {what}", cut.at))
}

/// The same, by the batches that were answered.
fn judge_stored(answered: &BTreeSet<usize>, tsdb: &Tsdb) -> Option<String> {
    judge_found(answered, content(tsdb, ORG))
}

/// The same of what was read.
fn judge_found(answered: &BTreeSet<usize>, found: Content) -> Option<String> {
    let found: BTreeMap<String, BTreeSet<(i64, u64)>> =
        found.into_iter().map(|(series, samples)| (series, samples.into_iter().collect())).collect();
    let mut sent: BTreeMap<String, BTreeSet<(i64, u64)>> = BTreeMap::new();
    for (number, (series, samples)) in batches().iter().enumerate() {
        let pairs: BTreeSet<_> = samples.iter().map(|s| (s.at.as_ms(), s.value.to_bits())).collect();
        let have = found.get(&series.to_string());
        if answered.contains(&number) && !have.is_some_and(|have| pairs.is_subset(have)) {
            return Some(format!("batch {number} is lost"));
        }
        sent.entry(series.to_string()).or_default().extend(pairs);
    }
    let strange =
        found.iter().find(|(series, have)| !sent.get(*series).is_some_and(|sent| have.is_subset(sent)));
    strange.map(|(series, _)| format!("{series} holds what was never sent"))
}

#[test]
fn every_state_that_a_power_cut_can_leave_of_the_log_opens_with_all_that_was_answered() {
    let accounts = tempfile::tempdir().expect("made");
    let (control, _folder) = control(accounts.path());
    assert_eq!(trace(&control).cuts(STATES, 1, &[], |cut| judge(cut, &control)), None);
}

#[test]
fn every_state_that_a_power_cut_can_leave_of_an_allocated_log_opens_with_all_that_was_answered() {
    let accounts = tempfile::tempdir().expect("made");
    let (control, _folder) = control(accounts.path());
    let faults = faults();
    faults.log_file_bytes.store(FILE_BYTES, Ordering::SeqCst);
    faults.allocate_log_files.store(true, Ordering::SeqCst);
    let trace = trace_with(&control, options(&faults));
    let allocated = |op: &Op| matches!(op, Op::SetLen { path, .. } if path.ends_with("0000000002.wal.new"));
    assert!(trace.ops.iter().any(allocated), "the files were filled with zeros");
    assert_eq!(trace.cuts(STATES, 1, &[], |cut| judge(cut, &control)), None);
}

#[test]
fn each_sync_of_the_log_left_out_loses_something() {
    let accounts = tempfile::tempdir().expect("made");
    let (control, _folder) = control(accounts.path());
    let trace = trace(&control);
    let needless: Vec<(usize, String)> = trace
        .syncs()
        .into_iter()
        .filter(|(place, _)| trace.cuts(STATES, 1, &[*place], |cut| judge(cut, &control)).is_none())
        .collect();
    // The names of the store's other directories: without them a log that is gone would look like a new store's.
    let place = needless.first().map_or(0, |(place, _)| *place);
    assert_eq!(needless, [(place, String::new())]);
}

/// A checkpoint makes durable what was written before it; what came after may be lost, and is no damage.
#[test]
fn with_an_interval_every_cut_opens_with_all_that_a_checkpoint_covers() {
    let (dir, accounts) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
    let (control, _folder) = control(accounts.path());
    let recording = Recording::start(dir.path());
    let durability = Durability::Interval(std::time::Duration::from_secs(3_600));
    let home = Home { dir: dir.path(), store: STORE, control: Arc::clone(&control) };
    let options = Options { durability, ..small_files() };
    let (tsdb, _) = Tsdb::open(home, options, &mut Entropy::seeded(1), NOW).expect("opens");
    for (number, (series, samples)) in batches().iter().enumerate() {
        write(&tsdb, ORG, series, samples);
        if number == 5 {
            tsdb.checkpoint(NOW).expect("made");
            (0..=number).for_each(|number| recording.answered(number));
        }
    }
    drop(tsdb);
    // Accounts of before: those of now know how far the log was durable at the checkpoint.
    let before = tempfile::tempdir().expect("made");
    let (before, _folder) = super::control(before.path());
    assert_eq!(recording.finish().cuts(STATES, 1, &[], |cut| judge(cut, &before)), None);
}
