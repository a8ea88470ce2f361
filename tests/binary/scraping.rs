//! Scraping by the built binary: a file, its reload, hostile targets, and targets that disappear
//! while the server is stopped (docs/specification.md C15).

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;

use crate::admin_cli::run_ok;
use crate::harness::{EMAIL, ORG, Server, Start, bootstrap, eventually, request};

const WAIT: Duration = Duration::from_secs(60);

/// Starts a target. `answer` gets each connection after the head of its request was read.
pub(crate) fn target(answer: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                    head.push(byte[0]);
                }
                answer(&mut stream);
            });
        }
    });
    address
}

/// Sends a whole response.
pub(crate) fn respond(stream: &mut TcpStream, headers: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n{headers}Connection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

fn metrics(body: &'static str) -> String {
    target(move |stream| respond(stream, "", body.as_bytes()))
}

fn start(dir: &Path, config: &Path) -> Server {
    let mut env = bootstrap().to_vec();
    env.push(("PROMLET_SCRAPE_CONFIG", config.to_str().expect("plain")));
    Server::start(&Start { args: &["serve"], dir, env: &env })
}

fn run(args: &[&str]) -> Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_promlet"));
    command.env_clear().args(args).output().expect("it runs")
}

fn targets(server: &Server, cookie: &str) -> Vec<Json> {
    let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/targets");
    let answer = server.get(&path, &[("Cookie", cookie)]);
    answer.json()["data"]["activeTargets"].as_array().expect("targets").clone()
}

/// Waits until an expression has a result, and returns its first value.
fn value(server: &Server, cookie: &str, expr: &str) -> String {
    let ask = || {
        let now = promlet::clock::Clock::System.now().as_s();
        let data = server.ask(cookie, expr, &now.to_string());
        data["result"][0]["value"][1].as_str().map(str::to_owned)
    };
    eventually(WAIT, || format!("{expr} has no result\n{}", server.log()), ask)
}

fn job(name: &str, address: &str) -> String {
    format!(
        "- job_name: {name}\n  scrape_interval: 1s\n  scrape_timeout: 500ms\n  static_configs: [{{targets: ['{address}']}}]\n"
    )
}

#[test]
fn a_file_is_scraped_and_reloaded_and_a_wrong_one_changes_nothing() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let config = dir.path().join("prometheus.yml");
    let address = metrics("# TYPE queue gauge\n# HELP queue Waiting jobs.\nqueue{zone=\"eu\"} 7\n");
    fs::write(&config, format!("rule_files: [a.yml]\nscrape_configs:\n{}", job("first", &address)))
        .expect("written");
    let store = dir.path().join("store");
    let server = start(&store, &config);
    let cookie = server.sign_in();
    assert_eq!(value(&server, &cookie, "queue{job=\"first\", zone=\"eu\"}"), "7");
    assert_eq!(value(&server, &cookie, "up{job=\"first\"}"), "1");
    assert_eq!(value(&server, &cookie, "scrape_samples_scraped"), "1");
    assert!(server.log().contains("rule_files: this key has no effect here"), "{}", server.log());
    assert_eq!(targets(&server, &cookie)[0]["health"], "up");
    let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/targets/metadata");
    let metadata = server.get(&path, &[("Cookie", &cookie)]);
    assert!(metadata.body.contains("Waiting jobs."), "{}", metadata.body);
    let own = server.get("/metrics", &[]).body;
    assert!(own.contains("promlet_scrape_targets{org=\"acme\",health=\"up\"} 1"), "{own}");

    fs::write(&config, "scrape_configs:\n- job_name: first\n  scrape_intervall: 1s\n").expect("written");
    server.signal("HUP");
    server.log_line("prometheus.yml: line 3, column 3: unknown key");
    assert_eq!(targets(&server, &cookie).len(), 1, "the old configuration stays");
    let reload = server.post_json("/api/v1/admin/scrape/reload", &[("Cookie", &cookie)], &Json::Null);
    assert_eq!((reload.status, reload.code().as_str()), (422, "validation_failed"), "{}", reload.body);

    fs::write(&config, format!("scrape_configs:\n{}", job("second", &address))).expect("written");
    let reload = server.post_json("/api/v1/admin/scrape/reload", &[("Cookie", &cookie)], &Json::Null);
    assert_eq!((reload.status, &reload.json()["jobs"]), (200, &Json::from(1)), "{}", reload.body);
    assert_eq!(value(&server, &cookie, "up{job=\"second\"}"), "1");
    // The series of the job before have ended.
    assert_eq!(value(&server, &cookie, "absent(queue{job=\"first\"})"), "1");
    assert!(server.terminate().success());

    // A target that is removed while the server is stopped ends, too.
    fs::write(&config, "scrape_configs: []\n").expect("written");
    let server = start(&store, &config);
    let cookie = server.sign_in();
    assert_eq!(value(&server, &cookie, "absent(queue{job=\"second\"})"), "1");
    assert!(server.terminate().success());
}

