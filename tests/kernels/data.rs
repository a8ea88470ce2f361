//! Random samples that are difficult for an evaluator, in a store and in a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use promlet::entropy::Entropy;
use promlet::kv::{Control, ControlOptions, DataFolder};
use promlet::model::{
    Access, BatchBuilder, Histogram, Labels, OrgId, Sample, Timestamp, is_stale, stale_nan,
};
use promlet::tsdb::{Home, Options, Snapshot, Tsdb};
use proptest::prelude::*;

use super::native::{Buckets, CUSTOM, Native};

pub(crate) const ORG: OrgId = OrgId(1);

/// The value of a sample, or of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Point {
    Float(f64),
    Native(Arc<Native>),
}

impl Point {
    pub(crate) fn of(native: Native) -> Point {
        Point::Native(Arc::new(native))
    }

    pub(crate) fn float(&self) -> Option<f64> {
        match self {
            Point::Float(value) => Some(*value),
            Point::Native(_) => None,
        }
    }

    pub(crate) fn native(&self) -> Option<&Native> {
        match self {
            Point::Float(_) => None,
            Point::Native(native) => Some(native),
        }
    }

    /// Returns whether the value is a staleness marker.
    pub(crate) fn is_stale(&self) -> bool {
        match self {
            Point::Float(value) => is_stale(*value),
            Point::Native(native) => is_stale(native.sum),
        }
    }
}

/// The samples to send: for each series in the order in which they are sent.
pub(crate) type SentSamples = Vec<(Labels, Vec<(i64, Point)>)>;

/// The stored samples: for each series by time, in the order of labels.
pub(crate) type SampleMap = BTreeMap<Labels, BTreeMap<i64, Point>>;

/// Any values that a store may have to add.
fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => (0..50i32).prop_map(f64::from),
        4 => -1e6..1e6f64,
        2 => (-300..300i32, 1.0..10.0f64).prop_map(|(exponent, value)| value * 10f64.powi(exponent)),
        1 => Just(stale_nan()),
        1 => (1..0xffffu64).prop_map(|payload| f64::from_bits(0x7ff8_0000_0000_0000 | payload)),
        1 => prop_oneof![Just(f64::INFINITY), Just(f64::NEG_INFINITY)],
        1 => prop_oneof![Just(-0.0), Just(0.0), Just(f64::MAX), Just(f64::MIN), Just(5e-324)],
    ]
}

/// Whole numbers, whose sums do not depend on the order of additions.
fn whole_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        12 => (0..1000i32).prop_map(f64::from),
        1 => prop_oneof![Just(stale_nan()), Just(f64::NAN), Just(f64::INFINITY)],
    ]
}

/// A counter with occasional resets.
fn counter() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(prop_oneof![9 => 0.0..100.0f64, 1 => Just(-1.0)], 0..90).prop_map(|steps| {
        let mut at = 0.0;
        let mut values = Vec::new();
        for step in steps {
            at = if step < 0.0 { 0.0 } else { at + step };
            values.push(at);
        }
        values
    })
}

/// Sample times in milliseconds: a scrape that mostly keeps its interval, with gaps.
fn times() -> impl Strategy<Value = Vec<i64>> {
    let gap = prop_oneof![
        20 => Just(15_000i64),
        1 => 1..30_000i64,
        1 => 30_000..900_000i64,
    ];
    (-100_000..100_000i64, prop::collection::vec(gap, 0..90)).prop_map(|(start, gaps)| {
        let mut at = start;
        let mut times = vec![at];
        for gap in gaps {
            at += gap;
            times.push(at);
        }
        times
    })
}

fn values(is_extreme: bool) -> impl Strategy<Value = Vec<f64>> {
    let any = if is_extreme { any_value().boxed() } else { whole_number().boxed() };
    let plain = prop::collection::vec(any, 0..90);
    if is_extreme { prop_oneof![plain, counter()].boxed() } else { plain.boxed() }
}

/// The parts of one series: values, own times if it has them, and late samples.
type SeriesParts = (Vec<f64>, Option<Vec<i64>>, Vec<(i64, bool, i32)>);

/// Some series of two metrics, half of which share their times. Some samples are late, and some of
/// these replace other samples.
pub(crate) fn random_floats(is_extreme: bool) -> impl Strategy<Value = SentSamples> {
    let late = prop::collection::vec((-100_000..900_000i64, any::<bool>(), -9..9i32), 0..4);
    let one = (values(is_extreme), prop::option::of(times()), late);
    (times(), prop::collection::vec(one, 1..7)).prop_map(|(shared, series)| {
        let series_of = |(number, (values, own, late)): (usize, SeriesParts)| {
            let (id, group) = ((number / 2).to_string(), (number / 2 % 2).to_string());
            let name = if number % 2 == 0 { "m_total" } else { "other" };
            let mut pairs = vec![("__name__", name), ("id", &id), ("group", &group)];
            if number % 2 == 1 {
                pairs.push(("kind", "b"));
            }
            let times = own.unwrap_or_else(|| shared.clone());
            let mut samples: Vec<(i64, Point)> =
                times.iter().copied().zip(values.into_iter().map(Point::Float)).collect();
            let taken = samples.clone();
            for (at, is_taken, value) in late {
                let near = taken.get(usize::try_from(at.unsigned_abs()).unwrap_or(0) % taken.len().max(1));
                let at = near.filter(|_| is_taken).map_or(at, |(at, _)| *at);
                samples.push((at, Point::Float(f64::from(value))));
            }
            (Labels::from_pairs(pairs), samples)
        };
        series.into_iter().enumerate().map(series_of).collect()
    })
}

