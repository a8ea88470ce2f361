//! Discovery of targets: fixed lists, files, HTTP endpoints and DNS.

mod settings;

pub use settings::{
    DiscoveryConfig, DnsDiscovery, DnsRecordType, FileDiscovery, HttpDiscovery, StaticDiscovery, TargetGroup,
};
