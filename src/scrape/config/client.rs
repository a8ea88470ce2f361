//! The keys about requests: credentials, TLS, headers and proxies.

use super::error::{ScrapeConfigError, problem, refuse};
use super::files::ScrapeFiles;
use super::yaml::{YamlAuthorization, YamlBasicAuth, YamlClient, YamlHeader, YamlOAuth2, YamlTls};
use crate::model::{TARGET_PEM_BYTES_MAX, TARGET_TEXT_BYTES_MAX, TargetSecret, TargetTls, TargetUrl};
use crate::outbound::{PullAuth, PullOptions};
use crate::yaml::{Spanned, position};

/// The most further headers, inclusive.
const HEADERS_MAX: usize = 32;

/// Headers that a configuration may not set.
const RESERVED_HEADERS: [&str; 22] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "www-authenticate",
    "x-prometheus-refresh-interval-seconds",
    "x-prometheus-remote-read-version",
    "x-prometheus-remote-write-version",
    "x-prometheus-scrape-timeout-seconds",
];

/// Checks the keys about requests, and reads the files that they name.
///
/// # Errors
/// [`ScrapeConfigError`] for the first key that is wrong.
pub(super) fn client_options(
    yaml: YamlClient<'_>,
    files: &ScrapeFiles,
) -> Result<PullOptions, ScrapeConfigError> {
    refuse_proxy(&yaml)?;
    let mut options = PullOptions {
        auth: credential(&yaml, files)?,
        follow_redirects: yaml.follow_redirects.unwrap_or(true),
        ..PullOptions::default()
    };
    if let Some(tls) = yaml.tls_config {
        options.accepts_any_certificate = tls.value.insecure_skip_verify.unwrap_or(false);
        options.tls = tls_settings(tls, files)?;
    }
    if let Some(headers) = yaml.http_headers {
        for (name, header) in &headers.value {
            let name = name.to_ascii_lowercase();
            add_header(&mut options.headers, &name, header, files)
                .map_err(|message| problem(position(headers), message))?;
        }
        if options.headers.len() > HEADERS_MAX {
            return refuse(headers, format!("at most {HEADERS_MAX} headers are allowed"));
        }
    }
    Ok(options)
}

fn refuse_proxy(yaml: &YamlClient<'_>) -> Result<(), ScrapeConfigError> {
    let unsupported = |key: &str| format!("{key} is not supported: targets are requested directly");
    if let Some(url) = yaml.proxy_url.filter(|url| !url.value.is_empty()) {
        return refuse(url, unsupported("proxy_url"));
    }
    if let Some(hosts) = yaml.no_proxy.filter(|hosts| !hosts.value.is_empty()) {
        return refuse(hosts, unsupported("no_proxy"));
    }
    if let Some(set) = yaml.proxy_from_environment.filter(|set| set.value) {
        return refuse(set, unsupported("proxy_from_environment"));
    }
    match yaml.proxy_connect_header {
        Some(header) => refuse(header, unsupported("proxy_connect_header")),
        None => Ok(()),
    }
}

fn credential(yaml: &YamlClient<'_>, files: &ScrapeFiles) -> Result<PullAuth, ScrapeConfigError> {
    let places = [
        yaml.basic_auth.map(position),
        yaml.authorization.map(position),
        yaml.oauth2.map(position),
        yaml.bearer_token.map(position),
        yaml.bearer_token_file.map(position),
    ];
    let mut given = places.into_iter().flatten();
    if let (Some(_), Some(second)) = (given.next(), given.next()) {
        let message = "at most one of basic_auth, authorization, oauth2, bearer_token and \
                       bearer_token_file must be configured";
        return Err(problem(second, message));
    }
    if let Some(basic) = yaml.basic_auth {
        return basic_credential(&basic.value, files).map_err(|message| problem(position(basic), message));
    }
    if let Some(given) = yaml.authorization {
        return authorization(&given.value, files).map_err(|message| problem(position(given), message));
    }
    if let Some(oauth2) = yaml.oauth2 {
        return oauth2_credential(oauth2, files);
    }
    if let Some(token) = yaml.bearer_token {
        return bearer(&token.value).map_err(|message| problem(position(token), message));
    }
    match yaml.bearer_token_file {
        Some(file) => files
            .secret(&file.value)
            .and_then(|token| bearer(&token))
            .map_err(|message| problem(position(file), message)),
        None => Ok(PullAuth::None),
    }
}

