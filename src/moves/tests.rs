//! Moves between a store in memory and a target that records every sample that it accepts. A move is
//! stopped at each of its calls, before and after the call has had its effect, and continues from
//! its stored row: the target has every sample exactly once.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::forward::encode::{BodyCompression, EncodedRequest, WriteVersion};
use crate::identity::{MoveDirection, MoveRow};
use crate::ingest::{DecodeLimits, DecodeScratch, remote_write, remote_write2};
use crate::model::{
    Access, BatchBuilder, Labels, METRIC_NAME, OrgId, Sample, TimeRange, Timestamp, stale_nan,
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
    /// A request of more than so many samples is refused and not stored.
    TakesAtMost(usize),
    /// A request with more than so many samples is stored in part: all but the last sample.
    StoresPart(usize),
    /// The first requests are acknowledged and forgotten.
    Forgets(usize),
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
        }
    }

    fn append(&mut self, (labels, samples): LogRecord) {
        let mut batch = BatchBuilder::default();
        batch.series(&labels, samples.iter().copied());
        let now = Timestamp::from_ms(START + 100 * 3_600_000);
        let report = self.tsdb.append(ORG, &batch.batch(), now).expect("appends");
        assert_eq!(report.stored, samples.len() as u64);
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
                all.push((sample.at.as_ms(), sample.value.to_bits()));
            }
            left = left.saturating_sub(series.samples.len());
        }
    }

    fn run(&mut self, version: WriteVersion) -> Result<(), MoveStop> {
        let new = MoveRow::new(MoveDirection::Away, Vec::new(), Timestamp::from_ms(START));
        let row = self.row.clone().unwrap_or(new);
        let options = MoverOptions {
            version,
            compression: BodyCompression::Snappy,
            tenant_label: None,
            accept_differences: false,
        };
        Mover::new(self, row, options).run()
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
        self.row = Some(row.clone());
        self.after()
    }

    fn write(&mut self, request: EncodedRequest) -> Result<(), WriteFailure> {
        let lost = || WriteFailure::Retry { after: None, reason: "stopped".to_owned() };
        self.call().map_err(|_| lost())?;
        self.requests += 1;
        let version = if request.body.is_empty() { WriteVersion::V2 } else { self.version() };
        let samples = request.counts.samples;
        match self.behaviour {
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
        Ok(body.to_string().into_bytes())
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
        let end = until.unwrap_or(self.log.len() as u64).min(from + 3);
        let records = self.log.iter().take(usize::try_from(end).expect("small"));
        let records = records.skip(usize::try_from(from).expect("small"));
        let series = |(labels, samples): &LogRecord| BatchSeries {
            labels: labels.clone(),
            samples: samples.clone(),
            ..BatchSeries::default()
        };
        let batch = Batch { series: records.map(series).collect() };
        Ok(TailBatch { batch, next: end, left: self.log.len() as u64 - end, deletions: 0 })
    }

    fn snapshot(&self) -> Snapshot {
        self.tsdb.snapshot(&Access::whole(ORG))
    }

    fn after_newest_ms(&self) -> Option<i64> {
        let newest = self.log.iter().flat_map(|(_, samples)| samples).map(|one| one.at.as_ms()).max();
        newest.map(|newest| newest + 1)
    }

    fn store(&mut self, batch: &Batch) -> Result<u64, MoveStop> {
        self.call()?;
        for series in &batch.series {
            self.append((series.labels.clone(), series.samples.clone()));
        }
        self.after().map(|()| 0)
    }

    fn switch(&mut self, row: &MoveRow, log_from: Option<u64>) -> Result<(), MoveStop> {
        self.call()?;
        self.row = Some(row.clone());
        self.switched = Some(log_from.unwrap_or_default());
        self.after()
    }

    fn pause(&mut self, _time: Duration) -> Result<(), MoveStop> {
        // A stopped move ends at its next pause.
        self.after()
    }

    fn report(&mut self, _row: &MoveRow, _notes: &[String], _waits_for: Option<&str>) {}
}

