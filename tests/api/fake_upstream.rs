//! A server that answers every request with the same bytes, well-formed or not.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the server sends. Each connection has one request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// These bytes; then it closes.
    Bytes(Vec<u8>),
    /// These bytes; then it stays silent until the client closes.
    Hang(Vec<u8>),
    /// The first bytes, then the others again and again until the client closes.
    Endless(Vec<u8>, Vec<u8>),
}

pub(crate) struct FakeUpstream {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<AtomicUsize>,
}

impl FakeUpstream {
    /// Starts a server that ends with the process.
    pub(crate) fn start(reply: Reply) -> FakeUpstream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        // Without a name of its own it would count as a thread of the test (`met.rs`), and so would
        // the threads that it starts.
        let accept = move || {
            for stream in listener.incoming() {
                let (Ok(mut stream), reply) = (stream, reply.clone()) else { return };
                counted.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    let mut head = Vec::new();
                    let mut some = [0; 4_096];
                    while !is_whole(&head) {
                        match stream.read(&mut some) {
                            Ok(read @ 1..) => head.extend_from_slice(&some[..read]),
                            _ => return,
                        }
                    }
                    // A client that disconnects early is what some tests wait for.
                    let (first, again, hangs) = match reply {
                        Reply::Bytes(bytes) => (bytes, None, false),
                        Reply::Hang(bytes) => (bytes, None, true),
                        Reply::Endless(bytes, again) => (bytes, Some(again), false),
                    };
                    if stream.write_all(&first).is_err() {
                        return;
                    }
                    while let Some(again) = &again {
                        if stream.write_all(again).is_err() {
                            return;
                        }
                    }
                    while hangs && stream.read(&mut some).is_ok_and(|read| read > 0) {}
                });
            }
        };
        std::thread::Builder::new().name("fake-upstream".into()).spawn(accept).expect("a thread");
        FakeUpstream { address, requests }
    }

    /// Answers with a status and a body.
    pub(crate) fn answering(status: &str, media: &str, body: &str) -> FakeUpstream {
        FakeUpstream::start(Reply::Bytes(response(status, media, body)))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

pub(crate) fn response(status: &str, media: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
        .into_bytes()
}

/// Whether a request has arrived with its body.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
    body.len() >= length.unwrap_or(0_usize)
}
