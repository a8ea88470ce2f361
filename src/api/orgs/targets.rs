//! Targets of organisations as JSON. Secrets are write-only: a body without a secret keeps the
//! stored one if the origin of the URL stays the same, so that a change of the URL never sends a
//! secret to another server.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::error::{ApiError, ApiResult};
use crate::model::{Target, TargetAuth, TargetSecret, TargetTls, TargetUrl, Tenant};

/// A target as it is sent.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TargetBody {
    pub(super) url: String,
    pub(super) auth: Option<AuthBody>,
    pub(super) tenant: Option<TenantBody>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Option<String>>,
    pub(super) tls: Option<TlsBody>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuthBody {
    #[serde(rename = "type")]
    kind: String,
    username: Option<String>,
    password: Option<String>,
    token: Option<String>,
    token_url: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    #[serde(default)]
    scopes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantBody {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsBody {
    ca_pem: Option<String>,
    client_cert_pem: Option<String>,
    client_key_pem: Option<String>,
    server_name: Option<String>,
}

pub(super) fn wrong<T>(field: &'static str, message: impl Into<String>) -> ApiResult<T> {
    Err(ApiError::invalid_field(field, "invalid", message))
}

impl TargetBody {
    /// Returns the target. Missing secrets are those of `stored`, if it has the same origin.
    pub(super) fn target(self, stored: Option<&Target>) -> ApiResult<Target> {
        let url = TargetUrl::parse(&self.url).or_else(|why| wrong("url", why))?;
        let stored = stored.filter(|stored| stored.is_same_origin(&url));
        let mut target = Target::new(url);
        if let Some(auth) = self.auth {
            target.auth = auth.credential(stored.map(|stored| &stored.auth))?;
        }
        if let Some(tenant) = self.tenant {
            target.tenant = tenant.tenant()?;
        }
        for (name, value) in self.headers {
            let name = name.to_ascii_lowercase();
            let known = || stored?.headers.iter().find(|(known, _)| *known == name);
            let value = value.or_else(|| known().map(|(_, value)| value.clone()));
            let Some(value) = value else { return wrong("headers", format!("{name} has no value")) };
            target.headers.push((name, value));
        }
        if let Some(TlsBody { ca_pem, client_cert_pem, client_key_pem, server_name }) = self.tls {
            let kept = || client_cert_pem.as_ref().and(stored)?.tls.client_key_pem.clone();
            let client_key_pem = client_key_pem.map(TargetSecret::new).or_else(kept);
            target.tls = TargetTls { ca_pem, client_cert_pem, client_key_pem, server_name };
        }
        target.check().map_err(|error| ApiError::invalid_field(error.field, "invalid", error.message))?;
        Ok(target)
    }
}

impl AuthBody {
    fn credential(self, stored: Option<&TargetAuth>) -> ApiResult<TargetAuth> {
        let needed = |text: Option<String>, field| text.map_or_else(|| wrong(field, "is required"), Ok);
        let secret = |sent: Option<String>, kept: Option<&TargetSecret>, field| {
            let sent = sent.map(TargetSecret::new).or_else(|| kept.cloned());
            sent.map_or_else(|| wrong(field, "is required"), Ok)
        };
        match self.kind.as_str() {
            "none" => Ok(TargetAuth::None),
            "basic" => {
                let kept = match stored {
                    Some(TargetAuth::Basic { password, .. }) => Some(password),
                    _ => None,
                };
                Ok(TargetAuth::Basic {
                    username: needed(self.username, "auth.username")?,
                    password: secret(self.password, kept, "auth.password")?,
                })
            }
            "bearer" => {
                let kept = match stored {
                    Some(TargetAuth::Bearer { token }) => Some(token),
                    _ => None,
                };
                Ok(TargetAuth::Bearer { token: secret(self.token, kept, "auth.token")? })
            }
            "oauth2" => {
                let token_url = needed(self.token_url, "auth.token_url")?;
                let token_url = TargetUrl::parse(&token_url).or_else(|why| wrong("auth.token_url", why))?;
                let kept = match stored {
                    Some(TargetAuth::OAuth2 { token_url: known, client_secret, .. })
                        if known.origin() == token_url.origin() =>
                    {
                        Some(client_secret)
                    }
                    _ => None,
                };
                Ok(TargetAuth::OAuth2 {
                    token_url,
                    client_id: needed(self.client_id, "auth.client_id")?,
                    client_secret: secret(self.client_secret, kept, "auth.client_secret")?,
                    scopes: self.scopes,
                })
            }
            _ => wrong("auth.type", "must be none, basic, bearer or oauth2"),
        }
    }
}

impl TenantBody {
    fn tenant(self) -> ApiResult<Tenant> {
        let value = self.value.unwrap_or_default();
        let name = self.name.unwrap_or_default();
        match self.kind.as_str() {
            "none" => Ok(Tenant::None),
            "header" => Ok(Tenant::Header { name: name.to_ascii_lowercase(), value }),
            "path" => Ok(Tenant::Path { value }),
            "label" => Ok(Tenant::Label { name, value }),
            _ => wrong("tenant.type", "must be none, header, path or label"),
        }
    }
}

/// Adds a target without its secrets to an object.
pub(super) fn put_target(json: &mut Value, target: &Target) {
    json["url"] = json!(target.url.as_str());
    json["auth"] = match &target.auth {
        TargetAuth::None => json!({ "type": "none" }),
        TargetAuth::Basic { username, .. } => {
            json!({ "type": "basic", "username": username, "has_secret": true })
        }
        TargetAuth::Bearer { .. } => json!({ "type": "bearer", "has_secret": true }),
        TargetAuth::OAuth2 { token_url, client_id, scopes, .. } => json!({
            "type": "oauth2",
            "token_url": token_url.as_str(),
            "client_id": client_id,
            "scopes": scopes,
            "has_secret": true,
        }),
    };
    json["tenant"] = match &target.tenant {
        Tenant::None => json!({ "type": "none" }),
        Tenant::Header { name, value } => json!({ "type": "header", "name": name, "value": value }),
        Tenant::Path { value } => json!({ "type": "path", "value": value }),
        Tenant::Label { name, value } => json!({ "type": "label", "name": name, "value": value }),
    };
    // The values of headers may be secrets.
    json["headers"] = target.headers.iter().map(|(name, _)| (name.clone(), Value::Null)).collect();
    json["tls"] = json!({
        "ca_pem": target.tls.ca_pem,
        "client_cert_pem": target.tls.client_cert_pem,
        "has_secret": target.tls.client_key_pem.is_some(),
        "server_name": target.tls.server_name,
    });
}
