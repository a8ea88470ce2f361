//! The effect of a noisy organisation on its neighbour: `cargo bench --bench neighbour [-- SERIES
//! [SECONDS]]`.
//!
//! Starts the built server with two organisations. `acme` has a million series (or SERIES) and
//! abuses the server in one way after another, for six seconds (or SECONDS) each. Meanwhile `quiet`
//! loads the panels of a dashboard and writes samples, and `/healthz` is requested over new
//! connections. Each row shows the 99th percentiles of `quiet`, the slowest `/healthz`, and the
//! memory of the process so far. The first row is an idle server.
//!
//! Checks: no request of `quiet` fails; both percentiles stay within three times those of the idle
//! server, or within 1.5 times those next to another program that keeps every processor busy;
//! `/healthz` responds within 100 ms; and memory stays within the documented budgets. The exit
//! status is 1 if a check fails. One row is a control: the process is stopped repeatedly, which the
//! checks must detect. The last row shows all abuses at once, before the memory is checked; its
//! percentiles are printed but not checked.

#![expect(clippy::panic, reason = "a bench that cannot continue panics with the reason")]
#![expect(clippy::cast_possible_truncation, reason = "figures to print, and places within short lists")]

#[path = "../tests/binary/harness.rs"]
#[expect(dead_code, reason = "the tests of the binary use the rest")]
mod harness;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use harness::{Server, Start, bootstrap, percent, remote_write};
use promlet::clock::{Clock, Stopwatch};
use promlet::model::{Labels, Sample, Timestamp};
use serde_json::{Value, json};

const NOISY: &str = "acme";
const QUIET: &str = "quiet";
/// The number of threads that abuse the server.
const WORKERS: usize = 8;
/// The number of series in a request.
const REQUEST: usize = 5_000;
/// The factor by which percentiles may grow, and the time within which `/healthz` must respond.
const FACTOR: f64 = 3.0;
const HEALTH_MS: f64 = 100.0;
/// Percentiles below this are noise.
const FLOOR_MS: f64 = 1.0;
/// The factor by which percentiles may exceed those next to another program that keeps every
/// processor busy.
const BUSY_FACTOR: f64 = 1.5;
/// The budgets of the server as started here, in bytes: queries, cached results, decoded blocks,
/// request bodies.
const QUERY_MEMORY: u64 = 256 << 20;
const BUDGETS: u64 = QUERY_MEMORY + (64 << 20) + (32 << 20) + (256 << 20);
/// A pattern that takes milliseconds for each of the long values.
const SLOW: &str = "(?:.*[ab].{40}c.{40}d.*)+[e-z]";

/// The state that all threads share.
struct BenchSite {
    server: Server,
    cookie: String,
    noisy: (String, String),
    quiet: String,
    token: String,
    known: Vec<Vec<u8>>,
    nameless: Vec<u8>,
    old: Vec<u8>,
    next: AtomicU64,
}

fn agent(timeout: Duration) -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0);
    config.timeout_global(Some(timeout)).build().into()
}

/// Sends a request and reads the whole response. Returns the status, or 0 without a response.
fn send(agent: &ureq::Agent, method: &str, url: &str, headers: &[(&str, &str)], body: &[u8]) -> u16 {
    let mut builder = ureq::http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let sent = match method {
        "GET" => agent.run(builder.body(()).expect("a request")),
        _ => agent.run(builder.body(body).expect("a request")),
    };
    let Ok(mut response) = sent else { return 0 };
    let status = response.status().as_u16();
    let mut piece = [0; 65_536];
    let mut reader = response.body_mut().as_reader();
    while reader.read(&mut piece).is_ok_and(|read| read > 0) {}
    status
}

impl BenchSite {
    fn org(&self, slug: &str, path: &str) -> String {
        format!("{}/api/v1/orgs/{slug}/{path}", self.server.url)
    }

    fn ask(&self, agent: &ureq::Agent, path: &str) -> u16 {
        let bearer = format!("Bearer {}", self.noisy.1);
        send(agent, "GET", &self.org(NOISY, path), &[("Authorization", &bearer)], &[])
    }

