//! Scraping by `promlet agent`: the samples of targets reach the servers behind it, whatever
//! happens to the agent, to a target, or to a server (docs/specification.md C15).

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::harness::{ORG, Server, Start, bootstrap, command, eventually, percent, request};
use crate::lying_target::{Lie, LyingTarget};
use crate::scraping::{respond, target};

const WAIT: Duration = Duration::from_secs(60);

/// A target whose series `turn` is the number of the response, from 1. It refuses connections after
/// [`Counter::end`].
struct Counter {
    address: String,
    is_open: Arc<AtomicBool>,
}

impl Counter {
    fn start(more: &'static str) -> Counter {
        let is_open = Arc::new(AtomicBool::new(true));
        let (open, turns) = (Arc::clone(&is_open), AtomicUsize::new(0));
        let address = target(move |stream| {
            if open.load(Ordering::SeqCst) {
                let turn = turns.fetch_add(1, Ordering::SeqCst) + 1;
                respond(stream, "", format!("turn{{pod=\"p1\"}} {turn}\n{more}").as_bytes());
            }
        });
        Counter { address, is_open }
    }

    fn end(&self) {
        self.is_open.store(false, Ordering::SeqCst);
    }
}

fn scrape_config(dir: &Path, region: &str, jobs: &[(&str, &str)]) -> String {
    let path = dir.join("prometheus.yml");
    let mut text = format!(
        "global:\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  external_labels: {{region: {region}}}\nscrape_configs:\n"
    );
    for (name, address) in jobs {
        text.push_str(&format!("- job_name: {name}\n  static_configs: [{{targets: ['{address}']}}]\n"));
    }
    fs::write(&path, text).expect("written");
    path.to_str().expect("plain").to_owned()
}

fn agent_config(dir: &Path, relabel: &Json, targets: &[Json]) -> String {
    let path = dir.join("agent.json");
    fs::write(&path, json!({ "relabel": relabel, "targets": targets }).to_string()).expect("written");
    path.to_str().expect("plain").to_owned()
}

fn lying(name: &str, target: &LyingTarget) -> Json {
    json!({ "name": name, "url": format!("{}/api/v1/write", target.url), "protocol": "1.0" })
}

fn start(dir: &Path, agent: &str, scrape: &str, more: &[&str]) -> Server {
    let args = ["agent", "--config", agent, "--scrape-config", scrape, "--outbound-allow", "127.0.0.0/8"];
    Server::start(&Start { args: &[&args[..], more].concat(), dir: &dir.join("queue"), env: &[] })
}

/// Returns the values of a series that a target accepted, in order of arrival and without
/// repetitions.
fn values(target: &LyingTarget, series: &str) -> Vec<f64> {
    let mut found: Vec<f64> = Vec::new();
    for (_, bits) in target.accepted().get(series).into_iter().flatten() {
        let value = f64::from_bits(*bits);
        if !found.iter().any(|have| have.to_bits() == *bits) {
            found.push(value);
        }
    }
    found
}

