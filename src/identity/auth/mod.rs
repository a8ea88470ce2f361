//! Sign-in: passwords, mailed links, second factors, providers, and the sessions they create.

pub(super) mod address_proof;
pub(super) mod credentials;
pub(super) mod device;
pub(super) mod link;
pub(super) mod login;
pub(super) mod login_throttle;
pub(super) mod magic_link;
pub(super) mod oauth;
pub(super) mod password;
pub(super) mod password_reset;
pub(super) mod reauth;
pub(super) mod second_factor;
pub(super) mod session;
pub(super) mod totp;