impl World {
    /// The version of the requests: the tests of one world use one.
    fn version(&self) -> WriteVersion {
        WriteVersion::V1
    }
}

fn series(name: &str, instance: usize) -> Labels {
    let instance = instance.to_string();
    Labels::from_pairs([(METRIC_NAME, name), ("instance", instance.as_str())])
}

fn samples(from: i64, step_ms: i64, count: i64) -> Vec<Sample> {
    let at = |number: i64| Timestamp::from_ms(from + number * step_ms);
    (0..count).map(|number| Sample { at: at(number), value: number as f64 / 3.0 }).collect()
}

/// Two hours of a few series, with a gap of a year before, a staleness marker, and senders that keep
/// writing during the move: new samples, late ones, and new series.
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
    let mut world = busy_world();
    world.run(WriteVersion::V1).expect("moves");
    world.assert_moved("without an interruption");
    let counts = world.row.expect("stored").counts;
    assert_eq!((counts.refused, counts.different), (0, 0));
    assert!(counts.compared > 0);
}

#[test]
fn a_move_that_is_stopped_at_any_call_continues_and_sends_everything_once() {
    let calls = {
        let mut world = busy_world();
        world.run(WriteVersion::V1).expect("moves");
        world.calls
    };
    assert!(calls > 20, "{calls}");
    for stop in 1..=calls {
        for has_effect in [false, true] {
            let mut world = busy_world();
            world.calls_left = Some((stop, has_effect));
            let stopped = world.run(WriteVersion::V1);
            let context = format!("stopped at call {stop} of {calls}, effect: {has_effect}");
            if world.switched.is_none() {
                assert_eq!(stopped, Err(MoveStop::Stopping), "{context}");
            }
            world.calls_left = None;
            world.run(WriteVersion::V1).expect(&context);
            world.assert_moved(&context);
        }
    }
}

#[test]
fn a_move_that_is_stopped_again_and_again_ends() {
    let mut world = busy_world();
    for stops in 0.. {
        world.calls_left = Some((12 + stops % 5, stops % 2 == 0));
        if world.run(WriteVersion::V1).is_ok() {
            break;
        }
        assert!(stops < 1_000, "no progress");
    }
    world.calls_left = None;
    world.run(WriteVersion::V1).expect("ends");
    world.assert_moved("stopped again and again");
}

#[test]
fn requests_whose_outcome_is_unknown_are_not_stored_twice() {
    for behaviour in [Behaviour::TimesOut, Behaviour::TakesAtMost(7), Behaviour::StoresPart(5)] {
        let mut world = busy_world();
        world.behaviour = behaviour;
        world.run(WriteVersion::V1).expect("moves");
        world.assert_moved(&format!("{behaviour:?}"));
    }
}

#[test]
fn a_request_that_was_acknowledged_and_forgotten_is_found_and_sent_again() {
    let mut world = busy_world();
    world.behaviour = Behaviour::Forgets(1);
    world.run(WriteVersion::V1).expect("moves");
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
    let stop = world.run(WriteVersion::V1).expect_err("differs");
    assert!(matches!(&stop, MoveStop::Failed(text) if text.contains("instance")), "{stop}");
    assert!(world.switched.is_none());
}

#[test]
fn a_move_back_stores_what_is_missing_here() {
    let mut world = World::new();
    let (up, load) = (series("up", 0), series("load", 0));
    world.append((up.clone(), samples(START + 3_600_000, 60_000, 10)));
    let bits =
        |samples: Vec<Sample>| samples.iter().map(|one| (one.at.as_ms(), one.value.to_bits())).collect();
    world.arrived.insert(up, bits(samples(START, 60_000, 70)));
    world.arrived.insert(load, bits(samples(START - 9_000 * 3_600_000, 15_000, 30)));
    let before = world.arrived.clone();
    world.row = Some(MoveRow::new(MoveDirection::Back, Vec::new(), Timestamp::from_ms(START)));
    for stops in 0..200 {
        world.calls_left = Some((2 + stops % 3, stops % 2 == 0));
        if world.run(WriteVersion::V1).is_ok() {
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
