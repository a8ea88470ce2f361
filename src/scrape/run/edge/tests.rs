//! Targets on the loopback interface that answer, hang, flood and lie, and a sink in memory.

mod missed;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::clock::Stopwatch;
use crate::model::EgressRules;
use crate::scrape::run::ScrapeHealth;
use crate::scrape::run::target_run::tests::{KeyedLabels, formatted_batch, job as usual_job, target};

/// Writes the response to a request. Returns whether the connection stays open.
type Reply = dyn Fn(&str, &mut TcpStream) -> bool + Send + Sync;

struct FakeExporter {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeExporter {
    /// Starts a target. `reply` writes the response and returns whether the connection stays open.
    fn start(reply: impl Fn(&str, &mut TcpStream) -> bool + Send + Sync + 'static) -> FakeExporter {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (counted, seen, reply) = (Arc::clone(&connections), Arc::clone(&requests), Arc::new(reply));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let (seen, reply) = (Arc::clone(&seen), Arc::clone(&reply));
                std::thread::spawn(move || serve(stream, &seen, &*reply));
            }
        });
        FakeExporter { address, connections, requests }
    }

    fn text(text: &'static str) -> FakeExporter {
        FakeExporter::start(move |_, stream| respond(stream, "text/plain", "", text.as_bytes()))
    }

    /// Accepts connections and never answers.
    fn hanging() -> FakeExporter {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let connections = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&connections);
        std::thread::spawn(move || {
            let count = |_: &TcpStream| {
                counted.fetch_add(1, Ordering::SeqCst);
            };
            listener.incoming().flatten().inspect(count).collect::<Vec<_>>()
        });
        FakeExporter { address, connections, requests: Arc::default() }
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<String>>, reply: &Reply) {
    let (mut buffer, mut request) = ([0; 4_096], Vec::new());
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        request.extend_from_slice(&buffer[..read]);
        if request.ends_with(b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&request).into_owned();
            seen.lock().expect("no panic").push(text.clone());
            request.clear();
            if !reply(&text, &mut stream) {
                return;
            }
        }
    }
}

fn respond(stream: &mut TcpStream, content_type: &str, more: &str, body: &[u8]) -> bool {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n{more}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).is_ok()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// Keeps all samples as text, with the time of their commit.
#[derive(Default)]
struct MemorySink {
    lines: Mutex<Vec<String>>,
    panics: AtomicBool,
    /// Whether no thread takes work.
    is_full: AtomicBool,
    live: Vec<ScrapeLiveSeries>,
    keys: KeyedLabels,
    keyed: AtomicUsize,
}

impl ScrapeSink for MemorySink {
    fn spawn(&self, _: OrgId, work: ScrapeWork, _: Duration) -> bool {
        if self.is_full.load(Ordering::SeqCst) {
            return false;
        }
        std::thread::spawn(work);
        true
    }

    fn commit(&self, _: OrgId, batch: &WriteBatch<'_>, _: Timestamp, done: ScrapeDone) {
        assert!(!self.panics.swap(false, Ordering::SeqCst), "the panic of a test");
        let at = batch.samples.first().map_or(Timestamp::MIN, |sample| sample.at);
        self.lines.lock().expect("no panic").extend(formatted_batch(batch, at));
        done(Ok(ScrapeStored::default()));
    }

    fn series_keys(&self, _: OrgId, batch: &WriteBatch<'_>) -> Vec<LabelsKey> {
        self.keys.of(batch)
    }

    fn commit_keyed(
        &self,
        org: OrgId,
        batch: KeyedBatch<'_>,
        now: Timestamp,
        done: ScrapeDone,
    ) -> Result<(), ScrapeDone> {
        self.keyed.fetch_add(1, Ordering::SeqCst);
        self.keys.with_labels(batch, |batch| self.commit(org, batch, now, done));
        Ok(())
    }

    fn live_series(&self, _: OrgId, labels: &Labels, _: Timestamp) -> Vec<ScrapeLiveSeries> {
        let has_all = |series: &&ScrapeLiveSeries| {
            labels.iter().all(|label| series.labels.value(label.name) == label.value)
        };
        self.live.iter().filter(has_all).cloned().collect()
    }
}

struct Stage {
    _runtime: tokio::runtime::Runtime,
    sink: Arc<MemorySink>,
    fleet: ScrapeFleet,
}

