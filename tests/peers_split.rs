//! `engine: split` with real upstreams: Prometheus by remote read, with floats, staleness markers
//! and native histograms, and VictoriaMetrics, which has none, by matrix selectors. Every response
//! must be that of a promlet with all samples.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;
#[path = "peers/servers.rs"]
#[expect(dead_code, reason = "shared: each target needs other servers")]
mod servers;

use harness::{
    Answer, ORG, Server, Start, bootstrap, compressed, field, percent, remote_write, request, varint,
};
use promlet::clock::Clock;
use promlet::model::{Labels, STALE_NAN_BITS, Sample, Timestamp};
use serde_json::{Value as Json, json};
use servers::{prometheus_server_with, victoria_metrics, write_to};

/// The interval of samples in milliseconds, and their number.
const INTERVAL_MS: i64 = 15_000;
const SAMPLES: i64 = 160;

/// Encodes one sample of each series at a time: two counters, one of which ends and resumes, a
/// gauge with special values, and an integer histogram.
fn write_request(at_ms: i64, n: i64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut series = |name: &str, job: &str, sample: (u8, Vec<u8>)| {
        let mut one = Vec::new();
        for (label, value) in [("__name__", name), ("job", job)] {
            let mut pair = Vec::new();
            field(&mut pair, 1, label.as_bytes());
            field(&mut pair, 2, value.as_bytes());
            field(&mut one, 1, &pair);
        }
        field(&mut one, sample.0, &sample.1);
        field(&mut out, 1, &one);
    };
    let float = |bits: u64| {
        let mut sample = vec![0x09];
        sample.extend_from_slice(&bits.to_le_bytes());
        sample.push(0x10);
        varint(&mut sample, at_ms.unsigned_abs());
        (2, sample)
    };
    let count = |n: i64| (n % 70) as f64 * 1.1 + 0.3;
    series("requests_total", "api", float(count(n).to_bits()));
    match n % 40 {
        30 => series("requests_total", "web", float(STALE_NAN_BITS)),
        31..=36 => {}
        _ => series("requests_total", "web", float((count(n) * 3.0).to_bits())),
    }
    let special = [f64::NAN, f64::INFINITY, -0.0, 5e-324, 1e300, -7.25];
    series("level", "api", float(special[usize::try_from(n % 6).expect("below 6")].to_bits()));
    // A native histogram whose counts are reset every 50 samples.
    let steps = (n % 50 + 1).unsigned_abs();
    let mut histogram = vec![0x08];
    varint(&mut histogram, steps * 6);
    histogram.push(0x19);
    histogram.extend_from_slice(&(steps as f64 * 1.75).to_le_bytes());
    // Schema 2; zero threshold 0.001; spans (0, 2) and (1, 1); buckets of 1, 2 and 3 each step.
    histogram.extend_from_slice(&[0x20, 4, 0x29]);
    histogram.extend_from_slice(&0.001_f64.to_le_bytes());
    for span in [&[0x10, 2][..], &[0x08, 2, 0x10, 1]] {
        field(&mut histogram, 11, span);
    }
    let mut deltas = Vec::new();
    (0..3).for_each(|_| varint(&mut deltas, steps * 2));
    field(&mut histogram, 12, &deltas);
    histogram.push(0x78);
    varint(&mut histogram, at_ms.unsigned_abs());
    series("latency_seconds", "api", (4, histogram));
    out
}

const QUERIES: &[&str] = &[
    "requests_total",
    "{job=~\".+\"}",
    "sum by (job) (rate(requests_total[5m]))",
    "increase(requests_total[12m]) + on (job) group_left () count by (job) (requests_total)",
    "max_over_time(sum(requests_total)[10m:20s])",
    "requests_total - requests_total offset 9m",
    "absent(requests_total{job=\"web\"})",
    "level",
    "count_over_time(level[8m]) or count_over_time(requests_total[8m])",
    "last_over_time(level[3m])",
    "rate(latency_seconds[5m])",
    "histogram_quantile(0.9, rate(latency_seconds[7m]))",
    "histogram_count(latency_seconds)",
    "histogram_sum(increase(latency_seconds[20m]))",
    "sum_over_time(latency_seconds[4m])",
    "resets(latency_seconds[30m])",
    "quantile_over_time(0.7, requests_total[9m])",
    "changes(requests_total[25m]) > 3",
];

