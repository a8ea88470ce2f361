//! Queries and writes of a server, alone and beside an import.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use promlet::clock::{Clock, Stopwatch};
use promlet::model::{Labels, Sample, Timestamp};

use crate::answers::Queried;
use crate::blocks::Blocks;
use crate::cpu_time::cpu_s;
use crate::data::{Data, INTERVAL_MS, ROUNDS};
use crate::harness::{ORG, percent, remote_write};
use crate::median::median;
use crate::process::{Cost, Started};
use crate::sender::{Destination, send};
use crate::stores::{Running, Store, assert_imported};
use crate::table::{Measured, print_at_most, print_costs};

/// The series that are written and queried, a sample of each every 15 s.
const SERIES: usize = 15_000;
/// The series of a live write: fifty writes each second.
const WRITE_SERIES: usize = 20;
const WRITE_INTERVAL: Duration = Duration::from_millis(20);
/// The scrapes that can be written live: all slices together take a quarter of an hour at most.
const LIVE_ROUNDS: usize = 60;
const QUERY_INTERVAL: Duration = Duration::from_millis(10);
/// The time that range queries cover, and their step.
const RANGE_S: i64 = 1_800;
const STEP_S: i64 = 60;
const REQUEST_MAX: Duration = Duration::from_secs(60);

/// The queries, which take turns. A step of 0 is an instant query.
const QUERIES: [(&str, i64); 6] = [
    ("node_load1{instance=\"host-7\"}", STEP_S),
    ("sum by (mode) (rate(node_cpu_seconds_total{instance=\"host-7\"}[5m]))", STEP_S),
    ("sum by (mode) (rate(node_cpu_seconds_total[5m]))", 0),
    ("topk(5, sum by (namespace) (rate(requests_total[5m])))", STEP_S),
    ("sum by (zone) (node_memory_free_bytes * on (instance) group_left (zone) node_info)", 0),
    (
        "histogram_quantile(0.99, sum by (le) (rate(request_duration_seconds_bucket\
         {namespace=\"namespace-3\"}[5m])))",
        STEP_S,
    ),
];

/// The slices beside the import between two slices alone.
const SLICES_BESIDE: usize = 3;

/// The requests of a slice of time: how long each took, in seconds.
struct Slice {
    queries: Vec<f64>,
    writes: Vec<f64>,
    /// The processors that the server used.
    cores: f64,
}

/// The server, and what is written to it.
struct Live {
    running: Running,
    cookie: String,
    /// The number of samples that were stored before the first phase.
    earlier: usize,
    bodies: Vec<Vec<u8>>,
    next: AtomicUsize,
}

/// Imports the blocks into a server that is queried and written to. The import is stopped for
/// slices of `seconds` between slices beside it, so that both meet the same other programs.
pub(crate) fn measure(blocks: &Blocks, seconds: u64, dir: &Path) {
    let folder = dir.join("live");
    fs::create_dir_all(&folder).expect("a folder");
    let start = Clock::System.now();
    let live = Live::new(Store::new(&folder).serve(), start);
    let limit = Duration::from_secs(seconds);
    let pause = || std::thread::sleep(limit);
    let (mut alone, mut beside, mut stopped_s) = (vec![live.slice(pause)], Vec::new(), 0.0);
    let mut import = Started::new(&mut live.running.import(&blocks.folder, dir), dir);
    let mut has_ended = false;
    while !has_ended {
        for _ in 0..SLICES_BESIDE {
            let slice = live.slice(|| has_ended |= import.wait(limit));
            // A slice that the end of the import cut short counts only if it is the only one.
            if !has_ended || beside.is_empty() {
                beside.push(slice);
            }
        }
        if !has_ended {
            let stopped = Stopwatch::start();
            import.signal("STOP");
            alone.push(live.slice(pause));
            import.signal("CONT");
            stopped_s += stopped.elapsed().as_secs_f64();
        }
    }
    let (cost, said) = import.finish();
    let after = [live.slice(pause), live.slice(pause)];
    assert_imported(&said, blocks.samples);
    live.assert_written(start);
    let name = "import beside live requests: the command";
    let cost = Cost { wall_s: cost.wall_s - stopped_s, ..cost };
    print_costs(&[Measured { name, samples: blocks.samples, cost }]);
    println!("the server's memory: {} MB at most", live.running.server.status_bytes("VmHWM") / 1_000_000);
    print_slices(&[("alone", &alone), ("beside the import", &beside), ("after it", &after)]);
    let ratio = |requests: Requests, percent| {
        percentiles(&beside, requests, percent) / percentiles(&alone, requests, percent)
    };
    print_at_most("99th percentile of queries beside the import, 1 alone", ratio(Slice::queries, 99), 1.2);
    print_at_most("median of writes beside the import, 1 alone", ratio(Slice::writes, 50), 1.2);
    print_at_most("99th percentile of writes beside the import, 1 alone", ratio(Slice::writes, 99), 1.2);
}

impl Live {
    fn new(running: Running, start: Timestamp) -> Live {
        let last = i64::try_from(LIVE_ROUNDS).expect("few rounds");
        let end = start.plus_ms((last - 1) * INTERVAL_MS);
        let mut data = Data::new(SERIES, ROUNDS + LIVE_ROUNDS, end);
        let mut requests = Vec::new();
        for _ in 0..ROUNDS {
            requests.extend(data.round().expect("a round").iter().map(|series| remote_write(series)));
        }
        send(&Destination::promlet(&running.server, &running.secret), &requests, 1);
        let mut bodies = Vec::new();
        while let Some(round) = data.round() {
            let all: Vec<(Labels, Vec<Sample>)> = round.into_iter().flatten().collect();
            bodies.extend(all.chunks(WRITE_SERIES).map(remote_write));
        }
        let cookie = running.server.sign_in();
        Live { running, cookie, earlier: data.series() * ROUNDS, bodies, next: AtomicUsize::new(0) }
    }

