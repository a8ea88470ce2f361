//! The samples for both servers: one hour, with every difficulty that series can have.

use promlet::model::stale_nan;

use super::chance::Chance;
use super::harness::{field, varint};
use super::histograms::{Native, counted, custom, of_gauges};

/// The time of the first sample in milliseconds, and the default distance of samples.
pub(crate) const BEGIN_MS: i64 = 1_700_000_000_000;
pub(crate) const SPACING_MS: i64 = 15_000;
const COUNT: usize = 240;

/// The last time at which a sample may lie, in milliseconds.
pub(crate) const END_MS: i64 = BEGIN_MS + 3_600_000;

#[derive(Clone)]
pub(crate) enum Value {
    Float(f64),
    Native(Box<Native>),
}

impl Value {
    fn is_float(&self) -> bool {
        matches!(self, Value::Float(_))
    }
}

/// One series with its samples in order of time.
pub(crate) struct Series {
    labels: Vec<(String, String)>,
    samples: Vec<(i64, Value)>,
}

impl Series {
    fn new(name: &str, labels: &[(&str, &str)], samples: Vec<(i64, Value)>) -> Series {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut labels: Vec<_> = [("__name__", name)].iter().chain(labels).map(owned).collect();
        labels.sort();
        Series { labels, samples }
    }

    /// Encodes a `TimeSeries` message of remote write 1.0.
    fn encode(&self, out: &mut Vec<u8>) {
        for (name, value) in &self.labels {
            let mut pair = Vec::new();
            field(&mut pair, 1, name.as_bytes());
            field(&mut pair, 2, value.as_bytes());
            field(out, 1, &pair);
        }
        for (at, value) in &self.samples {
            match value {
                Value::Float(value) => {
                    let mut sample = vec![0x09];
                    sample.extend_from_slice(&value.to_le_bytes());
                    sample.push(0x10);
                    varint(&mut sample, at.cast_unsigned());
                    field(out, 2, &sample);
                }
                Value::Native(native) => field(out, 4, &native.encode(*at)),
            }
        }
    }
}

/// Returns the uncompressed bodies of remote write requests, with series in order of their labels.
pub(crate) fn requests(series: Vec<Series>) -> Vec<Vec<u8>> {
    let (mut mixed, mut series): (Vec<Series>, Vec<Series>) =
        series.into_iter().partition(|series| series.labels.contains(&("__name__".into(), "mixed".into())));
    series.sort_by(|a, b| a.labels.cmp(&b.labels));
    // Within one request, Prometheus stores all floats of a series before its histograms.
    let mut later = Vec::new();
    for one in &mut mixed {
        for run in std::mem::take(&mut one.samples).chunk_by(|(_, a), (_, b)| a.is_float() == b.is_float()) {
            later.push(Series { labels: one.labels.clone(), samples: run.to_vec() });
        }
    }
    let body = |some: &[Series]| {
        let mut request = Vec::new();
        for series in some {
            let mut one = Vec::new();
            series.encode(&mut one);
            field(&mut request, 1, &one);
        }
        request
    };
    series.chunks(20).chain(later.chunks(1)).map(body).collect()
}

/// Returns all series.
pub(crate) fn generate(chance: &mut Chance) -> Vec<Series> {
    let mut all = Vec::new();
    web(chance, &mut all);
    rooms(chance, &mut all);
    pods(chance, &mut all);
    classic(chance, &mut all);
    native(chance, &mut all);
    named(chance, &mut all);
    all
}

/// Returns times at the default distance; with `jitter`, each is up to that many milliseconds
/// later.
fn times(chance: &mut Chance, jitter: i64) -> Vec<i64> {
    let at = |i: usize| BEGIN_MS + SPACING_MS * i64::try_from(i).expect("small");
    (0..COUNT).map(|i| at(i) + if jitter > 0 { chance.between(0, jitter) } else { 0 }).collect()
}

fn floats(times: Vec<i64>, mut value: impl FnMut(usize) -> f64) -> Vec<(i64, Value)> {
    times.into_iter().enumerate().map(|(i, at)| (at, Value::Float(value(i)))).collect()
}

/// Counters of two sides, one of which has fewer series, a gauge with matching labels, and info
/// series.
fn web(chance: &mut Chance, all: &mut Vec<Series>) {
    for instance in ["a:1", "b:1", "c:1"] {
        for code in ["200", "404", "500"] {
            for (job, name) in [("api", "requests_total"), ("api", "errors_total"), ("db", "requests_total")]
            {
                if name == "errors_total" && (code == "200" || instance == "c:1") {
                    continue;
                }
                let labels = [("job", job), ("instance", instance), ("code", code)];
                let jitter = *chance.pick(&[0, 0, 900]);
                let mut total = 0.0;
                let samples = floats(times(chance, jitter), |_| {
                    let reset = chance.percent(2);
                    total = if reset { 0.0 } else { total } + f64::from(u8::from(!chance.percent(30))) * 3.0;
                    total += chance.unit();
                    total
                });
                all.push(Series::new(name, &labels, samples));
            }
        }
        let labels = [("job", "api"), ("instance", instance)];
        let samples = floats(times(chance, 0), |i| ((i / 7) % 5) as f64);
        all.push(Series::new("inflight", &labels, samples));
        let labels = [("job", "api"), ("instance", instance), ("version", "1.9"), ("zone", "z-1")];
        all.push(Series::new("target_info", &labels, floats(times(chance, 0), |_| 1.0)));
    }
}

