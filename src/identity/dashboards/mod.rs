//! Dashboards of an organisation (docs/specification.md C9): documents in Grafana's JSON with
//! versions, stars and last views, those that the operator provides as files, and public links.
//!
//! A document is stored as the text that was sent, compressed. Only the uid, the title, the tags,
//! the counts for the limits, and the references of its variables are read from it.

pub(super) mod document;
pub(super) mod provisioned;
pub(super) mod public_link;
mod removal;
pub(super) mod store;
mod variables;
pub(super) mod views;
