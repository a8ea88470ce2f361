//! The client against a server that answers as each test needs.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto::ring};

use super::*;
use crate::model::{EgressRules, TargetUrl};

mod pulls;

/// The server's response to a request: bytes to send, then whether the connection stays open.
enum FakeReply {
    Keep(Vec<u8>),
    Close(Vec<u8>),
    /// Sends the bytes, then nothing.
    Hang(Vec<u8>),
    /// Sends the head, then pieces until the client disconnects.
    Endless(Vec<u8>),
}

type Handler = dyn Fn(&str) -> FakeReply + Send + Sync;

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
    /// Connections that the client has closed.
    closed: AtomicUsize,
}

struct FakeTarget {
    address: SocketAddr,
    counts: Arc<Counts>,
}

impl FakeTarget {
    async fn start(
        tls: Option<TlsAcceptor>,
        handler: impl Fn(&str) -> FakeReply + Send + Sync + 'static,
    ) -> FakeTarget {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (counts, handler): (Arc<Counts>, Arc<Handler>) = (Arc::default(), Arc::new(handler));
        let counted = Arc::clone(&counts);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.connections.fetch_add(1, Ordering::SeqCst);
                let (handler, counts, tls) = (Arc::clone(&handler), Arc::clone(&counted), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &*handler, &counts).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, &*handler, &counts).await,
                            Err(_) => None,
                        },
                    };
                    counts.closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        FakeTarget { address, counts }
    }

    async fn plain(handler: impl Fn(&str) -> FakeReply + Send + Sync + 'static) -> FakeTarget {
        FakeTarget::start(None, handler).await
    }

    fn target(&self, scheme: &str) -> Target {
        Target::new(url(&format!("{scheme}://{}", self.address)))
    }

    fn client(&self) -> TargetClient {
        client(self.target("http"))
    }
}

/// Returns the number of bytes read, 0 at the end.
async fn read(stream: &mut (impl AsyncRead + Unpin), bytes: &mut [u8]) -> io::Result<usize> {
    let mut buffer = ReadBuf::new(bytes);
    poll_fn(|context| Pin::new(&mut *stream).poll_read(context, &mut buffer)).await?;
    Ok(buffer.filled().len())
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = poll_fn(|context| Pin::new(&mut *stream).poll_write(context, bytes)).await?;
        bytes = &bytes[written..];
    }
    poll_fn(|context| Pin::new(&mut *stream).poll_flush(context)).await
}

/// Serves requests until the connection ends.
async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    handler: &Handler,
    counts: &Counts,
) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&buffer[..at]).to_ascii_lowercase();
                let length = head.split("content-length: ").nth(1);
                let length: usize = length.map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
                if buffer.len() >= at + 4 + length {
                    break at + 4 + length;
                }
            }
            let mut some = [0; 4_096];
            match read(&mut stream, &mut some).await.ok()? {
                0 => return None,
                read => buffer.extend_from_slice(&some[..read]),
            }
        };
        let request = String::from_utf8_lossy(&buffer[..end]).into_owned();
        buffer.drain(..end);
        counts.requests.fetch_add(1, Ordering::SeqCst);
        match handler(&request) {
            FakeReply::Keep(bytes) => write(&mut stream, &bytes).await.ok()?,
            FakeReply::Close(bytes) => {
                write(&mut stream, &bytes).await.ok()?;
                poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await.ok()?;
                return None;
            }
            FakeReply::Hang(bytes) => {
                write(&mut stream, &bytes).await.ok()?;
                while read(&mut stream, &mut [0; 64]).await.ok()? > 0 {}
                return None;
            }
            FakeReply::Endless(bytes) => {
                write(&mut stream, &bytes).await.ok()?;
                let piece = [b"400\r\n".as_slice(), &[b'x'; 1_024], b"\r\n"].concat();
                loop {
                    write(&mut stream, &piece).await.ok()?;
                }
            }
        }
    }
}

