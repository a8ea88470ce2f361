//! Moves between a store in memory and a target that records every sample that it accepts. A move
//! is stopped at each of its calls, before and after the call has had its effect, and continues
//! from its stored row: the target has every sample exactly once.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::forward::encode::{BodyCompression, EncodedRequest, WriteVersion};
use crate::identity::{MoveCounts, MoveDirection, MoveRow, MoveStep};
use crate::ingest::{DecodeLimits, DecodeScratch, remote_write, remote_write2};
use crate::model::{
    Access, BatchBuilder, Exemplar, Labels, METRIC_NAME, Matcher, OrgId, Sample, TimeRange, Timestamp,
    stale_nan,
};
use crate::tsdb::{MetricFilter, Options, Snapshot, Tsdb};

const ORG: OrgId = OrgId(3);
const START: i64 = 1_700_000_000_000;

/// The samples at a target in the order of their arrival: time and bits, by series.
type Arrived = BTreeMap<Labels, Vec<(i64, u64)>>;

/// How the target answers a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Behaviour {
    #[default]
    Accepts,
    /// Every second request is stored and answered with a timeout.
    TimesOut,
    /// The most samples of a request; a larger one is refused and not stored.
    TakesAtMost(usize),
    /// The most samples of a request that is stored completely; of a larger one, the last sample is
    /// not stored.
    StoresPart(usize),
    /// The first requests are acknowledged and forgotten.
    Forgets(usize),
    /// Earlier samples are acknowledged and not stored.
    DropsBefore(i64),
    /// A request with a sample of the metric `bad` is refused and not stored.
    RefusesBad,
    /// A request with an exemplar is refused and not stored.
    RefusesExemplars,
}

/// A record of the log: a series with its samples.
type LogRecord = (Labels, Vec<Sample>);

/// A store, a target, and a move between them.
struct World {
    tsdb: Tsdb,
    /// The log since the beginning of the test.
    log: Vec<LogRecord>,
    arrived: Arrived,
    behaviour: Behaviour,
    requests: usize,
    row: Option<MoveRow>,
    switched: Option<u64>,
    /// The number of calls until the move stops, and whether the last call has its effect.
    calls_left: Option<(usize, bool)>,
    /// Samples that senders write while the move runs: at this call.
    arrivals: Vec<(usize, LogRecord)>,
    calls: usize,
    limits: DecodeLimits,
    /// The limit of a response, and the number of responses that exceeded it.
    response_bytes_max: usize,
    too_large: usize,
    version: WriteVersion,
    /// The first record that the log has.
    log_begin: u64,
    /// The number of next calls of `save` that fail.
    failing_saves: usize,
    /// Whether each series of the tail has an exemplar.
    has_exemplars: bool,
}

impl World {
    fn new() -> World {
        World {
            tsdb: Tsdb::in_memory(Options::default(), [7; 32]),
            log: Vec::new(),
            arrived: Arrived::new(),
            behaviour: Behaviour::Accepts,
            requests: 0,
            row: None,
            switched: None,
            calls_left: None,
            arrivals: Vec::new(),
            calls: 0,
            limits: DecodeLimits::default(),
            response_bytes_max: usize::MAX,
            too_large: 0,
            version: WriteVersion::V1,
            log_begin: 0,
            failing_saves: 0,
            has_exemplars: false,
        }
    }

    fn append(&mut self, (labels, samples): LogRecord) {
        let mut batch = BatchBuilder::default();
        batch.series(&labels, samples.iter().copied());
        let now = Timestamp::from_ms(START + 100 * 3_600_000);
        let report = self.tsdb.append(ORG, &batch.batch(), now).expect("appends");
        assert_eq!(report.stored + report.refused, samples.len() as u64);
        self.log.push((labels, samples));
    }

    /// Counts a call. `Err` means that the move stops before the call has an effect.
    fn call(&mut self) -> Result<(), MoveStop> {
        self.calls += 1;
        while let Some(place) = self.arrivals.iter().position(|(at, _)| *at <= self.calls) {
            let (_, record) = self.arrivals.remove(place);
            self.append(record);
        }
        match &mut self.calls_left {
            Some((0, _)) => Err(MoveStop::Stopping),
            Some((left, has_effect)) => {
                *left -= 1;
                if *left == 0 && !*has_effect { Err(MoveStop::Stopping) } else { Ok(()) }
            }
            None => Ok(()),
        }
    }

