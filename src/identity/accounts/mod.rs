//! The life of an account: set-up, sign-up, changes, deletion, administration.

pub(super) mod account;
pub(super) mod administration;
pub(super) mod sealed;
pub(super) mod setup;
pub(super) mod signup;
