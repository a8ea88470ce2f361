//! Line ends in the heads of requests.
//!
//! A head line ends with CR LF. RFC 9112, section 2.2, lets a server take a bare LF for a line end, and hyper does. A proxy
//! that does not would see one request where the server sees two, so a bare LF is refused.
//!
//! hyper does not say which bytes are heads, so bodies are measured here a second time, by Content-Length or by chunks.
//! Where the length of a body is in doubt, nothing more is looked at: hyper refuses such requests, or closes after them.

/// Bytes of a line that are kept: more than the headers that measure a body need.
const LINE_BYTES_KEPT: usize = 64;

/// What the bytes of a connection are, as far as they were seen.
#[derive(Clone, Debug, Default)]
pub(super) struct LineEnds {
    state: State,
    /// The beginning of the line that is being read.
    line: Vec<u8>,
    /// Bytes of it, without its line end.
    line_bytes: usize,
    after_cr: bool,
    /// What the head says so far.
    head: Head,
    /// Heads that have ended.
    heads: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// So many bytes of a body or of a chunk are left.
    Body {
        left: u64,
        chunk: bool,
    },
    ChunkSize,
    /// The line end after the data of a chunk.
    ChunkEnd,
    Trailers,
    /// The next head cannot be told from the body before it.
    Lost,
}

#[derive(Clone, Copy, Debug, Default)]
struct Head {
    /// The request line was read; empty lines may stand before it.
    begun: bool,
    content_length: Option<u64>,
    chunked: bool,
}

/// A bare LF in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BareLineFeed {
    /// No request came before it on this connection, so no answer can be on its way.
    pub(super) in_first_head: bool,
}

