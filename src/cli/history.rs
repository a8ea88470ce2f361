//! `promlet import`, `promlet verify-import` and `promlet export`.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;

use super::progress::{number, size};
use crate::clock::Stopwatch;
use crate::config::{ExportCommand, ImportCommand, Settings};
use crate::history::copy::{CopyPreview, CopyTotals, VerifyReport};
use crate::server::history::{self, HistoryProgress, ImportOutcome};

/// The interval between two updates of the line.
const PERIOD: Duration = Duration::from_millis(200);
/// The columns of the progress bar.
const BAR: u64 = 20;

/// Runs an import, its preview, or a comparison. The exit code is 1 if series differ.
pub(super) fn import(
    settings: &Settings,
    command: &ImportCommand,
    verifies: bool,
) -> anyhow::Result<ExitCode> {
    let doing = match (verifies, command.dry_run) {
        (true, _) => "comparing",
        (false, true) => "reading",
        (false, false) => "importing",
    };
    let mut line = HistoryLine::new(doing);
    let outcome = history::import(settings, command, verifies, &mut |progress| line.show(progress));
    line.clear();
    match outcome.map_err(|error| anyhow!(error))? {
        ImportOutcome::Imported(totals) => {
            print_totals(&totals);
            Ok(ExitCode::SUCCESS)
        }
        ImportOutcome::Previewed(preview) => {
            print_preview(&preview);
            Ok(ExitCode::SUCCESS)
        }
        ImportOutcome::Verified(report) => {
            print_report(&report);
            let is_equal = report.different == 0 && report.problems.is_empty();
            Ok(if is_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

/// Runs an export.
pub(super) fn export(settings: &Settings, command: &ExportCommand) -> anyhow::Result<()> {
    let mut line = HistoryLine::new("exporting");
    let outcome = history::export(settings, command, &mut |progress| line.show(progress));
    line.clear();
    let done = outcome.map_err(|error| anyhow!(error))?;
    let mut parts = Vec::new();
    if done.samples > 0 || done.bytes == 0 {
        parts.push(format!("{} samples", number(done.samples)));
    }
    if done.blocks > 0 {
        parts.push(format!("{} blocks", number(done.blocks)));
    }
    if done.bytes > 0 {
        parts.push(size(done.bytes));
    }
    eprintln!("exported {} to {}", parts.join(", "), command.out.display());
    if done.left_out > 0 {
        eprintln!("  {} native histograms were left out, which only blocks can have", number(done.left_out));
    }
    Ok(())
}

fn print_totals(totals: &CopyTotals) {
    println!("imported {} samples, {} refused", number(totals.stored), number(totals.refused));
    for reason in &totals.reasons {
        println!("  {reason}");
    }
}

fn print_preview(preview: &CopyPreview) {
    println!("{} series, {} samples", number(preview.series), number(preview.samples));
    if let Some(range) = preview.range {
        println!("from {} to {}", range.start.to_rfc3339(), range.end.to_rfc3339());
    }
    for (what, listed) in
        [("metrics with the most series", &preview.metrics), ("labels with the most values", &preview.labels)]
    {
        println!("{what}:");
        for (name, count) in listed {
            println!("  {:>12}  {name}", number(*count));
        }
    }
    println!(
        "{} samples are stored already, {} have another value there",
        number(preview.known),
        number(preview.conflicts)
    );
    for (labels, at_ms) in &preview.conflicts_listed {
        println!("  {labels} at {at_ms} ms");
    }
    println!("{} samples cannot be read", number(preview.refused));
    for reason in &preview.reasons {
        println!("  {reason}");
    }
}

fn print_report(report: &VerifyReport) {
    println!(
        "compared {} samples of {} parts of series: {} parts differ",
        number(report.samples),
        number(report.compared),
        number(report.different)
    );
    for (labels, here, there) in &report.listed {
        println!(
            "  {labels}: source {} samples {:016x}, stored {} samples {:016x}",
            here.count, here.hash, there.count, there.hash
        );
    }
    for problem in &report.problems {
        println!("  {problem}");
    }
}

/// A progress bar with samples per second and the remaining time.
struct HistoryLine {
    doing: &'static str,
    since: Stopwatch,
    shown: Option<Stopwatch>,
    first: Option<HistoryProgress>,
    is_terminal: bool,
}

impl HistoryLine {
    fn new(doing: &'static str) -> HistoryLine {
        let is_terminal = std::io::stderr().is_terminal();
        HistoryLine { doing, since: Stopwatch::start(), shown: None, first: None, is_terminal }
    }

    /// Shows the progress. Always returns true: the work continues.
    fn show(&mut self, progress: HistoryProgress) -> bool {
        let first = *self.first.get_or_insert(progress);
        if self.is_terminal && self.shown.is_none_or(|shown| shown.elapsed() >= PERIOD) {
            self.shown = Some(Stopwatch::start());
            let text = bar(self.doing, first, progress, self.since.elapsed());
            // A failure to show progress is harmless.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        }
        true
    }

    fn clear(&mut self) {
        if self.shown.take().is_some() {
            // A failure to clear the line is harmless.
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// Formats the progress. `first` is the first one of this run, which may continue an earlier one.
fn bar(doing: &str, first: HistoryProgress, now: HistoryProgress, elapsed: Duration) -> String {
    let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let speed = now.samples.saturating_mul(1_000) / ms;
    let samples = format!("{} samples, {}/s", number(now.samples), number(speed));
    if now.all == 0 {
        let read = if now.samples == 0 { size(now.done) } else { samples };
        return format!("{doing} {read}");
    }
    let filled = now.done.min(now.all).saturating_mul(BAR) / now.all;
    let blocks: String = (0..BAR).map(|place| if place < filled { '#' } else { '.' }).collect();
    let percent = now.done.min(now.all).saturating_mul(100) / now.all;
    let done = now.done.saturating_sub(first.done);
    let left = now.all.saturating_sub(now.done);
    let remaining = left.saturating_mul(ms).checked_div(done).map_or(String::new(), |ms| {
        let seconds = ms / 1_000;
        format!(", {}:{:02}:{:02} left", seconds / 3_600, seconds / 60 % 60, seconds % 60)
    });
    format!("{doing} [{blocks}] {percent} %, {samples}{remaining}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_the_speed_and_the_remaining_time_of_this_run() {
        let at = |samples, done| HistoryProgress { samples, done, all: 1_000 };
        let text = bar("importing", at(0, 500), at(20_000, 600), Duration::from_secs(10));
        assert_eq!(text, "importing [############........] 60 %, 20 000 samples, 2 000/s, 0:00:40 left");
        let unknown = HistoryProgress { samples: 0, done: 2_048, all: 0 };
        assert_eq!(bar("exporting", unknown, unknown, Duration::from_secs(1)), "exporting 2.0 KiB");
    }
}