/// Returns the text of a key or of the file that another key names.
fn text_or_file(
    (key, text): (&str, Option<&String>),
    (file_key, file): (&str, Option<&String>),
    files: &ScrapeFiles,
) -> Result<Option<String>, String> {
    match (text, file) {
        (Some(_), Some(_)) => Err(format!("at most one of {key} and {file_key} must be configured")),
        (Some(text), None) => Ok(Some(text.clone())),
        (None, Some(file)) => files.secret(file).map(Some),
        (None, None) => Ok(None),
    }
}

fn check_secret(key: &str, text: &str) -> Result<(), String> {
    if text.len() > TARGET_TEXT_BYTES_MAX {
        return Err(format!("{key} has more than {TARGET_TEXT_BYTES_MAX} bytes"));
    }
    match text.chars().any(char::is_control) {
        true => Err(format!("{key} must not contain control characters")),
        false => Ok(()),
    }
}

fn refuse_references(given: bool) -> Result<(), String> {
    match given {
        true => Err("references to secret managers are not supported".to_owned()),
        false => Ok(()),
    }
}

fn basic_credential(yaml: &YamlBasicAuth, files: &ScrapeFiles) -> Result<PullAuth, String> {
    refuse_references(yaml.username_ref.is_some() || yaml.password_ref.is_some())?;
    let username = text_or_file(
        ("username", yaml.username.as_ref()),
        ("username_file", yaml.username_file.as_ref()),
        files,
    )?;
    let password = text_or_file(
        ("password", yaml.password.as_ref()),
        ("password_file", yaml.password_file.as_ref()),
        files,
    )?;
    let (username, password) = (username.unwrap_or_default(), password.unwrap_or_default());
    check_secret("username", &username)?;
    check_secret("password", &password)?;
    match username.contains(':') {
        true => Err("username must not contain a colon".to_owned()),
        false => Ok(PullAuth::Basic { username, password: TargetSecret::new(password) }),
    }
}

fn is_visible(text: &str) -> bool {
    text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
}

fn bearer(token: &str) -> Result<PullAuth, String> {
    authorization_of("Bearer", token)
}

fn authorization_of(scheme: &str, credentials: &str) -> Result<PullAuth, String> {
    check_secret("credentials", credentials)?;
    if !is_visible(credentials) || scheme.is_empty() || !scheme.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("type and credentials must be visible ASCII".to_owned());
    }
    Ok(PullAuth::Authorization { scheme: scheme.to_owned(), credentials: TargetSecret::new(credentials) })
}

fn authorization(yaml: &YamlAuthorization, files: &ScrapeFiles) -> Result<PullAuth, String> {
    refuse_references(yaml.credentials_ref.is_some())?;
    let scheme = yaml.r#type.as_deref().map(str::trim).filter(|scheme| !scheme.is_empty());
    let scheme = scheme.unwrap_or("Bearer");
    if scheme.eq_ignore_ascii_case("basic") {
        return Err("authorization type cannot be set to \"basic\", use \"basic_auth\" instead".to_owned());
    }
    let credentials = text_or_file(
        ("credentials", yaml.credentials.as_ref()),
        ("credentials_file", yaml.credentials_file.as_ref()),
        files,
    )?;
    authorization_of(scheme, &credentials.unwrap_or_default())
}

fn oauth2_credential(
    spanned: &Spanned<YamlOAuth2>,
    files: &ScrapeFiles,
) -> Result<PullAuth, ScrapeConfigError> {
    let yaml = &spanned.value;
    let fail = |message: String| problem(position(spanned), message);
    let unsupported = |key: &str| format!("oauth2: {key} is not supported");
    if let Some(params) = &yaml.endpoint_params {
        return refuse(params, unsupported("endpoint_params"));
    }
    if let Some(tls) = &yaml.tls_config {
        return refuse(tls, unsupported("tls_config"));
    }
    refuse_references(yaml.client_secret_ref.is_some()).map_err(fail)?;
    refuse_proxy(&YamlClient {
        basic_auth: None,
        authorization: None,
        oauth2: None,
        bearer_token: None,
        bearer_token_file: None,
        tls_config: None,
        follow_redirects: None,
        proxy_url: yaml.proxy_url.as_ref(),
        no_proxy: yaml.no_proxy.as_ref(),
        proxy_from_environment: yaml.proxy_from_environment.as_ref(),
        proxy_connect_header: yaml.proxy_connect_header.as_ref(),
        http_headers: None,
    })?;
    let Some(url) = &yaml.token_url else { return refuse(spanned, "oauth2 token_url must be configured") };
    let token_url = TargetUrl::parse(&url.value).map_err(|why| problem(position(url), why))?;
    let client_id = yaml.client_id.clone().unwrap_or_default();
    if client_id.is_empty() {
        return refuse(spanned, "oauth2 client_id must be configured");
    }
    let secret = text_or_file(
        ("client_secret", yaml.client_secret.as_ref()),
        ("client_secret_file", yaml.client_secret_file.as_ref()),
        files,
    );
    let secret = secret.map_err(fail)?.unwrap_or_default();
    check_secret("client_secret", &secret)
        .and_then(|()| check_secret("client_id", &client_id))
        .map_err(fail)?;
    Ok(PullAuth::OAuth2 {
        token_url,
        client_id,
        client_secret: TargetSecret::new(secret),
        scopes: yaml.scopes.clone().unwrap_or_default(),
    })
}

