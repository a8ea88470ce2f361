//! `promlet org move`: reads the files that it names, and shows the progress of the move until it
//! is complete. The server makes the move, so it continues if this program ends.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::accounts::{ResultView, confirm, perform};
use super::output::remark;
use super::progress::number;
use super::table::TableColumn;
use crate::config::{AccountCommand, MoveCommand, OrgCommand, SecretSetting, Settings};

/// The interval between two requests for the progress.
const PERIOD: Duration = Duration::from_millis(500);
/// The greatest size of a file with a secret or certificates in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

const STATE: &[TableColumn] = &[
    ("Organisation", "slug"),
    ("Step", "step"),
    ("Samples sent", "samples"),
    ("Known before", "known"),
    ("Refused", "refused"),
    ("Compared", "compared"),
    ("Different", "different"),
    ("Rounded there", "rounded"),
    ("Lost records", "lost_records"),
    ("Waits for", "waits_for"),
    ("Stopped by", "error"),
];
const PLAN: &[TableColumn] = &[
    ("Organisation", "slug"),
    ("Writes to", "write_url"),
    ("Reads from", "read_url"),
    ("Metrics", "metrics"),
    ("Series", "series"),
    ("Samples", "samples"),
    ("From", "from"),
    ("Bytes, about", "bytes"),
    ("Seconds, about", "seconds"),
    ("May not fit", "may_not_fit"),
];
const BEFORE_DROP: &[TableColumn] =
    &[("Organisation", "slug"), ("Samples here", "samples"), ("--back does not return", "not_returned")];
const ENDED: &[TableColumn] = &[("Organisation", "slug"), ("Step", "step")];

/// Returns the columns in which the response to a command is shown.
pub(super) fn view(command: &MoveCommand) -> ResultView {
    if command.dry_run {
        ResultView::rows(PLAN)
    } else if command.stop || command.drop_local {
        ResultView::rows(ENDED)
    } else {
        ResultView::rows(STATE)
    }
}

/// Reads the files that the command names, and asks for confirmation before samples are removed.
pub(super) fn complete(settings: &Settings, command: &mut MoveCommand) -> anyhow::Result<()> {
    if command.drop_local && !command.yes {
        let ask = AccountCommand::Org(OrgCommand::Move(Box::new(command.clone())));
        remark(format_args!("{}", ResultView::rows(BEFORE_DROP).text(&perform(settings, ask)?)));
        confirm(&command.slug, "removing the samples from this server", "these samples will be removed")?;
        command.yes = true;
    }
    let secret = command.password_file.as_deref().or(command.token_file.as_deref());
    if let Some(path) = secret {
        let text = read(path)?;
        command.secret = Some(SecretSetting::new(text.trim_end_matches(['\r', '\n']).to_owned()));
    }
    command.ca_pem = command.ca_file.as_deref().map(read).transpose()?;
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<String> {
    let context = || format!("cannot read {}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).with_context(context)?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).with_context(context)?;
    Ok(text)
}

/// Waits for the end of a move.
pub(super) struct Wait {
    slug: String,
}

impl Wait {
    /// Returns the wait for the move that a command starts; `None` if the command starts none, or
    /// is not to wait.
    pub(super) fn of(command: &MoveCommand) -> Option<Wait> {
        let starts = command.to.is_some() || command.back;
        (starts && !command.dry_run && !command.detach).then(|| Wait { slug: command.slug.clone() })
    }

    /// Shows the progress until the move is complete. Returns the last state of the move.
    ///
    /// # Errors
    /// The reason why the move stopped early.
    pub(super) fn until_complete(&self, settings: &Settings, mut state: Value) -> anyhow::Result<Value> {
        let is_terminal = std::io::stderr().is_terminal();
        while state.get("running").and_then(Value::as_bool) == Some(true) {
            if is_terminal {
                // A failure to show progress is harmless.
                let _ = write!(std::io::stderr(), "\r\x1b[K{}", line(&state));
            }
            std::thread::sleep(PERIOD);
            let status = MoveCommand { slug: self.slug.clone(), status: true, ..MoveCommand::default() };
            state = perform(settings, AccountCommand::Org(OrgCommand::Move(Box::new(status))))?;
        }
        if is_terminal {
            // A failure to clear the line is harmless.
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        match state.get("error").and_then(Value::as_str) {
            Some(reason) => bail!("the move stopped: {reason}"),
            None if state.get("complete").and_then(Value::as_bool) == Some(true) => Ok(state),
            None => bail!("the move stopped before its end; it continues with the same command"),
        }
    }
}

/// Formats the progress on one line.
fn line(state: &Value) -> String {
    let text = |name: &str| state.get(name).and_then(Value::as_str).unwrap_or_default();
    let count = |name: &str| number(state.get(name).and_then(Value::as_u64).unwrap_or_default());
    let position = match (text("at"), text("until")) {
        ("", _) | (_, "") => String::new(),
        (at, until) => format!(", at {at} of {until}"),
    };
    let waits = match text("waits_for") {
        "" => String::new(),
        reason => format!("; waits: {}", reason.chars().take(60).collect::<String>()),
    };
    format!(
        "moving {}: {} samples sent, {} series compared{position}{waits}",
        text("slug"),
        count("samples"),
        count("compared")
    )
}
