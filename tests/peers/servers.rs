//! Real servers for tests: Prometheus and VictoriaMetrics on free ports of loopback, and writes
//! to them.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::harness::{eventually, request};
use crate::packages::{debian, latest_debian, prometheus};

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

/// Starts a program, and waits until it listens on all `ports`. Returns `None` if it ends before,
/// for example because another program took a port first.
pub(crate) fn listening(command: &mut Command, ports: &[u16]) -> Option<Peer> {
    let child = command.stdin(Stdio::null()).spawn();
    let mut peer = Peer(child.unwrap_or_else(|error| panic!("{command:?} does not start: {error}")));
    let failure = || format!("{command:?} does not listen");
    let ended = eventually(START_MAX, failure, || {
        let ended = peer.0.try_wait().expect("a child");
        let listens = ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok());
        (ended.is_some() || listens).then_some(ended)
    });
    if let Some(status) = ended {
        eprintln!("{command:?} ended with {status}");
        return None;
    }
    Some(peer)
}

/// Starts a program that listens on `port`, without its output. Returns its URL.
pub(crate) fn started(command: &mut Command, port: u16) -> (Peer, String) {
    let peer = listening(command.stdout(Stdio::null()).stderr(Stdio::null()), &[port]);
    (peer.expect("a program that listens"), format!("http://127.0.0.1:{port}"))
}

/// An nginx of one process, whose files are in `dir`. `http` is the content of its block of this
/// name.
pub(crate) fn nginx(dir: &Path, http: &str) -> Command {
    std::fs::create_dir_all(dir).expect("a folder");
    let (file, shown) = (dir.join("nginx.conf"), dir.display());
    let config = format!(
        "daemon off; master_process off; pid {shown}/pid; error_log {shown}/error.log;
         events {{ worker_connections 64; }}
         http {{
            access_log off;
            client_body_temp_path {shown}/a; proxy_temp_path {shown}/b; fastcgi_temp_path {shown}/c;
            uwsgi_temp_path {shown}/d; scgi_temp_path {shown}/e;
            {http}
         }}"
    );
    std::fs::write(&file, config).expect("written");
    let mut command = Command::new(debian("nginx", &["nginx"]).join("usr/sbin/nginx"));
    command.args(["-e", "stderr", "-p"]).arg(dir).arg("-c").arg(&file);
    command
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
