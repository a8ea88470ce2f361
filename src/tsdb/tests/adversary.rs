//! Adversarial tests of time: clocks that jump, restarts, kills, senders with other clocks, seals,
//! merges, retention, deletions, damage and both repairs, in random order, against a model that
//! knows which samples may be lost.
//!
//! The value of a sample follows from its series and time, so it does not matter which of two
//! writes wins. The model of the retention clock is naive: it keeps the whole history of the times
//! that the clock reached. The promise to a sender with the right time does not follow from that
//! model but from the true time.
//!
//! The random runs have 100,000 steps in all, a quarter of them from seeds that differ from run to
//! run and are printed. `PROMLET_TIME_WALK=<first seed>,<seeds>,<steps>` makes them longer or
//! repeats a failed one.

#[path = "../../../tests/clock_walk/steps.rs"]
mod steps;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::clock::FakeMachine;
use super::*;
use crate::kv::keyed::KEYED_FILE_HEADER_BYTES;
use crate::kv::zeros::written_bytes;
use crate::kv::{Finding, OfflineControl, Weight};
use crate::model::effort::{requested_walks, rounds};
use crate::model::{MatchOp, Matcher};
use crate::tsdb::recovery::repair::{accept_loss, repair};
use crate::tsdb::wal::reader::LogReader;
use crate::tsdb::wal::record::ParsedRecord;
use steps::{DAY, Damage, DamageKind, Deletion, HOUR, JUMPS, MINUTE, SERIES, Sending, Step, Steps};

const GRACE: i64 = 72 * HOUR;
/// The greatest lead of a sender over the clock.
const AHEAD: i64 = 10 * MINUTE;
/// The running time of a process in which no sample is refused for good for being ahead of the
/// clock.
const UNCONFIRMED: i64 = 15 * MINUTE;
/// The upper bound of the record of one sample. No such record ends with as many zeros.
const RECORD_BYTES_MAX: usize = 64;
/// The greatest number of log files after a seal.
const LOG_FILES_MAX: u64 = 3;

/// The documented rule of the retention clock.
#[derive(Clone)]
struct ClockState {
    running_ms: i64,
    reached_ms: i64,
    /// The latest possible present.
    latest_ms: i64,
    /// The running time at which the wall clock fell behind it.
    behind_since: Option<i64>,
    /// The last running time and time at which the wall clock had advanced only by the running
    /// time.
    steady: (i64, i64),
    /// The length of the history at this state.
    length: usize,
}

struct NaiveClock {
    at: ClockState,
    /// The running time and the time reached then, as far back as it can matter.
    history: Vec<(i64, i64)>,
    /// The state that a kill restores.
    stored: ClockState,
    read_at_ms: u64,
}

impl NaiveClock {
    fn new(start_ms: i64) -> NaiveClock {
        let (running_ms, reached_ms, latest_ms) = (0, start_ms, start_ms);
        let steady = (0, start_ms);
        let at = ClockState { running_ms, reached_ms, latest_ms, behind_since: None, steady, length: 0 };
        let stored = ClockState { running_ms: -5 * MINUTE, ..at.clone() };
        NaiveClock { at, history: Vec::new(), stored, read_at_ms: 0 }
    }

    fn tick(&mut self, wall_ms: i64, ran_ms: u64) {
        let ran = (ran_ms - self.read_at_ms).cast_signed();
        self.read_at_ms = ran_ms;
        let ClockState { running_ms, reached_ms, latest_ms, behind_since, steady, length } = &mut self.at;
        *reached_ms = match wall_ms < *reached_ms {
            false => wall_ms.min(*reached_ms + 9 * ran),
            true => wall_ms.max(*reached_ms - 8 * ran),
        };
        let steady_for = *running_ms + ran - steady.0;
        let is_steady = (wall_ms - steady.1 - steady_for).abs() <= MINUTE;
        *latest_ms = if wall_ms + MINUTE >= *latest_ms || is_steady {
            *behind_since = None;
            wall_ms.min(*latest_ms + ran)
        } else {
            let since = *behind_since.get_or_insert(*running_ms);
            let held = (since + GRACE - *running_ms).clamp(0, ran);
            wall_ms.max(*latest_ms + held - 24 * (ran - held))
        };
        *latest_ms = (*latest_ms).max(*reached_ms);
        *running_ms += ran;
        if is_steady || steady_for > GRACE {
            *steady = (*running_ms, if is_steady { wall_ms } else { *latest_ms });
        }
        self.history.push((*running_ms, *reached_ms));
        *length = self.history.len();
        if self.at.running_ms - self.stored.running_ms >= 5 * MINUTE {
            self.store();
        }
    }

