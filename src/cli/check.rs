//! `promlet check` and `promlet repair`.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::output::{print, remark_line};
use super::progress::{Line, number};
use crate::config::MasterKeySetting;
use crate::entropy::Entropy;
use crate::identity::{USERS_TABLE, master_key_mark};
use crate::server;
use crate::upkeep::{self, CheckOptions, CheckReport, Finding, Weight};

/// Checks a folder or a backup.
pub(super) fn run(
    dir: &Path,
    deep: bool,
    json: bool,
    master_key: Option<&MasterKeySetting>,
    scratch: &Path,
) -> anyhow::Result<ExitCode> {
    let options = CheckOptions {
        deep,
        users_table: USERS_TABLE,
        master_key: server::master_key_source(master_key)?,
        key_mark: master_key_mark,
        scratch: scratch.to_owned(),
    };
    let mut line = Line::new("checking");
    let report = upkeep::check(dir, &options, &mut |progress| line.show(progress))?;
    drop(line);
    let text = if json { format!("{:#}\n", as_json(dir, &report)) } else { as_text(dir, deep, &report) };
    print(text)?;
    Ok(code(report.weight()))
}

/// Reports a folder that cannot be checked: a server runs on it, or could not start on it.
pub(super) fn cannot(error: &anyhow::Error) -> ExitCode {
    remark_line(format_args!("promlet: {error:#}"));
    code(Weight::Loss)
}

fn code(weight: Weight) -> ExitCode {
    ExitCode::from(match weight {
        Weight::Note => 0,
        Weight::Repairable => 1,
        Weight::Loss => 2,
    })
}

fn weight_name(weight: Weight) -> &'static str {
    match weight {
        Weight::Note => "note",
        Weight::Repairable => "repairable",
        Weight::Loss => "loss",
    }
}

fn as_json(dir: &Path, report: &CheckReport) -> Value {
    let findings = report.findings.iter().map(|finding| {
        json!({
            "weight": weight_name(finding.weight),
            "file": finding.file,
            "offset": finding.offset,
            "org": finding.org.map(|org| org.0),
            "range": finding.range.map(|(from, to)| [from.to_rfc3339(), to.to_rfc3339()]),
            "count": finding.count,
            "what": finding.what,
        })
    });
    json!({
        "dir": dir,
        "kind": if report.is_backup { "backup" } else { "data folder" },
        "store": report.store,
        "result": weight_name(report.weight()),
        "seen": report.seen.iter().map(|seen| json!({"part": seen.part, "what": seen.what})).collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
    })
}

fn as_text(dir: &Path, deep: bool, report: &CheckReport) -> String {
    let kind = if report.is_backup { "backup" } else { "data folder" };
    let mut text = format!("{} · {kind} of store {}\n", dir.display(), report.store);
    let width = report.seen.iter().map(|seen| seen.part.len()).max().unwrap_or_default();
    for seen in &report.seen {
        text.push_str(&format!("  {:width$}  {}\n", seen.part, seen.what));
    }
    let colours = std::io::stdout().is_terminal();
    for weight in [Weight::Loss, Weight::Repairable, Weight::Note] {
        let of_it: Vec<_> = report.findings.iter().filter(|finding| finding.weight == weight).collect();
        let (title, colour) = match weight {
            Weight::Loss => ("Lost", "31"),
            Weight::Repairable => ("Repaired by the next start, nothing acknowledged is lost", "33"),
            Weight::Note => ("Worth knowing", "36"),
        };
        if of_it.is_empty() {
            continue;
        }
        let title = if colours { format!("\x1b[1;{colour}m{title}\x1b[0m") } else { title.to_owned() };
        text.push_str(&format!("\n{title}\n"));
        of_it.iter().for_each(|finding| text.push_str(&describe(finding)));
    }
    text.push('\n');
    text.push_str(match report.weight() {
        Weight::Note if deep => "Everything is whole: every block and every checksum was read.\n",
        Weight::Note => "Everything that was checked is whole. --deep also reads every block of every segment.\n",
        Weight::Repairable => "Start the server: it repairs this by itself.\n",
        Weight::Loss if report.is_backup => "This backup is damaged: use another one.\n",
        Weight::Loss => {
            "Restore a backup (promlet restore), or save the undamaged data into a new folder: promlet repair DIR --to NEW\n"
        }
    });
    text
}

/// Describes a finding in at most two lines: its place and its nature.
fn describe(finding: &Finding) -> String {
    let mut location = finding.file.display().to_string();
    if let Some(offset) = finding.offset {
        location.push_str(&format!(", byte {}", number(offset)));
    }
    if let Some(org) = finding.org {
        location.push_str(&format!(", organisation {org}"));
    }
    if let Some((from, to)) = finding.range {
        location.push_str(&format!(", {} to {}", from.to_rfc3339(), to.to_rfc3339()));
    }
    if let Some(count) = finding.count {
        location.push_str(&format!(" ({})", number(count)));
    }
    format!("  {location}\n      {}\n", finding.what)
}

/// Saves the undamaged data of a damaged folder.
pub(super) fn repair(dir: &Path, to: &Path, scratch: &Path) -> anyhow::Result<()> {
    let mut line = Line::new("repairing");
    let report =
        upkeep::repair(dir, to, scratch, &mut Entropy::system(), &mut |progress| line.show(progress))?;
    drop(line);
    let mut text = format!("saved to {}\n", to.display());
    for seen in &report.saved {
        text.push_str(&format!("  {:9} {}\n", seen.part, seen.what));
    }
    if report.lost.is_empty() {
        text.push_str("nothing is lost\n");
    }
    for (title, is_loss) in [("Lost", true), ("Not copied", false)] {
        let mut of_it =
            report.lost.iter().filter(|finding| (finding.weight == Weight::Loss) == is_loss).peekable();
        if of_it.peek().is_some() {
            text.push_str(&format!("\n{title}\n"));
        }
        of_it.for_each(|finding| text.push_str(&describe(finding)));
    }
    text.push_str(&format!(
        "\nCheck it (promlet check --deep {0}), then serve it: promlet serve --data-dir {0}\n",
        to.display()
    ));
    print(text)
}
