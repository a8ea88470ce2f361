//! The progress of a long task, on one line of a terminal; nothing is shown without a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::server::ShowProgress;
use crate::upkeep::UpkeepProgress;

/// The interval between two updates of the line.
const PERIOD: Duration = Duration::from_millis(100);

/// A progress line.
pub(super) struct Line {
    doing: &'static str,
    shown: Option<Stopwatch>,
    is_terminal: bool,
}

impl Line {
    pub(super) fn new(doing: &'static str) -> Line {
        Line { doing, shown: None, is_terminal: std::io::stderr().is_terminal() }
    }

    pub(super) fn show(&mut self, progress: UpkeepProgress) {
        if !self.is_terminal || self.shown.is_some_and(|shown| shown.elapsed() < PERIOD) {
            return;
        }
        self.shown = Some(Stopwatch::start());
        let UpkeepProgress { files, files_all, bytes, bytes_all } = progress;
        let (bytes, all) = (size(bytes), size(bytes_all));
        // A failure to show progress is harmless.
        let _ = write!(
            std::io::stderr(),
            "\r\x1b[K{} {files} of {files_all} files, {bytes} of {all}",
            self.doing
        );
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.shown.is_some() {
            // A failure to clear the line is harmless.
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// Returns a function that shows the progress of a start on a line of the terminal.
pub(super) fn start_line() -> Option<ShowProgress> {
    std::io::stderr().is_terminal().then(|| -> ShowProgress {
        Box::new(|text| {
            // A failure to show progress is harmless.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        })
    })
}

/// Formats a number of bytes with a unit.
pub(super) fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut scaled = bytes as f64;
    let mut unit = "bytes";
    for next in units {
        if scaled < 1_024.0 {
            break;
        }
        scaled /= 1_024.0;
        unit = next;
    }
    if unit == "bytes" { format!("{bytes} {unit}") } else { format!("{scaled:.1} {unit}") }
}

/// Formats a number in groups of three digits: `1 234 567`.
pub(super) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_numbers_are_formatted_for_people() {
        let sizes = [(0, "0 bytes"), (1_023, "1023 bytes"), (1_536, "1.5 KiB"), (3 << 30, "3.0 GiB")];
        for (bytes, text) in sizes {
            assert_eq!(size(bytes), text);
        }
        for (n, text) in [(0, "0"), (999, "999"), (1_000, "1 000"), (1_234_567, "1 234 567")] {
            assert_eq!(number(n), text);
        }
    }
}
