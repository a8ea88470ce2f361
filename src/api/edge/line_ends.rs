//! Refuses request heads that a proxy and this server could read differently.
//!
//! A head line ends with CR LF. RFC 9112, section 2.2, lets a server accept a bare LF as a line
//! end, and hyper does. A proxy that does not would see one request where the server sees two, so a
//! head with a bare LF is refused.
//!
//! hyper does not report which bytes are heads, so bodies are measured here a second time, by
//! Content-Length or by chunks. A head that does not state the length of its body in exactly one
//! plain way is refused as well: otherwise the next head could not be found.

/// Stored bytes of a line: more than the headers that state the length of a body need.
const LINE_BYTES_KEPT: usize = 64;

/// The framing of a connection's bytes so far.
#[derive(Clone, Debug, Default)]
pub(super) struct LineEnds {
    state: FramingState,
    /// The first bytes of the current line, at most [`LINE_BYTES_KEPT`].
    line: Vec<u8>,
    /// The length of the current line in bytes, without LF.
    line_bytes: usize,
    after_cr: bool,
    /// The current head so far.
    head: HeadFields,
    /// The number of complete heads.
    heads: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FramingState {
    #[default]
    HeadFields,
    /// `left` bytes of a body or of a chunk follow.
    Body {
        left: u64,
        chunk: bool,
    },
    ChunkSize,
    /// The line end after the data of a chunk.
    ChunkEnd,
    Trailers,
    /// The chunks are malformed. hyper refuses such a body and closes the connection.
    Malformed,
}

#[derive(Clone, Copy, Debug, Default)]
struct HeadFields {
    /// The request line was read. Empty lines may precede it.
    begun: bool,
    content_length: Option<u64>,
    chunked: bool,
    /// The length of the body is stated in a form that other programs may read differently.
    ambiguous: bool,
}

/// A head that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RefusedHead {
    pub(super) reason: Reason,
    /// No request precedes it on this connection, so no response can be on its way.
    pub(super) in_first_head: bool,
}

/// The reason for refusing a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// A line ends with LF alone.
    BareLineFeed,
    /// Content-Length and Transfer-Encoding do not state one length, or a chunk does not.
    AmbiguousLength,
}

