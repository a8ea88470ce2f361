//! Scraping of targets, as configured by the `scrape_configs` of Prometheus.

pub mod config;
pub mod discovery;
pub mod run;
mod service;
pub mod target;

pub use service::{ScrapeMemory, ScrapePool, ScrapeSource, ScrapeTotals, ScrapeView, Scrapers, ScrapersDeps};
