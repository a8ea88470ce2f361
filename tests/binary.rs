//! The built binary, from outside: what a stranger, a crash and an attacker meet. Rust alone; real peers are `tests/peers_*.rs`.

#[path = "binary/harness.rs"]
mod harness;

#[path = "binary/demo.rs"]
mod demo;
#[path = "binary/first_run.rs"]
mod first_run;
#[path = "binary/hostile.rs"]
mod hostile;
#[path = "binary/kill_loop.rs"]
mod kill_loop;
