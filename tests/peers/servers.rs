//! Real servers for tests: Prometheus and VictoriaMetrics on free ports of loopback, and writes
//! to them.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::harness::{eventually, request};
use crate::packages::{latest_debian, prometheus};

/// The longest time until a server is ready.
const START_MAX: Duration = Duration::from_secs(120);

/// A program that is killed when dropped.
pub(crate) struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Peer {
    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// Starts a program that listens on `port`. Returns its URL.
pub(crate) fn started(command: &mut Command, port: u16) -> (Peer, String) {
    let name = format!("{:?}", command.get_program());
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let peer = Peer(child.unwrap_or_else(|error| panic!("{name} does not start: {error}")));
    let failure = || format!("{name} does not listen");
    eventually(START_MAX, failure, || TcpStream::connect(("127.0.0.1", port)).ok());
    (peer, format!("http://127.0.0.1:{port}"))
}

/// Waits until the server has opened its store.
fn ready((peer, url): (Peer, String)) -> (Peer, String) {
    let path = format!("{url}/-/ready");
    let failure = || format!("{path} does not answer 200");
    eventually(START_MAX, failure, || (request("GET", &path, &[], None).status == 200).then_some(()));
    (peer, url)
}

/// Prometheus with its receiver of remote write, this configuration and further arguments.
pub(crate) fn prometheus_server_with(dir: &Path, config: &str, arguments: &[&str]) -> (Peer, String) {
    std::fs::create_dir_all(dir).expect("a folder");
    let file = dir.join("prometheus.yml");
    std::fs::write(&file, config).expect("written");
    let port = free_port();
    let mut command = Command::new(prometheus().join("prometheus"));
    command
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .arg("--web.enable-remote-write-receiver")
        .args(arguments);
    ready(started(&mut command, port))
}

/// Prometheus with its receiver of remote write, which scrapes nothing.
pub(crate) fn prometheus_server(dir: &Path) -> (Peer, String) {
    prometheus_server_with(dir, "global: {scrape_interval: 1h}\n", &[])
}

/// VictoriaMetrics, which shows samples at once.
pub(crate) fn victoria_metrics(dir: &Path) -> (Peer, String) {
    let port = free_port();
    let mut command =
        Command::new(latest_debian("victoria", &["victoria-metrics"]).join("usr/bin/victoria-metrics"));
    command
        .arg(format!("-storageDataPath={}", dir.display()))
        .arg(format!("-httpListenAddr=127.0.0.1:{port}"))
        .args(["-search.latencyOffset=0s", "-retentionPeriod=10y"]);
    ready(started(&mut command, port))
}

/// Sends a compressed request of remote write 1.0 to a server.
pub(crate) fn write_to(server: &str, body: &[u8]) {
    let headers = [
        ("Content-Type", "application/x-protobuf"),
        ("Content-Encoding", "snappy"),
        ("X-Prometheus-Remote-Write-Version", "0.1.0"),
    ];
    let answer = request("POST", &format!("{server}/api/v1/write"), &headers, Some(body));
    assert!(matches!(answer.status, 200 | 204), "{server}: {} {}", answer.status, answer.body);
}
