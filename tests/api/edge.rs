//! The accept loop over a real loopback socket (docs/specification.md D9, F42, F43; docs/storage.md
//! section 18, finding 6).
//!
//! Timeouts are short, and no test asserts durations: a connection that should be closed is read to
//! its end, and a loop that did not close it would hang here.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use promlet::api::body::BodyDeadlines;
use promlet::api::edge::{self, EdgeOptions};
use promlet::api::error::Code;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::test_server::{Reply, TestServer, TestServerOptions, is_test_route};

struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<usize>,
    app: TestServer,
}

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(600);

fn long_timeouts() -> EdgeOptions {
    EdgeOptions {
        header_timeout: LONG,
        idle_timeout: LONG,
        write_timeout: LONG,
        drain_timeout: LONG,
        ..EdgeOptions::default()
    }
}

async fn server(options: EdgeOptions) -> Server {
    let mut plan = TestServerOptions::default();
    plan.options.body_deadlines = BodyDeadlines { ingest: SHORT, other: SHORT, drain: SHORT };
    server_of(plan, options).await
}

async fn server_of(plan: TestServerOptions, options: EdgeOptions) -> Server {
    let app = TestServer::build(plan);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel();
    let (router, counters) = (app.router.clone(), app.counters.clone());
    let served = tokio::spawn(async move {
        let stopped = async move {
            let _ = stopped.await;
        };
        edge::serve(listener, router, options, counters, stopped).await
    });
    Server { address, stop, served, app }
}

impl Server {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("a connection");
        // Longer than every timeout here: a connection that should have been closed fails instead
        // of hanging.
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        stream
    }

    fn is_alive(&self) {
        let answer = self.ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    }

    /// Sends `bytes` and reads until the server closes.
    fn ask(&self, bytes: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes.as_bytes()).expect("written");
        rest(&mut stream)
    }

    async fn stop(self) -> usize {
        self.stop.send(()).expect("still serving");
        self.served.await.expect("no panic")
    }
}

/// Returns everything up to the end of the stream; an aborted connection ends it, too.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4_096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "not closed: {error}");
                break;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads one response that has a `Content-Length`.
