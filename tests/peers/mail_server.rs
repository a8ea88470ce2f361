//! A real mail server (aiosmtpd, over STARTTLS and with a login) for the tests that receive mail.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::packages::{pypi, run};

const AIOSMTPD: &str = "aiosmtpd==1.4.6";
pub(crate) const USER: &str = "promlet";
pub(crate) const SECRET: &str = "a mail server's password";

/// An authority and a certificate of its for `localhost`, in `dir`.
pub(crate) fn certificates(dir: &Path) {
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
pub(crate) struct MailServer {
    child: Child,
    pub(crate) port: u16,
    pub(crate) received: Receiver<Json>,
}

impl MailServer {
    pub(crate) fn start(certificates: &Path) -> MailServer {
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

    pub(crate) fn url(&self) -> String {
        let password = crate::harness::percent(SECRET);
        format!("smtp://{USER}:{password}@localhost:{}?tls=required", self.port)
    }

    /// The next mail, which must have come to `to`, over TLS and logged in.
    pub(crate) fn next(&self, to: &str) -> Json {
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
