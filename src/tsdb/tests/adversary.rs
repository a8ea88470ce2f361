//! Time as an adversary: clocks that jump, restarts, kills, senders with other clocks, seals, merges, retention, deletions,
//! damage and both ways out of it, at random, against a model that knows what may be gone.
//!
//! The value of a sample follows from its series and time, so that nothing depends on which of two writes wins. The model
//! of the retention clock is naive: it keeps the whole history of what the clock reached.
//! The walks have 100,000 steps in all; `PROMLET_TIME_WALK=<first seed>,<seeds>,<steps>` makes them longer or repeats one
//! that failed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::clock::Machine;
use super::*;
use crate::kv::OfflineControl;
use crate::model::{MatchOp, Matcher};
use crate::tsdb::repair::{accept_loss, repair};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const SERIES: u64 = 4;
/// What the clock of a machine or of a sender may be off by.
const JUMPS: [i64; 14] = [
    MINUTE,
    5 * MINUTE,
    -5 * MINUTE,
    40 * MINUTE,
    -40 * MINUTE,
    3 * HOUR,
    -3 * HOUR,
    2 * DAY,
    -2 * DAY,
    40 * DAY,
    91 * DAY,
    365 * DAY,
    -365 * DAY,
    -20_000 * DAY,
];

/// What is written of the rule that the retention clock follows.
struct NaiveClock {
    running_ms: i64,
    reached_ms: i64,
    /// The latest time that may be the present.
    latest_ms: i64,
    /// Running time and what was reached then, for as long as it can matter.
    history: Vec<(i64, i64)>,
    /// What a kill leaves: running time, what was reached, the latest time, the length of the history.
    stored: (i64, i64, i64, usize),
    read_at_ms: u64,
}

impl NaiveClock {
    fn tick(&mut self, wall_ms: i64, ran_ms: u64) {
        let ran = (ran_ms - self.read_at_ms).cast_signed();
        self.read_at_ms = ran_ms;
        self.running_ms += ran;
        let is_behind = wall_ms < self.reached_ms;
        self.reached_ms = match is_behind {
            false => wall_ms.min(self.reached_ms + 9 * ran),
            true => wall_ms.max(self.reached_ms - 8 * ran),
        };
        self.latest_ms = match is_behind {
            false => self.reached_ms.max(self.latest_ms - 24 * ran),
            true => self.reached_ms.max((self.latest_ms + ran).min(self.reached_ms + 30 * DAY)),
        };
        self.history.push((self.running_ms, self.reached_ms));
        if self.running_ms - self.stored.0 >= 5 * MINUTE {
            self.store();
        }
    }

    fn store(&mut self) {
        self.stored = (self.running_ms, self.reached_ms, self.latest_ms, self.history.len());
    }

    fn kill(&mut self) {
        let length;
        (self.running_ms, self.reached_ms, self.latest_ms, length) = self.stored;
        self.history.truncate(length);
    }

