//! The JSON that the endpoints and the account commands of the command line have in common.
//!
//! A view knows the rows that it shows, but no request, no caller and no route.

pub mod api_key;
pub mod dashboard;
pub mod embed_policy;
pub mod embed_token;
pub mod labels;
pub mod link;
pub mod member;
pub mod org;
pub mod public_link;
pub mod server;
pub mod user;