    /// Returns whether the move stops after the effect of this call.
    fn ends(&self) -> bool {
        self.calls_left.is_some_and(|(left, _)| left == 0)
    }

    fn after(&self) -> Result<(), MoveStop> {
        if self.ends() { Err(MoveStop::Stopping) } else { Ok(()) }
    }

    fn receive(&mut self, request: &EncodedRequest, version: WriteVersion) {
        let mut scratch = DecodeScratch::default();
        let batch = match version {
            WriteVersion::V1 => remote_write::decode(&request.body, &self.limits, &mut scratch),
            WriteVersion::V2 => remote_write2::decode(&request.body, &self.limits, &mut scratch),
        }
        .expect("decodes");
        let mut left = match self.behaviour {
            Behaviour::StoresPart(most) if batch.samples.len() > most => batch.samples.len() - 1,
            _ => batch.samples.len(),
        };
        for series in &batch.series {
            let mut pairs = Vec::new();
            (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels");
            let text = |bytes: &[u8]| std::str::from_utf8(bytes).expect("UTF-8").to_owned();
            let labels = Labels::from_pairs(pairs.into_iter().map(|(name, value)| (text(name), text(value))));
            let all = self.arrived.entry(labels).or_default();
            for sample in batch.samples[series.samples.clone()].iter().take(left) {
                match self.behaviour {
                    Behaviour::DropsBefore(first) if sample.at.as_ms() < first => {}
                    _ => all.push((sample.at.as_ms(), sample.value.to_bits())),
                }
            }
            left = left.saturating_sub(series.samples.len());
        }
    }

    fn run(&mut self) -> Result<(), MoveStop> {
        let new = MoveRow::new(Vec::new(), String::new(), Timestamp::from_ms(START));
        let row = self.row.clone().unwrap_or(new);
        let options = self.options();
        Mover::new(self, row, options).run()
    }

    fn options(&self) -> MoverOptions {
        MoverOptions {
            version: self.version,
            compression: BodyCompression::Snappy,
            tenant_label: None,
            settle: Duration::from_secs(1),
        }
    }

    /// Sends the log after the switch during a number of calls.
    fn forward(&mut self, calls: usize) {
        self.calls_left = Some((calls, true));
        let (row, options) = (self.row.clone().expect("stored"), self.options());
        assert_eq!(Mover::new(self, row, options).forward().err(), Some(MoveStop::Stopping));
        self.calls_left = None;
    }

    /// Returns a world whose organisation is moved.
    fn moved() -> World {
        let mut world = World::new();
        world.append((series("up", 0), samples(START, 60_000, 20)));
        world.run().expect("moves");
        world
    }

    fn count(&self) -> MoveCounts {
        self.row.as_ref().expect("stored").counts
    }

    fn values_at(&self, labels: &Labels, at_ms: i64) -> Vec<f64> {
        let found = self.arrived[labels].iter().filter(|(at, _)| *at == at_ms);
        found.map(|(_, bits)| f64::from_bits(*bits)).collect()
    }

    /// Returns everything that was ever written, ascending in time.
    fn written(&self) -> Arrived {
        let mut all = Arrived::new();
        for (labels, samples) in &self.log {
            let pairs = samples.iter().map(|one| (one.at.as_ms(), one.value.to_bits()));
            all.entry(labels.clone()).or_default().extend(pairs);
        }
        all.values_mut().for_each(|samples| samples.sort_unstable());
        all
    }

    fn assert_moved(&self, context: &str) {
        let marker = stale_nan().to_bits();
        let mut arrived = self.arrived.clone();
        for samples in arrived.values_mut() {
            samples.sort_unstable();
            // A marker cannot be read back, so an interruption may send it twice.
            samples.dedup_by(|a, b| a == b && a.1 == marker);
        }
        // Records after the switch are forwarded.
        let switched = self.switched.expect("switched");
        assert_eq!(switched, self.log.len() as u64, "{context}: the whole log");
        let written = self.written();
        for (labels, samples) in &written {
            let found = arrived.remove(labels).unwrap_or_default();
            let lost: Vec<_> = samples.iter().filter(|one| !found.contains(one)).collect();
            assert!(
                found == *samples,
                "{context}: {labels}: {} of {}, lost {lost:?}",
                found.len(),
                samples.len()
            );
        }
        assert!(arrived.is_empty(), "{context}: unknown series");
    }
}

impl MoveEnvironment for World {
    fn save(&mut self, row: &MoveRow) -> Result<(), MoveStop> {
        self.call()?;
        if self.failing_saves > 0 {
            self.failing_saves -= 1;
            return Err(MoveStop::Failed("the follower is away".to_owned()));
        }
        self.row = Some(row.clone());
        self.after()
    }

