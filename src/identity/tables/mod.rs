//! Rows of the database of accounts, their keys and values. They use no other part of this room.
//!
//! Tables of control (the first byte of every key): 0x01 users, 0x02 addresses, 0x03 second
//! factors, 0x04 pending logins, 0x05 sessions, 0x06 last use of sessions, 0x07 links, 0x08
//! outstanding links of an address, 0x09 organisations, 0x0a slugs, 0x0b memberships, 0x0c members,
//! 0x0d counters, 0x0e API keys, 0x0f last use of API keys, 0x10 audit log, 0x11 previous secrets
//! of API keys, 0x12 samples that organisations stored today, 0x13 dashboards, 0x14 documents of
//! dashboards, 0x15 versions of dashboards, 0x16 totals of dashboards, 0x17 documents of deleted
//! dashboards, 0x18 invitations, 0x19 links of invitations, 0x1a organisations being removed, 0x1b
//! stars and views of dashboards, 0x1c linked identities, 0x1d identities of an account, 0x1e used
//! sign-in states, 0x1f public links of dashboards, 0x30 last use of public links, 0x31 first valid
//! dates of the tokens of dashboards, 0x32 engines of organisations, 0x33 forwarding targets, 0x34
//! moves to another engine, 0x35 replaced versions of groups of rules, 0x36 their texts, 0x37
//! groups of rule files, 0x38 groups of rules, 0x39 configurations of notifications, 0x3a their
//! state, 0x3b pushed groups, 0x3d scrape configurations. The samples have 0x20 to 0x2f.

pub(super) mod audit;
pub(super) mod compressed;
pub(super) mod dashboard;
pub(super) mod engine;
pub(super) mod forward;
pub(super) mod id;
pub(super) mod invite;
pub(super) mod key;
pub(super) mod link;
pub(super) mod master;
pub(super) mod moving;
pub(super) mod name;
pub(super) mod notify;
pub(super) mod oauth;
pub(super) mod org;
pub(super) mod public_link;
pub(super) mod push;
pub(super) mod rule_group;
pub(super) mod scrape;
pub(super) mod session;
pub(super) mod store;
pub(super) mod target;
pub(super) mod totp;
pub(super) mod user;
