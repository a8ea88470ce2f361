//! The cost of scrapes: `cargo bench --bench scrape -- PROMETHEUS [TARGETS [SECONDS [INTERVAL
//! [doubled]]]]`.
//!
//! Serves the text of node_exporter, with about 1,500 samples, as TARGETS targets on loopback
//! (1,000), in gzip if it is accepted. First promlet and then the Prometheus at the path PROMETHEUS
//! scrape all of them every INTERVAL seconds (10) into an empty folder. After three intervals, the
//! CPU time and the scrapes of SECONDS (30) are measured. `vmagent=PATH` names a vmagent that is
//! measured, too, without a storage behind it, and `promlet=PATH` another promlet.
//!
//! With `doubled`, the text has a series twice. Then promlet has no template of it, and decodes
//! each body.
//!
//! `cargo bench --bench scrape -- agent [TARGETS [SECONDS [INTERVAL [doubled]]]]` measures `promlet
//! agent` instead, which forwards the samples of the same targets to a receiver that discards them,
//! beside the vmagent of `vmagent=PATH` with the same receiver. The memory is the median of
//! [`MEMORY_READS`] reads after three intervals. `relabel` gives both an external label, and a rule
//! that adds a label.

#![expect(clippy::panic, reason = "a bench that cannot continue panics with the reason")]

#[path = "common/arguments.rs"]
mod arguments;
#[path = "common/cpu_time.rs"]
mod cpu_time;
#[path = "common/median.rs"]
mod median;
#[path = "common/receiver.rs"]
#[expect(dead_code, reason = "shared with a bench that waits for the last request")]
mod receiver;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arguments::{arguments, number};
use flate2::Compression;
use flate2::write::GzEncoder;
use median::median;
use receiver::Receiver;

/// Different bodies, which differ in their values.
const BODIES: u32 = 8;
/// The number of times that the memory of an agent is read.
const MEMORY_READS: u32 = 15;
/// The rules that `relabel` gives to agents.
const RULES: &str = r#"[{"target_label": "site", "replacement": "berlin"}]"#;
/// The bytes of the stack of a connection's thread.
const STACK_BYTES: usize = 64 << 10;

/// A response with its head, by whether it is compressed.
struct Response {
    plain: Vec<u8>,
    gzip: Vec<u8>,
}

/// Adds a family with a series for each combination of two labels.
fn family(
    out: &mut String,
    name: &str,
    kind: &str,
    labels: [(&str, usize); 2],
    value: &mut dyn FnMut() -> f64,
) {
    let [(one, ones), (other, others)] = labels;
    let _ = writeln!(out, "# HELP {name} Statistic {name} of the host, as the kernel reports it.");
    let _ = writeln!(out, "# TYPE {name} {kind}");
    for n in 0..ones {
        for m in 0..others {
            let _ = match (one, other) {
                ("", _) => writeln!(out, "{name} {}", value()),
                (_, "") => writeln!(out, "{name}{{{one}=\"{one}{n}\"}} {}", value()),
                _ => writeln!(out, "{name}{{{one}=\"{one}{n}\",{other}=\"{other}-{m}\"}} {}", value()),
            };
        }
    }
}

/// Returns the text of a host.
fn text(number: u32, is_doubled: bool) -> String {
    let mut out = String::new();
    let mut n = 0_u32;
    let mut value = || {
        n += 1;
        match n % 4 {
            0 => 0.0,
            1 => f64::from(n * 1_000 + number * 7),
            2 => f64::from(n) + f64::from(number) / 8.0,
            _ => f64::from(n) * 1e7 + f64::from(number) * 4_096.0,
        }
    };
    family(&mut out, "node_cpu_seconds_total", "counter", [("cpu", 16), ("mode", 8)], &mut value);
    family(&mut out, "node_cpu_guest_seconds_total", "counter", [("cpu", 16), ("mode", 2)], &mut value);
    for what in 0..17 {
        family(
            &mut out,
            &format!("node_disk_statistic_{what}_total"),
            "counter",
            [("device", 10), ("", 1)],
            &mut value,
        );
    }
    for what in 0..18 {
        family(
            &mut out,
            &format!("node_network_statistic_{what}_total"),
            "counter",
            [("device", 12), ("", 1)],
            &mut value,
        );
    }
    for what in 0..7 {
        let name = format!("node_filesystem_statistic_{what}_bytes");
        family(&mut out, &name, "gauge", [("device", 10), ("mountpoint", 2)], &mut value);
    }
    family(&mut out, "node_systemd_unit_state", "gauge", [("name", 60), ("state", 5)], &mut value);
    for what in 0..500 {
        family(
            &mut out,
            &format!("node_memory_statistic_{what}_bytes"),
            "gauge",
            [("", 1), ("", 1)],
            &mut value,
        );
    }
    if is_doubled {
        out.push_str("doubled 1\ndoubled 2\n");
    }
    out
}

