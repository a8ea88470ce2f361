//! Reads the server of an integration: URL, credential, headers and TLS.

use super::reader::{Problems, Section};
use crate::model::{Target, TargetAuth, TargetSecret, TargetTls, TargetUrl};

/// The fields of an integration that describe its server.
pub(super) const TARGET_FIELDS: [&str; 5] = ["url", "auth", "headers", "tls", "has_secret"];

const AUTH_FIELDS: [&str; 9] = [
    "type",
    "username",
    "password",
    "token",
    "token_url",
    "client_id",
    "client_secret",
    "scopes",
    "has_secret",
];
const TLS_FIELDS: [&str; 5] = ["ca_pem", "client_cert_pem", "client_key_pem", "server_name", "has_secret"];

/// Reads the target of a section. Returns `None` after a problem.
pub(super) fn read_target(section: &Section<'_>, problems: &mut Problems) -> Option<Target> {
    let url = read_url(section, "url", problems)?;
    read_target_at(section, url, problems)
}

/// Like [`read_target`], for a URL that is known already.
pub(super) fn read_target_at(
    section: &Section<'_>,
    url: TargetUrl,
    problems: &mut Problems,
) -> Option<Target> {
    let mut target = Target::new(url);
    if let Some(auth) = section.get("auth") {
        target.auth = read_auth(&auth.section(&AUTH_FIELDS, problems)?, problems)?;
    }
    if let Some(headers) = section.get("headers") {
        let Some(all) = headers.value.as_object() else {
            problems.add(&headers.path, "an object is expected");
            return None;
        };
        for (name, value) in all {
            match value.as_str() {
                Some(value) => target.headers.push((name.to_ascii_lowercase(), value.to_owned())),
                None => problems.add(&format!("{}.{name}", headers.path), "a text is expected"),
            }
        }
    }
    if let Some(tls) = section.get("tls") {
        let tls = tls.section(&TLS_FIELDS, problems)?;
        let mut text = |name| tls.text(name, problems).map(str::to_owned);
        target.tls = TargetTls {
            ca_pem: text("ca_pem"),
            client_cert_pem: text("client_cert_pem"),
            server_name: text("server_name"),
            client_key_pem: text("client_key_pem").map(TargetSecret::new),
        };
    }
    match target.check() {
        Ok(()) => Some(target),
        Err(error) => {
            problems.add(&section.at(error.field), error.message);
            None
        }
    }
}

fn read_url(section: &Section<'_>, name: &str, problems: &mut Problems) -> Option<TargetUrl> {
    let text = section.required(name, problems)?;
    TargetUrl::parse(text).map_err(|why| problems.add(&section.at(name), why)).ok()
}

fn read_auth(auth: &Section<'_>, problems: &mut Problems) -> Option<TargetAuth> {
    let secret = |name: &str, problems: &mut Problems| auth.required(name, problems).map(TargetSecret::new);
    match auth.required("type", problems)? {
        "none" => Some(TargetAuth::None),
        "basic" => Some(TargetAuth::Basic {
            username: auth.required("username", problems)?.to_owned(),
            password: secret("password", problems)?,
        }),
        "bearer" => Some(TargetAuth::Bearer { token: secret("token", problems)? }),
        "oauth2" => Some(TargetAuth::OAuth2 {
            token_url: read_url(auth, "token_url", problems)?,
            client_id: auth.required("client_id", problems)?.to_owned(),
            client_secret: secret("client_secret", problems)?,
            scopes: auth
                .texts("scopes", 32, problems)
                .into_iter()
                .map(|(_, scope)| scope.to_owned())
                .collect(),
        }),
        other => {
            let kinds = ["none", "basic", "bearer", "oauth2"];
            problems.add(&auth.at("type"), crate::yaml::unknown_name("type", other, &kinds));
            None
        }
    }
}
