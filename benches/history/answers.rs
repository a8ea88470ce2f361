//! The answers of servers, which must be equal.

use std::collections::BTreeMap;
use std::time::Duration;

use promlet::clock::Stopwatch;
use serde_json::Value as Json;

use crate::blocks::Blocks;
use crate::harness::{ORG, Server, percent, request};

/// The greatest relative difference of two values.
const TOLERANCE: f64 = 1e-9;
/// The longest time until a server shows samples that it has acknowledged.
const SHOWN_WITHIN: Duration = Duration::from_secs(30);
/// The step of the range queries in seconds.
const STEP_S: i64 = 120;
/// The expressions that are compared.
const EXPRESSIONS: [&str; 5] = [
    "sum by (mode) (rate(node_cpu_seconds_total[5m]))",
    "histogram_quantile(0.9, sum by (namespace, le) (rate(request_duration_seconds_bucket[5m])))",
    "node_load1{instance=~\"host-1.?\"}",
    "max_over_time(node_memory_free_bytes{instance=~\"host-.?\"}[30m])",
    "count by (__name__) ({__name__=~\".+\"})",
];

/// The query API of a server.
pub(crate) struct Queried {
    /// The URL without `/api/v1`.
    base: String,
    cookie: String,
}

type Series = BTreeMap<String, Vec<(f64, f64)>>;

impl Queried {
    pub(crate) fn promlet(server: &Server) -> Queried {
        let base = format!("{}/api/v1/orgs/{ORG}/prometheus", server.url);
        Queried { base, cookie: server.sign_in() }
    }

    pub(crate) fn peer(url: &str) -> Queried {
        Queried { base: url.to_owned(), cookie: String::new() }
    }

    fn get(&self, path: &str) -> Json {
        let answer =
            request("GET", &format!("{}/api/v1/{path}", self.base), &[("Cookie", &self.cookie)], None);
        assert_eq!(answer.status, 200, "{}: {path}: {}", self.base, answer.body);
        answer.json()["data"].clone()
    }

    /// Returns the number of samples that match within a number of seconds before a time.
    pub(crate) fn count(&self, matchers: &str, seconds: i64, end_s: i64) -> f64 {
        let path = format!("label/__name__/values?start={}&end={end_s}", end_s - seconds);
        let names = self.get(&path);
        // Series of several metrics may differ in their names only, which the function removes.
        let of_name = |name: &Json| {
            let name = name.as_str().expect("a name");
            let expr = format!("sum(count_over_time({name}{{{matchers}}}[{seconds}s]))");
            let found = self.get(&format!("query?query={}&time={end_s}", percent(&expr)));
            let value = found["result"][0]["value"][1].as_str();
            value.map_or(0.0, |text| text.parse::<f64>().expect("a number"))
        };
        names.as_array().expect("a list").iter().map(of_name).sum()
    }

    /// Asserts that the server has each sample of the blocks, among those that match.
    pub(crate) fn assert_samples(&self, who: &str, matchers: &str, blocks: &Blocks) {
        // The start of a window is not in it.
        let seconds = blocks.end_s - blocks.start_s + 1;
        let found = self.count(matchers, seconds, blocks.end_s);
        assert_eq!(found, blocks.samples as f64, "{who}: samples that match {{{matchers}}}");
    }

    /// As [`Queried::assert_samples`], for a server that shows samples some time after it has
    /// acknowledged them.
    pub(crate) fn wait_for_samples(&self, who: &str, blocks: &Blocks) {
        let seconds = blocks.end_s - blocks.start_s + 1;
        let watch = Stopwatch::start();
        while watch.elapsed() < SHOWN_WITHIN && self.count("", seconds, blocks.end_s) != blocks.samples as f64
        {
            std::thread::sleep(Duration::from_millis(500));
        }
        self.assert_samples(who, "", blocks);
    }

    fn range(&self, expr: &str, blocks: &Blocks) -> Series {
        let Blocks { start_s, end_s, .. } = blocks;
        let path = format!("query_range?query={}&start={start_s}&end={end_s}&step={STEP_S}", percent(expr));
        let point = |point: &Json| {
            let value = point[1].as_str().and_then(|text| text.parse().ok());
            (point[0].as_f64().expect("a time"), value.expect("a number"))
        };
        let points = |one: &Json| one["values"].as_array().into_iter().flatten().map(point).collect();
        let found = self.get(&path);
        let all = found["result"].as_array().expect("a list").iter();
        all.map(|one| (one["metric"].to_string(), points(one))).collect()
    }
}

/// Asserts that all servers give the answers of the first one. Returns the number of points.
pub(crate) fn assert_equal(servers: &[(&str, &Queried)], blocks: &Blocks) -> usize {
    let mut compared = 0;
    let ((_, first), others) = servers.split_first().expect("a server");
    for expr in EXPRESSIONS {
        let expected = first.range(expr, blocks);
        for (who, server) in others {
            let found = server.range(expr, blocks);
            assert!(!expected.is_empty() && expected.keys().eq(found.keys()), "{who}: series of {expr}");
            for (labels, expected) in &expected {
                let found = &found[labels];
                let equal = |(a, b): (&(f64, f64), &(f64, f64))| {
                    let near = (a.1 - b.1).abs() <= TOLERANCE * a.1.abs().max(b.1.abs());
                    a.0 == b.0 && (near || a.1.to_bits() == b.1.to_bits())
                };
                let is_equal = expected.len() == found.len() && expected.iter().zip(found).all(equal);
                assert!(is_equal, "{who}: {labels} in {expr} differs");
                compared += expected.len();
            }
        }
    }
    compared
}
