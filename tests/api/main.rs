//! Tests of the HTTP API as a black box: over the in-process router, and over a real socket if the
//! bytes of the connection matter.

#[path = "../binary/eventually.rs"]
mod eventually;
#[expect(dead_code, reason = "the data endpoints' tests use the rest of it")]
mod fake_upstream;
mod test_server;
#[path = "../data_api/wire.rs"]
#[expect(dead_code, reason = "the data endpoints' tests use the rest of it")]
mod wire;

mod accounts;
mod alert_list;
mod api_keys;
mod callers;
mod cors;
mod dashboards;
mod data_answers;
mod demo_data;
mod edge;
mod engine;
mod errors;
mod forwarding;
mod limits;
mod listings;
mod mails;
mod malformed;
mod matrix;
mod members;
mod mimirtool;
mod mistakes;
mod names;
mod notifications;
mod oauth;
mod openapi;
mod organisations;
mod own_account;
mod passwords;
mod planted;
mod proxy;
mod public_links;
mod refused;
mod removal;
mod rule_load;
mod rule_versions;
mod rules;
mod scraping;
mod security;
mod signups;
mod strangers;
mod tls;
mod two_factor;
mod walk;
mod whole_document;
