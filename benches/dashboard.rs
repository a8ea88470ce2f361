//! A whole dashboard: `cargo bench --features peers --bench dashboard [-- HOURS [ROUNDS]]`.
//!
//! Node Exporter Full (`PROMLET_SHARED`) with the series of a real node_exporter, over 24 hours.
//! HOURS (24) of them have samples, every 15 s: the counters grow as if the machine had always run
//! as it has since its start, and the gauges that change do so by up to a percent. promlet and
//! VictoriaMetrics get the same remote write requests.
//!
//! Then its 286 queries are sent ROUNDS (10) times, as the page asks them: to promlet in one batch,
//! to VictoriaMetrics one by one, over one connection and over the six of a browser. Neither uses
//! earlier results. At last Chromium opens the dashboard with an empty cache.
//!
//! Checks: each query of the batch succeeds, and has as many series as VictoriaMetrics returns,
//! which leaves out those without a number.

#![expect(clippy::panic, reason = "a bench that cannot continue panics with the reason")]

#[path = "common/arguments.rs"]
mod arguments;
#[path = "../tests/peers/chromium.rs"]
#[expect(dead_code, reason = "shared: only the browser tests drive scenarios")]
mod chromium;
#[path = "common/cpu_time.rs"]
mod cpu_time;
#[path = "../tests/binary/harness.rs"]
#[expect(dead_code, reason = "the tests of the binary use the rest")]
mod harness;
#[path = "common/median.rs"]
mod median;
#[path = "../tests/peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;
#[path = "common/sender.rs"]
mod sender;
#[path = "../tests/peers/servers.rs"]
#[expect(dead_code, reason = "shared: each target needs other servers")]
mod servers;
#[path = "../tests/peers/shared_folder.rs"]
mod shared_folder;
#[path = "common/timed_page.rs"]
mod timed_page;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use promlet::clock::{Clock, Stopwatch};
use promlet::entropy::Entropy;
use promlet::ingest::DecodeLimits;
use promlet::ingest::text::{self, Format};
use promlet::model::{Labels, Sample, Timestamp, WriteSeries};
use serde_json::{Value as Json, json};

use arguments::{arguments, number};
use chromium::root;
use harness::{ORG, Server, Start, bootstrap, percent, remote_write, request};
use median::median;
use packages::{installed, prometheus, run};
use sender::{Destination, send};
use servers::{free_port, started, victoria_metrics};
use shared_folder::shared_folder;
use timed_page::time_page;

/// The time between two samples of a series.
const INTERVAL_MS: i64 = 15_000;
/// The samples of each series in a remote write request.
const REQUEST_SAMPLES: usize = 20;
/// The pause between two scrapes of the exporter, which show what changes.
const PAUSE: Duration = Duration::from_secs(3);
/// The range of the dashboard.
const RANGE_MS: i64 = 24 * 3_600_000;
/// The connections of a browser to a server.
const CONNECTIONS: usize = 6;
/// The longest time of a request.
const REQUEST_MAX: Duration = Duration::from_secs(120);
/// The size of the largest response that is read.
const RESPONSE_MAX: u64 = 1 << 30;
/// The rounds of the browser.
const PAGES: usize = 9;
/// The goals: ratios to VictoriaMetrics, and milliseconds.
const CPU_GOAL: f64 = 0.2;
const WALL_GOAL: f64 = 0.3;
const SCREEN_GOAL_MS: f64 = 500.0;

/// A series of the exporter.
struct Series {
    labels: Labels,
    /// The value now.
    value: f64,
    shape: Shape,
}

/// What the value does from sample to sample.
#[derive(Clone, Copy)]
enum Shape {
    Constant,
    /// Grows by `per_s` a second on average.
    Counter {
        per_s: f64,
    },
    /// Changes by up to a percent.
    Gauge,
}

