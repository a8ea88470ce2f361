//! The data endpoints as their clients meet them: samples in, questions answered, and nothing beyond what a token grants.

#![expect(unreachable_pub, clippy::panic, reason = "modules of one test; what they share may panic")]

#[path = "../api/house.rs"]
#[expect(dead_code, reason = "the accounts' tests use the rest of it")]
mod house;
mod wire;

mod listings;
mod mount;
mod questions;
mod scope;
mod table;
mod writing;
