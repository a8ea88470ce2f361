//! A model test of several organisations through all operations, by seed: long random runs instead
//! of small counterexamples, with floats and their [`side_data`].
//! `PROMLET_WALK=<first seed>,<seeds>,<steps>` makes it longer.

mod side_data;

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::model::effort::{requested_walks, rounds, variable};
use crate::model::{MatchOp, Matcher};
use crate::tsdb::options::Rest;
use side_data::SideModel;

/// A random generator that gives the same numbers for the same seed.
struct Dice(Entropy);

/// A type of number that [`Dice`] draws.
trait DiceNumber: Copy {
    fn wide(self) -> i64;
    fn narrow(wide: i64) -> Self;
}

macro_rules! dice_numbers {
    ($($number:ty),*) => {$(
        impl DiceNumber for $number {
            fn wide(self) -> i64 {
                i64::try_from(self).expect("small")
            }

            fn narrow(wide: i64) -> $number {
                <$number>::try_from(wide).expect("within the range")
            }
        }
    )*};
}
dice_numbers!(i32, i64, u8, u32, u64, usize);

impl Dice {
    fn random_range<T: DiceNumber>(&mut self, range: std::ops::Range<T>) -> T {
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

/// One series of floats by the rules of the head.
#[derive(Clone, Debug, Default)]
struct FloatSeries {
    /// Samples that came in order and were not deleted.
    in_order: BTreeMap<i64, u64>,
    samples: BTreeMap<i64, u64>,
    /// Samples that retention hid at some time. If the retention grows again, they may be visible
    /// or gone.
    hidden: BTreeMap<i64, u64>,
}

impl FloatSeries {
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
struct OrgModel {
    id: OrgId,
    barrier: i64,
    /// The greatest time of a sample that ever arrived.
    newest: Option<i64>,
    series: Vec<FloatSeries>,
    side_data: Vec<SideModel>,
    descriptions: BTreeMap<String, u64>,
}

impl OrgModel {
    fn new(id: u32) -> OrgModel {
        OrgModel {
            id: OrgId(id),
            barrier: i64::MIN,
            newest: None,
            series: vec![FloatSeries::default(); SERIES],
            side_data: vec![SideModel::default(); SERIES],
            descriptions: BTreeMap::new(),
        }
    }

    /// Returns the start of the retained time.
    fn kept_from(&self, age: Option<i64>, now: i64) -> i64 {
        self.newest.zip(age).map_or(i64::MIN, |(newest, age)| newest.min(now) - age)
    }

    fn hide(&mut self, kept_from: i64) {
        self.series.iter_mut().for_each(|series| series.hide(kept_from));
        self.side_data.iter_mut().for_each(|side_data| side_data.hide(kept_from));
    }
}

/// A sample of a request.
#[derive(Clone, Copy, Debug)]
struct SentSample {
    series: usize,
    at: i64,
    number: u64,
    is_histogram: bool,
    start: Option<i64>,
    exemplar: bool,
}

/// A random run.
struct ModelRun {
    rng: Dice,
    dir: tempfile::TempDir,
    faults: Arc<Faults>,
    tsdb: Option<Opened>,
    now: i64,
    orgs: Vec<OrgModel>,
    next_org: u32,
    retention: Option<i64>,
    /// The number of starts so far.
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

impl ModelRun {
    fn new(seed: u64) -> ModelRun {
        let faults = faults();
        faults.log_file_bytes.store(64 << 10, Ordering::SeqCst);
        let mut run = ModelRun {
            rng: Dice(Entropy::seeded(seed)),
            dir: crate::kv::scratch::temporary_folder().expect("made"),
            faults,
            tsdb: None,
            now: NOW.as_ms(),
            orgs: vec![OrgModel::new(1), OrgModel::new(2)],
            next_org: 3,
            retention: None,
            starts: 0,
            gone: BTreeSet::new(),
        };
        run.open();
        run
    }

    fn tsdb(&self) -> &Opened {
        self.tsdb.as_ref().expect("open")
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.now)
    }

    fn open(&mut self) {
        self.tsdb = None;
        // Reads are the same with an unlimited cache of decoded values, with a tiny one and
        // without.
        let decoded_bytes_max = [32 << 20, 3_000, 0][self.starts % 3];
        self.starts += 1;
        let rest = Rest::by(|_| {});
        let options = Options { rest, ahead_max: None, decoded_bytes_max, ..options(&self.faults) };
        let (tsdb, report) = open_with(self.dir.path(), options);
        assert_eq!((report.read_only, report.notes), (None, Vec::new()));
        self.tsdb = Some(tsdb);
        self.limits();
        for index in 0..self.orgs.len() {
            let id = self.orgs[index].id;
            let barrier = self.barrier(id);
            let found = self.newest(id);
            let org = &mut self.orgs[index];
            assert_eq!(barrier, org.barrier, "the barrier of {id} after a start");
            // A start may forget the newest time if the newest samples were deleted.
            let least = org.series.iter().filter_map(|series| series.samples.keys().next_back()).max();
            assert!(
                least.copied() <= found && found <= org.newest,
                "{id}: {least:?}, {found:?}, {:?}",
                org.newest
            );
            org.newest = found;
        }
        self.maintain_at(self.now);
    }

    /// Runs maintenance at that time, and applies retention to the model.
    fn maintain_at(&mut self, now: i64) {
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

    fn record_barriers(&mut self) {
        for index in 0..self.orgs.len() {
            let barrier = self.barrier(self.orgs[index].id);
            let org = &mut self.orgs[index];
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
        let index = self.rng.random_range(0..self.orgs.len());
        let mut samples = Vec::new();
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
                let (start, exemplar) = (None, false);
                samples.push(SentSample { series, at, number, is_histogram, start, exemplar });
            }
        }
        // Exemplars and start timestamps have the time of a sample and are deleted with it.
        for sample in &mut samples {
            sample.exemplar = self.rng.random_range(0..8) == 0;
            if self.rng.random_range(0..4) == 0 {
                let start = sample.at - 1_000 * self.rng.random_range(1..4);
                sample.start = (start != 0).then_some(start);
            }
        }
        let described = (self.rng.random_range(0..10) == 0).then(|| self.rng.random_range(0..4u64));
        self.send(index, &samples, described);
    }

    fn send(&mut self, index: usize, samples: &[SentSample], described: Option<u64>) {
        let mut batch = BatchBuilder::default();
        let metric = |number: u64| if number.is_multiple_of(2) { "up" } else { "down" };
        for sample in samples {
            let at = Timestamp::from_ms(sample.at);
            let value = sample.number as f64;
            batch.series(&name(sample.series), (!sample.is_histogram).then_some(Sample { at, value }));
            if sample.is_histogram {
                batch.histograms([(at, side_data::histogram(sample.number))]);
            }
            if sample.exemplar {
                batch.exemplar(side_data::exemplar(sample.at, sample.number));
            }
            if let Some(start) = sample.start {
                batch.start(at, Timestamp::from_ms(start));
            }
        }
        if let Some(number) = described {
            side_data::describe(&mut batch, metric(number), number);
        }
        if variable("PROMLET_WALK_TELL").is_some() {
            eprintln!("to {}: {samples:?}", self.orgs[index].id);
        }
        let report = self.tsdb().append(self.orgs[index].id, &batch.batch(), self.now()).expect("stored");
        let org = &mut self.orgs[index];
        org.newest = org.newest.max(samples.iter().map(|sample| sample.at).max());
        let (barrier, oldest) = (org.barrier, org.kept_from(self.retention, self.now));
        let (mut stored, mut exemplars) = (0, 0);
        // The records of a request hold its series in order of id, and the samples of a series in
        // the order of the request.
        for SentSample { series, at, number, is_histogram, start, exemplar } in samples.iter().copied() {
            if at < oldest {
                continue;
            }
            let side_data = &mut org.side_data[series];
            stored += u64::from(if is_histogram {
                side_data.histograms.put(at, number, barrier)
            } else {
                org.series[series].put(at, (number as f64).to_bits(), barrier)
            });
            exemplars += u64::from(exemplar && side_data.put_exemplar(at, number));
            if let Some(start) = start {
                side_data.starts.insert(at, start);
            }
        }
        if let Some(number) = described {
            org.descriptions.insert(metric(number).to_owned(), number);
        }
        assert_eq!((report.stored, report.exemplars), (stored, exemplars), "stored, exemplars");
    }

    fn delete(&mut self) {
        let index = self.rng.random_range(0..self.orgs.len());
        let (a, b) = (self.time(), self.time());
        let (from, to) = if self.rng.random_range(0..3) == 0 { (a, a) } else { (a.min(b), a.max(b)) };
        let range = TimeRange::new(Timestamp::from_ms(from), Timestamp::from_ms(to));
        let down = self.rng.random_bool(0.5);
        let matcher =
            Matcher::new("__name__", MatchOp::Equal, if down { "down" } else { "up" }).expect("one");
        let id = self.orgs[index].id;
        self.tsdb().delete(id, &[vec![matcher]], range, self.now()).expect("deleted");
        let OrgModel { series, side_data, .. } = &mut self.orgs[index];
        for (number, (series, side_data)) in series.iter_mut().zip(side_data).enumerate() {
            if number.is_multiple_of(2) != down {
                series.delete(from, to);
                side_data.delete(from, to);
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
                self.record_barriers();
                self.open();
            }
        }
        self.record_barriers();
    }

    fn maintain(&mut self) {
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
        let index = self.rng.random_range(0..self.orgs.len());
        let id = self.orgs[index].id;
        self.tsdb().drop_org(id, self.now()).expect("dropped");
        self.gone.insert(id);
        self.orgs[index] = OrgModel::new(self.next_org);
        self.next_org += 1;
        self.limits();
    }

    /// Runs maintenance with a wrong clock, ahead or behind.
    fn wrong_clock(&mut self) {
        let wrong = self.now + [400 * DAY, -400 * DAY][self.rng.random_range(0..2usize)];
        self.maintain_at(wrong);
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
                self.maintain();
                "upkeep"
            }
            840..890 => {
                self.delete();
                "delete"
            }
            890..940 => {
                self.tsdb().checkpoint().expect("made");
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
            self.maintain_at(self.now);
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
                // At a time with both, the histogram wins.
                let hidden = &org.side_data[number].histograms.samples;
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
            assert!(found.is_empty(), "series that were never written");
            let wrong = side_data::complaint(self.tsdb(), org.id, &org.side_data, &org.descriptions);
            assert_eq!(wrong, None, "{what}: {}, barrier {}, now {}", org.id, org.barrier, self.now);
        }
        for org in &self.gone {
            assert_eq!(content(self.tsdb(), *org), StoreContent::new());
        }
    }
}

fn run_model(seed: u64, steps: usize) {
    let mut run = ModelRun::new(seed);
    for number in 0..steps {
        let what = run.step();
        if variable("PROMLET_WALK_TELL").is_some() {
            eprintln!(
                "{number}: {what} now {} barriers {:?}",
                run.now,
                run.orgs.iter().map(|o| o.barrier).collect::<Vec<_>>()
            );
        }
        run.check(&format!("seed {seed}, step {number}, {what}"));
    }
}

#[test]
fn organisations_equal_maps_through_all_operations() {
    let (seeds, steps) = requested_walks("PROMLET_WALK").unwrap_or((1..rounds(2, 3), 150));
    for seed in seeds {
        run_model(seed, usize::try_from(steps).expect("few"));
    }
}
