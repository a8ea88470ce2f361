//! Discovery of targets: fixed lists, files, HTTP endpoints and DNS.
//!
//! [`DiscoveryManager`] plans the refreshes and makes targets of the answers; it is
//! synchronous. `edge` has the thread that reads files and starts requests.

mod dns;
mod edge;
mod files;
mod glob;
mod groups;
mod http;
mod manager;
mod settings;
mod state;

pub use dns::DnsResolver;
pub use edge::{Discovery, DiscoveryDeps};
pub(in crate::scrape) use glob::matching_files;
pub use groups::{GROUPS_BYTES_MAX, GROUPS_TARGETS_MAX, groups_of_json, groups_of_yaml};
pub use manager::{DiscoveredTargets, DiscoveryId, DiscoveryManager, DueRefresh, JobDiscoveries};
pub use settings::{
    DiscoveryConfig, DnsDiscovery, DnsRecordType, FileDiscovery, HttpDiscovery, StaticDiscovery, TargetGroup,
};
pub use state::{DiscoveryState, DiscoveryStatus, RefreshAnswer, SourceAnswer};
