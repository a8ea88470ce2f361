//! Many connections: of strangers to a process with few file descriptors, and in a burst.

use std::io::Read as _;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use promlet::model::{Labels, Sample, Timestamp};
use serde_json::json;

use crate::harness::{Answer, ORG, Server, Start, bootstrap, eventually, remote_write};

/// The number of files that the process may open.
const FILES: u32 = 128;
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A connection that the kernel completes at once takes microseconds.
const CONNECT_MAX: Duration = Duration::from_secs(5);

fn open_files(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs").count()
}

/// A client that keeps its connection open.
struct Client<'s> {
    agent: ureq::Agent,
    server: &'s Server,
    secret: String,
    cookie: String,
}

impl Client<'_> {
    fn send(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request =
            ureq::http::Request::builder().method("POST").uri(format!("{}{path}", self.server.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.agent.run(request.body(body).expect("a request")).expect("an answer");
        let status = response.status().as_u16();
        let mut text = String::new();
        response.into_body().into_reader().read_to_string(&mut text).expect("a body");
        Answer { status, headers: Vec::new(), body: text }
    }

    /// Writes four thousand new series: about 400 KB in the log.
    fn write(&self, round: usize) -> Answer {
        let at = Timestamp::from_ms(promlet::clock::Clock::System.now().as_ms());
        let series: Vec<(Labels, Vec<Sample>)> = (0..4_000)
            .map(|n| {
                let name = format!("round_{round}_series_{n}_with_a_name_that_takes_its_place_in_the_log");
                (Labels::from_pairs([("__name__", &*name)]), vec![Sample { at, value: n as f64 }])
            })
            .collect();
        let bearer = format!("Bearer {}", self.secret);
        let headers = [
            ("Authorization", &*bearer),
            ("Content-Type", "application/x-protobuf"),
            ("Content-Encoding", "snappy"),
            ("X-Prometheus-Remote-Write-Version", "0.1.0"),
        ];
        self.send(&format!("/api/v1/orgs/{ORG}/write"), &headers, &remote_write(&series))
    }

    fn make_key(&self) -> Answer {
        let headers = [("Cookie", &*self.cookie), ("Content-Type", "application/json")];
        let body = json!({ "name": "beside", "scopes": ["read"] }).to_string();
        self.send(&format!("/api/v1/orgs/{ORG}/api-keys"), &headers, body.as_bytes())
    }
}

/// Runs `promlet seal` on the running server.
fn seal(dir: &Path) -> bool {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_promlet"));
    command.env_clear().args(["seal", "--data-dir"]).arg(dir);
    command.output().expect("it runs").status.success()
}

#[test]
fn idle_connections_of_strangers_leave_the_store_its_descriptors() {
    let dir = crate::harness::scratch::temporary_folder().expect("temp");
    let start = Start { args: &["serve"], dir: dir.path(), env: &bootstrap() };
    let server = Server::start_within(&start, FILES);
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(WAIT_MAX))
        .build()
        .into();
    let client = Client { agent, server: &server, secret, cookie };
    assert_eq!(client.write(0).status, 204);
    let before = open_files(&server);
    let address = server.url.trim_start_matches("http://").to_owned();
    let strangers: Vec<TcpStream> = (0..300).filter_map(|_| TcpStream::connect(&address).ok()).collect();
    assert!(strangers.len() > 200, "{}", strangers.len());
    let failure = || format!("{} open files, {before} before", open_files(&server));
    eventually(WAIT_MAX, failure, || (open_files(&server) >= before + 40).then_some(()));
    // The log needs its next file, a seal its segments, an account change its journal.
    for round in 1..6 {
        let answer = client.write(round);
        assert_eq!(answer.status, 204, "{round}: {}\n{}", answer.body, server.log());
    }
    assert!(seal(dir.path()), "{}", server.log());
    let made = client.make_key();
    assert_eq!(made.status, 201, "{}", made.body);
    assert!(open_files(&server) < FILES as usize, "all of them are in use");
    drop(strangers);
    assert_eq!(client.write(6).status, 204);
    assert!(seal(dir.path()));
    server.wait_ready();
    assert!(server.terminate().success());
}

/// Linux completes at most `net.core.somaxconn` connections for a server that does not accept them.
#[test]
fn a_burst_of_connections_waits_for_a_busy_server() {
    let dir = crate::harness::scratch::temporary_folder().expect("temp");
    let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &bootstrap() });
    let address = server.url.trim_start_matches("http://").parse().expect("an address");
    server.signal("STOP");
    let connect = |_| TcpStream::connect_timeout(&address, CONNECT_MAX);
    let burst: Result<Vec<_>, _> = (0..500).map(connect).collect();
    server.signal("CONT");
    assert_eq!(burst.as_ref().map(Vec::len).map_err(|error| error.kind()), Ok(500));
    server.wait_ready();
    assert!(server.terminate().success());
}
