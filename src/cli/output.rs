//! Standard output and standard error of commands.

use std::fmt::Display;
use std::io::Write as _;

use anyhow::Context as _;

/// Prints the result of a command, or a part of it.
///
/// # Errors
/// Standard output is closed or cannot be written, for example because the reader of a pipe has
/// ended. The macros of the standard library panic in that case, so no command uses them.
pub(super) fn print(text: impl Display) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Prints a text and a line end.
///
/// # Errors
/// Those of [`print()`].
pub(super) fn print_line(text: impl Display) -> anyhow::Result<()> {
    print(format_args!("{text}\n"))
}

/// Prints a remark or an error to standard error. A failure is ignored, because there is no other
/// place to report it.
pub(super) fn remark(text: impl Display) {
    let _ = write!(std::io::stderr(), "{text}");
}

/// Prints a remark or an error and a line end.
pub(super) fn remark_line(text: impl Display) {
    remark(format_args!("{text}\n"));
}
