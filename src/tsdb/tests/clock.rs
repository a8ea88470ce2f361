//! Tests of wrong clocks: no sample is lost, and no resource is held forever.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::*;
use crate::model::Exemplar;
use crate::tsdb::options::Rest;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
const RETENTION: Duration = Duration::from_secs(90 * 86_400);

/// A machine whose wall clock is a number and whose monotonic clock moves when a test says so.
pub(super) struct FakeMachine {
    pub(super) dir: tempfile::TempDir,
    faults: Arc<Faults>,
    pub(super) ran_ms: Arc<AtomicU64>,
    /// The lead of the wall clock over the true time.
    pub(super) ahead_ms: i64,
    pub(super) true_ms: i64,
    /// The build time of the program.
    pub(super) built: Option<Timestamp>,
}

impl FakeMachine {
    pub(super) fn new() -> FakeMachine {
        let faults = faults();
        faults.log_file_bytes.store(64 << 10, Ordering::SeqCst);
        let dir = crate::kv::scratch::temporary_folder().expect("a folder");
        FakeMachine { dir, faults, ran_ms: Arc::default(), ahead_ms: 0, true_ms: NOW.as_ms(), built: None }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.true_ms + self.ahead_ms)
    }

    pub(super) fn options(&self) -> Options {
        let ran_ms = Arc::clone(&self.ran_ms);
        Options {
            elapsed: Elapsed::by(move || Duration::from_millis(ran_ms.load(Ordering::SeqCst))),
            expiry_grace: Options::default().expiry_grace,
            limits: OrgLimits { retention: Some(RETENTION), ..OrgLimits::default() },
            rest: Rest::by(|_| {}),
            built: self.built,
            ..options(&self.faults)
        }
    }

    fn open(&self) -> Opened {
        let opened = try_open_at(self.dir.path(), STORE, self.options(), self.now());
        let (tsdb, report) = opened.expect("opens");
        assert_eq!((report.read_only, report.notes), (None, Vec::new()));
        tsdb
    }

    /// Lets time pass while the server runs.
    pub(super) fn run(&mut self, ms: i64) {
        self.true_ms += ms;
        self.ran_ms.fetch_add(ms.unsigned_abs(), Ordering::SeqCst);
    }

    /// Lets time pass with a maintenance tick every ten minutes. Returns how many segments expired.
    fn tick_for(&mut self, tsdb: &Tsdb, ms: i64) -> u64 {
        let mut expired = 0;
        for _ in 0..ms / 600_000 {
            self.run(600_000);
            expired += tsdb.maintain(self.now()).expect("done").expired;
            tsdb.seal_if_due(self.now()).expect("sealed");
        }
        expired
    }

    /// Writes one sample of each of the last days, and seals after each day.
    fn history(&self, tsdb: &Tsdb, days: i64) {
        for day in (1..=days).rev() {
            let mut batch = BatchBuilder::default();
            let at = Timestamp::from_ms(self.true_ms - day * DAY);
            batch.series(&up("a"), [Sample { at, value: day as f64 }]);
            assert_eq!(tsdb.append(ORG, &batch.batch(), self.now()).expect("stored").stored, 1);
            tsdb.seal(self.now()).expect("sealed");
        }
    }
}

/// Sends one sample with the time `at`.
fn send(tsdb: &Tsdb, job: &str, at: Timestamp, now: Timestamp) -> u64 {
    try_send(tsdb, job, at, now).expect("answered")
}

fn try_send(tsdb: &Tsdb, job: &str, at: Timestamp, now: Timestamp) -> Result<u64, AppendError> {
    let mut batch = BatchBuilder::default();
    batch.series(&up(job), [Sample { at, value: 1.0 }]);
    tsdb.append(ORG, &batch.batch(), now).map(|report| report.stored)
}

fn days_shown(tsdb: &Tsdb) -> usize {
    content(tsdb, ORG).get(&up("a").to_string()).map_or(0, Vec::len)
}