    fn store(&mut self) {
        self.stored = self.at.clone();
    }

    fn kill(&mut self) {
        self.at = self.stored.clone();
        self.history.truncate(self.at.length);
    }

    /// Returns whether the clock knows that `time_ms` is the present.
    fn knows(&self, time_ms: i64) -> bool {
        let ClockState { running_ms, latest_ms, steady, .. } = &self.at;
        [*latest_ms, steady.1 + running_ms - steady.0].iter().all(|known| (known - time_ms).abs() <= MINUTE)
    }

    /// Returns the latest time that was reached for the whole grace period.
    fn confirmed(&self, grace_ms: i64) -> Option<i64> {
        let old = self.history.iter().rposition(|(running, _)| running + grace_ms <= self.at.running_ms)?;
        self.history.get(old..)?.iter().map(|(_, reached)| *reached).min()
    }
}

/// A sample of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    /// Retention was allowed to remove it.
    MayBeGone,
}

/// The end of a record: its log file, and an upper bound of the offset in it.
type RecordEnd = (PathBuf, usize);

/// The samples that survive a kill and damage, and those that may be lost.
#[derive(Default)]
struct Unsealed {
    /// Samples that were sealed before and not deleted since. One that is written again after its
    /// deletion is a new sample, which only the log holds.
    sealed: BTreeSet<(u64, i64)>,
    /// The ends of the records of samples.
    samples: BTreeMap<(u64, i64), RecordEnd>,
}

/// The promise to senders with the right time, by the true time alone.
#[derive(Default)]
struct Promise {
    /// An upper bound of the lead of the retention clock over the true time that a wrong clock can
    /// have caused.
    led_ms: i64,
    /// Whether the wall clock was ahead since the last tick.
    was_ahead: bool,
    /// The running time at which the wall clock was last right and the store knew it.
    agreed_at: Option<u64>,
}

/// A random run.
struct AdversaryRun {
    steps: Steps,
    machine: FakeMachine,
    /// The id of the store and its accounts.
    store: StoreId,
    tsdb: Option<Opened>,
    clock: NaiveClock,
    retention_ms: Option<i64>,
    /// Samples before this may be hidden.
    hidden_ms: i64,
    /// An upper bound of the newest sample that the store knows.
    newest: Option<i64>,
    samples: BTreeMap<(u64, i64), Fate>,
    /// Records since the last seal, while damage is about to follow.
    unsealed: Option<Unsealed>,
    promise: Promise,
    /// The running time at which the store was opened.
    opened_at: u64,
    /// The running time since which the wall clock has not jumped.
    steady_since: u64,
}

fn value(series: u64, at_ms: i64) -> f64 {
    // Every millisecond has another value, none of them exact in decimal.
    (at_ms % 1_000_003) as f64 * 1.1 + series as f64
}

fn name(series: u64) -> Labels {
    up(&format!("job-{series}"))
}

impl AdversaryRun {
    fn new(seed: u64) -> AdversaryRun {
        let mut machine = FakeMachine::new();
        let store = control(machine.dir.path()).1.store_id();
        let mut steps = Steps::new(seed);
        // Half of the stores are first started with a wrong clock.
        machine.ahead_ms = if steps.roll(2) == 0 { steps.pick(&JUMPS) } else { 0 };
        let built_ms = machine.true_ms - steps.roll(60).cast_signed() * DAY;
        machine.built = Some(Timestamp::from_ms(built_ms));
        let clock = NaiveClock::new(machine.now().as_ms().min(built_ms));
        let mut run = AdversaryRun {
            steps,
            machine,
            store,
            tsdb: None,
            clock,
            retention_ms: Some(4 * DAY),
            hidden_ms: i64::MIN,
            newest: None,
            samples: BTreeMap::new(),
            unsealed: None,
            promise: Promise::default(),
            opened_at: 0,
            steady_since: 0,
        };
        run.open();
        run.tick();
        run
    }

