//! The built binary, started in an empty folder, used over HTTP, stopped or killed.

#[path = "eventually.rs"]
mod eventually;
#[path = "process_stats.rs"]
pub(crate) mod process_stats;
#[path = "../../src/kv/scratch.rs"]
pub(crate) mod scratch;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) use eventually::eventually;
use promlet::model::{Labels, Sample};
use serde_json::Value as Json;

/// How long a wait may take before the test fails with its reason. Generous, because builders are
/// slow.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub(crate) const EMAIL: &str = "ada@example.com";
pub(crate) const PASSWORD: &str = "correct horse battery staple";
pub(crate) const ORG: &str = "acme";

/// A running promlet process, which is killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    stdout: Mutex<Receiver<String>>,
    stderr: Arc<Mutex<String>>,
}

/// The arguments, folder and environment of a start.
pub(crate) struct Start<'a> {
    pub(crate) args: &'a [&'a str],
    pub(crate) dir: &'a Path,
    pub(crate) env: &'a [(&'a str, &'a str)],
}

impl Server {
    /// Starts `promlet serve` with the bootstrap account in `dir`.
    pub(crate) fn serve(dir: &Path) -> Server {
        Server::start(&Start { args: &["serve"], dir, env: &bootstrap() })
    }

    /// Starts and waits until `/readyz` returns 200.
    pub(crate) fn start(start: &Start<'_>) -> Server {
        let server = Server::spawn(start, "listening on ");
        server.wait_ready();
        server
    }

    /// Starts at the address in the arguments and waits until `/readyz` returns 200.
    pub(crate) fn start_at(start: &Start<'_>) -> Server {
        let server = Server::run(command_at(start), "listening on ");
        server.wait_ready();
        server
    }

    /// Starts and waits until the store is open, possibly read-only.
    pub(crate) fn start_damaged(start: &Start<'_>) -> Server {
        Server::spawn(start, "listening on ")
    }

    /// Starts and waits until the address is bound, which is before the store is open.
    pub(crate) fn start_early(start: &Start<'_>) -> Server {
        Server::spawn(start, "health is served on ")
    }