    fn query(&self, agent: &ureq::Agent, expr: &str, more: &str) -> u16 {
        self.ask(agent, &format!("prometheus/api/v1/query?nocache=1&query={}{more}", percent(expr)))
    }

    fn write(&self, agent: &ureq::Agent, slug: &str, secret: &str, body: &[u8]) -> u16 {
        let bearer = format!("Bearer {secret}");
        let headers = [
            ("Authorization", &*bearer),
            ("Content-Type", "application/x-protobuf"),
            ("Content-Encoding", "snappy"),
            ("X-Prometheus-Remote-Write-Version", "0.1.0"),
        ];
        send(agent, "POST", &self.org(slug, "write"), &headers, body)
    }

    fn import(&self, agent: &ureq::Agent, content_type: &str, text: &str) -> u16 {
        let bearer = format!("Bearer {}", self.noisy.1);
        let headers = [("Authorization", &*bearer), ("Content-Type", content_type)];
        send(agent, "POST", &self.org(NOISY, "import"), &headers, text.as_bytes())
    }

    fn post(&self, agent: &ureq::Agent, path: &str, who: (&str, &str), body: &Value) -> u16 {
        let headers = [("Content-Type", "application/json"), who];
        let url = format!("{}{path}", self.server.url);
        send(agent, "POST", &url, &headers, body.to_string().as_bytes())
    }

    /// Opens a connection and sends the head of a request.
    fn begin(&self, head: &str) -> Option<TcpStream> {
        let mut stream = TcpStream::connect(self.server.url.strip_prefix("http://")?).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.set_write_timeout(Some(Duration::from_secs(5))).ok()?;
        let bearer = &self.noisy.1;
        write!(stream, "{head}\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {bearer}\r\n").ok()?;
        Some(stream)
    }