fn answer(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn url(text: &str) -> TargetUrl {
    TargetUrl::parse(text).expect("a URL")
}

fn egress(entries: &[&str]) -> Egress {
    Egress::new(EgressRules::parse(entries.iter().copied()).expect("entries"), &[])
}

fn client(target: Target) -> TargetClient {
    TargetClient::new(target, egress(&["127.0.0.0/8"])).expect("a valid target")
}

fn get(suffix: &str) -> TargetRequest {
    TargetRequest {
        method: TargetMethod::Get,
        suffix: suffix.to_owned(),
        headers: Vec::new(),
        body: Bytes::new(),
        timeout: Duration::from_secs(20),
        body_bytes_max: 1 << 20,
    }
}

async fn text(client: &TargetClient, suffix: &str) -> Result<(u16, String), TargetError> {
    let response = client.send(get(suffix)).await?;
    let status = response.status;
    Ok((status, String::from_utf8(response.body.bytes().await?).expect("UTF-8")))
}

async fn code(client: &TargetClient) -> (&'static str, String) {
    let error = text(client, "/").await.expect_err("an error");
    (error.code(), error.to_string())
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name);
    std::fs::read_to_string(path).expect("a fixture")
}

/// A TLS server with the certificate `one`. It demands the client certificate `client`.
fn acceptor(client: Option<&str>) -> TlsAcceptor {
    let chain = CertificateDer::pem_slice_iter(fixture("one.crt").as_bytes()).collect::<Result<_, _>>();
    let key = PrivateKeyDer::from_pem_slice(fixture("one.key").as_bytes()).expect("a key");
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let config = match client {
        None => config.with_no_client_auth(),
        Some(name) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(fixture(name).as_bytes()) {
                roots.add(certificate.expect("a certificate")).expect("a root");
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            config.with_client_cert_verifier(verifier.build().expect("a verifier"))
        }
    };
    TlsAcceptor::from(Arc::new(config.with_single_cert(chain.expect("a chain"), key).expect("a pair")))
}

