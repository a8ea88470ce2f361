//! Scraping of targets, as configured by the `scrape_configs` of Prometheus.
