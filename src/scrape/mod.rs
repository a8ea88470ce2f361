//! Scraping of targets, as configured by the `scrape_configs` of Prometheus.

pub mod config;
pub mod discovery;
pub mod target;