    /// Asserts that the server has the samples of all acknowledged writes.
    fn assert_written(&self, start: Timestamp) {
        let written = self.next.load(Ordering::Relaxed) * WRITE_SERIES;
        let queried = Queried::promlet(&self.running.server);
        // The copies of the large blocks have this label.
        let stored = queried.count("copy=\"\"", 2 * 3_600, start.as_s() + 1_800);
        assert_eq!(stored, (self.earlier + written) as f64, "acknowledged live samples are stored");
    }

    /// Sends queries and writes while `work` runs.
    fn slice(&self, work: impl FnOnce()) -> Slice {
        let is_over = AtomicBool::new(false);
        let pid = self.running.server.pid();
        let (watch, before) = (Stopwatch::start(), cpu_s(pid).expect("a running process"));
        std::thread::scope(|scope| {
            let queries = scope.spawn(|| self.query(&is_over));
            let writes = scope.spawn(|| self.write(&is_over));
            work();
            let cores = (cpu_s(pid).expect("a running process") - before) / watch.elapsed().as_secs_f64();
            is_over.store(true, Ordering::Relaxed);
            let [queries, writes] = [queries, writes].map(|thread| thread.join().expect("its requests end"));
            Slice { queries, writes, cores }
        })
    }

    fn query(&self, is_over: &AtomicBool) -> Vec<f64> {
        let agent = agent();
        let mut turn = QUERIES.iter().cycle();
        paced(QUERY_INTERVAL, is_over, || {
            let (expr, step) = turn.next().expect("endless");
            let now = Clock::System.now().as_s();
            let times = match step {
                0 => format!("query?time={now}"),
                _ => format!("query_range?start={}&end={now}&step={step}", now - RANGE_S),
            };
            let url = format!(
                "{}/api/v1/orgs/{ORG}/prometheus/api/v1/{times}&nocache=1&query={}",
                self.running.server.url,
                percent(expr)
            );
            let mut answer = agent.get(&url).header("Cookie", &self.cookie).call().expect("a response");
            let body = answer.body_mut().read_to_string().expect("a body");
            let is_full = answer.status() == 200 && body.contains("\"metric\"");
            assert!(is_full, "{expr}: {}: {body}", answer.status());
        })
    }

    fn write(&self, is_over: &AtomicBool) -> Vec<f64> {
        let agent = agent();
        let to = Destination::promlet(&self.running.server, &self.running.secret);
        paced(WRITE_INTERVAL, is_over, || {
            let body =
                self.bodies.get(self.next.fetch_add(1, Ordering::Relaxed)).expect("the phases are short");
            let request = agent
                .post(&to.url)
                .header("Authorization", &to.authorization)
                .header("Content-Type", "application/x-protobuf")
                .header("Content-Encoding", "snappy")
                .header("X-Prometheus-Remote-Write-Version", "0.1.0");
            let mut answer = request.send(body.as_slice()).expect("a response");
            let text = answer.body_mut().read_to_string().unwrap_or_default();
            assert_eq!(answer.status(), 204, "{text}");
        })
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    config.timeout_global(Some(REQUEST_MAX)).build().into()
}

/// Sends requests at an interval until the phase is over. A request that is due while its
/// predecessor runs is sent behind it, and its time counts from then on.
fn paced(interval: Duration, is_over: &AtomicBool, mut send: impl FnMut()) -> Vec<f64> {
    let watch = Stopwatch::start();
    let (mut took_s, mut due) = (Vec::new(), Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let mut begun = due;
        let now = watch.elapsed();
        if now < due {
            std::thread::sleep(due.saturating_sub(now));
            begun = watch.elapsed();
        }
        send();
        took_s.push(watch.elapsed().saturating_sub(begun).as_secs_f64());
        due += interval;
    }
    took_s
}

impl Slice {
    fn queries(&self) -> &[f64] {
        &self.queries
    }

    fn writes(&self) -> &[f64] {
        &self.writes
    }
}

/// Returns a percentile of times in seconds.
fn percentile(all: &[f64], percent: usize) -> f64 {
    let mut sorted = all.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let place = sorted.len() * percent / 100;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// The requests of one kind.
type Requests = fn(&Slice) -> &[f64];

/// Returns the median of a percentile over slices.
fn percentiles(slices: &[Slice], requests: Requests, percent: usize) -> f64 {
    let all = slices.iter().map(requests).filter(|all| !all.is_empty());
    median(&all.map(|all| percentile(all, percent)).collect::<Vec<_>>())
}

fn print_slices(phases: &[(&str, &[Slice])]) {
    println!(
        "\n| live requests, ms | queries | median | p90 | p99 | writes | median | p90 | p99 | server's cores |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (name, slices) in phases {
        let cells = |requests: Requests| {
            let count = slices.iter().map(|slice| requests(slice).len()).sum::<usize>();
            let [median, p90, p99] = [50, 90, 99].map(|percent| percentiles(slices, requests, percent) * 1e3);
            format!("{count} | {median:.2} | {p90:.2} | {p99:.2}")
        };
        let (queries, writes) = (cells(Slice::queries), cells(Slice::writes));
        let cores = median(&slices.iter().map(|slice| slice.cores).collect::<Vec<_>>());
        println!("| {name} | {queries} | {writes} | {cores:.2} |");
    }
    println!();
}
