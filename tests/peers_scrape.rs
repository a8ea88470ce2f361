//! Scraping compared with a real Prometheus 3: both read the same file with many relabelling
//! configurations, scrape the same targets, and must show the same targets and store the same
//! samples, staleness included. The samples that an agent forwards to a Prometheus are compared
//! with those that another Prometheus scrapes and sends with the same external labels and rules.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::{ORG, Server, Start, bootstrap, eventually, percent, request};
use promlet::clock::Clock;
use serde_json::Value as Json;

/// The rules of each job, with what else the job has.
const JOBS: [&str; 32] = [
    "relabel_configs: []",
    "relabel_configs: [{source_labels: [__address__], target_label: instance}]",
    "relabel_configs: [{source_labels: [__address__], regex: '(.*):.*', target_label: host}]",
    "relabel_configs: [{source_labels: [zone], regex: eu, action: keep}]",
    "relabel_configs: [{source_labels: [zone], regex: eu, action: drop}]",
    "relabel_configs: [{source_labels: [zone], regex: e, action: keep}]",
    "relabel_configs: [{source_labels: [zone, team], separator: '/', target_label: place}]",
    "relabel_configs: [{source_labels: [zone, none], target_label: place}]",
    "relabel_configs: [{target_label: zone, replacement: ''}]",
    "relabel_configs: [{target_label: job, replacement: other}]",
    "relabel_configs: [{target_label: job, replacement: ''}]",
    "relabel_configs: [{action: labelmap, regex: '__meta_(.+)'}]",
    "relabel_configs: [{action: labelmap, regex: 'te(.+)', replacement: 'x_$1'}]",
    "relabel_configs: [{action: labeldrop, regex: 'zone|te.*'}]",
    "relabel_configs: [{action: labelkeep, regex: '__.*|job|zone'}]",
    "relabel_configs: [{action: uppercase, source_labels: [zone], target_label: zone}]",
    "relabel_configs: [{action: lowercase, source_labels: [team], target_label: team}]",
    "relabel_configs: [{action: hashmod, source_labels: [zone, team], modulus: 7, target_label: shard}]",
    "relabel_configs: [{action: hashmod, source_labels: [team], modulus: 3, target_label: __tmp}, {action: keep, source_labels: [__tmp], regex: '[01]'}]",
    "relabel_configs: [{action: keepequal, source_labels: [zone], target_label: team}]",
    "relabel_configs: [{action: dropequal, source_labels: [zone], target_label: zone}]",
    "relabel_configs: [{source_labels: [zone], regex: '(e)(u|x)', target_label: '${1}_$2', replacement: '$2-$1-$$-$9'}]",
    "relabel_configs: [{source_labels: [zone], regex: '(.*)', target_label: '$9', replacement: x}]",
    "relabel_configs: [{target_label: __metrics_path__, replacement: /other}]",
    "relabel_configs: [{target_label: __param_module, replacement: 'a b&c'}]",
    "relabel_configs: [{target_label: __scrape_interval__, replacement: 2s}, {target_label: __scrape_timeout__, replacement: 900ms}]",
    "params: {a: [b, c], d: ['e f']}\n  relabel_configs: [{source_labels: [__param_a], target_label: a}]",
    "honor_labels: true",
    "honor_timestamps: false",
    "metric_relabel_configs: [{source_labels: [__name__], regex: 'noise.*', action: drop}, {action: labeldrop, regex: secret}]",
    "metric_relabel_configs: [{source_labels: [kind], target_label: kind, replacement: 'k-$1'}, {source_labels: [__name__], regex: '(.*)', target_label: __name__, replacement: 'all_$1'}]",
    "sample_limit: 2",
];

/// The metrics of a target. `gone` is false after the target lost a series.
const TEXT: &str = "# HELP queue Waiting jobs.\n# TYPE queue gauge\nqueue{kind=\"a\",secret=\"s\",job=\"own\",zone=\"own\"} 3\n\
                    noise_a 1\nnoise_b{secret=\"x\"} NaN\nlatency_bucket{le=\"1\"} 2\nlatency_bucket{le=\"+Inf\"} 5\n\
                    latency_sum 7.5\nlatency_count 5\n";

struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a target that has one more series while `has_more` is set.
fn target(has_more: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4_096]);
            let more = if has_more.load(Ordering::Relaxed) { "passing{kind=\"b\"} 1\n" } else { "" };
            let body = format!("{TEXT}{more}");
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
            let _ = write!(stream, "{head}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        }
    });
    port
}

fn configuration(ports: [u16; 2], jobs: &[&str]) -> String {
    configuration_with(ports, jobs, "")
}

