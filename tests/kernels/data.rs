//! Samples that are hard on an evaluator, and the store and the map that hold them.

use std::collections::BTreeMap;
use std::sync::Arc;

use promlet::entropy::Entropy;
use promlet::kv::{Control, ControlOptions, DataFolder};
use promlet::model::{Access, BatchBuilder, Labels, OrgId, Sample, Timestamp, stale_nan};
use promlet::tsdb::{Home, Options, Snapshot, Tsdb};
use proptest::prelude::*;

pub(crate) const ORG: OrgId = OrgId(1);

/// What is sent: for each series its samples in the order they come.
pub(crate) type Sent = Vec<(Labels, Vec<(i64, f64)>)>;

/// What is there: for each series its samples by time, in order of labels.
pub(crate) type World = BTreeMap<Labels, BTreeMap<i64, f64>>;

/// Everything a store may be asked to add up.
fn hostile() -> impl Strategy<Value = f64> {
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

/// Whole numbers, whose sums are the same in any order.
fn tame() -> impl Strategy<Value = f64> {
    prop_oneof![
        12 => (0..1000i32).prop_map(f64::from),
        1 => prop_oneof![Just(stale_nan()), Just(f64::NAN), Just(f64::INFINITY)],
    ]
}

/// A counter that begins anew now and then.
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

/// When samples come: a scrape that mostly keeps its interval, with gaps; shared by several series or not.
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

fn values(is_hostile: bool) -> impl Strategy<Value = Vec<f64>> {
    let any = if is_hostile { hostile().boxed() } else { tame().boxed() };
    let plain = prop::collection::vec(any, 0..90);
    if is_hostile { prop_oneof![plain, counter()].boxed() } else { plain.boxed() }
}

/// What one series is made of: values, times where it has its own, and late samples.
type Parts = (Vec<f64>, Option<Vec<i64>>, Vec<(i64, bool, i32)>);

/// Some series of two metrics; half of them are of the same times. Some samples come late, some of those at times that
/// are taken.
pub(crate) fn sent(is_hostile: bool) -> impl Strategy<Value = Sent> {
    let late = prop::collection::vec((-100_000..900_000i64, any::<bool>(), -9..9i32), 0..4);
    let one = (values(is_hostile), prop::option::of(times()), late);
    (times(), prop::collection::vec(one, 1..7)).prop_map(|(shared, series)| {
        let told = |(number, (values, own, late)): (usize, Parts)| {
            let (id, group) = ((number / 2).to_string(), (number / 2 % 2).to_string());
            let name = if number % 2 == 0 { "m_total" } else { "other" };
            let mut pairs = vec![("__name__", name), ("id", &id), ("group", &group)];
            if number % 2 == 1 {
                pairs.push(("kind", "b"));
            }
            let times = own.unwrap_or_else(|| shared.clone());
            let mut samples: Vec<(i64, f64)> = times.iter().copied().zip(values).collect();
            let taken = samples.clone();
            for (at, is_taken, value) in late {
                let near = taken.get(usize::try_from(at.unsigned_abs()).unwrap_or(0) % taken.len().max(1));
                let at = near.filter(|_| is_taken).map_or(at, |(at, _)| *at);
                samples.push((at, f64::from(value)));
            }
            (Labels::from_pairs(pairs), samples)
        };
        series.into_iter().enumerate().map(told).collect()
    })
}

/// The same for more series than one thread takes at a time.
pub(crate) fn many() -> impl Strategy<Value = Sent> {
    let short = prop::collection::vec(hostile(), 0..12);
    (times(), prop::collection::vec(short, 40..130)).prop_map(|(times, series)| {
        let told = |(number, values): (usize, Vec<f64>)| {
            let (id, group) = (number.to_string(), (number % 3).to_string());
            let labels = Labels::from_pairs([("__name__", "m_total"), ("id", &*id), ("group", &*group)]);
            (labels, times.iter().copied().zip(values).collect())
        };
        series.into_iter().enumerate().map(told).collect()
    })
}

/// The map that the oracle looks at. A second value for the newest time is refused, unless it was sealed meanwhile; for an
/// older one it wins.
pub(crate) fn world(sent: &Sent, is_sealed: bool) -> World {
    let mut world = World::new();
    for (labels, samples) in sent {
        let kept = world.entry(labels.clone()).or_default();
        let mut newest = i64::MIN;
        for (at, value) in samples {
            if *at != newest || is_sealed {
                kept.insert(*at, *value);
            }
            newest = newest.max(*at);
        }
    }
    world
}

/// Puts everything into a store: what is in order first, then each late sample by itself, so that the last write wins.
/// In between `seal` may move what is there to where it is not kept in memory.
pub(crate) fn fill(store: &Tsdb, sent: &Sent, seal: impl FnOnce(&Tsdb)) -> Snapshot {
    let now = Timestamp::from_s(1_000_000);
    let append = |labels: &Labels, samples: &[(i64, f64)]| {
        let mut batch = BatchBuilder::default();
        let samples = samples.iter().map(|(at, value)| Sample { at: Timestamp::from_ms(*at), value: *value });
        batch.series(labels, samples);
        store.append(ORG, &batch.batch(), now).expect("stored")
    };
    let in_order = |samples: &[(i64, f64)]| {
        let ascending = samples.windows(2).take_while(|pair| pair[0].0 < pair[1].0).count() + 1;
        ascending.min(samples.len())
    };
    for (labels, samples) in sent {
        append(labels, &samples[..in_order(samples)]);
    }
    seal(store);
    for (labels, samples) in sent {
        for sample in &samples[in_order(samples)..] {
            append(labels, &[*sample]);
        }
    }
    store.snapshot(&Access::whole(ORG))
}

/// A store in a folder, which can seal.
pub(crate) fn in_folder<T>(act: impl FnOnce(&Tsdb) -> T) -> T {
    let dir = tempfile::tempdir().expect("a folder");
    let now = Timestamp::from_s(1_000);
    let folder = DataFolder::open(dir.path(), now, &mut Entropy::seeded(1)).expect("a data folder");
    let (control, _) = Control::open(&folder, &ControlOptions { now, users_table: 1 }).expect("accounts");
    let home = Home { dir: dir.path(), store: folder.store_id(), control: Arc::new(control) };
    let (store, _) = Tsdb::open(home, Options::default(), &mut Entropy::seeded(1), now).expect("opens");
    let done = act(&store);
    store.close();
    done
}
