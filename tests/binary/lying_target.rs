//! A target of forwarding that misbehaves in every way of the list "Bad input": statuses, pages,
//! redirects, silence, answers that are cut or endless, and acknowledgements of samples that it
//! forgets. It keeps what it accepted, so that a test can compare that with what was sent.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promlet::ingest::{DecodeLimits, DecodeScratch, PROTOCOLS};
use promlet::model::Refusal;

/// An answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Accepts the samples and answers 204: the truth.
    Accept,
    /// Answers with this status and a text.
    Status(u16),
    /// Answers 429 with `Retry-After: 1`.
    TooManyRequests,
    /// Answers 503 with `Retry-After` as a date, two seconds after that of the response.
    RetryAfterDate,
    /// Answers 200 with a page, as a captive portal does.
    Page,
    /// Answers 400 with a page, as a proxy does.
    Page400,
    /// Answers with a redirect to another host.
    Redirect,
    /// Reads the request and never answers.
    Hang,
    /// Closes the connection without reading the body.
    CloseBeforeBody,
    /// Closes the connection in the middle of the answer's head.
    CutInHead,
    /// Promises 1,000 bytes of body, sends ten, and closes the connection.
    CutInBody,
    /// Accepts the samples, and closes the connection in the middle of the answer's head.
    AcceptThenCut,
    /// Answers with bytes that are not HTTP.
    NotHttp,
    /// Answers 400 with JSON that ends in the middle.
    InvalidJson,
    /// Answers 400 with a body of more bytes than fit in memory, as long as the client reads.
    EndlessBody,
    /// Answers with a head that does not end, as long as the client reads.
    EndlessHead,
    /// Answers 204 and says that it wrote no sample, and forgets them.
    AcknowledgeAndForget,
}

impl Lie {
    /// All lies, after each of which a sender must not have lost a sample that it retries.
    pub(crate) const ALL: [Lie; 26] = [
        Lie::Accept,
        Lie::Status(400),
        Lie::Status(401),
        Lie::Status(403),
        Lie::Status(404),
        Lie::Status(409),
        Lie::Status(413),
        Lie::Status(415),
        Lie::Status(422),
        Lie::Status(500),
        Lie::Status(503),
        Lie::TooManyRequests,
        Lie::RetryAfterDate,
        Lie::Page,
        Lie::Page400,
        Lie::Redirect,
        Lie::Hang,
        Lie::CloseBeforeBody,
        Lie::CutInHead,
        Lie::CutInBody,
        Lie::AcceptThenCut,
        Lie::NotHttp,
        Lie::InvalidJson,
        Lie::EndlessBody,
        Lie::EndlessHead,
        Lie::AcknowledgeAndForget,
    ];
}

/// The time and bits of each accepted sample in the order of arrival, by series.
pub(crate) type Accepted = BTreeMap<String, Vec<(i64, u64)>>;

/// A running target. It stops accepting connections when it is dropped.
pub(crate) struct LyingTarget {
    /// `http://127.0.0.1:PORT`.
    pub(crate) url: String,
    shared: Arc<SharedState>,
}

type Script = dyn Fn(usize) -> Lie + Send + Sync;

struct SharedState {
    script: Box<Script>,
    requests: AtomicUsize,
    accepted: Mutex<Accepted>,
    heads: Mutex<Vec<String>>,
    stopped: AtomicBool,
}

impl LyingTarget {
    /// Starts a target that answers request number `n`, from 0, with `script(n)`.
    pub(crate) fn start(script: impl Fn(usize) -> Lie + Send + Sync + 'static) -> LyingTarget {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let shared = Arc::new(SharedState {
            script: Box::new(script),
            requests: AtomicUsize::new(0),
            accepted: Mutex::default(),
            heads: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let state = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if state.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (state, stream) = (Arc::clone(&state), stream.expect("a connection"));
                // The client may close the connection at any point, which ends the thread.
                std::thread::spawn(move || drop(state.serve(&stream)));
            }
        });
        LyingTarget { url, shared }
    }

    /// Returns the samples accepted so far.
    pub(crate) fn accepted(&self) -> Accepted {
        self.shared.accepted.lock().expect("unpoisoned").clone()
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Returns the heads of the requests so far, in lower case.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.shared.heads.lock().expect("unpoisoned").clone()
    }
}

impl Drop for LyingTarget {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts connections.
        drop(TcpStream::connect(self.url.trim_start_matches("http://")));
    }
}