fn response(text: &str) -> Response {
    let with_head = |more: &str, body: &[u8]| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
        let mut all = format!("{head}{more}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
        all.extend_from_slice(body);
        all
    };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).expect("memory");
    let gzip = encoder.finish().expect("memory");
    Response { plain: with_head("", text.as_bytes()), gzip: with_head("Content-Encoding: gzip\r\n", &gzip) }
}

/// Responds on a connection until it is closed.
fn serve(mut stream: TcpStream, responses: &[Response], served: &AtomicUsize) {
    let (mut buffer, mut request) = ([0; 2_048], Vec::new());
    let mut turn = 0;
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        request.extend_from_slice(buffer.get(..read).unwrap_or_default());
        if !request.ends_with(b"\r\n\r\n") {
            continue;
        }
        let is_gzip = request.to_ascii_lowercase().windows(21).any(|text| text == b"accept-encoding: gzip");
        request.clear();
        turn += 1;
        let Some(response) = responses.get(turn % responses.len()) else { return };
        if stream.write_all(if is_gzip { &response.gzip } else { &response.plain }).is_err() {
            return;
        }
        served.fetch_add(1, Ordering::Relaxed);
    }
}

/// Starts the targets. Returns their port.
fn targets(responses: Arc<Vec<Response>>, served: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (responses, served) = (Arc::clone(&responses), Arc::clone(&served));
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            thread.spawn(move || serve(stream, &responses, &served)).expect("a thread");
        }
    });
    port
}

/// A process that is killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The start of an agent.
struct AgentStart<'s> {
    /// The URL of the receiver.
    url: &'s str,
    is_relabelled: bool,
}

