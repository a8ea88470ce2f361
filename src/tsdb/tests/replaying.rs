//! Tests that a start with several threads gives the same result as with one.

use proptest::prelude::*;

use super::*;
use crate::model::{MatchOp, Matcher};
use crate::tsdb::head::{STRIPE_SERIES, slot};
use crate::tsdb::open_progress::{OpenControl, OpenStep, Phase, ProgressObserver};

/// Series of an organisation, in four stripes.
const SERIES: u32 = 3 * STRIPE_SERIES + 200;

/// An action before the crash.
#[derive(Clone, Debug)]
enum Action {
    /// Organisation; series, time in steps before now, and value.
    Write(u32, Vec<(u32, u16, u8)>),
    Seal,
    Delete(u32, u16),
    Checkpoint,
    Drop(u32),
}

fn action() -> impl Strategy<Value = Action> {
    let samples = prop::collection::vec((0..SERIES, 0u16..400, 0u8..4), 1..400);
    prop_oneof![
        12 => (1u32..4, samples).prop_map(|(org, samples)| Action::Write(org, samples)),
        1 => Just(Action::Seal),
        1 => (1u32..3, 0u16..400).prop_map(|(org, ago)| Action::Delete(org, ago)),
        1 => Just(Action::Checkpoint),
        // The third organisation is dropped and created again.
        1 => Just(Action::Drop(3)),
    ]
}

fn series(number: u32) -> Labels {
    labels(&[("__name__", "m"), ("n", &number.to_string())])
}

fn batch(samples: impl IntoIterator<Item = (u32, Sample)>) -> BatchBuilder {
    let mut batch = BatchBuilder::default();
    for (number, sample) in samples {
        batch.series(&series(number), [sample]);
    }
    batch
}

/// Creates a store in which all series have a sample, in every stripe.
fn seeded(dir: &Path, faults: &Arc<Faults>) {
    let (tsdb, _) = open_with(dir, options(faults));
    for org in 1..3 {
        let every = batch((0..SERIES).map(|number| (number, ago(3_600_000, 0.5))));
        tsdb.append(OrgId(org), &every.batch(), NOW).expect("stored");
    }
}

fn perform(tsdb: &Tsdb, action: &Action) {
    match action {
        Action::Write(org, samples) => {
            let sample = |(number, steps, value): &(u32, u16, u8)| {
                (*number, ago(i64::from(*steps) * 5_000, f64::from(*value)))
            };
            tsdb.append(OrgId(*org), &batch(samples.iter().map(sample)).batch(), NOW).expect("stored");
        }
        Action::Seal => drop(tsdb.seal(NOW.plus_ms(-600_000)).expect("sealed")),
        Action::Delete(org, steps) => {
            let from = NOW.plus_ms(-i64::from(*steps) * 5_000);
            let some = Matcher::new("n", MatchOp::Regex, ".*[37]").expect("a matcher");
            let range = TimeRange { start: from, end: from.plus_ms(300_000) };
            tsdb.delete(OrgId(*org), &[vec![some]], range, NOW).expect("deleted");
        }
        Action::Checkpoint => drop(tsdb.checkpoint().expect("made")),
        Action::Drop(org) => tsdb.drop_org(OrgId(*org), NOW).expect("dropped"),
    }
}

