//! `promlet rules`: commands on files of rules.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use super::output::{print, print_line};
use crate::config::RulesCommand;
use crate::rules::{RuleFileOptions, group_text};
use crate::server::rules::{RuleFile, list_rule_files, read_rule_file, read_rule_files};

/// Runs a command. Returns the exit code: 1 for wrong or different files.
pub(super) fn run(command: &RulesCommand) -> anyhow::Result<ExitCode> {
    let is_fine = match command {
        RulesCommand::Check { files } => {
            let mut is_fine = true;
            for file in files {
                is_fine &= check(file)?;
            }
            is_fine
        }
        RulesCommand::Test(command) => super::rules_test::run(command)?,
        RulesCommand::Diff { before, after } => diff(before, after)?,
    };
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks a file, or each file of a folder, and prints the result as promtool does.
fn check(path: &Path) -> anyhow::Result<bool> {
    let options = RuleFileOptions::default();
    let files = match list_rule_files(path) {
        Ok(files) => files,
        Err(error) => {
            print_line(format_args!("  FAILED:\n{error}\n"))?;
            return Ok(false);
        }
    };
    let mut is_fine = true;
    for file in files {
        print_line(format_args!("Checking {}", file.display()))?;
        match read_rule_file(&file, options) {
            Ok(read) => print(report(&read))?,
            Err(error) => {
                print_line(format_args!("  FAILED:\n{error}\n"))?;
                is_fine = false;
            }
        }
    }
    Ok(is_fine)
}

fn report(file: &RuleFile) -> String {
    let rules: usize = file.groups.iter().map(|group| group.rules.len()).sum();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for rule in file.groups.iter().flat_map(|group| &group.rules) {
        *seen.entry(format!("{} {:?}", rule.name(), rule.labels)).or_default() += 1;
    }
    let duplicates: Vec<_> = seen.into_iter().filter(|(_, count)| *count > 1).collect();
    let mut text = String::new();
    if !duplicates.is_empty() {
        text.push_str(&format!("{} duplicate rule(s) found.\n", duplicates.len()));
        for (rule, _) in duplicates {
            text.push_str(&format!("{rule}\n"));
        }
        text.push_str("Might cause inconsistency while recording expressions\n");
    }
    text.push_str(&format!("  SUCCESS: {rules} rules found\n\n"));
    text
}

/// Prints the groups that differ. Returns true if none differ.
fn diff(before: &Path, after: &Path) -> anyhow::Result<bool> {
    let (before, after) = (groups(before)?, groups(after)?);
    let mut is_same = true;
    let names: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        if old == new {
            continue;
        }
        is_same = false;
        let sign = match (old, new) {
            (None, _) => '+',
            (_, None) => '-',
            _ => '~',
        };
        print_line(format_args!("{sign} {}", name.1))?;
        let lines = |text: Option<&String>| -> Vec<String> {
            text.iter().flat_map(|text| text.lines()).map(str::to_owned).collect()
        };
        let (old, new) = (lines(old), lines(new));
        for line in without(&old, &new) {
            print_line(format_args!("  - {line}"))?;
        }
        for line in without(&new, &old) {
            print_line(format_args!("  + {line}"))?;
        }
    }
    Ok(is_same)
}

/// Returns the lines of one text that the other does not have, or has less often.
fn without<'l>(lines: &'l [String], other: &'l [String]) -> Vec<&'l String> {
    let mut left: Vec<&String> = other.iter().collect();
    let is_new = |line: &&String| match left.iter().position(|known| known == line) {
        Some(place) => {
            left.swap_remove(place);
            false
        }
        None => true,
    };
    lines.iter().filter(is_new).collect()
}

/// Returns the groups of a file or folder as text, by file name and group name.
fn groups(path: &Path) -> anyhow::Result<BTreeMap<(String, String), String>> {
    let options = RuleFileOptions::default();
    let is_folder = path.is_dir();
    let mut all = BTreeMap::new();
    for file in read_rule_files(path, options).map_err(anyhow::Error::msg)? {
        let name = file.path.file_name().filter(|_| is_folder);
        let name = name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        for group in &file.groups {
            all.insert((name.clone(), group.name.clone()), group_text(group));
        }
    }
    Ok(all)
}