    /// The latest time that was reached for the whole grace period.
    fn confirmed(&self, grace_ms: i64) -> Option<i64> {
        let old = self.history.iter().rposition(|(running, _)| running + grace_ms <= self.running_ms)?;
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

struct Walk {
    rng: Entropy,
    machine: Machine,
    /// The store, and the accounts beside it.
    store: StoreId,
    tsdb: Option<Opened>,
    clock: NaiveClock,
    retention_ms: Option<i64>,
    /// Samples before this need not be shown.
    hidden_ms: i64,
    /// No less than the newest sample that the store knows.
    newest: Option<i64>,
    samples: BTreeMap<(u64, i64), Fate>,
    /// Running time since which the wall clock has been right.
    right_since: Option<u64>,
}

fn value(series: u64, at_ms: i64) -> f64 {
    // Every millisecond another value, none of them exact in decimal.
    (at_ms % 1_000_003) as f64 * 1.1 + series as f64
}

fn name(series: u64) -> Labels {
    up(&format!("job-{series}"))
}

impl Walk {
    fn new(seed: u64) -> Walk {
        let machine = Machine::new();
        let store = control(machine.dir.path()).1.store_id();
        let start = machine.now().as_ms();
        let clock = NaiveClock {
            running_ms: 0,
            reached_ms: start,
            latest_ms: start,
            history: Vec::new(),
            stored: (-5 * MINUTE, start, start, 0),
            read_at_ms: 0,
        };
        let mut walk = Walk {
            rng: Entropy::seeded(seed),
            machine,
            store,
            tsdb: None,
            clock,
            retention_ms: Some(4 * DAY),
            hidden_ms: i64::MIN,
            newest: None,
            samples: BTreeMap::new(),
            right_since: Some(0),
        };
        walk.open();
        walk.tick();
        walk
    }

    fn roll(&mut self, sides: u64) -> u64 {
        u64::from_le_bytes(self.rng.bytes()) % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let sides = from.len() as u64;
        let place = usize::try_from(self.roll(sides)).expect("small");
        from[place]
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

    fn open(&mut self) {
        let opened = try_open_at(self.machine.dir.path(), self.store, self.options(), self.machine.now());
        let (tsdb, report) = opened.expect("opens");
        assert_eq!((report.read_only, report.notes), (None, Vec::new()));
        self.tsdb = Some(tsdb);
        self.clock.read_at_ms = self.ran_ms();
        self.hidden_ms = i64::MIN;
        self.limits();
    }

    fn stop(&mut self, cleanly: bool) {
        if cleanly {
            self.tsdb().close();
            self.clock.store();
        } else {
            self.clock.kill();
        }
        self.tsdb = None;
    }

    /// What retention may do at a tick.
    fn tick_model(&mut self) {
        let (wall, ran) = (self.wall_ms(), self.ran_ms());
        self.clock.tick(wall, ran);
        let Some((newest, age)) = self.newest.zip(self.retention_ms) else {
            self.hidden_ms = i64::MIN;
            return;
        };
        self.hidden_ms = newest.min(wall).min(self.clock.reached_ms) - age;
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

    /// Sends a sample; it is stored exactly where the rule says so.
    fn send(&mut self, series: u64, at: i64) {
        let mut batch = BatchBuilder::default();
        let sample = Sample { at: Timestamp::from_ms(at), value: value(series, at) };
        batch.series(&name(series), [sample]);
        let stored =
            self.tsdb().append(ORG, &batch.batch(), self.machine.now()).expect("answered").stored == 1;
        let (wall, reached) = (self.wall_ms(), self.clock.reached_ms);
        let last = wall.max(self.clock.latest_ms) + 10 * MINUTE;
        let alive = self.samples.keys().map(|(_, at)| *at).max();
        let by = |newest: Option<i64>| {
            let newest = newest.max((at <= last).then_some(at));
            let oldest = newest.zip(self.retention_ms);
            let oldest = oldest.map_or(i64::MIN, |(newest, age)| newest.min(wall).min(reached) - age);
            (oldest..=last).contains(&at)
        };
        let (least, most) = (by(self.newest), by(alive));
        assert!(stored == least || stored == most, "at {at}, wall {wall}, reached {reached}: {stored}");
        if stored {
            self.samples.insert((series, at), Fate::Kept);
            self.newest = self.newest.max(Some(at));
        }
    }

    fn samples_step(&mut self) {
        let ran = self.pick(&[0, 1_000, 15_000, MINUTE, 5 * MINUTE, 30 * MINUTE]);
        self.machine.run(ran);
        let off = if self.roll(12) == 0 { self.pick(&JUMPS) } else { 0 };
        for series in 0..=self.roll(2) {
            let series = (series + self.roll(SERIES)) % SERIES;
            let late = if self.roll(8) == 0 { self.roll(600_000).cast_signed() } else { 0 };
            // After 1 AD, whatever the jump.
            self.send(series, self.machine.true_ms + off - late);
        }
    }

    fn delete(&mut self) {
        let series = self.roll(SERIES);
        let times: Vec<i64> =
            self.samples.keys().filter(|(of, _)| *of == series).map(|(_, at)| *at).collect();
        let Some(from) = (!times.is_empty()).then(|| self.pick(&times)) else { return };
        let to = from + self.pick(&[0, HOUR, DAY, 30 * DAY]);
        let range = TimeRange::new(Timestamp::from_ms(from), Timestamp::from_ms(to));
        let job = Matcher::new("job", MatchOp::Equal, &format!("job-{series}")).expect("a matcher");
        self.tsdb().delete(ORG, &[vec![job]], range, self.machine.now()).expect("deleted");
        self.samples.retain(|(of, at), _| *of != series || *at < from || to < *at);
    }

    fn retention_step(&mut self) {
        let before = self.retention_ms;
        self.retention_ms = self.pick(&[None, Some(DAY), Some(4 * DAY), Some(4 * DAY), Some(90 * DAY)]);
        self.limits();
        match (before, self.retention_ms) {
            (_, None) => self.hidden_ms = i64::MIN,
            (Some(before), Some(after)) if after > before => {
                self.hidden_ms = self.hidden_ms.saturating_sub(after - before);
            }
            _ => {}
        }
    }

    fn jump(&mut self) {
        self.machine.ahead_ms = if self.roll(5) < 2 { 0 } else { self.pick(&JUMPS) };
        self.right_since = (self.machine.ahead_ms == 0).then(|| self.ran_ms());
    }

    /// What is there is what was stored, but for what was deleted and what retention may hide or remove.
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
                self.clock.reached_ms,
                self.hidden_ms
            );
        }
        self.check_log(what);
    }

    /// Once clocks have been right for a while the log ends behind what segments hold.
    fn check_log(&mut self, what: &str) {
        let right_for = self.right_since.map_or(0, |since| self.ran_ms() - since);
        let believed = self.clock.latest_ms <= self.wall_ms() + MINUTE;
        if right_for < 2 * HOUR.unsigned_abs() || !believed {
            return;
        }
        self.tsdb().seal(self.machine.now()).expect("sealed");
        let (files, set) =
            (self.tsdb().stats().wal_files, self.tsdb().stores.org(ORG).map(|org| org.segments()));
        let sealed_until = set.map_or(i64::MIN, |set| set.sealed_until);
        assert!(files <= 3, "{what}: {files} log files");
        assert!(sealed_until <= self.wall_ms() + HOUR, "{what}: sealed until {sealed_until}");
    }

    /// Damages the end of the log of a killed store, and takes one of the two ways out. What segments have is not lost.
    fn damage(&mut self) {
        self.tick_model();
        self.tsdb().seal_and_merge(self.machine.now()).expect("sealed");
        self.check("before the damage");
        let sealed: BTreeSet<(u64, i64)> = self.samples.keys().copied().collect();
        for _ in 0..self.roll(30) {
            self.samples_step();
        }
        self.stop(false);
        let wal = self.machine.dir.path().join("wal");
        let mut files: Vec<_> =
            std::fs::read_dir(&wal).expect("listed").map(|e| e.expect("one").path()).collect();
        files.sort();
        let path = files.last().expect("a log file");
        let mut bytes = std::fs::read(path).expect("read");
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64 + 1;
        let place = usize::try_from(self.roll(used)).expect("small");
        match self.roll(3) {
            0 => bytes[place] ^= 1 << self.roll(8),
            1 => bytes[place..].fill(0),
            _ => bytes.truncate(place),
        }
        std::fs::write(path, bytes).expect("written");
        if self.roll(2) == 0 {
            self.accept();
        } else {
            self.repair();
        }
        self.open();
        self.tick();
        let found = content(self.tsdb(), ORG);
        let shown = |(series, at): &(u64, i64)| {
            let samples = found.get(&name(*series).to_string());
            samples.is_some_and(|samples| samples.iter().any(|(have, _)| have == at))
        };
        let hidden_ms = self.hidden_ms;
        self.samples.retain(|key, _| sealed.contains(key) || shown(key) || key.1 < hidden_ms);
        for (key, fate) in &mut self.samples {
            if !sealed.contains(key) && !shown(key) {
                *fate = Fate::MayBeGone;
            }
        }
        self.check("after the damage");
    }

    /// `serve --accept-loss`.
    fn accept(&self) {
        let (control, _folder) = control(self.machine.dir.path());
        let home = Home { dir: self.machine.dir.path(), store: self.store, control };
        accept_loss(&home, &mut Entropy::seeded(11), self.machine.now()).expect("accepted");
    }

    /// `promlet repair`.
    fn repair(&mut self) {
        let (to, scratch) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
        let from = self.machine.dir.path();
        let accounts = from.join("accounts");
        let mut control = OfflineControl::read(&accounts, &scratch.path().join("scratch")).expect("read");
        std::fs::create_dir_all(to.path().join("accounts")).expect("made");
        repair(from, to.path(), &mut control, &mut Entropy::seeded(12), &mut |_| ()).expect("repaired");
        control.export(&to.path().join("accounts")).expect("exported");
        std::fs::copy(accounts.join("STORE"), to.path().join("accounts/STORE")).expect("copied");
        self.machine.dir = to;
    }

    fn step(&mut self) -> &'static str {
        match self.roll(10_000) {
            0..7_600 => {
                self.samples_step();
                "samples"
            }
            7_600..9_200 => {
                self.tick();
                "tick"
            }
            9_200..9_700 => {
                self.jump();
                "jump"
            }
            9_700..9_800 => {
                self.tsdb().seal_if_due(self.machine.now()).expect("sealed");
                "seal if due"
            }
            9_800..9_830 => {
                self.tsdb().seal(self.machine.now()).expect("sealed");
                "seal"
            }
            9_830..9_840 => {
                self.tick_model();
                self.tsdb().seal_and_merge(self.machine.now()).expect("sealed");
                "merge"
            }
            9_840..9_870 => {
                self.delete();
                "delete"
            }
            9_870..9_890 => {
                self.tsdb().checkpoint(self.machine.now()).expect("made");
                "checkpoint"
            }
            9_890..9_925 => {
                let cleanly = self.roll(2) == 0;
                self.stop(cleanly);
                self.machine.true_ms += self.pick(&[0, 0, MINUTE, HOUR, 2 * DAY, 30 * DAY]);
                self.open();
                self.check("after a start");
                "start"
            }
            9_925..9_975 => {
                self.retention_step();
                "retention"
            }
            9_975..9_980 => {
                self.damage();
                "damage"
            }
            _ => {
                self.check("at any time");
                "check"
            }
        }
    }
}

fn walk(seed: u64, steps: u64) {
    let failed = std::panic::catch_unwind(|| {
        let mut walk = Walk::new(seed);
        let mut last = "start";
        for number in 0..steps {
            let step = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| walk.step()));
            match step {
                Ok(what) => last = what,
                Err(_) => panic!("seed {seed}, step {number}, after {last}"),
            }
        }
        walk.check("at the end");
    });
    assert!(failed.is_ok(), "PROMLET_TIME_WALK={seed},1,{steps} repeats it");
}

#[expect(clippy::disallowed_methods, reason = "a longer walk is asked for by hand")]
fn told(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

#[test]
fn no_sequence_of_wrong_clocks_loses_a_sample_or_pins_the_log() {
    let told = told("PROMLET_TIME_WALK").unwrap_or_default();
    let numbers: Vec<u64> = told.split(',').filter_map(|n| n.parse().ok()).collect();
    let (first, seeds, steps) = match *numbers.as_slice() {
        [first, seeds, steps] => (first, seeds, steps),
        _ => (1, 40, 2_500),
    };
    let next = AtomicU64::new(first);
    std::thread::scope(|threads| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            threads.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    walk(seed, steps);
                }
            });
        }
    });
}