/// Decodes the text of the exporter.
fn samples(text: &str) -> Vec<(Labels, f64)> {
    let limits = DecodeLimits::default();
    let decoded = text::decode(text.as_bytes(), Format::Prometheus, Timestamp::from_ms(0), &limits);
    let decoded = decoded.unwrap_or_else(|error| panic!("the exporter's text: {error}"));
    let batch = decoded.batch.batch();
    let labelled = |series: &WriteSeries<'_>| {
        let mut pairs = Vec::new();
        (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let own = pairs.iter().map(|(name, value)| (text(name), text(value)));
        let job = [("instance", "node:9100"), ("job", "node")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        (Labels::from_pairs(own.chain(job)), batch.samples[series.samples.clone()][0].value)
    };
    batch.series.iter().map(labelled).collect()
}

/// Returns the series of a node_exporter on this machine.
fn exporter() -> Vec<Series> {
    let port = free_port();
    let mut command = Command::new(prometheus().join("prometheus-node-exporter"));
    command.args(["--collector.processes", "--collector.interrupts", "--log.level=error"]);
    let (_node, url) = started(command.arg(format!("--web.listen-address=127.0.0.1:{port}")), port);
    let scrape = || request("GET", &format!("{url}/metrics"), &[], None).body;
    let first = scrape();
    std::thread::sleep(PAUSE);
    let second = scrape();
    let counters: BTreeSet<&str> =
        second.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let uptime_s: f64 = std::fs::read_to_string("/proc/uptime")
        .ok()
        .and_then(|text| text.split_once(' ')?.0.parse().ok())
        .expect("the time since the start of the machine");
    let before: BTreeMap<String, f64> =
        samples(&first).into_iter().map(|(labels, value)| (format!("{labels:?}"), value)).collect();
    samples(&second)
        .into_iter()
        .map(|(labels, value)| {
            let name = labels.get("__name__").map_or("", |name| &**name);
            let changes =
                before.get(&format!("{labels:?}")).is_some_and(|old| old.to_bits() != value.to_bits());
            let shape = match (counters.contains(name), changes) {
                (true, _) => Shape::Counter { per_s: value / uptime_s },
                (false, true) => Shape::Gauge,
                (false, false) => Shape::Constant,
            };
            Series { labels, value, shape }
        })
        .collect()
}

/// Returns the requests with all samples, of which the last ones are at `end`.
fn bodies(mut series: Vec<Series>, hours: i64, end: Timestamp) -> Vec<Vec<u8>> {
    let samples = hours * 3_600_000 / INTERVAL_MS;
    let mut chance = Entropy::seeded(1);
    let times: Vec<i64> = (0..samples).map(|at| (at + 1 - samples) * INTERVAL_MS).collect();
    times
        .chunks(REQUEST_SAMPLES)
        .map(|times| {
            let mut step = |one: &mut Series| {
                let part = times.iter().map(|ms| {
                    one.value += match one.shape {
                        Shape::Constant => 0.0,
                        Shape::Counter { per_s } => {
                            let more = per_s * (INTERVAL_MS / 1_000) as f64 * 2.0 * chance.unit();
                            if one.value.fract() == 0.0 { more.round() } else { more }
                        }
                        Shape::Gauge => one.value * 0.02 * (chance.unit() - 0.5),
                    };
                    Sample { at: end.plus_ms(*ms), value: one.value }
                });
                let part = part.collect::<Vec<_>>();
                (one.labels.clone(), part)
            };
            remote_write(&series.iter_mut().map(&mut step).collect::<Vec<_>>())
        })
        .collect()
}

/// Returns the queries of the dashboard that the page asks for a range until `end`, as members of a
/// batch that neither read nor write cached results.
fn queries(dashboard: &Path, nodename: &str, end: Timestamp) -> Vec<Json> {
    let written = tempfile::NamedTempFile::new().expect("a file");
    let values = json!({ "job": "node", "nodename": nodename, "node": "node:9100" });
    let mut node = Command::new(installed("node", "nodejs"));
    node.arg(root().join("tests/peers/dashboard_batch.mjs")).arg(dashboard).arg(values.to_string());
    node.args([end.plus_ms(-RANGE_MS), end].map(|at| at.as_ms().to_string())).arg(written.path());
    run(&mut node, "the page has no queries");
    let text = std::fs::read_to_string(written.path()).expect("the queries");
    let mut queries: Vec<Json> = serde_json::from_str(&text).expect("an array");
    for query in &mut queries {
        query["nocache"] = json!("1");
    }
    queries
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().timeout_global(Some(REQUEST_MAX)).build().into()
}

/// VictoriaMetrics with the queries as paths.
struct Victoria {
    pid: u32,
    paths: Vec<String>,
}

impl Victoria {
    fn new(pid: u32, url: &str, queries: &[Json]) -> Victoria {
        let path = |query: &Json| {
            let expr = percent(query["expr"].as_str().expect("text"));
            let base = format!("{url}/api/v1/query");
            match query["type"].as_str() {
                Some("instant") => format!("{base}?nocache=1&query={expr}&time={}", query["time"]),
                _ => {
                    let [start, end, step] = ["start", "end", "step"].map(|name| query[name].to_string());
                    format!("{base}_range?nocache=1&query={expr}&start={start}&end={end}&step={step}")
                }
            }
        };
        Victoria { pid, paths: queries.iter().map(path).collect() }
    }

    /// Sends all queries over a number of connections. Returns their responses in the order of the
    /// queries, and the elapsed milliseconds.
    fn ask(&self, connections: usize) -> (Vec<Vec<u8>>, f64) {
        let next = AtomicUsize::new(0);
        let one = || {
            let (agent, mut own) = (agent(), Vec::new());
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(path) = self.paths.get(at) else { return own };
                let mut response = agent.get(path).call().unwrap_or_else(|error| panic!("{path}: {error}"));
                let body = response.body_mut().with_config().limit(RESPONSE_MAX).read_to_vec();
                own.push((at, body.expect("a body")));
            }
        };
        let watch = Stopwatch::start();
        let mut all: Vec<(usize, Vec<u8>)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..connections).map(|_| scope.spawn(one)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        let ms = watch.elapsed_ms();
        all.sort_unstable_by_key(|(at, _)| *at);
        (all.into_iter().map(|(_, body)| body).collect(), ms)
    }
}

