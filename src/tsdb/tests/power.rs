//! The log on a disk that loses power at any time. Every state that a cut can leave opens with
//! everything that was acknowledged and nothing that was never sent. Each sync is needed: without
//! it some cut loses data.

mod failing;
mod importing;
mod sealing;
mod shrinking;

use std::collections::BTreeSet;

use super::*;
use crate::kv::ops::recording::{Cut, Op, Recording, Trace};
use crate::model::effort::rounds;

/// The number of states tried after each operation.
const STATES: usize = 6;

/// The bytes of a log file. Some batches fill it.
const FILE_BYTES: u32 = 8_160;

/// Returns the batches in the order of their responses: values without a pattern, about 730 bytes
/// each. The last file is less than half full, since otherwise the next file would be prepared, and
/// the syncs of a file without records lose nothing.
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

/// Opens the log with accounts that no cut touches. No seal runs here, so the account tables have
/// no rows about the log.
fn open_beside(dir: &Path, control: &Arc<Control>) -> Result<(Tsdb, RecoveryReport), OpenError> {
    let home = Home { dir, store: STORE, control: Arc::clone(control) };
    Tsdb::open(home, small_files(), &mut Entropy::seeded(1), NOW)
}

fn trace(control: &Arc<Control>) -> Trace {
    trace_with(control, small_files())
}

fn trace_with(control: &Arc<Control>, options: Options) -> Trace {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
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

/// Describes what is wrong with the state after a cut, if anything.
fn judge(cut: &Cut, control: &Arc<Control>) -> Option<String> {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
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

/// Opens the store that a cut left. Returns it with the complaint of its start, if any.
///
/// # Errors
/// A description if the store does not open.
fn opened(cut: &Cut, dir: &Path) -> Result<(Opened, Option<String>), String> {
    cut.put(dir);
    let (tsdb, report) = try_open(dir, STORE, small_files())
        .map_err(|e| format!("after {} operations it does not open: {e}", cut.at))?;
    Ok((tsdb, report.read_only.or_else(|| report.notes.first().cloned())))
}

/// Describes lost or invented samples.
fn judge_content(cut: &Cut, tsdb: &Tsdb) -> Option<String> {
    judge_stored(&cut.answered, tsdb).map(|what| format!("after {} operations {what}", cut.at))
}

/// Like `judge_content`, for the acknowledged batches.
fn judge_stored(answered: &BTreeSet<usize>, tsdb: &Tsdb) -> Option<String> {
    judge_found(answered, content(tsdb, ORG))
}

/// Like `judge_stored`, for content that was already read.
fn judge_found(answered: &BTreeSet<usize>, found: StoreContent) -> Option<String> {
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
    let unknown =
        found.iter().find(|(series, have)| !sent.get(*series).is_some_and(|sent| have.is_subset(sent)));
    unknown.map(|(series, _)| format!("{series} holds samples that were never sent"))
}

#[test]
fn every_state_that_a_power_cut_can_leave_of_the_log_opens_with_all_acknowledged_samples() {
    let accounts = crate::kv::scratch::temporary_folder().expect("made");
    let (control, _folder) = control(accounts.path());
    assert_eq!(trace(&control).cuts(STATES, &[], |cut| judge(cut, &control)), None);
}

#[test]
fn every_state_that_a_power_cut_can_leave_of_an_allocated_log_opens_with_all_acknowledged_samples() {
    let accounts = crate::kv::scratch::temporary_folder().expect("made");
    let (control, _folder) = control(accounts.path());
    let faults = faults();
    faults.log_file_bytes.store(FILE_BYTES, Ordering::SeqCst);
    faults.allocate_log_files.store(true, Ordering::SeqCst);
    let trace = trace_with(&control, options(&faults));
    let allocated = |op: &Op| matches!(op, Op::SetLen { path, .. } if path.ends_with("0000000002.wal.new"));
    assert!(trace.ops.iter().any(allocated), "the files were filled with zeros");
    assert_eq!(trace.cuts(STATES, &[], |cut| judge(cut, &control)), None);
}

#[test]
fn without_any_one_sync_of_the_log_some_power_cut_loses_samples() {
    let accounts = crate::kv::scratch::temporary_folder().expect("made");
    let (control, _folder) = control(accounts.path());
    let trace = trace(&control);
    // A quick run tries every fourth sync, and those of the directory itself.
    let every = rounds(4, 1);
    let syncs = trace.syncs().into_iter().enumerate();
    let redundant: Vec<(usize, String)> = syncs
        .filter(|(number, (_, name))| name.is_empty() || number % every == 0)
        .map(|(_, sync)| sync)
        .filter(|(index, _)| trace.cuts(STATES, &[*index], |cut| judge(cut, &control)).is_none())
        .collect();
    // The sync of the names of the store's other directories. Without them, a lost log would look
    // like that of a new store.
    let index = redundant.first().map_or(0, |(index, _)| *index);
    assert_eq!(redundant, [(index, String::new())]);
}

/// A checkpoint makes earlier writes durable. Later ones may be lost, which is not damage.
#[test]
fn with_an_interval_every_cut_opens_with_all_that_a_checkpoint_covers() {
    let (dir, accounts) = (
        crate::kv::scratch::temporary_folder().expect("made"),
        crate::kv::scratch::temporary_folder().expect("made"),
    );
    let (control, _folder) = control(accounts.path());
    let recording = Recording::start(dir.path());
    let durability = Durability::Interval(std::time::Duration::from_secs(3_600));
    let home = Home { dir: dir.path(), store: STORE, control: Arc::clone(&control) };
    let options = Options { durability, ..small_files() };
    let (tsdb, _) = Tsdb::open(home, options, &mut Entropy::seeded(1), NOW).expect("opens");
    for (number, (series, samples)) in batches().iter().enumerate() {
        write(&tsdb, ORG, series, samples);
        if number == 5 {
            tsdb.checkpoint().expect("made");
            (0..=number).for_each(|number| recording.answered(number));
        }
    }
    drop(tsdb);
    // Accounts from before the checkpoint: the current ones record how far the log was durable at
    // the checkpoint.
    let before = crate::kv::scratch::temporary_folder().expect("made");
    let (before, _folder) = super::control(before.path());
    assert_eq!(recording.finish().cuts(STATES, &[], |cut| judge(cut, &before)), None);
}
