//! Rules of the operator's files (`--rules`), and the engine that evaluates all rules.
//!
//! The files are read at the start and on SIGHUP. They are used together or not at all: a file with
//! a mistake leaves the rules as they were.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::operator_org::operator_org;
use super::{Server, ServerError};
use crate::api::orgs::rules::replaced::{REPLACED_MS_MAX, end_replaced, without_rules_of};
use crate::api::orgs::rules::{forget_deleted, reconcile};
use crate::clock::Clock;
use crate::config::Settings;
use crate::identity::{FileRuleGroup, Identity, RemovedFileGroup};
use crate::model::{AlertSink, OrgId, Timestamp};
use crate::promql::MemoryPool;
use crate::rules::{
    MissedPolicy, RULE_FILE_BYTES_MAX, RULE_GROUPS_MAX, RULES_MAX, RuleEngine, RuleEngineParts,
    RuleFileOptions, RuleGroup, RuleGroupKey, RuleSettings, RuleSource, decode_rule_file, decode_rule_group,
    group_text,
};
use crate::tsdb::Tsdb;

/// The most files of a folder, inclusive.
const FILES_MAX: usize = 1_000;
/// How often firing alerts are sent again, in milliseconds.
const RESEND_DELAY_MS: i64 = 60_000;
/// The part of the memory of queries that rules may use in addition.
const MEMORY_PART: u64 = 4;

/// The groups of one file.
#[derive(Debug)]
pub(crate) struct RuleFile {
    pub(crate) path: PathBuf,
    pub(crate) groups: Vec<RuleGroup>,
}

/// Lists the rule files of a path: the file itself, or the YAML files of a folder in the order of
/// their names.
///
/// # Errors
/// A sentence.
pub(crate) fn list_rule_files(path: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let is_yaml = file.extension().is_some_and(|end| end == "yml" || end == "yaml");
        if is_yaml && file.is_file() {
            files.push(file);
        }
        if files.len() > FILES_MAX {
            return Err(format!("{} has more than {FILES_MAX} rule files", path.display()));
        }
    }
    files.sort();
    Ok(files)
}

