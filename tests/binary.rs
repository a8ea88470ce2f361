//! The built binary, from outside: what a stranger, a crash and an attacker meet. Rust alone; real peers are `tests/peers_*.rs`.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
mod harness;
#[path = "peers/https.rs"]
mod https;

#[path = "binary/admin_cli.rs"]
mod admin_cli;
#[path = "binary/beside.rs"]
mod beside;
#[path = "binary/demo.rs"]
mod demo;
#[path = "binary/descriptors.rs"]
mod descriptors;
#[path = "binary/doors.rs"]
mod doors;
#[path = "binary/first_run.rs"]
mod first_run;
#[path = "binary/forged.rs"]
mod forged;
#[path = "binary/hostile.rs"]
mod hostile;
#[path = "binary/kill_loop.rs"]
mod kill_loop;
#[path = "binary/locks.rs"]
mod locks;
#[path = "binary/logins.rs"]
mod logins;
#[path = "binary/lost_deletion.rs"]
mod lost_deletion;
#[path = "binary/mending.rs"]
mod mending;
#[path = "binary/out_of_memory.rs"]
mod out_of_memory;
#[path = "binary/private_ca.rs"]
mod private_ca;
#[path = "binary/questions.rs"]
mod questions;
#[path = "binary/readme.rs"]
mod readme;
#[path = "binary/secrets.rs"]
mod secrets;
#[path = "binary/settings.rs"]
mod settings;
#[path = "binary/starting.rs"]
mod starting;
#[path = "binary/tls.rs"]
mod tls;
#[path = "binary/traces.rs"]
mod traces;
#[path = "binary/upkeep.rs"]
mod upkeep;
#[path = "binary/used_once.rs"]
mod used_once;