/// Returns a configuration with further keys of `global`.
fn configuration_with(ports: [u16; 2], jobs: &[&str], global: &str) -> String {
    let mut out =
        format!("global: {{scrape_interval: 1s, scrape_timeout: 900ms{global}}}\nscrape_configs:\n");
    for (place, job) in jobs.iter().enumerate() {
        let [a, b] = ports;
        out.push_str(&format!(
            "- job_name: job-{place:02}\n  static_configs:\n  - targets: ['127.0.0.1:{a}']\n    \
             labels: {{zone: eu, team: RED, __meta_owner: ada}}\n  - targets: ['127.0.0.1:{b}', '127.0.0.1:{b}']\n    \
             labels: {{zone: us, team: us}}\n  {job}\n"
        ));
    }
    out
}

/// Reads the `data` of a response of either server.
struct Api {
    base: String,
    headers: Vec<(String, String)>,
}

impl Api {
    fn data(&self, path: &str) -> Json {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let answer = request("GET", &format!("{}/api/v1/{path}", self.base), &headers, None);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()["data"].clone()
    }

    /// Returns the targets, without what differs between two scrapes.
    fn targets(&self) -> BTreeSet<String> {
        let data = self.data("targets");
        let rows = |name: &str| data[name].as_array().cloned().unwrap_or_default();
        let active = rows("activeTargets").into_iter().map(|row| {
            let keys = [
                "scrapePool",
                "labels",
                "discoveredLabels",
                "scrapeUrl",
                "scrapeInterval",
                "scrapeTimeout",
                "health",
            ];
            keys.map(|key| row[key].to_string()).join(" ")
        });
        let dropped =
            rows("droppedTargets").into_iter().map(|row| format!("dropped {}", row["discoveredLabels"]));
        let counts = data["droppedTargetCounts"].as_object().cloned().unwrap_or_default();
        let counts = counts.into_iter().map(|(pool, count)| format!("dropped of {pool}: {count}"));
        active.chain(dropped).chain(counts).collect()
    }

    /// Returns the samples at a time, without those of durations.
    fn samples(&self, at: i64) -> BTreeSet<String> {
        let expr = percent("{__name__=~\".+\", __name__!~\"scrape_duration_seconds|scrape_series_added\"}");
        let data = self.data(&format!("query?query={expr}&time={at}&limit=0"));
        let rows = data["result"].as_array().cloned().unwrap_or_default();
        rows.into_iter().map(|row| format!("{} {}", row["metric"], row["value"][1])).collect()
    }
}

/// Waits until both servers have the same rows, of which none contains `gone`. Returns their
/// number.
fn same(
    what: &str,
    gone: &str,
    ours: &dyn Fn() -> BTreeSet<String>,
    theirs: &dyn Fn() -> BTreeSet<String>,
) -> usize {
    let difference = || {
        let (ours, theirs) = (ours(), theirs());
        let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
            a.difference(b).take(10).cloned().collect::<Vec<_>>()
        };
        format!(
            "{what}\nonly promlet: {:#?}\nonly Prometheus: {:#?}",
            only(&ours, &theirs),
            only(&theirs, &ours)
        )
    };
    eventually(Duration::from_secs(60), difference, || {
        let (ours, theirs) = (ours(), theirs());
        let is_gone = ours.iter().all(|row| !row.contains(gone));
        (ours == theirs && !ours.is_empty() && is_gone).then_some(ours.len())
    })
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port()
}

/// Waits until a Prometheus is ready.
fn wait_ready(port: u16) {
    eventually(
        Duration::from_secs(60),
        || "Prometheus is not ready".to_owned(),
        || {
            let ready = request("GET", &format!("http://127.0.0.1:{port}/-/ready"), &[], None);
            (ready.status == 200).then_some(())
        },
    );
}

/// Starts a Prometheus with its data in `dir`, which also receives samples.
fn prometheus(programs: &Path, dir: &Path, config: &Path, port: u16) -> Peer {
    let child = Command::new(programs.join("prometheus"))
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", dir.display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .arg("--web.enable-remote-write-receiver")
        .arg("--log.level=error")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    Peer(child.unwrap_or_else(|error| panic!("Prometheus does not start: {error}")))
}