    fn wall_ms(&self) -> i64 {
        self.machine.now().as_ms()
    }

    fn ran_ms(&self) -> u64 {
        self.machine.ran_ms.load(Ordering::SeqCst)
    }

    fn tsdb(&self) -> &Opened {
        self.tsdb.as_ref().expect("open")
    }

    fn options(&self) -> Options {
        Options { durability: Durability::Interval(Duration::from_secs(3_600)), ..self.machine.options() }
    }

    fn limits(&self) {
        let retention = self.retention_ms.map(|ms| Duration::from_millis(ms.unsigned_abs()));
        self.tsdb().set_limits(ORG, OrgLimits { retention, ..OrgLimits::default() });
    }

    /// Returns the losses that the start reports.
    fn open(&mut self) -> Vec<Finding> {
        let opened = try_open_at(self.machine.dir.path(), self.store, self.options(), self.machine.now());
        let (tsdb, report) = opened.expect("opens");
        // A bit of one copy of a file's secret may have been flipped, which loses nothing.
        let notes = report.notes.iter().filter(|note| !note.contains("one of the two copies of the secret"));
        assert_eq!((report.read_only, notes.collect()), (None, Vec::<&String>::new()));
        self.tsdb = Some(tsdb);
        self.opened_at = self.ran_ms();
        self.clock.read_at_ms = self.opened_at;
        self.hidden_ms = i64::MIN;
        self.limits();
        report.findings.into_iter().filter(|finding| finding.weight != Weight::Note).collect()
    }

    fn stop(&mut self, cleanly: bool) {
        if cleanly {
            self.tsdb().close();
            self.clock.store();
        } else {
            self.clock.kill();
            // The running time of the last five minutes may not be stored, and the clock may have
            // fallen in it.
            self.promise.led_ms += HOUR;
            if self.clock.at.latest_ms < self.machine.true_ms - 4 * MINUTE {
                self.promise.agreed_at = None;
            }
        }
        self.tsdb = None;
    }

    /// Updates the lead of the retention clock that a wrong clock can cause: it gains eight times
    /// the running time while the wall clock is ahead, and loses as much otherwise.
    fn promise(&mut self, wall: i64, ran_ms: u64) {
        let moved = 8 * (ran_ms - self.clock.read_at_ms).cast_signed();
        let is_ahead = wall > self.machine.true_ms;
        let promise = &mut self.promise;
        promise.led_ms += if promise.was_ahead || is_ahead { moved } else { -moved };
        promise.led_ms = promise.led_ms.max(0);
        promise.was_ahead = is_ahead;
    }

    /// Applies the possible effects of retention at a tick.
    fn tick_model(&mut self) {
        let (wall, ran) = (self.wall_ms(), self.ran_ms());
        self.promise(wall, ran);
        self.clock.tick(wall, ran);
        if wall == self.machine.true_ms && self.clock.knows(wall) {
            self.promise.agreed_at = Some(ran);
        }
        let Some((newest, age)) = self.newest.zip(self.retention_ms) else {
            self.hidden_ms = i64::MIN;
            return;
        };
        self.hidden_ms = newest.min(wall).min(self.clock.at.reached_ms) - age;
        let Some(confirmed) = self.clock.confirmed((72 * HOUR).min(age / 4)) else { return };
        let gone = newest.min(wall).min(confirmed) - age;
        for ((_, at), fate) in &mut self.samples {
            if *at < gone {
                *fate = Fate::MayBeGone;
            }
        }
    }