    /// As [`Server::start`], with at most `files` open files.
    pub(crate) fn start_within(start: &Start<'_>, files: u32) -> Server {
        let inner = command(start);
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("ulimit -n {files} && exec \"$0\" \"$@\"")).arg(inner.get_program());
        let set = inner.get_envs().filter_map(|(name, value)| Some((name, value?)));
        shell.args(inner.get_args()).env_clear().envs(set).stdin(Stdio::null());
        let server = Server::run(shell, "listening on ");
        server.wait_ready();
        server
    }

    /// Starts and waits for the log line in which `words` precede the address.
    fn spawn(start: &Start<'_>, words: &'static str) -> Server {
        Server::run(command(start), words)
    }

    fn run(mut command: Command, words: &'static str) -> Server {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let stderr = Arc::new(Mutex::new(String::new()));
        let (heard, listening) = channel();
        let log = Arc::clone(&stderr);
        let pipe = child.stderr.take().expect("piped");
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if let Some((_, url)) = line.split_once(words) {
                    // In a JSON log the text ends with a quotation mark.
                    let url = url.split([' ', '"']).next().unwrap_or_default();
                    let _ = heard.send(url.to_owned());
                }
                let mut log = log.lock().expect("unpoisoned");
                log.push_str(&line);
                log.push('\n');
            }
        });
        let (stdout_lines, stdout) = channel();
        let pipe = child.stdout.take().expect("piped");
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let _ = stdout_lines.send(line);
            }
        });
        let url = listening
            .recv_timeout(WAIT_MAX)
            .unwrap_or_else(|_| panic!("did not listen; its log:\n{}", stderr.lock().expect("unpoisoned")));
        Server { child, url, stdout: Mutex::new(stdout), stderr }
    }

    pub(crate) fn wait_ready(&self) {
        let failure = || format!("not ready:\n{}", self.log());
        eventually(WAIT_MAX, failure, || (self.get("/readyz", &[]).status == 200).then_some(()));
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns a size in `/proc/PID/status` in bytes, for example `VmHWM`.
    pub(crate) fn status_bytes(&self, name: &str) -> u64 {
        let bytes = process_stats::status_bytes(self.pid(), name);
        bytes.unwrap_or_else(|| panic!("no {name}: the process has ended; log:\n{}", self.log()))
    }

    /// Returns its standard error so far.
    pub(crate) fn log(&self) -> String {
        self.stderr.lock().expect("unpoisoned").clone()
    }

    /// Returns the next line of standard output for which `wanted` holds.
    pub(crate) fn line(&self, wanted: impl Fn(&str) -> bool) -> String {
        loop {
            let line = self
                .stdout
                .lock()
                .expect("unpoisoned")
                .recv_timeout(WAIT_MAX)
                .unwrap_or_else(|_| panic!("no such line on standard output; log:\n{}", self.log()));
            if wanted(&line) {
                return line;
            }
        }
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it was running");
        self.child.wait().expect("reaped");
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status()
            .expect("kill runs");
        assert!(sent.success());
    }

    /// Waits until its log contains `words` and returns the log. Lines arrive through a pipe with a
    /// delay.
    pub(crate) fn log_line(&self, words: &str) -> String {
        let failure = || format!("{words:?} is not in the log:\n{}", self.log());
        eventually(WAIT_MAX, failure, || Some(self.log()).filter(|log| log.contains(words)))
    }

    /// Sends SIGTERM and returns the exit status.
    pub(crate) fn terminate(self) -> ExitStatus {
        self.signal("TERM");
        self.ended()
    }

    /// Waits for a requested end and returns the exit status.
    pub(crate) fn ended(mut self) -> ExitStatus {
        let stderr = Arc::clone(&self.stderr);
        let failure = || format!("the process did not end:\n{}", stderr.lock().expect("unpoisoned"));
        eventually(WAIT_MAX, failure, || self.child.try_wait().expect("ours"))
    }

    pub(crate) fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        request("GET", &format!("{}{path}", self.url), headers, None)
    }

    pub(crate) fn post_json(&self, path: &str, headers: &[(&str, &str)], body: &Json) -> Answer {
        let headers: Vec<_> = [("Content-Type", "application/json")].iter().chain(headers).copied().collect();
        request("POST", &format!("{}{path}", self.url), &headers, Some(body.to_string().as_bytes()))
    }

    /// Signs in as the bootstrap account and returns the `Cookie` header.
    pub(crate) fn sign_in(&self) -> String {
        let answer = self.post_json(
            "/api/v1/auth/login",
            &[],
            &serde_json::json!({"email": EMAIL, "password": PASSWORD}),
        );
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.session_cookie()
    }

    /// Creates an API key with every scope in the bootstrap organisation and returns its id and
    /// secret.
    pub(crate) fn api_key(&self, cookie: &str) -> (String, String) {
        let body = serde_json::json!({"name": "test", "scopes": ["ingest", "read", "embed", "alerting"], "ingest": {"rate_limit_rps": 10_000, "samples_per_s": 100_000_000}});
        let answer = self.post_json(&format!("/api/v1/orgs/{ORG}/api-keys"), &[("Cookie", cookie)], &body);
        assert_eq!(answer.status, 201, "{}", answer.body);
        let made = answer.json();
        (made["id"].as_str().expect("id").to_owned(), made["secret"].as_str().expect("secret").to_owned())
    }

    /// Sends remote write 1.0 to the bootstrap organisation.
    pub(crate) fn write(&self, secret: &str, series: &[(Labels, Vec<Sample>)]) -> Answer {
        self.write_raw(secret, &remote_write(series))
    }

    /// Sends a remote write request that is already encoded and compressed.
    pub(crate) fn write_raw(&self, secret: &str, body: &[u8]) -> Answer {
        let bearer = format!("Bearer {secret}");
        let headers = [
            ("Authorization", &*bearer),
            ("Content-Type", "application/x-protobuf"),
            ("Content-Encoding", "snappy"),
            ("X-Prometheus-Remote-Write-Version", "0.1.0"),
        ];
        request("POST", &format!("{}/api/v1/orgs/{ORG}/write", self.url), &headers, Some(body))
    }

    /// Evaluates an expression at one time with the cookie and returns the `data` of the response.
    pub(crate) fn ask(&self, cookie: &str, expr: &str, time: &str) -> Json {
        let path =
            format!("/api/v1/orgs/{ORG}/query/expr-instant?expr={}&time={time}&limit=10000", percent(expr));
        let answer = self.get(&path, &[("Cookie", cookie)]);
        assert_eq!(answer.status, 200, "{expr}: {}", answer.body);
        answer.json()["data"].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may already be gone: `kill` and `terminate` end here too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the environment that creates the first account.
pub(crate) fn bootstrap() -> [(&'static str, &'static str); 3] {
    [
        ("PROMLET_BOOTSTRAP_EMAIL", EMAIL),
        ("PROMLET_BOOTSTRAP_PASSWORD", PASSWORD),
        ("PROMLET_BOOTSTRAP_ORG", ORG),
    ]
}

/// Returns the command with its own port and folder, and without this process's `PROMLET_*`.
/// The server does not store its own metrics.
pub(crate) fn command(start: &Start<'_>) -> Command {
    let mut command = command_at(start);
    command.args(["--listen", "127.0.0.1:0"]);
    command
}

/// Returns the command with its own folder, for arguments that include an address.
fn command_at(start: &Start<'_>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_promlet"));
    command.args(start.args).arg("--data-dir").arg(start.dir);
    // Hashing is weaker than in production, because the tests sign in often.
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("PROMLET_ARGON2", "64,1,1")
        // Tests count series and samples.
        .env("PROMLET_SELF_SCRAPE", "off")
        .envs(start.env.iter().copied());
    command.stdin(Stdio::null());
    command
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("no JSON ({e}): {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns `ms_session=ses_…` from `Set-Cookie`.
    pub(crate) fn session_cookie(&self) -> String {
        let set = self.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        let cookie = set
            .map(|(_, value)| value.split(';').next().unwrap_or_default())
            .find(|value| value.starts_with("ms_session=ses_"));
        cookie.unwrap_or_else(|| panic!("no session cookie in {:?}", self.headers)).to_owned()
    }
}

/// Sends one request over its own connection. A broken connection is status 0.
pub(crate) fn request(method: &str, url: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Answer {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_global(Some(WAIT_MAX))
        .build()
        .into();
    let mut builder = ureq::http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let sent = match body {
        Some(body) => agent.run(builder.body(body).expect("a valid request")),
        None => agent.run(builder.body(()).expect("a valid request")),
    };
    match sent {
        Err(error) => Answer { status: 0, headers: Vec::new(), body: error.to_string() },
        Ok(response) => {
            let status = response.status().as_u16();
            let pair = |(name, value): (&ureq::http::HeaderName, &ureq::http::HeaderValue)| {
                (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            };
            let headers = response.headers().iter().map(pair).collect();
            let mut text = Vec::new();
            match response.into_body().into_reader().read_to_end(&mut text) {
                Ok(_) => Answer { status, headers, body: String::from_utf8_lossy(&text).into_owned() },
                Err(error) => Answer { status: 0, headers, body: error.to_string() },
            }
        }
    }
}

/// Percent-encodes everything but letters, digits and `-._~`.
pub(crate) fn percent(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Encodes a remote write 1.0 request by its specification, independently of the decoder under
/// test, and compresses it.
pub(crate) fn remote_write(series: &[(Labels, Vec<Sample>)]) -> Vec<u8> {
    compressed(&write_request(series))
}

pub(crate) fn compressed(request: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(request).expect("small")
}

/// Encodes a remote write 1.0 request without compressing it, so that fields can be added.
pub(crate) fn write_request(series: &[(Labels, Vec<Sample>)]) -> Vec<u8> {
    let mut request = Vec::new();
    for (labels, samples) in series {
        let mut one = Vec::new();
        for label in labels {
            let mut pair = Vec::new();
            field(&mut pair, 1, label.name.as_bytes());
            field(&mut pair, 2, label.value.as_bytes());
            field(&mut one, 1, &pair);
        }
        for sample in samples {
            let mut pair = vec![0x09];
            pair.extend_from_slice(&sample.value.to_bits().to_le_bytes());
            pair.push(0x10);
            varint(&mut pair, u64::from_le_bytes(sample.at.as_ms().to_le_bytes()));
            field(&mut one, 2, &pair);
        }
        field(&mut request, 1, &one);
    }
    request
}

/// Appends a field of bytes.
pub(crate) fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(u8::try_from(n & 0x7f).expect("seven bits") | 0x80);
        n >>= 7;
    }
    out.push(u8::try_from(n).expect("below 128"));
}