impl Stage {
    fn new(sink: MemorySink) -> Stage {
        Stage::with(sink, &ByteBudget::new(1_000_000))
    }

    fn with(sink: MemorySink, bodies: &ByteBudget) -> Stage {
        Stage::with_settings(sink, bodies, Arc::default())
    }

    fn with_settings(sink: MemorySink, bodies: &ByteBudget, settings: Arc<ScrapeRunSettings>) -> Stage {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let sink = Arc::new(sink);
        let rules = EgressRules::parse(["127.0.0.0/8"]).expect("valid");
        let deps = ScrapeDeps {
            sink: Arc::clone(&sink) as Arc<dyn ScrapeSink>,
            egress: Egress::new(rules, &[]),
            runtime: runtime.handle().clone(),
            clock: Clock::System,
            settings,
            bodies: bodies.clone(),
        };
        Stage { fleet: ScrapeFleet::new(OrgId(1), deps), _runtime: runtime, sink }
    }

    fn lines(&self) -> Vec<String> {
        self.sink.lines.lock().expect("no panic").clone()
    }

    fn count(&self, prefix: &str) -> usize {
        self.lines().iter().filter(|line| line.starts_with(prefix)).count()
    }

    fn wait_for(&self, what: &str, is_done: impl Fn() -> bool) {
        let watch = Stopwatch::start();
        while !is_done() {
            assert!(watch.elapsed() < Duration::from_secs(60), "{what}: {:?}", self.lines());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn status(&self, hash: u64) -> ScrapeStatus {
        let reports = self.fleet.reports();
        let found = reports.into_iter().find(|report| report.target.hash == hash);
        found.map(|report| report.status).unwrap_or_default()
    }
}

/// Returns the plan of a target that is scraped every `interval_ms`.
/// A job whose scrapes have time enough on a busy machine.
fn job() -> ScrapeJob {
    ScrapeJob { timeout_ms: 60_000, ..usual_job() }
}

fn plan(address: SocketAddr, hash: u64, interval_ms: i64) -> ScrapePlan {
    plan_of(job(), address, hash, interval_ms)
}

fn plan_of(mut job: ScrapeJob, address: SocketAddr, hash: u64, interval_ms: i64) -> ScrapePlan {
    job.interval_ms = interval_ms;
    let mut target = ScrapeTarget::clone(&target(job, &address.to_string()));
    target.hash = hash;
    target.labels = Labels::from_pairs([("instance", hash.to_string()), ("job", "j".to_owned())]);
    ScrapePlan { target: Arc::new(target), forced_error: None }
}

#[test]
fn a_target_is_scraped_over_one_connection_with_the_headers_of_prometheus() {
    let fake = FakeExporter::start(|_, stream| {
        respond(stream, "text/plain; version=0.0.4", "content-encoding: gzip\r\n", &gzip(b"a 1\n"))
    });
    let stage = Stage::new(MemorySink::default());
    stage.fleet.apply(vec![plan(fake.address, 1, 100)]);
    stage.wait_for("three scrapes", || stage.count("a{instance=1,job=j} 1") >= 3);
    assert_eq!(fake.connections.load(Ordering::SeqCst), 1);
    let request = fake.requests.lock().expect("no panic")[0].clone();
    for header in [
        "GET /metrics HTTP/1.1\r\n",
        "accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,",
        "accept-encoding: gzip\r\n",
        "x-prometheus-scrape-timeout-seconds: 60\r\n",
        "user-agent: promlet/",
    ] {
        assert!(request.contains(header), "{header}: {request}");
    }
    assert!(stage.count("up{instance=1,job=j} 1") >= 3);
    let status = stage.status(1);
    assert_eq!((status.health, status.samples_scraped), (ScrapeHealth::Up, 1));
}

/// A [`Reply`] without captured values.
type Respond = fn(&str, &mut TcpStream) -> bool;

/// Returns the responses of hostile targets: a name, the response, and a part of the error.
fn hostile_responses() -> [(&'static str, Respond, &'static str); 13] {
    [
        (
            "error",
            |_, stream| stream.write_all(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n").is_ok(),
            "status 503",
        ),
        (
            "endless",
            |_, stream| {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n");
                while stream.write_all(b"# endless\n").is_ok() {}
                false
            },
            "more than 10000 bytes (body_size_limit)",
        ),
        (
            "declared",
            |_, stream| stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n").is_ok(),
            "more than 10000 bytes (body_size_limit)",
        ),
        (
            "truncated",
            |_, stream| {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\na 1\n");
                false
            },
            "the body ended early",
        ),
        (
            "bomb",
            |_, stream| {
                respond(stream, "text/plain", "content-encoding: gzip\r\n", &gzip(&vec![b'\n'; 1 << 20]))
            },
            "more than 10000 bytes (body_size_limit)",
        ),
        (
            "no gzip",
            |_, stream| respond(stream, "text/plain", "content-encoding: gzip\r\n", b"a 1\n"),
            "not valid gzip",
        ),
        (
            "other encoding",
            |_, stream| respond(stream, "text/plain", "content-encoding: br\r\n", b"x"),
            "\"br\"",
        ),
        ("invalid line", |_, stream| respond(stream, "text/plain", "", b"a 1\nb ?\n"), "line 2: column 3"),
        ("no type", |_, stream| respond(stream, "text/html", "", b"a 1\n"), "fallback_scrape_protocol"),
        (
            "redirect loop",
            |_, stream| {
                stream
                    .write_all(b"HTTP/1.1 302 Found\r\nlocation: /metrics\r\ncontent-length: 0\r\n\r\n")
                    .is_ok()
            },
            "more than 10 redirects",
        ),
        (
            "redirect away",
            |_, stream| {
                let location =
                    b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(location).is_ok()
            },
            "a redirect to 169.254.169.254; redirects are followed within",
        ),
        (
            "garbage",
            |_, stream| {
                let _ = stream.write_all(b"SSH-2.0-x\r\n\r\n\r\n");
                false
            },
            "the target",
        ),
        ("slow", |_, _| true, "did not answer within 200 ms"),
    ]
}

#[test]
fn hostile_targets_fail_their_own_scrapes_with_a_reason() {
    let cases = hostile_responses();
    let stage = Stage::new(MemorySink::default());
    let mut limited = job();
    limited.limits.body_size_limit = 10_000;
    let fakes: Vec<FakeExporter> = cases.iter().map(|(_, reply, _)| FakeExporter::start(*reply)).collect();
    let plans = fakes.iter().zip(&cases).zip(1_u64..).map(|((fake, (name, ..)), hash)| {
        let timeout_ms = if *name == "slow" { 200 } else { limited.timeout_ms };
        plan_of(ScrapeJob { timeout_ms, ..limited.clone() }, fake.address, hash, 200)
    });
    stage.fleet.apply(plans.collect());
    for ((name, _, expected), hash) in cases.iter().zip(1_u64..) {
        stage.wait_for(name, || stage.status(hash).failures >= 2);
        let status = stage.status(hash);
        let error = status.last_error.unwrap_or_default();
        assert!(error.contains(expected), "{name}: {error}");
        assert_eq!(status.health, ScrapeHealth::Down, "{name}");
        assert!(stage.count(&format!("up{{instance={hash},job=j}} 0")) >= 2, "{name}");
    }
}

#[test]
fn redirects_within_a_target_are_followed_unless_it_is_configured_otherwise() {
    let fake = FakeExporter::start(|request, stream| match request.starts_with("GET /metrics ") {
        true => stream
            .write_all(b"HTTP/1.1 301 Moved\r\nlocation: /real?x=1\r\ncontent-length: 0\r\n\r\n")
            .is_ok(),
        false => {
            assert!(request.starts_with("GET /real?x=1 "), "{request}");
            respond(stream, "text/plain", "", b"a 1\n")
        }
    });
    let stage = Stage::new(MemorySink::default());
    let mut strict = job();
    strict.client.follow_redirects = false;
    stage.fleet.apply(vec![plan(fake.address, 1, 100), plan_of(strict, fake.address, 2, 100)]);
    stage.wait_for("followed", || stage.count("a{instance=1,job=j} 1") >= 1);
    stage.wait_for("refused", || stage.status(2).failures >= 1);
    let error = stage.status(2).last_error.unwrap_or_default();
    assert!(error.contains("redirects are not followed"), "{error}");
}

#[test]
fn a_thousand_hanging_connections_delay_no_other_target() {
    let hanging = FakeExporter::hanging();
    let fake = FakeExporter::text("a 1\n");
    let stage = Stage::new(MemorySink::default());
    let mut plans: Vec<ScrapePlan> = (10..1_010).map(|hash| plan(hanging.address, hash, 1_000)).collect();
    plans.push(plan(fake.address, 1, 100));
    stage.fleet.apply(plans);
    stage.wait_for("connections", || hanging.connections.load(Ordering::SeqCst) == 1_000);
    let before = stage.status(1).scrapes;
    stage.wait_for("twenty scrapes", || stage.status(1).scrapes >= before + 20);
    assert!((10..1_010).all(|hash| stage.status(hash).scrapes == 0), "the other targets still hang");
}

#[test]
fn equal_targets_keep_their_state_and_removed_ones_end_with_markers() {
    let fake = FakeExporter::text("a 1\n");
    let stage = Stage::new(MemorySink::default());
    let (one, two) = (plan(fake.address, 1, 100), plan(fake.address, 2, 100));
    assert_eq!(stage.fleet.apply(vec![one.clone(), two.clone(), one.clone()]), 1, "a repeated target");
    stage.wait_for("both", || stage.status(1).scrapes >= 2 && stage.status(2).scrapes >= 2);
    // An equal target of a configuration that was read again.
    let again = ScrapePlan { target: Arc::new(ScrapeTarget::clone(&one.target)), ..one.clone() };
    stage.fleet.apply(vec![again]);
    assert!(stage.status(1).scrapes >= 2, "it keeps its state");
    assert_eq!(stage.fleet.reports().len(), 1);
    stage.wait_for("markers", || stage.count("up{instance=2,job=j} stale") == 1);
    assert_eq!(stage.count("a{instance=2,job=j} stale"), 1);
    stage.wait_for("removal", || stage.fleet.target_labels().len() == 1);
    assert_eq!(stage.count("up{instance=1,job=j} stale"), 0);
    // A target that returns before its markers are due continues without them.
    let scrapes = stage.status(1).scrapes;
    stage.fleet.apply(Vec::new());
    stage.fleet.apply(vec![one]);
    stage.wait_for("another scrape", || stage.status(1).scrapes > scrapes);
    assert_eq!(stage.count("up{instance=1,job=j} stale"), 0);
}

#[test]
fn a_changed_target_restarts_and_a_forced_error_fails_without_a_request() {
    let fake = FakeExporter::text("a{job=\"own\"} 1\n");
    let stage = Stage::new(MemorySink::default());
    stage.fleet.apply(vec![plan(fake.address, 1, 100)]);
    stage.wait_for("a scrape", || stage.count("a{exported_job=own,instance=1,job=j} 1") >= 1);
    let mut changed = job();
    changed.honor_labels = true;
    let changed = plan_of(changed, fake.address, 1, 100);
    stage.fleet.apply(vec![changed.clone()]);
    stage.wait_for("the changed target", || stage.count("a{instance=1,job=own} 1") >= 1);
    assert_eq!(stage.count("a{exported_job=own,instance=1,job=j} stale"), 1);
    stage.fleet.apply(vec![ScrapePlan { forced_error: Some("target_limit exceeded".into()), ..changed }]);
    stage.wait_for("the error", || stage.status(1).health == ScrapeHealth::Down);
    assert_eq!(stage.status(1).last_error.as_deref(), Some("target_limit exceeded"));
    let requests = fake.requests.lock().expect("no panic").len();
    stage.wait_for("more failures", || stage.status(1).failures >= 3);
    assert_eq!(fake.requests.lock().expect("no panic").len(), requests);
}

#[test]
fn a_panic_fails_one_scrape_and_is_counted() {
    let fake = FakeExporter::text("a 1\n");
    let stage = Stage::new(MemorySink { panics: AtomicBool::new(true), ..MemorySink::default() });
    stage.fleet.apply(vec![plan(fake.address, 1, 100)]);
    stage.wait_for("a failed scrape", || stage.count("up{instance=1,job=j} 0") == 1);
    stage.wait_for("a scrape", || stage.status(1).health == ScrapeHealth::Up);
    let status = stage.status(1);
    assert_eq!((status.panics, status.last_error), (1, None));
}

#[test]
fn series_of_targets_that_are_gone_after_a_restart_get_markers() {
    let fake = FakeExporter::text("a 1\n");
    let series = |name: &str, instance: &str| ScrapeLiveSeries {
        labels: Labels::from_pairs([("__name__", name), ("instance", instance), ("job", "j")]),
        is_histogram: false,
    };
    let live = vec![series("b", "1"), series("b", "9"), series("up", "9")];
    let stage = Stage::new(MemorySink { live, ..MemorySink::default() });
    stage.fleet.apply(vec![plan(fake.address, 1, 60_000)]);
    let before = |instance: &str| Labels::from_pairs([("instance", instance), ("job", "j")]);
    stage.fleet.mark_lost(vec![before("1"), before("9"), Labels::default()]);
    stage.wait_for("markers", || stage.lines().len() >= 2);
    assert_eq!(stage.lines(), ["b{instance=9,job=j} stale", "up{instance=9,job=j} stale"]);
}

#[test]
fn large_bodies_of_one_organisation_leave_room_for_those_of_others() {
    let large = FakeExporter::start(|_, stream| respond(stream, "text/plain", "", &[b'\n'; 2_000]));
    let small = FakeExporter::text("a 1\n");
    let bodies = ByteBudget::new(1_000);
    let (first, other) =
        (Stage::with(MemorySink::default(), &bodies), Stage::with(MemorySink::default(), &bodies));
    first.fleet.apply(vec![plan(large.address, 1, 100)]);
    other.fleet.apply(vec![plan(small.address, 2, 100)]);
    first.wait_for("failures", || first.status(1).failures >= 2 && other.status(2).scrapes >= 5);
    let error = first.status(1).last_error.unwrap_or_default();
    assert!(error.contains("at once use too much of 1000 bytes"), "{error}");
    let other_status = other.status(2);
    assert_eq!((other_status.failures, other_status.last_error), (0, None));
    first.fleet.stop();
    other.fleet.stop();
    first.wait_for("the return of all memory", || bodies.bytes() == 0);
}

#[test]
fn templates_of_one_organisation_leave_room_for_those_of_others() {
    let five = FakeExporter::text("a 1\nb 1\nc 1\nd 1\ne 1\n");
    let one = FakeExporter::text("a 1\n");
    // Of ten series with 28 bytes each.
    let settings = ScrapeRunSettings { templates: ByteBudget::new(280), ..ScrapeRunSettings::default() };
    let (bodies, settings) = (ByteBudget::new(1_000_000), Arc::new(settings));
    let stage = || Stage::with_settings(MemorySink::default(), &bodies, Arc::clone(&settings));
    let (first, other) = (stage(), stage());
    first.fleet.apply([1, 2].map(|hash| plan(five.address, hash, 100)).to_vec());
    first.wait_for("templates", || {
        [1, 2].iter().all(|hash| first.status(*hash).scrapes >= 5)
            && first.sink.keyed.load(Ordering::SeqCst) > 2
    });
    assert_eq!(settings.templates.bytes(), 140, "one of the two targets has a template");
    other.fleet.apply(vec![plan(one.address, 3, 100)]);
    other.wait_for("keyed batches", || other.sink.keyed.load(Ordering::SeqCst) > 2);
    first.fleet.stop();
    other.fleet.stop();
    first.wait_for("the return of all memory", || settings.templates.bytes() == 0);
}

#[test]
fn responses_that_differ_only_in_values_are_stored_by_keys() {
    let value = AtomicUsize::new(0);
    let exporter = FakeExporter::start(move |_, stream| {
        let value = value.fetch_add(1, Ordering::SeqCst);
        respond(stream, "text/plain", "", format!("# HELP a x\na{{b=\"c\"}} {value}\n").as_bytes())
    });
    let stage = Stage::new(MemorySink::default());
    stage.fleet.apply(vec![plan(exporter.address, 1, 200)]);
    stage.wait_for("keyed batches", || stage.sink.keyed.load(Ordering::SeqCst) > 2);
    let lines = stage.lines().into_iter();
    let stored = lines.filter(|line| line.starts_with("a{") && !line.ends_with("stale"));
    let values: Vec<u32> =
        stored.map(|line| line.rsplit(' ').next().expect("a value").parse().expect("whole")).collect();
    assert!(values.len() >= 4 && values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
}
