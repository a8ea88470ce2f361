//! A target as it is stored: sealed as a whole with the master key, because URLs and headers may
//! contain secrets, too.

use serde::{Deserialize, Serialize};

use crate::entropy::Entropy;
use crate::identity::tables::master::{SealError, SealedFor, SealingKey};
use crate::model::{Target, TargetAuth, TargetSecret, TargetTls, TargetUrl, Tenant};

/// A sealed target: the JSON text of a [`StoredTarget`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct SealedTarget(Vec<u8>);

#[derive(Serialize, Deserialize)]
struct StoredTarget {
    url: String,
    auth: StoredAuth,
    tenant: StoredTenant,
    headers: Vec<(String, String)>,
    ca_pem: Option<String>,
    client_cert_pem: Option<String>,
    client_key_pem: Option<String>,
    server_name: Option<String>,
}

#[derive(Serialize, Deserialize)]
enum StoredAuth {
    None,
    Basic { username: String, password: String },
    Bearer { token: String },
    OAuth2 { token_url: String, client_id: String, client_secret: String, scopes: Vec<String> },
}

#[derive(Serialize, Deserialize)]
enum StoredTenant {
    None,
    Header { name: String, value: String },
    Path { value: String },
    Label { name: String, value: String },
}

impl SealedTarget {
    /// Seals a target for one record.
    pub(in crate::identity) fn seal(
        target: &Target,
        record: SealedFor<'_>,
        key: &SealingKey,
        rng: &mut Entropy,
    ) -> SealedTarget {
        let text = serde_json::to_vec(&StoredTarget::of(target)).expect("texts are JSON");
        SealedTarget(key.seal(record, &text, rng))
    }

    /// Opens a target that was sealed for the same record.
    ///
    /// # Errors
    /// [`SealError`], also if the content is not a valid target.
    pub(in crate::identity) fn open(
        &self,
        record: SealedFor<'_>,
        key: &SealingKey,
    ) -> Result<Target, SealError> {
        let text = key.open(record, &self.0)?;
        let stored: StoredTarget = serde_json::from_slice(&text).map_err(|_| SealError)?;
        stored.target().ok_or(SealError)
    }
}

impl StoredTarget {
    fn of(target: &Target) -> StoredTarget {
        let secret = |secret: &TargetSecret| secret.reveal().to_owned();
        let Target { url, auth, tenant, headers, tls } = target;
        StoredTarget {
            url: url.as_str().to_owned(),
            auth: match auth {
                TargetAuth::None => StoredAuth::None,
                TargetAuth::Basic { username, password } => {
                    StoredAuth::Basic { username: username.clone(), password: secret(password) }
                }
                TargetAuth::Bearer { token } => StoredAuth::Bearer { token: secret(token) },
                TargetAuth::OAuth2 { token_url, client_id, client_secret, scopes } => StoredAuth::OAuth2 {
                    token_url: token_url.as_str().to_owned(),
                    client_id: client_id.clone(),
                    client_secret: secret(client_secret),
                    scopes: scopes.clone(),
                },
            },
            tenant: match tenant.clone() {
                Tenant::None => StoredTenant::None,
                Tenant::Header { name, value } => StoredTenant::Header { name, value },
                Tenant::Path { value } => StoredTenant::Path { value },
                Tenant::Label { name, value } => StoredTenant::Label { name, value },
            },
            headers: headers.clone(),
            ca_pem: tls.ca_pem.clone(),
            client_cert_pem: tls.client_cert_pem.clone(),
            client_key_pem: tls.client_key_pem.as_ref().map(secret),
            server_name: tls.server_name.clone(),
        }
    }

    fn target(self) -> Option<Target> {
        let url = |text: &str| TargetUrl::parse(text).ok();
        Some(Target {
            url: url(&self.url)?,
            auth: match self.auth {
                StoredAuth::None => TargetAuth::None,
                StoredAuth::Basic { username, password } => {
                    TargetAuth::Basic { username, password: TargetSecret::new(password) }
                }
                StoredAuth::Bearer { token } => TargetAuth::Bearer { token: TargetSecret::new(token) },
                StoredAuth::OAuth2 { token_url, client_id, client_secret, scopes } => TargetAuth::OAuth2 {
                    token_url: url(&token_url)?,
                    client_id,
                    client_secret: TargetSecret::new(client_secret),
                    scopes,
                },
            },
            tenant: match self.tenant {
                StoredTenant::None => Tenant::None,
                StoredTenant::Header { name, value } => Tenant::Header { name, value },
                StoredTenant::Path { value } => Tenant::Path { value },
                StoredTenant::Label { name, value } => Tenant::Label { name, value },
            },
            headers: self.headers,
            tls: TargetTls {
                ca_pem: self.ca_pem,
                client_cert_pem: self.client_cert_pem,
                client_key_pem: self.client_key_pem.map(TargetSecret::new),
                server_name: self.server_name,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::MasterKey;

    #[test]
    fn every_kind_of_target_is_read_as_it_was_sealed() {
        let key = SealingKey::new(&MasterKey([7; 32]));
        let (record, other) =
            (SealedFor { kind: "engine", id: &[1] }, SealedFor { kind: "engine", id: &[2] });
        let url = |text: &str| TargetUrl::parse(text).expect("a URL");
        let secret = || TargetSecret::new("s");
        let text = || "x".to_owned();
        let auths = [
            TargetAuth::None,
            TargetAuth::Basic { username: text(), password: secret() },
            TargetAuth::Bearer { token: secret() },
            TargetAuth::OAuth2 {
                token_url: url("https://b"),
                client_id: text(),
                client_secret: secret(),
                scopes: vec![text()],
            },
        ];
        let tenants = [
            Tenant::None,
            Tenant::Header { name: text(), value: text() },
            Tenant::Path { value: text() },
            Tenant::Label { name: text(), value: text() },
        ];
        for (auth, tenant) in auths.into_iter().zip(tenants) {
            let mut target = Target::new(url("https://a/x"));
            (target.auth, target.tenant) = (auth, tenant);
            target.headers = vec![(text(), text())];
            target.tls = TargetTls {
                ca_pem: Some(text()),
                client_cert_pem: Some(text()),
                client_key_pem: Some(secret()),
                server_name: Some(text()),
            };
            let sealed = SealedTarget::seal(&target, record, &key, &mut Entropy::seeded(1));
            assert_eq!(sealed.open(record, &key), Ok(target));
            assert_eq!(sealed.open(other, &key), Err(SealError), "the target of another record");
        }
    }
}