/// promlet with the queries as the body of one batch.
struct Promlet<'a> {
    server: &'a Server,
    cookie: &'a str,
    agent: ureq::Agent,
    body: String,
}

impl Promlet<'_> {
    /// Sends the batch. Returns its lines, and the elapsed milliseconds.
    fn ask(&self) -> (Vec<u8>, f64) {
        let watch = Stopwatch::start();
        let mut response = self
            .agent
            .post(format!("{}/api/v1/orgs/{ORG}/query/batch", self.server.url))
            .header("Cookie", self.cookie)
            .header("Content-Type", "application/json")
            .send(&self.body)
            .unwrap_or_else(|error| panic!("the batch: {error}"));
        let body = response.body_mut().with_config().limit(RESPONSE_MAX).read_to_vec().expect("lines");
        (body, watch.elapsed_ms())
    }
}

/// Whether a series of a result has a value that is a number.
fn has_number(series: &Json) -> bool {
    let values = series["values"].as_array().into_iter().flatten();
    values.chain([&series["value"]]).any(|point| point[1].as_str().is_some_and(|text| text != "NaN"))
}

/// Returns the number of series with a number of each query, by its id.
fn counts(lines: &[u8]) -> BTreeMap<String, usize> {
    let text = std::str::from_utf8(lines).expect("JSON");
    text.lines()
        .map(|line| serde_json::from_str::<Json>(line).expect("a line"))
        .filter(|line| line["id"].is_string())
        .map(|line| {
            assert_eq!(line["status"], "success", "{line}");
            let result = line["data"]["result"].as_array().expect("series");
            (
                line["id"].as_str().expect("an id").to_owned(),
                result.iter().filter(|one| has_number(one)).count(),
            )
        })
        .collect()
}