/// The same for more series than one thread takes at a time.
pub(crate) fn many_series() -> impl Strategy<Value = SentSamples> {
    let short = prop::collection::vec(any_value(), 0..12);
    (times(), prop::collection::vec(short, 40..130)).prop_map(|(times, series)| {
        let series_of = |(number, values): (usize, Vec<f64>)| {
            let (id, group) = (number.to_string(), (number % 3).to_string());
            let labels = Labels::from_pairs([("__name__", "m_total"), ("id", &*id), ("group", &*group)]);
            (labels, times.iter().copied().zip(values.into_iter().map(Point::Float)).collect())
        };
        series.into_iter().enumerate().map(series_of).collect()
    })
}

/// An event of a histogram series between two samples.
#[derive(Clone, Debug)]
enum HistogramEvent {
    Observed(Vec<(i32, bool, u8)>),
    Zeros(u8),
    /// A NaN was observed: it counts, but in no bucket.
    Nan,
    Reset,
    Schema(i32),
    Threshold(f64),
    Ended,
    Number(i32),
}

fn histogram_event() -> impl Strategy<Value = HistogramEvent> {
    prop_oneof![
        24 => prop::collection::vec((-4..9i32, prop::bool::weighted(0.2), 0..4u8), 0..4).prop_map(HistogramEvent::Observed),
        4 => (1..4u8).prop_map(HistogramEvent::Zeros),
        1 => Just(HistogramEvent::Nan),
        2 => Just(HistogramEvent::Reset),
        1 => (-1..4i32).prop_map(HistogramEvent::Schema),
        1 => prop::sample::select(&[0.0, 0.001, 0.3, 1.0, 2.5][..]).prop_map(HistogramEvent::Threshold),
        1 => Just(HistogramEvent::Ended),
        1 => (0..50i32).prop_map(HistogramEvent::Number),
    ]
}

/// One histogram series of a kind: counter, gauge, custom bounds, or mixed with numbers. Every
/// count is whole and every sum is a multiple of a quarter, or NaN, so that sums do not depend on
/// the order of additions.
fn distributions(kind: &'static str) -> impl Strategy<Value = Vec<Point>> {
    prop::collection::vec(histogram_event(), 0..60).prop_map(move |all| {
        let bounds = if kind == "h_custom" { vec![-2.0, 0.5, 1.0, 4.0, 10.0] } else { Vec::new() };
        let schema = if kind == "h_custom" { CUSTOM } else { 0 };
        let fresh = Native { schema, bounds, is_gauge: kind == "h_gauge", ..Native::default() };
        let mut now = fresh.clone();
        let mut points = Vec::new();
        for one in all {
            if kind == "h_gauge" {
                now = Native { schema: now.schema, threshold: now.threshold, ..fresh.clone() };
            }
            match one {
                HistogramEvent::Observed(all) => {
                    for (index, negative, count) in all {
                        let custom = schema == CUSTOM;
                        let index = if custom { index.rem_euclid(6) } else { index };
                        let side: &mut Buckets =
                            if negative && !custom { &mut now.negative } else { &mut now.positive };
                        *side.entry(index).or_insert(0.0) += f64::from(count);
                        now.count += f64::from(count);
                        now.sum += f64::from(index) * 0.25;
                    }
                }
                HistogramEvent::Zeros(count) if schema != CUSTOM => {
                    now.zero += f64::from(count);
                    now.count += f64::from(count);
                }
                HistogramEvent::Nan => {
                    now.count += 1.0;
                    now.sum = f64::NAN;
                }
                HistogramEvent::Reset => now = fresh.clone(),
                HistogramEvent::Schema(schema) if kind != "h_custom" => {
                    now = Native { schema, ..fresh.clone() }
                }
                HistogramEvent::Threshold(threshold) if kind != "h_custom" => {
                    now = Native { threshold, schema: now.schema, ..fresh.clone() };
                }
                HistogramEvent::Ended => {
                    points.push(Point::of(Native { sum: stale_nan(), ..Native::default() }));
                    continue;
                }
                HistogramEvent::Number(value) if kind == "h_mixed" => {
                    points.push(Point::Float(f64::from(value)));
                    continue;
                }
                _ => {}
            }
            points.push(Point::of(now.clone()));
        }
        points
    })
}