fn start_agent(name: &str, program: &str, dir: &Path, config: &Path, agent: &AgentStart<'_>) -> Process {
    let own = dir.join(name);
    fs::create_dir_all(&own).expect("a folder");
    let mut command = Command::new(program);
    let rules = if agent.is_relabelled { RULES } else { "[]" };
    if name == "vmagent" {
        // YAML includes JSON.
        let file = own.join("rules.yml");
        fs::write(&file, rules).expect("written");
        command
            .arg(format!("-promscrape.config={}", config.display()))
            .arg(format!("-remoteWrite.tmpDataPath={}", own.display()))
            .arg(format!("-httpListenAddr={}", free_address()))
            .arg(format!("-remoteWrite.url={}", agent.url))
            .arg(format!("-remoteWrite.relabelConfig={}", file.display()))
            // The same compression as promlet's, and no probe of the receiver.
            .arg("-remoteWrite.forcePromProto");
    } else {
        let file = own.join("agent.json");
        let target = format!(r#"{{"name": "receiver", "url": "{}", "protocol": "1.0"}}"#, agent.url);
        fs::write(&file, format!(r#"{{"relabel": {rules}, "targets": [{target}]}}"#)).expect("written");
        command
            .current_dir(&own)
            .args(["agent", "--outbound-allow", "127.0.0.0/8", "--data-dir", "data"])
            .args(["--listen", &free_address(), "--config", "agent.json"])
            .args(["--scrape-config", &config.display().to_string()]);
    }
    spawn(command, program, &own)
}

fn free_address() -> String {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    format!("127.0.0.1:{}", free.port())
}

fn spawn(mut command: Command, program: &str, own: &Path) -> Process {
    let log = || File::options().create(true).append(true).open(own.with_extension("log")).expect("a log");
    let child = command.stdin(Stdio::null()).stdout(log()).stderr(log()).spawn();
    Process(child.unwrap_or_else(|error| panic!("{program} does not start: {error}")))
}

fn start(name: &str, program: &str, dir: &Path, config: &Path) -> Process {
    let own = dir.join(name);
    fs::create_dir_all(&own).expect("a folder");
    let address = free_address();
    let mut command = Command::new(program);
    let (config, data) = (config.display(), own.display());
    match name {
        "promlet" => command
            .current_dir(&own)
            .args(["serve", "--outbound-allow", "127.0.0.0/8", "--data-dir", "data", "--listen", &address])
            .args(["--scrape-config", &config.to_string()])
            .env("PROMLET_BOOTSTRAP_EMAIL", "ada@example.com")
            .env("PROMLET_BOOTSTRAP_PASSWORD", "correct horse battery staple")
            .env("PROMLET_BOOTSTRAP_ORG", "acme")
            .env("PROMLET_SELF_SCRAPE", "off"),
        "Prometheus" => command
            .arg(format!("--config.file={config}"))
            .arg(format!("--storage.tsdb.path={data}"))
            .arg(format!("--web.listen-address={address}")),
        _ => command
            .arg(format!("-promscrape.config={config}"))
            .arg(format!("-remoteWrite.tmpDataPath={data}"))
            .arg(format!("-httpListenAddr={address}"))
            .arg("-remoteWrite.url=http://127.0.0.1:9/"),
    };
    spawn(command, program, &own)
}

/// Returns a size in the status of a process, in MiB.
fn status_mib(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1_024
}

/// The measured scrapes.
struct Run<'r> {
    dir: &'r Path,
    config: &'r Path,
    served: &'r AtomicUsize,
    /// The samples of a response.
    samples: usize,
    seconds: u32,
    interval: u32,
}

impl Run<'_> {
    fn measure_agent(&self, name: &str, program: &str, is_relabelled: bool) {
        let receiver = Receiver::start();
        let start = AgentStart { url: &receiver.url, is_relabelled };
        let process = start_agent(name, program, self.dir, self.config, &start);
        let pid = process.0.id();
        std::thread::sleep(Duration::from_secs(u64::from(self.interval) * 3 + 5));
        let cpu_s = || cpu_time::cpu_s(pid).unwrap_or_else(|| panic!("{name} has ended"));
        let before = (cpu_s(), self.served.load(Ordering::Relaxed), receiver.bytes());
        let mut reads = Vec::new();
        for _ in 0..MEMORY_READS {
            std::thread::sleep(Duration::from_secs(u64::from(self.seconds)) / MEMORY_READS);
            reads.push(["VmRSS", "RssAnon"].map(|name| status_mib(pid, name) as f64));
        }
        let [resident, anonymous] =
            [0, 1].map(|place| median(&reads.iter().map(|read| read[place]).collect::<Vec<_>>()));
        let (cpu, scrapes) = (cpu_s() - before.0, self.served.load(Ordering::Relaxed) - before.1);
        let scraped = scrapes.max(1) as f64 * self.samples as f64;
        let (each_ns, bytes) = (cpu * 1e9 / scraped, (receiver.bytes() - before.2) as f64 / scraped);
        println!(
            "{name:<12} {cpu:>7.2} s of CPU, {scrapes:>6} scrapes, {each_ns:>6.0} ns and {bytes:>5.1} bytes sent for \
             each sample, resident {resident:.0} MiB, of which anonymous {anonymous:.0}, peak {} MiB",
            status_mib(pid, "VmHWM")
        );
    }
}

fn main() {
    // `cargo test` and `cargo bench` without arguments run all benches.
    let args = arguments();
    let Some(prometheus) = args.first() else {
        println!("scrape: pass the path of a Prometheus, or `agent`");
        return;
    };
    let number = |place, default: u32| number(&args, place, default);
    let (hosts, seconds, interval) = (number(1, 1_000), number(2, 30), number(3, 10));
    let is_doubled = args.iter().any(|arg| arg == "doubled");
    let is_agent = prometheus == "agent";
    let texts: Vec<String> = (0..BODIES).map(|n| text(n, is_doubled)).collect();
    let samples = texts.first().map_or(0, |text| text.lines().filter(|line| !line.starts_with('#')).count());
    let served = Arc::<AtomicUsize>::default();
    let port = targets(Arc::new(texts.iter().map(|text| response(text)).collect()), Arc::clone(&served));
    let dir = tempfile::tempdir().expect("a folder");
    let config = dir.path().join("prometheus.yml");
    let list: Vec<String> =
        (0..hosts).map(|n| format!("'127.1.{}.{}:{port}'", n / 250, n % 250 + 1)).collect();
    let has = |word: &str| args.iter().any(|arg| arg == word);
    let external = if has("relabel") { ", external_labels: {region: eu}" } else { "" };
    let text = format!(
        "global: {{scrape_interval: {interval}s, scrape_timeout: {interval}s{external}}}\nscrape_configs:\n- job_name: node\n  static_configs:\n  - targets: [{}]\n",
        list.join(", ")
    );
    fs::write(&config, text).expect("written");
    println!("{hosts} targets with {samples} samples every {interval} s, {seconds} s");
    let path = |name: &str| args.iter().find_map(|arg| Some(arg.strip_prefix(name)?.to_owned()));
    let own = path("promlet=").unwrap_or_else(|| env!("CARGO_BIN_EXE_promlet").to_owned());
    let vmagent = path("vmagent=");
    if is_agent {
        let (dir, config, served) = (dir.path(), &*config, &*served);
        let run = Run { dir, config, served, samples, seconds, interval };
        for (name, program) in [("promlet", Some(own)), ("vmagent", vmagent)] {
            program.iter().for_each(|program| run.measure_agent(name, program, has("relabel")));
        }
        return;
    }
    let all = [("promlet", Some(own)), ("Prometheus", Some(prometheus.clone())), ("vmagent", vmagent)];
    for (name, program) in all {
        let Some(program) = program else { continue };
        let process = start(name, &program, dir.path(), &config);
        let pid = process.0.id();
        std::thread::sleep(Duration::from_secs(u64::from(interval) * 3 + 5));
        let cpu_s = || cpu_time::cpu_s(pid).unwrap_or_else(|| panic!("{name} has ended"));
        let before = (cpu_s(), served.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_secs(u64::from(seconds)));
        let (cpu, scrapes) = (cpu_s() - before.0, served.load(Ordering::Relaxed) - before.1);
        let each_us = cpu * 1e6 / f64::from(u32::try_from(scrapes.max(1)).expect("few"));
        println!(
            "{name:<12} {cpu:>7.2} s of CPU, {scrapes:>6} scrapes, {each_us:>7.0} us each, peak {} MiB",
            status_mib(pid, "VmHWM")
        );
    }
}
