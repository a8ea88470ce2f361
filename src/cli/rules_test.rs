//! `promlet rules test`: unit tests of rules, with the output of `promtool test rules`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;

use super::output::{print_line, remark_line};
use crate::clock::Clock;
use crate::config::RulesTestCommand;
use crate::model::{Pattern, Timestamp};
use crate::rules::unit_test::{UnitTestOptions, UnitTestReport, run_unit_test_file};

/// Runs files of unit tests. Returns whether all of them succeeded.
pub(super) fn run(command: &RulesTestCommand) -> anyhow::Result<bool> {
    let options = UnitTestOptions {
        names: names(&command.names)?,
        shows_difference: command.diff,
        dumps: command.debug,
    };
    let unwritable = |path: &Path| format!("cannot write {}", path.display());
    let mut junit = match &command.junit {
        Some(path) => Some((path, File::create(path).with_context(|| unwritable(path))?)),
        None => None,
    };
    let (mut is_fine, mut suites) = (true, String::new());
    for file in &command.files {
        let begun = Clock::System.now();
        let report = run_unit_test_file(file, &options);
        show(&report, command.debug)?;
        is_fine &= report.failures().is_empty();
        if junit.is_some() {
            write_suite(&mut suites, file, begun, &report);
        }
    }
    if let Some((path, file)) = &mut junit {
        let text = format!("<testsuites>{suites}</testsuites>");
        file.write_all(text.as_bytes()).with_context(|| unwritable(path))?;
    }
    Ok(is_fine)
}

/// Returns a pattern for names with a match of one of the regular expressions.
fn names(texts: &[String]) -> anyhow::Result<Option<Pattern>> {
    if texts.is_empty() {
        return Ok(None);
    }
    let joined = texts.join("|");
    Pattern::new(&joined).with_context(|| format!("--run {joined}"))?;
    let found_anywhere = format!("(?s:.*)(?:{joined})(?s:.*)");
    Ok(Some(Pattern::new(&found_anywhere).with_context(|| format!("--run {joined}"))?))
}

fn show(report: &UnitTestReport, debug: bool) -> anyhow::Result<()> {
    for warning in &report.warnings {
        remark_line(format_args!("  WARNING: {warning}"));
    }
    for test in report.tests.iter().filter(|_| debug) {
        print_line(format_args!("DEBUG: Starting test {}", test.name))?;
        if let Some(dump) = &test.dump {
            print_line(format_args!("DEBUG: {dump}"))?;
        }
        print_line(format_args!("DEBUG: Test {} finished, took {:?}", test.name, test.took))?;
    }
    let failures = report.failures();
    if failures.is_empty() {
        print_line("  SUCCESS")?;
    } else {
        remark_line("  FAILED:");
        for failure in failures {
            remark_line(format_args!("{failure}\n"));
        }
    }
    print_line("")
}

/// Adds the results of a file to a document in JUnit's format. An error of the file is the result
/// of a test of the name `unknown`.
fn write_suite(out: &mut String, file: &Path, begun: Timestamp, report: &UnitTestReport) {
    let failures: usize = report.tests.iter().map(|test| test.failures.len()).sum();
    let errors = report.errors.len();
    let tests = report.tests.len() + usize::from(errors > 0);
    let begun = begun.to_rfc3339();
    let _ = write!(
        out,
        "<testsuite name=\"{}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"0\" timestamp=\"{}\">",
        escaped(&file.to_string_lossy()),
        begun.get(..19).unwrap_or_default(),
    );
    let unknown = (errors > 0).then_some(("unknown", "error", &report.errors));
    let tests = report.tests.iter().map(|test| (test.name.as_str(), "failure", &test.failures));
    for (name, element, messages) in unknown.into_iter().chain(tests) {
        let _ = write!(out, "<testcase name=\"{}\">", escaped(name));
        for message in messages {
            let _ = write!(out, "<{element}>{}</{element}>", escaped(message));
        }
        out.push_str("</testcase>");
    }
    out.push_str("</testsuite>");
}

/// Escapes a text for XML. Characters that XML cannot have are replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '\t' => out.push_str("&#x9;"),
            '\n' => out.push_str("&#xA;"),
            '\r' => out.push_str("&#xD;"),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(character),
        }
    }
    out
}
