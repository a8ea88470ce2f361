//! Blocks of a real Prometheus 3.5 in promlet, blocks of promlet in a real Prometheus, and remote
//! read by a real Prometheus: the same answers on both sides.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use harness::{ORG, Server, eventually, percent, request};
use promlet::clock::Clock;
use serde_json::Value as Json;

/// A Prometheus on a data folder.
struct Prometheus {
    child: Child,
    url: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// Starts on `data` with a configuration, and waits until it answers.
    fn start(programs: &Path, data: &Path, config: &str) -> Prometheus {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let url = format!("http://127.0.0.1:{port}");
        std::fs::create_dir_all(data).expect("a folder");
        let file = data.with_extension("yml");
        std::fs::write(&file, config.replace("PORT", &port.to_string())).expect("written");
        let child = Command::new(programs.join("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(["--storage.tsdb.retention.time=100y", "--enable-feature=native-histograms"])
            .args(["--web.enable-admin-api", "--log.level=warn"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("prometheus starts");
        let peer = Prometheus { child, url };
        eventually(
            Duration::from_secs(60),
            || "Prometheus is not ready".to_owned(),
            || (request("GET", &format!("{}/-/ready", peer.url), &[], None).status == 200).then_some(()),
        );
        peer
    }

    /// Waits until it has scraped itself so often.
    fn wait_for_scrapes(&self, count: u32) {
        let url = format!("{}/api/v1/query?query=count_over_time(up[5m])", self.url);
        eventually(
            Duration::from_secs(90),
            || format!("no {count} scrapes"),
            || {
                let answer = request("GET", &url, &[], None).json();
                let value = answer["data"]["result"][0]["value"][1].as_str()?.parse::<u32>().ok()?;
                (value >= count).then_some(())
            },
        );
    }

    /// Ends it in order, so that its log is complete.
    fn stop(mut self) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
        let _ = self.child.wait();
    }
}

type Series = BTreeMap<String, Vec<(i64, String)>>;

/// Asks a query API for a range, and returns the points of each series.
fn ask(base: &str, headers: &[(&str, &str)], expr: &str, [start, end, step]: [i64; 3]) -> Series {
    let url =
        format!("{base}/api/v1/query_range?query={}&start={start}&end={end}&step={step}", percent(expr));
    let answer = request("GET", &url, headers, None);
    assert_eq!(answer.status, 200, "{expr}: {}", answer.body);
    let mut all = Series::new();
    for one in
        answer.json()["data"]["result"].as_array().unwrap_or_else(|| panic!("no list: {}", answer.body))
    {
        let points = all.entry(one["metric"].to_string()).or_default();
        for (kind, values) in [("", &one["values"]), ("histogram ", &one["histograms"])] {
            for value in values.as_array().into_iter().flatten() {
                let text = match &value[1] {
                    Json::String(text) => text.clone(),
                    other => format!("{kind}{other}"),
                };
                points.push((whole_seconds(&value[0]), text));
            }
        }
    }
    all
}

/// Returns whether two values are equal apart from rounding.
fn is_same(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
        }
        _ => a == b,
    }
}

#[track_caller]
fn assert_same(expr: &str, theirs: &Series, ours: &Series) -> usize {
    let names = |all: &Series| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(theirs), names(ours), "series of {expr}");
    let mut points = 0;
    for (name, theirs) in theirs {
        let ours = &ours[name];
        assert_eq!(theirs.len(), ours.len(), "points of {name} in {expr}");
        for (a, b) in theirs.iter().zip(ours) {
            assert!(a.0 == b.0 && is_same(&a.1, &b.1), "{name} in {expr}: {a:?} and {b:?}");
        }
        points += theirs.len();
    }
    points
}

/// A stopped store with one organisation.
struct Store {
    dir: tempfile::TempDir,
}

impl Store {
    fn new() -> Store {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(Server::serve(&dir.path().join("store")).terminate().success());
        Store { dir }
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_promlet"))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("PROMLET_ARGON2", "64,1,1")
            .env("PROMLET_DATA_DIR", self.dir.path().join("store"))
            .current_dir(self.dir.path())
            .args(args)
            .args(["--org", ORG])
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        println!("{args:?}: {}", text.trim());
        text
    }

    fn serve(&self) -> (Server, String) {
        let server = Server::serve(&self.dir.path().join("store"));
        let cookie = server.sign_in();
        (server, cookie)
    }
}

fn mount(server: &Server) -> String {
    format!("{}/api/v1/orgs/{ORG}/prometheus", server.url)
}

const NO_SCRAPES: &str = "global: {scrape_interval: 1h}\n";
const SELF_SCRAPE: &str = "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: prometheus\n  \
    scrape_protocols: [PrometheusProto]\n  static_configs: [{targets: ['127.0.0.1:PORT']}]\n";
const START: i64 = 1_790_000_000;

