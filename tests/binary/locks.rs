//! A slow read of one organisation, and everything that must not wait for it: its own writes, those
//! of others, pages, `/metrics`, short queries, health. Nothing is timed: the slow read still runs
//! when the others have their responses.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use promlet::clock::{Clock, Stopwatch};
use promlet::model::{Labels, Sample};
use serde_json::json;

use crate::harness::{Answer, ORG, Server, Start, bootstrap, percent, remote_write, request};
use crate::queries::{hostile_matchers, hostile_values, send};

const OTHER: &str = "other";
/// The timeout of the slow read, which is longer than all requests beside it together.
const SLOW: &str = "120s";
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A server with two organisations, the first of which has label values that are slow to match.
struct TwoOrganisations {
    server: Server,
    cookie: String,
    own: String,
    others: String,
}

impl TwoOrganisations {
    fn start(dir: &Path) -> TwoOrganisations {
        let args = &["serve", "--rate-cabinet-rps", "10000", "--query-timeout", SLOW];
        let server = Server::start(&Start { args, dir, env: &bootstrap() });
        let cookie = server.sign_in();
        let made = server.post_json("/api/v1/orgs", &[("Cookie", &cookie)], &json!({ "slug": OTHER }));
        assert_eq!(made.status, 201, "{}", made.body);
        let (_, own) = server.api_key(&cookie);
        let body = json!({ "name": "other", "scopes": ["ingest", "read"] });
        let path = format!("/api/v1/orgs/{OTHER}/api-keys");
        let made = server.post_json(&path, &[("Cookie", &cookie)], &body);
        assert_eq!(made.status, 201, "{}", made.body);
        let others = made.json()["secret"].as_str().expect("a secret").to_owned();
        let it = TwoOrganisations { server, cookie, own, others };
        for (org, secret) in [(ORG, &it.own), (OTHER, &it.others)] {
            assert_eq!(it.write(org, secret, "up", 0).status, 204);
        }
        it
    }

    fn get(&self, path: &str) -> Answer {
        self.server.get(path, &[("Cookie", &self.cookie)])
    }

    /// Writes a sample of one series.
    fn write(&self, org: &str, secret: &str, name: &str, n: usize) -> Answer {
        let labels = Labels::from_pairs([("__name__", name), ("n", &n.to_string())]);
        let body = remote_write(&[(labels, vec![Sample { at: Clock::System.now(), value: 1.0 }])]);
        let bearer = format!("Bearer {secret}");
        let headers = [
            ("Authorization", &*bearer),
            ("Content-Type", "application/x-protobuf"),
            ("Content-Encoding", "snappy"),
            ("X-Prometheus-Remote-Write-Version", "0.1.0"),
        ];
        request("POST", &format!("{}/api/v1/orgs/{org}/write", self.server.url), &headers, Some(&body))
    }

    /// Imports a text.
    fn import(&self, content_type: &str, text: &str) -> Answer {
        let bearer = format!("Bearer {}", self.own);
        let headers = [("Authorization", &*bearer), ("Content-Type", content_type)];
        let url = format!("{}/api/v1/orgs/{ORG}/import", self.server.url);
        request("POST", &url, &headers, Some(text.as_bytes()))
    }

    /// Sends a slow request and waits until it runs on the query lane.
    fn begin(&self, path: &str) -> TcpStream {
        self.until_running(0);
        let stream = send(&self.server, &self.cookie, path);
        self.until_running(1);
        stream
    }

    fn until_running(&self, count: usize) {
        let (begun, line) = (Stopwatch::start(), format!("promlet_lane_running{{lane=\"query\"}} {count}"));
        while !self.server.get("/metrics", &[]).body.lines().any(|have| have == line) {
            assert!(begun.elapsed() < WAIT_MAX, "{line:?} never came");
        }
    }

