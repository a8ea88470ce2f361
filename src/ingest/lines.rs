//! Line splitting of text bodies. Lines end with `\n` or `\r\n` and are numbered from 1.

use std::io::BufRead as _;

/// Removes the next line from `rest`. Returns it without its line end, and whether it had one;
/// `None` after the last line.
#[inline]
pub(super) fn next<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], bool)> {
    let body = *rest;
    // Reading from a slice cannot fail. `skip_until` is the fastest search for a byte in the
    // standard library.
    let length = rest.skip_until(b'\n').unwrap_or(0);
    let line = body.get(..length).filter(|line| !line.is_empty())?;
    let (line, ended) = match line.strip_suffix(b"\n") {
        Some(line) => (line, true),
        None => (line, false),
    };
    Some((line.strip_suffix(b"\r").unwrap_or(line), ended))
}

/// Returns the body without a leading byte order mark, which some Windows programs write.
pub(super) fn strip_bom(body: &[u8]) -> &[u8] {
    body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body)
}

/// Iterates over the lines with their numbers, from 1.
pub(super) fn numbered(body: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut rest = strip_bom(body);
    let mut number: usize = 0;
    std::iter::from_fn(move || {
        number = number.saturating_add(1);
        Some((number, next(&mut rest)?.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_a_line_feed_and_an_optional_carriage_return() {
        let lines = |body: &'static str| -> Vec<(usize, &str)> {
            numbered(body.as_bytes())
                .map(|(n, line)| (n, std::str::from_utf8(line).expect("ASCII")))
                .collect()
        };
        assert_eq!(lines(""), []);
        assert_eq!(lines("\u{feff}a\r\n\nb\rc"), [(1, "a"), (2, ""), (3, "b\rc")]);
        assert_eq!(lines("a\n"), [(1, "a")]);
        let mut rest = &b"a\nb"[..];
        assert_eq!(next(&mut rest), Some((&b"a"[..], true)));
        assert_eq!(next(&mut rest), Some((&b"b"[..], false)));
        assert_eq!(next(&mut rest), None);
    }
}