fn segments(tsdb: &Tsdb) -> usize {
    tsdb.stores.org(ORG).map_or(0, |store| store.segments().metas().len())
}

#[test]
fn a_server_started_with_a_clock_that_is_ahead_keeps_its_history_even_if_a_sample_agrees() {
    for days in [91, 365] {
        let mut machine = FakeMachine::new();
        let tsdb = machine.open();
        machine.history(&tsdb, 85);
        tsdb.close();
        drop(tsdb);
        machine.ahead_ms = days * DAY;
        let tsdb = machine.open();
        assert_eq!(send(&tsdb, "b", machine.now(), machine.now()), 1);
        let listed = segments(&tsdb);
        assert_eq!(machine.tick_for(&tsdb, 2 * HOUR), 0, "{days} days ahead");
        assert!(segments(&tsdb) >= listed);
        assert_eq!(days_shown(&tsdb), 85, "nothing is hidden");
        assert!(
            tsdb.health().notes.iter().any(|note| note.contains("the clock is")),
            "the operator is warned"
        );
        let right = Timestamp::from_ms(machine.true_ms);
        assert_eq!(
            send(&tsdb, "right", right, machine.now()),
            1,
            "a sender with the right time is not refused"
        );
        machine.ahead_ms = 0;
        assert_eq!(machine.tick_for(&tsdb, HOUR), 0);
        assert_eq!((days_shown(&tsdb), tsdb.health().notes), (85, Vec::new()), "the clock was corrected");
    }
}

#[test]
fn no_path_passes_the_wall_clock_to_retention() {
    let mut machine = FakeMachine::new();
    let tsdb = machine.open();
    machine.history(&tsdb, 85);
    machine.run(10_000);
    machine.ahead_ms = 365 * DAY;
    assert_eq!(send(&tsdb, "b", machine.now(), machine.now()), 1);
    for _ in 0..3 {
        tsdb.seal_and_merge(machine.now()).expect("sealed");
        tsdb.compact(machine.now()).expect("compacted");
        tsdb.maintain(machine.now()).expect("done");
        machine.run(1_000);
    }
    assert_eq!(days_shown(&tsdb), 85);
    tsdb.close();
    drop(tsdb);
    for _ in 0..3 {
        // The command line, while no server runs.
        let tsdb = machine.open();
        tsdb.seal_and_merge(machine.now()).expect("sealed");
        assert_eq!(days_shown(&tsdb), 85);
        tsdb.close();
    }
}

#[test]
fn a_store_of_an_earlier_version_keeps_its_history_if_its_first_start_is_ahead() {
    let mut machine = FakeMachine::new();
    let tsdb = machine.open();
    machine.history(&tsdb, 85);
    let row = tsdb.manifest.as_ref().map(|manifest| manifest.retention_clock().expect("read"));
    assert_eq!(row, Some(None), "an earlier version has no such row");
    drop(tsdb);
    machine.ahead_ms = 365 * DAY;
    let tsdb = machine.open();
    assert_eq!(send(&tsdb, "b", machine.now(), machine.now()), 1);
    machine.tick_for(&tsdb, HOUR);
    assert_eq!(days_shown(&tsdb), 85);
}

#[test]
fn a_store_whose_first_start_is_a_year_ahead_hides_refuses_and_removes_nothing() {
    let mut machine = FakeMachine::new();
    // The program was built on the day before.
    machine.built = Some(Timestamp::from_ms(machine.true_ms - DAY));
    machine.ahead_ms = 365 * DAY;
    let tsdb = machine.open();
    machine.history(&tsdb, 80);
    for _ in 0..12 {
        assert_eq!(send(&tsdb, "wrong", machine.now(), machine.now()), 1);
        let right = Timestamp::from_ms(machine.true_ms);
        assert_eq!(send(&tsdb, "right", right, machine.now()), 1, "its time is right");
        assert_eq!(machine.tick_for(&tsdb, HOUR), 0);
        assert_eq!(days_shown(&tsdb), 80, "nothing is hidden");
    }
    assert_eq!(warnings(&tsdb, "hours ahead of the running time").len(), 1, "the operator is warned");
    assert_eq!(machine.tick_for(&tsdb, 2 * DAY), 0);
    // The clock is corrected within the grace period.
    machine.ahead_ms = 0;
    assert_eq!(machine.tick_for(&tsdb, 4 * DAY), 0);
    assert_eq!(days_shown(&tsdb), 80);
}

