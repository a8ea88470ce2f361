//! Tests of the thread of discoveries, with real files and servers on loopback.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};

use super::super::dns::test_response as response;
use super::*;
use crate::model::EgressRules;
use crate::scrape::config::ScrapeFiles;

struct Running {
    discovery: Discovery,
    published: Receiver<DiscoveredTargets>,
    _runtime: tokio::runtime::Runtime,
}

fn start(resolver: Option<DnsResolver>) -> Running {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let (sender, published) = mpsc::channel();
    let rules = EgressRules::parse(["127.0.0.0/8"]).expect("valid");
    let deps = DiscoveryDeps {
        runtime: runtime.handle().clone(),
        egress: Egress::new(rules, &[]),
        clock: Clock::System,
        resolver,
        publish: Box::new(move |targets| drop(sender.send(targets))),
    };
    let discovery = Discovery::start(deps, Entropy::seeded(1)).expect("a thread");
    Running { discovery, published, _runtime: runtime }
}

impl Running {
    fn configure(&self, text: &str, files: &ScrapeFiles) {
        let config = ScrapeConfig::parse(text, files).unwrap_or_else(|error| panic!("{error}"));
        self.discovery.configure(Arc::new(config));
    }

    fn urls(&self) -> Vec<String> {
        let targets = self.published.recv_timeout(Duration::from_secs(20)).expect("published");
        targets.jobs.iter().flat_map(|job| &job.active).map(|target| target.url.clone()).collect()
    }

    fn error(&self) -> Option<String> {
        self.discovery
            .statuses()
            .iter()
            .flat_map(|job| &job.discoveries)
            .find_map(|status| status.error.clone())
    }
}

#[test]
fn changed_files_change_the_targets_within_seconds() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.json");
    std::fs::write(&path, r#"[{"targets": ["a:1"]}]"#).expect("written");
    let running = start(None);
    let text =
        "scrape_configs:\n- job_name: a\n  file_sd_configs: [{files: ['*.json'], refresh_interval: 1s}]\n";
    running.configure(text, &ScrapeFiles::Below(folder.path().to_owned()));
    assert_eq!(running.urls(), ["http://a:1/metrics"]);
    std::fs::write(&path, r#"[{"targets": ["b:1", "c:1"]}]"#).expect("written");
    assert_eq!(running.urls(), ["http://b:1/metrics", "http://c:1/metrics"]);
    running.configure("", &ScrapeFiles::Refused);
    assert!(running.urls().is_empty(), "no job, no target");
    running.discovery.stop();
}

/// Answers each HTTP request with the next of the bodies; the last one is repeated.
fn http_server(bodies: &'static [(&'static str, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        for (place, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            let mut buffer = [0; 4_096];
            let _ = stream.read(&mut buffer);
            let (kind, body) = bodies[place.min(bodies.len() - 1)];
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes());
        }
    });
    address
}

#[test]
fn an_http_endpoint_lists_targets_and_its_failure_keeps_them() {
    let address = http_server(&[
        ("application/json; charset=utf-8", r#"[{"targets": ["a:1"], "labels": {"zone": "eu"}}]"#),
        ("text/html", "[]"),
    ]);
    let running = start(None);
    let text = format!(
        "scrape_configs:\n- job_name: a\n  http_sd_configs: [{{url: 'http://{address}/sd?token=x', refresh_interval: 1s}}]\n"
    );
    running.configure(&text, &ScrapeFiles::Refused);
    let targets = running.published.recv_timeout(Duration::from_secs(20)).expect("published");
    let target = targets.jobs[0].active.first().expect("a target");
    assert_eq!(target.labels.to_string(), r#"{instance="a:1", job="a", zone="eu"}"#);
    assert_eq!(target.discovered.value("__meta_url"), format!("http://{address}/sd?token=x"));
    let error = (0..1_200).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        running.error()
    });
    assert_eq!(error.as_deref(), Some("unsupported content type \"text/html\""));
    assert!(running.published.try_recv().is_err(), "the targets are kept");
    let title = &running.discovery.statuses()[0].discoveries[0].title;
    assert_eq!(*title, format!("http_sd_configs: http://{address}/sd"), "a query may be secret");
}

#[test]
fn names_are_looked_up_by_udp_and_by_tcp_if_the_response_is_cut() {
    // A free port of UDP may be in use by TCP.
    let bind = || {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let tcp = TcpListener::bind(udp.local_addr().expect("bound")).ok()?;
        Some((udp, tcp))
    };
    let (udp, tcp) = std::iter::repeat_with(bind).take(1_000).flatten().next().expect("a free port");
    let address = udp.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, peer)) = udp.recv_from(&mut buffer) {
            let query = &buffer[..length];
            let mut bytes = response(query, 0, &[(1, vec![10, 0, 0, 1])]);
            if query.windows(3).any(|part| part == b"big") {
                bytes[2] |= 2;
            } else if query.windows(4).any(|part| part == b"none") {
                bytes = response(query, 3, &[]);
            }
            let _ = udp.send_to(b"another datagram", peer);
            let _ = udp.send_to(&bytes, peer);
        }
    });
    std::thread::spawn(move || {
        for stream in tcp.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut length = [0; 2];
            stream.read_exact(&mut length).expect("a length");
            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut query).expect("a query");
            let bytes = response(&query, 0, &[(1, vec![10, 0, 0, 2]), (1, vec![10, 0, 0, 3])]);
            let length = u16::try_from(bytes.len()).expect("short").to_be_bytes();
            stream.write_all(&length).and_then(|()| stream.write_all(&bytes)).expect("sent");
        }
    });
    let resolver = DnsResolver {
        servers: vec![address],
        search: vec!["none".to_owned()],
        dots_min: 1,
        timeout: Duration::from_secs(5),
        attempts: 1,
    };
    let running = start(Some(resolver));
    let text = "scrape_configs:\n- job_name: a\n  dns_sd_configs: [{names: [small, big, none.], type: A, port: 80}]\n";
    running.configure(text, &ScrapeFiles::Refused);
    let urls = running.urls();
    assert_eq!(
        urls,
        ["http://10.0.0.2:80/metrics", "http://10.0.0.3:80/metrics", "http://10.0.0.1:80/metrics"]
    );
    assert_eq!(running.error(), None);
}