    /// Returns the memory of the samples and names of all organisations, as the server counts it.
    fn stored_bytes(&self) -> u64 {
        let body = self.server.get("/metrics", &[]).body;
        let lines = body.lines().filter(|line| line.starts_with("promlet_org_memory_bytes{"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
    }
}

/// Returns the status of the response on a connection, or 0 without one.
fn status_on(stream: &mut TcpStream) -> u16 {
    let mut head = [0; 12];
    if stream.read_exact(&mut head).is_err() {
        return 0;
    }
    let text = std::str::from_utf8(&head).unwrap_or_default();
    text.strip_prefix("HTTP/1.1 ").and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn noisy_labels(i: usize) -> Labels {
    Labels::from_pairs([
        ("__name__", format!("m_{}", i % 1_000)),
        ("instance", format!("10.{}.{}.{}:9100", i / 65_536, i / 256 % 256, i % 256)),
        ("job", format!("job-{}", i % 10)),
    ])
}

fn one(at: Timestamp) -> Vec<Sample> {
    vec![Sample { at, value: 1.0 }]
}

fn prepare(server: Server, series: usize) -> BenchSite {
    let cookie = server.sign_in();
    let headers = [("Cookie", &*cookie)];
    let made = server.post_json("/api/v1/orgs", &headers, &json!({ "slug": QUIET }));
    assert_eq!(made.status, 201, "{}", made.body);
    let key = |slug: &str| {
        let body = json!({ "name": "bench", "scopes": ["ingest", "read", "embed"], "embed": { "rate_limit_rps": 10_000 },
            "ingest": { "rate_limit_rps": 10_000, "samples_per_s": 100_000_000 } });
        let made = server.post_json(&format!("/api/v1/orgs/{slug}/api-keys"), &headers, &body);
        assert_eq!(made.status, 201, "{}", made.body);
        let made = made.json();
        let text = |name: &str| made[name].as_str().expect("a text").to_owned();
        (text("id"), text("secret"))
    };
    let (noisy, (_, quiet)) = (key(NOISY), key(QUIET));
    let matchers: Vec<String> = (0..4).map(|n| format!("instance!~\".*[ab].{{30}}{n}\"")).collect();
    let body = json!({ "api_key_id": noisy.0, "ms": { "match": matchers } });
    let minted = server.post_json(&format!("/api/v1/orgs/{NOISY}/embed/tokens"), &headers, &body);
    assert_eq!(minted.status, 201, "{}", minted.body);
    let token = minted.json()["token"].as_str().expect("a token").to_owned();
    let now = Clock::System.now();
    let of = |series: &mut dyn Iterator<Item = usize>, at: Timestamp| -> Vec<u8> {
        remote_write(&series.map(|i| (noisy_labels(i), one(at))).collect::<Vec<_>>())
    };
    let nameless: Vec<_> =
        (0..REQUEST).map(|n| (Labels::from_pairs([("n", n.to_string())]), one(now))).collect();
    let site = BenchSite {
        known: (0..8).map(|n| of(&mut (n * REQUEST..(n + 1) * REQUEST), now)).collect(),
        nameless: remote_write(&nameless),
        old: of(&mut (0..REQUEST), now.plus_ms(-400 * 86_400_000)),
        next: AtomicU64::new(0),
        server,
        cookie,
        noisy,
        quiet,
        token,
    };
    let agent = agent(Duration::from_secs(60));
    for first in (0..series).step_by(REQUEST) {
        let body = of(&mut (first..(first + REQUEST).min(series)), now);
        assert_eq!(site.write(&agent, NOISY, &site.noisy.1, &body), 204, "series from {first}");
    }
    // Values on which a pattern takes long.
    let long = |n: usize| {
        let mut random = n as u64 + 1;
        let mut letter = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'a' + (random >> 62) as u8)
        };
        let text: String = (0..3_900).map(|_| letter()).collect();
        (Labels::from_pairs([("__name__", "long".to_owned()), ("p", format!("{n}{text}"))]), one(now))
    };
    for first in (0..1_000).step_by(250) {
        let series: Vec<_> = (first..first + 250).map(long).collect();
        assert_eq!(site.write(&agent, NOISY, &site.noisy.1, &remote_write(&series)), 204, "long values");
        let line = |(labels, _): &(Labels, Vec<Sample>)| {
            format!("long{{p=\"{}\"}} 1 # {{trace_id=\"a\"}} 1\n", labels.value("p"))
        };
        let text = format!("# TYPE long gauge\n{}# EOF\n", series.iter().map(line).collect::<String>());
        let imported = site.import(&agent, "application/openmetrics-text; version=1.0.0", &text);
        assert_eq!(imported, 200, "exemplars of long values");
    }
    let history = |n: usize| {
        let labels =
            [("__name__", "q_total".to_owned()), ("job", format!("j{}", n % 5)), ("n", n.to_string())];
        let samples = (0..240)
            .rev()
            .map(|step| Sample { at: now.plus_ms(-15_000 * step - 1_000), value: (240 - step) as f64 });
        (Labels::from_pairs(labels), samples.collect::<Vec<_>>())
    };
    let body = remote_write(&(0..200).map(history).collect::<Vec<_>>());
    assert_eq!(site.write(&agent, QUIET, &site.quiet, &body), 204, "the dashboard's samples");
    site
}

/// One request of an abuse, with its number. Returns the status of the response.
type AbuseRequest = fn(&BenchSite, &ureq::Agent, u64) -> u16;
/// One kind of abuse: its name, the statuses that show that it reaches its target, and one request.
type Abuse = (&'static str, &'static [u16], AbuseRequest);

const ABUSES: &[Abuse] = &[
    ("listing, slow pattern", &[200], |site, agent, _| {
        let matcher = percent(&format!("long{{p!~\"{SLOW}\"}}"));
        site.ask(agent, &format!("prometheus/api/v1/series?match[]={matcher}"))
    }),
    ("slow listing beside new series and metadata", &[200, 204], |site, agent, turn| match turn % 4 {
        0 => {
            let matcher = percent(&format!("long{{p!~\"{SLOW}\"}}"));
            site.ask(agent, &format!("prometheus/api/v1/series?match[]={matcher}"))
        }
        1 => site.import(
            agent,
            "text/plain",
            &format!("# HELP told Turn {turn}.\n# TYPE told gauge\ntold 1\n"),
        ),
        _ => {
            let labels = Labels::from_pairs([("__name__", "beside".to_owned()), ("n", turn.to_string())]);
            let body = remote_write(&[(labels, one(Clock::System.now()))]);
            site.write(agent, NOISY, &site.noisy.1, &body)
        }
    }),
    ("exemplars, slow pattern", &[200, 503], |site, agent, _| {
        let matcher = percent(&format!("long{{p!~\"{SLOW}\"}}"));
        site.ask(agent, &format!("prometheus/api/v1/query_exemplars?query={matcher}"))
    }),
    ("query beyond its deadline", &[503], |site, agent, _| {
        site.query(agent, &format!("count(long{{p!~\"{SLOW}\"}})"), "&timeout=1s")
    }),
    ("patterns of label_replace", &[200], |site, agent, turn| {
        let pattern = |n: u64| format!("{}{turn}{n}(.*)", ".*[ab].{25}".repeat(20));
        let one = |n: u64| format!("label_replace(m_1, \"x\", \"$1\", \"instance\", \"{}\")", pattern(n));
        let expr = (0..16).map(one).collect::<Vec<_>>().join(" or ");
        let bearer = format!("Bearer {}", site.noisy.1);
        let headers = [("Authorization", &*bearer), ("Content-Type", "application/x-www-form-urlencoded")];
        let body = format!("timeout=1s&query={}", percent(&expr));
        send(agent, "POST", &site.org(NOISY, "prometheus/api/v1/query"), &headers, body.as_bytes())
    }),
    ("token with patterns", &[200], |site, agent, _| {
        let bearer = format!("Bearer {}", site.token);
        let url = site.org(NOISY, "query/instant?metric=m_7");
        send(agent, "GET", &url, &[("Authorization", &bearer)], &[])
    }),
    // 6 MB on each of 32 connections exceed the 128 MiB of an organisation, so a refused request
    // shows that its share is full.
    ("slow bodies, slug respelled", &[503], |site, _, turn| {
        let slug = ["acme", "%61cme", "a%63me", "ac%6de"][(turn % 4) as usize];
        let mut streams: Vec<TcpStream> =
            (0..4).filter_map(|_| site.begin(&format!("POST /api/v1/orgs/{slug}/write HTTP/1.1"))).collect();
        for stream in &mut streams {
            let _ = stream.write_all(b"Content-Encoding: snappy\r\nContent-Length: 6000000\r\n\r\n");
        }
        let piece = vec![0; 600_000];
        for _ in 0..9 {
            for stream in &mut streams {
                let _ = stream.write_all(&piece);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        // The bodies are held for a while and then completed.
        std::thread::sleep(Duration::from_millis(500));
        let ended = streams.iter_mut().map(|stream| {
            let _ = stream.write_all(&piece);
            status_on(stream)
        });
        ended.max().unwrap_or(0)
    }),
    ("samples of known series", &[204], |site, agent, turn| {
        site.write(agent, NOISY, &site.noisy.1, &site.known[turn as usize % site.known.len()])
    }),
    ("new series", &[204], |site, agent, _| {
        let first = site.next.fetch_add(1_000, Ordering::Relaxed);
        let now = Clock::System.now();
        let new =
            |n: u64| (Labels::from_pairs([("__name__", "new".to_owned()), ("n", n.to_string())]), one(now));
        let body = remote_write(&(first..first + 1_000).map(new).collect::<Vec<_>>());
        site.write(agent, NOISY, &site.noisy.1, &body)
    }),
    ("samples that are refused", &[400], |site, agent, turn| {
        let body = if turn % 2 == 0 { &site.nameless } else { &site.old };
        site.write(agent, NOISY, &site.noisy.1, body)
    }),
    ("large answers read slowly", &[200], |site, _, _| {
        let expr = percent("{__name__=~\"m_1.*\"}");
        let head = format!("GET /api/v1/orgs/{NOISY}/prometheus/api/v1/query?query={expr} HTTP/1.1");
        let Some(mut stream) = site.begin(&head) else { return 0 };
        let _ = stream.write_all(b"\r\n");
        let status = status_on(&mut stream);
        let mut piece = [0; 1_024];
        for _ in 0..50 {
            let _ = stream.read(&mut piece);
            std::thread::sleep(Duration::from_millis(40));
        }
        status
    }),
    ("subqueries", &[200], |site, agent, _| {
        site.query(agent, "quantile_over_time(0.9, (sum by (job) (m_1))[2h:1s])", "&timeout=5s")
    }),
    ("export of everything", &[200], |site, agent, _| {
        site.query(agent, "{__name__=~\"m_.*\"}", "&timeout=5s")
    }),
    ("aggregation of everything", &[200], |site, agent, _| {
        site.query(agent, "count by (__name__) ({__name__=~\".+\"})", "&timeout=5s")
    }),
    ("groups of every series", &[200, 422], |site, agent, _| {
        site.query(agent, "topk by (instance, job, __name__) (1, {__name__=~\".+\"})", "&timeout=5s")
    }),
    ("listing of every series", &[200, 422], |site, agent, _| {
        site.ask(agent, &format!("prometheus/api/v1/series?match[]={}", percent("{__name__=~\".+\"}")))
    }),
    ("values of a label", &[200], |site, agent, _| {
        site.ask(agent, "prometheus/api/v1/label/instance/values")
    }),
    ("cardinality", &[200], |site, agent, _| site.ask(agent, "prometheus/api/v1/status/tsdb")),
    ("deletions", &[204], |site, agent, turn| {
        let matcher = percent(&format!("m_{}{{job=\"job-1\"}}", turn % 1_000));
        let url = site.org(NOISY, &format!("prometheus/api/v1/admin/tsdb/delete_series?match[]={matcher}"));
        send(agent, "POST", &url, &[("Cookie", &site.cookie)], &[])
    }),
    ("minting", &[201], |site, agent, _| {
        let bearer = format!("Bearer {}", site.noisy.1);
        let path = format!("/api/v1/orgs/{NOISY}/embed/tokens");
        site.post(agent, &path, ("Authorization", &bearer), &json!({}))
    }),
    ("logins", &[401], |site, agent, turn| {
        let email = format!("someone{}@example.com", turn % 100);
        let body = json!({ "email": email, "password": "a wrong password" });
        site.post(agent, "/api/v1/auth/login", ("X-Turn", "1"), &body)
    }),
    ("requests without a credential", &[401], |site, agent, _| {
        send(agent, "GET", &site.org(NOISY, "metrics"), &[], &[])
    }),
];

/// The measured times in milliseconds.
#[derive(Default)]
struct Measured {
    queries: Vec<f64>,
    writes: Vec<f64>,
    health: Vec<f64>,
    failed: u64,
}

fn percentile(of: &mut [f64], share: f64) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    let place = (of.len() as f64 * share).ceil() as usize;
    of.get(place.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
}

/// Repeats a request with pauses until the time is over. Returns the milliseconds of each, and the
/// number of failures.
fn repeat(time: Duration, pause: Duration, ask: &mut dyn FnMut(u64) -> bool) -> (Vec<f64>, u64) {
    let (whole, mut times, mut failed) = (Stopwatch::start(), Vec::new(), 0);
    let mut turn = 0;
    while whole.elapsed() < time {
        let watch = Stopwatch::start();
        let is_fine = ask(turn);
        times.push(watch.elapsed_ms());
        failed += u64::from(!is_fine);
        turn += 1;
        std::thread::sleep(pause);
    }
    (times, failed)
}

/// Measures the requests of the quiet organisation and the health checks.
fn measure(site: &BenchSite, time: Duration) -> Measured {
    const PANELS: [&str; 4] = [
        "sum by (job) (rate(q_total[5m]))",
        "avg(q_total)",
        "topk(5, q_total)",
        "max_over_time(q_total{job=\"j1\"}[10m])",
    ];
    let patient = || agent(Duration::from_secs(30));
    std::thread::scope(|scope| {
        let queries = scope.spawn(|| {
            let (agent, bearer) = (patient(), format!("Bearer {}", site.quiet));
            repeat(time, Duration::from_millis(15), &mut |turn| {
                let end = Clock::System.now().as_ms() / 1_000;
                let expr = percent(PANELS[turn as usize % PANELS.len()]);
                let path = format!(
                    "prometheus/api/v1/query_range?nocache=1&query={expr}&start={}&end={end}&step=15",
                    end - 3_600
                );
                send(&agent, "GET", &site.org(QUIET, &path), &[("Authorization", &bearer)], &[]) == 200
            })
        });
        let writes = scope.spawn(|| {
            let agent = patient();
            repeat(time, Duration::from_millis(20), &mut |_| {
                let now = Clock::System.now();
                let series = |n: usize| {
                    (Labels::from_pairs([("__name__", "q_gauge".to_owned()), ("n", n.to_string())]), one(now))
                };
                let body = remote_write(&(0..100).map(series).collect::<Vec<_>>());
                site.write(&agent, QUIET, &site.quiet, &body) == 204
            })
        });
        let health = scope.spawn(|| {
            let url = format!("{}/healthz", site.server.url);
            repeat(time, Duration::from_millis(20), &mut |_| {
                send(&agent(Duration::from_secs(30)), "GET", &url, &[], &[]) == 200
            })
        });
        let joined = [queries, writes, health].map(|thread| thread.join().expect("no panic"));
        let failed = joined.iter().map(|(_, failed)| failed).sum();
        let [(queries, _), (writes, _), (health, _)] = joined;
        Measured { queries, writes, health, failed }
    })
}

/// The figures of a row in milliseconds.
struct Row {
    queries_ms: f64,
    writes_ms: f64,
    health_ms: f64,
    failed: u64,
}

impl Row {
    fn of(mut measured: Measured) -> Row {
        Row {
            queries_ms: percentile(&mut measured.queries, 0.99),
            writes_ms: percentile(&mut measured.writes, 0.99),
            health_ms: percentile(&mut measured.health, 1.0),
            failed: measured.failed,
        }
    }

    /// Returns the checks that fail, because the neighbour is affected.
    fn problems(&self, idle: &Row, busy: &Row) -> Vec<String> {
        let mut problems = Vec::new();
        let allowed =
            |idle_ms: f64, busy_ms: f64| (FACTOR * idle_ms.max(FLOOR_MS)).max(BUSY_FACTOR * busy_ms);
        for (what, ms, allowed_ms) in [
            ("queries", self.queries_ms, allowed(idle.queries_ms, busy.queries_ms)),
            ("writes", self.writes_ms, allowed(idle.writes_ms, busy.writes_ms)),
        ] {
            if ms > allowed_ms {
                problems.push(what.to_owned());
            }
        }
        if self.health_ms > HEALTH_MS {
            problems.push("health".to_owned());
        }
        if self.failed > 0 {
            problems.push(format!("{} failed", self.failed));
        }
        problems
    }
}

/// Measures while abuses run, each on a thread of its own. Returns also the number of the abuser's
/// requests by status.
fn measure_with_abuses(
    site: &BenchSite,
    time: Duration,
    abuses: &[AbuseRequest],
) -> (Row, BTreeMap<u16, u64>) {
    let (over, turns, statuses) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(BTreeMap::new()));
    let (over, turns, statuses) = (&over, &turns, &statuses);
    let measured = std::thread::scope(|scope| {
        for abuse in abuses {
            scope.spawn(move || {
                // Low priority simulates another machine: the server is measured, not the abuser.
                rustix::process::setpriority_process(None, 19).expect("a lower priority is always allowed");
                let agent = agent(Duration::from_secs(10));
                while !over.load(Ordering::Relaxed) {
                    let status = abuse(site, &agent, turns.fetch_add(1, Ordering::Relaxed));
                    *statuses.lock().expect("no panic").entry(status).or_insert(0) += 1;
                }
            });
        }
        // The abuse runs before the first figure is taken.
        std::thread::sleep(Duration::from_millis(500));
        let measured = measure(site, time);
        over.store(true, Ordering::Relaxed);
        measured
    });
    (Row::of(measured), statuses.lock().expect("no panic").clone())
}

/// Measures while threads outside of the server keep every processor busy.
fn measure_with_busy_processors(site: &BenchSite, time: Duration) -> Row {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let measured = measure(site, time);
        over.store(true, Ordering::Relaxed);
        Row::of(measured)
    })
}