    fn tick(&mut self) {
        self.tick_model();
        self.tsdb().maintain(self.machine.now()).expect("done");
    }

    /// Sends a sample, and checks that it is stored exactly if the rule says so.
    fn send(&mut self, series: u64, at: i64) {
        let mut batch = BatchBuilder::default();
        let sample = Sample { at: Timestamp::from_ms(at), value: value(series, at) };
        batch.series(&name(series), [sample]);
        let sent = self.tsdb().append(ORG, &batch.batch(), self.machine.now());
        let retried = matches!(sent, Err(AppendError::ClockUnconfirmed { .. }));
        let stored = sent.as_ref().is_ok_and(|report| report.stored == 1);
        assert!(retried || sent.is_ok(), "{sent:?}");
        let (wall, reached) = (self.wall_ms(), self.clock.at.reached_ms);
        let last = wall.max(self.clock.at.latest_ms) + AHEAD;
        let ran = (self.ran_ms() - self.opened_at).cast_signed();
        let unconfirmed = ran < UNCONFIRMED || self.machine.built.is_some_and(|built| wall < built.as_ms());
        assert_eq!(retried, at > last && unconfirmed, "at {at}, wall {wall}, last {last}, ran {ran}");
        let alive = self.samples.keys().map(|(_, at)| *at).max();
        let by = |newest: Option<i64>| {
            let newest = newest.max((at <= last).then_some(at));
            let oldest = newest.zip(self.retention_ms);
            let oldest = oldest.map_or(i64::MIN, |(newest, age)| newest.min(wall).min(reached) - age);
            (oldest..=last).contains(&at)
        };
        let (least, most) = (by(self.newest), by(alive));
        assert!(stored == least || stored == most, "at {at}, wall {wall}, reached {reached}: {stored}");
        if at == self.machine.true_ms && !stored && !retried {
            self.check_refusal_of_correct_sender();
        }
        if stored {
            self.samples.insert((series, at), Fate::Kept);
            self.newest = self.newest.max(Some(at));
            let end = self.log_end();
            if let Some(unsealed) = &mut self.unsealed {
                unsealed.samples.entry((series, at)).or_insert(end);
            }
        }
    }

    /// A sender with the right time is refused for good only by a clock that was ahead for an
    /// eighth of the retention, or that has been behind for the grace period or since a start and
    /// is still behind after 15 minutes of running.
    fn check_refusal_of_correct_sender(&self) {
        let (wall, time, ran) = (self.wall_ms(), self.machine.true_ms, self.ran_ms());
        let was_led = self.retention_ms.is_some_and(|age| self.promise.led_ms > age);
        let agreed = self.promise.agreed_at.is_some_and(|at| (ran - at).cast_signed() < GRACE - HOUR);
        let is_behind = wall + AHEAD < time && !agreed && (ran - self.opened_at).cast_signed() >= UNCONFIRMED;
        assert!(
            was_led || is_behind,
            "a sender with the right time {time} is refused for good; wall {wall}, reached {}, latest {}",
            self.clock.at.reached_ms,
            self.clock.at.latest_ms
        );
    }

    fn sending(&mut self, sending: &Sending) {
        self.machine.run(sending.ran_ms);
        // The server's tick comes every ten seconds.
        if self.ran_ms() - self.clock.read_at_ms >= 5 * MINUTE.unsigned_abs() {
            self.tick();
        }
        for (series, off) in &sending.samples {
            // The times are after 1 AD for every jump.
            self.send(*series, self.machine.true_ms + off);
        }
    }

