//! The target of a move, as it is stored sealed with the move: JSON.

use serde::{Deserialize, Serialize};

use crate::config::MoveCommand;
use crate::forward::encode::{BodyCompression, WriteVersion};
use crate::model::{Target, TargetAuth, TargetSecret, TargetTls, TargetUrl, Tenant};
use crate::moves::MoverOptions;

/// The target of a move.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct MoveTarget {
    /// The URL for remote write.
    pub(super) write_url: String,
    /// The URL that the paths of the query API are appended to.
    pub(super) read_url: String,
    protocol: u8,
    compression: String,
    tenant: Option<String>,
    headers: Vec<String>,
    username: Option<String>,
    secret: Option<String>,
    ca_pem: Option<String>,
}

/// The ends of the paths for remote write, and what the query API has in their place: Prometheus and
/// VictoriaMetrics, Mimir, a VictoriaMetrics cluster, and this server.
const WRITE_PATHS: [(&str, &str); 4] = [
    ("/api/v1/push", "/prometheus"),
    ("/api/v1/receive", ""),
    ("/api/v1/write", ""),
    ("/write", "/prometheus"),
];

/// Returns the URL of the query API that belongs to a URL for remote write.
fn read_url(write_url: &str) -> Result<String, String> {
    let found =
        WRITE_PATHS.iter().find_map(|(end, path)| Some(format!("{}{path}", write_url.strip_suffix(end)?)));
    found.ok_or_else(|| {
        "--read is needed: the URL that /api/v1/query is appended to does not follow from --to".to_owned()
    })
}

impl MoveTarget {
    /// Returns the target that a command describes.
    pub(super) fn of(command: &MoveCommand) -> Result<MoveTarget, String> {
        let write_url = command.to.clone().ok_or("--to is needed")?;
        let read_url = match &command.read {
            Some(url) => url.clone(),
            None => read_url(&write_url)?,
        };
        let target = MoveTarget {
            write_url,
            read_url,
            protocol: command.protocol,
            compression: command.compression.clone(),
            tenant: command.tenant.clone(),
            headers: command.headers.clone(),
            username: command.username.clone(),
            secret: command.secret.as_ref().map(|secret| secret.reveal().to_owned()),
            ca_pem: command.ca_pem.clone(),
        };
        for url in [&target.write_url, &target.read_url] {
            target.with_url(url)?.check().map_err(|error| format!("{url}: {error}"))?;
        }
        Ok(target)
    }

    /// Parses a stored target.
    pub(super) fn read(json: &[u8]) -> Result<MoveTarget, String> {
        serde_json::from_slice(json).map_err(|error| format!("the stored target is damaged: {error}"))
    }

    /// Returns the stored form.
    pub(super) fn json(&self) -> Vec<u8> {
        serde_json::json!(self).to_string().into_bytes()
    }

    /// Returns the target for remote write.
    pub(super) fn write(&self) -> Result<Target, String> {
        self.with_url(&self.write_url)
    }

    /// Returns the target for queries.
    pub(super) fn query(&self) -> Result<Target, String> {
        self.with_url(&self.read_url)
    }

    fn with_url(&self, url: &str) -> Result<Target, String> {
        let mut target = Target::new(TargetUrl::parse(url).map_err(|error| format!("{url}: {error}"))?);
        target.tenant = self.tenant()?;
        if matches!(target.tenant, Tenant::Path { .. }) && !url.contains("{tenant}") {
            target.tenant = Tenant::None;
        }
        for header in &self.headers {
            let (name, value) = header.split_once('=').ok_or("--header is NAME=VALUE")?;
            target.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let secret = || TargetSecret::new(self.secret.as_deref().unwrap_or_default());
        target.auth = match (&self.username, &self.secret) {
            (Some(username), _) => TargetAuth::Basic { username: username.clone(), password: secret() },
            (None, Some(_)) => TargetAuth::Bearer { token: secret() },
            (None, None) => TargetAuth::None,
        };
        target.tls = TargetTls { ca_pem: self.ca_pem.clone(), ..TargetTls::default() };
        Ok(target)
    }

    fn tenant(&self) -> Result<Tenant, String> {
        let Some(text) = &self.tenant else { return Ok(Tenant::None) };
        let pair = |text: &str| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        match text.split_once(':') {
            Some(("header", rest)) => {
                pair(rest).map(|(name, value)| Tenant::Header { name: name.to_ascii_lowercase(), value })
            }
            Some(("label", rest)) => pair(rest).map(|(name, value)| Tenant::Label { name, value }),
            Some(("path", value)) => Some(Tenant::Path { value: value.to_owned() }),
            _ => None,
        }
        .ok_or_else(|| "--tenant is header:NAME=VALUE, path:VALUE or label:NAME=VALUE".to_owned())
    }

    /// Returns the options of the move.
    pub(super) fn mover_options(&self, accept_differences: bool) -> MoverOptions {
        let tenant_label = match self.tenant() {
            Ok(Tenant::Label { name, value }) => Some((name, value)),
            _ => None,
        };
        MoverOptions {
            version: self.version(),
            compression: self.body_compression(),
            tenant_label,
            accept_differences,
        }
    }

    /// Returns the version of remote write.
    pub(super) fn version(&self) -> WriteVersion {
        if self.protocol == 2 { WriteVersion::V2 } else { WriteVersion::V1 }
    }

    /// Returns the compression of requests.
    pub(super) fn body_compression(&self) -> BodyCompression {
        if self.compression == "zstd" { BodyCompression::Zstd } else { BodyCompression::Snappy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_queries_follows_from_that_of_remote_write() {
        for (write, read) in [
            ("http://p:9090/api/v1/write", "http://p:9090"),
            ("http://m/api/v1/push", "http://m/prometheus"),
            ("http://t/api/v1/receive", "http://t"),
            ("http://h/api/v1/orgs/acme/write", "http://h/api/v1/orgs/acme/prometheus"),
        ] {
            assert_eq!(read_url(write).as_deref(), Ok(read));
        }
        assert!(read_url("http://h/insert").is_err());
    }
}
