//! The memory and CPU time of many series: `cargo bench --bench series [-- SERIES [ROUNDS]]`.
//!
//! Starts the built server and sends four million series (or SERIES) with ten labels and one sample
//! each, in ten rounds (or ROUNDS), by remote write over one connection. Prints the memory of the
//! process and its CPU time after each round. At the end all series are counted by metric name.
//! With the defaults, the exit status is 1 if memory or CPU time exceed the bounds: 1,480 MB (0.35
//! of the 4,228 MB of VictoriaMetrics) and 417 s.

#![expect(clippy::panic, reason = "a bench that cannot continue panics with the reason")]
#![expect(clippy::cast_possible_truncation, reason = "a number of series")]

#[path = "common/cpu_time.rs"]
mod cpu_time;
#[path = "../tests/binary/harness.rs"]
#[expect(dead_code, reason = "the tests of the binary use the rest")]
mod harness;

use std::process::ExitCode;

use harness::{ORG, Server, Start, bootstrap, field, percent, varint};
use promlet::clock::{Clock, Stopwatch};

/// The number of series in a request, and of a target.
const REQUEST: usize = 2_000;
const METRICS: usize = 100;
const MEMORY_MB_MAX: u64 = 1_480;
const CPU_S_MAX: f64 = 417.0;

/// Encodes labels for remote write.
fn encoded(pairs: &[(&str, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in pairs {
        let mut label = Vec::new();
        field(&mut label, 1, name.as_bytes());
        field(&mut label, 2, value.as_bytes());
        field(&mut out, 1, &label);
    }
    out
}

/// Returns the labels of a metric; with those of a target they alternate in the order of a label
/// set.
fn metric(m: usize) -> [Vec<u8>; 3] {
    let method = ["GET", "POST", "PUT", "DELETE"][m % 4].to_owned();
    let code = ["200", "204", "404", "500"][m / 4 % 4].to_owned();
    [
        encoded(&[("__name__", format!("shop_metric_{m}_total")), ("cluster", "eu-central".to_owned())]),
        encoded(&[("code", code), ("handler", format!("/api/v1/resource/{}", m / 16))]),
        encoded(&[("method", method)]),
    ]
}

fn target(t: usize) -> [Vec<u8>; 2] {
    let (service, host) =
        (format!("service-{}", t % 20), format!("10.{}.{}.{}:9100", t / 62_500, t / 250 % 250, t % 250));
    [
        encoded(&[("instance", host), ("job", service.clone())]),
        encoded(&[
            ("namespace", format!("team-{}", t % 8)),
            ("node", format!("worker-{:03}", t % 500)),
            ("pod", format!("{service}-7d9f8b6c5-{t:05}")),
        ]),
    ]
}

fn cpu_s(server: &Server) -> f64 {
    cpu_time::cpu_s(server.pid()).expect("it runs")
}

fn status_mb(server: &Server, name: &str) -> u64 {
    server.status_bytes(name) >> 20
}

fn main() -> ExitCode {
    let mut numbers = std::env::args().filter_map(|text| text.parse::<usize>().ok());
    let series = numbers.next().unwrap_or(4_000_000);
    let rounds = numbers.next().unwrap_or(10);
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &bootstrap() });
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    let bearer = format!("Bearer {secret}");
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let metrics: Vec<[Vec<u8>; 3]> = (0..METRICS).map(metric).collect();
    let begun = Clock::System.now();
    let (mut body, mut one, mut sample) = (Vec::new(), Vec::new(), Vec::new());
    let watch = Stopwatch::start();
    println!("{:>5}  {:>8}  {:>8}  {:>8}  {:>8}", "round", "s", "CPU s", "MB", "peak MB");
    for round in 0..rounds {
        let at = begun.plus_ms((round as i64 - rounds as i64) * 15_000).as_ms();
        for first in (0..series).step_by(REQUEST) {
            body.clear();
            for i in first..(first + REQUEST).min(series) {
                let (m, t) = (i % METRICS, i / METRICS);
                // Rendered once for each target.
                if m == 0 || one.is_empty() {
                    one = target(t).to_vec();
                }
                let ([name, code, method], [instance, pod]) = (&metrics[m], [&one[0], &one[1]]);
                sample.clear();
                sample.push(0x09);
                let value = match i % 3 {
                    0 => (round * 37 + i % 11) as f64,
                    1 => ((i * 7_919 + round * 104_729) % 1_000) as f64 / 10.0,
                    _ => 1.0,
                };
                sample.extend_from_slice(&value.to_le_bytes());
                sample.push(0x10);
                varint(&mut sample, at.cast_unsigned());
                let labels: usize = [name, code, instance, method, pod].iter().map(|part| part.len()).sum();
                body.push(0x0a);
                varint(&mut body, (labels + sample.len() + 2) as u64);
                for part in [name, code, instance, method, pod] {
                    body.extend_from_slice(part);
                }
                field(&mut body, 2, &sample);
            }
            let packed = snap::raw::Encoder::new().compress_vec(&body).expect("compresses");
            let request = agent
                .post(format!("{}/api/v1/orgs/{ORG}/write", server.url))
                .header("Authorization", &bearer)
                .header("Content-Type", "application/x-protobuf")
                .header("Content-Encoding", "snappy")
                .header("X-Prometheus-Remote-Write-Version", "0.1.0");
            let status = request.send(&packed[..]).expect("answered").status().as_u16();
            assert_eq!(status, 204, "round {round}, series from {first}");
        }
        let (rss, peak) = (status_mb(&server, "VmRSS"), status_mb(&server, "VmHWM"));
        println!(
            "{round:>5}  {:>8.1}  {:>8.1}  {rss:>8}  {peak:>8}",
            watch.elapsed().as_secs_f64(),
            cpu_s(&server)
        );
    }
    let (peak, cpu) = (status_mb(&server, "VmHWM"), cpu_s(&server));
    println!(
        "ingested: {peak} MB at most, {} bytes a series, {cpu:.1} CPU seconds",
        (peak << 20) as usize / series.max(1)
    );
    let own = server.get("/metrics", &[]).body;
    for name in ["promlet_org_memory_bytes", "promlet_head_bytes", "promlet_org_series"] {
        own.lines().filter(|line| line.starts_with(name)).for_each(|line| println!("{line}"));
    }
    let expr = percent("count by (__name__) ({__name__=~\".+\"})");
    let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query?query={expr}&timeout=30s");
    let watch = Stopwatch::start();
    let answer = server.get(&path, &[("Authorization", &bearer)]);
    println!(
        "counted by name: {} in {:.0} ms, {} MB at most: {}",
        answer.status,
        watch.elapsed_ms(),
        status_mb(&server, "VmHWM"),
        answer.body.get(..160).unwrap_or(&answer.body)
    );
    let is_within = peak <= MEMORY_MB_MAX && cpu < CPU_S_MAX;
    if (series, rounds) == (4_000_000, 10) && !is_within {
        println!("above {MEMORY_MB_MAX} MB or {CPU_S_MAX} CPU seconds");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