#[test]
fn one_organisation_with_a_sample_ahead_does_not_move_the_first_retention_clock_of_a_store() {
    let mut machine = FakeMachine::new();
    let tsdb = machine.open();
    machine.history(&tsdb, 85);
    machine.ahead_ms = 365 * DAY;
    let mut batch = BatchBuilder::default();
    batch.series(&up("ahead"), [Sample { at: machine.now(), value: 1.0 }]);
    assert_eq!(tsdb.append(OrgId(4), &batch.batch(), machine.now()).expect("stored").stored, 1);
    drop(tsdb);
    let tsdb = machine.open();
    let row = tsdb.manifest.as_ref().map(|manifest| manifest.retention_clock().expect("read"));
    assert_eq!(row, Some(None), "no clock was stored");
    assert_eq!(send(&tsdb, "b", machine.now(), machine.now()), 1);
    machine.tick_for(&tsdb, HOUR);
    assert_eq!(days_shown(&tsdb), 85);
}

/// Returns the matching notes of `/readyz`.
fn warnings(tsdb: &Tsdb, words: &str) -> Vec<String> {
    tsdb.health().notes.into_iter().filter(|note| note.contains(words)).collect()
}

#[test]
fn a_jump_is_warned_about_until_the_samples_that_it_expires_are_removed() {
    let mut machine = FakeMachine::new();
    let tsdb = machine.open();
    machine.history(&tsdb, 89);
    machine.tick_for(&tsdb, HOUR);
    assert_eq!(warnings(&tsdb, "the clock is"), [""; 0]);
    machine.ahead_ms = 5 * DAY;
    let (mut warned, mut expired) = (0, 0);
    for hour in 0..90 {
        assert_eq!(send(&tsdb, "wrong", machine.now(), machine.now()), 1);
        let is_warned = !warnings(&tsdb, "segments wait for removal").is_empty();
        expired += machine.tick_for(&tsdb, HOUR);
        if expired == 0 && hour > 0 {
            assert!(is_warned, "after {hour} hours, before anything is removed");
            warned += 1;
        }
    }
    assert!(warned >= 72 && expired > 0, "{warned} {expired}");
}

#[test]
fn a_clock_that_is_earlier_than_the_build_is_warned_about_at_once() {
    let mut machine = FakeMachine::new();
    machine.built = Some(Timestamp::from_ms(machine.true_ms - 2 * DAY));
    let tsdb = machine.open();
    assert_eq!(tsdb.health().notes, Vec::<String>::new());
    drop(tsdb);
    machine.ahead_ms = -365 * DAY;
    let tsdb = machine.open();
    assert_eq!(warnings(&tsdb, "is earlier than the build of this program (20").len(), 1);
    machine.ran_ms.fetch_add(HOUR.unsigned_abs(), Ordering::SeqCst);
    let right = Timestamp::from_ms(machine.true_ms + 40 * DAY);
    let refused = try_send(&tsdb, "a", right, machine.now());
    assert!(matches!(refused, Err(AppendError::ClockUnconfirmed { .. })), "{refused:?}");
    machine.ahead_ms = 0;
    tsdb.maintain(machine.now()).expect("done");
    assert_eq!(tsdb.health().notes, Vec::<String>::new());
}

