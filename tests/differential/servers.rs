//! The two servers, a real Prometheus and promlet, with the same samples.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::comparison::QueryResponse;
use super::harness::{ORG, Server, Start, bootstrap, compressed, eventually, percent};
use super::packages::prometheus;

/// The times of a query in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EvalTimes {
    At(i64),
    From { start: i64, end: i64, step: i64 },
}

pub(crate) struct ServerPair {
    upstream: String,
    prometheus: Child,
    server: Server,
    cookie: String,
    secret: String,
    agent: ureq::Agent,
    /// Whether both servers remove names at the end of a query.
    pub(crate) delayed_name_removal: bool,
    _dir: tempfile::TempDir,
}

impl Drop for ServerPair {
    fn drop(&mut self) {
        let _ = self.prometheus.kill();
        let _ = self.prometheus.wait();
    }
}

impl ServerPair {
    pub(crate) fn start(delayed_name_removal: bool) -> ServerPair {
        let programs = prometheus();
        let dir = tempfile::tempdir().expect("a folder");
        let delayed = if delayed_name_removal { ",promql-delayed-name-removal" } else { "" };
        let features =
            format!("promql-experimental-functions,promql-duration-expr,native-histograms{delayed}");
        let server = Server::start(&Start {
            args: &["serve", "--enable-feature", &features, "--rate-cabinet-rps", "10000"],
            dir: &dir.path().join("store"),
            env: &bootstrap(),
        });
        let cookie = server.sign_in();
        let (_, secret) = server.api_key(&cookie);
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port")
            .port();
        let config = dir.path().join("prometheus.yml");
        std::fs::write(&config, "global: {}\n").expect("written");
        let prometheus = Command::new(programs.join("prometheus"))
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("prometheus").display()))
            .arg("--storage.tsdb.retention.time=100y")
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--web.enable-remote-write-receiver")
            .arg(format!("--enable-feature={features}"))
            .arg("--log.level=warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("Prometheus starts");
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .build()
            .into();
        let upstream = format!("http://127.0.0.1:{port}");
        let pair = ServerPair {
            upstream,
            prometheus,
            server,
            cookie,
            secret,
            agent,
            delayed_name_removal,
            _dir: dir,
        };
        let failure = || "Prometheus is not ready".to_owned();
        eventually(Duration::from_secs(60), failure, || pair.ready());
        pair
    }

    fn ready(&self) -> Option<()> {
        let answer = self.agent.get(format!("{}/-/ready", self.upstream)).call().ok()?;
        (answer.status() == 200).then_some(())
    }

    /// Sends the same samples to both servers.
    pub(crate) fn write(&self, requests: &[Vec<u8>]) {
        for request in requests {
            let body = compressed(request);
            let ours = self.server.write_raw(&self.secret, &body);
            assert_eq!(ours.status, 204, "promlet: {}", ours.body);
            let theirs = self
                .agent
                .post(format!("{}/api/v1/write", self.upstream))
                .header("Content-Type", "application/x-protobuf")
                .header("Content-Encoding", "snappy")
                .header("X-Prometheus-Remote-Write-Version", "0.1.0")
                .send(&body[..]);
            let mut theirs = theirs.expect("Prometheus answers");
            let message = theirs.body_mut().read_to_string().unwrap_or_default();
            assert_eq!(theirs.status(), 204, "Prometheus: {message}");
        }
    }

    pub(crate) fn prometheus(&self, text: &str, times: EvalTimes) -> QueryResponse {
        self.get(&format!("{}/api/v1/{}", self.upstream, query(text, times)), None)
    }

    pub(crate) fn promlet(&self, text: &str, times: EvalTimes) -> QueryResponse {
        let mount = format!("{}/api/v1/orgs/{ORG}/prometheus/api/v1", self.server.url);
        self.get(&format!("{mount}/{}", query(text, times)), Some(&self.cookie))
    }

    fn get(&self, url: &str, cookie: Option<&str>) -> QueryResponse {
        let mut request = self.agent.get(url);
        if let Some(cookie) = cookie {
            request = request.header("Cookie", cookie);
        }
        let mut answer = request.call().unwrap_or_else(|e| panic!("{url}: {e}\n{}", self.server.log()));
        let status = answer.status().as_u16();
        let body = answer
            .body_mut()
            .with_config()
            .limit(1 << 28)
            .read_to_string()
            .unwrap_or_else(|e| panic!("{url}: {e}"));
        let body = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{url}: {e}: {body}"));
        QueryResponse { status, body }
    }
}

fn query(text: &str, times: EvalTimes) -> String {
    let seconds = |ms: i64| format!("{}.{:03}", ms / 1_000, ms % 1_000);
    match times {
        EvalTimes::At(at) => format!("query?query={}&time={}", percent(text), seconds(at)),
        EvalTimes::From { start, end, step } => format!(
            "query_range?query={}&start={}&end={}&step={}",
            percent(text),
            seconds(start),
            seconds(end),
            seconds(step)
        ),
    }
}
