//! Bodies that are read line by line: lines end with `\n` or `\r\n`, and are counted from 1.

use std::io::BufRead as _;

/// Takes the next line, without its end, and whether it had one; none behind the last.
#[inline]
pub(super) fn next<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], bool)> {
    let body = *rest;
    // A slice is read without failing; this is the fastest search for a byte that the standard library offers.
    let length = rest.skip_until(b'\n').unwrap_or(0);
    let line = body.get(..length).filter(|line| !line.is_empty())?;
    let (line, ended) = match line.strip_suffix(b"\n") {
        Some(line) => (line, true),
        None => (line, false),
    };
    Some((line.strip_suffix(b"\r").unwrap_or(line), ended))
}

/// The body without the byte order mark that some Windows programs begin with.
pub(super) fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body)
}

/// Every line with its number.
pub(super) fn of(body: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut rest = without_mark(body);
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
    fn lines_end_as_they_do_everywhere() {
        let lines = |body: &'static str| -> Vec<(usize, &str)> {
            of(body.as_bytes()).map(|(n, line)| (n, std::str::from_utf8(line).expect("ASCII"))).collect()
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
