//! The three servers as processes on loopback, each with a folder of its own.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use promlet::clock::Stopwatch;
use serde_json::Value as Json;

use super::cpu_time;
use super::harness::{self, ORG, Start, bootstrap, eventually, process_stats};
use super::packages::{latest_debian, prometheus, run};

/// The time that a start, an end or a request may take.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(120);
/// The size of the largest response that is read.
const RESPONSE_MAX: u64 = 1 << 30;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Promlet,
    VictoriaMetrics,
    Prometheus,
}

/// A running process, which is killed by its id when dropped.
enum Process {
    Promlet(harness::Server),
    Peer(PeerProcess),
}

struct PeerProcess(Child);

impl Drop for PeerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn pid(&self) -> u32 {
        match self {
            Process::Promlet(server) => server.pid(),
            Process::Peer(peer) => peer.0.id(),
        }
    }
}

/// One of the compared servers.
pub(crate) struct Target {
    pub(crate) kind: Kind,
    /// The program of a peer.
    program: PathBuf,
    folder: PathBuf,
    process: Option<Process>,
    url: String,
    /// The session and the API key of promlet; they outlast a restart.
    cookie: String,
    bearer: String,
    agent: ureq::Agent,
}

impl Target {
    /// Prepares a server with a fresh folder below `dir` without starting it. Installs a peer that
    /// is missing.
    pub(crate) fn new(kind: Kind, dir: &Path) -> Target {
        let (program, folder) = match kind {
            Kind::Promlet => (PathBuf::new(), "promlet"),
            Kind::VictoriaMetrics => {
                let programs = latest_debian("victoria", &["victoria-metrics"]);
                (programs.join("usr/bin/victoria-metrics"), "victoria-metrics")
            }
            Kind::Prometheus => (prometheus().join("prometheus"), "prometheus"),
        };
        let config = ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0);
        Target {
            kind,
            program,
            folder: dir.join(folder),
            process: None,
            url: String::new(),
            cookie: String::new(),
            bearer: String::new(),
            agent: config.timeout_global(Some(WAIT_MAX)).build().into(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Promlet => "promlet",
            Kind::VictoriaMetrics => "VictoriaMetrics",
            Kind::Prometheus => "Prometheus",
        }
    }

    /// Returns the version: that of a peer is the newest entry of its package's changelog.
    pub(crate) fn version(&self) -> String {
        if self.kind == Kind::Promlet {
            return env!("CARGO_PKG_VERSION").to_owned();
        }
        let package = self.program.file_name().expect("a program");
        let documents = self.program.with_file_name("../share/doc").join(package);
        let changelog = documents.join("changelog.Debian.gz");
        let text = run(Command::new("zcat").arg(changelog), "the version is part of the output");
        let version = text.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
        version.expect("a version in parentheses").0.to_owned()
    }

