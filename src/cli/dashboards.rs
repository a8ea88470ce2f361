//! `promlet dashboard`: files are read here, and each is one command to the server or the folder.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::accounts::perform;
use super::output::{print, remark_line};
use super::table::{TableColumn, table};
use crate::clock::Clock;
use crate::config::{AccountCommand, DashboardCommand, Settings};
use crate::identity::{DASHBOARD_BYTES_MAX, DashboardDocument, ProvisionedDashboard};
use crate::model::Timestamp;
use crate::server::dashboard_files::{DashboardFiles, FileProblem, read_dashboard};

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
                        remark_line(format_args!("promlet: {}: {error:#}", file.display()));
                    }
                }
            }
            let text = rendered(&rows, DASHBOARDS, json);
            match refused {
                0 => Ok(text),
                _ => {
                    print(text)?;
                    bail!("{refused} of {} files were not imported", files.len())
                }
            }
        }
        DashboardCommand::Check { files } => {
            let now = Clock::System.now();
            let rows: Vec<Value> = files.iter().flat_map(|file| checked(file, now)).collect();
            let text = rendered(&rows, CHECKED, json);
            let refused = rows.iter().filter(|row| row["result"] != "ok").count();
            if refused > 0 {
                print(text)?;
                bail!("this server cannot show {refused} of {} files", rows.len());
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

/// Judges a file, or all files of a folder, as a server with `--dashboards` does.
fn checked(path: &Path, now: Timestamp) -> Vec<Value> {
    if path.is_dir() {
        let mut files = match DashboardFiles::open(path) {
            Ok(files) => files,
            Err(error) => return vec![refused(path, &FileProblem::from(error))],
        };
        files.pass(now);
        let row = |(file, outcome): (PathBuf, Result<Arc<ProvisionedDashboard>, FileProblem>)| {
            let file = path.join(file);
            match outcome.and_then(|made| read_dashboard(made.text.as_bytes())) {
                Ok(document) => accepted(&file, &document),
                Err(problem) => refused(&file, &problem),
            }
        };
        return files.outcomes().into_iter().map(row).collect();
    }
    let read = File::open(path).map_err(FileProblem::from).and_then(read_dashboard);
    vec![match read {
        Ok(document) => accepted(path, &document),
        Err(problem) => refused(path, &problem),
    }]
}

fn refused(path: &Path, problem: &FileProblem) -> Value {
    json!({ "file": path.display().to_string(), "result": problem.to_string() })
}

fn accepted(path: &Path, document: &DashboardDocument) -> Value {
    json!({
        "file": path.display().to_string(),
        "result": "ok",
        "title": document.title(),
        "panels": document.panels(),
        "queries": document.queries(),
        "variables": document.variables(),
    })
}