fn json_of(agent: &Server, path: &str) -> Json {
    let answer = agent.get(path, &[]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

#[test]
fn scraped_values_reach_a_server_one_by_one_with_external_labels_rules_reports_and_staleness() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server =
        Server::start(&Start { args: &["serve"], dir: &dir.path().join("store"), env: &bootstrap() });
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    let key = dir.path().join("agent.key");
    fs::write(&key, &secret).expect("written");
    let second = LyingTarget::start(|_| Lie::Accept);
    let central = json!({ "name": "central", "url": format!("{}/api/v1/orgs/{ORG}/write", server.url), "bearer_token_file": key });
    let rules = json!([
        { "action": "labeldrop", "regex": "pod" },
        { "action": "drop", "source_labels": ["__name__"], "regex": "debug_.*" },
        { "target_label": "site", "replacement": "berlin" },
    ]);
    let agent_file = agent_config(dir.path(), &rules, &[central, lying("second", &second)]);
    let counter = Counter::start("debug_a 1\nelsewhere{region=\"us\"} 1\n");
    let scrape_file = scrape_config(dir.path(), "eu", &[("node", &counter.address)]);
    let agent = start(dir.path(), &agent_file, &scrape_file, &[]);

    let ask = |expr: &str| {
        let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query?query={}", percent(expr));
        let answer = server.get(&path, &[("Authorization", &format!("Bearer {secret}"))]);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["data"]["result"].as_array().expect("a result").clone()
    };
    let texts = |expr: &str| -> Vec<String> {
        let values =
            ask(expr).first().and_then(|series| series["values"].as_array().cloned()).unwrap_or_default();
        values.iter().map(|pair| pair[1].as_str().expect("a text").to_owned()).collect()
    };
    let labels = format!("instance=\"{}\",job=\"node\",region=\"eu\",site=\"berlin\"", counter.address);
    let turn = format!("turn{{{labels}}}");
    let failure = || format!("{:?}\n{}", texts(&format!("{turn}[10m]")), agent.log());
    eventually(WAIT, failure, || (texts(&format!("{turn}[10m]")).len() >= 10).then_some(()));
    let state = json_of(&agent, "/api/v1/targets?state=active&scrapePool=node");
    let shown = &state["data"]["activeTargets"][0];
    assert_eq!((&shown["health"], &shown["lastError"]), (&json!("up"), &json!("")), "{state}");
    assert_eq!(json_of(&agent, "/api/v1/targets?scrapePool=other")["data"]["activeTargets"], json!([]));
    let ready = json_of(&agent, "/readyz");
    let expected =
        json!({ "jobs": 1, "targets": { "up": 1, "down": 0, "unknown": 0 }, "refused_samples": 0 });
    assert_eq!((&ready["status"], &ready["scraping"]), (&json!("ok"), &expected), "{ready}");
    let metrics = agent.get("/metrics", &[]).body;
    assert!(metrics.contains("\npromlet_scrape_targets{health=\"up\"} 1\n"), "{metrics}");
    assert!(
        metrics.contains("promlet_scrape_missed_total{scrape_job=\"node\",reason=\"dropped\"} 0"),
        "{metrics}"
    );

    counter.end();
    let is_down = || (texts(&format!("up{{{labels}}}[1m]")).last()? == "0").then_some(());
    eventually(WAIT, failure, is_down);
    eventually(WAIT, failure, || ask(&turn).is_empty().then_some(()));
    let found = texts(&format!("{turn}[10m]"));
    let expected: Vec<String> = (1..=found.len()).map(|n| n.to_string()).collect();
    assert_eq!(found, expected, "each response is stored once and in order");
    let up = texts(&format!("up{{{labels}}}[10m]"));
    assert_eq!(up.iter().filter(|value| *value == "1").count(), found.len());
    assert!(ask("debug_a").is_empty() && ask("last_over_time(debug_a[10m])").is_empty());
    assert_eq!(ask("last_over_time(elsewhere{region=\"us\"}[10m])").len(), 1, "its own label stays");
    for name in [
        "scrape_duration_seconds",
        "scrape_samples_scraped",
        "scrape_samples_post_metric_relabeling",
        "scrape_series_added",
    ] {
        assert_eq!(ask(&format!("{name}{{{labels}}}")).len(), 1, "{name}");
    }
    let names: BTreeSet<String> = second.accepted().into_keys().collect();
    let expected =
        format!("instance=\"{}\", job=\"node\", region=\"eu\", site=\"berlin\"}}", counter.address);
    let turn = names.iter().find(|name| name.contains("\"turn\"")).expect("turn");
    assert!(turn.ends_with(&expected), "{turn}");
    let number = f64::from(u32::try_from(found.len()).expect("few"));
    let all: Vec<f64> = values(&second, turn).into_iter().filter(|value| !value.is_nan()).collect();
    assert_eq!((all.len(), all.last()), (found.len(), Some(&number)), "the second server has the same");
    assert!(agent.terminate().success());
    assert!(server.terminate().success());
}

#[test]
fn a_hang_up_reads_the_file_again_and_a_wrong_file_keeps_the_old_one_or_ends_the_start() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let receiver = LyingTarget::start(|_| Lie::Accept);
    let agent_file = agent_config(dir.path(), &json!([]), &[lying("a", &receiver)]);
    let [first, second] = [(); 2].map(|()| Counter::start(""));
    let scrape_file = scrape_config(dir.path(), "eu", &[("first", &first.address)]);
    let agent = start(dir.path(), &agent_file, &scrape_file, &[]);
    let series = |name: &str, job: &str, address: &str, region: &str| match name {
        "up" => format!(r#"{{__name__="up", instance="{address}", job="{job}", region="{region}"}}"#),
        _ => {
            format!(r#"{{__name__="turn", instance="{address}", job="{job}", pod="p1", region="{region}"}}"#)
        }
    };
    let failure = || format!("{:?}\n{}", receiver.accepted(), agent.log());
    let arrives = |series: &str, more: usize| {
        let before = values(&receiver, series).len();
        eventually(WAIT, failure, || (values(&receiver, series).len() >= before + more).then_some(()));
    };
    let turn_of_first = series("turn", "first", &first.address, "eu");
    arrives(&turn_of_first, 2);

    fs::write(dir.path().join("prometheus.yml"), "scrape_configs:\n- job_name: a\n  scrape_intervall: 1s\n")
        .expect("written");
    agent.signal("HUP");
    agent.log_line("prometheus.yml: line 3, column 3: unknown key");
    arrives(&turn_of_first, 2);
    assert_eq!(json_of(&agent, "/readyz")["scraping"]["jobs"], 1);

    // Other external labels end the series so far, those about scrapes included.
    let jobs = [("first", &*first.address), ("second", &*second.address)];
    scrape_config(dir.path(), "us", &jobs);
    agent.signal("HUP");
    agent.log_line("the scrape configuration was reloaded");
    arrives(&series("turn", "first", &first.address, "us"), 2);
    arrives(&series("turn", "second", &second.address, "us"), 2);
    for name in ["turn", "up"] {
        let series = series(name, "first", &first.address, "eu");
        let is_stale = || values(&receiver, &series).last()?.is_nan().then_some(());
        eventually(WAIT, || format!("{series}: {}", failure()), is_stale);
    }
    assert_eq!(json_of(&agent, "/readyz")["scraping"]["jobs"], 2);
    assert!(agent.terminate().success());

    fs::write(dir.path().join("prometheus.yml"), "scrape_configs:\n- job_name: a\n  static_config: []\n")
        .expect("written");
    let args = ["agent", "--config", &agent_file, "--scrape-config", &scrape_file];
    let start = Start { args: &args, dir: &dir.path().join("queue"), env: &[] };
    let refused = command(&start).output().expect("it runs");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("prometheus.yml: line 3, column 3"), "{text}");
}

#[test]
fn samples_scraped_before_kills_of_the_agent_arrive_once_a_server_that_was_down_is_back() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let down = LyingTarget::start(move |_| match is_up.load(Ordering::SeqCst) {
        true => Lie::Accept,
        false => Lie::Status(503),
    });
    let open = LyingTarget::start(|_| Lie::Accept);
    let agent_file = agent_config(dir.path(), &json!([]), &[lying("down", &down), lying("open", &open)]);
    let counter = Counter::start("");
    let scrape_file = scrape_config(dir.path(), "eu", &[("node", &counter.address)]);
    let series =
        format!(r#"{{__name__="turn", instance="{}", job="node", pod="p1", region="eu"}}"#, counter.address);
    const KILLS: usize = 3;
    for _ in 0..KILLS {
        let agent = start(dir.path(), &agent_file, &scrape_file, &[]);
        let before = values(&open, &series).len();
        let failure = || format!("{:?}\n{}", open.accepted(), agent.log());
        eventually(WAIT, failure, || (values(&open, &series).len() >= before + 5).then_some(()));
        agent.kill();
    }
    assert!(down.accepted().is_empty(), "it was down");
    let agent = start(dir.path(), &agent_file, &scrape_file, &[]);
    let seen = values(&open, &series);
    up.store(true, Ordering::SeqCst);
    let failure = || format!("{seen:?}\n{:?}\n{}", values(&down, &series), agent.log());
    let arrived = || {
        let found = values(&down, &series);
        seen.iter().all(|value| found.contains(value)).then_some(found)
    };
    let found = eventually(WAIT, failure, arrived);
    let last = found.iter().copied().fold(0.0, f64::max);
    assert!(found.is_sorted(), "{found:?}");
    // A kill can lose the response that is not in the log yet, and no other.
    let missing = last - f64::from(u32::try_from(found.len()).expect("few"));
    assert!(missing <= KILLS as f64, "{found:?}");
    let metrics = agent.get("/metrics", &[]).body;
    assert!(
        !metrics
            .lines()
            .any(|line| line.starts_with("promlet_forward_lost_records_total") && !line.ends_with(" 0")),
        "{metrics}"
    );
    assert!(agent.terminate().success());
}

#[test]
fn a_full_head_refuses_new_series_of_a_target_and_delays_no_scrape() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    // The address is in use and does not listen, so each connection is refused.
    let reserved =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let down = json!({ "name": "down", "url": format!("http://{reserved}/api/v1/write") });
    let agent_file = agent_config(dir.path(), &json!([]), &[down]);
    let turns = AtomicUsize::new(0);
    let value = "v".repeat(2_000);
    let flood = target(move |stream| {
        let turn = turns.fetch_add(1, Ordering::SeqCst);
        let lines: String = (0..4_000).map(|n| format!("flood{{a=\"{turn}-{n}-{value}\"}} 1\n")).collect();
        respond(stream, "", lines.as_bytes());
    });
    let counter = Counter::start("");
    let scrape_file = scrape_config(dir.path(), "eu", &[("flood", &flood), ("node", &counter.address)]);
    let agent = start(dir.path(), &agent_file, &scrape_file, &["--head-memory-bytes", "67108864"]);
    let target_of = |pool: &str| {
        json_of(&agent, &format!("/api/v1/targets?scrapePool={pool}"))["data"]["activeTargets"][0].clone()
    };
    let failure = || format!("{}\n{}", target_of("flood"), agent.log());
    let refused = || target_of("flood")["lastError"].as_str()?.contains("not stored").then_some(());
    eventually(WAIT, failure, refused);
    let counted = || {
        let metrics = agent.get("/metrics", &[]).body;
        let line = metrics.lines().find(|line| line.starts_with("promlet_scrape_refused_samples_total "));
        line.is_some_and(|line| !line.ends_with(" 0")).then_some(())
    };
    eventually(WAIT, failure, counted);
    let before = target_of("node")["lastScrape"].clone();
    eventually(WAIT, failure, || (target_of("node")["lastScrape"] != before).then_some(()));
    assert_eq!(target_of("node")["lastError"], "", "series that exist are stored");
    assert!(json_of(&agent, "/readyz")["scraping"]["refused_samples"].as_u64() > Some(0));
    assert!(agent.terminate().success());
}

