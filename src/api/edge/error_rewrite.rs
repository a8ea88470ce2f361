//! Rewrites the error responses that hyper generates itself.
//!
//! hyper responds to malformed requests (400, 414, 431) with a head without a body, and closes the
//! connection. Every response must have the headers and the format of docs/specification.md B, so
//! such a head is replaced as it is written. It is recognised by its first bytes and by the missing
//! request id, which all other responses have. A head that follows the rest of another response in
//! the same write is sent unchanged. A head that `line_ends` refuses never reaches hyper, which
//! would accept it.

use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::line_ends::{LineEnds, Reason, RefusedHead};
use crate::api::error::{ApiError, Code};
use crate::api::request_id::RequestId;
use crate::api::security_headers;
use crate::entropy::Entropy;

/// The stream below hyper, with its error responses rewritten.
#[derive(Debug)]
pub(super) struct ErrorRewriter<S> {
    stream: S,
    replacement: Option<Replacement>,
    line_ends: LineEnds,
    /// The response to a refused head, which hyper never sees, and the number of bytes sent.
    refusal: Option<(Vec<u8>, usize)>,
}

/// A response that is being sent in place of hyper's.
#[derive(Debug)]
struct Replacement {
    ours: Vec<u8>,
    sent: usize,
    /// The length in bytes of hyper's response.
    theirs: usize,
}

impl<S> ErrorRewriter<S> {
    pub(super) fn new(stream: S) -> ErrorRewriter<S> {
        ErrorRewriter { stream, replacement: None, line_ends: LineEnds::default(), refusal: None }
    }
}

/// Returns the replacement for `head` if hyper generated it.
fn replacement_for(head: &[u8]) -> Option<Vec<u8>> {
    let (code, detail) = match head.get(..13)? {
        b"HTTP/1.1 431 " => (
            Code::HeadersTooLarge,
            "a request line and its headers may have 64 KiB together, and there may be 100 headers",
        ),
        b"HTTP/1.1 400 " => (Code::BadRequest, "the bytes are not an HTTP request"),
        b"HTTP/1.1 414 " => (Code::UriTooLong, "a URL may have at most 16384 bytes"),
        _ => return None,
    };
    let head = std::str::from_utf8(head).ok()?.strip_suffix("\r\n\r\n")?;
    let mut lines: Vec<&str> = head.split("\r\n").collect();
    let bare =
        lines.contains(&"content-length: 0") && !lines.iter().any(|line| line.starts_with("x-request-id:"));
    if !bare {
        return None;
    }
    lines.retain(|line| *line != "content-length: 0");
    Some(problem(&lines, code, detail))
}

/// Builds a problem response that begins with these lines.
fn problem(lines: &[&str], code: Code, detail: &'static str) -> Vec<u8> {
    let id = RequestId::of(None, &Mutex::new(Entropy::system()));
    let body = ApiError::new(code, detail).problem(id.as_str());
    let mut headers = axum::http::HeaderMap::new();
    security_headers::set(&mut headers);
    let ours: Vec<String> = headers
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}: {}", value.to_str().ok()?)))
        .chain([
            format!("x-request-id: {}", id.as_str()),
            "content-type: application/problem+json".to_owned(),
            format!("content-length: {}", body.len()),
        ])
        .collect();
    format!("{}\r\n{}\r\n\r\n{body}", lines.join("\r\n"), ours.join("\r\n")).into_bytes()
}

/// The response to a refused head. Empty after the first head of a connection, because another
/// response may be on its way: the connection just ends.
fn refusal_of(head: RefusedHead) -> Vec<u8> {
    if !head.in_first_head {
        return Vec::new();
    }
    let lines = ["HTTP/1.1 400 Bad Request", "connection: close"];
    let detail = match head.reason {
        Reason::BareLineFeed => "a line of the request's head ends with LF alone; it must end with CR LF",
        Reason::AmbiguousLength => {
            "the length of the request's body is ambiguous; send one Content-Length in plain digits, or \
             Transfer-Encoding: chunked and nothing else"
        }
    };
    problem(&lines, Code::BadRequest, detail)
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ErrorRewriter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.refusal.is_none() {
            let before = buf.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
            let Err(refused) = this.line_ends.scan(buf.filled().get(before..).unwrap_or_default()) else {
                return Poll::Ready(Ok(()));
            };
            buf.set_filled(before);
            this.refusal = Some((refusal_of(refused), 0));
        }
        while let Some((answer, sent)) = &mut this.refusal
            && let Some(left) = answer.get(*sent..).filter(|left| !left.is_empty())
        {
            match ready!(Pin::new(&mut this.stream).poll_write(cx, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => *sent += written,
            }
        }
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the head of a request was refused")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ErrorRewriter<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.replacement.is_none() {
            this.replacement =
                replacement_for(buf).map(|ours| Replacement { ours, sent: 0, theirs: buf.len() });
        }
        let Some(replacement) = &mut this.replacement else {
            return Pin::new(&mut this.stream).poll_write(cx, buf);
        };
        while let Some(left) = replacement.ours.get(replacement.sent..).filter(|left| !left.is_empty()) {
            match ready!(Pin::new(&mut this.stream).poll_write(cx, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => replacement.sent += written,
            }
        }
        let theirs = replacement.theirs;
        this.replacement = None;
        Poll::Ready(Ok(theirs))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = bufs.iter().find(|buf| !buf.is_empty());
        match first {
            // Only client errors (4xx) are examined. They are rare; all other writes take the
            // direct path.
            Some(head) if self.replacement.is_some() || head.starts_with(b"HTTP/1.1 4") => {
                self.poll_write(cx, head)
            }
            _ => Pin::new(&mut self.stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_that_hyper_generated_is_replaced() {
        let bare =
            "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let ours = String::from_utf8(replacement_for(bare.as_bytes()).expect("exchanged")).expect("text");
        let (head, body) = ours.split_once("\r\n\r\n").expect("a body");
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"));
        assert!(
            head.contains(&format!("content-length: {}", body.len()))
                && !head.contains("content-length: 0\r\n")
        );
        assert!(body.contains("\"code\":\"headers_too_large\""), "{body}");
        assert!(replacement_for(ours.as_bytes()).is_none());
        for other in [
            "HTTP/1.1 400 Bad Request\r\nx-request-id: a\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "",
            "H",
        ] {
            assert!(replacement_for(other.as_bytes()).is_none(), "{other}");
        }
    }
}
