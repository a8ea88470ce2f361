//! TLS in the running process: SIGHUP reloads the certificate and keeps open connections.

use std::io::{Read as _, Write as _};
use std::path::Path;

use crate::harness::{Server, Start};
use crate::https::{Stream, connect, fixture, https};

fn put(name: &str, dir: &Path) {
    for end in ["crt", "key"] {
        std::fs::copy(fixture(&format!("{name}.{end}")), dir.join(format!("tls.{end}"))).expect("copied");
    }
}

fn port(server: &Server) -> u16 {
    server.url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Sends a request on a connection that stays open and returns the response.
fn again(stream: &mut Stream) -> String {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("written");
    let (mut answer, mut buffer) = (String::new(), [0; 1_024]);
    while !answer.ends_with("\r\n\r\nok") {
        let n = stream.read(&mut buffer).expect("readable");
        assert!(n > 0, "closed: {answer}");
        answer.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
    answer
}

#[test]
fn sighup_reloads_the_certificate_and_drops_no_connection() {
    let (dir, files) = (
        crate::harness::scratch::temporary_folder().expect("a folder"),
        crate::harness::scratch::temporary_folder().expect("a folder"),
    );
    put("one", files.path());
    let (cert, key) = (files.path().join("tls.crt"), files.path().join("tls.key"));
    let env = [
        ("PROMLET_TLS_CERT", cert.to_str().expect("text")),
        ("PROMLET_TLS_KEY", key.to_str().expect("text")),
    ];
    let server = Server::start_early(&Start { args: &["serve"], dir: dir.path(), env: &env });
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let port = port(&server);
    let mut old = connect(port, "one").expect("a connection");
    assert!(again(&mut old).starts_with("HTTP/1.1 200"));
    server.log_line("listening on https://");

    put("two", files.path());
    server.signal("HUP");
    server.log_line("the certificate was reloaded");
    assert!(https(port, "two", HEALTH).expect("the new one").ends_with("ok"));
    assert!(https(port, "one", HEALTH).is_err(), "the old one is gone");
    assert!(again(&mut old).starts_with("HTTP/1.1 200"), "no connection was dropped");

    std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\n").expect("written");
    server.signal("HUP");
    server.log_line("the certificate was not reloaded");
    assert!(https(port, "two", HEALTH).expect("still the new one").ends_with("ok"));
    assert!(server.terminate().success());
}

#[test]
fn a_start_without_a_usable_certificate_ends_with_the_reason() {
    let (dir, files) = (
        crate::harness::scratch::temporary_folder().expect("a folder"),
        crate::harness::scratch::temporary_folder().expect("a folder"),
    );
    put("one", files.path());
    std::fs::copy(fixture("two.key"), files.path().join("tls.key")).expect("copied");
    let mut command = crate::harness::command(&Start {
        args: &["serve"],
        dir: dir.path(),
        env: &[
            ("PROMLET_TLS_CERT", files.path().join("tls.crt").to_str().expect("text")),
            ("PROMLET_TLS_KEY", files.path().join("tls.key").to_str().expect("text")),
        ],
    });
    let output = command.output().expect("the binary starts");
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("cannot be used with the key"), "{errors}");
}
