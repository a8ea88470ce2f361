//! `promlet dashboard`: files are read here, and each is one command to the server or the folder.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::accounts::perform;
use super::table::{TableColumn, table};
use crate::config::{AccountCommand, DashboardCommand, Settings};
use crate::identity::{DASHBOARD_BYTES_MAX, DashboardDocument};

const DASHBOARDS: &[TableColumn] = &[
    ("UID", "uid"),
    ("TITLE", "title"),
    ("FOLDER", "folder"),
    ("TAGS", "tags"),
    ("VERSION", "version"),
    ("PANELS", "panels"),
    ("QUERIES", "queries"),
    ("UPDATED", "updated_at"),
];
const CHECKED: &[TableColumn] = &[
    ("FILE", "file"),
    ("RESULT", "result"),
    ("TITLE", "title"),
    ("PANELS", "panels"),
    ("QUERIES", "queries"),
    ("VARIABLES", "variables"),
];

/// Runs a command. Returns the text for standard output.
pub(super) fn run(settings: &Settings, command: DashboardCommand, json: bool) -> anyhow::Result<String> {
    let send = |command| perform(settings, AccountCommand::Dashboard(command));
    match command {
        DashboardCommand::Import { files, slug, folder, overwrite, .. } => {
            let (mut rows, mut refused) = (Vec::new(), 0);
            for file in &files {
                let import = || -> anyhow::Result<Value> {
                    let (slug, folder) = (slug.clone(), folder.clone());
                    let text = read(file)?;
                    send(DashboardCommand::Import { files: Vec::new(), slug, folder, overwrite, text })
                };
                match import() {
                    Ok(row) => rows.push(row),
                    Err(error) => {
                        refused += 1;
                        eprintln!("promlet: {}: {error:#}", file.display());
                    }
                }
            }
            let text = rendered(&rows, DASHBOARDS, json);
            match refused {
                0 => Ok(text),
                _ => {
                    print!("{text}");
                    bail!("{refused} of {} files were not imported", files.len())
                }
            }
        }
        DashboardCommand::Check { files } => {
            let rows: Vec<Value> = files.iter().map(|file| checked(file)).collect();
            let text = rendered(&rows, CHECKED, json);
            let refused = rows.iter().filter(|row| row["result"] != "ok").count();
            if refused > 0 {
                print!("{text}");
                bail!("{refused} of {} files are no dashboards of this server", files.len());
            }
            Ok(text)
        }
        list @ DashboardCommand::List { .. } => {
            let answer = send(list)?;
            Ok(rendered(answer["data"].as_array().map(Vec::as_slice).unwrap_or_default(), DASHBOARDS, json))
        }
        export @ DashboardCommand::Export { .. } => {
            let answer = send(export)?;
            Ok(answer["text"].as_str().unwrap_or_default().to_owned())
        }
    }
}

fn rendered(rows: &[Value], columns: &[TableColumn], json: bool) -> String {
    if json { format!("{:#}\n", json!({ "data": rows })) } else { table(rows, columns) }
}

/// Reads a file, at most a byte more than a dashboard may have.
fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let file = File::open(path).context("cannot be opened")?;
    file.take(DASHBOARD_BYTES_MAX as u64 + 1).read_to_string(&mut text).context("cannot be read")?;
    Ok(text)
}

fn checked(path: &Path) -> Value {
    let file = path.display().to_string();
    let parsed = read(path).and_then(|text| Ok(DashboardDocument::parse(text)?.pack()?));
    match parsed {
        Err(error) => json!({ "file": file, "result": format!("{error:#}") }),
        Ok(packed) => {
            let document = packed.document();
            json!({
                "file": file,
                "result": "ok",
                "title": document.title(),
                "panels": document.panels(),
                "queries": document.queries(),
                "variables": document.variables(),
            })
        }
    }
}