#[test]
fn metadata_that_targets_disagree_about_has_each_variant_and_the_configuration_is_shown() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let config = dir.path().join("prometheus.yml");
    let gauge = metrics("# TYPE queue gauge\n# HELP queue Waiting jobs.\nqueue 7\n");
    let counter = metrics("# TYPE queue counter\n# HELP queue Jobs so far.\nqueue 8\n");
    let jobs = [job("gauge", &gauge), job("same", &gauge), job("counter", &counter)].concat();
    fs::write(&config, format!("scrape_configs:\n{jobs}  basic_auth: {{username: u, password: sesame}}\n"))
        .expect("written");
    let server = start(&dir.path().join("store"), &config);
    let cookie = server.sign_in();
    let get = |path: &str, caller: &str| {
        let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/{path}");
        server.get(&path, &[("Cookie", caller)]).json()["data"].clone()
    };
    let variants = || {
        let mut found: Vec<String> = get("metadata?metric=queue", &cookie)["queue"]
            .as_array()?
            .iter()
            .map(|one| format!("{} {}", one["type"], one["help"]))
            .collect();
        found.sort();
        (found.len() == 2).then_some(found)
    };
    let found = eventually(WAIT, || get("metadata", &cookie).to_string(), variants);
    assert_eq!(found, [r#""counter" "Jobs so far.""#, r#""gauge" "Waiting jobs.""#]);
    let one = get("metadata?metric=queue&limit_per_metric=1", &cookie);
    assert_eq!(one["queue"].as_array().map(Vec::len), Some(1));
    let shown = get("status/config", &cookie)["yaml"].as_str().expect("a text").to_owned();
    assert!(shown.contains("password: <secret>") && shown.contains(&counter), "{shown}");
    assert!(!shown.contains("sesame"), "{shown}");
    assert!(server.terminate().success());
}

#[test]
fn targets_that_are_scraped_at_the_same_time_have_their_own_results() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let config = dir.path().join("prometheus.yml");
    let at = promlet::clock::Clock::System.now().as_ms();
    // Both send the same series with the same time. The value that comes second is refused in each
    // scrape, by labels and later by keys.
    let shared = |own: u32| {
        let body = format!("shared{{job=\"x\", instance=\"x\"}} {own} {at}\nown {own}\n");
        target(move |stream| respond(stream, "", body.as_bytes()))
    };
    let jobs: String = (1..=2)
        .map(|own| job(&format!("job-{own}"), &shared(own)) + "  honor_labels: true\n")
        .chain((3..=12).map(|own| job(&format!("job-{own}"), &metrics("own 3\n"))))
        .collect();
    fs::write(&config, format!("scrape_configs:\n{jobs}")).expect("written");
    let server = start(&dir.path().join("store"), &config);
    let cookie = server.sign_in();
    value(&server, &cookie, "count(count_over_time(own[1m]) >= 4) == 12");
    let refused = || {
        let own = server.get("/metrics", &[]).body;
        let counts = own.lines().filter(|line| line.starts_with("promlet_scrape_refused_samples_total{"));
        let counts: Vec<f64> = counts.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        (counts.iter().sum::<f64>() >= 3.0).then_some(counts)
    };
    eventually(WAIT, || server.get("/metrics", &[]).body, refused);
    let reports = targets(&server, &cookie);
    let errors: Vec<&str> = reports.iter().filter_map(|report| report["lastError"].as_str()).collect();
    let named: Vec<&&str> = errors.iter().filter(|error| !error.is_empty()).collect();
    assert_eq!((errors.len(), named.len()), (12, 1), "{errors:?}");
    assert!(named[0].contains("\"shared\"") && named[0].contains("the series has"), "{named:?}");
    assert!(reports.iter().all(|report| report["health"] == "up"), "{reports:?}");
    assert!(server.terminate().success());
}

