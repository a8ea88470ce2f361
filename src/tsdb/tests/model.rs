//! A model test: the store against a map, through restarts, seals and checkpoints.

use proptest::prelude::*;

use super::*;
use crate::tsdb::open_progress::{OpenControl, ProgressObserver};

#[derive(Clone, Debug)]
enum StoreStep {
    Append {
        org: u32,
        series: usize,
        samples: Vec<(i64, u8)>,
    },
    Checkpoint,
    /// A checkpoint that claims to cover less than its rows hold, as if records arrived while it
    /// was written.
    EarlyCheckpoint,
    /// Seals all samples.
    Seal,
    /// Seals the samples that are due by the clock, which are a part of all samples.
    SealDue,
    /// Seals the late samples, as an import does.
    SealLate,
    /// A seal whose segments cannot be written.
    FailedSeal,
    /// The process ends after this many steps of a seal, of all or of the late samples.
    StoppedSeal {
        after: u8,
        is_late: bool,
    },
    CloseAndOpen,
    DropAndOpen,
    /// Like `DropAndOpen`, but the start is stopped after this many steps, and the next one a step
    /// later.
    StoppedStart(u8),
}

fn step() -> impl Strategy<Value = StoreStep> {
    let samples = prop::collection::vec((0i64..600, 0u8..3), 1..40);
    prop_oneof![
        8 => (1u32..3, 0usize..4, samples).prop_map(|(org, series, samples)| StoreStep::Append { org, series, samples }),
        1 => Just(StoreStep::Checkpoint),
        1 => Just(StoreStep::EarlyCheckpoint),
        2 => Just(StoreStep::Seal),
        2 => Just(StoreStep::SealDue),
        2 => Just(StoreStep::SealLate),
        1 => Just(StoreStep::FailedSeal),
        2 => (0u8..12, any::<bool>()).prop_map(|(after, is_late)| StoreStep::StoppedSeal { after, is_late }),
        1 => Just(StoreStep::CloseAndOpen),
        1 => Just(StoreStep::DropAndOpen),
        1 => (0u8..20).prop_map(StoreStep::StoppedStart),
    ]
}

/// The rules of the head for one series, in their simplest form.
#[derive(Default)]
struct ModelSeries {
    last: Option<(i64, u64)>,
    samples: BTreeMap<i64, u64>,
}

impl ModelSeries {
    fn put(&mut self, at: i64, bits: u64, barrier: i64) -> bool {
        match self.last {
            _ if at < barrier => {}
            Some((last, have)) if last == at && have != bits => return false,
            Some((last, _)) if last >= at => {}
            _ => self.last = Some((at, bits)),
        }
        self.samples.insert(at, bits);
        true
    }
}

fn name(series: usize) -> Labels {
    up(&format!("job-{series}"))
}

/// Seals the late samples of all organisations that have many.
fn seal_late(tsdb: &Tsdb) -> Result<(), SealError> {
    (1..3).try_for_each(|org| tsdb.seal_late(OrgId(org), NOW).map(drop))
}

