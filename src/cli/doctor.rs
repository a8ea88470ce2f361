//! `promlet doctor`.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::output::print;
use crate::clock::Clock;
use crate::config::Settings;
use crate::server::{Diagnoses, Diagnosis, Severity, diagnose};

/// Diagnoses the installation and prints the findings.
pub(super) fn run(settings: &Settings, json: bool) -> anyhow::Result<ExitCode> {
    let diagnoses = diagnose(settings, Clock::System.now());
    let text = if json { format!("{:#}\n", as_json(&diagnoses)) } else { as_text(&diagnoses) };
    print(text)?;
    Ok(ExitCode::from(match diagnoses.severity() {
        Severity::Pass => 0,
        Severity::Warn => 1,
        Severity::Fail => 2,
    }))
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Pass => "ok",
        Severity::Warn => "look",
        Severity::Fail => "broken",
    }
}

fn as_json(diagnoses: &Diagnoses) -> Value {
    let rows = diagnoses.0.iter().map(|one| {
        json!({
            "part": one.part,
            "health": word(one.severity),
            "says": one.summary,
            "next": if one.advice.is_empty() { Value::Null } else { one.advice.as_str().into() },
        })
    });
    json!({ "result": word(diagnoses.severity()), "found": rows.collect::<Vec<_>>() })
}

fn as_text(diagnoses: &Diagnoses) -> String {
    let colours = std::io::stdout().is_terminal();
    let mut text = String::new();
    for Diagnosis { part, severity, summary, advice } in &diagnoses.0 {
        let plain = format!("{:6}", word(*severity));
        let colour = match severity {
            Severity::Pass => "32",
            Severity::Warn => "33",
            Severity::Fail => "31",
        };
        let shown = if colours { format!("\x1b[1;{colour}m{plain}\x1b[0m") } else { plain };
        text.push_str(&format!("{shown}  {part:8}  {summary}\n"));
        if !advice.is_empty() {
            text.push_str(&format!("                  -> {advice}\n"));
        }
    }
    text.push_str(match diagnoses.severity() {
        Severity::Pass => "\nNothing is wrong.\n",
        Severity::Warn => "\nIt works; some parts deserve attention.\n",
        Severity::Fail => "\nSomething does not work.\n",
    });
    text
}