/// Writes OpenMetrics of several hours, with gaps and values that are no simple numbers.
fn write_samples(path: &Path) {
    let mut text = String::from("# TYPE load gauge\n");
    for series in 0..30 {
        for number in (0..1_500).filter(|number| (number + series) % 97 != 0) {
            let value = match number % 50 {
                7 => "NaN".to_owned(),
                8 => "+Inf".to_owned(),
                _ => format!("{}", f64::from(number) * 0.1 + f64::from(series)),
            };
            let host = series % 7;
            writeln!(
                text,
                "load{{host=\"web{host}\",n=\"{series}\"}} {value} {}",
                START + i64::from(number) * 15
            )
            .expect("a string");
        }
    }
    text.push_str("# EOF\n");
    std::fs::write(path, text).expect("written");
}

const LOAD_QUERIES: &[&str] = &[
    "load",
    "sum by (host) (load)",
    "rate(load[5m])",
    "count_over_time(load[10m])",
    "quantile_over_time(0.9, load{host=~\"web[1-3]\"}[20m])",
];

#[test]
fn blocks_of_promtool_are_imported_and_exported_blocks_are_opened_with_equal_answers() {
    let programs = packages::prometheus();
    let store = Store::new();
    let dir = store.dir.path();
    write_samples(&dir.join("load.om"));
    let made = Command::new(programs.join("promtool"))
        .args(["tsdb", "create-blocks-from", "openmetrics", "load.om", "blocks"])
        .current_dir(dir)
        .stdout(Stdio::null())
        .status();
    assert!(made.expect("promtool runs").success());
    store.run(&["import", "prometheus-blocks", "blocks"]);
    store.run(&["verify-import", "prometheus-blocks", "blocks"]);
    store.run(&["export", "prometheus-blocks", "exported"]);
    let theirs = Prometheus::start(&programs, &dir.join("blocks"), NO_SCRAPES);
    let reopened = Prometheus::start(&programs, &dir.join("exported"), NO_SCRAPES);
    let (server, cookie) = store.serve();
    let range = [START, START + 1_500 * 15, 60];
    let mut points = 0;
    for expr in LOAD_QUERIES {
        let expected = ask(&theirs.url, &[], expr, range);
        points += assert_same(expr, &expected, &ask(&mount(&server), &[("Cookie", &cookie)], expr, range));
        points += assert_same(expr, &expected, &ask(&reopened.url, &[], expr, range));
    }
    println!("{points} points compared");
    assert!(points > 20_000, "{points}");
}

#[test]
fn the_folder_of_a_stopped_prometheus_with_native_histograms_and_deletions_gives_equal_answers() {
    let programs = packages::prometheus();
    let store = Store::new();
    let dir = store.dir.path();
    let data = dir.join("prometheus");
    let running = Prometheus::start(&programs, &data, SELF_SCRAPE);
    running.wait_for_scrapes(15);
    let deleted = "delete_series?match[]=go_goroutines";
    let answer = request("POST", &format!("{}/api/v1/admin/tsdb/{deleted}", running.url), &[], None);
    assert_eq!(answer.status, 204, "{}", answer.body);
    running.wait_for_scrapes(20);
    running.stop();
    let end = Clock::System.now().as_s();
    store.run(&["import", "prometheus-blocks", "prometheus"]);
    let theirs = Prometheus::start(&programs, &data, NO_SCRAPES);
    let (server, cookie) = store.serve();
    // The range covers only times at which Prometheus scraped.
    let range = [end - 25, end - 2, 1];
    let mut points = 0;
    for expr in [
        "up",
        "{__name__=~\"prometheus_tsdb_head_.*\"}",
        "prometheus_http_request_duration_seconds",
        "histogram_count(prometheus_http_request_duration_seconds)",
        "histogram_quantile(0.9, rate(prometheus_http_request_duration_seconds[10s]))",
        "go_goroutines",
    ] {
        let expected = ask(&theirs.url, &[], expr, range);
        points += assert_same(expr, &expected, &ask(&mount(&server), &[("Cookie", &cookie)], expr, range));
    }
    println!("{points} points compared");
    assert!(points > 200, "{points}");
}

#[test]
fn a_real_prometheus_reads_from_promlet_by_remote_read() {
    let programs = packages::prometheus();
    let store = Store::new();
    let dir = store.dir.path();
    write_samples(&dir.join("load.om"));
    store.run(&["import", "openmetrics", "load.om"]);
    let (server, cookie) = store.serve();
    let (_, secret) = server.api_key(&cookie);
    let config = format!(
        "{NO_SCRAPES}remote_read:\n- url: {}/api/v1/read\n  read_recent: true\n  authorization: \
         {{credentials: {secret}}}\n",
        mount(&server)
    );
    let reader = Prometheus::start(&programs, &dir.join("reader"), &config);
    let range = [START, START + 1_500 * 15, 60];
    let mut points = 0;
    for expr in LOAD_QUERIES {
        let ours = ask(&mount(&server), &[("Cookie", &cookie)], expr, range);
        points += assert_same(expr, &ask(&reader.url, &[], expr, range), &ours);
    }
    println!("{points} points compared");
    assert!(points > 10_000, "{points}");
}

/// Returns a time in seconds without its fraction.
fn whole_seconds(time: &Json) -> i64 {
    let text = time.to_string();
    text.split('.').next().unwrap_or_default().parse().expect("a time")
}
