//! Notifications with their real peers: Alertmanager and amtool of Debian, a mail server
//! (aiosmtpd), and a webhook receiver that checks signatures. The server is killed in between.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/mail_server.rs"]
mod mail_server;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;
#[path = "peers/servers.rs"]
#[expect(dead_code, reason = "shared: each target needs other servers")]
mod servers;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use harness::{ORG, Server, Start, bootstrap, eventually, request};
use mail_server::{MailServer, certificates};
use packages::{debian, run};
use promlet::clock::Clock;
use promlet::notify::message::sign_webhook;
use serde_json::{Value as Json, json};
use servers::{Peer, free_port, started};

const WAIT_MAX: Duration = Duration::from_secs(60);
const KEY: &str = "the key of the webhook";

/// The folder of templates that Debian's build of Alertmanager reads.
const TEMPLATES: &str = "/usr/share/prometheus/alertmanager";

/// Copies Alertmanager with its folder of templates replaced by the working directory, because the
/// package is unpacked and not installed.
fn relocated(program: &Path, to: &Path) {
    let mut bytes = std::fs::read(program).expect("the program of the package");
    // A relative path of the same length.
    let here = format!(".{}.", "/".repeat(TEMPLATES.len() - 2));
    let places: Vec<usize> = (0..bytes.len() - here.len())
        .filter(|at| bytes[*at] == b'/' && bytes[*at..].starts_with(TEMPLATES.as_bytes()))
        .collect();
    for at in places {
        bytes[at..at + here.len()].copy_from_slice(here.as_bytes());
    }
    std::fs::write(to, bytes).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(to, mode).expect("executable");
}

/// Starts Alertmanager with one receiver that sends nothing. Returns its URL and amtool.
fn alertmanager(dir: &Path) -> (Peer, String, PathBuf) {
    let root = debian("alertmanager", &["prometheus-alertmanager"]);
    let programs = root.join("usr/bin");
    std::fs::create_dir_all(dir).expect("a folder");
    let program = dir.join("alertmanager");
    relocated(&programs.join("prometheus-alertmanager"), &program);
    let config = dir.join("alertmanager.yml");
    std::fs::write(&config, "route:\n  receiver: none\nreceivers:\n- name: none\n").expect("written");
    let port = free_port();
    let mut command = Command::new(program);
    command
        .current_dir(root.join(TEMPLATES.trim_start_matches('/')))
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.path={}", dir.join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .arg("--cluster.listen-address=");
    let (peer, url) = started(&mut command, port);
    (peer, url, programs.join("amtool"))
}

/// A webhook receiver: it checks each signature, and returns the bodies in order.
fn webhooks() -> (String, Receiver<Json>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let (said, received) = channel();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let (mut bytes, mut piece) = (Vec::new(), [0; 8_192]);
            let (head, body) = loop {
                let read = stream.read(&mut piece).unwrap_or(0);
                assert!(read > 0, "a whole request");
                bytes.extend(&piece[..read]);
                let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
                let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
                let length = header(&head, "content-length").parse::<usize>().expect("a length");
                if bytes.len() >= end + 4 + length {
                    break (head, bytes[end + 4..].to_vec());
                }
            };
            let timestamp: i64 = header(&head, "x-promlet-timestamp").parse().expect("seconds");
            assert!((Clock::System.now().as_s() - timestamp).abs() < 60, "{timestamp}");
            let expected = sign_webhook(KEY, timestamp, &body).expect("a signature");
            assert_eq!(header(&head, "x-promlet-signature"), expected);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer).expect("answered");
            let _ = said.send(serde_json::from_slice(&body).expect("JSON"));
        }
    });
    (url, received)
}

fn header(head: &str, name: &str) -> String {
    let found = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    found.unwrap_or_else(|| panic!("no {name} in {head}")).to_owned()
}

struct Stage {
    server: Server,
    cookie: String,
    secret: String,
}

impl Stage {
    fn mount(&self) -> String {
        format!("{}/api/v1/orgs/{ORG}/alertmanager", self.server.url)
    }

