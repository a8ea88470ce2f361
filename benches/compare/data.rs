//! The samples: hosts with gauges and counters, and services with histograms.
//!
//! Labels and values depend only on the number of series, times on the end of the data. A unit is
//! one host and one replica of a service. Its 40 series are scraped every 15 seconds.

use promlet::model::{Labels, Sample, Timestamp};

/// The number of series of a unit.
const UNIT: usize = 40;
/// The usual number of scrapes: an hour.
pub(crate) const ROUNDS: usize = 240;
/// The interval between two scrapes.
pub(crate) const INTERVAL_MS: i64 = 15_000;
/// The number of series in a request, which is the default of Prometheus as a sender.
const REQUEST: usize = 2_000;
pub(crate) const NAMESPACES: usize = 10;
const BOUNDS: [&str; 10] = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "+Inf"];

/// The series of one remote write request with their samples.
type RequestSeries = Vec<(Labels, Vec<Sample>)>;

/// What the values of a series do from scrape to scrape.
#[derive(Clone, Copy)]
enum Shape {
    /// A constant.
    Info,
    /// A random walk in steps of `unit` that stays positive.
    Gauge { unit: f64 },
    /// Grows by about `mean` units of `unit`.
    Counter { mean: u64, unit: f64 },
    /// A cumulative bucket: grows by its share of the observations of its histogram, whose buckets
    /// follow each other.
    Bucket { index: u64 },
}

struct Series {
    labels: Labels,
    shape: Shape,
    /// The current value in units.
    state: u64,
}

/// A linear congruential generator. Its upper bits are used.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

pub(crate) struct Data {
    series: Vec<Series>,
    chance: Chance,
    /// The increments of the last bucket, which the next one includes.
    below: u64,
    next: usize,
    rounds: usize,
    end: Timestamp,
}

impl Data {
    /// Data of about `series` series with `rounds` scrapes, the last of them at `end`.
    pub(crate) fn new(series: usize, rounds: usize, end: Timestamp) -> Data {
        let mut made = Vec::new();
        for unit in 0..(series / UNIT).max(NAMESPACES) {
            host(unit, &mut made);
            replica(unit, &mut made);
        }
        Data { series: made, chance: Chance(series as u64), below: 0, next: 0, rounds, end }
    }

    pub(crate) fn series(&self) -> usize {
        self.series.len()
    }

    /// Returns the next scrape of every series, in requests.
    pub(crate) fn round(&mut self) -> Option<Vec<RequestSeries>> {
        let left = i64::try_from(self.rounds.checked_sub(self.next + 1)?).expect("few rounds");
        let at = self.end.plus_ms(-left * INTERVAL_MS);
        self.next += 1;
        let (chance, below) = (&mut self.chance, &mut self.below);
        let mut all: Vec<_> = Vec::with_capacity(self.series.len());
        for one in &mut self.series {
            let value = one.step(chance, below);
            all.push((one.labels.clone(), vec![Sample { at, value }]));
        }
        Some(all.chunks(REQUEST).map(<[_]>::to_vec).collect())
    }
}

impl Series {
    fn new(name: &str, labels: &[(&str, String)], shape: Shape) -> Series {
        let pairs = labels.iter().map(|(name, value)| (*name, value.clone()));
        let labels = Labels::from_pairs([("__name__", name.to_owned())].into_iter().chain(pairs));
        // Counters start high: a rate whose window begins near zero is extrapolated differently.
        Series { labels, shape, state: 1_000_000 }
    }

    fn step(&mut self, chance: &mut Chance, below: &mut u64) -> f64 {
        match self.shape {
            Shape::Info => 1.0,
            Shape::Gauge { unit } => {
                let moved = self.state + chance.below(2_001);
                self.state = moved.saturating_sub(1_000).max(1);
                self.state as f64 * unit
            }
            Shape::Counter { mean, unit } => {
                self.state += mean * 4 / 5 + chance.below(mean * 2 / 5 + 1);
                self.state as f64 * unit
            }
            Shape::Bucket { index } => {
                *below = if index == 0 { 0 } else { *below };
                // Most observations fall in the middle.
                let weight = 10 + index * (10 - index) * 3;
                *below += weight * 4 / 5 + chance.below(weight * 2 / 5 + 1);
                self.state += *below;
                self.state as f64
            }
        }
    }
}

fn host(unit: usize, out: &mut Vec<Series>) {
    let with = |labels: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
        let own = [("instance", format!("host-{unit}")), ("job", "node".to_owned())];
        own.into_iter().chain(labels.iter().map(|(name, value)| (*name, (*value).to_owned()))).collect()
    };
    let zone = format!("zone-{}", unit % 5);
    let gauge = |unit: f64| Shape::Gauge { unit };
    out.push(Series::new("node_load1", &with(&[]), gauge(0.01)));
    out.push(Series::new("node_memory_free_bytes", &with(&[]), gauge(4_096.0)));
    out.push(Series::new("node_info", &with(&[("zone", &zone), ("kernel", "6.12.1")]), Shape::Info));
    out.push(Series::new("up", &with(&[]), Shape::Info));
    for mountpoint in ["/", "/var", "/home"] {
        let labels = with(&[("mountpoint", mountpoint)]);
        out.push(Series::new("node_filesystem_free_bytes", &labels, gauge(4_096.0)));
    }
    for (device, mean) in [("eth0", 900_000), ("eth1", 20_000)] {
        let shape = Shape::Counter { mean, unit: 1.0 };
        out.push(Series::new("node_network_bytes_total", &with(&[("device", device)]), shape));
    }
    for cpu in ["0", "1", "2", "3"] {
        for (mode, mean) in [("idle", 1_200), ("iowait", 20), ("system", 80), ("user", 200)] {
            let shape = Shape::Counter { mean, unit: 0.01 };
            out.push(Series::new("node_cpu_seconds_total", &with(&[("cpu", cpu), ("mode", mode)]), shape));
        }
    }
}

fn replica(unit: usize, out: &mut Vec<Series>) {
    let namespace = unit % NAMESPACES;
    let with = |labels: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
        let own = [
            ("instance", format!("replica-{unit}")),
            ("job", format!("service-{}", unit % 50)),
            ("namespace", format!("namespace-{namespace}")),
        ];
        own.into_iter().chain(labels.iter().map(|(name, value)| (*name, (*value).to_owned()))).collect()
    };
    for (index, le) in (0..).zip(BOUNDS) {
        let shape = Shape::Bucket { index };
        out.push(Series::new("request_duration_seconds_bucket", &with(&[("le", le)]), shape));
    }
    let sum = Shape::Counter { mean: 40_000, unit: 0.001 };
    out.push(Series::new("request_duration_seconds_sum", &with(&[]), sum));
    // Rates of namespaces differ by far more than chance, so that every server ranks them alike.
    let mean = 200 * (namespace as u64 + 1);
    for (code, mean) in [("200", mean), ("404", mean / 20), ("500", mean / 50)] {
        let shape = Shape::Counter { mean, unit: 1.0 };
        out.push(Series::new("requests_total", &with(&[("code", code)]), shape));
    }
    out.push(Series::new("request_queue_length", &with(&[]), Shape::Gauge { unit: 1.0 }));
}