fn response(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
            });
            if body.len() >= length.expect("a length").trim().parse().expect("a number") {
                return text;
            }
        }
        let mut buffer = [0; 4_096];
        let n = stream.read(&mut buffer).expect("readable");
        assert!(n > 0, "closed in the middle: {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
}

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn silent_and_half_sent_headers_are_closed() {
    let server = server(EdgeOptions { header_timeout: SHORT, ..long_timeouts() }).await;
    assert_eq!(server.ask(""), "", "a connection that sends nothing");
    assert_eq!(server.ask("GET /healthz HTTP/1.1\r\nHost: loc"), "", "half a header");
    let mut second = server.connect();
    second.write_all(HEALTH).expect("written");
    assert!(response(&mut second).ends_with("ok"));
    second.write_all(b"GET /hea").expect("written");
    assert_eq!(rest(&mut second), "", "half of the second header");
    server.is_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_outlives_the_header_timeout_and_ends_at_its_own() {
    let server =
        server(EdgeOptions { header_timeout: SHORT, idle_timeout: SHORT * 4, ..long_timeouts() }).await;
    let mut stream = server.connect();
    for _ in 0..3 {
        stream.write_all(HEALTH).expect("written");
        assert!(response(&mut stream).ends_with("ok"));
        // Silent and open for longer than the header timeout: only the idle timeout applies.
        stream.set_read_timeout(Some(SHORT * 2)).expect("a socket");
        let silent = stream.peek(&mut [0]).expect_err("no data and no end");
        assert!([ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&silent.kind()), "{silent}");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    }
    assert_eq!(rest(&mut stream), "", "closed when idle for too long");
    server.is_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_body_is_answered_408_and_closed() {
    let server = server(long_timeouts()).await;
    let head = "POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"email\":";
    let answer = server.ask(head);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("\"code\":\"request_timeout\""), "{answer}");
    server.is_alive();
}

/// A server that waits long for refused bodies, so that the speed of this machine does not matter.
async fn draining() -> Server {
    let mut plan = TestServerOptions::default();
    plan.options.body_deadlines = BodyDeadlines { ingest: LONG, other: LONG, drain: LONG };
    server_of(plan, long_timeouts()).await
}

/// Writes the whole request first, as many clients do, and then reads.
fn after_writing(server: &Server, head: &str, body: &[u8]) -> String {
    let mut stream = server.connect();
    stream.write_all(head.as_bytes()).expect("the head is taken");
    stream.write_all(body).expect("all of the body is taken");
    response(&mut stream)
}

const WRITE: &str = "POST /api/v1/orgs/acme/write HTTP/1.1\r\nHost: localhost";

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_writes_first_still_reads_why_it_was_refused() {
    let server = draining().await;
    let nine = vec![b'x'; 9 << 20];
    let long = format!("{WRITE}\r\nContent-Length: {}\r\n\r\n", nine.len());
    let answer = after_writing(&server, &long, &nine);
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{answer}");

    let login = "POST /auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = [b"100000\r\n", [b'x'; 1 << 20].as_slice(), b"\r\n"].concat();
    let chunks = [chunk.repeat(9), b"0\r\n\r\n".to_vec()].concat();
    let answer = after_writing(&server, login, &chunks);
    assert!(answer.starts_with("HTTP/1.1 413"), "too large only after some of it was read: {answer}");

    let seven = &nine[..7 << 20];
    let anonymous = format!("{WRITE}\r\nContent-Length: {}\r\n\r\n", seven.len());
    let answer = after_writing(&server, &anonymous, seven);
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let foreign = anonymous.replace("localhost", "evil.example");
    let answer = after_writing(&server, &foreign, seven);
    assert!(answer.starts_with("HTTP/1.1 421"), "{answer}");
    server.is_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_body_is_not_read_without_end() {
    let server = draining().await;
    let mut endless = server.connect();
    endless.set_write_timeout(Some(Duration::from_secs(30))).expect("set");
    endless
        .write_all(format!("{WRITE}\r\nContent-Length: {}\r\n\r\n", 1_u64 << 40).as_bytes())
        .expect("written");
    let megabyte = vec![b'x'; 1 << 20];
    // The server drains 16 MiB. Further bytes fill the socket buffers of some MiB, and then the
    // write fails.
    let refused = (0..1_024).find_map(|_| endless.write_all(&megabyte).err()).expect("an end");
    let closed = [std::io::ErrorKind::ConnectionReset, std::io::ErrorKind::BrokenPipe];
    assert!(closed.contains(&refused.kind()), "{refused}");
    server.is_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_body_that_does_not_come_is_not_waited_for() {
    let server = server(long_timeouts()).await;
    let answer = server.ask(&format!("{WRITE}\r\nContent-Length: 9000000\r\n\r\nonly this"));
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // A client that sends `Expect: 100-continue` is not told to continue.
    let asks = format!("{WRITE}\r\nExpect: 100-continue\r\nContent-Length: 9000000\r\n\r\n");
    let answer = server.ask(&asks);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    server.is_alive();
}

/// docs/specification.md B: every response has an id, a code and the headers, even the one to bytes
/// that are no request.
#[track_caller]
fn assert_error(answer: &str, status: u16, code: &str) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!((&body["code"], &body["status"]), (&json!(code), &json!(status)), "{answer}");
    let id = format!("x-request-id: {}", body["request_id"].as_str().expect("an id"));
    for header in
        ["cache-control: no-store", "x-content-type-options: nosniff", "referrer-policy: no-referrer", &id]
    {
        assert!(head.contains(header), "{header}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_headers_many_headers_and_long_urls_are_refused() {
    let server = server(long_timeouts()).await;
    let large = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "y".repeat(65 * 1_024));
    assert_error(&server.ask(&large), 431, "headers_too_large");
    let many = "X: y\r\n".repeat(101);
    let many = server.ask(&format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"));
    assert_error(&many, 431, "headers_too_large");
    let long = format!(
        "GET /healthz?{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "y".repeat(17 * 1_024)
    );
    assert_error(&server.ask(&long), 414, "uri_too_long");
    for nonsense in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ] {
        assert_error(&server.ask(nonsense), 400, "bad_request");
    }
    server.is_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_disconnected() {
    let server = server(EdgeOptions { write_timeout: SHORT, ..long_timeouts() }).await;
    let mut stream = server.connect();
    stream.set_write_timeout(Some(Duration::from_secs(30))).expect("set");
    // Requests without end whose responses are not read: once all buffers are full, the server
    // closes the connection, and the write fails.
    let error = loop {
        if let Err(error) = stream.write_all(&HEALTH.repeat(100)) {
            break error;
        }
    };
    let closed = [std::io::ErrorKind::ConnectionReset, std::io::ErrorKind::BrokenPipe];
    assert!(closed.contains(&error.kind()), "{error}");
    server.is_alive();
    assert!(server.app.counters.connections_timed_out.load(std::sync::atomic::Ordering::Relaxed) >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_connections_are_reserved_for_health_and_logout() {
    let server = server(EdgeOptions { connections_max: 6, connections_reserved: 2, ..long_timeouts() }).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = server.connect();
        // One response proves that this connection was accepted before the next.
        stream.write_all(HEALTH).expect("written");
        response(&mut stream);
        held.push(stream);
    }
    for _ in 0..5 {
        let refused = server.ask("GET /api/v1/orgs HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        let health = server.ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(health.ends_with("ok"), "answered, and closed at once: {health}");
        let logout = server.ask("POST /auth/logout HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        assert!(logout.starts_with("HTTP/1.1 204"), "{logout}");
    }
    drop(held);
}

/// Connections with a valid credential leave the places of strangers, so more of them are open than
/// strangers may be, and strangers are served as before.
#[tokio::test(flavor = "multi_thread")]
async fn viewers_behind_few_places_for_strangers_all_get_their_streams() {
    let server = server(EdgeOptions { connections_max: 4, connections_reserved: 2, ..long_timeouts() }).await;
    let cabinet = server.app.log_in().await;
    let cookie = format!("Host: localhost\r\nCookie: ms_session={}\r\n\r\n", cabinet.secret());
    let mut viewers = Vec::new();
    for _ in 0..20 {
        let mut stream = server.connect();
        let live = "GET /api/v1/orgs/acme/query/live?expr=up&step=1h HTTP/1.1\r\n";
        stream.write_all(format!("{live}{cookie}").as_bytes()).expect("written");
        let mut text = String::new();
        while !text.contains("event: points") {
            let mut buffer = [0; 4_096];
            let n = stream.read(&mut buffer).expect("readable");
            assert!(n > 0, "closed: {text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..n]));
        }
        viewers.push(stream);
    }
    let known = || server.app.counters.connections_known.load(Ordering::Relaxed);
    assert_eq!(known(), 20);
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = server.connect();
        stream.write_all(HEALTH).expect("written");
        response(&mut stream);
        held.push(stream);
    }
    let refused = server.ask("GET /api/v1/orgs HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 503"), "strangers have four places: {refused}");
    // A stranger that logs in frees its place. Without a session the connection ends.
    held[0].write_all(format!("GET /auth/me HTTP/1.1\r\n{cookie}").as_bytes()).expect("written");
    assert!(response(&mut held[0]).starts_with("HTTP/1.1 200"));
    assert_eq!(known(), 21);
    let answer = server.ask("GET /auth/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    held[0].write_all(b"GET /auth/me HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("written");
    let answer = rest(&mut held[0]);
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("connection: close"), "{answer}");
    // A file that a browser loads with the cookie counts for the session as well.
    held[1].write_all(format!("GET /app.js HTTP/1.1\r\n{cookie}").as_bytes()).expect("written");
    assert!(response(&mut held[1]).ends_with("a page"));
    assert_eq!(known(), 21);
}

/// Every route except those of the reserved connections.
#[tokio::test(flavor = "multi_thread")]
async fn every_route_answers_busy_when_connections_run_out() {
    let server = server(EdgeOptions { connections_max: 2, connections_reserved: 1, ..long_timeouts() }).await;
    let mut held = server.connect();
    held.write_all(HEALTH).expect("written");
    response(&mut held);
    for row in server.app.rows.iter().filter(|row| !is_test_route(&row.path)) {
        let vital = ["/healthz", "/readyz", "/metrics", "/api/v1/health", "/api/v1/auth/logout"];
        if vital.contains(&row.path.as_str()) {
            continue;
        }
        let (method, path) = (row.method, row.path.replace(['{', '}'], ""));
        let answer =
            server.ask(&format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        assert!(head.starts_with("HTTP/1.1 503"), "{method} {path}: {answer}");
        let fields = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let fields =
            fields.map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
        let reply = Reply {
            status: StatusCode::SERVICE_UNAVAILABLE,
            refused: Some(Code::Busy),
            headers: fields.collect(),
            body: body.to_owned(),
        };
        assert!(body.contains("busy") && reply.headers.contains_key("retry-after"), "{answer}");
        server.app.assert_documented(method, &path, &reply);
    }
    drop(held);
}

/// Slow senders on every connection, also the reserved ones: those are closed first, and health is
/// answered again.
#[tokio::test(flavor = "multi_thread")]
async fn slow_senders_do_not_hold_the_reserved_connections() {
    let options = EdgeOptions {
        connections_max: 4,
        connections_reserved: 2,
        header_timeout: SHORT * 75,
        ..long_timeouts()
    };
    let server = server(options).await;
    let mut slow: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    for stream in &mut slow {
        // One response proves the order of acceptance; then the connection is silent.
        stream.write_all(HEALTH).expect("written");
        response(stream);
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: loc").expect("written");
    }
    let mut reserved: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    for stream in &mut reserved {
        stream.write_all(b"GET /healthz HTT").expect("written");
    }
    // Every connection is taken now, so only the reserved ones can be freed.
    for _ in 0..3 {
        let health = server.ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(health.ends_with("ok"), "{health}");
    }
    for stream in &mut reserved {
        assert_eq!(rest(stream), "");
    }
    // The earlier connections are within their timeout and continue.
    for stream in &mut slow {
        stream.write_all(b"alhost\r\n\r\n").expect("written");
        assert!(response(stream).ends_with("ok"));
    }
}

/// With any number of slow senders and long timeouts, the oldest reserved connection is closed for
/// a client that sends.
#[tokio::test(flavor = "multi_thread")]
async fn more_slow_senders_than_connections_do_not_keep_health_from_answering() {
    let server = server(EdgeOptions { connections_max: 4, connections_reserved: 2, ..long_timeouts() }).await;
    let mut slow = Vec::new();
    for n in 0..40 {
        let mut stream = server.connect();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: loc").expect("written");
        slow.push(stream);
        if n % 8 == 7 {
            let health = server.ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert!(health.ends_with("ok"), "{health}");
            assert!(server.app.counters.connections.load(Ordering::Relaxed) <= 4, "the bound holds");
        }
    }
    // Connections from before the overload continue.
    for stream in &mut slow[..2] {
        stream.write_all(b"alhost\r\n\r\n").expect("written");
        assert!(response(stream).ends_with("ok"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_requests_finish_and_closes_idle_connections() {
    let server = server(long_timeouts()).await;
    let mut idle = server.connect();
    idle.write_all(HEALTH).expect("written");
    response(&mut idle);
    let mut busy = server.connect();
    // Its body is late, so the request is in progress when the stop begins.
    busy.write_all(b"POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n").expect("written");
    server.is_alive();
    let address = server.address;
    let stopped = tokio::spawn(server.stop());
    assert_eq!(rest(&mut idle), "");
    busy.write_all(b"{}").expect("written");
    let answer = rest(&mut busy);
    assert!(answer.starts_with("HTTP/1.1 422"), "{answer}");
    assert_eq!(stopped.await.expect("no panic"), 0, "nothing was dropped");
    assert!(TcpStream::connect(address).is_err(), "the listener is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_drops_requests_that_do_not_finish() {
    let server = server(EdgeOptions { drain_timeout: SHORT, ..long_timeouts() }).await;
    let mut stuck = server.connect();
    stuck.write_all(b"GET /healthz HTTP/1.1\r\nHost: lo").expect("written");
    server.is_alive();
    assert!(server.stop().await <= 1);
    rest(&mut stuck);
}