/// Gauges with all kinds of float values.
fn rooms(chance: &mut Chance, all: &mut Vec<Series>) {
    let strange =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1e300, -1e300, 2.3e-308, 1e-7, 1e21];
    for (floor, room) in
        [("0", "hall"), ("0", "lab"), ("1", "attic"), ("1", "lab"), ("2", "roof"), ("10", "top")]
    {
        let labels = [("floor", floor), ("room", room)];
        let samples = floats(times(chance, 0), |_| 15.0 + 20.0 * chance.unit() - 10.0);
        all.push(Series::new("temperature", &labels, samples));
        let samples =
            floats(times(chance, 0), |_| f64::from(i32::try_from(chance.between(-3, 3)).expect("small")));
        all.push(Series::new("level", &labels, samples));
        let samples = floats(times(chance, 0), |_| {
            if chance.percent(25) { *chance.pick(&strange) } else { chance.between(-2, 9) as f64 }
        });
        all.push(Series::new("odd", &labels, samples));
        if floor != "2" {
            let samples = floats(times(chance, 0), |i| f64::from(u8::from((i / 9) % 2 == 0)));
            all.push(Series::new("open", &labels, samples));
        }
    }
}

/// Series that begin and end, have gaps, and end with or without a staleness marker.
fn pods(chance: &mut Chance, all: &mut Vec<Series>) {
    for pod in 0..8usize {
        let name = format!("p{pod}");
        let labels = [("pod", name.as_str()), ("node", if pod % 2 == 0 { "n1" } else { "n2" })];
        let (first, last) = (pod * 25, (pod * 25 + 70).min(COUNT));
        let mut total = 0.0;
        let mut samples = floats(times(chance, 0), |_| {
            total += 2.0;
            total
        });
        samples.truncate(last);
        samples.drain(..first);
        if pod % 3 != 0 {
            let end = samples.last().map_or(BEGIN_MS, |(at, _)| at + SPACING_MS);
            samples.push((end, Value::Float(stale_nan())));
        }
        all.push(Series::new("churn_total", &labels, samples));
        let mut gappy = floats(times(chance, 3_000), |_| {
            if chance.percent(6) { stale_nan() } else { chance.between(0, 40) as f64 / 4.0 }
        });
        let mut hole = 0;
        gappy.retain(|_| {
            hole = if chance.percent(5) { chance.between(1, 40) } else { hole - 1 };
            hole <= 0
        });
        all.push(Series::new("gappy", &labels, gappy));
        let mut sparse = floats(times(chance, 0), |i| i as f64);
        sparse.retain(|_| chance.percent(5));
        all.push(Series::new("sparse", &labels, sparse));
    }
}

/// Classic histograms: one is not monotonic, one lacks its highest bucket, one has an invalid
/// bound.
fn classic(chance: &mut Chance, all: &mut Vec<Series>) {
    for job in ["api", "db", "odd"] {
        let bounds = ["0.1", "0.25", "1", "2.5", "+Inf"];
        let mut counts = vec![[0.0f64; 5]; COUNT];
        let mut now = [0.0f64; 5];
        for row in &mut counts {
            if chance.percent(1) {
                now = [0.0; 5];
            }
            let seen = chance.below(5);
            for (i, count) in now.iter_mut().enumerate() {
                *count += if i >= seen { 2.0 } else { 0.0 };
            }
            *row = now;
            if job == "odd" && chance.percent(10) {
                row[2] -= 1.0;
            }
        }
        for (i, le) in bounds.iter().enumerate() {
            let le = if job == "odd" && *le == "0.25" { "much" } else { le };
            let samples = floats(times(chance, 0), |at| counts[at][i]);
            all.push(Series::new("latency_seconds_bucket", &[("job", job), ("le", le)], samples));
        }
        let samples = floats(times(chance, 0), |at| counts[at][4]);
        all.push(Series::new("latency_seconds_count", &[("job", job)], samples));
        let samples = floats(times(chance, 0), |at| counts[at][4] * 0.5);
        all.push(Series::new("latency_seconds_sum", &[("job", job)], samples));
        let samples = floats(times(chance, 0), |_| chance.between(1, 6) as f64);
        all.push(Series::new("weight", &[("job", job)], samples));
    }
}

fn native(chance: &mut Chance, all: &mut Vec<Series>) {
    for job in ["api", "db", "odd"] {
        let labels = [("job", job)];
        let at = times(chance, 0);
        all.push(Series::new("size_bytes", &labels, counted(chance, &at, job == "odd", false)));
        let at = times(chance, 700);
        all.push(Series::new("size_float", &labels, counted(chance, &at, false, true)));
        let at = times(chance, 0);
        all.push(Series::new("depth", &labels, of_gauges(chance, &at)));
        let at = times(chance, 0);
        all.push(Series::new("wait_seconds", &labels, custom(chance, &at)));
        // One series has first floats and then histograms, the other the reverse.
        let at = times(chance, 0);
        let mut mixed = counted(chance, &at, false, job == "db");
        for (i, (_, value)) in mixed.iter_mut().enumerate() {
            if (i / 60) % 2 == usize::from(job == "db") {
                *value = Value::Float(i as f64);
            }
        }
        all.push(Series::new("mixed", &labels, mixed));
    }
}

/// Names and values with characters beyond ASCII letters.
fn named(chance: &mut Chance, all: &mut Vec<Series>) {
    for value in ["ä", "b c", "\"q\"\\", "line\nbreak"] {
        let labels = [("a.b", value), ("ключ", "1"), ("job", "api")];
        let samples = floats(times(chance, 0), |_| chance.between(0, 9) as f64);
        all.push(Series::new("my.metric", &labels, samples));
    }
}
