//! `promlet backup` and `promlet restore`.

use std::path::Path;

use anyhow::{Context as _, anyhow};

use super::output::{print, print_line};
use super::progress::{Line, number, size};
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::server::{AdminClient, AdminError, AdminRequest, OpenStore, Staged};
use crate::upkeep::{self, BackupReport, SegmentPaths};

/// Backs up the folder of the running server, or of a stopped one.
pub(super) fn run(dir: &Path, out: &Path, with_key: bool) -> anyhow::Result<()> {
    // Resolved here, because the server has its own working directory and does not learn either
    // path.
    let out = std::path::absolute(out).with_context(|| format!("cannot find {}", out.display()))?;
    if out.starts_with(std::path::absolute(dir).unwrap_or_default()) {
        return Err(anyhow!(
            "a backup inside the data folder would be lost with it: choose a folder elsewhere"
        ));
    }
    let (staged, report) = match AdminClient::connect(dir) {
        Ok(mut client) => {
            let staged: Staged = client.request(&AdminRequest::StageBackup { with_key })?;
            let copied = copy(&staged, &out, with_key);
            // The request is also sent after a failure, because the next backup is refused until
            // the server has removed the staged files.
            client.close();
            (staged, copied?)
        }
        Err(AdminError::NotRunning { .. }) => {
            let store = OpenStore::open(dir, Clock::System)
                .context("no server runs here, and the folder cannot be opened")?;
            let copied = store.with_stage(with_key, |staged| {
                Ok::<_, CopyError>((staged.clone(), copy(staged, &out, with_key).map_err(CopyError)?))
            });
            store.close().context("the folder was not closed cleanly; the next start checks everything")?;
            copied.map_err(|error| error.0)?
        }
        Err(error) => return Err(error.into()),
    };
    let mut text = format!(
        "backed up {} files, {}, to {}\n  everything acknowledged before {}: account changes to {}, log records to {}\n",
        number(report.files),
        size(report.bytes),
        out.display(),
        staged.made_at,
        staged.account_changes,
        staged.log_records
    );
    if !with_key {
        text.push_str(
            "  without master.key: keep a copy of it elsewhere (or --with-key); the backup is useless without it\n",
        );
    }
    print(text)
}

/// An error of a closure whose caller also returns errors as text.
struct CopyError(anyhow::Error);

impl From<String> for CopyError {
    fn from(message: String) -> CopyError {
        CopyError(anyhow!(message))
    }
}

fn copy(staged: &Staged, out: &Path, with_key: bool) -> anyhow::Result<BackupReport> {
    let mut line = Line::new("backing up");
    let had_files = has_files(out);
    let finished =
        upkeep::finish_backup(&staged.dir, out, &staged.facts(with_key), &mut |progress| line.show(progress));
    let report = finished.map_err(|error| match !had_files && has_files(out) {
        true => anyhow!(error).context("the backup was not finished; remove it and try again"),
        // This backup wrote no file; the folder may contain another backup.
        false => anyhow!(error),
    });
    drop(line);
    report
}

/// Returns whether a folder exists and has any entry.
fn has_files(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
}

/// Restores a data folder from a backup.
pub(super) fn restore(dir: &Path, from: &Path) -> anyhow::Result<()> {
    let mut line = Line::new("restoring");
    let report = upkeep::restore(dir, from, &mut |progress| line.show(progress))?;
    drop(line);
    let mut text = format!(
        "restored {} files, {}, of {} to {}\n",
        number(report.files),
        size(report.bytes),
        report.made_at,
        dir.display()
    );
    if !report.with_key {
        text.push_str(&format!(
            "  the backup has no master.key: put yours into {} before the first start\n",
            dir.display()
        ));
    }
    text.push_str(&format!(
        "  the first start builds the accounts from their export: promlet serve --data-dir {}\n",
        dir.display()
    ));
    print(text)
}

/// Restores one segment of a backup into a stopped folder.
pub(super) fn restore_one(dir: &Path, from: &Path, file: &Path, scratch: &Path) -> anyhow::Result<()> {
    let mut line = Line::new("restoring");
    let (now, mut rng) = (Clock::System.now(), Entropy::system());
    let paths = SegmentPaths { dir, backup: from, file };
    let done = upkeep::restore_one(paths, scratch, now, &mut rng, &mut |progress| line.show(progress))?;
    drop(line);
    let (file, dir) = (file.display(), dir.display());
    if done.was_whole {
        return print_line(format_args!("{file} is as it was backed up on {}: nothing to do", done.made_at));
    }
    let mut text = format!("restored {file}, {}, of {} to {dir}\n", size(done.bytes), done.made_at);
    if let Some(kept) = done.quarantined {
        text.push_str(&format!("  the replaced file is kept in {}\n", kept.display()));
    }
    print(text)
}
