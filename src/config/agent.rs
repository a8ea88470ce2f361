//! The file of an agent: rules for received series, and targets. Secrets are in files of their own,
//! which it names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{ConfigError, SecretSetting, Settings};
use crate::forward::ForwardProtocol;
use crate::forward::encode::BodyCompression;
use crate::model::{Target, TargetAuth, TargetSecret, TargetTls, TargetUrl, Tenant};
use crate::relabel::{RelabelRule, RelabelRules};

/// The most bytes of the file, and of each file that it names.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The most targets of an agent, inclusive.
const TARGETS_MAX: usize = 16;
/// The most bytes of a target's name, inclusive.
const NAME_BYTES_MAX: usize = 64;

/// The settings that only an agent has.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The token that senders present; `None` admits this machine.
    pub token: Option<SecretSetting>,
    /// The rules for received series; `None` if there are none.
    pub relabel: Option<RelabelRules>,
    /// The targets, each of which gets every sample.
    pub targets: Vec<AgentTarget>,
}

/// A target of an agent.
#[derive(Clone, Debug)]
pub struct AgentTarget {
    /// The name, under which the agent remembers the target's position in the log.
    pub name: String,
    /// The server.
    pub target: Target,
    /// The version of remote write.
    pub protocol: ForwardProtocol,
    /// The compression of requests.
    pub compression: BodyCompression,
    /// The rules for series that are sent to this target.
    pub rules: RelabelRules,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentFile {
    #[serde(default)]
    relabel: Vec<RelabelRule>,
    targets: Vec<TargetEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetEntry {
    name: String,
    url: String,
    #[serde(default)]
    protocol: ProtocolName,
    #[serde(default)]
    compression: CompressionName,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    relabel: Vec<RelabelRule>,
    bearer_token_file: Option<PathBuf>,
    basic: Option<BasicEntry>,
    oauth2: Option<OAuth2Entry>,
    tenant_header: Option<TenantEntry>,
    tenant_path: Option<String>,
    tenant_label: Option<TenantEntry>,
    ca_file: Option<PathBuf>,
    client_cert_file: Option<PathBuf>,
    client_key_file: Option<PathBuf>,
    server_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BasicEntry {
    username: String,
    password_file: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OAuth2Entry {
    token_url: String,
    client_id: String,
    client_secret_file: PathBuf,
    #[serde(default)]
    scopes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantEntry {
    name: String,
    value: String,
}

#[derive(Clone, Copy, Default, Deserialize)]
enum ProtocolName {
    #[default]
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "1.0")]
    V1,
    #[serde(rename = "2.0")]
    V2,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CompressionName {
    #[default]
    Snappy,
    Zstd,
}

/// Reads the file of an agent and the files that it names.
///
/// # Errors
/// [`ConfigError::Settings`] names the file and the field.
pub(super) fn read(path: &Path, token: Option<SecretSetting>) -> Result<AgentSettings, ConfigError> {
    let wrong = |what: String| ConfigError::Settings(format!("{}: {what}", path.display()));
    let text = text_of(path).map_err(ConfigError::Settings)?;
    let file: AgentFile = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    let relabel = RelabelRules::parse(&file.relabel).map_err(|e| wrong(format!("relabel: {e}")))?;
    let relabel = (!file.relabel.is_empty()).then_some(relabel);
    if file.targets.is_empty() || file.targets.len() > TARGETS_MAX {
        return Err(wrong(format!("targets: 1 to {TARGETS_MAX} are expected")));
    }
    let mut targets: Vec<AgentTarget> = Vec::new();
    for (place, entry) in file.targets.into_iter().enumerate() {
        let target = entry.resolve().map_err(|what| wrong(format!("targets[{place}].{what}")))?;
        if targets.iter().any(|other| other.name == target.name) {
            return Err(wrong(format!("targets[{place}].name: {:?} is given twice", target.name)));
        }
        targets.push(target);
    }
    Ok(AgentSettings { token, relabel, targets })
}

impl AgentSettings {
    /// Refuses an address of other machines without a token.
    ///
    /// # Errors
    /// [`ConfigError::Settings`].
    pub(super) fn check_listener(&self, settings: &Settings) -> Result<(), ConfigError> {
        match settings.listen.ip().is_loopback() || self.token.is_some() {
            true => Ok(()),
            false => Err(ConfigError::Settings(format!(
                "the agent would listen on {} for every machine: set PROMLET_AGENT_TOKEN (or …_FILE), or listen on 127.0.0.1",
                settings.listen
            ))),
        }
    }
}

impl TargetEntry {
    /// Reads the files of a target. An error begins with the field.
    fn resolve(self) -> Result<AgentTarget, String> {
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if !(1..=NAME_BYTES_MAX).contains(&self.name.len()) || !self.name.bytes().all(is_name) {
            return Err(format!("name: 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 - _ . are expected"));
        }
        let url = |field: &str, text: &str| TargetUrl::parse(text).map_err(|e| format!("{field}: {e}"));
        let pem = |field: &str, path: Option<PathBuf>| {
            path.map(|path| text_of(&path)).transpose().map_err(|e| format!("{field}: {e}"))
        };
        let auth = match (self.bearer_token_file, self.basic, self.oauth2) {
            (None, None, None) => TargetAuth::None,
            (Some(file), None, None) => TargetAuth::Bearer { token: secret("bearer_token_file", &file)? },
            (None, Some(basic), None) => TargetAuth::Basic {
                username: basic.username,
                password: secret("basic.password_file", &basic.password_file)?,
            },
            (None, None, Some(oauth2)) => TargetAuth::OAuth2 {
                token_url: url("oauth2.token_url", &oauth2.token_url)?,
                client_id: oauth2.client_id,
                client_secret: secret("oauth2.client_secret_file", &oauth2.client_secret_file)?,
                scopes: oauth2.scopes,
            },
            _ => {
                return Err(
                    "bearer_token_file: one of bearer_token_file, basic and oauth2 is expected".to_owned()
                );
            }
        };
        let tenant = match (self.tenant_header, self.tenant_path, self.tenant_label) {
            (None, None, None) => Tenant::None,
            (Some(TenantEntry { name, value }), None, None) => {
                Tenant::Header { name: name.to_ascii_lowercase(), value }
            }
            (None, Some(value), None) => Tenant::Path { value },
            (None, None, Some(TenantEntry { name, value })) => Tenant::Label { name, value },
            _ => {
                return Err("tenant_header: one of tenant_header, tenant_path and tenant_label is expected"
                    .to_owned());
            }
        };
        let headers =
            self.headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        let tls = TargetTls {
            ca_pem: pem("ca_file", self.ca_file)?,
            client_cert_pem: pem("client_cert_file", self.client_cert_file)?,
            client_key_pem: pem("client_key_file", self.client_key_file)?.map(TargetSecret::new),
            server_name: self.server_name,
        };
        let target = Target { url: url("url", &self.url)?, auth, tenant, headers, tls };
        target.check().map_err(|e| e.to_string())?;
        let protocol = match self.protocol {
            ProtocolName::Auto => ForwardProtocol::Auto,
            ProtocolName::V1 => ForwardProtocol::V1,
            ProtocolName::V2 => ForwardProtocol::V2,
        };
        let compression = match self.compression {
            CompressionName::Snappy => BodyCompression::Snappy,
            CompressionName::Zstd => BodyCompression::Zstd,
        };
        let rules = RelabelRules::parse(&self.relabel).map_err(|e| format!("relabel: {e}"))?;
        Ok(AgentTarget { name: self.name, target, protocol, compression, rules })
    }
}

/// Reads a secret without one trailing line end.
fn secret(field: &str, path: &Path) -> Result<TargetSecret, String> {
    let text = text_of(path).map_err(|e| format!("{field}: {e}"))?;
    let text = text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
    Ok(TargetSecret::new(text))
}

fn text_of(path: &Path) -> Result<String, String> {
    let failed = |e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > FILE_BYTES_MAX {
        return Err(format!("{} has {length} bytes, at most {FILE_BYTES_MAX} are allowed", path.display()));
    }
    std::fs::read_to_string(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<AgentSettings, String> {
        let dir = tempfile::tempdir().expect("a folder");
        let token = dir.path().join("token");
        std::fs::write(&token, "s3cret\n").expect("written");
        let path = dir.path().join("agent.json");
        let text = text.replace("TOKEN", &token.display().to_string());
        std::fs::write(&path, text).expect("written");
        read(&path, None).map_err(|e| e.to_string())
    }

    #[test]
    fn a_target_has_its_secret_from_a_file() {
        let read = read_text(
            r#"{"relabel": [{"action": "labeldrop", "regex": "pod"}],
                "targets": [{"name": "central", "url": "https://metrics.example.com/api/v1/write", "protocol": "2.0",
                             "compression": "zstd", "bearer_token_file": "TOKEN",
                             "tenant_header": {"name": "X-Scope-OrgID", "value": "acme"}}]}"#,
        )
        .expect("valid");
        assert!(read.relabel.is_some() && read.token.is_none());
        let [target] = &read.targets[..] else { panic!("{:?}", read.targets) };
        let token = TargetSecret::new("s3cret");
        assert_eq!(target.target.auth, TargetAuth::Bearer { token });
        let tenant = Tenant::Header { name: "x-scope-orgid".to_owned(), value: "acme".to_owned() };
        assert_eq!(target.target.tenant, tenant);
        assert!(!format!("{read:?}").contains("s3cret"));
    }

    #[test]
    fn invalid_files_are_refused_with_the_field() {
        for (text, reason) in [
            ("{", "EOF"),
            (r#"{"targets": []}"#, "targets: 1 to 16"),
            (r#"{"targets": [{"name": "a", "url": "ftp://x"}]}"#, "targets[0].url"),
            (r#"{"targets": [{"name": "a b", "url": "http://x"}]}"#, "targets[0].name"),
            (r#"{"targets": [{"name": "a", "url": "http://x", "bearer_token": "x"}]}"#, "unknown field"),
            (
                r#"{"targets": [{"name": "a", "url": "http://x"}, {"name": "a", "url": "http://y"}]}"#,
                "targets[1].name: \"a\" is given twice",
            ),
            (
                r#"{"targets": [{"name": "a", "url": "http://x", "bearer_token_file": "/nowhere/token"}]}"#,
                "targets[0].bearer_token_file: cannot read /nowhere/token",
            ),
            (r#"{"relabel": [{"regex": "("}], "targets": [{"name": "a", "url": "http://x"}]}"#, "relabel"),
        ] {
            let error = read_text(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn an_agent_for_other_machines_needs_a_token() {
        let mut read = read_text(r#"{"targets": [{"name": "a", "url": "http://x"}]}"#).expect("valid");
        let settings = |listen: &str| crate::config::tests::parse(&["--listen", listen]).expect("valid");
        assert!(read.check_listener(&settings("127.0.0.1:1")).is_ok());
        assert!(read.check_listener(&settings("0.0.0.0:1")).is_err());
        read.token = Some(SecretSetting::new("t".to_owned()));
        assert!(read.check_listener(&settings("0.0.0.0:1")).is_ok());
    }
}
