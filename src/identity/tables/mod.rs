//! Rows of the database of accounts, their keys and values. All other parts use these tables.

pub(super) mod audit;
pub(super) mod id;
pub(super) mod master;
pub(super) mod name;
pub(super) mod store;
pub(super) mod user;