/// Compares the number of series of each query. Returns the number of all.
fn compare(promlet: &Promlet<'_>, victoria: &Victoria, queries: &[Json]) -> usize {
    let ours = counts(&promlet.ask().0);
    let (bodies, _) = victoria.ask(1);
    let (mut all, mut differences) = (0, Vec::new());
    for (query, body) in queries.iter().zip(bodies) {
        let theirs: Json = serde_json::from_slice(&body).expect("JSON");
        let theirs = theirs["data"]["result"].as_array().expect("series").len();
        let own = ours.get(query["id"].as_str().expect("an id")).copied();
        all += theirs;
        if own != Some(theirs) {
            differences.push(format!("{own:?} series against {theirs}: {query}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    all
}

/// Measures both servers in turns, and prints the ratios.
fn measure(promlet: &Promlet<'_>, victoria: &Victoria, rounds: usize) {
    let cpu_s = |pid: u32| cpu_time::cpu_s(pid).expect("a running process");
    let (mut own_ms, mut alone_ms, mut wall_ms) = (Vec::new(), Vec::new(), Vec::new());
    let (mut own_cpu_s, mut their_cpu_s) = (0.0, 0.0);
    let ours = promlet.server.pid();
    for _ in 0..rounds {
        let before = cpu_s(ours);
        own_ms.push(promlet.ask().1);
        own_cpu_s += cpu_s(ours) - before;
        let before = cpu_s(victoria.pid);
        alone_ms.push(victoria.ask(1).1);
        their_cpu_s += cpu_s(victoria.pid) - before;
        wall_ms.push(victoria.ask(CONNECTIONS).1);
    }
    let cpu_ms = |cpu_s: f64| cpu_s * 1e3 / rounds as f64;
    println!("                                    CPU ms    wall ms");
    println!("promlet, one batch              {:>10.1} {:>10.1}", cpu_ms(own_cpu_s), median(&own_ms));
    println!("VictoriaMetrics, one by one     {:>10.1} {:>10.1}", cpu_ms(their_cpu_s), median(&alone_ms));
    println!("VictoriaMetrics, 6 connections             {:>10.1}", median(&wall_ms));
    let (cpu, wall) = (own_cpu_s / their_cpu_s, median(&own_ms) / median(&wall_ms));
    println!("promlet divided by it           {cpu:>10.2} {wall:>10.2} (goals {CPU_GOAL} and {WALL_GOAL})");
}

/// Ends the work in the background that a day of samples within seconds leaves to both servers:
/// promlet seals what is older than the head, and VictoriaMetrics writes its parts.
fn flush(folder: &Path, victoria_url: &str) {
    let mut seal = Command::new(env!("CARGO_BIN_EXE_promlet"));
    run(seal.env_clear().args(["seal", "--data-dir"]).arg(folder), "promlet does not seal");
    let flushed = request("GET", &format!("{victoria_url}/internal/force_flush"), &[], None);
    assert_eq!(flushed.status, 200, "{}", flushed.body);
    std::thread::sleep(Duration::from_secs(5));
}

/// Opens the dashboard in Chromium.
fn first_screen(server: &Server, cookie: &str, document: &Json) {
    let path = format!("/api/v1/orgs/{ORG}/dashboards");
    let saved = server.post_json(&path, &[("Cookie", cookie)], &json!({ "dashboard": document }));
    assert_eq!(saved.status, 201, "{}", saved.body);
    let uid = document["uid"].as_str().expect("a uid");
    let more = json!({
        "server": server.url,
        "path": format!("/dashboard?org={ORG}&uid={uid}&refresh="),
        "cookie": cookie,
        "rounds": PAGES,
    });
    let measured = time_page("first_screen.mjs", &more);
    let ms: Vec<f64> = measured["ms"].as_array().expect("rounds").iter().filter_map(Json::as_f64).collect();
    let panels = &measured["panels"];
    println!("first screen with {panels} panels: {:.0} ms (goal {SCREEN_GOAL_MS})", median(&ms));
}

fn main() {
    let args = arguments();
    let (hours, rounds) = (number(&args, 0, 24_i64), number(&args, 1, 10_usize));
    let file = shared_folder("dashboards").join("rfmoz/node-exporter-full.json");
    let text = std::fs::read_to_string(&file).expect("the dashboard is there");
    let document: Json = serde_json::from_str(&text).expect("a dashboard");
    let series = exporter();
    let nodename = series.iter().find_map(|one| one.labels.get("nodename")).expect("uname").to_owned();
    let end = Clock::System.now();
    let end = end.plus_ms(-end.as_ms().rem_euclid(1_000));
    println!("{} series, {hours} hours", series.len());
    let bodies = bodies(series, hours, end);

    let dir = tempfile::tempdir().expect("a folder");
    let args = ["serve", "--rate-cabinet-rps", "10000"];
    let folder = dir.path().join("promlet");
    let server = Server::start(&Start { args: &args, dir: &folder, env: &bootstrap() });
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    send(&Destination::promlet(&server, &secret), &bodies, 1);
    let (peer, url) = victoria_metrics(&dir.path().join("victoria-metrics"));
    send(&Destination::peer(&url), &bodies, 1);
    flush(&folder, &url);

    let queries = queries(&file, &nodename, end);
    let body = json!({ "queries": queries }).to_string();
    let promlet = Promlet { server: &server, cookie: &cookie, agent: agent(), body };
    let victoria = Victoria::new(peer.id(), &url, &queries);
    let all = compare(&promlet, &victoria, &queries);
    println!("{} queries with {all} series, equal in number on both servers", queries.len());
    measure(&promlet, &victoria, rounds);
    first_screen(&server, &cookie, &document);
}
