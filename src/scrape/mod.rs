//! Scraping of targets, as configured by the `scrape_configs` of Prometheus.

pub mod config;
pub mod discovery;
mod own;
pub mod run;
mod service;
pub mod target;

pub use own::{OwnTarget, own_job};
pub use service::{
    MissedScrapes, ScrapeMemory, ScrapePool, ScrapeSource, ScrapeTotals, ScrapeView, Scrapers, ScrapersDeps,
};
