//! Targets of an organisation: servers that it forwards samples to or reads them from.

use std::fmt;

/// The most bytes of a target's URL, inclusive.
pub const TARGET_URL_BYTES_MAX: usize = 2_048;
/// The most further headers of a target, inclusive.
pub const TARGET_HEADERS_MAX: usize = 32;
/// The most bytes of a header's value, a secret or a tenant, inclusive.
pub const TARGET_TEXT_BYTES_MAX: usize = 4_096;
/// The most bytes of a PEM text, inclusive.
pub const TARGET_PEM_BYTES_MAX: usize = 64 << 10;
/// The most scopes of an OAuth 2.0 client, inclusive.
pub const TARGET_SCOPES_MAX: usize = 32;
/// Stands for the tenant in the path of a URL.
pub const TENANT_PLACEHOLDER: &str = "{tenant}";

/// Headers that a target must not set: the client writes them itself, or they change how a message
/// is framed.
const RESERVED_HEADERS: [&str; 15] = [
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-prometheus-remote-write-version",
];

/// A server, and how requests to it are authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The URL that request paths are appended to.
    pub url: TargetUrl,
    /// The credential of requests.
    pub auth: TargetAuth,
    /// The tenant of the organisation at the target.
    pub tenant: Tenant,
    /// Further headers of every request, with lower-case names.
    pub headers: Vec<(String, String)>,
    /// The settings of TLS.
    pub tls: TargetTls,
}

/// A text that is never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TargetSecret(Box<str>);

impl TargetSecret {
    /// Wraps a secret.
    pub fn new(text: impl Into<Box<str>>) -> TargetSecret {
        TargetSecret(text.into())
    }

    /// Returns the secret.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TargetSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The credential of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TargetAuth {
    /// No credential.
    #[default]
    None,
    /// `Authorization: Basic`.
    Basic {
        /// The user name, without a colon.
        username: String,
        /// The password.
        password: TargetSecret,
    },
    /// `Authorization: Bearer`.
    Bearer {
        /// The token.
        token: TargetSecret,
    },
    /// A token that the client requests with its own credentials (RFC 6749, section 4.4).
    OAuth2 {
        /// The URL of the token endpoint.
        token_url: TargetUrl,
        /// The id of the client.
        client_id: String,
        /// The secret of the client.
        client_secret: TargetSecret,
        /// The requested scopes; may be empty.
        scopes: Vec<String>,
    },
}

/// How a target distinguishes its tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tenant {
    /// The target has one tenant.
    #[default]
    None,
    /// The tenant is named by a header of each request.
    Header {
        /// The name in lower case, such as `x-scope-orgid`.
        name: String,
        /// The tenant.
        value: String,
    },
    /// By the path of the URL, which contains `{tenant}`.
    Path {
        /// The tenant.
        value: String,
    },
    /// The tenant is named by a label of each series.
    Label {
        /// The name of the label.
        name: String,
        /// The tenant.
        value: String,
    },
}

/// The settings of TLS. All texts are PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetTls {
    /// The certificate authorities that are trusted exclusively; `None` means the public ones.
    pub ca_pem: Option<String>,
    /// The certificate chain of the client.
    pub client_cert_pem: Option<String>,
    /// The key of the client.
    pub client_key_pem: Option<TargetSecret>,
    /// The name that the certificate of the target must have; `None` means the host of the URL.
    pub server_name: Option<String>,
}

/// The reason why a target is not valid: the field and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct InvalidTarget {
    /// The field, such as `url` or `tenant.value`.
    pub field: &'static str,
    /// The reason.
    pub message: String,
}

fn wrong<T>(field: &'static str, message: impl Into<String>) -> Result<T, InvalidTarget> {
    Err(InvalidTarget { field, message: message.into() })
}

impl Target {
    /// Returns a target without credential and tenant.
    pub fn new(url: TargetUrl) -> Target {
        Target {
            url,
            auth: TargetAuth::default(),
            tenant: Tenant::default(),
            headers: Vec::new(),
            tls: TargetTls::default(),
        }
    }

