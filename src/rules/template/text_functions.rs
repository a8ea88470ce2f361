//! Functions of templates that turn a text into another one.

use std::net::IpAddr;

/// Splits `host:port` like Go's net.SplitHostPort; `None` if it refuses the text.
fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let (before, port) = text.rsplit_once(':')?;
    let host = match before.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None if before.contains(':') => return None,
        None => before,
    };
    let bracket = host.contains(['[', ']']) || port.contains(['[', ']']);
    (!bracket).then_some((host, port))
}

/// Returns the host of `host:port`; another text as it is.
pub(super) fn strip_port(text: &str) -> String {
    split_host_port(text).map_or(text, |(host, _)| host).to_owned()
}

/// Returns `host:port` with the first part of the host's name only; addresses as they are.
pub(super) fn strip_domain(text: &str) -> String {
    let (host, port) = split_host_port(text).unwrap_or((text, ""));
    if host.parse::<IpAddr>().is_ok() {
        return text.to_owned();
    }
    let host = host.split('.').next().unwrap_or_default();
    match (port.is_empty(), host.contains(':')) {
        (true, _) => host.to_owned(),
        (false, true) => format!("[{host}]:{port}"),
        (false, false) => format!("{host}:{port}"),
    }
}

/// Escapes a text for the query of a URL; a space becomes `+`.
pub(super) fn query_escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Returns the link to an expression in the table (`tab` 1) or the graph (`tab` 0) of the server.
pub(super) fn expression_link(expr: &str, tab: u8) -> String {
    format!("/graph?g0.expr={}&g0.tab={tab}", query_escape(expr))
}

/// Escapes a text for HTML.
pub(super) fn html_escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0' => out.push('\u{fffd}'),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    out
}

/// Escapes a text for a string in JavaScript.
pub(super) fn js_escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("\\'"),
            '"' => out.push_str("\\\""),
            '<' | '>' | '&' | '=' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Makes the first letter of each word a capital one.
pub(super) fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Whether a letter of the current word has been written.
    let mut titled = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // Apostrophes, points and colons within words do not end them.
        let joins = matches!(c, '\'' | '\u{2019}' | '.' | ':' | '\u{b7}')
            && out.chars().next_back().is_some_and(char::is_alphanumeric)
            && chars.peek().is_some_and(|next| next.is_alphanumeric());
        if c.is_alphabetic() {
            if titled {
                out.push(c);
            } else {
                out.extend(c.to_uppercase());
            }
            titled = true;
        } else {
            titled &= joins || c == '_' || c.is_numeric();
            out.push(c);
        }
    }
    out
}

/// Returns the path of a URL: the part between the host and `?` or `#`.
pub(super) fn url_path(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default().to_owned()
}
