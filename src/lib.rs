//! promlet: a metrics server in one binary and one data folder.
//!
//! The rooms in reading order. ARCHITECTURE.md describes them, and `tests/tidy.rs` enforces their
//! boundaries.

// Unit tests and integration tests share the code that makes folders.
#[cfg(test)]
extern crate self as promlet;

pub mod model;

pub mod clock;
pub mod demo;
pub mod entropy;
pub mod relabel;
pub mod simd;
mod sync;
pub mod yaml;

pub mod kv;

pub mod dashboards;
pub mod forward;
pub mod history;
pub mod identity;
pub mod ingest;
pub mod moves;
pub mod promql;
pub mod push;
pub mod rules;
pub mod standby;
pub mod tsdb;
pub mod upkeep;

pub mod notify;
pub mod outbound;
pub mod scrape;
pub mod upstream;

pub mod api;
pub mod render;
pub mod ui;

pub mod cli;
pub mod config;
pub mod server;
pub mod tasks;
pub mod telemetry;