    /// Checks that the parts fit together and within their limits. It does not parse certificates.
    ///
    /// # Errors
    /// [`InvalidTarget`] for the first part that is wrong.
    pub fn check(&self) -> Result<(), InvalidTarget> {
        self.check_tenant()?;
        self.check_auth()?;
        if self.headers.len() > TARGET_HEADERS_MAX {
            return wrong("headers", format!("at most {TARGET_HEADERS_MAX} headers are allowed"));
        }
        for (place, (name, value)) in self.headers.iter().enumerate() {
            check_header("headers", name, value)?;
            if RESERVED_HEADERS.contains(&name.as_str()) {
                return wrong("headers", format!("{name} is set by promlet itself"));
            }
            if self.headers.iter().take(place).any(|(other, _)| other == name) {
                return wrong("headers", format!("{name} is given twice"));
            }
        }
        let TargetTls { ca_pem, client_cert_pem, client_key_pem, server_name } = &self.tls;
        let key = client_key_pem.as_ref().map(TargetSecret::reveal);
        let all = [
            ("tls.ca_pem", ca_pem.as_deref()),
            ("tls.client_cert_pem", client_cert_pem.as_deref()),
            ("tls.client_key_pem", key),
        ];
        for (field, text) in all {
            if text.is_some_and(|text| text.len() > TARGET_PEM_BYTES_MAX) {
                return wrong(field, format!("at most {TARGET_PEM_BYTES_MAX} bytes are allowed"));
            }
        }
        if client_cert_pem.is_some() != client_key_pem.is_some() {
            return wrong("tls.client_key_pem", "a client certificate and its key need each other");
        }
        if server_name.as_deref().is_some_and(|name| !is_host(name)) {
            return wrong("tls.server_name", "a host name is expected");
        }
        Ok(())
    }

    fn check_tenant(&self) -> Result<(), InvalidTarget> {
        let has_placeholder = self.url.as_str().contains(TENANT_PLACEHOLDER);
        match &self.tenant {
            Tenant::Path { .. } if !has_placeholder => {
                return wrong("url", "a tenant in the path needs {tenant} in the URL");
            }
            Tenant::None | Tenant::Header { .. } | Tenant::Label { .. } if has_placeholder => {
                return wrong("url", "{tenant} in the URL needs a tenant in the path");
            }
            _ => {}
        }
        match &self.tenant {
            Tenant::None => Ok(()),
            Tenant::Header { name, value } => {
                check_header("tenant.name", name, value)?;
                match RESERVED_HEADERS.contains(&name.as_str()) {
                    true => wrong("tenant.name", format!("{name} is set by promlet itself")),
                    false if value.is_empty() => wrong("tenant.value", "a tenant is expected"),
                    false => Ok(()),
                }
            }
            Tenant::Path { value } => {
                let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
                let is_valid = (1..=256).contains(&value.len()) && value.bytes().all(allowed);
                match is_valid && !value.bytes().all(|b| b == b'.') {
                    true => Ok(()),
                    false => wrong("tenant.value", "1 to 256 of A-Z a-z 0-9 - _ . : are expected"),
                }
            }
            Tenant::Label { name, value } => {
                let mut bytes = name.bytes();
                let first = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
                let is_name = first && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_');
                if !is_name || name == super::METRIC_NAME || name.len() > 256 {
                    return wrong("tenant.name", "the name of a label is expected");
                }
                match value.is_empty() || value.len() > TARGET_TEXT_BYTES_MAX {
                    true => wrong("tenant.value", "the value of a label is expected"),
                    false => Ok(()),
                }
            }
        }
    }

    fn check_auth(&self) -> Result<(), InvalidTarget> {
        match &self.auth {
            TargetAuth::None => Ok(()),
            TargetAuth::Basic { username, password } => {
                if username.contains(':') {
                    return wrong("auth.username", "a user name has no colon");
                }
                check_text("auth.username", username)?;
                check_text("auth.password", password.reveal())
            }
            TargetAuth::Bearer { token } => {
                check_text("auth.token", token.reveal())?;
                match token.reveal().bytes().all(|b| b.is_ascii_graphic()) {
                    true => Ok(()),
                    false => wrong("auth.token", "a token is visible ASCII without spaces"),
                }
            }
            TargetAuth::OAuth2 { token_url, client_id, client_secret, scopes } => {
                if token_url.as_str().contains(TENANT_PLACEHOLDER) {
                    return wrong("auth.token_url", "{tenant} is not allowed here");
                }
                check_text("auth.client_id", client_id)?;
                check_text("auth.client_secret", client_secret.reveal())?;
                let is_scope = |scope: &String| {
                    (1..=256).contains(&scope.len()) && scope.bytes().all(|b| b.is_ascii_graphic())
                };
                match scopes.len() <= TARGET_SCOPES_MAX && scopes.iter().all(is_scope) {
                    true => Ok(()),
                    false => wrong("auth.scopes", format!("at most {TARGET_SCOPES_MAX} words are expected")),
                }
            }
        }
    }

