//! Viewers of a live stream over real connections: each checks the steps that it receives, and
//! measures how late they are. They need little memory, so that one process can be ten thousand.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promlet::clock::Clock;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// The pause before a viewer connects again.
const RETRY: Duration = Duration::from_millis(200);
thread_local! {
    /// The buffer of all reads, so that a viewer that waits holds none.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 * 1_024]);
}

/// The bytes of a line that are looked at.
const PREFIX_BYTES: usize = 40;

/// What one viewer has received.
#[derive(Debug, Default)]
pub(crate) struct Viewed {
    /// The steps in milliseconds, in the order of their arrival.
    pub(crate) steps: Vec<i64>,
    /// The time from each step to its arrival, in milliseconds.
    pub(crate) late_ms: Vec<i64>,
    /// Events with points, gaps, and errors.
    pub(crate) points: usize,
    pub(crate) gaps: usize,
    pub(crate) errors: usize,
    /// Bytes of all responses.
    pub(crate) bytes: usize,
    /// Connections that were made, and responses that were no stream.
    pub(crate) connections: usize,
    pub(crate) refused: usize,
}

/// A stream that viewers open.
#[derive(Clone, Debug)]
pub(crate) struct LiveTarget {
    /// The address of the server, which changes when it restarts.
    pub(crate) address: Arc<Mutex<SocketAddr>>,
    pub(crate) path: String,
    pub(crate) token: String,
    pub(crate) body: String,
    pub(crate) viewing: Arc<Viewing>,
}

/// What the viewers of a target share.
#[derive(Debug, Default)]
pub(crate) struct Viewing {
    /// The number of steps that all have received.
    pub(crate) steps: AtomicUsize,
    /// Ends all viewers with their next step.
    pub(crate) stop: AtomicBool,
}

impl LiveTarget {
    /// Returns the request, which resumes after the step `last`.
    pub(crate) fn request(&self, last: Option<i64>) -> String {
        let LiveTarget { path, token, body, .. } = self;
        let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{last}Content-Type: \
             application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }
}

/// The lines of a response, which arrive in pieces.
#[derive(Default)]
struct Lines {
    prefix: Vec<u8>,
    is_stream: Option<bool>,
}

impl Viewed {
    /// Reads a piece of a response. Returns whether it is still a stream.
    fn take(&mut self, lines: &mut Lines, piece: &[u8], viewing: &Viewing) -> bool {
        self.bytes += piece.len();
        // The search in a text is several times as fast as a loop over bytes.
        let piece = String::from_utf8_lossy(piece);
        let mut piece = &*piece;
        while let Some(end) = piece.find('\n') {
            let room = PREFIX_BYTES.saturating_sub(lines.prefix.len());
            lines.prefix.extend_from_slice(&piece.as_bytes()[..end.min(room)]);
            piece = &piece[end + 1..];
            let line = String::from_utf8_lossy(&lines.prefix);
            let line = line.trim_end();
            match lines.is_stream {
                None => lines.is_stream = Some(line.starts_with("HTTP/1.1 200")),
                Some(false) => return false,
                Some(true) => {
                    if let Some(id) = line.strip_prefix("id: ") {
                        let step: i64 = id.parse().expect("an id");
                        self.steps.push(step);
                        viewing.steps.fetch_add(1, Ordering::Relaxed);
                        self.late_ms.push(Clock::System.now().as_ms() - step);
                    }
                    match line.strip_prefix("event: ") {
                        Some("points") => self.points += 1,
                        Some("gap") => self.gaps += 1,
                        Some("error") => self.errors += 1,
                        _ => {}
                    }
                }
            }
            lines.prefix.clear();
        }
        let room = PREFIX_BYTES.saturating_sub(lines.prefix.len());
        lines.prefix.extend_from_slice(&piece.as_bytes()[..piece.len().min(room)]);
        true
    }

    /// Reads one response until its end or `until`.
    async fn read(&mut self, target: &LiveTarget, until: Instant) -> std::io::Result<()> {
        let address = *target.address.lock().expect("unpoisoned");
        let stream = TcpStream::connect(address).await?;
        self.connections += 1;
        let _ = stream.set_nodelay(true);
        let request = target.request(self.steps.last().copied());
        let mut unsent = request.as_bytes();
        while !unsent.is_empty() {
            stream.writable().await?;
            match stream.try_write(unsent) {
                Ok(bytes) => unsent = &unsent[bytes..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        let mut lines = Lines::default();
        while !target.viewing.stop.load(Ordering::Relaxed) {
            if timeout_at(until, stream.readable()).await.is_err() {
                return Ok(());
            }
            let is_open = BUFFER.with_borrow_mut(|buffer| match stream.try_read(buffer) {
                Ok(0) => Ok(false),
                Ok(bytes) => {
                    let is_stream = self.take(&mut lines, &buffer[..bytes], &target.viewing);
                    self.refused += usize::from(!is_stream);
                    Ok(is_stream)
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(true),
                Err(error) => Err(error),
            })?;
            if !is_open {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Views a stream until `until` or a stop, and connects again after each end of it.
pub(crate) async fn view(target: LiveTarget, until: Instant) -> Viewed {
    let mut viewed = Viewed::default();
    while Instant::now() < until && !target.viewing.stop.load(Ordering::Relaxed) {
        // A connection that broke is made again, as after an end.
        let _ = timeout_at(until, viewed.read(&target, until)).await;
        tokio::time::sleep(RETRY).await;
    }
    viewed
}