/// Returns everything that the heads hold and count, down to the bytes of chunks.
fn heads(tsdb: &Tsdb) -> Vec<u8> {
    use std::io::Write as _;
    let mut text = Vec::new();
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::SeqCst);
    for store in tsdb.stores.all() {
        let counters = &store.head.counters;
        let counted = (load(&counters.samples), load(&counters.late), load(&counters.bytes));
        let recorded =
            (store.last_seq.load(Ordering::SeqCst), store.arrivals.take_least(), store.arrivals.greatest());
        let _ = writeln!(
            text,
            "{} {counted:?} {recorded:?} {} {}",
            store.org,
            store.head.barrier(),
            load(&store.usage.log_bytes)
        );
        for stripe in store.head.spans().stripes() {
            let stripe = stripe.read().expect("whole");
            let _ = writeln!(
                text,
                "stripe {} {} {:?}",
                stripe.applied_seq,
                stripe.released_until(),
                stripe.size()
            );
            for slot in 0..slot(STRIPE_SERIES - 1) + 1 {
                stripe.copy_chunks(slot, |order, samples, least, chunk| {
                    let _ = write!(text, "{slot} {order:?} {samples} {least} {} ", chunk.len());
                    text.extend_from_slice(chunk);
                });
            }
        }
    }
    let _ = writeln!(text, "{} {}", load(&tsdb.stores.uncovered), load(&tsdb.stores.head_bytes));
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::model::effort::rounds(2, 12), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_by_several_threads_equals_one_by_one_thread_to_the_bit(
        actions in prop::collection::vec(action(), 1..14),
    ) {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let faults = faults();
        seeded(dir.path(), &faults);
        let (tsdb, _) = open_with(dir.path(), options(&faults));
        actions.iter().for_each(|action| perform(&tsdb, action));
        // Like a crash: nothing is sealed, no mark is written.
        drop(tsdb);
        let replayed = |threads: usize| {
            let copy = crate::kv::scratch::temporary_folder().expect("made");
            copy_tree(dir.path(), copy.path());
            let (tsdb, report) = open_with(copy.path(), Options { replay_threads: threads, ..options(&faults) });
            assert_eq!(report.read_only, None);
            (heads(&tsdb), report)
        };
        let alone = replayed(0);
        for threads in [1, 2, 3] {
            prop_assert!(replayed(threads) == alone, "{threads} threads give another result");
        }
    }
}

/// Creates a store with a checkpoint, segments and a log of several files that was not closed
/// cleanly. Returns the number of samples stored after the checkpoint.
fn crashed(dir: &Path, faults: &Arc<Faults>) -> u64 {
    faults.log_file_bytes.store(64 << 10, Ordering::SeqCst);
    seeded(dir, faults);
    let (tsdb, _) = open_with(dir, options(faults));
    tsdb.seal(NOW.plus_ms(-1_800_000)).expect("sealed");
    let mut stored = 0;
    for step in 0..40 {
        if step == 10 {
            tsdb.checkpoint().expect("made");
            stored = 0;
        }
        let every =
            batch((0..SERIES).map(|number| (number, ago(800_000 - step * 15_000, 0.25 * f64::from(number)))));
        stored += tsdb.append(OrgId(1), &every.batch(), NOW).expect("stored").stored;
    }
    stored
}

#[test]
fn a_start_reports_its_progress_and_completes_each_phase() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let faults = faults();
    let stored = crashed(dir.path(), &faults);
    let steps: Arc<Mutex<Vec<OpenStep>>> = Arc::default();
    let reported = Arc::clone(&steps);
    let observer = ProgressObserver::new(move |step| {
        reported.lock().expect("whole").push(*step);
        OpenControl::Continue
    });
    let (_tsdb, report) = open_with(dir.path(), Options { observer, ..options(&faults) });
    let steps = steps.lock().expect("whole");
    let mut phases: Vec<Phase> = steps.iter().map(|step| step.phase).collect();
    phases.dedup();
    assert_eq!(phases, [Phase::Names, Phase::Segments, Phase::Checkpoint, Phase::Log]);
    for phase in phases {
        let in_phase: Vec<&OpenStep> =
            steps.iter().filter(|step| step.phase == phase && step.all > 0).collect();
        assert!(in_phase.is_sorted_by_key(|step| (step.file, step.done)), "{phase:?}");
        let last = in_phase.last().expect("reported");
        // A spare file may follow the log's last file.
        let spare = u64::from(phase == Phase::Log);
        assert!(last.done <= last.all && (last.files - spare..=last.files).contains(&last.file), "{last:?}");
        // The other bytes of a registry are its header, and those of the log are the zeros of its
        // last file. A segment is reported before it is opened.
        assert!(last.percent() > Some(if phase == Phase::Segments { -1.0 } else { 50.0 }), "{last:?}");
    }
    let last = steps.last().expect("reported");
    assert!(last.files > 3 && last.records > 0 && last.samples <= report.samples, "{last:?}");
    assert_eq!(report.samples, stored, "only samples after the checkpoint are replayed");
}

