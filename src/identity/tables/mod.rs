//! Rows of the database of accounts, their keys and values. All other parts use these tables.

pub(super) mod audit;
pub(super) mod id;
pub(super) mod invite;
pub(super) mod key;
pub(super) mod link;
pub(super) mod master;
pub(super) mod name;
pub(super) mod oauth;
pub(super) mod org;
pub(super) mod session;
pub(super) mod store;
pub(super) mod totp;
pub(super) mod user;