    fn delete(&mut self, deletion: Deletion) {
        let Deletion { series, pick, length_ms } = deletion;
        let times: Vec<i64> =
            self.samples.keys().filter(|(of, _)| *of == series).map(|(_, at)| *at).collect();
        let Some(place) = pick.checked_rem(times.len() as u64) else { return };
        let from = times[usize::try_from(place).expect("small")];
        let to = from + length_ms;
        let range = TimeRange::new(Timestamp::from_ms(from), Timestamp::from_ms(to));
        let job = Matcher::new("job", MatchOp::Equal, &format!("job-{series}")).expect("a matcher");
        self.tsdb().delete(ORG, &[vec![job]], range, self.machine.now()).expect("deleted");
        let deleted: BTreeSet<(u64, i64)> =
            self.samples.range((series, from)..=(series, to)).map(|(key, _)| *key).collect();
        self.samples.retain(|key, _| !deleted.contains(key));
        if let Some(unsealed) = &mut self.unsealed {
            unsealed.sealed.retain(|key| !deleted.contains(key));
            unsealed.samples.retain(|key, _| !deleted.contains(key));
        }
    }

    fn retain(&mut self, age_ms: Option<i64>) {
        let before = self.retention_ms;
        self.retention_ms = age_ms;
        self.limits();
        match (before, self.retention_ms) {
            (_, None) => self.hidden_ms = i64::MIN,
            (Some(before), Some(after)) if after > before => {
                self.hidden_ms = self.hidden_ms.saturating_sub(after - before);
            }
            _ => {}
        }
    }

    fn jump(&mut self, ahead_ms: i64) {
        self.machine.ahead_ms = ahead_ms;
        self.promise.was_ahead |= ahead_ms > 0;
        self.steady_since = self.ran_ms();
    }

    /// Checks that the store holds the stored samples, except those deleted and those that
    /// retention may hide or remove.
    fn check(&mut self, what: &str) {
        let found = content(self.tsdb(), ORG);
        let mut shown: BTreeSet<(u64, i64)> = BTreeSet::new();
        for series in 0..SERIES {
            for (at, bits) in found.get(&name(series).to_string()).into_iter().flatten() {
                assert!(
                    self.samples.contains_key(&(series, *at)),
                    "{what}: {series} {at} was deleted or never sent"
                );
                assert_eq!(*bits, value(series, *at).to_bits(), "{what}: {series} {at}");
                shown.insert((series, *at));
            }
        }
        for (key @ (series, at), fate) in &self.samples {
            let must = *fate == Fate::Kept && *at >= self.hidden_ms;
            assert!(
                !must || shown.contains(key),
                "{what}: sample {at} of {series} is gone; wall {}, true {}, reached {}, hidden before {}",
                self.wall_ms(),
                self.machine.true_ms,
                self.clock.at.reached_ms,
                self.hidden_ms
            );
        }
        self.check_log(what);
    }

    /// Checks that a seal lets the log end after the sealed samples, once the wall clock has not
    /// jumped for a while, right or wrong.
    ///
    /// A seal leaves samples up to an hour ahead of the wall clock in the log. There are many of
    /// them after a jump back by a few hours, so they get that hour.
    fn check_log(&mut self, what: &str) {
        if self.ran_ms() - self.steady_since < 2 * HOUR.unsigned_abs() {
            return;
        }
        let mut files = self.seal_log();
        if files > LOG_FILES_MAX {
            self.machine.run(HOUR);
            self.tick();
            files = self.seal_log();
        }
        assert!(files <= LOG_FILES_MAX, "{what}: {files} log files");
        let sealed_until = self.tsdb().stores.org(ORG).map_or(i64::MIN, |org| org.segments().sealed_until);
        assert!(sealed_until <= self.wall_ms() + HOUR, "{what}: sealed until {sealed_until}");
    }

    /// Seals and returns the number of log files that are left.
    fn seal_log(&self) -> u64 {
        self.tsdb().seal(self.machine.now()).expect("sealed");
        self.tsdb().stats().wal_files
    }

    fn last_log_file(&self) -> (PathBuf, Vec<u8>) {
        let wal = self.machine.dir.path().join("wal");
        let files = std::fs::read_dir(&wal).expect("listed").map(|entry| entry.expect("one").path());
        let path = files.filter(|path| path.extension().is_some_and(|end| end == "wal")).max();
        let path = path.expect("a log file");
        let bytes = std::fs::read(&path).expect("read");
        (path, bytes)
    }