    /// Starts the server and returns the time until it is ready.
    pub(crate) fn start(&mut self) -> Duration {
        fs::create_dir_all(&self.folder).expect("a folder");
        let started = Stopwatch::start();
        let ready = if self.kind == Kind::Promlet {
            let mut env = bootstrap().to_vec();
            env.push(("PROMLET_RATE_CABINET_RPS", "10000"));
            let start = Start { args: &["serve"], dir: &self.folder, env: &env };
            let server = harness::Server::start_early(&start);
            self.url.clone_from(&server.url);
            self.process = Some(Process::Promlet(server));
            "/readyz"
        } else {
            self.spawn_peer()
        };
        let ready = format!("{}{ready}", self.url);
        while self.agent.get(&ready).call().map_or(0, |response| response.status().as_u16()) != 200 {
            assert!(started.elapsed() < WAIT_MAX, "{} is not ready\n{}", self.name(), self.log());
            if let Some(Process::Peer(peer)) = &mut self.process {
                let ended = peer.0.try_wait().expect("our process");
                assert!(ended.is_none(), "{} ended: {ended:?}\n{}", self.name(), self.log());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let elapsed = started.elapsed();
        if let (Some(Process::Promlet(server)), true) = (&self.process, self.cookie.is_empty()) {
            self.cookie = server.sign_in();
            self.bearer = format!("Bearer {}", server.api_key(&self.cookie).1);
        }
        elapsed
    }

    /// Starts the process of a peer and returns the path of its health check.
    fn spawn_peer(&mut self) -> &'static str {
        let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = format!("127.0.0.1:{}", listener.expect("a port").port());
        self.url = format!("http://{address}");
        let mut command = Command::new(&self.program);
        let ready = if self.kind == Kind::VictoriaMetrics {
            command
                .arg(format!("-storageDataPath={}", self.folder.display()))
                .arg(format!("-httpListenAddr={address}"))
                .args(["-search.latencyOffset=0s", "-search.disableCache", "-loggerLevel=WARN"]);
            "/health"
        } else {
            let config = self.folder.with_extension("yml");
            fs::write(&config, "global: {}\n").expect("written");
            command
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", self.folder.display()))
                .arg(format!("--web.listen-address={address}"))
                .args(["--web.enable-remote-write-receiver", "--log.level=warn"]);
            "/-/ready"
        };
        let log = File::options().create(true).append(true).open(self.log_path()).expect("a log");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn();
        let child = child.unwrap_or_else(|error| panic!("{} does not start: {error}", self.name()));
        self.process = Some(Process::Peer(PeerProcess(child)));
        ready
    }

    fn log_path(&self) -> PathBuf {
        self.folder.with_extension("log")
    }

    fn log(&self) -> String {
        match &self.process {
            Some(Process::Promlet(server)) => server.log(),
            _ => fs::read_to_string(self.log_path()).unwrap_or_default(),
        }
    }

    fn pid(&self) -> u32 {
        self.process.as_ref().expect("it is running").pid()
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn stop(&mut self) {
        self.signal("TERM");
        let name = self.name();
        let failure = || format!("{name} does not end");
        match self.process.take() {
            Some(Process::Promlet(server)) => drop(server.ended()),
            Some(Process::Peer(mut peer)) => {
                eventually(WAIT_MAX, failure, || peer.0.try_wait().expect("our process"));
            }
            None => panic!("{name} was not running"),
        }
    }

    /// Sends SIGKILL, also while another thread waits for a response.
    pub(crate) fn kill(&self) {
        self.signal("KILL");
    }

    /// Collects a process that was killed.
    pub(crate) fn collect(&mut self) {
        self.process = None;
    }

    fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status().expect("kill runs");
        assert!(sent.success(), "{}: kill -{name} {pid}", self.name());
    }

    /// Sends a remote write request. Returns the reason if it is not acknowledged.
    pub(crate) fn write(&self, body: &[u8]) -> Result<(), String> {
        let path = if self.kind == Kind::Promlet {
            format!("/api/v1/orgs/{ORG}/write")
        } else {
            "/api/v1/write".to_owned()
        };
        let request = self
            .agent
            .post(format!("{}{path}", self.url))
            .header("Authorization", &self.bearer)
            .header("Content-Type", "application/x-protobuf")
            .header("Content-Encoding", "snappy")
            .header("X-Prometheus-Remote-Write-Version", "0.1.0");
        let mut response = request.send(body).map_err(|error| error.to_string())?;
        match response.status().as_u16() {
            204 => Ok(()),
            status => Err(format!("{status}: {}", response.body_mut().read_to_string().unwrap_or_default())),
        }
    }

    /// Requests a path below `/api/v1` of Prometheus' API and returns the body.
    pub(crate) fn get(&self, path: &str) -> Vec<u8> {
        let mount = match self.kind {
            Kind::Promlet => format!("/api/v1/orgs/{ORG}/prometheus/api/v1"),
            _ => "/api/v1".to_owned(),
        };
        let request = self.agent.get(format!("{}{mount}/{path}", self.url)).header("Cookie", &self.cookie);
        let response = request.call();
        let mut response = response.unwrap_or_else(|error| panic!("{}: {path}: {error}", self.name()));
        let body = response.body_mut().with_config().limit(RESPONSE_MAX).read_to_vec().expect("a body");
        let status = response.status();
        assert!(status == 200, "{}: {path}: {status}: {}", self.name(), String::from_utf8_lossy(&body));
        body
    }

    /// As [`Target::get`], parsed.
    pub(crate) fn json(&self, path: &str) -> Json {
        serde_json::from_slice(&self.get(path)).expect("JSON")
    }

    /// Makes acknowledged samples visible to queries.
    pub(crate) fn flush(&self) {
        if self.kind == Kind::VictoriaMetrics {
            let flushed = self.agent.get(format!("{}/internal/force_flush", self.url)).call();
            assert!(flushed.is_ok_and(|response| response.status() == 200), "{}: flush", self.name());
        }
    }

    /// Returns the CPU time of the process so far in seconds, with that of ended threads.
    pub(crate) fn cpu_s(&self) -> f64 {
        cpu_time::cpu_s(self.pid()).expect("a running process")
    }

    /// Returns the peak of resident memory in MiB.
    pub(crate) fn peak_mib(&self) -> f64 {
        let peak = process_stats::status_bytes(self.pid(), "VmHWM").expect("a running process");
        peak as f64 / f64::from(1 << 20)
    }

    /// Returns the bytes that the files below the folder occupy.
    pub(crate) fn disk_bytes(&self) -> u64 {
        disk_bytes(&self.folder)
    }
}

fn disk_bytes(path: &Path) -> u64 {
    let own = fs::symlink_metadata(path).expect("a file");
    let inside = if own.is_dir() {
        fs::read_dir(path).expect("a folder").map(|entry| disk_bytes(&entry.expect("an entry").path())).sum()
    } else {
        0
    };
    own.blocks() * 512 + inside
}