fn tls_settings(spanned: &Spanned<YamlTls>, files: &ScrapeFiles) -> Result<TargetTls, ScrapeConfigError> {
    let yaml = &spanned.value;
    let fail = |message: String| problem(position(spanned), message);
    let references = yaml.ca_ref.is_some() || yaml.cert_ref.is_some() || yaml.key_ref.is_some();
    refuse_references(references).map_err(fail)?;
    for version in [&yaml.min_version, &yaml.max_version].into_iter().flatten() {
        if !["TLS10", "TLS11", "TLS12", "TLS13"].contains(&version.value.as_str()) {
            return refuse(version, format!("unknown TLS version {:?}", version.value));
        }
    }
    if let Some(version) = yaml.min_version.as_ref().filter(|min| min.value == "TLS13") {
        return refuse(version, "min_version above TLS12 is not supported");
    }
    if let Some(version) = yaml.max_version.as_ref().filter(|max| max.value != "TLS13") {
        return refuse(version, "max_version below TLS13 is not supported");
    }
    let pem = |key: &str, text: Option<&String>, file: Option<&String>| {
        let pem = text_or_file((key, text), (&format!("{key}_file"), file), files)?;
        match pem {
            Some(pem) if pem.len() > TARGET_PEM_BYTES_MAX => {
                Err(format!("{key} has more than {TARGET_PEM_BYTES_MAX} bytes"))
            }
            pem => Ok(pem.filter(|pem| !pem.is_empty())),
        }
    };
    let ca_pem = pem("ca", yaml.ca.as_ref(), yaml.ca_file.as_ref()).map_err(fail)?;
    let client_cert_pem = pem("cert", yaml.cert.as_ref(), yaml.cert_file.as_ref()).map_err(fail)?;
    let key = pem("key", yaml.key.as_ref(), yaml.key_file.as_ref()).map_err(fail)?;
    match (&client_cert_pem, &key) {
        (Some(_), None) => return refuse(spanned, "a client certificate needs key or key_file"),
        (None, Some(_)) => return refuse(spanned, "a client key needs cert or cert_file"),
        _ => {}
    }
    Ok(TargetTls {
        ca_pem,
        client_cert_pem,
        client_key_pem: key.map(TargetSecret::new),
        server_name: yaml.server_name.clone().filter(|name| !name.is_empty()),
    })
}

fn add_header(
    headers: &mut Vec<(String, TargetSecret)>,
    name: &str,
    yaml: &YamlHeader,
    files: &ScrapeFiles,
) -> Result<(), String> {
    let is_token = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || name.len() > 256 || !name.bytes().all(is_token) {
        return Err(format!("{name:?} is not the name of a header"));
    }
    if RESERVED_HEADERS.contains(&name) {
        return Err(format!("setting header {name:?} is not allowed"));
    }
    let texts = yaml.values.iter().chain(&yaml.secrets).flatten().cloned().map(Ok);
    let read = yaml.files.iter().flatten().map(|file| files.secret(file));
    for value in texts.chain(read) {
        let value = value?;
        if !is_visible(&value) || value.trim() != value || value.len() > TARGET_TEXT_BYTES_MAX {
            return Err(format!("the value of header {name:?} must be visible ASCII"));
        }
        headers.push((name.to_owned(), TargetSecret::new(value)));
    }
    Ok(())
}
