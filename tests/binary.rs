//! Tests of the built binary from outside: first start, crashes, attacks. Real peers are in
//! `tests/peers_*.rs`.

#![expect(clippy::panic, reason = "a test ends with the reason if a precondition is missing")]

#[path = "../src/model/effort.rs"]
mod effort;
#[path = "binary/harness.rs"]
mod harness;
#[path = "peers/https.rs"]
mod https;
#[path = "../benches/common/viewers.rs"]
mod viewers;

#[path = "binary/admin_cli.rs"]
mod admin_cli;
#[path = "binary/agent.rs"]
mod agent;
#[path = "binary/agent_scraping.rs"]
mod agent_scraping;
#[path = "binary/connecting.rs"]
mod connecting;
#[path = "binary/dashboard_files.rs"]
mod dashboard_files;
#[path = "binary/deletion_remains.rs"]
mod deletion_remains;
#[path = "binary/demo.rs"]
mod demo;
#[path = "binary/descriptors.rs"]
mod descriptors;
#[path = "binary/first_run.rs"]
mod first_run;
#[path = "binary/forged.rs"]
mod forged;
#[path = "binary/forwarding.rs"]
mod forwarding;
#[path = "binary/history.rs"]
mod history;
#[path = "binary/hostile.rs"]
mod hostile;
#[path = "binary/ingest_protocols.rs"]
mod ingest_protocols;
#[path = "binary/kill_loop.rs"]
mod kill_loop;
#[path = "binary/live_viewers.rs"]
mod live_viewers;
#[path = "binary/locks.rs"]
mod locks;
#[path = "binary/logins.rs"]
mod logins;
#[path = "binary/lost_deletion.rs"]
mod lost_deletion;
#[path = "binary/lost_files.rs"]
mod lost_files;
#[path = "binary/lying_target.rs"]
mod lying_target;
#[path = "binary/moving.rs"]
mod moving;
#[path = "binary/out_of_memory.rs"]
mod out_of_memory;
#[path = "binary/private_ca.rs"]
mod private_ca;
#[path = "binary/queries.rs"]
mod queries;
#[path = "binary/readme.rs"]
mod readme;
#[path = "binary/rule_kills.rs"]
mod rule_kills;
#[path = "binary/rules.rs"]
mod rules;
#[path = "binary/scraping.rs"]
mod scraping;
#[path = "binary/secrets.rs"]
mod secrets;
#[path = "binary/settings.rs"]
mod settings;
#[path = "binary/side_data.rs"]
mod side_data;
#[path = "binary/standby.rs"]
mod standby;
#[path = "binary/starting.rs"]
mod starting;
#[path = "binary/tls.rs"]
mod tls;
#[path = "binary/upkeep.rs"]
mod upkeep;
#[path = "binary/used_once.rs"]
mod used_once;