#[test]
fn targets_and_samples_of_many_relabelling_configurations_equal_those_of_prometheus() {
    let programs = packages::prometheus();
    let dir = tempfile::tempdir().expect("a folder");
    let has_more = Arc::new(AtomicBool::new(true));
    let ports = [target(Arc::clone(&has_more)), target(Arc::clone(&has_more))];
    let config = dir.path().join("prometheus.yml");
    std::fs::write(&config, configuration(ports, &JOBS)).expect("written");
    let port = free_port();
    let peer = prometheus(&programs, &dir.path().join("prometheus"), &config, port);
    let mut env = bootstrap().to_vec();
    env.push(("PROMLET_SCRAPE_CONFIG", config.to_str().expect("plain")));
    let server = Server::start(&Start { args: &["serve"], dir: &dir.path().join("store"), env: &env });
    let theirs = Api { base: format!("http://127.0.0.1:{port}"), headers: Vec::new() };
    let ours = Api {
        base: format!("{}/api/v1/orgs/{ORG}/prometheus", server.url),
        headers: vec![("Cookie".to_owned(), server.sign_in())],
    };
    wait_ready(port);
    let now = || Clock::System.now().as_s();
    let targets = |gone: &str| same("targets", gone, &|| ours.targets(), &|| theirs.targets());
    let samples =
        |what: &str, gone: &str| same(what, gone, &|| ours.samples(now()), &|| theirs.samples(now()));
    let (shown, stored) = (targets("nothing"), samples("samples", "nothing"));
    assert!(shown > 40 && stored > 300, "{shown} targets, {stored} samples");

    has_more.store(false, Ordering::Relaxed);
    let left = samples("samples after a series disappeared", "passing");
    assert!(left < stored, "{left} of {stored} samples");

    // The series of a removed target end. Those of a removed job do so only here: Prometheus keeps
    // them for its lookback of 5 minutes.
    let other = target(Arc::clone(&has_more));
    std::fs::write(&config, configuration([ports[0], other], &JOBS)).expect("written");
    server.signal("HUP");
    let pid = peer.0.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().expect("kill runs").success());
    let gone = format!("127.0.0.1:{}", ports[1]);
    targets(&gone);
    samples("samples after a target was removed", &gone);
    println!("{shown} targets and {stored} samples are equal");
}

#[test]
fn samples_that_an_agent_forwards_equal_those_that_a_prometheus_scrapes_and_sends() {
    const EXTERNAL: &str = ", external_labels: {region: eu, zone: external, kind: external}";
    const RULES: &str = r#"[{"source_labels": ["__name__"], "regex": "scrape_samples_scraped", "action": "drop"},
        {"regex": "secret|team", "action": "labeldrop"},
        {"source_labels": ["region", "job"], "separator": "/", "target_label": "site"}]"#;
    let programs = packages::prometheus();
    let dir = tempfile::tempdir().expect("a folder");
    let has_more = Arc::new(AtomicBool::new(true));
    let ports = [target(Arc::clone(&has_more)), target(Arc::clone(&has_more))];
    let path = |name: &str| dir.path().join(name);
    let scraped = configuration_with(ports, &JOBS, EXTERNAL);
    std::fs::write(path("agent.yml"), &scraped).expect("written");
    std::fs::write(path("empty.yml"), "").expect("written");
    let [scraper, theirs, ours] = [(); 3].map(|()| free_port());
    let url = |port: u16| format!("http://127.0.0.1:{port}/api/v1/write");
    // YAML includes JSON.
    let remote_write = format!("remote_write:\n- url: {}\n  write_relabel_configs: {RULES}\n", url(theirs));
    std::fs::write(path("prometheus.yml"), scraped + &remote_write).expect("written");
    let agent_file =
        format!(r#"{{"relabel": {RULES}, "targets": [{{"name": "ours", "url": "{}"}}]}}"#, url(ours));
    std::fs::write(path("agent.json"), agent_file).expect("written");
    let _receivers = [(theirs, "theirs"), (ours, "ours")]
        .map(|(port, name)| prometheus(&programs, &path(name), &path("empty.yml"), port));
    let _scraper = prometheus(&programs, &path("scraper"), &path("prometheus.yml"), scraper);
    [scraper, theirs, ours].into_iter().for_each(wait_ready);
    let [config, scrape_config] = ["agent.json", "agent.yml"].map(|name| path(name).display().to_string());
    let args =
        ["agent", "--config", &config, "--scrape-config", &scrape_config, "--outbound-allow", "127.0.0.0/8"];
    let agent = Server::start(&Start { args: &args, dir: &path("queue"), env: &[] });
    let [theirs, ours] =
        [theirs, ours].map(|port| Api { base: format!("http://127.0.0.1:{port}"), headers: Vec::new() });
    let now = || Clock::System.now().as_s();
    let samples =
        |what: &str, gone: &str| same(what, gone, &|| ours.samples(now()), &|| theirs.samples(now()));
    let stored = samples("forwarded samples", "scrape_samples_scraped");
    assert!(stored > 300, "{stored} samples");
    let rows = ours.samples(now());
    for part in
        ["\"region\":\"eu\"", "\"site\":\"eu/job-00\"", "\"zone\":\"external\"", "\"kind\":\"external\""]
    {
        assert!(rows.iter().any(|row| row.contains(part)), "{part}");
    }
    has_more.store(false, Ordering::Relaxed);
    let left = samples("forwarded samples after a series disappeared", "passing");
    assert!(left < stored, "{left} of {stored} samples");
    assert!(agent.terminate().success());
    println!("{stored} forwarded samples are equal");
}
