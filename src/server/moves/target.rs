//! The target of a move, as it is stored sealed with the move: JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::MoveCommand;
use crate::forward::encode::{BodyCompression, WriteVersion};
use crate::model::{TENANT_PLACEHOLDER, Target, TargetAuth, TargetSecret, TargetTls, TargetUrl, Tenant};
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
    /// How long the target may take to show samples that it accepted, in seconds.
    settle_s: u16,
}

/// Most targets show samples at once.
const SETTLE_S: u16 = 1;
/// VictoriaMetrics keeps the empty result of a search for new series for some seconds.
const SETTLE_VICTORIA_S: u16 = 15;

/// The ends of the paths for remote write, and the ends that replace them for the query API:
/// Prometheus and VictoriaMetrics, Mimir, a VictoriaMetrics cluster, and this server.
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
        let is_path = command.tenant.as_deref().is_some_and(|tenant| tenant.starts_with("path:"));
        if is_path && !write_url.contains(TENANT_PLACEHOLDER) {
            return Err(format!("a tenant in the path needs {TENANT_PLACEHOLDER} in --to"));
        }
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
            settle_s: command.settle.unwrap_or(SETTLE_S),
        };
        for url in [&target.write_url, &target.read_url] {
            target.with_url(url)?.check().map_err(|error| format!("{url}: {error}"))?;
        }
        Ok(target)
    }

    /// Returns whether this is the same place at the same server, perhaps with other credentials.
    pub(super) fn is_same_place(&self, other: &MoveTarget) -> bool {
        let place = |of: &MoveTarget| (of.write_url.clone(), of.read_url.clone(), of.tenant.clone());
        place(self) == place(other)
    }

    /// Returns whether the target of another organisation has its samples in the same place, as far
    /// as this server can know: without a tenant, the URL and the headers identify the place.
    pub(super) fn is_shared_with(&self, other: &Target) -> Result<bool, String> {
        let own = self.query()?;
        let url = |target: &Target| target.url.as_str().trim_end_matches('/').to_owned();
        Ok(self.tenant.is_none() && url(&own) == url(other) && own.headers == other.headers)
    }

    /// Keeps the time of the stored target, unless the command has one.
    pub(super) fn keep_settle(&mut self, command: &MoveCommand, stored: &MoveTarget) {
        self.settle_s = command.settle.unwrap_or(stored.settle_s);
    }

    /// Records the delay after which a target shows samples, unless the command states it.
    pub(super) fn found(&mut self, command: &MoveCommand, is_victoria: bool) {
        if command.settle.is_none() && is_victoria {
            self.settle_s = SETTLE_VICTORIA_S;
        }
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
        // --read may name the tenant itself.
        if matches!(target.tenant, Tenant::Path { .. }) && !url.contains(TENANT_PLACEHOLDER) {
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
    pub(super) fn mover_options(&self) -> MoverOptions {
        let tenant_label = match self.tenant() {
            Ok(Tenant::Label { name, value }) => Some((name, value)),
            _ => None,
        };
        MoverOptions {
            version: self.version(),
            compression: self.body_compression(),
            tenant_label,
            settle: Duration::from_secs(u64::from(self.settle_s)),
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

    fn command(to: &str, tenant: Option<&str>) -> MoveCommand {
        let (to, tenant) = (Some(to.to_owned()), tenant.map(str::to_owned));
        MoveCommand { to, tenant, protocol: 1, compression: "snappy".to_owned(), ..MoveCommand::default() }
    }

    #[test]
    fn a_tenant_in_the_path_needs_its_place_in_the_url() {
        let url = "http://vm/insert/{tenant}/prometheus/api/v1/write";
        let mut with_read = command(url, Some("path:42"));
        with_read.read = Some("http://vm/select/42/prometheus".to_owned());
        assert!(MoveTarget::of(&with_read).is_ok() && MoveTarget::of(&command(url, Some("path:42"))).is_ok());
        let without = MoveTarget::of(&command("http://vm/insert/0/api/v1/write", Some("path:42")));
        assert!(without.err().is_some_and(|error| error.contains("{tenant}")));
    }

    #[test]
    fn a_place_without_a_tenant_is_that_of_every_organisation() {
        let one = |tenant| MoveTarget::of(&command("http://m/api/v1/push", tenant)).expect("valid");
        let other = one(None).query().expect("valid");
        assert_eq!(one(None).is_shared_with(&other), Ok(true));
        assert_eq!(one(Some("header:X-Scope-OrgID=a")).is_shared_with(&other), Ok(false));
        let elsewhere = MoveTarget::of(&command("http://n/api/v1/push", None)).expect("valid");
        assert_eq!(elsewhere.is_shared_with(&other), Ok(false));
        assert!(one(None).is_same_place(&one(None)) && !one(None).is_same_place(&elsewhere));
    }
}
