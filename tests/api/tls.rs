//! The server's own TLS over a real loopback socket (docs/specification.md E): handshakes, a
//! certificate change while serving, and peers with another protocol.

#[path = "../peers/https.rs"]
#[expect(dead_code, reason = "shared with tests of the binary, which use the rest")]
mod https;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use https::{Stream, fixture};
use promlet::api::edge::{self, EdgeOptions};
use promlet::api::tls::Certificates;
use tokio::net::TcpListener;

use crate::test_server::TestServer;

/// A server with a copy of the certificate pair `one`.
struct Server {
    address: SocketAddr,
    certificates: Arc<Certificates>,
    files: tempfile::TempDir,
    _app: TestServer,
}

impl Server {
    async fn start(options: EdgeOptions) -> Server {
        let files = tempfile::tempdir().expect("a folder");
        let (cert, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
        put("one", &cert, &key);
        let certificates = Arc::new(Certificates::read(&cert, &key).expect("a pair"));
        let app = TestServer::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let options = EdgeOptions { tls: Some(Arc::clone(&certificates)), ..options };
        let (router, counters) = (app.router.clone(), app.counters.clone());
        tokio::spawn(edge::serve(listener, router, options, counters, std::future::pending()));
        Server { address, certificates, files, _app: app }
    }

    fn change_to(&self, name: &str) {
        put(name, &self.files.path().join("cert.pem"), &self.files.path().join("key.pem"));
    }

    fn connect(&self, trusted: &str) -> Stream {
        https::connect(self.address.port(), trusted).expect("a connection")
    }
}

fn put(name: &str, cert: &Path, key: &Path) {
    std::fs::copy(fixture(&format!("{name}.crt")), cert).expect("copied");
    std::fs::copy(fixture(&format!("{name}.key")), key).expect("copied");
}

/// Requests `/healthz` and reads the response; the connection stays open.
fn health(stream: &mut Stream) -> std::io::Result<String> {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    let mut buffer = [0; 1_024];
    while !answer.ends_with("\r\n\r\nok") {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        answer.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_is_used_for_new_connections_and_drops_none() {
    let server = Server::start(EdgeOptions::default()).await;
    let mut before = server.connect("one");
    assert!(health(&mut before).expect("an answer").starts_with("HTTP/1.1 200"));
    assert!(health(&mut server.connect("two")).is_err(), "a stranger's certificate is not trusted");

    server.change_to("two");
    assert!(health(&mut server.connect("one")).is_ok(), "the change was not announced");
    server.certificates.read_again().expect("a pair");
    assert!(health(&mut server.connect("two")).is_ok(), "new connections get the new one");
    assert!(health(&mut server.connect("one")).is_err());
    assert!(health(&mut before).is_ok(), "and the old connection lives on");

    std::fs::write(server.files.path().join("key.pem"), "none").expect("written");
    server.certificates.read_again().expect_err("no key");
    assert!(health(&mut server.connect("two")).is_ok(), "bad files change nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_and_unfinished_handshakes_are_closed() {
    let short = Duration::from_millis(200);
    let server = Server::start(EdgeOptions { header_timeout: short, ..EdgeOptions::default() }).await;
    // Plain HTTP, nothing, and the start of a ClientHello: each is closed, and read to the end
    // here.
    for sent in [&b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], b"", b"\x16\x03\x01\x02\x00\x01"] {
        let mut socket = TcpStream::connect(server.address).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        socket.write_all(sent).expect("written");
        let mut all = Vec::new();
        match socket.read_to_end(&mut all) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
        assert!(!String::from_utf8_lossy(&all).contains("200 OK"), "nothing is answered in the clear");
    }
    // A handshake and then silence: the first request has the same timeout.
    let mut silent = server.connect("one");
    silent.write_all(b"GET /hea").expect("written");
    let mut all = Vec::new();
    let _ = silent.read_to_end(&mut all);
    assert!(all.is_empty(), "{all:?}");
    assert!(health(&mut server.connect("one")).is_ok());
}
