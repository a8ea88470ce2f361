//! The store of several organisations against a map, through everything at once, by seed: a long walk and not a small
//! counterexample; floats and what is [`beside`] them. `PROMLET_WALK=<first seed>,<seeds>,<steps>` makes it longer.

mod beside;

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::model::{MatchOp, Matcher};
use crate::tsdb::options::Rest;
use beside::Beside;

/// Numbers by chance, the same for the same seed.
struct Dice(Entropy);

/// What [`Dice`] has sides of.
trait Side: Copy {
    fn wide(self) -> i64;
    fn narrow(wide: i64) -> Self;
}

macro_rules! sides {
    ($($number:ty),*) => {$(
        impl Side for $number {
            fn wide(self) -> i64 {
                i64::try_from(self).expect("small")
            }

            fn narrow(wide: i64) -> $number {
                <$number>::try_from(wide).expect("within the range")
            }
        }
    )*};
}
sides!(i32, i64, u8, u32, u64, usize);

impl Dice {
    fn random_range<T: Side>(&mut self, range: std::ops::Range<T>) -> T {
        let (start, end) = (range.start.wide(), range.end.wide());
        let drawn = u64::from_le_bytes(self.0.bytes()) % (end - start).cast_unsigned();
        T::narrow(start + drawn.cast_signed())
    }

    fn random_bool(&mut self, chance: f64) -> bool {
        self.0.unit() < chance
    }
}

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const SERIES: usize = 5;

/// One series by the rules of the head.
#[derive(Clone, Debug, Default)]
struct Series {
    /// What came in order and was not deleted.
    in_order: BTreeMap<i64, u64>,
    samples: BTreeMap<i64, u64>,
    /// What was older than is kept at some time. Where less is too old again, it may be seen again, or may be gone.
    hidden: BTreeMap<i64, u64>,
}

impl Series {
    fn put(&mut self, at: i64, bits: u64, barrier: i64) -> bool {
        if at >= barrier {
            match self.in_order.range(barrier..).next_back() {
                Some((last, have)) if *last == at && *have != bits => return false,
                Some((last, _)) if *last == at => {
                    return true;
                }
                Some((last, _)) if *last > at => {}
                _ => drop(self.in_order.insert(at, bits)),
            }
        }
        self.hidden.remove(&at);
        self.samples.insert(at, bits);
        true
    }

    fn hide(&mut self, kept_from: i64) {
        let kept = self.samples.split_off(&kept_from);
        self.hidden.append(&mut std::mem::replace(&mut self.samples, kept));
    }

    fn delete(&mut self, from: i64, to: i64) {
        self.samples.retain(|at, _| *at < from || to < *at);
        self.hidden.retain(|at, _| *at < from || to < *at);
        self.in_order.retain(|at, _| *at < from || to < *at);
    }
}

#[derive(Debug)]
struct Org {
    id: OrgId,
    barrier: i64,
    /// The greatest time of a sample that ever came.
    newest: Option<i64>,
    series: Vec<Series>,
    beside: Vec<Beside>,
    descriptions: BTreeMap<String, u64>,
}

impl Org {
    fn new(id: u32) -> Org {
        Org {
            id: OrgId(id),
            barrier: i64::MIN,
            newest: None,
            series: vec![Series::default(); SERIES],
            beside: vec![Beside::default(); SERIES],
            descriptions: BTreeMap::new(),
        }
    }

    /// What is older is not kept.
    fn kept_from(&self, age: Option<i64>, now: i64) -> i64 {
        self.newest.zip(age).map_or(i64::MIN, |(newest, age)| newest.min(now) - age)
    }

    fn hide(&mut self, kept_from: i64) {
        self.series.iter_mut().for_each(|series| series.hide(kept_from));
        self.beside.iter_mut().for_each(|beside| beside.hide(kept_from));
    }
}