    /// Sends everything that must not wait for the slow read, and checks after each request that it
    /// still runs.
    fn nothing_waits_for(&self, slow: &TcpStream) {
        let still_runs = |what: &str| {
            slow.set_nonblocking(true).expect("a socket");
            let not_yet = slow.peek(&mut [0]).expect_err(what);
            assert_eq!(not_yet.kind(), std::io::ErrorKind::WouldBlock, "{what}");
        };
        still_runs("the slow read has just begun");
        let path = format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query?query=up");
        for turn in 0..8 {
            // Concurrently, more writers of new series than the ingest lane has threads.
            std::thread::scope(|scope| {
                let write = |n: usize| self.write(ORG, &self.own, &format!("fresh_{turn}"), n).status;
                let writers: Vec<_> = (0..8).map(|n| scope.spawn(move || write(n))).collect();
                let stamp = Clock::System.now().as_ms();
                let text = format!("# HELP up Told at {stamp}.\n# TYPE up gauge\nup 2 {stamp}\n");
                let imported = self.import("text/plain", &text);
                assert_eq!(imported.status, 200, "{}", imported.body);
                still_runs("metadata and samples of the same organisation");
                assert!(self.server.get("/metrics", &[]).body.contains("promlet_org_series"));
                still_runs("/metrics");
                let page = self.get(&format!("/api/v1/orgs/{OTHER}"));
                let series = page.json()["usage"]["series"].as_u64();
                assert_eq!((page.status, series), (200, Some(1)), "{}", page.body);
                still_runs("the page of another organisation");
                // The first query runs on the query lane, later ones on the thread of the
                // connection.
                let answer = self.get(&path);
                assert_eq!(answer.status, 200, "{}", answer.body);
                still_runs("a short query of the same organisation");
                let written = self.write(OTHER, &self.others, "up", 0);
                assert_eq!(written.status, 204, "{}", written.body);
                still_runs("a write of another organisation");
                assert_eq!(self.server.get("/healthz", &[]).status, 200);
                for writer in writers {
                    assert_eq!(writer.join().expect("no panic"), 204);
                }
            });
            still_runs("new series of the same organisation");
        }
        let stats = self.get(&format!("/api/v1/orgs/{ORG}"));
        assert!(stats.json()["usage"]["series"].as_u64() >= Some(1_066), "{}", stats.body);
        still_runs("the count of series");
    }
}

#[test]
fn a_slow_listing_blocks_no_write_no_page_and_no_short_query() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let it = TwoOrganisations::start(dir.path());
    let written = it.server.write(&it.own, &hostile_values());
    assert_eq!(written.status, 204, "{}", written.body);
    let matchers = percent(&hostile_matchers(14));
    for path in [
        format!("prometheus/api/v1/series?match[]={matchers}"),
        format!("prometheus/api/v1/label/p/values?match[]={matchers}"),
        format!("query/expr-instant?expr=count%28{matchers}%29"),
    ] {
        let slow = it.begin(&format!("/api/v1/orgs/{ORG}/{path}"));
        it.nothing_waits_for(&slow);
        drop(slow);
    }
}

#[test]
fn a_slow_query_of_exemplars_blocks_no_write_no_page_and_no_short_query() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let it = TwoOrganisations::start(dir.path());
    let mut text = String::from("# TYPE hostile gauge\n");
    for (labels, _) in hostile_values() {
        text += &format!("hostile{{p=\"{}\"}} 1 # {{trace_id=\"a\"}} 1\n", labels.value("p"));
    }
    let imported = it.import("application/openmetrics-text; version=1.0.0", &(text + "# EOF\n"));
    assert_eq!(imported.status, 200, "{}", imported.body);
    let matchers = percent(&hostile_matchers(14));
    let slow = it.begin(&format!("/api/v1/orgs/{ORG}/prometheus/api/v1/query_exemplars?query={matchers}"));
    let more = it.import(
        "application/openmetrics-text; version=1.0.0",
        "# TYPE one gauge\none 1 # {trace_id=\"b\"} 1\n# EOF\n",
    );
    assert_eq!(more.status, 200, "{}", more.body);
    it.nothing_waits_for(&slow);
}
