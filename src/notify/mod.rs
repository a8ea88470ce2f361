//! Notifications of alerts: they go to Alertmanagers, and to receivers by a route of the
//! organisation's own, with groups, silences, inhibition, acknowledgements and mute times.
//!
//! [`org::OrgNotifier`] is the state of one organisation, without a thread or a clock.

pub mod alertmanager;
pub mod config;
pub mod delivery;
pub mod edge;
mod interval;
pub mod labels;
pub mod limits;
pub mod matcher;
pub mod message;
mod notified;
pub mod org;
pub mod rows;
pub mod silence;
mod zone;