/// What one request says of a series at a time.
#[derive(Clone, Copy, Debug)]
struct Said {
    series: usize,
    at: i64,
    number: u64,
    is_histogram: bool,
    start: Option<i64>,
    exemplar: bool,
}

struct Walk {
    rng: Dice,
    dir: tempfile::TempDir,
    faults: Arc<Faults>,
    tsdb: Option<Opened>,
    now: i64,
    orgs: Vec<Org>,
    next_org: u32,
    retention: Option<i64>,
    /// Starts so far.
    starts: usize,
    gone: BTreeSet<OrgId>,
}

fn name(series: usize) -> Labels {
    if series.is_multiple_of(2) {
        up(&format!("job-{series}"))
    } else {
        labels(&[("__name__", "down"), ("n", &series.to_string())])
    }
}

impl Walk {
    fn new(seed: u64) -> Walk {
        let faults = faults();
        faults.log_file_bytes.store(64 << 10, Ordering::SeqCst);
        let mut walk = Walk {
            rng: Dice(Entropy::seeded(seed)),
            dir: tempfile::tempdir().expect("made"),
            faults,
            tsdb: None,
            now: NOW.as_ms(),
            orgs: vec![Org::new(1), Org::new(2)],
            next_org: 3,
            retention: None,
            starts: 0,
            gone: BTreeSet::new(),
        };
        walk.open();
        walk
    }

