//! The configuration of scraping: `scrape_configs` in YAML, as Prometheus 3.5 reads them.

mod job;

pub use job::{
    NameEscaping, NameValidation, ScrapeClientSettings, ScrapeConfig, ScrapeCredential, ScrapeJob,
    ScrapeLimits, ScrapeProtocol, ScrapeRules, ScrapeScheme,
};