/// Native histogram series of every kind, and a series of numbers. Some samples are late, or have
/// the time of another one.
pub(crate) fn random_histograms() -> impl Strategy<Value = SentSamples> {
    let kind = prop::sample::select(&["h_total", "h_gauge", "h_custom", "h_mixed"][..]);
    let late = prop::collection::vec((any::<prop::sample::Index>(), 0..9i32), 0..3);
    let one = kind.prop_flat_map(|kind| (Just(kind), distributions(kind)));
    let one = (one, prop::option::of(times()), late);
    let numbers = prop::collection::vec(0..20i32, 0..60);
    (times(), prop::collection::vec(one, 1..6), numbers).prop_map(|(shared, series, numbers)| {
        let mut all = SentSamples::new();
        for (number, ((kind, points), own, late)) in series.into_iter().enumerate() {
            let (id, group) = (number.to_string(), (number % 2).to_string());
            let labels = Labels::from_pairs([("__name__", kind), ("id", &*id), ("group", &*group)]);
            let times = own.unwrap_or_else(|| shared.clone());
            let mut samples: Vec<(i64, Point)> = times.into_iter().zip(points).collect();
            for (index, moved) in late {
                if !samples.is_empty() && kind != "h_mixed" {
                    let (at, point) = samples[index.index(samples.len())].clone();
                    samples.push((at - i64::from(moved % 3) * 1_000, point));
                }
            }
            all.push((labels, samples));
        }
        let values = numbers.into_iter().map(|value| Point::Float(f64::from(value)));
        let labels = Labels::from_pairs([("__name__", "m_total"), ("id", "0"), ("group", "0")]);
        all.push((labels, shared.into_iter().zip(values).collect()));
        all
    })
}

/// Returns the map that the oracle reads. A second value for the newest time is refused, unless the
/// first was sealed meanwhile. A second value for an older time replaces the first.
pub(crate) fn expected_samples(sent: &SentSamples, is_sealed: bool) -> SampleMap {
    let mut expected_samples = SampleMap::new();
    for (labels, samples) in sent {
        let kept = expected_samples.entry(labels.clone()).or_default();
        let mut newest = i64::MIN;
        for (at, value) in samples {
            if *at != newest || is_sealed {
                kept.insert(*at, value.clone());
            }
            newest = newest.max(*at);
        }
    }
    expected_samples
}

/// Stores all samples: first those in order, then each late sample by itself, so that the last
/// write wins. In between, `seal` may move the stored samples out of memory.
pub(crate) fn store_samples(store: &Tsdb, sent: &SentSamples, seal: impl FnOnce(&Tsdb)) -> Snapshot {
    let now = Timestamp::from_s(1_000_000);
    let append = |labels: &Labels, samples: &[(i64, Point)]| {
        // Numbers and histograms of one request have no order among them.
        for run in samples.chunk_by(|(_, a), (_, b)| a.float().is_some() == b.float().is_some()) {
            let mut batch = BatchBuilder::default();
            let floats = run.iter().filter_map(|(at, value)| {
                Some(Sample { at: Timestamp::from_ms(*at), value: value.float()? })
            });
            batch.series(labels, floats);
            // Half of the series have integer counts, the others have float counts.
            let floating = labels.value("id").bytes().any(|byte| byte % 2 == 1);
            batch.histograms(run.iter().filter_map(|(at, value)| {
                let stored = |native: &Native| {
                    if is_stale(native.sum) { Histogram::stale() } else { native.to_histogram(floating) }
                };
                Some((Timestamp::from_ms(*at), stored(value.native()?)))
            }));
            store.append(ORG, &batch.batch(), now).expect("stored");
        }
    };
    let in_order = |samples: &[(i64, Point)]| {
        let ascending = samples.windows(2).take_while(|pair| pair[0].0 < pair[1].0).count() + 1;
        ascending.min(samples.len())
    };
    for (labels, samples) in sent {
        append(labels, &samples[..in_order(samples)]);
    }
    seal(store);
    for (labels, samples) in sent {
        for sample in &samples[in_order(samples)..] {
            append(labels, std::slice::from_ref(sample));
        }
    }
    store.snapshot(&Access::whole(ORG))
}

/// Runs `work` with a store in a folder, which can seal.
pub(crate) fn in_folder<T>(work: impl FnOnce(&Tsdb) -> T) -> T {
    let dir = crate::scratch::temporary_folder().expect("a folder");
    let now = Timestamp::from_s(1_000);
    let folder = DataFolder::open(dir.path(), now, &mut Entropy::seeded(1)).expect("a data folder");
    let (control, _) = Control::open(&folder, &ControlOptions { now, users_table: 1 }).expect("accounts");
    let home = Home { dir: dir.path(), store: folder.store_id(), control: Arc::new(control) };
    let (store, _) = Tsdb::open(home, Options::default(), &mut Entropy::seeded(1), now).expect("opens");
    let done = work(&store);
    store.close();
    done
}