/// Reads one rule file.
///
/// # Errors
/// A sentence with the path, and the position if the text is wrong.
pub(crate) fn read_rule_file(path: &Path, options: RuleFileOptions<'_>) -> Result<RuleFile, String> {
    let located = |what: String| format!("{}: {what}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| located(error.to_string()))?;
    let most = u64::try_from(RULE_FILE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut bytes).map_err(|error| located(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| located("is not UTF-8".to_owned()))?;
    let groups = decode_rule_file(&text, options).map_err(|error| located(error.to_string()))?;
    Ok(RuleFile { path: path.to_owned(), groups })
}

/// Reads all rule files of a path.
///
/// # Errors
/// The first error, as a sentence.
pub(crate) fn read_rule_files(path: &Path, options: RuleFileOptions<'_>) -> Result<Vec<RuleFile>, String> {
    let files = list_rule_files(path)?;
    let files = files.iter().map(|file| read_rule_file(file, options));
    let files: Vec<RuleFile> = files.collect::<Result<_, _>>()?;
    let groups: usize = files.iter().map(|file| file.groups.len()).sum();
    let rules: usize = files.iter().flat_map(|file| &file.groups).map(|group| group.rules.len()).sum();
    if groups > RULE_GROUPS_MAX || rules > RULES_MAX {
        return Err(format!(
            "{} has {groups} groups with {rules} rules; at most {RULE_GROUPS_MAX} groups with {RULES_MAX} rules are allowed",
            path.display()
        ));
    }
    Ok(files)
}

/// Returns the settings of evaluations.
pub(super) fn rule_settings(
    settings: &Settings,
    read: &crate::api::orgs::query::ReadOptions,
    public_url: &str,
) -> RuleSettings {
    RuleSettings {
        external_labels: Arc::clone(&settings.external_labels),
        external_url: Arc::from(public_url),
        options: read.promql.clone(),
        caps: read.caps,
        memory: Some(MemoryPool::new(read.memory_bytes_max / MEMORY_PART)),
        ..RuleSettings::default()
    }
}

/// Creates the engine. Its threads are started when the server handles requests.
pub(super) fn engine(
    settings: &Settings,
    parts: (Arc<Tsdb>, Clock, Option<Arc<dyn AlertSink>>),
    read: &crate::api::orgs::query::ReadOptions,
    public_url: &str,
) -> Arc<RuleEngine> {
    let (tsdb, clock, sink) = parts;
    let missed = match settings.rules_catch_up {
        time if time.is_zero() => MissedPolicy::Skip,
        time => MissedPolicy::CatchUp { ms_max: i64::try_from(time.as_millis()).unwrap_or(i64::MAX) },
    };
    RuleEngine::new(RuleEngineParts {
        tsdb,
        sink,
        settings: rule_settings(settings, read, public_url),
        clock,
        missed,
        resend_delay_ms: RESEND_DELAY_MS,
    })
}

/// Returns the number of threads that evaluate rules: half of the cores, at least one.
pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

/// The groups of the files as they were loaded.
#[derive(Debug)]
struct LoadedGroups {
    groups: Vec<FileRuleGroup>,
    /// A time after which no evaluation of an older group begins.
    at: Timestamp,
    /// Whether a failure to store them has been reported.
    is_reported: bool,
}

/// The rules of the operator's files.
#[derive(Debug)]
pub(super) struct RuleFiles {
    /// `None`: there are no files.
    path: Option<PathBuf>,
    /// The slug of the organisation; the first organisation if it is missing.
    org: Option<String>,
    loaded: Vec<RuleSource>,
    /// The groups that were loaded, until the accounts have stored them.
    unstored: Option<LoadedGroups>,
    /// Whether the ends of the groups before the start, or before a promotion, are planned.
    are_ends_planned: bool,
    /// The reason why the rules are not evaluated yet, which has been reported.
    waits_for: Option<String>,
}

impl RuleFiles {
    pub(super) fn of(settings: &Settings) -> RuleFiles {
        RuleFiles {
            path: settings.rules.clone(),
            org: settings.rules_org.clone(),
            loaded: Vec::new(),
            unstored: None,
            are_ends_planned: false,
            waits_for: None,
        }
    }

    /// Loads the files if `is_due` is set, and clears it. It stays set while there is no
    /// organisation. Groups that could not be stored are stored later.
    fn follow(&mut self, identity: &Identity, engine: &RuleEngine, is_due: &AtomicBool, clock: &Clock) {
        if is_due.load(Ordering::SeqCst) {
            self.load_due(identity, engine, is_due, clock);
        }
        self.store(identity, engine);
    }

    fn load_due(&mut self, identity: &Identity, engine: &RuleEngine, is_due: &AtomicBool, clock: &Clock) {
        let Some(path) = self.path.clone() else {
            is_due.store(false, Ordering::SeqCst);
            return self.remember(Vec::new(), clock.now());
        };
        let org = match operator_org(identity, self.org.as_deref(), "--rules-org") {
            Ok(org) => org,
            Err(why) if self.waits_for.as_ref() == Some(&why) => return,
            Err(why) => {
                tracing::warn!("the rules of {} are not evaluated yet: {why}", path.display());
                return self.waits_for = Some(why);
            }
        };
        self.waits_for = None;
        is_due.store(false, Ordering::SeqCst);
        match self.load(&path, org, engine) {
            Ok(groups) => {
                tracing::info!(groups = groups.len(), "the rules of {} are loaded", path.display());
                self.remember(groups, clock.now());
            }
            Err(error) => tracing::error!("rules: {error}; the rules stay as they were"),
        }
    }

    fn remember(&mut self, groups: Vec<FileRuleGroup>, at: Timestamp) {
        self.unstored = Some(LoadedGroups { groups, at, is_reported: false });
    }

    /// Reads the files and replaces the rules.
    ///
    /// # Errors
    /// A sentence; then the rules stay as they were.
    fn load(&mut self, path: &Path, org: OrgId, engine: &RuleEngine) -> Result<Vec<FileRuleGroup>, String> {
        let options = RuleFileOptions::within(&engine.settings().caps);
        let files = read_rule_files(path, options)?;
        let _changing = engine.changes();
        let (mut loaded, mut groups) = (Vec::new(), Vec::new());
        for file in files {
            let path = file.path.to_string_lossy().into_owned();
            let source = RuleSource::File(Arc::from(path.as_str()));
            groups.extend(file.groups.iter().map(|group| FileRuleGroup {
                org,
                path: path.clone(),
                name: group.name.clone(),
                yaml: group_text(group),
            }));
            engine.set_groups(org, &source, file.groups);
            loaded.push(source);
        }
        for gone in self.loaded.iter().filter(|source| !loaded.contains(source)) {
            engine.set_groups(org, gone, Vec::new());
        }
        self.loaded = loaded;
        Ok(groups)
    }

    /// Stores which groups are loaded, if that is not stored yet. After a start, plans the ends of
    /// the series of those that were removed or changed shortly before it, or while the server was
    /// stopped.
    fn store(&mut self, identity: &Identity, engine: &RuleEngine) {
        let Some(loaded) = &mut self.unstored else { return };
        let LoadedGroups { groups, at, is_reported } = loaded;
        let since = at.plus_ms(-REPLACED_MS_MAX);
        let mut stored = Ok(());
        if !self.are_ends_planned {
            // The engine itself ends the series of rules that are removed later.
            match identity.removed_file_rule_groups(groups, since, *at) {
                Ok(removed) => {
                    end_removed(removed, groups, engine);
                    self.are_ends_planned = true;
                }
                Err(error) => stored = Err(error),
            }
        }
        // If the ends are unknown, the rows must stay as they are.
        match stored.and_then(|()| identity.set_file_rule_groups(groups, since, *at)) {
            Ok(()) => self.unstored = None,
            Err(error) if !std::mem::replace(is_reported, true) => {
                tracing::warn!("the groups of rule files cannot be stored yet: {error}");
            }
            Err(_) => {}
        }
    }

    /// Forgets what was loaded, because another process evaluates the rules.
    fn forget(&mut self) {
        (self.unstored, self.are_ends_planned) = (None, false);
    }
}

/// Ends the series of groups that were removed, except for those of rules that a newer version of
/// the group has as well.
fn end_removed(removed: Vec<RemovedFileGroup>, loaded: &[FileRuleGroup], engine: &RuleEngine) {
    for (number, RemovedFileGroup { group, removed_at }) in (0..).zip(removed) {
        let read =
            |yaml: &str| decode_rule_group(yaml, RuleFileOptions::within(&engine.settings().caps)).ok();
        let FileRuleGroup { org, path, name, yaml } = group;
        let is_newer = |newer: &&FileRuleGroup| (newer.org, &newer.path, &newer.name) == (org, &path, &name);
        let newer = loaded.iter().find(is_newer).and_then(|newer| read(&newer.yaml));
        let ended = read(&yaml).and_then(|before| without_rules_of(before, newer.as_ref()));
        if let Some(ended) = ended {
            let key = RuleGroupKey::of_replaced(org, &path, &name, number);
            engine.end_replaced(&key, ended, removed_at);
        }
    }
}

/// How often deleted organisations, a promotion and SIGHUP are looked for.
const RULES_PERIOD: Duration = Duration::from_secs(2);
/// The number of these periods after which stored groups are compared with those of the engine.
const ROUNDS_A_RECONCILIATION: u64 = 30;

impl Server {
    /// Gives the rules of files and of organisations to the engine, and starts its threads.
    pub(super) fn start_rules(&mut self, engine: &Arc<RuleEngine>) -> Result<(), ServerError> {
        let mut files = RuleFiles::of(&self.settings);
        let is_due = Arc::new(AtomicBool::new(true));
        if files.path.is_some() {
            let is_due = Arc::clone(&is_due);
            self.listener.on_hang_up(move || is_due.store(true, Ordering::SeqCst));
        }
        let identity = Arc::clone(&self.identity);
        let (rules, clock) = (Arc::clone(engine), self.clock.clone());
        let (mut rounds, mut are_ends_planned) = (0_u64, false);
        let mut tick = move || {
            if identity.is_replica() {
                // Another process evaluates. After a promotion everything is loaded.
                rules.keys().iter().for_each(|key| rules.forget_group(key));
                (rounds, are_ends_planned) = (0, false);
                files.forget();
                return is_due.store(true, Ordering::SeqCst);
            }
            files.follow(&identity, &rules, &is_due, &clock);
            forget_deleted(&identity, &rules);
            if rounds.is_multiple_of(ROUNDS_A_RECONCILIATION) {
                reconcile(&identity, &rules);
            }
            if !are_ends_planned {
                are_ends_planned = end_replaced(&identity, &rules, clock.now());
            }
            rounds += 1;
        };
        tick();
        self.start_task("rules", RULES_PERIOD, move |_| tick())?;
        engine.start(threads()).map_err(ServerError::Thread)
    }
}