    /// Returns whether a secret of this target may be sent to `url`: scheme, host and port are the
    /// same.
    pub fn is_same_origin(&self, url: &TargetUrl) -> bool {
        self.url.origin() == url.origin()
    }

    /// Returns where samples of the organisation are at the target: the origin of the URL and the
    /// tenant.
    pub fn place(&self) -> String {
        let (is_tls, host, port) = self.url.origin();
        let origin = format!("{}://{host}:{port}", if is_tls { "https" } else { "http" });
        match &self.tenant {
            Tenant::None => origin,
            Tenant::Header { name, value } => format!("{origin} header {name}={value}"),
            Tenant::Path { value } => format!("{origin} path {value}"),
            Tenant::Label { name, value } => format!("{origin} label {name}={value}"),
        }
    }

    /// Returns the path and query of a request: the path of the URL with the tenant in it, then
    /// `suffix`, which is empty or begins with `/` or `?`.
    pub fn path_and_query(&self, suffix: &str) -> String {
        let base = self.url.path();
        let base = match &self.tenant {
            Tenant::Path { value } => base.replace(TENANT_PLACEHOLDER, value),
            _ => base.to_owned(),
        };
        let base = if suffix.starts_with('/') { base.trim_end_matches('/') } else { &base };
        match (base, suffix) {
            ("", "") => "/".to_owned(),
            ("", suffix) if suffix.starts_with('?') => format!("/{suffix}"),
            (base, suffix) => format!("{base}{suffix}"),
        }
    }
}

fn check_text(field: &'static str, text: &str) -> Result<(), InvalidTarget> {
    if text.is_empty() || text.len() > TARGET_TEXT_BYTES_MAX {
        return wrong(field, format!("1 to {TARGET_TEXT_BYTES_MAX} bytes are expected"));
    }
    match text.chars().any(char::is_control) {
        true => wrong(field, "control characters are not allowed"),
        false => Ok(()),
    }
}

fn check_header(field: &'static str, name: &str, value: &str) -> Result<(), InvalidTarget> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !(1..=256).contains(&name.len()) || !name.bytes().all(allowed) {
        return wrong(field, "the name of a header in lower case is expected");
    }
    let is_value = value.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
    if !is_value || value.trim() != value || value.len() > TARGET_TEXT_BYTES_MAX {
        return wrong(field, format!("the value of {name} must be visible ASCII"));
    }
    Ok(())
}

/// Returns whether a text is a host name or an IPv4 address.
fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    text.len() <= 253 && text.strip_suffix('.').unwrap_or(text).split('.').all(is_label)
}

/// An absolute `http` or `https` URL without user, query and fragment. Its path may contain
/// `{tenant}`.
#[derive(Clone, PartialEq, Eq)]
pub struct TargetUrl {
    text: Box<str>,
    is_tls: bool,
    /// The host without brackets, in lower case.
    host: Box<str>,
    port: u16,
    /// The start of the path; the length of the text if there is none.
    path_at: usize,
}

impl fmt::Debug for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

