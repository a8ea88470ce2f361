//! Discovery of targets: fixed lists, files, HTTP endpoints and DNS.

mod glob;
mod groups;
mod settings;

pub(in crate::scrape) use glob::matching_files;
pub use groups::{GROUPS_BYTES_MAX, GROUPS_TARGETS_MAX, groups_of_json, groups_of_yaml};
pub use settings::{
    DiscoveryConfig, DnsDiscovery, DnsRecordType, FileDiscovery, HttpDiscovery, StaticDiscovery, TargetGroup,
};