#[test]
fn samples_of_a_correct_sender_are_stored_for_72_hours_of_running_after_the_clock_went_back() {
    let mut machine = FakeMachine::new();
    let mut tsdb = machine.open();
    machine.tick_for(&tsdb, HOUR);
    machine.ahead_ms = -2 * HOUR;
    for hour in 0..71 {
        let right = Timestamp::from_ms(machine.true_ms);
        assert_eq!(send(&tsdb, "a", right, machine.now()), 1, "after {hour} hours");
        machine.tick_for(&tsdb, HOUR);
        assert_eq!(warnings(&tsdb, "behind times that this server has seen").len(), 1);
        if hour % 10 == 0 {
            tsdb.close();
            drop(tsdb);
            tsdb = machine.open();
        }
    }
    machine.tick_for(&tsdb, 2 * HOUR);
    assert_eq!(
        send(&tsdb, "a", Timestamp::from_ms(machine.true_ms), machine.now()),
        0,
        "then the wall clock counts"
    );
    assert_eq!(tsdb.health().notes, Vec::<String>::new());
}

#[test]
fn samples_ahead_of_a_clock_that_went_back_are_sealed_if_memory_or_the_log_require_it() {
    for by in ["command", "memory", "log"] {
        let mut machine = FakeMachine::new();
        let mut options = machine.options();
        if by == "log" {
            options.seal_log_bytes = 200 << 10;
        }
        let opened = try_open_at(machine.dir.path(), STORE, options, machine.now());
        let tsdb = opened.expect("opens").0;
        if by == "memory" {
            let limits = OrgLimits { memory_bytes_max: Some(400 << 10), ..OrgLimits::default() };
            tsdb.set_limits(ORG, limits);
        }
        machine.tick_for(&tsdb, HOUR);
        machine.ahead_ms = -DAY;
        let mut refused = 0;
        for minute in 0..600 {
            machine.run(60_000);
            let mut batch = BatchBuilder::default();
            for job in 0..300 {
                let at = Timestamp::from_ms(machine.true_ms);
                batch.series(
                    &up(&format!("{job}")),
                    [Sample { at, value: f64::from(minute * 300 + job) * 1.1 }],
                );
            }
            match tsdb.append(ORG, &batch.batch(), machine.now()) {
                Ok(report) => assert_eq!(report.stored, 300, "{:?}", report.refusals),
                Err(AppendError::AtCapacity { .. }) => refused += 1,
                Err(other) => panic!("{by}: {other}"),
            }
            match by {
                "command" if minute % 100 == 99 => drop(tsdb.seal(machine.now()).expect("sealed")),
                "command" => {}
                _ => drop(tsdb.seal_if_due(machine.now()).expect("sealed")),
            }
            tsdb.maintain(machine.now()).expect("done");
        }
        assert!(log_files(&tsdb) <= 8, "{by}: {} log files", log_files(&tsdb));
        assert!(refused <= 200, "{by}: {refused} of 600 are refused for now");
        assert!(segments(&tsdb) < 60, "{by}: {} segments", segments(&tsdb));
        let expected = content(&tsdb, ORG);
        // Neither samples with the earlier times nor those with the right time are late once the
        // clock is right.
        machine.ahead_ms = 0;
        let late = |tsdb: &Tsdb| tsdb.stats().orgs.iter().map(|org| org.late_samples).sum::<u64>();
        assert_eq!(late(&tsdb), 0, "{by}");
        fill(&tsdb, &mut machine, 10);
        assert_eq!(late(&tsdb), 0, "{by}");
        drop(tsdb);
        let after = content(&machine.open(), ORG);
        assert!(expected.iter().all(|(series, samples)| after[series].starts_with(samples)), "{by}");
    }
}