impl LineEnds {
    /// Reads the next bytes of the connection.
    ///
    /// # Errors
    /// A head that is refused. The connection must end.
    pub(super) fn scan(&mut self, mut bytes: &[u8]) -> Result<(), RefusedHead> {
        while !bytes.is_empty() {
            match self.state {
                FramingState::Malformed => return Ok(()),
                FramingState::Body { left, chunk } => {
                    let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = bytes.get(skipped..).unwrap_or_default();
                    self.state = match left - skipped as u64 {
                        0 if chunk => FramingState::ChunkEnd,
                        0 => FramingState::HeadFields,
                        left => FramingState::Body { left, chunk },
                    };
                }
                FramingState::HeadFields
                | FramingState::ChunkSize
                | FramingState::ChunkEnd
                | FramingState::Trailers => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let (text, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
                    self.append_to_line(text);
                    bytes = rest.get(1..).unwrap_or_default();
                    if end.is_some() {
                        self.end_line()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn append_to_line(&mut self, text: &[u8]) {
        let free = LINE_BYTES_KEPT.saturating_sub(self.line.len());
        self.line.extend_from_slice(text.get(..free.min(text.len())).unwrap_or_default());
        self.line_bytes += text.len();
        self.after_cr = text.last().map_or(self.after_cr, |last| *last == b'\r');
    }

    fn refuse<T>(&self, reason: Reason) -> Result<T, RefusedHead> {
        Err(RefusedHead { reason, in_first_head: self.heads == 0 })
    }

    fn end_line(&mut self) -> Result<(), RefusedHead> {
        let after_cr = std::mem::take(&mut self.after_cr);
        if !after_cr && matches!(self.state, FramingState::HeadFields | FramingState::Trailers) {
            return self.refuse(Reason::BareLineFeed);
        }
        let line = std::mem::take(&mut self.line);
        let line_bytes = std::mem::take(&mut self.line_bytes).saturating_sub(1);
        let whole = line.get(..line_bytes).filter(|_| after_cr);
        self.state = match self.state {
            FramingState::HeadFields => self.head_line(&line, whole)?,
            FramingState::ChunkSize if !after_cr => FramingState::Malformed,
            FramingState::ChunkSize => {
                let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
                if whole.is_none() && size.len() == line.len() {
                    // The size itself may be cut off.
                    return self.refuse(Reason::AmbiguousLength);
                }
                match hexadecimal(size.trim_ascii()) {
                    None => FramingState::Malformed,
                    Some(0) => FramingState::Trailers,
                    Some(left) => FramingState::Body { left, chunk: true },
                }
            }
            FramingState::ChunkEnd if whole == Some(b"") => FramingState::ChunkSize,
            FramingState::Trailers if whole == Some(b"") => FramingState::HeadFields,
            FramingState::Trailers => FramingState::Trailers,
            FramingState::ChunkEnd | FramingState::Body { .. } | FramingState::Malformed => {
                FramingState::Malformed
            }
        };
        Ok(())
    }

    /// The state after a line of a head. `whole` is `None` if the line is longer than `kept`.
    fn head_line(&mut self, kept: &[u8], whole: Option<&[u8]>) -> Result<FramingState, RefusedHead> {
        if whole == Some(b"") {
            if !self.head.begun {
                return Ok(FramingState::HeadFields);
            }
            let head = std::mem::take(&mut self.head);
            if head.ambiguous || (head.chunked && head.content_length.is_some()) {
                return self.refuse(Reason::AmbiguousLength);
            }
            self.heads += 1;
            return Ok(match head.content_length {
                _ if head.chunked => FramingState::ChunkSize,
                None | Some(0) => FramingState::HeadFields,
                Some(left) => FramingState::Body { left, chunk: false },
            });
        }
        if !std::mem::replace(&mut self.head.begun, true) {
            return Ok(FramingState::HeadFields);
        }
        let name = kept.split(|byte| *byte == b':').next().unwrap_or_default();
        let value = || Some(whole?.get(name.len() + 1..)?.trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = value().and_then(digits);
            let before = self.head.content_length;
            self.head.ambiguous |= length.is_none() || before.is_some_and(|before| length != Some(before));
            self.head.content_length = length.or(before);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let chunked = value().is_some_and(|value| value.eq_ignore_ascii_case(b"chunked"));
            self.head.ambiguous |= self.head.chunked || !chunked;
            self.head.chunked = true;
        }
        Ok(FramingState::HeadFields)
    }
}

fn digits(text: &[u8]) -> Option<u64> {
    let digits = text.iter().all(u8::is_ascii_digit).then_some(text)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    let hex = text.iter().all(u8::is_ascii_hexdigit).then_some(text)?;
    u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const COUNTED: &str = "POST / HTTP/1.1\r\nHost: a\r\ncontent-LENGTH:  5 \r\n\r\na\nb\n\n";
    const CHUNKED: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4;x=\"y\"\r\na\n\n\n\r\nA\r\n\n\n\n\n\n\n\n\n\n\n\r\n0\r\nT: u\r\n\r\n";

    fn scan(text: &str) -> Result<(), RefusedHead> {
        LineEnds::default().scan(text.as_bytes())
    }

    fn refused(reason: Reason, in_first_head: bool) -> Result<(), RefusedHead> {
        Err(RefusedHead { reason, in_first_head })
    }

    #[test]
    fn a_bare_line_feed_is_found_anywhere_in_a_head() {
        for bad in [
            "\nGET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
            "GET / HTTP/1.1\r\nHost: a\r\r\n\nX: b\r\n\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding-Foo: x\r\nX: y\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length-Foo: 2000\r\nX: y\n\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\nX: y\n\r\n",
        ] {
            assert_eq!(scan(bad), refused(Reason::BareLineFeed, true), "{bad:?}");
            for before in [GET, COUNTED, CHUNKED] {
                let later = scan(&format!("{before}{bad}"));
                assert_eq!(later, refused(Reason::BareLineFeed, false), "{before:?} {bad:?}");
            }
        }
        let trailer = CHUNKED.replace("T: u\r\n", "T: u\n");
        assert_eq!(scan(&trailer), refused(Reason::BareLineFeed, false));
        let extended = CHUNKED.replace(";x=", &format!(";{}=", "x".repeat(LINE_BYTES_KEPT)));
        let after_extension = scan(&format!("{extended}GET / HTTP/1.1\n\r\n"));
        assert_eq!(after_extension, refused(Reason::BareLineFeed, false));
    }

    #[test]
    fn a_head_with_an_ambiguous_body_length_is_refused() {
        for headers in [
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            &format!("Content-Length: {}1\r\n", " ".repeat(LINE_BYTES_KEPT)),
        ] {
            let head = format!("POST / HTTP/1.1\r\n{headers}\r\na\nb\nc\n");
            assert_eq!(scan(&head), refused(Reason::AmbiguousLength, true), "{headers:?}");
        }
        let size = format!("{}4", "0".repeat(LINE_BYTES_KEPT));
        let padded = CHUNKED.replace("4;x=\"y\"", &size);
        assert_eq!(scan(&padded), refused(Reason::AmbiguousLength, false));
    }

    /// hyper refuses such a body and closes the connection.
    #[test]
    fn after_malformed_chunks_nothing_is_read_as_a_head() {
        for body in ["no\r\na\nb\n", "1\r\nab\r\na\nb\n", "1\nab\r\n"] {
            assert_eq!(
                scan(&format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}")),
                Ok(()),
                "{body:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn requests_in_a_row_are_told_apart_however_their_bytes_arrive(
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
                found = found.and_then(|()| ends.scan(now));
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