    /// Sends an alert, as rules do while it fires; one with an end is resolved.
    fn send(&self, name: &str, is_resolved: bool) {
        let now = Clock::System.now();
        let end = if is_resolved { now } else { now.plus_ms(240_000) };
        let body = json!([{
            "labels": { "alertname": name, "severity": "page" },
            "annotations": { "summary": format!("{name} is broken") },
            "startsAt": now.to_rfc3339(),
            "endsAt": end.to_rfc3339(),
        }]);
        let path = format!("/api/v1/orgs/{ORG}/alertmanager/api/v2/alerts");
        let bearer = format!("Bearer {}", self.secret);
        let answer = self.server.post_json(&path, &[("Authorization", &bearer)], &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    fn configure(&self, hook: &str, alertmanager: &str) {
        let configuration = json!({
            "alertmanagers": [{ "id": "am", "url": alertmanager }],
            "route": { "receiver": "all", "group_by": ["alertname"], "group_wait": "0s", "group_interval": "1s" },
            "receivers": [{
                "name": "all",
                "webhook_configs": [{ "id": "hook", "url": hook, "secret": KEY }],
                "email_configs": [{ "id": "mail", "to": ["ops@example.com"] }],
            }],
        });
        let url = format!("{}/api/v1/orgs/{ORG}/notifications", self.server.url);
        let headers =
            [("Cookie", self.cookie.as_str()), ("If-Match", "*"), ("Content-Type", "application/json")];
        let stored = request("PUT", &url, &headers, Some(configuration.to_string().as_bytes()));
        assert_eq!(stored.status, 200, "{}", stored.body);
    }

    fn amtool(&self, amtool: &Path, dir: &Path, words: &[&str]) -> String {
        let config = dir.join("amtool.yml");
        let text = format!("authorization:\n  type: Bearer\n  credentials: {}\n", self.secret);
        std::fs::write(&config, text).expect("written");
        let mut command = Command::new(amtool);
        command
            .arg(format!("--alertmanager.url={}", self.mount()))
            .arg(format!("--http.config.file={}", config.display()))
            .args(words);
        run(&mut command, "amtool of prometheus-alertmanager is needed")
    }
}

fn prints(alerts: &Json) -> Vec<String> {
    let text = |alert: &Json| alert["fingerprint"].as_str().expect("a text").to_owned();
    let mut all: Vec<String> = alerts.as_array().expect("a list").iter().map(text).collect();
    all.sort();
    all
}

#[test]
fn alertmanager_amtool_mail_and_webhook_get_each_alert_once_over_kills() {
    let dir = tempfile::tempdir().expect("a folder");
    certificates(dir.path());
    let mails = MailServer::start(dir.path());
    let (_peer, alertmanager, amtool) = alertmanager(&dir.path().join("alertmanager"));
    let (hook, bodies) = webhooks();
    let smtp = dir.path().join("smtp-url");
    std::fs::write(&smtp, mails.url() + "\n").expect("written");
    let ca = dir.path().join("ca.pem");
    let own = [
        ("PROMLET_SMTP_URL_FILE", smtp.to_str().expect("UTF-8")),
        ("PROMLET_MAIL_FROM", "promlet <promlet@metrics.example>"),
        ("PROMLET_SMTP_CA_FILE", ca.to_str().expect("UTF-8")),
    ];
    let env: Vec<_> = bootstrap().into_iter().chain(own).collect();
    let store = dir.path().join("store");
    let args = ["serve", "--outbound-allow", "127.0.0.1"];
    let serve = || Server::start(&Start { args: &args, dir: &store, env: &env });
    let server = serve();
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    let mut stage = Stage { server, cookie, secret };
    stage.configure(&hook, &alertmanager);

    stage.send("Broken", false);
    let body = bodies.recv_timeout(WAIT_MAX).expect("a webhook");
    assert_eq!((&body["version"], &body["status"]), (&json!("4"), &json!("firing")), "{body}");
    assert_eq!(body["alerts"][0]["annotations"]["summary"], "Broken is broken");
    let mail = mails.next("ops@example.com");
    assert_eq!(mail["subject"], "[FIRING:1] Broken");
    let theirs = format!("{alertmanager}/api/v2/alerts");
    let has_alerts = || {
        let alerts = request("GET", &theirs, &[], None).json();
        (alerts.as_array().map(Vec::len) == Some(1)).then_some(alerts)
    };
    let alerts = eventually(WAIT_MAX, || "Alertmanager has no alert".to_owned(), has_alerts);
    let bearer = format!("Bearer {}", stage.secret);
    let headers = [("Authorization", bearer.as_str())];
    let ours = request("GET", &format!("{}/api/v2/alerts", stage.mount()), &headers, None).json();
    assert_eq!(prints(&ours), prints(&alerts), "both show the same fingerprints");

    // amtool reads and silences.
    let listed = stage.amtool(&amtool, dir.path(), &["alert", "query"]);
    assert!(listed.contains("Broken") && listed.contains("active"), "{listed}");
    let words = ["silence", "add", "alertname=Quiet", "--comment=works", "--author=ada", "--duration=1h"];
    let id = stage.amtool(&amtool, dir.path(), &words).trim().to_owned();
    let listed = stage.amtool(&amtool, dir.path(), &["silence", "query"]);
    assert!(listed.contains(&id) && listed.contains("Quiet"), "{listed}");
    stage.send("Quiet", false);

    // The server is killed repeatedly while the alert fires, and no message is repeated.
    for _ in 0..5 {
        stage.server.kill();
        stage.server = serve();
        stage.cookie = stage.server.sign_in();
        stage.send("Broken", false);
        stage.send("Quiet", false);
    }
    // The start of an alert that fires is the first that was reported.
    let first = body["alerts"][0]["startsAt"].as_str().expect("a text").to_owned();
    stage.send("Second", false);
    let second = bodies.recv_timeout(WAIT_MAX).expect("a webhook");
    assert_eq!(second["alerts"][0]["labels"]["alertname"], "Second", "nothing was repeated: {second}");
    assert_eq!(mails.next("ops@example.com")["subject"], "[FIRING:1] Second");

    // The silence has survived; amtool ends it.
    let listed = stage.amtool(&amtool, dir.path(), &["silence", "query"]);
    assert!(listed.contains(&id), "{listed}");
    stage.amtool(&amtool, dir.path(), &["silence", "expire", &id]);
    let quiet = bodies.recv_timeout(WAIT_MAX).expect("a webhook");
    assert_eq!(quiet["alerts"][0]["labels"]["alertname"], "Quiet", "{quiet}");
    assert_eq!(mails.next("ops@example.com")["subject"], "[FIRING:1] Quiet");

    // Resolved, and killed before or after the message: it arrives once.
    stage.send("Broken", true);
    let resolved = bodies.recv_timeout(WAIT_MAX).expect("a webhook");
    assert_eq!(resolved["status"], "resolved", "{resolved}");
    assert_eq!(resolved["alerts"][0]["startsAt"], first.as_str(), "{resolved}");
    assert_eq!(mails.next("ops@example.com")["subject"], "[RESOLVED] Broken");
    let url = format!("{}/api/v1/orgs/{ORG}/notifications/status", stage.server.url);
    let stored = || {
        let state = request("GET", &url, &[("Cookie", stage.cookie.as_str())], None).json();
        (state["alerts"] == 2).then_some(())
    };
    eventually(WAIT_MAX, || "the resolved alert is not settled".to_owned(), stored);
    stage.server.kill();
    stage.server = serve();
    stage.cookie = stage.server.sign_in();
    stage.send("Broken", true);
    stage.send("Third", false);
    let third = bodies.recv_timeout(WAIT_MAX).expect("a webhook");
    assert_eq!(third["alerts"][0]["labels"]["alertname"], "Third", "nothing was repeated: {third}");
    assert_eq!(mails.next("ops@example.com")["subject"], "[FIRING:1] Third");
}