impl SharedState {
    /// Serves one connection until an answer ends it.
    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head)? == 0 {
                    return Ok(());
                }
            }
            let head = head.to_ascii_lowercase();
            self.heads.lock().expect("unpoisoned").push(head.clone());
            let lie = (self.script)(self.requests.fetch_add(1, Ordering::SeqCst));
            if lie == Lie::CloseBeforeBody {
                return Ok(());
            }
            let length = header(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            if matches!(lie, Lie::Accept | Lie::AcceptThenCut) {
                self.accept(&head, &body);
            }
            if !answer(stream, lie)? {
                return Ok(());
            }
        }
    }

    fn accept(&self, head: &str, body: &[u8]) {
        let content_type = header(head, "content-type").unwrap_or_default();
        let plain;
        let (encoding, body) = match header(head, "content-encoding") {
            Some("zstd") => {
                plain = zstd::decode_all(body).expect("zstd");
                ("snappy", snappy(&plain))
            }
            encoding => (encoding.unwrap_or_default(), body.to_vec()),
        };
        let protocol = PROTOCOLS
            .iter()
            .find(|one| (one.accepts_type)(content_type) && (one.accepts_encoding)(encoding))
            .unwrap_or_else(|| panic!("no protocol for {head}"));
        let mut scratch = DecodeScratch::default();
        let batch = (protocol.decode)(&body, &DecodeLimits::default(), &mut scratch).expect("a request");
        let mut accepted = self.accepted.lock().expect("unpoisoned");
        for series in &batch.series {
            let mut pairs = Vec::new();
            (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels");
            let text = |bytes| std::str::from_utf8(bytes).expect("UTF-8");
            let name = Refusal::series_text(pairs.iter().map(|(name, value)| (text(*name), text(*value))));
            let samples = batch.samples[series.samples.clone()].iter();
            let samples = samples.map(|sample| (sample.at.as_ms(), sample.value.to_bits()));
            accepted.entry(name).or_default().extend(samples);
        }
    }
}

/// Compresses to a snappy block of literals.
fn snappy(plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut length = plain.len();
    while length >= 128 {
        out.push(u8::try_from(length % 128).expect("small") | 128);
        length /= 128;
    }
    out.push(u8::try_from(length).expect("small"));
    for chunk in plain.chunks(60) {
        out.push(u8::try_from((chunk.len() - 1) << 2).expect("small"));
        out.extend_from_slice(chunk);
    }
    out
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines()
        .find_map(|line| line.split_once(':').filter(|(found, _)| *found == name))
        .map(|(_, value)| value.trim())
}

/// Answers a request. Returns whether the connection stays open.
fn answer(mut stream: &TcpStream, lie: Lie) -> std::io::Result<bool> {
    let whole = |status: &str, headers: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
    };
    let (text, stays_open) = match lie {
        Lie::Accept => ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), true),
        Lie::Status(status) => (whole(&format!("{status} Refused"), "", "no, and the reason is long"), true),
        Lie::TooManyRequests => (whole("429 Too Many Requests", "retry-after: 1\r\n", "slower"), true),
        Lie::RetryAfterDate => {
            let date =
                "date: Fri, 31 Dec 2100 23:59:58 GMT\r\nretry-after: Sat, 01 Jan 2101 00:00:00 GMT\r\n";
            (whole("503 Service Unavailable", date, "later"), true)
        }
        Lie::Page400 => {
            let page = "<html>The plain HTTP request was sent to HTTPS port</html>";
            (whole("400 Bad Request", "Content-Type: Text/HTML; charset=utf-8\r\n", page), true)
        }
        Lie::Page => (whole("200 OK", "content-type: text/html\r\n", "<html>Please sign in</html>"), true),
        Lie::Redirect => {
            let to = "location: http://169.254.169.254/latest/meta-data\r\n";
            (whole("307 Temporary Redirect", to, ""), true)
        }
        Lie::Hang => {
            // Until the client closes the connection.
            let mut rest = [0; 64];
            while stream.read(&mut rest)? > 0 {}
            return Ok(false);
        }
        Lie::CutInHead | Lie::AcceptThenCut => ("HTTP/1.1 204 No Con".to_owned(), false),
        Lie::CutInBody => ("HTTP/1.1 400 Bad\r\ncontent-length: 1000\r\n\r\n0123456789".to_owned(), false),
        Lie::NotHttp => ("\u{0}\u{1}SSH-2.0-OpenSSH\r\n".to_owned(), false),
        Lie::InvalidJson => {
            let json = "content-type: application/json\r\n";
            (whole("400 Bad Request", json, "{\"status\":\"error\",\"err"), true)
        }
        Lie::EndlessBody => {
            stream.write_all(b"HTTP/1.1 400 Bad\r\ntransfer-encoding: chunked\r\n\r\n")?;
            return endless(stream, &format!("10000\r\n{}\r\n", "x".repeat(65_536)));
        }
        Lie::EndlessHead => {
            stream.write_all(b"HTTP/1.1 204 No Content\r\n")?;
            return endless(stream, &format!("x-filler: {}\r\n", "x".repeat(1_000)));
        }
        Lie::AcknowledgeAndForget => {
            let written = "x-prometheus-remote-write-samples-written: 0\r\n";
            (format!("HTTP/1.1 204 No Content\r\n{written}\r\n"), true)
        }
        Lie::CloseBeforeBody => return Ok(false),
    };
    stream.write_all(text.as_bytes())?;
    Ok(stays_open)
}

/// Sends a text again and again, until the client closes the connection or reads nothing for ten
/// seconds.
fn endless(mut stream: &TcpStream, text: &str) -> std::io::Result<bool> {
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    loop {
        stream.write_all(text.as_bytes())?;
    }
}
