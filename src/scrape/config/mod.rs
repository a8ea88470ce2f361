//! The configuration of scraping: `scrape_configs` in YAML, as Prometheus 3.5 reads them.

mod client;
mod discoveries;
mod error;
mod files;
mod job;
mod read;
mod shown;
mod values;
mod yaml;

pub use error::ScrapeConfigError;
pub use files::ScrapeFiles;
pub(in crate::scrape) use files::read_bounded;
pub use job::{
    AgentRelabel, NameEscaping, NameValidation, ScrapeConfig, ScrapeJob, ScrapeLimits, ScrapeProtocol,
    ScrapeRules, ScrapeScheme,
};
pub use read::{SCRAPE_FILE_BYTES_MAX, SCRAPE_JOBS_MAX};
pub(in crate::scrape) use values::checked_labels;