#[test]
fn the_targets_of_an_agent_are_shown_as_its_writes_are_admitted_and_its_own_address_is_not_scraped() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let receiver = LyingTarget::start(|_| Lie::Accept);
    let agent_file = agent_config(dir.path(), &json!([]), &[lying("a", &receiver)]);
    let address =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let scrape_file = scrape_config(dir.path(), "eu", &[("itself", &address.to_string())]);
    let listen = SocketAddr::to_string(&address);
    let args = ["agent", "--config", &agent_file, "--scrape-config", &scrape_file, "--listen", &listen];
    let env = [("PROMLET_AGENT_TOKEN", "a long enough token")];
    let agent = Server::start_at(&Start { args: &args, dir: &dir.path().join("queue"), env: &env });
    let get =
        |headers: &[(&str, &str)]| request("GET", &format!("{}/api/v1/targets", agent.url), headers, None);
    assert_eq!(get(&[]).status, 401);
    assert_eq!(get(&[("Authorization", "Bearer another")]).status, 401);
    let bearer = [("Authorization", "Bearer a long enough token")];
    let is_down = || (get(&bearer).json()["data"]["activeTargets"][0]["health"] == "down").then_some(());
    eventually(WAIT, || get(&bearer).body, is_down);
    let refused = get(&bearer).body;
    assert!(refused.contains("this server"), "{refused}");
    assert!(agent.terminate().success());

    // Without a file there are no targets.
    let args = ["agent", "--config", &agent_file];
    let agent = Server::start(&Start { args: &args, dir: &dir.path().join("queue"), env: &[] });
    assert_eq!(json_of(&agent, "/api/v1/targets")["data"]["activeTargets"], json!([]));
    assert!(json_of(&agent, "/readyz").get("scraping").is_none());
    assert_eq!(agent.get("/api/v1/targets", &[("Origin", "https://evil.example")]).status, 401);
    assert!(agent.terminate().success());
}
