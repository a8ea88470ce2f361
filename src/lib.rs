//! promlet: a metrics server in one binary and one data folder.
//!
//! The rooms in reading order; ARCHITECTURE.md is the map, `tests/tidy.rs` holds its walls.

// Tests of a room and of the whole share what they make folders with.
#[cfg(test)]
extern crate self as promlet;

pub mod model;

pub mod clock;
pub mod entropy;
pub mod simd;
mod sync;

pub mod kv;

pub mod identity;
pub mod ingest;
pub mod promql;
pub mod tsdb;
pub mod upkeep;

pub mod api;
pub mod outbound;
pub mod ui;

pub mod cli;
pub mod config;
pub mod server;
pub mod tasks;
pub mod telemetry;
