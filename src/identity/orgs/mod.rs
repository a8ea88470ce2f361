//! Organisations: settings, members, invitations, moves and removal.

pub(super) mod daily_usage;
pub(super) mod engine;
pub(super) mod forward;
pub(super) mod invite;
pub(super) mod member;
pub(super) mod moving;
pub(super) mod notify;
pub(super) mod org;
pub(super) mod org_removal;
pub(super) mod org_settings;
pub(super) mod push;
pub(super) mod replaced_rules;
pub(super) mod rule_file;
pub(super) mod rule_group;
pub(super) mod rule_version;
pub(super) mod scrape;
