//! Bare line feeds in the head of a request.
//!
//! hyper takes a lone LF for the end of a line, as RFC 9112 section 2.2 allows, and has no setting for it. A proxy that does
//! not may see one header where this server sees two. Each such LF is replaced by a NUL before hyper reads it; no head may
//! hold one, so hyper answers 400.
//!
//! A head is recognised where it begins: at the first bytes of a connection, and at the first bytes that arrive after a
//! request was answered. A head that arrives together with the request before it (pipelining) is not looked at.

/// The scan of one head after the other.
#[derive(Debug, Default)]
pub(super) struct HeadScan {
    /// A byte other than CR and LF has been seen: empty lines may precede a request.
    has_begun: bool,
    after_cr: bool,
    /// The line at hand is empty so far.
    line_is_empty: bool,
    has_ended: bool,
}

impl HeadScan {
    /// Replaces bare line feeds among the next bytes, up to the end of the head.
    pub(super) fn scan(&mut self, bytes: &mut [u8]) {
        if self.has_ended {
            return;
        }
        for byte in bytes {
            match *byte {
                b'\n' if !self.after_cr => *byte = 0,
                b'\n' if self.has_begun && self.line_is_empty => {
                    self.has_ended = true;
                    return;
                }
                b'\n' => self.line_is_empty = true,
                b'\r' => {}
                _ => (self.has_begun, self.line_is_empty) = (true, false),
            }
            self.after_cr = *byte == b'\r';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of `text`, whatever the pieces it arrives in.
    fn scanned(text: &str) -> String {
        let scan = |step: usize| {
            let mut bytes = text.as_bytes().to_vec();
            let mut scan = HeadScan::default();
            bytes.chunks_mut(step).for_each(|piece| scan.scan(piece));
            String::from_utf8(bytes).expect("text")
        };
        let whole = scan(usize::MAX);
        assert!((1..=text.len()).all(|step| scan(step) == whole), "{text:?}");
        whole
    }

    #[test]
    fn lone_line_feeds_of_a_head_are_replaced_and_those_of_a_body_stay() {
        for same in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na\nb",
            "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\n\n",
            "a: b\rc\r\n\r\n\n",
        ] {
            assert_eq!(scanned(same), same);
        }
        for (text, expected) in [
            ("GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\0Host: a\0\0"),
            ("GET / HTTP/1.1\r\nA: b\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nA: b\0Host: a\r\n\r\n"),
            ("GET / HTTP/1.1\r\nHost: a\r\n\nbody\n", "GET / HTTP/1.1\r\nHost: a\r\n\0body\0"),
            ("\nGET / HTTP/1.1\r\n\r\n\n", "\0GET / HTTP/1.1\r\n\r\n\n"),
        ] {
            assert_eq!(scanned(text), expected);
        }
    }
}