/// Waits for a condition. The test's timeout bounds this loop.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_connection_is_kept_for_later_requests() {
    let server = FakeTarget::plain(|request| {
        FakeReply::Keep(answer("200 OK", request.split_whitespace().nth(1).unwrap_or_default()))
    })
    .await;
    let client = server.client();
    for path in ["/a", "/b?x=1", "/c"] {
        assert_eq!(text(&client, path).await.expect("answered"), (200, path.to_owned()));
    }
    assert_eq!(server.counts.connections.load(Ordering::SeqCst), 1);
    // A body that is not read to its end closes its connection.
    drop(client.send(get("/d")).await.expect("answered"));
    text(&client, "/e").await.expect("answered");
    assert_eq!(server.counts.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_request_is_sent_again_if_the_kept_connection_was_closed() {
    let server = FakeTarget::plain(|_| FakeReply::Close(answer("200 OK", "x"))).await;
    let client = server.client();
    for _ in 0..3 {
        assert_eq!(text(&client, "/").await.expect("answered").0, 200);
    }
    assert_eq!(server.counts.connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_certificate_must_be_trusted_and_have_the_right_name() {
    let server = FakeTarget::start(Some(acceptor(None)), |_| FakeReply::Keep(answer("200 OK", "x"))).await;
    let with = |change: &dyn Fn(&mut Target)| {
        let mut target = server.target("https");
        target.tls.ca_pem = Some(fixture("one.crt"));
        change(&mut target);
        client(target)
    };
    assert_eq!(text(&with(&|_| {}), "/").await.expect("trusted").0, 200);
    let named = with(&|target| target.tls.server_name = Some("metrics.localhost".to_owned()));
    assert_eq!(text(&named, "/").await.expect("trusted").0, 200);
    let wrong_name = with(&|target| target.tls.server_name = Some("other.localhost".to_owned()));
    assert_eq!(code(&wrong_name).await.0, "target_tls");
    let wrong_root = with(&|target| target.tls.ca_pem = Some(fixture("two.crt")));
    assert_eq!(code(&wrong_root).await.0, "target_tls");
    let public_roots = with(&|target| target.tls.ca_pem = None);
    assert_eq!(code(&public_roots).await.0, "target_tls");
    let mut target = server.target("https");
    target.tls.ca_pem = Some("no certificate".to_owned());
    assert!(TargetClient::new(target, egress(&[])).is_err());
}

#[tokio::test]
async fn a_client_certificate_is_presented() {
    let tls = acceptor(Some("two.crt"));
    let server = FakeTarget::start(Some(tls), |_| FakeReply::Keep(answer("200 OK", "x"))).await;
    let mut target = server.target("https");
    target.tls.ca_pem = Some(fixture("one.crt"));
    assert_eq!(code(&client(target.clone())).await.0, "target_tls");
    target.tls.client_cert_pem = Some(fixture("two.crt"));
    target.tls.client_key_pem = Some(TargetSecret::new(fixture("two.key")));
    assert_eq!(text(&client(target.clone()), "/").await.expect("accepted").0, 200);
    target.tls.client_key_pem = Some(TargetSecret::new(fixture("one.key")));
    assert!(TargetClient::new(target, egress(&[])).is_err(), "the key of another certificate");
}

#[tokio::test]
async fn credentials_tenant_and_headers_are_sent() {
    let server =
        FakeTarget::plain(|request| FakeReply::Keep(answer("200 OK", &request.to_ascii_lowercase()))).await;
    let sent = async |auth: TargetAuth, tenant: Tenant| {
        let mut target = server.target("http");
        (target.auth, target.tenant) = (auth, tenant);
        target.headers = vec![("x-team".to_owned(), "a".to_owned())];
        text(&client(target), "/").await.expect("answered").1
    };
    let password = || TargetSecret::new("p:w");
    let basic = TargetAuth::Basic { username: "u".to_owned(), password: password() };
    let tenant = Tenant::Header { name: "x-scope-orgid".to_owned(), value: "42".to_owned() };
    let seen = sent(basic, tenant).await;
    let expected = BASE64.encode(b"u:p:w").to_ascii_lowercase();
    for line in [&*format!("authorization: basic {expected}\r\n"), "x-scope-orgid: 42\r\n", "x-team: a\r\n"] {
        assert!(seen.contains(line), "{line} in {seen}");
    }
    let seen = sent(TargetAuth::Bearer { token: TargetSecret::new("abc") }, Tenant::None).await;
    assert!(seen.contains("authorization: bearer abc\r\n"), "{seen}");
    assert!(!sent(TargetAuth::None, Tenant::None).await.contains("authorization"));
}

#[tokio::test]
async fn a_token_is_requested_once_and_replaced_when_it_is_refused() {
    let issued = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&issued);
    let server = FakeTarget::plain(move |request| {
        if !request.starts_with("POST /token ") {
            // The first token is refused after one use.
            let first = request.contains("bearer t1") || request.contains("Bearer t1");
            let revoked = first && request.contains("/late");
            return FakeReply::Keep(if revoked {
                answer("401 Unauthorized", "")
            } else {
                answer("200 OK", "x")
            });
        }
        assert!(request.contains("grant_type=client_credentials&scope=read+write"), "{request}");
        if !request.to_ascii_lowercase().contains("authorization: basic ") {
            return FakeReply::Keep(answer("400 Bad Request", r#"{"error":"invalid_request"}"#));
        }
        let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
        let body = format!(r#"{{"access_token":"t{number}","token_type":"bearer","expires_in":3600}}"#);
        FakeReply::Keep(answer("200 OK", &body))
    })
    .await;
    let mut target = server.target("http");
    target.auth = TargetAuth::OAuth2 {
        token_url: url(&format!("http://{}/token", server.address)),
        client_id: "id".to_owned(),
        client_secret: TargetSecret::new("secret"),
        scopes: vec!["read".to_owned(), "write".to_owned()],
    };
    let client = client(target);
    let all: Vec<_> = (0..8)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { text(&client, "/").await.expect("answered").0 })
        })
        .collect();
    for one in all {
        assert_eq!(one.await.expect("no panic"), 200);
    }
    assert_eq!(issued.load(Ordering::SeqCst), 1);
    assert_eq!(text(&client, "/late").await.expect("answered").0, 200);
    assert_eq!(issued.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_refusal_of_the_token_endpoint_is_shown_without_secrets() {
    let server =
        FakeTarget::plain(|_| FakeReply::Keep(answer("401 x", r#"{"error":"invalid_client"}"#))).await;
    let mut target = server.target("http");
    target.auth = TargetAuth::OAuth2 {
        token_url: url(&format!("http://{}/token", server.address)),
        client_id: "id".to_owned(),
        client_secret: TargetSecret::new("hunter2"),
        scopes: Vec::new(),
    };
    let (code, message) = code(&client(target)).await;
    assert_eq!(code, "target_refused");
    assert!(message.contains("invalid_client") && !message.contains("hunter2"), "{message}");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let server = FakeTarget::plain(|_| {
        let head = "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/x\r\ncontent-length: 0\r\n\r\n";
        FakeReply::Keep(head.into())
    })
    .await;
    let (code, message) = code(&server.client()).await;
    assert_eq!(code, "target_invalid_response");
    assert!(message.contains("169.254.169.254"), "{message}");
    assert_eq!(server.counts.requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn heads_and_bodies_are_bounded() {
    let long_head = format!("HTTP/1.1 200 OK\r\nx-long: {}\r\n\r\n", "x".repeat(70 << 10)).into_bytes();
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let declared = "HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\nx";
    for (path, reply) in [
        (
            "/head",
            Box::new(move || FakeReply::Hang(long_head.clone())) as Box<dyn Fn() -> FakeReply + Send + Sync>,
        ),
        ("/declared", Box::new(move || FakeReply::Hang(declared.into()))),
        ("/endless", Box::new(move || FakeReply::Endless(chunked.into()))),
        ("/cut", Box::new(|| FakeReply::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx".to_vec()))),
        ("/cut-chunk", Box::new(move || FakeReply::Close([chunked, "5\r\nab"].concat().into()))),
        ("/no-http", Box::new(|| FakeReply::Close(b"SSH-2.0-OpenSSH_9.6\r\n\r\n".to_vec()))),
        ("/status", Box::new(|| FakeReply::Close(b"HTTP/1.1 999 x\r\ncontent-length: 0\r\n\r\n".to_vec()))),
    ] {
        let server = FakeTarget::plain(move |_| reply()).await;
        let (code, message) = code(&server.client()).await;
        assert_eq!(code, "target_invalid_response", "{path}: {message}");
        until(|| server.counts.closed.load(Ordering::SeqCst) == 1).await;
    }
    let server = FakeTarget::plain(|_| FakeReply::Close(Vec::new())).await;
    assert_eq!(code(&server.client()).await.0, "target_unreachable", "no response at all");
}

#[tokio::test]
async fn the_delay_that_a_target_asks_for_is_a_number_or_a_date() {
    for (headers, expected) in [
        ("retry-after: 7\r\n", Some(7)),
        ("date: Fri, 27 Nov 2026 02:00:00 GMT\r\nretry-after: Fri, 27 Nov 2026 02:01:30 GMT\r\n", Some(90)),
        ("date: Fri, 27 Nov 2026 02:00:00 GMT\r\nretry-after: Fri, 27 Nov 2026 01:00:00 GMT\r\n", Some(0)),
        ("retry-after: soon\r\n", None),
        ("", None),
    ] {
        let reply = format!("HTTP/1.1 429 No\r\ncontent-length: 0\r\n{headers}\r\n").into_bytes();
        let server = FakeTarget::plain(move |_| FakeReply::Keep(reply.clone())).await;
        let response = server.client().send(get("/")).await.expect("answered");
        assert_eq!(response.retry_after_s(), expected, "{headers}");
    }
}

#[tokio::test]
async fn the_beginning_of_a_body_is_shown_however_long_it_is() {
    let body = "x".repeat(100_000);
    let server = FakeTarget::plain(move |_| FakeReply::Keep(answer("400 No", &body))).await;
    let request = TargetRequest { body_bytes_max: 64 << 10, ..get("/") };
    let response = server.client().send(request).await.expect("answered");
    assert_eq!(response.body.beginning(100).await, "x".repeat(100));
}

#[tokio::test]
async fn a_target_that_hangs_is_a_timeout_and_dropping_a_request_closes_its_connection() {
    for bytes in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx"] {
        let server = FakeTarget::plain(|_| FakeReply::Hang(bytes.into())).await;
        let client = server.client();
        let mut request = get("/");
        request.timeout = Duration::from_millis(80);
        let error = match client.send(request).await {
            Ok(response) => response.body.bytes().await.expect_err("the body does not end"),
            Err(error) => error,
        };
        assert_eq!(error.code(), "target_timeout", "{bytes:?}");
        until(|| server.counts.closed.load(Ordering::SeqCst) == 1).await;

        let waiting = tokio::spawn(async move { text(&client, "/").await });
        until(|| server.counts.requests.load(Ordering::SeqCst) == 2).await;
        waiting.abort();
        until(|| server.counts.closed.load(Ordering::SeqCst) == 2).await;
    }
}

#[tokio::test]
async fn addresses_that_are_not_public_need_an_entry() {
    let server = FakeTarget::plain(|_| FakeReply::Keep(answer("200 OK", "x"))).await;
    let port = server.address.port();
    let refused = egress(&[]);
    refused.answer("inside.example", "10.1.2.3".parse().expect("an address"));
    refused.answer("rebound.example", IpAddr::from([127, 0, 0, 1]));
    refused.answer("mapped.example", "::ffff:127.0.0.1".parse().expect("an address"));
    refused.answer("metadata.example", "169.254.169.254".parse().expect("an address"));
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0.0.0.0",
        "localhost",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[fd00:ec2::254]",
        "169.254.169.254",
        "192.168.1.1",
        "inside.example",
        "rebound.example",
        "mapped.example",
        "metadata.example",
    ] {
        let target = Target::new(url(&format!("http://{host}:{port}")));
        let client = TargetClient::new(target, refused.clone()).expect("valid");
        let (code, message) = code(&client).await;
        assert_eq!(code, "target_address_refused", "{host}: {message}");
        assert!(message.contains("--outbound-allow"), "{message}");
    }
    assert_eq!(server.counts.connections.load(Ordering::SeqCst), 0);
    // If a name has two addresses, only the allowed one is used.
    let mixed = egress(&["127.0.0.0/8"]);
    mixed.answer("mixed.example", IpAddr::from([10, 0, 0, 1]));
    mixed.answer("mixed.example", IpAddr::from([127, 0, 0, 1]));
    let target = Target::new(url(&format!("http://mixed.example:{port}")));
    let client = TargetClient::new(target, mixed).expect("valid");
    assert_eq!(text(&client, "/").await.expect("answered").0, 200);
}

#[tokio::test]
async fn the_server_itself_needs_an_entry_with_its_port() {
    let server = FakeTarget::plain(|_| FakeReply::Keep(answer("200 OK", "x"))).await;
    let with = |entry: &str, own: SocketAddr| {
        let egress = Egress::new(EgressRules::parse([entry]).expect("an entry"), &[own]);
        egress.answer("me.example", IpAddr::from([127, 0, 0, 1]));
        egress
    };
    let port = server.address.port();
    let everywhere = SocketAddr::from(([0, 0, 0, 0], port));
    for own in [server.address, everywhere] {
        for host in ["127.0.0.1", "localhost", "me.example", "0.0.0.0"] {
            let target = Target::new(url(&format!("http://{host}:{port}")));
            let client = TargetClient::new(target, with("0.0.0.0/0", own)).expect("valid");
            let (code, message) = code(&client).await;
            assert_eq!(code, "target_address_refused", "{host}");
            assert!(message.contains("this server"), "{message}");
        }
    }
    let allowed = with(&format!("127.0.0.1:{port}"), everywhere);
    let client = TargetClient::new(server.target("http"), allowed).expect("valid");
    assert_eq!(text(&client, "/").await.expect("answered").0, 200);
}
