//! The start of a store, and work on stores that are closed.
//!
//! [`open`] restores the state from checkpoint, registries, segments and log: [`registry_load`] and
//! [`replay_workers`] use several threads, and [`prefetch`] reads ahead afterwards. [`check`]
//! changes nothing, [`repair`] saves the readable data, and [`verify_restored`] compares segments
//! with their list.

pub(super) mod check;
pub(super) mod open;
pub(super) mod prefetch;
pub(super) mod registry_load;
pub(super) mod repair;
mod replay_workers;
pub(super) mod verify_restored;