    fn write(&mut self, request: EncodedRequest) -> Result<(), WriteFailure> {
        let lost = || WriteFailure::Retry { after: None, reason: "stopped".to_owned() };
        self.call().map_err(|_| lost())?;
        self.requests += 1;
        let (version, samples) = (self.version, request.counts.samples);
        match self.behaviour {
            Behaviour::RefusesExemplars if request.counts.exemplars > 0 => {
                return Err(WriteFailure::Refused { reason: "no exemplars".to_owned() });
            }
            Behaviour::RefusesBad if has_metric(&request, version, &self.limits, "bad") => {
                return Err(WriteFailure::Refused { reason: "bad".to_owned() });
            }
            Behaviour::TakesAtMost(most) if samples > most => {
                return Err(WriteFailure::Refused { reason: "too many".to_owned() });
            }
            Behaviour::Forgets(count) if self.requests <= count => {}
            _ => self.receive(&request, version),
        }
        if self.ends() {
            return Err(lost());
        }
        match self.behaviour {
            Behaviour::TimesOut if self.requests % 2 == 1 => Err(lost()),
            Behaviour::StoresPart(most) if samples > most => {
                Err(WriteFailure::Refused { reason: "one is bad".to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn query(&mut self, query: &ReadbackQuery) -> Result<Vec<u8>, ReadFailure> {
        let stopped = || ReadFailure::Retry { reason: "stopped".to_owned() };
        self.call().map_err(|_| stopped())?;
        let (selector, range) = query.expression.split_once("}[").expect("a range");
        let length: i64 = range.trim_end_matches("ms]").parse().expect("milliseconds");
        let matchers: Vec<(String, String)> = selector
            .trim_start_matches('{')
            .split(',')
            .map(|one| {
                let (name, value) = one.split_once('=').expect("an equality");
                (name.to_owned(), value.trim_matches('"').to_owned())
            })
            .collect();
        let mut rows = Vec::new();
        for (labels, samples) in &self.arrived {
            if !matchers.iter().all(|(name, value)| labels.value(name) == value) {
                continue;
            }
            let in_range = |at: i64| (query.at_ms - length + 1..=query.at_ms).contains(&at);
            let mut found: Vec<_> =
                samples.iter().filter(|(at, bits)| in_range(*at) && *bits != stale_nan().to_bits()).collect();
            found.sort_unstable();
            let metric: BTreeMap<&str, &str> = labels.iter().map(|one| (one.name, one.value)).collect();
            let values: Vec<_> = found
                .iter()
                .map(|(at, bits)| json!([*at as f64 / 1_000.0, f64::from_bits(*bits).to_string()]))
                .collect();
            if !values.is_empty() {
                rows.push(json!({ "metric": metric, "values": values }));
            }
        }
        let body = json!({ "status": "success", "data": { "resultType": "matrix", "result": rows } });
        let body = body.to_string().into_bytes();
        if body.len() > self.response_bytes_max {
            self.too_large += 1;
            return Err(ReadFailure::TooLarge { reason: "the response is too large".to_owned() });
        }
        Ok(body)
    }

    fn metric_names(&mut self, range: TimeRange) -> Result<Vec<String>, ReadFailure> {
        let has =
            |samples: &Vec<(i64, u64)>| samples.iter().any(|(at, _)| range.contains(Timestamp::from_ms(*at)));
        let found = self.arrived.iter().filter(|(_, samples)| has(samples));
        let mut names: Vec<String> = found.map(|(labels, _)| labels.metric_name().to_owned()).collect();
        names.dedup();
        Ok(names)
    }

    fn pin_log(&mut self) -> Result<u64, MoveStop> {
        self.call()?;
        Ok(self.log.len() as u64)
    }

    fn tail(&mut self, from: u64, until: Option<u64>) -> Result<TailBatch, MoveStop> {
        self.call()?;
        self.after()?;
        let lost_records = self.log_begin.saturating_sub(from);
        let from = from.max(self.log_begin);
        let end = until.unwrap_or(self.log.len() as u64).min(from + 3);
        let records = self.log.iter().take(usize::try_from(end).expect("small"));
        let records = records.skip(usize::try_from(from).expect("small"));
        let snapshot = self.snapshot();
        let exemplar = |sample: &Sample| Exemplar { labels: Labels::default(), value: 1.0, at: sample.at };
        // As in the log, a batch has each series once.
        let mut batch = MoveBatch::default();
        for (labels, samples) in records {
            let matchers: Vec<Matcher> =
                labels.iter().map(|label| Matcher::equal(label.name, label.value)).collect();
            let id = snapshot.select(&matchers, TimeRange::ALL).first().expect("the series").id;
            let place = batch.series.iter().position(|one| one.id == Some(id)).unwrap_or_else(|| {
                let one = BatchSeries { id: Some(id), labels: labels.clone(), ..BatchSeries::default() };
                batch.series.push(one);
                batch.series.len() - 1
            });
            batch.series[place].samples.extend_from_slice(samples);
            if self.has_exemplars {
                batch.series[place].exemplars.extend(samples.first().map(exemplar));
            }
        }
        let left = self.log.len() as u64 - end;
        Ok(TailBatch { batch, next: end, left, deletions: 0, lost_records })
    }

    fn snapshot(&self) -> Snapshot {
        self.tsdb.snapshot(&Access::whole(ORG))
    }

    fn after_newest_ms(&self) -> Option<i64> {
        let newest = self.log.iter().flat_map(|(_, samples)| samples).map(|one| one.at.as_ms()).max();
        newest.map(|newest| newest + 1)
    }

    fn store(&mut self, batch: &MoveBatch) -> Result<u64, MoveStop> {
        self.call()?;
        for series in &batch.series {
            self.append((series.labels.clone(), series.samples.clone()));
        }
        self.after().map(|()| 0)
    }

    fn switch(&mut self, row: &MoveRow) -> Result<(), MoveStop> {
        self.call()?;
        self.row = Some(row.clone());
        self.switched = Some(row.step.log_position().map_or(0, |(next, _)| next));
        self.after()
    }

    fn pause(&mut self, _time: Duration) -> Result<(), MoveStop> {
        // A stopped move ends at its next pause.
        self.after()
    }

    fn report(&mut self, _row: &MoveRow, _notes: &[String], _waits_for: Option<&str>) {}
}

/// Returns whether a request has a series of a metric.
fn has_metric(request: &EncodedRequest, version: WriteVersion, limits: &DecodeLimits, name: &str) -> bool {
    let mut scratch = DecodeScratch::default();
    let batch = match version {
        WriteVersion::V1 => remote_write::decode(&request.body, limits, &mut scratch),
        WriteVersion::V2 => remote_write2::decode(&request.body, limits, &mut scratch),
    }
    .expect("decodes");
    batch.series.iter().any(|series| {
        let mut pairs = Vec::new();
        (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels");
        pairs.contains(&(METRIC_NAME.as_bytes(), name.as_bytes()))
    })
}

fn series(name: &str, instance: usize) -> Labels {
    let instance = instance.to_string();
    Labels::from_pairs([(METRIC_NAME, name), ("instance", instance.as_str())])
}

fn samples(from: i64, step_ms: i64, count: i64) -> Vec<Sample> {
    let at = |number: i64| Timestamp::from_ms(from + number * step_ms);
    (0..count).map(|number| Sample { at: at(number), value: number as f64 / 3.0 }).collect()
}

/// Two hours of a few series, with a gap of a year before, a staleness marker, and senders that
/// keep writing during the move: new samples, late ones, and new series.
fn busy_world() -> World {
    let mut world = World::new();
    let hour = 3_600_000;
    world.append((series("old", 0), samples(START - 8_800 * hour, 60_000, 5)));
    for instance in 0..3 {
        world.append((series("up", instance), samples(START, 60_000, 120)));
    }
    world.append((series("load", 0), samples(START + 7, 45_000, 100)));
    let mut ended = samples(START, 60_000, 50);
    ended.push(Sample { at: Timestamp::from_ms(START + 50 * 60_000), value: stale_nan() });
    world.append((series("ended", 0), ended));
    world.arrivals = vec![
        (2, (series("up", 0), samples(START + 2 * hour, 60_000, 2))),
        (3, (series("late", 0), samples(START + 5_000, 60_000, 4))),
        (5, (series("up", 1), samples(START + 2 * hour, 60_000, 3))),
        (7, (series("new", 0), samples(START + 2 * hour, 60_000, 3))),
        (9, (series("load", 0), samples(START + 9, 45_000, 2))),
    ];
    world
}

#[test]
fn a_move_sends_everything_once_while_senders_write() {
    for version in [WriteVersion::V1, WriteVersion::V2] {
        let mut world = World { version, ..busy_world() };
        world.run().expect("moves");
        world.assert_moved("without an interruption");
        let counts = world.count();
        assert_eq!((counts.refused, counts.different), (0, 0));
        assert!(counts.compared > 0);
    }
}

fn sample(at_ms: i64, value: f64) -> Vec<Sample> {
    vec![Sample { at: Timestamp::from_ms(at_ms), value }]
}

#[test]
fn the_target_gets_the_values_that_the_store_has() {
    let mut world = busy_world();
    let (up, late) = (series("up", 2), series("late", 2));
    let (newest, before) = (START + 3 * 3_600_000, START + 600_500);
    world.append((late.clone(), samples(START + 3_600_000, 60_000, 3)));
    world.arrivals.extend([
        // The second one is refused here: the time has a value.
        (2, (up.clone(), sample(newest, 1.0))),
        (2, (up.clone(), sample(newest, 2.0))),
        // The second one replaces the first one.
        (2, (late.clone(), sample(before, 4.0))),
        (2, (late.clone(), sample(before, 5.0))),
    ]);
    world.run().expect("moves");
    assert_eq!(world.values_at(&up, newest), [1.0]);
    assert_eq!(world.values_at(&late, before), [5.0]);
    assert_eq!(world.count().different, 0);
    // After the switch as well, and a value that was replaced after it was sent is a difference.
    world.append((up.clone(), sample(newest + 1, 1.0)));
    world.append((up.clone(), sample(newest + 1, 2.0)));
    world.forward(20);
    assert_eq!(world.values_at(&up, newest + 1), [1.0]);
    world.append((late.clone(), sample(before, 6.0)));
    world.forward(20);
    assert_eq!((world.values_at(&late, before), world.count().different), (vec![5.0], 1));
}

#[test]
fn a_sample_that_arrives_late_is_compared() {
    let calls = {
        let mut world = busy_world();
        world.run().expect("moves");
        world.calls
    };
    for call in [3, calls / 2, calls - 8] {
        let mut world = busy_world();
        // The target accepts the sample, which is outside of its retention.
        world.behaviour = Behaviour::DropsBefore(START - 9_000 * 3_600_000);
        world.arrivals.push((call, (series("up", 0), sample(START - 9_500 * 3_600_000, 1.0))));
        let stop = world.run().expect_err("differs");
        assert!(matches!(&stop, MoveStop::Failed(text) if text.contains("differ")), "{call}: {stop}");
        assert!(world.switched.is_none());
    }
}

#[test]
fn samples_that_a_moved_organisations_engine_refuses_are_counted_and_the_others_are_sent() {
    let mut world = World::moved();
    world.behaviour = Behaviour::RefusesBad;
    for number in 0..150 {
        let at = START + 3_600_000 + number * 15_000;
        world.append((series("bad", 0), sample(at, 1.0)));
        world.append((series("good", 0), sample(at, 1.0)));
    }
    world.forward(5_000);
    let row = world.row.clone().expect("stored");
    assert_eq!(row.counts.refused, 150);
    assert_eq!(row.step.log_position(), Some((world.log.len() as u64, None)));
    assert_eq!(world.arrived[&series("good", 0)].len(), 150);
}

#[test]
fn a_failure_after_the_switch_is_retried() {
    let mut world = World::moved();
    world.append((series("up", 0), samples(START + 3_600_000, 15_000, 3)));
    world.failing_saves = 3;
    world.forward(40);
    assert_eq!((world.failing_saves, world.arrived[&series("up", 0)].len()), (0, 23));
}

#[test]
fn records_that_the_log_removed_end_a_move_and_are_counted_after_the_switch() {
    let mut world = busy_world();
    world.arrivals.clear();
    world.calls_left = Some((4, true));
    assert_eq!(world.run(), Err(MoveStop::Stopping), "in the history");
    world.calls_left = None;
    let missing = world.log.len() as u64;
    world.append((series("up", 0), samples(START + 3 * 3_600_000, 60_000, 2)));
    world.append((series("up", 0), samples(START + 4 * 3_600_000, 60_000, 2)));
    world.log_begin = missing + 1;
    let stop = world.run().expect_err("lost");
    assert!(matches!(&stop, MoveStop::Failed(text) if text.contains("start it again")), "{stop}");
    let mut world = World::moved();
    for number in 1..4 {
        world.append((series("up", 0), samples(START + number * 3_600_000, 60_000, 2)));
    }
    world.log_begin = world.log.len() as u64 - 1;
    world.forward(30);
    assert_eq!((world.count().lost_records, world.arrived[&series("up", 0)].len()), (2, 22));
}

#[test]
fn a_sample_is_sent_without_the_exemplar_that_the_target_refuses() {
    let mut world = World::moved();
    (world.behaviour, world.has_exemplars) = (Behaviour::RefusesExemplars, true);
    world.append((series("up", 0), samples(START + 3_600_000, 15_000, 3)));
    world.forward(40);
    assert_eq!((world.count().refused, world.arrived[&series("up", 0)].len()), (0, 23));
}

#[test]
fn a_series_that_was_removed_here_before_it_was_sent_is_sent_from_the_log() {
    let mut world = World::moved();
    let up = series("up", 0);
    world.append((up.clone(), samples(START + 3_600_000, 15_000, 3)));
    let now = Timestamp::from_ms(START + 100 * 3_600_000);
    let range = TimeRange::new(Timestamp::from_ms(START), Timestamp::from_ms(START + 3_600_000));
    world.tsdb.delete(ORG, &[vec![Matcher::equal(METRIC_NAME, "up")]], range, now).expect("removes");
    world.forward(20);
    assert_eq!(world.arrived[&up].len(), 23);
}

#[test]
fn a_move_that_is_stopped_at_any_call_continues_and_sends_everything_once() {
    let calls = {
        let mut world = busy_world();
        world.run().expect("moves");
        world.calls
    };
    assert!(calls > 20, "{calls}");
    for stop in 1..=calls {
        for has_effect in [false, true] {
            let mut world = busy_world();
            world.calls_left = Some((stop, has_effect));
            let stopped = world.run();
            let context = format!("stopped at call {stop} of {calls}, effect: {has_effect}");
            if world.switched.is_none() {
                assert_eq!(stopped, Err(MoveStop::Stopping), "{context}");
            }
            world.calls_left = None;
            world.run().expect(&context);
            world.assert_moved(&context);
        }
    }
}

#[test]
fn a_move_that_is_stopped_again_and_again_ends() {
    let mut world = busy_world();
    for stops in 0.. {
        world.calls_left = Some((12 + stops % 5, stops % 2 == 0));
        if world.run().is_ok() {
            break;
        }
        assert!(stops < 1_000, "no progress");
    }
    world.calls_left = None;
    world.run().expect("ends");
    world.assert_moved("stopped again and again");
}

#[test]
fn requests_whose_outcome_is_unknown_are_not_stored_twice() {
    for behaviour in [Behaviour::TimesOut, Behaviour::TakesAtMost(7), Behaviour::StoresPart(5)] {
        let mut world = busy_world();
        world.behaviour = behaviour;
        world.run().expect("moves");
        world.assert_moved(&format!("{behaviour:?}"));
    }
}

#[test]
fn a_request_that_was_acknowledged_and_forgotten_is_found_and_sent_again() {
    let mut world = busy_world();
    world.behaviour = Behaviour::Forgets(1);
    world.run().expect("moves");
    // Staleness markers cannot be read back.
    let without_markers = |mut all: Arrived| {
        let is_value = |(_, bits): &(i64, u64)| *bits != stale_nan().to_bits();
        all.values_mut().for_each(|samples| {
            samples.retain(is_value);
            samples.sort_unstable();
        });
        all
    };
    assert_eq!(without_markers(world.arrived.clone()), without_markers(world.written()));
}

#[test]
fn an_organisation_is_not_switched_while_a_sample_differs() {
    let mut world = busy_world();
    let other = Sample { at: Timestamp::from_ms(START), value: 99.0 };
    world.arrived.insert(series("up", 0), vec![(other.at.as_ms(), other.value.to_bits())]);
    let stop = world.run().expect_err("differs");
    assert!(matches!(&stop, MoveStop::Failed(text) if text.contains("instance")), "{stop}");
    assert!(world.switched.is_none());
}

#[test]
fn a_move_back_stores_what_is_missing_here() {
    let mut world = World::new();
    let (up, load) = (series("up", 0), series("load", 0));
    world.append((up.clone(), samples(START, 60_000, 70).split_off(60)));
    let bits =
        |samples: Vec<Sample>| samples.iter().map(|one| (one.at.as_ms(), one.value.to_bits())).collect();
    world.arrived.insert(up, bits(samples(START, 60_000, 70)));
    world.arrived.insert(load, bits(samples(START - 9_000 * 3_600_000, 15_000, 30)));
    let before = world.arrived.clone();
    let new = MoveRow::new(Vec::new(), String::new(), Timestamp::from_ms(START));
    let until_ms = world.after_newest_ms().expect("samples");
    let (next, sending) = (world.log.len() as u64, None);
    let step = MoveStep::Fetch { next_ms: FIRST_MS, until_ms, next, sending };
    world.row = Some(MoveRow { direction: MoveDirection::Back, step, ..new });
    for stops in 0..200 {
        world.calls_left = Some((8 + stops % 5, stops % 2 == 0));
        if world.run().is_ok() {
            break;
        }
    }
    assert_eq!(world.switched, Some(0));
    let found = world.tsdb.snapshot(&Access::whole(ORG));
    let pace = crate::model::Pace::endless();
    let listed = found.paced(&pace);
    let names = listed.metrics(&MetricFilter::default(), TimeRange::ALL, 10).expect("lists");
    assert_eq!(names.items.len(), 2);
    for one in found.select(&[], TimeRange::ALL) {
        let mut columns = crate::tsdb::SampleColumns::default();
        found.read(one.id, TimeRange::ALL, &mut columns);
        let all: Vec<(i64, u64)> =
            columns.times.iter().zip(&columns.values).map(|(at, value)| (*at, value.to_bits())).collect();
        let there = &before[&one.labels];
        assert_eq!(all.len(), there.len(), "{}", one.labels);
    }
}

#[test]
fn a_batch_ends_after_its_samples_and_continues_within_a_series() {
    let mut world = World::new();
    // A sample each 100 ms: a window has more than a batch.
    world.append((series("fast", 0), samples(START, 100, 20_000)));
    world.append((series("slow", 0), samples(START, 60_000, 40)));
    world.run().expect("moves");
    world.assert_moved("in batches");
    let written = world.log.iter().map(|(_, samples)| samples.len()).sum::<usize>();
    assert!(world.requests >= written / 5_000 && world.requests < written / 1_000, "{}", world.requests);
}

#[test]
fn a_request_that_is_refused_is_divided_down_to_single_samples() {
    let mut world = World::new();
    world.append((series("up", 0), samples(START, 60_000, 20)));
    world.behaviour = Behaviour::TakesAtMost(0);
    let stop = world.run().expect_err("refused");
    assert!(matches!(&stop, MoveStop::Failed(text) if text.contains("too many")), "{stop}");
    assert!(world.switched.is_none() && world.arrived.is_empty());
    // A target that takes nothing ends the move after a limited number of requests.
    let mut world = World::new();
    world.append((series("up", 0), samples(START, 60_000, 4_000)));
    world.behaviour = Behaviour::TakesAtMost(0);
    let stop = world.run().expect_err("refused");
    assert!(matches!(&stop, MoveStop::Failed(text) if text.contains("refused 100 samples")), "{stop}");
    assert!(world.requests < 300, "{}", world.requests);
}

#[test]
fn a_response_that_is_too_large_is_read_in_parts() {
    let mut world = World::new();
    for instance in 0..12 {
        world.append((series("up", instance), samples(START, 1_000, 3_600)));
    }
    world.response_bytes_max = 100 << 10;
    world.run().expect("moves");
    world.assert_moved("read in parts");
    assert!(world.too_large > 0);
}
