//! The cost of a query that another server answers.

use std::path::Path;
use std::time::Duration;

use promlet::clock::{Clock, Stopwatch};
use serde_json::json;

use crate::Bodies;
use crate::harness::{ORG, Server, Start, bootstrap, percent, request};
use crate::median::median;
use crate::sender::{Destination, send};
use crate::servers::{Peer, free_port, nginx, prometheus_server, started};

/// The number of times that each query is sent to each server.
const RUNS: usize = 300;
/// What promlet may add to the time of a query: milliseconds, and a share of it.
const MORE_MS: f64 = 0.3;
const MORE_SHARE: f64 = 0.05;

/// Queries with small and large answers.
const QUERIES: [(&str, &str); 5] = [
    ("one series", "up{instance=\"host-7\"}"),
    ("one rate", "rate(node_network_bytes_total{instance=\"host-7\", device=\"eth0\"}[5m])"),
    ("sum of all rates", "sum(rate(node_network_bytes_total[5m]))"),
    ("rates by host", "sum by (instance) (rate(node_network_bytes_total[5m]))"),
    ("a thousand series", "node_filesystem_free_bytes"),
];

pub(crate) fn measure(bodies: &Bodies) {
    let folder = tempfile::tempdir().expect("a folder");
    let (_peer, url) = prometheus_server(&folder.path().join("prometheus"));
    let (_proxy, proxy) = plain_proxy(folder.path(), &url);
    send(&Destination::peer(&url), &bodies.all, 1);
    let args = ["serve", "--outbound-allow", "127.0.0.1", "--rate-cabinet-rps", "10000"];
    let dir = folder.path().join("promlet");
    let server = Server::start(&Start { args: &args, dir: &dir, env: &bootstrap() });
    let cookie = server.sign_in();
    let engine = json!({ "engine": "upstream", "url": url }).to_string();
    let headers = [("Cookie", &*cookie), ("Content-Type", "application/json")];
    let path = format!("{}/api/v1/orgs/{ORG}/engine", server.url);
    let set = request("PUT", &path, &headers, Some(engine.as_bytes()));
    assert_eq!(set.status, 200, "{}", set.body);
    let ours = format!("{}/api/v1/orgs/{ORG}/prometheus/api/v1", server.url);
    let theirs = format!("{url}/api/v1");
    let relayed = format!("{proxy}/api/v1");
    let end_s = Clock::System.now().as_s() - 60;
    let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(60)));
    let agent: ureq::Agent = config.build().into();
    let timed = |base: &str, path: &str| {
        let watch = Stopwatch::start();
        let mut response =
            agent.get(format!("{base}/{path}")).header("Cookie", &cookie).call().expect("a response");
        let body = response.body_mut().with_config().limit(1 << 30).read_to_vec().expect("a body");
        (watch.elapsed().as_secs_f64() * 1e3, body.len())
    };
    println!("\nupstream, milliseconds          direct   nginx   promlet   more   allowed      bytes");
    for (name, expr) in QUERIES {
        let text = percent(expr);
        let range = format!("start={}&end={end_s}&step=60", end_s - 3_000);
        let paths = [
            ("now", format!("query?query={text}&time={end_s}&nocache=1")),
            ("range", format!("query_range?query={text}&{range}&nocache=1")),
        ];
        for (kind, path) in paths {
            let (mut direct, mut through_nginx, mut proxied, mut bytes) =
                (Vec::new(), Vec::new(), Vec::new(), 0);
            for run in 0..RUNS {
                // The first run of each warms caches and connections.
                let (ms, _) = timed(&theirs, &path);
                let (nginx_ms, _) = timed(&relayed, &path);
                let (our_ms, length) = timed(&ours, &path);
                if run > 0 {
                    direct.push(ms);
                    through_nginx.push(nginx_ms);
                    proxied.push(our_ms);
                }
                bytes = length;
            }
            let (direct, nginx, proxied) = (median(&direct), median(&through_nginx), median(&proxied));
            let allowed = MORE_MS + direct * MORE_SHARE;
            let name = format!("{name}, {kind}");
            let more = proxied - direct;
            println!(
                "{name:<28} {direct:>9.2} {nginx:>7.2} {proxied:>9.2} {more:>6.2} {allowed:>9.2} {bytes:>10}"
            );
        }
    }
}

/// An nginx that passes everything on as it arrives and checks nothing: what any proxy adds.
fn plain_proxy(folder: &Path, upstream: &str) -> (Peer, String) {
    let (port, address) = (free_port(), upstream.trim_start_matches("http://"));
    let http = format!(
        "upstream prometheus {{ server {address}; keepalive 4; }}
         server {{
            listen 127.0.0.1:{port};
            location / {{
                proxy_pass http://prometheus;
                proxy_http_version 1.1;
                proxy_set_header Connection \"\";
                proxy_buffering off;
                proxy_buffer_size 64k;
                proxy_buffers 8 64k;
                proxy_busy_buffers_size 128k;
            }}
         }}"
    );
    started(&mut nginx(&folder.join("nginx"), &http), port)
}