/// The control: the whole process is stopped for 300 ms of every 600 ms.
fn measure_stopped(site: &BenchSite, time: Duration) -> Row {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                site.server.signal("STOP");
                std::thread::sleep(Duration::from_millis(300));
                site.server.signal("CONT");
                std::thread::sleep(Duration::from_millis(300));
            }
        });
        let measured = measure(site, time);
        over.store(true, Ordering::Relaxed);
        Row::of(measured)
    })
}

fn counted(statuses: &BTreeMap<u16, u64>) -> String {
    statuses.iter().map(|(status, count)| format!("{count} × {status}")).collect::<Vec<_>>().join(", ")
}

fn main() -> ExitCode {
    let mut numbers = std::env::args().filter_map(|text| text.parse::<u64>().ok());
    let series = numbers.next().unwrap_or(1_000_000) as usize;
    let time = Duration::from_secs(numbers.next().unwrap_or(6));
    let dir = tempfile::tempdir().expect("a folder");
    let memory = QUERY_MEMORY.to_string();
    let mut env = bootstrap().to_vec();
    env.extend([
        ("PROMLET_ARGON2", "19456,2,1"),
        ("PROMLET_QUERY_MEMORY_BYTES", &*memory),
        ("PROMLET_RATE_CABINET_RPS", "10000"),
    ]);
    let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &env });
    let site = prepare(server, series);
    std::thread::sleep(Duration::from_secs(2));
    let base = site.server.status_bytes("VmRSS").saturating_sub(site.stored_bytes());
    measure(&site, Duration::from_secs(1));
    let idle = Row::of(measure(&site, time));
    println!("{series} series, {} s a row; idle first", time.as_secs());
    println!(
        "| abuse | its requests | queries p99 ms | writes p99 ms | health max ms | memory MB | checks |"
    );
    println!("|---|---|---|---|---|---|---|");
    let print_row = |name: &str, requests: &str, row: &Row, checks: &str| {
        let Row { queries_ms, writes_ms, health_ms, .. } = row;
        let mb = site.server.status_bytes("VmRSS") >> 20;
        println!(
            "| {name} | {requests} | {queries_ms:.1} | {writes_ms:.1} | {health_ms:.1} | {mb} | {checks} |"
        );
    };
    print_row("none", "", &idle, "");
    let busy = measure_with_busy_processors(&site, time);
    print_row("another program on every processor", "", &busy, "");
    let control = measure_stopped(&site, time.min(Duration::from_secs(3)));
    let found = control.problems(&idle, &busy);
    print_row("control: the process is stopped", "", &control, &found.join(", "));
    let mut failed = 0;
    if found.is_empty() {
        println!("The checks did not detect that the process was stopped, so they prove nothing.");
        failed += 1;
    }
    for (name, aims, abuse) in ABUSES {
        let (row, statuses) = measure_with_abuses(&site, time, &[*abuse; WORKERS]);
        let mut problems = row.problems(&idle, &busy);
        if !aims.iter().any(|aim| statuses.contains_key(aim)) {
            problems.push("the abuse does not reach what it aims at".to_owned());
        }
        failed += usize::from(!problems.is_empty());
        let checks = if problems.is_empty() { "passed".to_owned() } else { problems.join(", ") };
        print_row(name, &counted(&statuses), &row, &checks);
        std::thread::sleep(Duration::from_secs(1));
    }
    let all: Vec<AbuseRequest> = ABUSES.iter().map(|(.., abuse)| *abuse).collect();
    let (row, statuses) = measure_with_abuses(&site, time, &all);
    print_row("all of these at once", &counted(&statuses), &row, "memory only");
    let (peak, stored) = (site.server.status_bytes("VmHWM"), site.stored_bytes());
    // A quarter more for the overhead of the allocator.
    let allowed = base + (stored + BUDGETS) / 4 * 5;
    let mb = |bytes: u64| bytes >> 20;
    println!(
        "Memory: at most {} MB; {} MB at rest, {} MB of samples and names, {} MB of budgets: {} MB may be used.",
        mb(peak),
        mb(base),
        mb(stored),
        mb(BUDGETS),
        mb(allowed)
    );
    if peak > allowed {
        println!("The process exceeded its budgets.");
        failed += 1;
    }
    println!("{failed} checks failed.");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
