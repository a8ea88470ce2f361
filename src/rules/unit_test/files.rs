//! Reads files of unit tests and the rule files that they name.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::decode::UnitTestFile;
use super::glob::glob;
use super::run::{TestRules, run_test};
use super::{UNIT_TEST_FILE_BYTES_MAX, UNIT_TEST_RULE_FILES_MAX};
use crate::promql::syntax::Caps;
use crate::rules::RuleGroup;
use crate::rules::file::{RULE_FILE_BYTES_MAX, RuleFileOptions, decode_rule_file};

/// The result of a file of unit tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitTestReport {
    /// Patterns of rule files that match no file.
    pub warnings: Vec<String>,
    /// The differences from the expectations, in promtool's words. Empty: all tests succeeded.
    pub failures: Vec<String>,
}

/// Runs all tests of a file. Rule files are relative to its folder.
pub fn run_unit_test_file(path: &Path) -> UnitTestReport {
    let mut report = UnitTestReport::default();
    let caps = &Caps::default();
    match load(path, caps, &mut report.warnings) {
        Ok((file, groups)) => {
            let rules = TestRules {
                groups: &groups,
                evaluation_interval_ms: file.evaluation_interval_ms,
                fuzzy_compare: file.fuzzy_compare,
                caps,
            };
            report.failures.extend(file.tests.iter().flat_map(|test| run_test(test, rules)));
        }
        Err(failures) => report.failures = failures,
    }
    report
}

type Loaded = (UnitTestFile, Vec<Arc<RuleGroup>>);

fn load(path: &Path, caps: &Caps, warnings: &mut Vec<String>) -> Result<Loaded, Vec<String>> {
    let one = |message: String| vec![message];
    let text = read(path, UNIT_TEST_FILE_BYTES_MAX).map_err(one)?;
    let file = UnitTestFile::decode(&text).map_err(|error| one(located(path, &error)))?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let paths = rule_files(&file, folder, warnings).map_err(one)?;
    let mut failures = Vec::new();
    let mut groups: Vec<Arc<RuleGroup>> = Vec::new();
    for path in paths {
        let decoded = read(&path, RULE_FILE_BYTES_MAX).and_then(|text| {
            decode_rule_file(&text, RuleFileOptions::within(caps)).map_err(|error| located(&path, &error))
        });
        match decoded {
            Ok(decoded) => groups.extend(decoded.into_iter().map(Arc::new)),
            Err(message) => failures.push(message),
        }
    }
    if !failures.is_empty() {
        return Err(failures);
    }
    // Groups without a place come first, together with the first one that has a place.
    let place = |group: &Arc<RuleGroup>| file.group_eval_order.iter().position(|name| *name == group.name);
    groups.sort_by_key(|group| place(group).unwrap_or_default());
    Ok((file, groups))
}

fn located(path: &Path, error: &crate::yaml::YamlError) -> String {
    format!("{}: {error}", path.display())
}

/// Reads a file of at most `bytes_max` bytes.
fn read(path: &Path, bytes_max: usize) -> Result<String, String> {
    let shown = path.display();
    let metadata = std::fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
    if metadata.len() > u64::try_from(bytes_max).unwrap_or(u64::MAX) {
        return Err(format!("{shown}: {} bytes, more than the {bytes_max} allowed", metadata.len()));
    }
    std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))
}

/// Returns a path without `.`, and without `..` after the name of a folder.
fn cleaned(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        let named = matches!(out.components().next_back(), Some(Component::Normal(_)));
        match component {
            Component::CurDir => {}
            Component::ParentDir if named => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// Returns the rule files of all patterns.
fn rule_files(
    file: &UnitTestFile,
    folder: &Path,
    warnings: &mut Vec<String>,
) -> Result<Vec<PathBuf>, String> {
    let mut found: Vec<PathBuf> = Vec::new();
    for pattern in &file.rule_files {
        let pattern = cleaned(&folder.join(pattern));
        let matching = glob(&pattern)?;
        if matching.is_empty() {
            warnings.push(format!("no file match pattern {}", pattern.display()));
        }
        for path in matching {
            if !found.contains(&path) {
                found.push(path);
            }
        }
        if found.len() > UNIT_TEST_RULE_FILES_MAX {
            return Err(format!("more than {UNIT_TEST_RULE_FILES_MAX} rule files"));
        }
    }
    Ok(found)
}