#[test]
fn a_deleted_sample_ahead_of_the_clock_keeps_no_log_file_across_a_kill() {
    let mut machine = FakeMachine::new();
    let tsdb = machine.open();
    machine.run(10_000);
    tsdb.maintain(machine.now()).expect("done");
    machine.ahead_ms = 91 * DAY;
    assert_eq!(send(&tsdb, "ahead", machine.now(), machine.now()), 1);
    machine.ahead_ms = 0;
    let job = crate::model::Matcher::new("job", crate::model::MatchOp::Equal, "ahead").expect("a matcher");
    tsdb.delete(ORG, &[vec![job]], TimeRange::ALL, machine.now()).expect("deleted");
    drop(tsdb);
    let tsdb = machine.open();
    for round in 0..3 {
        fill(&tsdb, &mut machine, 200);
        machine.run(61_000);
        tsdb.seal(machine.now()).expect("sealed");
        assert!(log_files(&tsdb) <= 3, "round {round}: {} log files", log_files(&tsdb));
    }
}

#[test]
fn a_server_that_starts_with_the_time_of_its_last_stop_refuses_no_sample_for_good_within_15_minutes() {
    let mut machine = FakeMachine::new();
    let tsdb = machine.open();
    assert_eq!(send(&tsdb, "a", machine.now(), machine.now()), 1);
    tsdb.close();
    drop(tsdb);
    machine.true_ms += HOUR;
    machine.ahead_ms = -HOUR;
    let tsdb = machine.open();
    for _ in 0..15 {
        let right = Timestamp::from_ms(machine.true_ms);
        let refused = try_send(&tsdb, "new", right, machine.now());
        assert!(matches!(refused, Err(AppendError::ClockUnconfirmed { .. })), "{refused:?}");
        machine.run(60_000);
    }
    assert_eq!(content(&tsdb, ORG).len(), 1, "no series was created");
    assert_eq!(
        send(&tsdb, "a", Timestamp::from_ms(machine.true_ms), machine.now()),
        0,
        "then the wall clock counts"
    );
    machine.ahead_ms = 0;
    assert_eq!(send(&tsdb, "a", machine.now(), machine.now()), 1);
}

#[test]
fn a_server_that_was_stopped_for_a_month_expires_old_samples_after_the_grace_period() {
    let mut machine = FakeMachine::new();
    let tsdb = machine.open();
    machine.history(&tsdb, 85);
    tsdb.close();
    drop(tsdb);
    machine.true_ms += 30 * DAY;
    let tsdb = machine.open();
    assert_eq!(send(&tsdb, "b", machine.now(), machine.now()), 1);
    assert_eq!(machine.tick_for(&tsdb, 3 * DAY), 0, "the grace period");
    assert_eq!(send(&tsdb, "b", machine.now(), machine.now()), 1);
    machine.tick_for(&tsdb, 5 * DAY);
    assert_eq!(send(&tsdb, "b", machine.now(), machine.now()), 1);
    machine.tick_for(&tsdb, HOUR);
    // 90 days before the newest sample, and three days of grace.
    let expected = 90 - 38 + 3;
    assert_eq!(days_shown(&tsdb), expected - 3);
    assert!(segments(&tsdb) <= expected + 4, "{}", segments(&tsdb));
}

#[test]
fn a_longer_retention_within_the_grace_period_keeps_all_samples() {
    let mut machine = FakeMachine::new();
    let tsdb = machine.open();
    machine.history(&tsdb, 85);
    machine.ahead_ms = 365 * DAY;
    assert_eq!(send(&tsdb, "b", machine.now(), machine.now()), 1);
    machine.tick_for(&tsdb, 2 * DAY);
    tsdb.set_limits(ORG, OrgLimits::default());
    assert_eq!(machine.tick_for(&tsdb, 8 * DAY), 0);
    assert_eq!(days_shown(&tsdb), 85);
}

#[test]
fn a_sender_is_not_refused_by_a_server_whose_clock_went_back() {
    let mut machine = FakeMachine::new();
    let tsdb = machine.open();
    machine.run(10_000);
    tsdb.maintain(machine.now()).expect("done");
    machine.ahead_ms = -365 * DAY;
    let right = Timestamp::from_ms(machine.true_ms);
    assert_eq!(send(&tsdb, "a", right, machine.now()), 1);
}

