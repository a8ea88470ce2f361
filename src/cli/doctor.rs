//! `promlet doctor`.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::config::Settings;
use crate::server::{Diagnoses, Diagnosis, Health, diagnose};

/// Looks, and tells.
pub(super) fn run(settings: &Settings, json: bool) -> anyhow::Result<ExitCode> {
    let found = diagnose(settings, Clock::System.now());
    let text = if json { format!("{:#}\n", as_json(&found)) } else { as_text(&found) };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::from(match found.health() {
        Health::Good => 0,
        Health::Look => 1,
        Health::Broken => 2,
    }))
}

fn word(health: Health) -> &'static str {
    match health {
        Health::Good => "ok",
        Health::Look => "look",
        Health::Broken => "broken",
    }
}

fn as_json(found: &Diagnoses) -> Value {
    let rows = found.0.iter().map(|one| {
        json!({
            "part": one.part,
            "health": word(one.health),
            "says": one.says,
            "next": if one.next.is_empty() { Value::Null } else { one.next.as_str().into() },
        })
    });
    json!({ "result": word(found.health()), "found": rows.collect::<Vec<_>>() })
}

fn as_text(found: &Diagnoses) -> String {
    let colours = std::io::stdout().is_terminal();
    let mut text = String::new();
    for Diagnosis { part, health, says, next } in &found.0 {
        let plain = format!("{:6}", word(*health));
        let colour = match health {
            Health::Good => "32",
            Health::Look => "33",
            Health::Broken => "31",
        };
        let shown = if colours { format!("\x1b[1;{colour}m{plain}\x1b[0m") } else { plain };
        text.push_str(&format!("{shown}  {part:8}  {says}\n"));
        if !next.is_empty() {
            text.push_str(&format!("                  -> {next}\n"));
        }
    }
    text.push_str(match found.health() {
        Health::Good => "\nNothing is wrong.\n",
        Health::Look => "\nIt works; some things deserve a look.\n",
        Health::Broken => "\nSomething does not work.\n",
    });
    text
}
