//! URLs of targets, written as Go's `net/url` writes them.

use crate::model::Labels;
use crate::scrape::config::ScrapeJob;

/// The prefix of labels with parameters of the URL.
pub(super) const PARAM_PREFIX: &str = "__param_";

/// Returns path and query of a target: the parameters of the job, the first value of each replaced
/// by that of its label, sorted by name.
pub(super) fn path_and_query(job: &ScrapeJob, labels: &Labels, path: &str) -> String {
    let mut params: Vec<(&str, Vec<&str>)> = job
        .params
        .iter()
        .map(|(name, values)| (name.as_str(), values.iter().map(String::as_str).collect()))
        .collect();
    for label in labels {
        let Some(name) = label.name.strip_prefix(PARAM_PREFIX) else { continue };
        match params.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => match values.first_mut() {
                Some(first) => *first = label.value,
                None => values.push(label.value),
            },
            None => params.push((name, vec![label.value])),
        }
    }
    params.sort_by_key(|(name, _)| *name);
    let mut out = String::new();
    if !path.starts_with('/') {
        out.push('/');
    }
    escape_path(path, &mut out);
    let pairs = params.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
    for (place, (name, value)) in pairs.enumerate() {
        out.push(if place == 0 { '?' } else { '&' });
        escape_query(name, &mut out);
        out.push('=');
        escape_query(value, &mut out);
    }
    out
}

const fn is_unreserved(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~')
}

fn push_escaped(b: u8, out: &mut String) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    out.push('%');
    for digit in [b >> 4, b & 15] {
        out.extend(DIGITS.get(usize::from(digit)));
    }
}

fn escape_path(text: &str, out: &mut String) {
    for b in text.bytes() {
        match is_unreserved(b) || b"$&+,/:;=@".contains(&b) {
            true => out.push(char::from(b)),
            false => push_escaped(b, out),
        }
    }
}

fn escape_query(text: &str, out: &mut String) {
    for b in text.bytes() {
        match b {
            b' ' => out.push('+'),
            b if is_unreserved(b) => out.push(char::from(b)),
            b => push_escaped(b, out),
        }
    }
}