#[test]
fn queries_over_the_border_to_a_real_prometheus_are_answered_as_by_one_store() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = "global: {scrape_interval: 1h}\nstorage: {tsdb: {out_of_order_time_window: 6h}}\n";
    let features = ["--enable-feature=native-histograms"];
    let (_prometheus, upstream) = prometheus_server_with(&dir.path().join("prometheus"), config, &features);

    let allowed = [("PROMLET_OUTBOUND_ALLOW", "127.0.0.0/8")];
    let env: Vec<(&str, &str)> = bootstrap().into_iter().chain(allowed).collect();
    let whole = Server::start(&Start { args: &["serve"], dir: &dir.path().join("whole"), env: &env });
    let split = Server::start(&Start { args: &["serve"], dir: &dir.path().join("split"), env: &env });
    let (whole_cookie, split_cookie) = (whole.sign_in(), split.sign_in());
    let (whole_key, split_key) = (whole.api_key(&whole_cookie).1, split.api_key(&split_cookie).1);

    let now_ms = Clock::System.now().as_ms();
    let first_ms = now_ms - now_ms % INTERVAL_MS - SAMPLES * INTERVAL_MS;
    // The border lies between 1,200 s and 1,260 s ago. Prometheus gets nothing after it, and
    // promlet has samples of up to 5 minutes before it, which Prometheus has as well.
    let (border_ms, overlap_ms) = (now_ms - 1_200_000, 300_000);
    for n in 0..SAMPLES {
        let at_ms = first_ms + n * INTERVAL_MS;
        let body = compressed(&write_request(at_ms, n));
        assert_eq!(whole.write_raw(&whole_key, &body).status, 204);
        if at_ms >= border_ms - 60_000 - overlap_ms {
            assert_eq!(split.write_raw(&split_key, &body).status, 204);
        }
        if at_ms < border_ms {
            write_to(&upstream, &body);
        }
    }
    let engine = json!({ "engine": "split", "url": upstream, "split_after_s": 1_200 });
    let url = format!("{}/api/v1/orgs/{ORG}/engine", split.url);
    let headers = [("Cookie", split_cookie.as_str()), ("Content-Type", "application/json")];
    let set = request("PUT", &url, &headers, Some(engine.to_string().as_bytes()));
    assert_eq!(set.status, 200, "{}", set.body);

    let result = |answer: &Answer| -> Json {
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["data"]["result"].clone()
    };
    let (end, mut compared) = (now_ms / 1_000, 0);
    for expr in QUERIES {
        let query = percent(expr);
        let mount = format!("/api/v1/orgs/{ORG}/prometheus/api/v1");
        for path in [
            format!("{mount}/query_range?query={query}&start={}&end={end}&step=17", end - 2_300),
            format!("{mount}/query_range?query={query}&start={}&end={}&step=60", end - 1_500, end - 900),
            format!("{mount}/query?query={query}&time={}", end - 1_150),
        ] {
            let expected = whole.get(&path, &[("Cookie", &whole_cookie)]);
            let found = split.get(&path, &[("Cookie", &split_cookie)]);
            let expected = result(&expected);
            assert_eq!(result(&found), expected, "{path}");
            compared += usize::from(expected.as_array().is_some_and(|all| !all.is_empty()));
        }
    }
    println!("{compared} responses with series are equal");
    assert!(compared > 40, "{compared} responses have series");
}

/// Queries of floats of series without gaps.
const FLOAT_QUERIES: &[&str] = &[
    "jobs_total",
    "{job=~\".+\"}",
    "sum by (job) (rate(jobs_total[5m]))",
    "max_over_time(sum(jobs_total)[10m:20s])",
    "jobs_total - jobs_total offset 9m",
    "count_over_time(jobs_total[8m])",
    "quantile_over_time(0.7, jobs_total{job!=\"web\"}[9m])",
    "absent(jobs_total{job=\"none\"})",
];

#[test]
fn queries_over_the_border_to_victoria_metrics_are_answered_by_matrix_selectors() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_victoria, upstream) = victoria_metrics(&dir.path().join("victoria"));

    let env: Vec<(&str, &str)> =
        bootstrap().into_iter().chain([("PROMLET_OUTBOUND_ALLOW", "127.0.0.0/8")]).collect();
    let whole = Server::start(&Start { args: &["serve"], dir: &dir.path().join("whole"), env: &env });
    let split = Server::start(&Start { args: &["serve"], dir: &dir.path().join("split"), env: &env });
    let (whole_cookie, split_cookie) = (whole.sign_in(), split.sign_in());
    let (whole_key, split_key) = (whole.api_key(&whole_cookie).1, split.api_key(&split_cookie).1);
    let now_ms = Clock::System.now().as_ms();
    let first_ms = now_ms - now_ms % INTERVAL_MS - SAMPLES * INTERVAL_MS;
    let border_ms = now_ms - 1_200_000;
    let body = |is_in: &dyn Fn(i64) -> bool| {
        let series = |(job, factor): (&str, i64)| {
            let at = (0..SAMPLES).map(|n| (first_ms + n * INTERVAL_MS, n)).filter(|(at, _)| is_in(*at));
            let sample = |(at, n): (i64, i64)| Sample {
                at: Timestamp::from_ms(at),
                value: (n % 70 * factor) as f64 + 0.25,
            };
            (
                Labels::from_pairs([("__name__", "jobs_total"), ("job", job)]),
                at.map(sample).collect::<Vec<_>>(),
            )
        };
        remote_write(&[("api", 1), ("web", 3), ("db", 7)].map(series))
    };
    assert_eq!(whole.write_raw(&whole_key, &body(&|_| true)).status, 204);
    assert_eq!(split.write_raw(&split_key, &body(&|at| at >= border_ms - 60_000)).status, 204);
    write_to(&upstream, &body(&|at| at < border_ms));
    request("GET", &format!("{upstream}/internal/force_flush"), &[], None);
    let engine = json!({ "engine": "split", "url": upstream, "split_after_s": 1_200 });
    let url = format!("{}/api/v1/orgs/{ORG}/engine", split.url);
    let headers = [("Cookie", split_cookie.as_str()), ("Content-Type", "application/json")];
    let set = request("PUT", &url, &headers, Some(engine.to_string().as_bytes()));
    assert_eq!(set.status, 200, "{}", set.body);

    let end = now_ms / 1_000;
    let mut lossy = 0;
    for expr in FLOAT_QUERIES {
        let query = percent(expr);
        let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query_range?query={query}&step=17");
        let path = format!("{path}&start={}&end={end}", end - 2_000);
        let expected = whole.get(&path, &[("Cookie", &whole_cookie)]);
        let found = split.get(&path, &[("Cookie", &split_cookie)]);
        assert_eq!((expected.status, found.status), (200, 200), "{path}: {}", found.body);
        assert_eq!(found.json()["data"]["result"], expected.json()["data"]["result"], "{path}");
        lossy += usize::from(found.body.contains("no remote read"));
    }
    assert_eq!(lossy, FLOAT_QUERIES.len(), "all queries cross the border");
}