/// This holds with a checkpoint or with the log alone, for tails of any length at the end of the
/// process.
#[test]
fn a_started_store_uses_less_than_three_quarters_of_the_memory_before() {
    let stores = [(40, Some(15)), (18, None), (40, None), (48, None), (48, Some(48))];
    for (rounds, checkpoint) in stores.into_iter().take(crate::model::effort::rounds(2, 5)) {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let faults = faults();
        let (tsdb, _) = open_with(dir.path(), options(&faults));
        let mut most = 0;
        for round in 1..=rounds {
            let value = |number: u32| f64::from(number) * 0.5 + round as f64;
            let every =
                batch((0..SERIES).map(|number| (number, ago(800_000 - round * 15_000, value(number)))));
            tsdb.append(ORG, &every.batch(), NOW).expect("stored");
            most = most.max(tsdb.stats().head_bytes);
            if checkpoint == Some(round) {
                tsdb.checkpoint().expect("made");
            }
        }
        let before = content(&tsdb, ORG);
        drop(tsdb);
        let (tsdb, report) = open_with(dir.path(), options(&faults));
        let held = tsdb.stats().head_bytes;
        assert_eq!(report.checkpoint_samples > 0, checkpoint.is_some());
        assert!(held * 4 < most * 3, "{rounds} rounds, {checkpoint:?}: {held} B of {most} B");
        assert_eq!(content(&tsdb, ORG), before);
        // The store continues as if it had never stopped.
        for round in rounds + 1..rounds + 30 {
            let every = batch((0..SERIES).map(|number| (number, ago(800_000 - round * 15_000, 7.5))));
            tsdb.append(ORG, &every.batch(), NOW).expect("stored");
        }
        let after: usize = content(&tsdb, ORG).values().map(Vec::len).sum();
        assert_eq!(after, before.values().map(Vec::len).sum::<usize>() + 29 * SERIES as usize);
    }
}

#[test]
fn a_start_that_is_stopped_at_any_step_leaves_everything_to_the_next_one() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let faults = faults();
    crashed(dir.path(), &faults);
    let expected = {
        let copy = crate::kv::scratch::temporary_folder().expect("made");
        copy_tree(dir.path(), copy.path());
        let (tsdb, _) = open_with(copy.path(), options(&faults));
        (heads(&tsdb), content(&tsdb, OrgId(1)).len())
    };
    let mut stopped = 0;
    for steps in [0, 1, 2, 5, 20, 100, 130, 150] {
        let left = Arc::new(std::sync::atomic::AtomicI64::new(steps));
        let observer = ProgressObserver::new(move |_| match left.fetch_sub(1, Ordering::SeqCst) {
            1.. => OpenControl::Continue,
            _ => OpenControl::Stop,
        });
        match try_open(dir.path(), STORE, Options { observer, ..options(&faults) }) {
            Err(OpenError::Stopped) => stopped += 1,
            Err(e) => unreachable!("another error: {e}"),
            Ok(_) => assert!(steps > 100, "it ended after {steps} steps"),
        }
    }
    assert!(stopped >= 6, "{stopped}");
    let (tsdb, report) = open_with(dir.path(), options(&faults));
    assert_eq!((report.read_only, report.notes), (None, Vec::new()));
    assert_eq!((heads(&tsdb), content(&tsdb, OrgId(1)).len()), expected);
}
