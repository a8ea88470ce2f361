//! Malformed and smuggled requests (docs/specification.md F43, F49; RFC 9112). Each is refused, or
//! read as the one request that the specification says; a hidden request gets no response, and the
//! server continues.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use promlet::api::edge::{self, EdgeOptions};
use tokio::net::TcpListener;

use crate::test_server::TestServer;

struct Server {
    address: SocketAddr,
    _app: TestServer,
}

impl Server {
    async fn start() -> Server {
        let app = TestServer::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (router, counters) = (app.router.clone(), app.counters.clone());
        // Short timeouts close half-sent and idle connections, because every test here reads to the
        // end.
        let soon = Duration::from_millis(200);
        let options = EdgeOptions { header_timeout: soon, idle_timeout: soon, ..EdgeOptions::default() };
        tokio::spawn(edge::serve(listener, router, options, counters, std::future::pending()));
        Server { address, _app: app }
    }

    /// Sends `bytes` and reads to the end.
    fn ask(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        // A server that refuses early may close before all bytes are written.
        let _ = stream.write_all(bytes);
        let (mut all, mut buffer) = (Vec::new(), [0; 4_096]);
        while let Ok(n) = stream.read(&mut buffer) {
            if n == 0 {
                break;
            }
            all.extend_from_slice(&buffer[..n]);
        }
        String::from_utf8_lossy(&all).into_owned()
    }
}

fn statuses(answer: &str) -> Vec<&str> {
    answer.split("HTTP/1.").skip(1).filter_map(|rest| rest.get(2..5)).collect()
}