#[test]
fn a_server_stores_its_own_metrics_only_where_the_setting_allows_it() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let serve = |mode: &[(&str, &str)]| {
        let env = [&bootstrap()[..], mode].concat();
        Server::start(&Start { args: &["serve"], dir: dir.path(), env: &env })
    };
    let auto = [("PROMLET_SELF_SCRAPE", "auto")];
    let own = |server: &Server, cookie: &str| {
        targets(server, cookie).into_iter().find(|target| target["scrapePool"] == "promlet")
    };
    let limit = |server: &Server, cookie: &str, max_series: Json| {
        let change = serde_json::json!({ "settings": { "max_series": max_series } });
        let path = format!("/api/v1/orgs/{ORG}");
        let headers = [("Cookie", cookie), ("Content-Type", "application/json")];
        let url = format!("{}{path}", server.url);
        let answer = request("PATCH", &url, &headers, Some(change.to_string().as_bytes()));
        assert_eq!(answer.status, 200, "{}", answer.body);
    };

    let server = serve(&[("PROMLET_SELF_SCRAPE", "off")]);
    let cookie = server.sign_in();
    limit(&server, &cookie, Json::from(100_000));
    assert_eq!(own(&server, &cookie), None);
    assert!(server.terminate().success());

    // They would count against the limit.
    let server = serve(&auto);
    server.log_line("are not stored: the organisation has a limit of series, memory or disk");
    let cookie = server.sign_in();
    let names = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/label/__name__/values");
    assert_eq!(server.get(&names, &[("Cookie", &cookie)]).json()["data"], serde_json::json!([]));
    limit(&server, &cookie, Json::Null);
    assert_eq!(value(&server, &cookie, "up{job=\"promlet\"}"), "1");
    for expr in ["count({job=\"host\"})", "count({__name__=~\"promlet_.+\"})"] {
        let found: f64 = value(&server, &cookie, expr).parse().expect("a number");
        assert!(found > 10.0, "{expr}: {found}");
    }
    let target = eventually(WAIT, || server.log(), || own(&server, &cookie));
    assert_eq!((&target["health"], &target["scrapeInterval"]), (&Json::from("up"), &Json::from("15s")));
    assert!(target["scrapeUrl"].as_str().is_some_and(|url| url.ends_with("/metrics")), "{target}");
    // A page that waits for samples of senders is not misled.
    let usage = server.get(&format!("/api/v1/orgs/{ORG}"), &[("Cookie", &cookie)]).json()["usage"].clone();
    assert!(usage["samples"].as_u64() > Some(50) && usage["samples_today"] == 0, "{usage}");
    // They describe the server, so they are not for others.
    let admin = |args: &[&str]| run_ok(dir.path(), args, "");
    admin(&["user", "create", "bo@example.com", "--no-password", "--admin"]);
    admin(&["user", "admin", EMAIL, "--withdraw"]);
    server.log_line("are not stored: no administrator of the server is a member of the organisation");
    admin(&["user", "admin", EMAIL]);
    eventually(WAIT, || server.log(), || own(&server, &cookie));
    let other = serde_json::json!({ "slug": "other" });
    assert_eq!(server.post_json("/api/v1/orgs", &[("Cookie", &cookie)], &other).status, 201);
    server.log_line("are not stored: there are several organisations, and --scrape-org names none");
    eventually(WAIT, || server.log(), || own(&server, &cookie).is_none().then_some(()));
    assert!(server.terminate().success());

    for more in [("PROMLET_SCRAPE_ORG", ORG), ("PROMLET_SELF_SCRAPE", "on")] {
        let server = serve(&[auto[0], more]);
        server.log_line("storing the metrics of this server");
        assert!(server.terminate().success());
    }
}

