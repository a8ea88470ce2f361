//! Imports and exports of the command line, into and out of a stopped folder or a running server.

mod export;
mod folder;
mod import;
mod remote;
mod source;

use std::path::Path;

pub use export::{ExportOutcome, export};
pub use import::{ImportOutcome, import};

use crate::config::HistorySelection;
use crate::history::copy::CopyFilter;
use crate::model::{TimeRange, Timestamp};
use crate::promql::syntax::{Caps, parse_selector};
use crate::relabel::{RelabelRule, RelabelRules};
use crate::yaml;

/// The greatest size of a file with a secret, rules or certificates in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The progress of an import, an export or a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryProgress {
    /// Number of samples read in this run.
    pub samples: u64,
    /// The part that has been read, in a unit of the source.
    pub done: u64,
    /// The whole source in the same unit; 0 if it is unknown.
    pub all: u64,
}

/// Receives the progress, and returns whether the work may continue.
pub type ObserveHistory<'o> = &'o mut dyn FnMut(HistoryProgress) -> bool;

fn read_file(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX.saturating_add(1)).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{} has more than {FILE_BYTES_MAX} bytes", path.display()));
    }
    Ok(text)
}

fn read_secret(path: &Path) -> Result<String, String> {
    Ok(read_file(path)?.trim_end_matches(['\r', '\n']).to_owned())
}

/// Returns the times of a selection, both ends inclusive.
fn range_of(selection: &HistorySelection) -> TimeRange {
    TimeRange::new(selection.from.unwrap_or(Timestamp::MIN), selection.to.unwrap_or(Timestamp::MAX))
}

/// Returns the filter of a selection and of a file of rules.
fn filter_of(selection: &HistorySelection, rules: Option<&Path>) -> Result<CopyFilter, String> {
    let caps = Caps::default();
    let mut selectors = Vec::new();
    for text in &selection.selectors {
        let matchers = parse_selector(text, &caps).map_err(|error| format!("--match {text}: {error}"))?;
        selectors.push(matchers);
    }
    let rules = match rules {
        None => RelabelRules::default(),
        Some(path) => {
            let wrong = |error: String| format!("{}: {error}", path.display());
            let most = usize::try_from(FILE_BYTES_MAX).unwrap_or(usize::MAX);
            let rules: Vec<RelabelRule> =
                yaml::decode(&read_file(path)?, most).map_err(|error| wrong(error.to_string()))?;
            RelabelRules::parse(&rules).map_err(|error| wrong(error.to_string()))?
        }
    };
    Ok(CopyFilter { selectors, range: range_of(selection), rules })
}

/// Returns the outcome of a command after its folder was closed, with both reasons if both failed.
fn with_closing<T>(outcome: Result<T, String>, closed: Result<(), String>) -> Result<T, String> {
    match (outcome, closed) {
        (Ok(outcome), closed) => closed.map(|()| outcome),
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(other)) => Err(format!("{error}; {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_closed_hides_no_other_failure() {
        let closed = || Err("not closed".to_owned());
        assert_eq!(with_closing(Ok(1), Ok(())), Ok(1));
        assert_eq!(with_closing(Ok(1), closed()), Err("not closed".to_owned()));
        assert_eq!(with_closing::<u8>(Err("no space".to_owned()), Ok(())), Err("no space".to_owned()));
        let both = with_closing::<u8>(Err("no space".to_owned()), closed());
        assert_eq!(both, Err("no space; not closed".to_owned()));
    }
}
