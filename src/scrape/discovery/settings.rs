//! The discoveries of a job: the sources of its targets.

use std::path::PathBuf;

use crate::model::Labels;
use crate::outbound::PullOptions;

/// One discovery of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoveryConfig {
    /// Targets of the configuration.
    Static(StaticDiscovery),
    /// Targets in files.
    File(FileDiscovery),
    /// Targets that an HTTP endpoint lists.
    Http(Box<HttpDiscovery>),
    /// Targets that name servers list.
    Dns(DnsDiscovery),
}

/// Targets with common labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetGroup {
    /// The addresses, such as `localhost:9100`.
    pub targets: Vec<String>,
    /// The labels of all targets of the group.
    pub labels: Labels,
}

/// Targets of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaticDiscovery {
    /// The groups, in the order of the file.
    pub groups: Vec<TargetGroup>,
}

/// Targets in files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileDiscovery {
    /// Paths whose last part may contain `*`, `?` and `[a-z]`.
    pub files: Vec<PathBuf>,
    /// The time between two reads of all files, in milliseconds.
    pub refresh_interval_ms: i64,
}

/// Targets that an HTTP endpoint lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpDiscovery {
    /// The URL, with its query.
    pub url: String,
    /// The time between two requests, in milliseconds.
    pub refresh_interval_ms: i64,
    /// How requests are made.
    pub client: PullOptions,
}

/// Targets that name servers list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsDiscovery {
    /// The names to look up.
    pub names: Vec<String>,
    /// The type of the records.
    pub record: DnsRecordType,
    /// The port of targets for which the records have none.
    pub port: u16,
    /// The time between two lookups, in milliseconds.
    pub refresh_interval_ms: i64,
}

/// A type of DNS records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DnsRecordType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Hosts and ports.
    #[default]
    Srv,
    /// Hosts of mail servers.
    Mx,
    /// Hosts of name servers.
    Ns,
}