/// Bytes that are no request get a 400, another 4xx or a 505, or the connection is closed. No route
/// answers them.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_malformed_requests_are_refused_and_the_server_continues() {
    let server = Server::start().await;
    let get =
        |headers: &str| format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").into_bytes();
    let line = |line: &str| format!("{line}\r\nHost: localhost\r\n\r\n").into_bytes();
    let mut malformed: Vec<Vec<u8>> = vec![
        b"\r\n\r\n\r\n\r\n".to_vec(),
        b"\0\0\0\0\0\0\0\0\r\n\r\n".to_vec(),
        vec![0xff; 64],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"HELO mail.example\r\n".to_vec(),
        b"\x05\x01\x00".to_vec(),
        b"GET".to_vec(),
        b"GET /healthz".to_vec(),
        b"GET /healthz HTTP/1.1".to_vec(),
        b"GET /healthz HTTP/1.1\r\nHost: localhost".to_vec(),
        line("GET"),
        line("GET /healthz"),
        line("GET  /healthz HTTP/1.1"),
        line("GET /healthz  HTTP/1.1"),
        line(" GET /healthz HTTP/1.1"),
        line("GET\t/healthz\tHTTP/1.1"),
        line("GET /heal thz HTTP/1.1"),
        line("GET /healthz HTTP/1.1 x"),
        line("GET /healthz HTTP/9.9"),
        line("GET /healthz HTTP/2"),
        line("GET /healthz http/1.1"),
        line("GET /healthz XTTP/1.1"),
        line("GET \\healthz HTTP/1.1"),
        line("GET healthz HTTP/1.1"),
        line("GET /\u{1}healthz HTTP/1.1"),
        line("GET /healthz\u{7f} HTTP/1.1"),
        line("G\u{e4}T /healthz HTTP/1.1"),
        line("GET:/ /healthz HTTP/1.1"),
        line("CONNECT localhost:80 HTTP/1.1"),
        get("no colon\r\n"),
        get(": no name\r\n"),
        get("a b: name with a space\r\n"),
        get("a : space before the colon\r\n"),
        get("a: b\r\n folded\r\n"),
        get("a: b\0c\r\n"),
        get("a: b\rc\r\n"),
        get("a\u{0}: b\r\n"),
        get("a(: b\r\n"),
        get("Host: other\r\n"),
        get("Content-Length: -1\r\n"),
        get("Content-Length: +1\r\n"),
        get("Content-Length: 1 1\r\n"),
        get("Content-Length: 0x1\r\n"),
        get("Content-Length: 99999999999999999999\r\n"),
        get("Content-Length: 1\r\nContent-Length: 2\r\n"),
        get("Content-Length: 1, 2\r\n"),
        get("Transfer-Encoding: gzip\r\n"),
        get("Transfer-Encoding: chunked, identity\r\n"),
        get("Transfer-Encoding: xchunked\r\n"),
        b"GET /healthz HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(),
        b"GET /healthz HTTP/1.1\r\n\r\n".to_vec(),
        b"GET /healthz HTTP/1.1\nHost: localhost\n\n".to_vec(),
        b"GET /healthz HTTP/1.1\nHost: localhost\r\n\r\n".to_vec(),
        b"\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        get("a: b\nc: d\r\n"),
        get("a: b\n"),
        b"POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nnot hexadecimal\r\n".to_vec(),
        b"POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n".to_vec(),
    ];
    malformed.push([&b"GET /"[..], &[b'a'; 70_000], b" HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat());
    malformed.push(
        [&b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "[..], &[b'a'; 70_000], b"\r\n\r\n"].concat(),
    );
    assert!(malformed.len() >= 50, "{}", malformed.len());
    for bytes in &malformed {
        let answer = server.ask(bytes);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned();
        let answered = statuses(&answer);
        assert!(
            answered.iter().all(|status| status.starts_with('4') || *status == "505"),
            "{shown:?}: {answer}"
        );
        assert!(answered.len() <= 1, "{shown:?}: {answer}");
        assert!(!answer.ends_with("\r\n\r\nok"), "{shown:?}: {answer}");
        let health = server.ask(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert!(health.ends_with("ok"), "after {shown:?}: {health}");
    }
}

/// Bytes that a proxy could read as one request and the server as two. `/hidden` stands for the
/// attacker's request; no such route exists, so a response to it would be a page's 404.
#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_hidden_in_the_body_of_another() {
    let server = Server::start().await;
    let hidden = "GET /api/v1/hidden HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let post = |headers: &str, body: &str| {
        format!("POST /api/v1/auth/logout HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n{body}").into_bytes()
    };
    let chunked = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    let cases = [
        // Both lengths: RFC 9112 allows a refusal, or reading the chunks and closing, but never
        // both.
        post(
            &format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", hidden.len() + 5),
            &format!("0\r\n\r\n{hidden}"),
        ),
        post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", &chunked),
        post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", &chunked),
        post("Transfer-Encoding : chunked\r\n", &chunked),
        post("Transfer-Encoding: \x0bchunked\r\n", &chunked),
        post("Transfer-Encoding:\r\n chunked\r\n", &chunked),
        post("X: y\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n", &chunked),
        post(&format!("Content-Length: {}\r\n", hidden.len()), hidden),
        post("Transfer-Encoding: chunked\r\n", &chunked),
        post("Transfer-Encoding: chunked\r\n", &format!("0\r\n{hidden}\r\n")),
        post(&format!("Content-Length: {0}\r\nContent-Length: {0}\r\n", hidden.len()), hidden),
        post("Content-Length: 0\r\nContent-Length: 50\r\n", hidden),
        post("Transfer-Encoding: chunked\r\n", &format!("1;a=\"\r\n\"\r\nx\r\n0\r\n\r\n{hidden}")),
    ];
    for bytes in cases {
        let answer = server.ask(&bytes);
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        assert!(!answer.contains("/api/v1/hidden"), "{shown}\n----\n{answer}");
        assert!(statuses(&answer).len() <= 2, "{shown}\n----\n{answer}");
    }
    // Two requests for a server that accepts a bare LF as a line end, here none.
    let line_feed = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: y\nConnection: close\r\n\r\n";
    assert_eq!(statuses(&server.ask(line_feed.as_bytes())), ["400"]);
    // Headers whose names only start like those of a length hide no request.
    for header in ["Transfer-Encoding-Foo: x", "Content-Length-Foo: 2000", "Transfer-Encoding: gzip, chunked"]
    {
        let head = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
        let smuggled = format!("{head}X: y\n\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(statuses(&server.ask(smuggled.as_bytes())), ["400"], "{header}");
        let all_bare = format!("{head}\r\nGET /healthz HTTP/1.1\nHost: localhost\n\n");
        let answer = server.ask(all_bare.as_bytes());
        assert!(statuses(&answer).len() <= 1, "{header}: {answer}");
    }
    // A chunk extension may have any length, and the request after the body is still read.
    let extension = "x".repeat(100);
    let extended = format!(
        "POST /api/v1/auth/logout HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
         3;{extension}\r\nabc\r\n0\r\n\r\nGET /healthz HTTP/1.1\nHost: localhost\n\n"
    );
    let answer = server.ask(extended.as_bytes());
    assert!(statuses(&answer).len() <= 1 && !answer.ends_with("ok"), "{answer}");
    // In a body LF is an ordinary byte. After the body it is refused again, and the earlier
    // response remains.
    for framing in
        ["Content-Length: 3\r\n\r\n\n\n\n", "Transfer-Encoding: chunked\r\n\r\n3\r\n\n\n\n\r\n0\r\n\r\n"]
    {
        let first = format!("POST /api/v1/auth/logout HTTP/1.1\r\nHost: localhost\r\n{framing}");
        assert_eq!(
            statuses(&server.ask(first.replace("Host", "Connection: close\r\nHost").as_bytes())),
            ["204"]
        );
        let answer = server.ask(format!("{first}{line_feed}").as_bytes());
        assert!(statuses(&answer).len() <= 1 && !answer.ends_with("ok"), "{answer}");
    }
    // The same two requests, sent one after the other, get two responses.
    let honest = [post("Content-Length: 0\r\n", ""), hidden.into()].concat();
    assert_eq!(statuses(&server.ask(&honest)), ["204", "404"]);
}

/// docs/specification.md F49.
#[tokio::test(flavor = "multi_thread")]
async fn f49_a_foreign_request_id_is_plain_or_replaced() {
    let server = Server::start().await;
    for id in ["a%0d%0aX: y", "a\tb", "<script>", "a b", "\u{e4}", "a;b", "\"", &"x".repeat(65)] {
        let request = format!(
            "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {id}\r\nUser-Agent: a\tb\r\nConnection: close\r\n\r\n"
        );
        let answer = server.ask(request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200"), "{id}: {answer}");
        assert!(
            !answer.to_ascii_lowercase().contains(&format!("x-request-id: {}", id.to_ascii_lowercase())),
            "{id}: {answer}"
        );
        assert!(!answer.contains("\r\nX: y"), "{answer}");
    }
}