/// Begins a start that is stopped after this many steps, unless it completes earlier.
fn stopped_start(dir: &Path, options: Options, after: i64) {
    let left = std::sync::atomic::AtomicI64::new(after);
    let observer = ProgressObserver::new(move |_| match left.fetch_sub(1, Ordering::SeqCst) {
        1.. => OpenControl::Continue,
        _ => OpenControl::Stop,
    });
    match try_open(dir, STORE, Options { observer, ..options }) {
        Ok(_) | Err(OpenError::Stopped) => {}
        Err(e) => unreachable!("another error: {e}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::model::effort::rounds(4, 24), ..ProptestConfig::default() })]

    #[test]
    fn a_store_equals_a_map_through_restarts(steps in prop::collection::vec(step(), 1..40)) {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let faults = faults();
        let options = || Options { seal_late_samples: 2, ..options(&faults) };
        let open = |dir| open_with(dir, options());
        let mut tsdb = open(dir.path()).0;
        let mut model: BTreeMap<(u32, usize), ModelSeries> = BTreeMap::new();
        for step in &steps {
            match step {
                StoreStep::Append { org, series, samples } => {
                    let of = |(ago_s, value): &(i64, u8)| ago(600_000 - ago_s * 1_000, f64::from(*value));
                    let samples: Vec<Sample> = samples.iter().map(of).collect();
                    let barrier = tsdb.stores.org(OrgId(*org)).map(|store| store.head.barrier());
                    let report = write(&tsdb, OrgId(*org), &name(*series), &samples);
                    let known = model.entry((*org, *series)).or_default();
                    let barrier = barrier.unwrap_or(i64::MIN);
                    let stored =
                        samples.iter().filter(|s| known.put(s.at.as_ms(), s.value.to_bits(), barrier)).count();
                    prop_assert_eq!(report.stored, stored as u64);
                    prop_assert_eq!(report.refused, (samples.len() - stored) as u64);
                }
                StoreStep::Checkpoint => drop(tsdb.checkpoint().expect("made")),
                StoreStep::EarlyCheckpoint => checkpoint_claiming_less(&tsdb),
                StoreStep::Seal => drop(tsdb.seal(NOW).expect("sealed")),
                StoreStep::SealDue => seal_due(&tsdb),
                StoreStep::FailedSeal => seal::without_room_for_segments(dir.path(), || drop(tsdb.seal(NOW))),
                StoreStep::SealLate => seal_late(&tsdb).expect("sealed"),
                StoreStep::StoppedSeal { .. } | StoreStep::CloseAndOpen | StoreStep::DropAndOpen | StoreStep::StoppedStart(_) => {
                    if let StoreStep::StoppedSeal { after, is_late } = step {
                        faults.seal_steps_left.store(i64::from(*after), Ordering::SeqCst);
                        // It fails if it needs more steps.
                        match is_late {
                            true => drop(seal_late(&tsdb)),
                            false => drop(tsdb.seal(NOW)),
                        }
                        faults.seal_steps_left.store(-1, Ordering::SeqCst);
                    }
                    if matches!(step, StoreStep::CloseAndOpen) {
                        tsdb.close();
                    }
                    drop(tsdb);
                    if let StoreStep::StoppedStart(after) = step {
                        stopped_start(dir.path(), options(), i64::from(*after));
                        stopped_start(dir.path(), options(), i64::from(*after) + 1);
                    }
                    let (again, report) = open(dir.path());
                    prop_assert_eq!(report.read_only, None);
                    prop_assert_eq!(report.notes, Vec::<String>::new());
                    tsdb = again;
                }
            }
            for org in 1..3 {
                let mut expected = StoreContent::new();
                for ((_, series), known) in model.iter().filter(|((o, _), _)| *o == org) {
                    expected.insert(name(*series).to_string(), known.samples.iter().map(|(t, v)| (*t, *v)).collect());
                }
                prop_assert_eq!(content(&tsdb, OrgId(org)), expected);
            }
        }
    }
}

#[test]
fn a_long_series_survives_checkpoints_with_many_rows() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    // Values without a pattern take 9 kB per thousand, so a series spans several rows.
    let value =
        |i: i64| f64::from_bits(0x3ff0_0000_0000_0000 | (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12);
    let samples: Vec<Sample> = (0..5_000).map(|i| ago(6_000_000 - i * 1_000, value(i))).collect();
    let late: Vec<Sample> = (0..500).map(|i| ago(6_000_500 - i * 1_000, value(i))).collect();
    write(&tsdb, ORG, &up("a"), &samples);
    write(&tsdb, ORG, &up("b"), &samples[..10]);
    assert_eq!(write(&tsdb, ORG, &up("a"), &late).stored, 500);
    let made = tsdb.checkpoint().expect("made");
    assert!(made.rows > 5 && made.series == 2 && made.samples == 5_510, "{made:?}");
    let before = content(&tsdb, ORG);
    drop(tsdb);
    let (tsdb, report) = open(dir.path());
    assert_eq!(
        (report.mode, report.samples, report.checkpoint_samples),
        (RecoveryMode::Checkpoint, 0, 5_510)
    );
    assert_eq!(content(&tsdb, ORG), before);
    // The next samples are judged as before the restart.
    assert_eq!(write(&tsdb, ORG, &up("a"), &samples[4_999..]).stored, 1);
    assert_eq!(write(&tsdb, ORG, &up("a"), &[ago(6_000_000 - 4_999_000, -1.0)]).refused, 1);
    assert_eq!(content(&tsdb, ORG), before);
}

#[test]
fn checkpoints_replace_each_other_and_shorten_the_start() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, report) = open(dir.path());
    assert_eq!(report.mode, RecoveryMode::Fresh);
    for n in 1..=3u32 {
        write(&tsdb, ORG, &up("a"), &[ago(1_000 - i64::from(n), f64::from(n))]);
        assert_eq!(tsdb.checkpoint().expect("made").generation, u64::from(n));
    }
    write(&tsdb, ORG, &up("b"), &[ago(0, 4.0)]);
    let generations: Vec<_> = std::fs::read_dir(dir.path().join("head")).expect("listed").collect();
    assert_eq!(generations.len(), 1);
    tsdb.close();
    drop(tsdb);
    let (tsdb, report) = open(dir.path());
    assert_eq!(
        (report.mode, report.checkpoint_samples, report.samples, report.series),
        (RecoveryMode::Checkpoint, 3, 1, 2)
    );
    assert_eq!(tsdb.stats().samples, 4);
    assert_eq!(tsdb.stats().samples_since_checkpoint, 1);
}

#[test]
fn a_checkpoint_is_due_by_samples() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let options = Options { checkpoint_samples: 2, ..options(&faults()) };
    let (tsdb, _) = open_with(dir.path(), options);
    write(&tsdb, ORG, &up("a"), &[ago(9, 1.0)]);
    assert!(!tsdb.checkpoint_due());
    write(&tsdb, ORG, &up("a"), &[ago(8, 1.0)]);
    assert!(tsdb.checkpoint_due());
    tsdb.checkpoint().expect("made");
    assert!(!tsdb.checkpoint_due());
}

#[test]
fn the_result_of_racing_writers_equals_that_of_a_replay() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    std::thread::scope(|scope| {
        for writer in 0..4i64 {
            let tsdb = &tsdb;
            scope.spawn(move || {
                for n in 0..150 {
                    // All writers use the same few series and times. The first one wins, and the
                    // log records which it was.
                    let at = (n * 7 + writer * 3) % 100;
                    let samples = [ago(1_000 - at, writer as f64), ago(1_000 - at - 1, n as f64)];
                    write(tsdb, ORG, &name(usize::try_from(n % 3).expect("small")), &samples);
                    if n == 75 {
                        tsdb.checkpoint().expect("made");
                    }
                }
            });
        }
    });
    let live = content(&tsdb, ORG);
    assert!(tsdb.stats().refused_total > 0 && tsdb.stats().orgs[0].late_samples > 0);
    drop(tsdb);
    let (tsdb, report) = open(dir.path());
    assert_eq!((report.mode, report.read_only), (RecoveryMode::Checkpoint, None));
    assert_eq!(content(&tsdb, ORG), live);
    drop(tsdb);
    std::fs::remove_dir_all(dir.path().join("head")).expect("removed");
    assert_eq!(content(&open(dir.path()).0, ORG), live, "a replay of the whole log agrees");
}
