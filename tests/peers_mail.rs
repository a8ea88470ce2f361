//! Mail through a real server (aiosmtpd, over STARTTLS and with a login): links in mails work,
//! notices follow, and a server with an untrusted certificate receives nothing.
//!
//! aiosmtpd comes from PyPI into a folder below `target/`, certificates from openssl; if either is
//! unavailable, the test fails and reports it.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use harness::{EMAIL, PASSWORD, Server, Start, bootstrap};
use packages::{pypi, run};
use serde_json::{Value as Json, json};

const AIOSMTPD: &str = "aiosmtpd==1.4.6";
const USER: &str = "promlet";
const SECRET: &str = "a mail server's password";
const FROM: &str = "promlet <promlet@metrics.example>";

/// An authority and a certificate of its for `localhost`, in `dir`.
fn certificates(dir: &Path) {
    let openssl = |words: &[&str]| {
        run(Command::new("openssl").args(words).current_dir(dir), "openssl is needed");
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
    let authority = ["req", "-x509", "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem"];
    openssl(&[&authority[..], &key].concat());
    let request = ["req", "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"];
    openssl(&[&request[..], &key[..5]].concat());
    std::fs::write(dir.join("names"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
        .expect("written");
    let sign = ["x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
    openssl(&[&sign[..], &["-days", "2", "-extfile", "names", "-out", "server.pem"]].concat());
}

/// A running mail server; killed when dropped.
struct MailServer {
    child: Child,
    port: u16,
    received: Receiver<Json>,
}

impl MailServer {
    fn start(certificates: &Path) -> MailServer {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/smtp.py");
        let mut child = Command::new("python3")
            .arg(script)
            .args([certificates.join("server.pem"), certificates.join("server.key")])
            .args([USER, SECRET])
            .env("PYTHONPATH", pypi("smtp", AIOSMTPD))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let pipe = child.stdout.take().expect("piped");
        let (said, received) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let _ = said.send(serde_json::from_str::<Json>(&line).expect("JSON"));
            }
        });
        let port = received.recv_timeout(Duration::from_secs(60)).expect("it listens");
        let port = u16::try_from(port.as_u64().expect("a port")).expect("a port");
        MailServer { child, port, received }
    }

    fn url(&self) -> String {
        let password = harness::percent(SECRET);
        format!("smtp://{USER}:{password}@localhost:{}?tls=required", self.port)
    }

    /// The next mail, which must have come to `to`, over TLS and logged in.
    fn next(&self, to: &str) -> Json {
        let mail = self.received.recv_timeout(Duration::from_secs(60)).expect("a mail");
        assert_eq!(
            (&mail["to"], &mail["tls"], &mail["user"]),
            (&json!([to]), &json!(true), &json!(USER)),
            "{mail}"
        );
        assert_eq!(mail["from"], "promlet@metrics.example");
        assert_eq!(mail["headers"]["to"], to);
        mail
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        // Gone already is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The link in a mail, without what it begins with.
fn token<'a>(mail: &'a Json, begins: &str) -> &'a str {
    let body = mail["body"].as_str().expect("text");
    let link = body.lines().find_map(|line| line.strip_prefix(begins));
    link.unwrap_or_else(|| panic!("no link {begins} in {body}"))
}

fn serve(dir: &Path, mail: &MailServer, more: &[(&str, &str)]) -> Server {
    // A secret may come in a file, whose line end is not part of it.
    let url = dir.join("smtp-url");
    std::fs::write(&url, mail.url() + "\n").expect("written");
    let url = url.to_str().expect("UTF-8");
    let own = [("PROMLET_SMTP_URL_FILE", url), ("PROMLET_MAIL_FROM", FROM), ("PROMLET_SIGNUP", "open")];
    let env: Vec<_> = bootstrap().into_iter().chain(own).chain(more.iter().copied()).collect();
    let store = dir.join("store");
    Server::start(&Start { args: &["serve"], dir: &store, env: &env })
}

#[test]
fn links_arrive_by_smtp_are_used_and_notices_follow() {
    let dir = tempfile::tempdir().expect("a folder");
    certificates(dir.path());
    let mails = MailServer::start(dir.path());
    let ca = dir.path().join("ca.pem");
    let more = [("PROMLET_SMTP_CA_FILE", ca.to_str().expect("UTF-8")), ("PROMLET_LOG", "trace")];
    let server = serve(dir.path(), &mails, &more);
    let post = |path: &str, body: &Json| server.post_json(&format!("/api/v1/auth{path}"), &[], body);
    assert_eq!(server.get("/api/v1/auth/config", &[]).json()["mailer"], "smtp");

    // A sign-in link: scanners may look at it as often as they like.
    assert_eq!(post("/magic-link/request", &json!({ "email": EMAIL })).status, 202);
    let mail = mails.next(EMAIL);
    assert_eq!(mail["subject"], "Your sign-in link");
    let begins = format!("{}/api/v1/auth/magic-link/verify?token=", server.url);
    let link = token(&mail, &begins);
    for _ in 0..3 {
        let page = server.get(&format!("/api/v1/auth/magic-link/verify?token={link}"), &[]);
        assert!(page.status == 200 && page.body.contains("<form"), "{}", page.body);
    }
    let signed = post("/magic-link/verify", &json!({ "token": link, "email": EMAIL }));
    assert_eq!(signed.status, 200, "{}", signed.body);
    signed.session_cookie();

    // A new password.
    assert_eq!(post("/password/reset/request", &json!({ "email": EMAIL })).status, 202);
    let mail = mails.next(EMAIL);
    let reset = token(&mail, &format!("{}/login/reset#token=", server.url));
    let new = json!({ "token": reset, "email": EMAIL, "new_password": "another long password" });
    assert_eq!(post("/password/reset/confirm", &new).status, 200);
    assert_eq!(mails.next(EMAIL)["subject"], "Your password was changed");
    assert_eq!(post("/login", &json!({ "email": EMAIL, "password": "another long password" })).status, 200);

    // A new account, and a notice to an address that already has one.
    let grace = "grace.hopper+metrics@example.com";
    assert_eq!(post("/signup", &json!({ "email": grace })).status, 202);
    let mail = mails.next(grace);
    let signup = token(&mail, &format!("{}/login/signup#token=", server.url));
    let made = post("/signup/complete", &json!({ "token": signup, "email": grace, "password": PASSWORD }));
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(post("/signup", &json!({ "email": grace })).status, 202);
    assert_eq!(mails.next(grace)["subject"], "You already have an account");

    // A new address: the old one gets a notice.
    let cookie = made.session_cookie();
    let change = json!({ "new_email": "hopper@example.com" });
    let asked = server.post_json("/api/v1/auth/email/change", &[("Cookie", &cookie)], &change);
    assert_eq!(asked.status, 202, "{}", asked.body);
    let mail = mails.next("hopper@example.com");
    let address = token(&mail, &format!("{}/login/email#token=", server.url));
    assert_eq!(post("/email/confirm", &json!({ "token": address })).status, 200);
    assert_eq!(mails.next(grace)["subject"], "The address of your account was changed");

    let log = server.log();
    for secret in [link, reset, signup, address, SECRET, &harness::percent(SECRET), PASSWORD, "another long"]
    {
        assert!(!log.contains(secret), "{secret} in the log");
    }
}

#[test]
fn a_mail_server_that_nobody_vouches_for_gets_nothing_and_nobody_waits_for_it() {
    let dir = tempfile::tempdir().expect("a folder");
    certificates(dir.path());
    let mails = MailServer::start(dir.path());
    let server = serve(dir.path(), &mails, &[]);
    let asked = server.post_json("/api/v1/auth/magic-link/request", &[], &json!({ "email": EMAIL }));
    assert_eq!(asked.status, 202);
    server.log_line("a mail was not sent");
    assert!(mails.received.try_recv().is_err());
    let log = server.log();
    assert!(
        !log.contains("mgl_") && !log.contains(SECRET) && !log.contains(&harness::percent(SECRET)),
        "{log}"
    );
}
