//! `promlet import`, `promlet verify-import` and `promlet export`.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;

use super::output::{print, remark_line};
use super::progress::{number, size};
use crate::clock::Stopwatch;
use crate::config::{ExportCommand, ImportCommand, Settings};
use crate::history::copy::{CopyPreview, CopyTotals, VerifyReport};
use crate::server::history::{self, HistoryProgress, ImportOutcome};

/// The interval between two updates of the line.
const PERIOD: Duration = Duration::from_millis(200);
/// The columns of the progress bar.
const BAR: u64 = 20;

/// Runs an import, its preview, or a comparison. The exit code is 1 if samples were left out or
/// series differ.
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
    let (text, is_fine) = match outcome.map_err(|error| anyhow!(error))? {
        ImportOutcome::Imported(totals) => (totals_text(&totals), totals.is_complete()),
        ImportOutcome::Previewed(preview) => (preview_text(&preview), true),
        ImportOutcome::Verified(report) => {
            (report_text(&report), report.different == 0 && report.problems.is_empty())
        }
    };
    print(text)?;
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
    remark_line(format_args!("exported {} to {}", parts.join(", "), command.out.display()));
    match done.left_out {
        Some(0) => {}
        Some(left_out) => remark_line(format_args!(
            "  {} native histograms were left out, which only blocks can have",
            number(left_out)
        )),
        None => {
            remark_line("  native histograms, if there are any, were left out, which only blocks can have");
        }
    }
    Ok(())
}

fn totals_text(totals: &CopyTotals) -> String {
    let mut text =
        format!("imported {} samples, {} refused\n", number(totals.stored), number(totals.refused));
    totals.reasons.iter().for_each(|reason| text.push_str(&format!("  {reason}\n")));
    text
}

fn preview_text(preview: &CopyPreview) -> String {
    let mut text = format!("{} series, {} samples\n", number(preview.series), number(preview.samples));
    if let Some(range) = preview.range {
        text.push_str(&format!("from {} to {}\n", range.start.to_rfc3339(), range.end.to_rfc3339()));
    }
    for (what, listed) in
        [("metrics with the most series", &preview.metrics), ("labels with the most values", &preview.labels)]
    {
        text.push_str(&format!("{what}:\n"));
        for (name, count) in listed {
            text.push_str(&format!("  {:>12}  {name}\n", number(*count)));
        }
    }
    text.push_str(&format!(
        "{} samples are stored already, {} have another value there\n",
        number(preview.known),
        number(preview.conflicts)
    ));
    for (labels, at_ms) in &preview.conflicts_listed {
        text.push_str(&format!("  {labels} at {at_ms} ms\n"));
    }
    text.push_str(&format!("{} samples cannot be read\n", number(preview.refused)));
    preview.reasons.iter().for_each(|reason| text.push_str(&format!("  {reason}\n")));
    text
}

fn report_text(report: &VerifyReport) -> String {
    let mut text = format!(
        "compared {} samples of {} parts of series: {} parts differ\n",
        number(report.samples),
        number(report.compared),
        number(report.different)
    );
    for (labels, here, there) in &report.listed {
        text.push_str(&format!(
            "  {labels}: source {} samples {:016x}, stored {} samples {:016x}\n",
            here.count, here.hash, there.count, there.hash
        ));
    }
    report.problems.iter().for_each(|problem| text.push_str(&format!("  {problem}\n")));
    text
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
