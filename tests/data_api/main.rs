//! Tests of the data endpoints through the router: ingestion, queries, and the restrictions of
//! tokens.

#[path = "../api/test_server.rs"]
#[expect(dead_code, reason = "the accounts' tests use the rest of it")]
mod test_server;
mod wire;

#[path = "../../src/model/effort.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod effort;
#[path = "../api/fake_upstream.rs"]
mod fake_upstream;

mod batch;
mod dashboard_viewers;
mod deleting;
mod embeds;
mod forms;
mod importing;
mod listings;
mod live;
mod locked;
mod mount;
mod otlp_deltas;
mod pictures;
mod public_links;
mod pushing;
mod queries;
mod raw_samples;
mod rejects;
mod remote_write2;
mod root_aliases;
mod running;
mod scope;
mod scope_law;
mod settings;
mod split;
mod table;
mod upstream;
mod writing;
