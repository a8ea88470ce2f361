//! API keys, and the embed tokens that they sign.

mod alerts_policy;
pub(super) mod api_key;
pub(super) mod compiled_policy;
pub(super) mod dashboard_policy;
pub(super) mod dashboard_tokens;
pub(super) mod embed_token;
pub(super) mod keyring;
pub(super) mod policy_matcher;
pub(super) mod public_key;
pub(super) mod refusal_log;
pub(super) mod rotation;