    /// Returns the end of the log. The result is the default unless damage is about to follow.
    fn log_end(&self) -> RecordEnd {
        if self.unsealed.is_none() {
            return RecordEnd::default();
        }
        let (path, bytes) = self.last_log_file();
        (path.file_name().map(PathBuf::from).unwrap_or_default(), used(&bytes))
    }

    /// Damages the end of the log of a killed store and applies one of the two repairs. Samples in
    /// segments and before the damage must survive, and so must every deletion. Other losses must
    /// be reported.
    fn damage(&mut self, damage: &Damage) {
        self.tick_model();
        self.tsdb().seal_and_merge(self.machine.now()).expect("sealed");
        self.check("before the damage");
        let sealed = self.samples.keys().copied().collect();
        self.unsealed = Some(Unsealed { sealed, ..Unsealed::default() });
        for step in &damage.before {
            self.take(step);
        }
        self.stop(false);
        let (path, mut bytes) = self.last_log_file();
        let place = damaged_byte(damage.pick, used(&bytes));
        match damage.kind {
            DamageKind::Flipped(bit) => bytes[place] ^= 1 << bit,
            DamageKind::Zeros => bytes[place..].fill(0),
            DamageKind::Cut => bytes.truncate(place),
        }
        std::fs::write(&path, bytes).expect("written");
        // Zeros from the end of a record on look like a log that ends there.
        let looks_whole = matches!(damage.kind, DamageKind::Zeros) && ends_with_a_record(&path);
        let mut reported = if damage.repaired { self.repair() } else { self.accept() };
        reported.extend(self.open());
        self.tick();
        let file = path.file_name().map(PathBuf::from).unwrap_or_default();
        let is_intact =
            |(of, end): &RecordEnd| *of < file || (*of == file && end + RECORD_BYTES_MAX <= place);
        let Unsealed { sealed, samples: ends } = self.unsealed.take().unwrap_or_default();
        let found = content(self.tsdb(), ORG);
        let shown = |(series, at): &(u64, i64)| {
            let samples = found.get(&name(*series).to_string());
            samples.is_some_and(|samples| samples.iter().any(|(have, _)| have == at))
        };
        let held = |key: &(u64, i64)| sealed.contains(key) || ends.get(key).is_some_and(is_intact);
        let hidden_ms = self.hidden_ms;
        let is_lost = |(key, fate): &(&(u64, i64), &Fate)| {
            **fate == Fate::Kept && key.1 >= hidden_ms && !held(key) && !shown(key)
        };
        let lost = self.samples.iter().find(is_lost);
        if let Some(((series, at), _)) = lost.filter(|_| !looks_whole) {
            let name = file.to_string_lossy();
            let is_placed = |finding: &Finding| {
                let has_offset = finding.offset.is_some() || finding.what.contains(" byte ");
                (finding.file.ends_with(&file) || finding.what.contains(&*name))
                    && (has_offset || place < KEYED_FILE_HEADER_BYTES)
            };
            assert!(
                reported.iter().any(is_placed),
                "sample {at} of {series} is lost at byte {place} of {name}; reported: {reported:?}"
            );
        }
        self.samples.retain(|key, _| held(key) || shown(key) || key.1 < hidden_ms);
        for (key, fate) in &mut self.samples {
            if !held(key) && !shown(key) {
                *fate = Fate::MayBeGone;
            }
        }
        self.check("after the damage");
    }

    /// Accepts the loss like `serve --accept-loss`. Returns its report.
    fn accept(&self) -> Vec<Finding> {
        let (control, _folder) = control(self.machine.dir.path());
        let home = Home { dir: self.machine.dir.path(), store: self.store, control };
        accept_loss(&home, &mut Entropy::seeded(11), self.machine.now()).expect("accepted")
    }