/// Returns the number of log files.
fn log_files(tsdb: &Tsdb) -> u64 {
    tsdb.stats().wal_files
}

#[test]
fn a_sample_ahead_of_the_clock_does_not_prevent_the_removal_of_log_files() {
    for sealed_ahead in [false, true] {
        let mut machine = FakeMachine::new();
        let mut tsdb = machine.open();
        machine.ahead_ms = 365 * DAY;
        assert_eq!(send(&tsdb, "ahead", machine.now(), machine.now()), 1);
        if sealed_ahead {
            tsdb.seal(machine.now()).expect("sealed");
        }
        machine.ahead_ms = 0;
        let mut expected = content(&tsdb, ORG);
        for round in 0..6 {
            for n in 0..40 {
                machine.run(1_000);
                let mut batch = BatchBuilder::default();
                let samples = (0..60).map(|job| (up(&format!("{job}")), machine.now()));
                for (series, at) in samples {
                    let value = f64::from(n) * 1.1;
                    batch.series(&series, [Sample { at, value }]);
                    let samples = expected.entry(series.to_string()).or_default();
                    samples.push((at.as_ms(), value.to_bits()));
                }
                tsdb.append(ORG, &batch.batch(), machine.now()).expect("stored");
            }
            machine.run(61_000);
            match round {
                0 | 1 => drop(tsdb.seal(machine.now()).expect("sealed")),
                _ => drop(machine.tick_for(&tsdb, HOUR)),
            }
            assert!(log_files(&tsdb) <= 3, "round {round}: {} log files", log_files(&tsdb));
            let set = tsdb.stores.org(ORG).expect("there").segments();
            assert!(
                set.sealed_until <= machine.now().as_ms() + 1,
                "round {round}: later samples would be late"
            );
            assert_eq!(content(&tsdb, ORG), expected, "round {round}");
            if round % 2 == 1 {
                drop(tsdb);
                tsdb = machine.open();
                assert_eq!(content(&tsdb, ORG), expected, "round {round}, after a kill");
            }
        }
        let late: u64 = tsdb.stats().orgs.iter().map(|org| org.late_samples).sum();
        assert_eq!(late, 0);
    }
}

#[test]
fn histograms_starts_and_exemplars_ahead_of_the_clock_do_not_prevent_the_removal_of_log_files() {
    let mut machine = FakeMachine::new();
    let mut tsdb = machine.open();
    machine.ahead_ms = 365 * DAY;
    let mut batch = BatchBuilder::default();
    let at = machine.now();
    batch.series(&side::native("ahead"), []).histograms([(at, side::histogram(5))]);
    batch.start(at, at.plus_ms(-1_000));
    batch.exemplar(Exemplar { labels: labels(&[("trace_id", "1")]), value: 0.5, at });
    assert_eq!(tsdb.append(ORG, &batch.batch(), at).expect("stored").stored, 1);
    machine.ahead_ms = 0;
    let of_ahead = |tsdb: &Tsdb| side::side_data(tsdb, ORG).remove(&side::native("ahead").to_string());
    let expected = of_ahead(&tsdb);
    let (histograms, starts, exemplars) = expected.clone().expect("stored");
    assert_eq!((histograms.len(), starts.len(), exemplars.len()), (1, 1, 1));
    for round in 0..4 {
        fill(&tsdb, &mut machine, 60);
        machine.run(61_000);
        tsdb.seal(machine.now()).expect("sealed");
        assert!(log_files(&tsdb) <= 3, "round {round}: {} log files", log_files(&tsdb));
        assert_eq!(of_ahead(&tsdb), expected, "round {round}");
        if round % 2 == 1 {
            drop(tsdb);
            tsdb = machine.open();
            assert_eq!(of_ahead(&tsdb), expected, "round {round}, after a kill");
        }
    }
}