impl TargetUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// A sentence about the part that is wrong.
    pub fn parse(text: &str) -> Result<TargetUrl, String> {
        let problem = |what: &str| Err(what.to_owned());
        if text.len() > TARGET_URL_BYTES_MAX {
            return Err(format!("a URL has at most {TARGET_URL_BYTES_MAX} bytes"));
        }
        let lower = text.get(..8).unwrap_or(text).to_ascii_lowercase();
        let (is_tls, authority_at) = match (lower.starts_with("https://"), lower.starts_with("http://")) {
            (true, _) => (true, 8),
            (_, true) => (false, 7),
            _ => return problem("the URL must begin with http:// or https://"),
        };
        let rest = text.get(authority_at..).unwrap_or_default();
        let path_at = authority_at + rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
        let (authority, path) = (text.get(authority_at..path_at), text.get(path_at..));
        let (authority, path) = (authority.unwrap_or_default(), path.unwrap_or_default());
        if authority.contains('@') {
            return problem("a URL with a user or password is not allowed; use the credential's fields");
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(inner) => match inner.split_once(']') {
                Some((host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() => (host, port),
                _ => return problem("the host is not an IPv6 address"),
            },
            None => {
                let at = authority.find(':').unwrap_or(authority.len());
                let (host, port) = authority.split_at(at);
                if !is_host(host) {
                    return problem("the host of the URL is missing or invalid");
                }
                (host, port)
            }
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => u16::from(is_tls) * (443 - 80) + 80,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => match digits.parse() {
                Ok(port) if port > 0 => port,
                _ => return problem("the port of the URL is invalid"),
            },
            _ => return problem("the port of the URL is invalid"),
        };
        let plain = path.replace(TENANT_PLACEHOLDER, "x");
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:@".contains(&b);
        if !plain.bytes().all(allowed) {
            return problem("the path of the URL has a query, a fragment or a character that needs encoding");
        }
        if plain.split('/').any(|part| part == "." || part == "..") {
            return problem("the path of the URL must not contain . or ..");
        }
        let host = host.to_ascii_lowercase().into();
        Ok(TargetUrl { text: text.into(), is_tls, host, port, path_at })
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the scheme is `https`.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Returns the host in lower case, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, 80 or 443 if the text has none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns scheme, host and port.
    pub fn origin(&self) -> (bool, &str, u16) {
        (self.is_tls, &self.host, self.port)
    }

    /// Returns the value of the `Host` header.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_string() };
        let default = if self.is_tls { 443 } else { 80 };
        if self.port == default { host } else { format!("{host}:{}", self.port) }
    }

    /// Returns the path, which is empty or begins with `/`.
    pub fn path(&self) -> &str {
        self.text.get(self.path_at..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> TargetUrl {
        TargetUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_url_has_a_host_and_a_port_and_no_credential() {
        let parsed = url("https://Mimir.example/prometheus");
        assert_eq!(parsed.origin(), (true, "mimir.example", 443));
        assert_eq!((parsed.path(), parsed.authority()), ("/prometheus", "mimir.example".to_owned()));
        assert_eq!(url("http://[::1]:9090").origin(), (false, "::1", 9_090));
        assert_eq!(url("http://[::1]:9090").authority(), "[::1]:9090");
        assert_eq!(url("http://a:80/x").authority(), "a");
        for text in [
            "",
            "a.example",
            "ftp://a",
            "https://",
            "https:///x",
            "https://u@a",
            "https://u:p@a/",
            "http://a:0",
            "http://a:65536",
            "http://a:",
            "http://a:+1",
            "http://a b",
            "http://a/x?y=1",
            "http://a/#x",
            "http://a\\@b/",
            "http://[::1",
            "http://[a]",
            "http://a/../x",
            "http://a/\u{e9}",
            "http://a/\r\nx",
            "http://a/{other}",
            "http://\u{430}.example",
        ] {
            assert!(TargetUrl::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_tenant_is_a_part_of_the_path() {
        let mut target = Target::new(url("http://a/select/{tenant}/prometheus/"));
        assert!(target.check().is_err(), "a placeholder without a tenant");
        target.tenant = Tenant::Path { value: "42:7".to_owned() };
        target.check().expect("valid");
        assert_eq!(target.path_and_query("/api/v1/query"), "/select/42:7/prometheus/api/v1/query");
        for value in ["", "..", "a/b", "a?b", "a%2fb", "\u{e9}"] {
            target.tenant = Tenant::Path { value: value.to_owned() };
            assert!(target.check().is_err(), "{value:?}");
        }
        assert_eq!(Target::new(url("http://a")).path_and_query(""), "/");
        assert_eq!(Target::new(url("http://a")).path_and_query("?x=1"), "/?x=1");
        assert_eq!(Target::new(url("http://a/w")).path_and_query(""), "/w");
    }

    #[test]
    fn headers_are_visible_and_not_those_of_the_client() {
        let with = |name: &str, value: &str| {
            let mut target = Target::new(url("http://a"));
            target.headers = vec![(name.to_owned(), value.to_owned())];
            target.check()
        };
        with("x-scope-orgid", "team a|team b").expect("valid");
        for (name, value) in [
            ("host", "b"),
            ("transfer-encoding", "chunked"),
            ("authorization", "x"),
            ("X-Upper", "x"),
            ("x y", "x"),
            ("x", "a\r\nhost: b"),
            ("x", "\u{e9}"),
            ("", "x"),
        ] {
            assert!(with(name, value).is_err(), "{name:?}: {value:?}");
        }
    }

    #[test]
    fn secrets_do_not_print() {
        let mut target = Target::new(url("http://a"));
        target.auth = TargetAuth::Basic { username: "u".to_owned(), password: TargetSecret::new("hunter2") };
        target.tls.client_key_pem = Some(TargetSecret::new("hunter2"));
        assert!(!format!("{target:?}").contains("hunter2"));
    }
}