    /// Repairs the store like `promlet repair`. Returns its report.
    fn repair(&mut self) -> Vec<Finding> {
        let (to, scratch) = (
            crate::kv::scratch::temporary_folder().expect("made"),
            crate::kv::scratch::temporary_folder().expect("made"),
        );
        let from = self.machine.dir.path();
        let accounts = from.join("accounts");
        let mut control = OfflineControl::read(&accounts, &scratch.path().join("scratch")).expect("read");
        std::fs::create_dir_all(to.path().join("accounts")).expect("made");
        let repaired = repair(from, to.path(), &mut control, &mut Entropy::seeded(12), &mut |_| ());
        control.export(&to.path().join("accounts")).expect("exported");
        std::fs::copy(accounts.join("STORE"), to.path().join("accounts/STORE")).expect("copied");
        self.machine.dir = to;
        repaired.expect("repaired").lost
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Send(sending) => self.sending(sending),
            Step::Tick => self.tick(),
            Step::Jump(ahead_ms) => self.jump(*ahead_ms),
            Step::SealIfDue => drop(self.tsdb().seal_if_due(self.machine.now()).expect("sealed")),
            Step::Seal => drop(self.tsdb().seal(self.machine.now()).expect("sealed")),
            Step::SealAndMerge => {
                self.tick_model();
                self.tsdb().seal_and_merge(self.machine.now()).expect("sealed");
            }
            Step::Delete(deletion) => self.delete(*deletion),
            Step::Checkpoint => drop(self.tsdb().checkpoint().expect("made")),
            Step::Restart { cleanly, off_ms } => {
                self.stop(*cleanly);
                self.machine.true_ms += off_ms;
                if *off_ms > 0 {
                    self.promise.agreed_at = None;
                }
                self.open();
                self.check("after a start");
            }
            Step::Retention(age_ms) => self.retain(*age_ms),
            Step::Damage(damage) => self.damage(damage),
            Step::Check => self.check("at any time"),
        }
    }
}

/// Returns the bytes of a log file without the zeros at its end.
fn used(bytes: &[u8]) -> usize {
    written_bytes(bytes).max(1)
}

/// Returns the byte of a log file to damage. One of eight is anywhere in the file, whose header is
/// longer than a few records; the others are in the records.
fn damaged_byte(pick: u64, used: usize) -> usize {
    let (pick, is_anywhere) = (usize::try_from(pick / 8).expect("64 bits"), pick.is_multiple_of(8));
    match used.checked_sub(KEYED_FILE_HEADER_BYTES) {
        Some(records @ 1..) if !is_anywhere => KEYED_FILE_HEADER_BYTES + pick % records,
        _ => pick % used,
    }
}

/// Returns whether no bytes of an incomplete record follow the last record of a log file.
fn ends_with_a_record(path: &Path) -> bool {
    let mut reader = LogReader::open(path, 64 << 20, Vec::new()).expect("opens");
    let mut offset = reader.first_record();
    while let ParsedRecord::Record(_, _, bytes) = reader.record(offset).expect("read") {
        offset += bytes as u64;
    }
    reader.written_from(offset).expect("read") == offset
}

fn run_adversary(seed: u64, steps: u64) {
    let failed = std::panic::catch_unwind(|| {
        let mut run = AdversaryRun::new(seed);
        let mut last = "start";
        for number in 0..steps {
            let step = run.steps.draw();
            let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.take(&step)));
            assert!(taken.is_ok(), "seed {seed}, step {number}, {step:?}, after {last}");
            last = step.name();
        }
        run.check("at the end");
    });
    assert!(failed.is_ok(), "PROMLET_TIME_WALK={seed},1,{steps} repeats it");
}

#[test]
fn no_sequence_of_wrong_clocks_loses_a_sample_or_pins_the_log() {
    let (seeds, steps): (Vec<u64>, u64) = match requested_walks("PROMLET_TIME_WALK") {
        Some((seeds, steps)) => (seeds.collect(), steps),
        None => {
            let mut rng = Entropy::system();
            let (known, random) = rounds((2, 1), (30, 10));
            let random = (0..random).map(|_| u64::from(u32::from_le_bytes(rng.bytes())));
            ((1..=known).chain(random).collect(), 2_500)
        }
    };
    println!("seeds {seeds:?}, {steps} steps each");
    let next = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            threads.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run_adversary(*seed, steps);
                }
            });
        }
    });
}