#[test]
fn hostile_targets_fail_alone() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let config = dir.path().join("prometheus.yml");
    let bomb = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        let line = vec![b'#'; 1 << 20];
        (0..100).try_for_each(|_| encoder.write_all(&line)).expect("in memory");
        encoder.finish().expect("in memory")
    };
    let hostile = [
        (
            "slow",
            target(|stream| {
                for byte in b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nqueue 1\n" {
                    let _ = stream.write_all(&[*byte]);
                    std::thread::sleep(Duration::from_millis(200));
                }
            }),
        ),
        (
            "endless",
            target(|stream| {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n");
                while stream.write_all(b"queue 1\n").is_ok() {}
            }),
        ),
        (
            "truncated",
            target(|stream| {
                let _ = stream.write_all(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nqueue 1\n",
                );
            }),
        ),
        ("oversized", target(|stream| respond(stream, "", &vec![b'#'; 65 << 20]))),
        ("bomb", target(move |stream| respond(stream, "Content-Encoding: gzip\r\n", &bomb))),
        ("silent", target(|_| std::thread::sleep(Duration::from_secs(600)))),
        ("closed", target(|_| ())),
        ("invalid", metrics("queue 1\nqueue{ 2\n")),
    ];
    let good = metrics("queue 5\n");
    let jobs: String = hostile.iter().map(|(name, address)| job(name, address)).collect();
    fs::write(&config, format!("scrape_configs:\n{jobs}{}", job("good", &good))).expect("written");
    let server = start(&dir.path().join("store"), &config);
    let cookie = server.sign_in();
    for (name, _) in &hostile {
        assert_eq!(value(&server, &cookie, &format!("up{{job=\"{name}\"}}")), "0", "{name}");
    }
    let on_time = "count_over_time(up{job=\"good\"}[10s]) >= 8 and min_over_time(up{job=\"good\"}[10s]) == 1";
    value(&server, &cookie, on_time);
    assert_eq!(
        value(&server, &cookie, "absent(queue{job!=\"good\"})"),
        "1",
        "nothing of a failed scrape is stored"
    );
    for report in targets(&server, &cookie) {
        let is_good = report["scrapePool"] == "good";
        assert_eq!(report["health"] == "up", is_good, "{report}");
        assert_eq!(report["lastError"] == "", is_good, "{report}");
    }
    assert!(server.status_bytes("VmHWM") < 1 << 30, "the memory is bounded");
    assert!(server.terminate().success());
}

#[test]
fn a_configuration_is_checked_by_the_command_line() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("plain").to_owned();
    fs::write(path("hosts.json"), r#"[{"targets": ["a:1", "b:1"], "labels": {"zone": "eu"}}]"#)
        .expect("written");
    let good = "scrape_configs:\n- job_name: web\n  bearer_token: sesame\n  file_sd_configs: [{files: [hosts.json]}]\n  \
                relabel_configs: [{source_labels: [__address__], regex: 'b.*', action: drop}]\n";
    fs::write(path("good.yml"), good).expect("written");
    let checked = run(&["scrape", "check", &path("good.yml")]);
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{checked:?}");
    assert!(text.contains("job \"web\": active 1, dropped 1"), "{text}");
    assert!(text.contains("http://a:1/metrics {instance=\"a:1\", job=\"web\", zone=\"eu\"}"), "{text}");
    assert!(!text.contains("sesame"), "{text}");
    let json: Json =
        serde_json::from_slice(&run(&["scrape", "check", "--json", &path("good.yml")]).stdout).expect("JSON");
    assert_eq!(json["jobs"][0]["targets"][0]["url"], "http://a:1/metrics");
    fs::write(path("bad.yml"), good.replace("regex:", "regexp:")).expect("written");
    let refused = run(&["scrape", "check", &path("bad.yml")]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(text.contains("bad.yml: line 5") && text.contains("did you mean \"regex\"?"), "{text}");
    let store = path("store");
    let refused =
        run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &store, "--scrape-config", &path("bad.yml")]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("bad.yml: line 5"), "{text}");
}