#[test]
fn a_log_that_an_earlier_version_could_not_trim_is_trimmed_after_a_start() {
    let mut machine = FakeMachine::new();
    let tsdb = machine.open();
    machine.ahead_ms = 365 * DAY;
    assert_eq!(send(&tsdb, "ahead", machine.now(), machine.now()), 1);
    machine.ahead_ms = 0;
    fill(&tsdb, &mut machine, 600);
    let (before, expected) = (log_files(&tsdb), content(&tsdb, ORG));
    assert!(before > 3, "{before}");
    drop(tsdb);
    let tsdb = machine.open();
    machine.run(120_000);
    tsdb.seal_if_due(machine.now()).expect("sealed");
    tsdb.seal(machine.now()).expect("sealed");
    assert!(log_files(&tsdb) <= 2, "{} of {before}", log_files(&tsdb));
    assert_eq!(content(&tsdb, ORG), expected);
}

/// Sends requests that fill small log files.
fn fill(tsdb: &Tsdb, machine: &mut FakeMachine, requests: i32) {
    for n in 0..requests {
        machine.run(1_000);
        let mut batch = BatchBuilder::default();
        for job in 0..60 {
            let value = f64::from(n * 60 + job) * 1.1;
            batch.series(&up(&format!("{job}")), [Sample { at: machine.now(), value }]);
        }
        tsdb.append(ORG, &batch.batch(), machine.now()).expect("stored");
    }
}

#[test]
fn a_seal_of_all_times_that_stops_at_any_step_loses_nothing() {
    for steps in 0..14 {
        let mut machine = FakeMachine::new();
        let tsdb = machine.open();
        machine.ahead_ms = 365 * DAY;
        assert_eq!(send(&tsdb, "0", machine.now(), machine.now()), 1);
        machine.ahead_ms = 0;
        fill(&tsdb, &mut machine, 3);
        let expected = content(&tsdb, ORG);
        machine.faults.seal_steps_left.store(steps, Ordering::SeqCst);
        drop(tsdb.seal(machine.now()));
        machine.faults.seal_steps_left.store(-1, Ordering::SeqCst);
        if steps % 2 == 0 {
            tsdb.checkpoint().expect("made");
        }
        drop(tsdb);
        let tsdb = machine.open();
        assert_eq!(content(&tsdb, ORG), expected, "after {steps} steps");
        fill(&tsdb, &mut machine, 2);
        let expected = content(&tsdb, ORG);
        tsdb.seal(machine.now()).expect("sealed");
        assert_eq!(content(&tsdb, ORG), expected);
        drop(tsdb);
        assert_eq!(content(&machine.open(), ORG), expected);
    }
}

#[test]
fn an_organisation_at_its_memory_limit_recovers_after_a_clock_that_went_back() {
    let mut machine = FakeMachine::new();
    let tsdb = machine.open();
    let limits = OrgLimits { memory_bytes_max: Some(400 << 10), ..OrgLimits::default() };
    tsdb.set_limits(ORG, limits);
    let full = |machine: &mut FakeMachine| {
        for n in 0..20_000 {
            machine.run(1_000);
            let mut batch = BatchBuilder::default();
            for job in 0..60 {
                let value = f64::from(n * 60 + job) * 1.1;
                batch.series(&up(&format!("{job}")), [Sample { at: machine.now(), value }]);
            }
            if tsdb.append(ORG, &batch.batch(), machine.now()).is_err() {
                return;
            }
        }
        panic!("its memory does not fill up");
    };
    machine.ahead_ms = 365 * DAY;
    full(&mut machine);
    tsdb.seal_if_due(machine.now()).expect("sealed");
    full(&mut machine);
    machine.ahead_ms = 0;
    machine.tick_for(&tsdb, HOUR / 2);
    assert_eq!(send(&tsdb, "1", machine.now(), machine.now()), 1, "without a restart");
    full(&mut machine);
    machine.tick_for(&tsdb, HOUR / 2);
    assert_eq!(send(&tsdb, "1", machine.now(), machine.now()), 1);
}
