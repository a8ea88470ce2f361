//! Viewers of a live stream over real connections: each checks the steps that it receives, and
//! measures how late they are. They need little memory and time, so that one process can be ten
//! thousand: streams in gzip share their frames, and each frame is decoded for its first viewer.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
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
/// The frames in gzip whose events are remembered.
const KNOWN_FRAMES: usize = 8;
/// The most bytes of the text of a frame in gzip.
const TEXT_BYTES_MAX: usize = 1 << 20;
thread_local! {
    static KNOWN: RefCell<VecDeque<(Vec<u8>, Rc<FrameEvents>)>> = RefCell::default();
}

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
    pub(crate) in_gzip: bool,
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
        let coding = if self.in_gzip { "gzip" } else { "identity" };
        let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{last}Accept-Encoding: \
             {coding}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
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

/// The chunks of a response in gzip, which arrive in pieces. Each is a frame of the server.
#[derive(Default)]
struct Chunks {
    has_head: bool,
    /// The beginning of a chunk.
    rest: Vec<u8>,
}

/// The events of a frame.
#[derive(Debug, Default)]
struct FrameEvents {
    steps: Vec<i64>,
    points: usize,
    gaps: usize,
    errors: usize,
}

impl FrameEvents {
    /// Decodes a frame, which refers to nothing before it.
    fn decode(frame: &[u8]) -> FrameEvents {
        // The last frame has an empty block, the checksum and the length.
        if frame.starts_with(&[3, 0]) {
            return FrameEvents::default();
        }
        // The first frame begins with the ten bytes of the header.
        let frame = if frame.starts_with(&[0x1f, 0x8b]) { &frame[10..] } else { frame };
        let mut text = Vec::with_capacity(TEXT_BYTES_MAX);
        let mut decoder = flate2::Decompress::new(false);
        decoder.decompress_vec(frame, &mut text, flate2::FlushDecompress::Sync).expect("a part of deflate");
        assert_eq!(decoder.total_in(), frame.len() as u64, "the whole frame");
        let mut events = FrameEvents::default();
        for line in String::from_utf8(text).expect("UTF-8").lines() {
            events.take(line);
        }
        events
    }

    /// Adds what a line says.
    fn take(&mut self, line: &str) {
        if let Some(id) = line.strip_prefix("id: ") {
            self.steps.push(id.parse().expect("an id"));
        }
        match line.strip_prefix("event: ") {
            Some("points") => self.points += 1,
            Some("gap") => self.gaps += 1,
            Some("error") => self.errors += 1,
            _ => {}
        }
    }

    /// Returns the events of a frame in gzip.
    fn of(frame: &[u8]) -> Rc<FrameEvents> {
        KNOWN.with_borrow_mut(|known| {
            if let Some((_, events)) = known.iter().find(|(bytes, _)| bytes == frame) {
                return Rc::clone(events);
            }
            let events = Rc::new(FrameEvents::decode(frame));
            if known.len() == KNOWN_FRAMES {
                known.pop_front();
            }
            known.push_back((frame.to_vec(), Rc::clone(&events)));
            events
        })
    }
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
                    let mut events = FrameEvents::default();
                    events.take(line);
                    self.add(&events, viewing);
                }
            }
            lines.prefix.clear();
        }
        let room = PREFIX_BYTES.saturating_sub(lines.prefix.len());
        lines.prefix.extend_from_slice(&piece.as_bytes()[..piece.len().min(room)]);
        true
    }

    /// Adds events that have arrived now.
    fn add(&mut self, FrameEvents { steps, points, gaps, errors }: &FrameEvents, viewing: &Viewing) {
        for step in steps {
            self.steps.push(*step);
            viewing.steps.fetch_add(1, Ordering::Relaxed);
            self.late_ms.push(Clock::System.now().as_ms() - step);
        }
        self.points += points;
        self.gaps += gaps;
        self.errors += errors;
    }

    /// Reads a piece of a response in gzip. Returns whether it is still a stream.
    fn take_chunks(&mut self, chunks: &mut Chunks, piece: &[u8], viewing: &Viewing) -> bool {
        self.bytes += piece.len();
        let held = std::mem::take(&mut chunks.rest);
        let joined = if held.is_empty() { Vec::new() } else { [&held, piece].concat() };
        // Most chunks arrive as a whole.
        let mut input = if held.is_empty() { piece } else { &joined };
        let find = |input: &[u8], what: &[u8]| input.windows(what.len()).position(|part| part == what);
        if !chunks.has_head {
            let Some(end) = find(input, b"\r\n\r\n") else {
                chunks.rest = input.to_vec();
                return true;
            };
            if !input.starts_with(b"HTTP/1.1 200") {
                return false;
            }
            (chunks.has_head, input) = (true, &input[end + 4..]);
        }
        while let Some(end) = find(&input[..input.len().min(18)], b"\r\n") {
            let size = std::str::from_utf8(&input[..end]).expect("text");
            let size = usize::from_str_radix(size, 16).expect("the size of a chunk");
            let Some(frame) = input.get(end + 2..end + 2 + size) else { break };
            let Some(next) = input.get(end + 2 + size + 2..) else { break };
            if size > 0 {
                self.add(&FrameEvents::of(frame), viewing);
            }
            input = next;
        }
        chunks.rest = input.to_vec();
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
        let (mut lines, mut chunks) = (Lines::default(), Chunks::default());
        while !target.viewing.stop.load(Ordering::Relaxed) {
            if timeout_at(until, stream.readable()).await.is_err() {
                return Ok(());
            }
            let is_open = BUFFER.with_borrow_mut(|buffer| match stream.try_read(buffer) {
                Ok(0) => Ok(false),
                Ok(bytes) => {
                    let (piece, viewing) = (&buffer[..bytes], &*target.viewing);
                    let is_stream = match target.in_gzip {
                        true => self.take_chunks(&mut chunks, piece, viewing),
                        false => self.take(&mut lines, piece, viewing),
                    };
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
