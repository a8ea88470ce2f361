//! A receiver of remote write that acknowledges each request and counts its bytes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long the receiver must have been without a request before all samples have arrived.
const QUIET: Duration = Duration::from_secs(3);
/// The most times that the receiver waits for [`QUIET`].
const WAITS_MAX: usize = 40;

pub(crate) struct Receiver {
    pub(crate) url: String,
    bytes: Arc<AtomicU64>,
}

impl Receiver {
    /// Starts a receiver on a free port, which runs until the end of the process.
    pub(crate) fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/api/v1/write", listener.local_addr().expect("an address"));
        let bytes = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&bytes);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || answer(stream, &counter));
            }
        });
        Receiver { url, bytes }
    }

    /// Returns the bytes of all bodies.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }

    /// Waits until no request has arrived for [`QUIET`].
    pub(crate) fn wait_quiet(&self) {
        let is_quiet = || {
            let before = self.bytes();
            std::thread::sleep(QUIET);
            self.bytes() == before
        };
        assert!((0..WAITS_MAX).any(|_| is_quiet()), "requests arrive without an end");
    }
}

fn answer(stream: TcpStream, bytes: &AtomicU64) {
    let Ok(mut writer) = stream.try_clone() else { return };
    let mut reader = BufReader::with_capacity(1 << 16, stream);
    let mut body = Vec::new();
    loop {
        let mut length = 0;
        let mut line = String::new();
        loop {
            line.clear();
            if !matches!(reader.read_line(&mut line), Ok(1..)) {
                return;
            }
            if line == "\r\n" {
                break;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if lower.starts_with("expect:") && writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").is_err() {
                return;
            }
        }
        body.resize(length, 0);
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        bytes.fetch_add(length as u64, Ordering::SeqCst);
        if writer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").is_err() {
            return;
        }
    }
}