    fn tsdb(&self) -> &Opened {
        self.tsdb.as_ref().expect("open")
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.now)
    }

    fn open(&mut self) {
        self.tsdb = None;
        // What is read is the same with as much kept decoded as there is, with hardly anything and with nothing.
        let decoded_bytes_max = [32 << 20, 3_000, 0][self.starts % 3];
        self.starts += 1;
        let rest = Rest::by(|_| {});
        let options = Options { rest, ahead_max: None, decoded_bytes_max, ..options(&self.faults) };
        let (tsdb, report) = open_with(self.dir.path(), options);
        assert_eq!((report.read_only, report.notes), (None, Vec::new()));
        self.tsdb = Some(tsdb);
        self.limits();
        for place in 0..self.orgs.len() {
            let id = self.orgs[place].id;
            let barrier = self.barrier(id);
            let found = self.newest(id);
            let org = &mut self.orgs[place];
            assert_eq!(barrier, org.barrier, "the barrier of {id} after a start");
            // Where the newest ones were deleted, that may be forgotten.
            let least = org.series.iter().filter_map(|series| series.samples.keys().next_back()).max();
            assert!(
                least.copied() <= found && found <= org.newest,
                "{id}: {least:?}, {found:?}, {:?}",
                org.newest
            );
            org.newest = found;
        }
        self.upkeep_at(self.now);
    }

    /// What a tick at that time does to what is kept.
    fn upkeep_at(&mut self, now: i64) {
        self.tsdb().maintain(Timestamp::from_ms(now)).expect("done");
        let age = self.retention;
        for org in &mut self.orgs {
            org.hide(org.kept_from(age, now));
        }
    }

    fn newest(&self, org: OrgId) -> Option<i64> {
        self.tsdb().stores.org(org)?.usage.newest().map(Timestamp::as_ms)
    }

    fn limits(&self) {
        let retention = self.retention.map(|ms| Duration::from_millis(ms.unsigned_abs()));
        for org in &self.orgs {
            self.tsdb().set_limits(org.id, OrgLimits { retention, ..OrgLimits::default() });
        }
    }

    fn barrier(&self, org: OrgId) -> i64 {
        self.tsdb().stores.org(org).map_or(i64::MIN, |store| store.head.barrier())
    }

    fn note_barriers(&mut self) {
        for place in 0..self.orgs.len() {
            let barrier = self.barrier(self.orgs[place].id);
            let org = &mut self.orgs[place];
            assert!(barrier >= org.barrier, "a barrier fell");
            org.barrier = barrier;
        }
    }

    fn time(&mut self) -> i64 {
        let barrier = self.orgs[self.rng.random_range(0..self.orgs.len())].barrier;
        match self.rng.random_range(0..10) {
            0..5 => self.now - self.rng.random_range(0..20) * 15_000,
            5 => self.now - self.rng.random_range(0..40) * 5 * MINUTE,
            6 => self.now - self.rng.random_range(0..6) * DAY - self.rng.random_range(0..30) * HOUR,
            7 if barrier > i64::MIN => barrier + self.rng.random_range(-1..2),
            8 if self.rng.random_range(0..40) == 0 => self.now + self.rng.random_range(0..3) * HOUR,
            9 if self.retention.is_none() && self.rng.random_range(0..40) == 0 => {
                [-62_135_596_800_000, -1, 0, -5_000 * DAY][self.rng.random_range(0..4usize)]
            }
            _ => self.now,
        }
    }

    fn append(&mut self) {
        let place = self.rng.random_range(0..self.orgs.len());
        let mut wanted = Vec::new();
        for _ in 0..self.rng.random_range(1..4) {
            let series = self.rng.random_range(0..SERIES);
            let start = self.time();
            let count = if self.rng.random_range(0..6) == 0 {
                self.rng.random_range(1..400)
            } else {
                self.rng.random_range(1..5)
            };
            let step = [1i64, 1_000, 15_000, 61_000, 3 * HOUR][self.rng.random_range(0..5usize)];
            let step = if count > 10 { step.min(15_000) } else { step };
            let backwards = self.rng.random_range(0..4) == 0;
            let is_histogram = self.rng.random_range(0..3) == 0;
            for n in 0..count {
                let at = if backwards {
                    start.saturating_sub(n * step)
                } else {
                    start.saturating_add((n - count) * step)
                };
                let (at, number) = (at.max(-62_135_596_800_000), self.rng.random_range(0..3u64));
                wanted.push(Said { series, at, number, is_histogram, start: None, exemplar: false });
            }
        }
        // At the newest times, and with a sample: what is deleted with that sample goes with it.
        for said in &mut wanted {
            said.exemplar = self.rng.random_range(0..8) == 0;
            if self.rng.random_range(0..4) == 0 {
                let start = said.at - 1_000 * self.rng.random_range(1..4);
                said.start = (start != 0).then_some(start);
            }
        }
        let described = (self.rng.random_range(0..10) == 0).then(|| self.rng.random_range(0..4u64));
        self.send(place, &wanted, described);
    }

    fn send(&mut self, place: usize, wanted: &[Said], described: Option<u64>) {
        let mut batch = BatchBuilder::default();
        let metric = |number: u64| if number.is_multiple_of(2) { "up" } else { "down" };
        for said in wanted {
            let at = Timestamp::from_ms(said.at);
            let value = said.number as f64;
            batch.series(&name(said.series), (!said.is_histogram).then_some(Sample { at, value }));
            if said.is_histogram {
                batch.histograms([(at, beside::histogram(said.number))]);
            }
            if said.exemplar {
                batch.exemplar(beside::exemplar(said.at, said.number));
            }
            if let Some(start) = said.start {
                batch.start(at, Timestamp::from_ms(start));
            }
        }
        if let Some(number) = described {
            beside::describe(&mut batch, metric(number), number);
        }
        if told("PROMLET_WALK_TELL").is_some() {
            eprintln!("to {}: {wanted:?}", self.orgs[place].id);
        }
        let report = self.tsdb().append(self.orgs[place].id, &batch.batch(), self.now()).expect("stored");
        let org = &mut self.orgs[place];
        org.newest = org.newest.max(wanted.iter().map(|said| said.at).max());
        let (barrier, oldest) = (org.barrier, org.kept_from(self.retention, self.now));
        let (mut stored, mut exemplars) = (0, 0);
        // The records of a request hold its series in order of id; within a series the order of the request.
        for Said { series, at, number, is_histogram, start, exemplar } in wanted.iter().copied() {
            if at < oldest {
                continue;
            }
            let beside = &mut org.beside[series];
            stored += u64::from(if is_histogram {
                beside.histograms.put(at, number, barrier)
            } else {
                org.series[series].put(at, (number as f64).to_bits(), barrier)
            });
            exemplars += u64::from(exemplar && beside.put_exemplar(at, number));
            if let Some(start) = start {
                beside.starts.insert(at, start);
            }
        }
        if let Some(number) = described {
            org.descriptions.insert(metric(number).to_owned(), number);
        }
        assert_eq!((report.stored, report.exemplars), (stored, exemplars), "stored, exemplars");
    }

    fn delete(&mut self) {
        let place = self.rng.random_range(0..self.orgs.len());
        let (a, b) = (self.time(), self.time());
        let (from, to) = if self.rng.random_range(0..3) == 0 { (a, a) } else { (a.min(b), a.max(b)) };
        let range = TimeRange::new(Timestamp::from_ms(from), Timestamp::from_ms(to));
        let down = self.rng.random_bool(0.5);
        let matcher =
            Matcher::new("__name__", MatchOp::Equal, if down { "down" } else { "up" }).expect("one");
        let id = self.orgs[place].id;
        self.tsdb().delete(id, &[vec![matcher]], range, self.now()).expect("deleted");
        let Org { series, beside, .. } = &mut self.orgs[place];
        for (number, (series, beside)) in series.iter_mut().zip(beside).enumerate() {
            if number.is_multiple_of(2) != down {
                series.delete(from, to);
                beside.delete(from, to);
            }
        }
    }

    fn seal(&mut self) {
        let now = self.now();
        match self.rng.random_range(0..8) {
            0..3 => drop(self.tsdb().seal(now).expect("sealed")),
            3..6 => {
                for later in [0, 10_000] {
                    self.tsdb().seal_if_due(now.plus_ms(later)).expect("sealed");
                }
            }
            6 => seal::without_room_for_segments(self.dir.path(), || drop(self.tsdb().seal(now))),
            _ => {
                let steps = self.rng.random_range(0..12);
                self.faults.seal_steps_left.store(steps, Ordering::SeqCst);
                drop(self.tsdb().seal(now));
                self.faults.seal_steps_left.store(-1, Ordering::SeqCst);
                self.note_barriers();
                self.open();
            }
        }
        self.note_barriers();
    }

    fn upkeep(&mut self) {
        let now = self.now();
        match self.rng.random_range(0..4) {
            0 => drop(self.tsdb().compact(now).expect("compacted")),
            1 | 2 => drop(self.tsdb().maintain(now).expect("done")),
            _ => {
                let steps = self.rng.random_range(0..9);
                self.faults.upkeep_steps_left.store(steps, Ordering::SeqCst);
                drop(self.tsdb().compact(now));
                self.faults.upkeep_steps_left.store(-1, Ordering::SeqCst);
                self.open();
            }
        }
    }

    fn drop_one(&mut self) {
        let place = self.rng.random_range(0..self.orgs.len());
        let id = self.orgs[place].id;
        self.tsdb().drop_org(id, self.now()).expect("dropped");
        self.gone.insert(id);
        self.orgs[place] = Org::new(self.next_org);
        self.next_org += 1;
        self.limits();
    }

    /// A clock that is wrong for a while, to either side.
    fn wrong_clock(&mut self) {
        let wrong = self.now + [400 * DAY, -400 * DAY][self.rng.random_range(0..2usize)];
        self.upkeep_at(wrong);
    }

    fn step(&mut self) -> &'static str {
        match self.rng.random_range(0..1_000) {
            0..600 => {
                self.append();
                "append"
            }
            600..680 => {
                let span =
                    [15_000, 15 * MINUTE, 40 * MINUTE, 5 * HOUR, -HOUR][self.rng.random_range(0..5usize)];
                self.now += span;
                "time"
            }
            680..780 => {
                self.seal();
                "seal"
            }
            780..840 => {
                self.upkeep();
                "upkeep"
            }
            840..890 => {
                self.delete();
                "delete"
            }
            890..940 => {
                self.tsdb().checkpoint(self.now()).expect("made");
                "checkpoint"
            }
            940..985 => {
                if self.rng.random_bool(0.5) {
                    self.tsdb().close();
                }
                self.open();
                "start"
            }
            985..990 => {
                self.drop_one();
                "drop"
            }
            990..993 => {
                let days = self.rng.random_range(3..9);
                self.retention = Some(self.retention.unwrap_or(i64::MAX).min(days * DAY));
                self.limits();
                "retention"
            }
            993..996 => {
                self.wrong_clock();
                "a wrong clock"
            }
            _ => {
                self.now += 20 * HOUR;
                "a day"
            }
        }
    }

    fn check(&mut self, what: &str) {
        if self.retention.is_some() {
            self.upkeep_at(self.now);
        }
        for org in &self.orgs {
            let mut found = content(self.tsdb(), org.id);
            found.retain(|_, samples| !samples.is_empty());
            for (number, series) in org.series.iter().enumerate() {
                let mut found = found.remove(&name(number).to_string()).unwrap_or_default();
                let kept_from = org.kept_from(self.retention, self.now);
                assert!(found.first().is_none_or(|(at, _)| *at >= kept_from), "{what}: too old");
                found.retain(|(at, bits)| {
                    series.samples.contains_key(at) || series.hidden.get(at) != Some(bits)
                });
                // At a time that has both, the histogram is what there is.
                let hidden = &org.beside[number].histograms.samples;
                let floats = series.samples.iter().filter(|(at, _)| !hidden.contains_key(at));
                let expected: Vec<(i64, u64)> = floats.map(|(at, bits)| (*at, *bits)).collect();
                if found != expected {
                    let a: BTreeSet<_> = found.iter().copied().collect();
                    let b: BTreeSet<_> = expected.iter().copied().collect();
                    let more: Vec<_> = a.difference(&b).take(5).collect();
                    let less: Vec<_> = b.difference(&a).take(5).collect();
                    panic!(
                        "{what}: {} {}: too many {more:?}, missing {less:?}, barrier {}, now {}",
                        org.id,
                        name(number),
                        org.barrier,
                        self.now
                    );
                }
            }
            assert!(found.is_empty(), "series that nobody wrote");
            let wrong = beside::complaint(self.tsdb(), org.id, &org.beside, &org.descriptions);
            assert_eq!(wrong, None, "{what}: {}, barrier {}, now {}", org.id, org.barrier, self.now);
        }
        for org in &self.gone {
            assert_eq!(content(self.tsdb(), *org), Content::new());
        }
    }
}

fn walk(seed: u64, steps: usize) {
    let mut walk = Walk::new(seed);
    for number in 0..steps {
        let what = walk.step();
        if told("PROMLET_WALK_TELL").is_some() {
            eprintln!(
                "{number}: {what} now {} barriers {:?}",
                walk.now,
                walk.orgs.iter().map(|o| o.barrier).collect::<Vec<_>>()
            );
        }
        walk.check(&format!("seed {seed}, step {number}, {what}"));
    }
}

#[expect(clippy::disallowed_methods, reason = "a longer walk is asked for by hand")]
fn told(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

#[test]
fn organisations_equal_maps_through_everything() {
    let told = told("PROMLET_WALK").unwrap_or_default();
    let numbers: Vec<u64> = told.split(',').filter_map(|n| n.parse().ok()).collect();
    let (first, seeds, steps) = match *numbers.as_slice() {
        [first, seeds, steps] => (first, seeds, steps),
        _ => (1, 2, 150),
    };
    for seed in first..first + seeds {
        walk(seed, usize::try_from(steps).expect("few"));
    }
}