impl LineEnds {
    /// Looks at the next bytes of the connection.
    ///
    /// # Errors
    /// [`BareLineFeed`]; then the connection has to end.
    pub(super) fn look(&mut self, mut bytes: &[u8]) -> Result<(), BareLineFeed> {
        while !bytes.is_empty() {
            match self.state {
                State::Lost => return Ok(()),
                State::Body { left, chunk } => {
                    let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = bytes.get(skipped..).unwrap_or_default();
                    self.state = match left - skipped as u64 {
                        0 if chunk => State::ChunkEnd,
                        0 => State::Head,
                        left => State::Body { left, chunk },
                    };
                }
                State::Head | State::ChunkSize | State::ChunkEnd | State::Trailers => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let (text, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
                    self.keep(text);
                    bytes = rest.get(1..).unwrap_or_default();
                    if end.is_some() {
                        self.end_line()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, text: &[u8]) {
        let room = LINE_BYTES_KEPT.saturating_sub(self.line.len());
        self.line.extend_from_slice(text.get(..room.min(text.len())).unwrap_or_default());
        self.line_bytes += text.len();
        self.after_cr = text.last().map_or(self.after_cr, |last| *last == b'\r');
    }

    fn end_line(&mut self) -> Result<(), BareLineFeed> {
        let after_cr = std::mem::take(&mut self.after_cr);
        if !after_cr && matches!(self.state, State::Head | State::Trailers) {
            return Err(BareLineFeed { in_first_head: self.heads == 0 });
        }
        let line = std::mem::take(&mut self.line);
        let line_bytes = std::mem::take(&mut self.line_bytes).saturating_sub(1);
        let whole = line.get(..line_bytes).filter(|_| after_cr);
        self.state = match self.state {
            State::Head => self.head_line(&line, whole),
            State::ChunkSize => match whole.and_then(chunk_bytes) {
                None => State::Lost,
                Some(0) => State::Trailers,
                Some(left) => State::Body { left, chunk: true },
            },
            State::ChunkEnd if whole == Some(b"") => State::ChunkSize,
            State::Trailers if whole == Some(b"") => State::Head,
            State::Trailers => State::Trailers,
            State::ChunkEnd | State::Body { .. } | State::Lost => State::Lost,
        };
        Ok(())
    }

    /// What follows a line of a head; `whole` is none if the line is longer than what is kept.
    fn head_line(&mut self, kept: &[u8], whole: Option<&[u8]>) -> State {
        if whole == Some(b"") {
            if !self.head.begun {
                return State::Head;
            }
            let head = std::mem::take(&mut self.head);
            self.heads += 1;
            return match (head.chunked, head.content_length) {
                (true, None) => State::ChunkSize,
                (true, Some(_)) => State::Lost,
                (false, None | Some(0)) => State::Head,
                (false, Some(left)) => State::Body { left, chunk: false },
            };
        }
        if !std::mem::replace(&mut self.head.begun, true) {
            return State::Head;
        }
        let is = |name: &str| {
            kept.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
        };
        let value = || Some(whole?.splitn(2, |byte| *byte == b':').nth(1)?.trim_ascii());
        if is("content-length") {
            let Some(length) = value().and_then(digits) else { return State::Lost };
            if self.head.content_length.replace(length).is_some_and(|before| before != length) {
                return State::Lost;
            }
        } else if is("transfer-encoding") {
            if self.head.chunked || !value().is_some_and(|value| value.eq_ignore_ascii_case(b"chunked")) {
                return State::Lost;
            }
            self.head.chunked = true;
        }
        State::Head
    }
}

fn digits(text: &[u8]) -> Option<u64> {
    let digits = text.iter().all(u8::is_ascii_digit).then_some(text)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The bytes of a chunk by its first line, extensions included.
fn chunk_bytes(line: &[u8]) -> Option<u64> {
    let size = line.split(|byte| *byte == b';').next()?.trim_ascii();
    let hex = size.iter().all(u8::is_ascii_hexdigit).then_some(size)?;
    u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const COUNTED: &str = "POST / HTTP/1.1\r\nHost: a\r\ncontent-LENGTH:  5 \r\n\r\na\nb\n\n";
    const CHUNKED: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4;x=\"y\"\r\na\n\n\n\r\nA\r\n\n\n\n\n\n\n\n\n\n\n\r\n0\r\nT: u\r\n\r\n";

    fn look(text: &str) -> Result<(), BareLineFeed> {
        LineEnds::default().look(text.as_bytes())
    }

    #[test]
    fn a_bare_line_feed_is_found_anywhere_in_a_head() {
        for bad in [
            "\nGET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
            "GET / HTTP/1.1\r\nHost: a\r\r\n\nX: b\r\n\r\n",
        ] {
            assert_eq!(look(bad), Err(BareLineFeed { in_first_head: true }), "{bad:?}");
            for before in [GET, COUNTED, CHUNKED] {
                let later = look(&format!("{before}{bad}"));
                assert_eq!(later, Err(BareLineFeed { in_first_head: false }), "{before:?} {bad:?}");
            }
        }
        let trailer = CHUNKED.replace("T: u\r\n", "T: u\n");
        assert_eq!(look(&trailer), Err(BareLineFeed { in_first_head: false }));
    }

    /// hyper refuses these, or closes after them; no byte of theirs may be taken for a head.
    #[test]
    fn after_a_body_of_doubtful_length_nothing_is_looked_at() {
        for headers in [
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            &format!("Content-Length: {}1\r\n", " ".repeat(64)),
        ] {
            assert_eq!(look(&format!("POST / HTTP/1.1\r\n{headers}\r\na\nb\nc\n")), Ok(()), "{headers:?}");
        }
        assert_eq!(look("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nno\r\na\nb\n"), Ok(()));
        assert_eq!(look("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\na\nb\n"), Ok(()));
    }

    proptest! {
        /// However the bytes arrive.
        #[test]
        fn requests_in_a_row_are_told_apart(
            requests in prop::collection::vec(prop::sample::select(vec![GET, COUNTED, CHUNKED]), 1..6),
            pieces in prop::collection::vec(1_usize..40, 1..200),
            bad in any::<bool>(),
        ) {
            let mut text = requests.concat();
            if bad {
                text.push_str("GET / HTTP/1.1\r\nHost: a\n\r\n");
            }
            let (mut rest, mut ends, mut found) = (text.as_bytes(), LineEnds::default(), Ok(()));
            for piece in pieces.iter().cycle() {
                let (now, later) = rest.split_at((*piece).min(rest.len()));
                found = found.and_then(|()| ends.look(now));
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found.is_err(), bad);
            prop_assert_eq!(ends.heads, requests.len() as u64);
        }
    }
}
