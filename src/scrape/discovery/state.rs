//! The state of one discovery: the time of its next refresh, its last groups, and its errors.

use std::collections::BTreeMap;

use super::settings::{DiscoveryConfig, TargetGroup};
use crate::model::Timestamp;

/// The most targets of a discovery, inclusive. A source that exceeds it has failed.
const DISCOVERED_MAX: usize = 100_000;
/// The time between two checks of files, in milliseconds. Only changed files are read.
const FILES_LOOK_MS: i64 = 5_000;
/// The longest time after which a refresh without an answer is repeated, in milliseconds.
const ANSWER_MS_MAX: i64 = 120_000;

/// The answer of a refresh for one source: a file, a name, or the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceAnswer {
    /// The groups of the source.
    Groups(Vec<TargetGroup>),
    /// The same as before.
    Unchanged,
    /// The source could not be read; its last groups are kept.
    Failed(String),
    /// The source does not exist; it has no groups.
    Missing(String),
}

/// The answers of a refresh by source. Sources that are absent have no groups any more.
///
/// An error means that no source could be read; all last groups are kept.
pub type RefreshAnswer = Result<Vec<(String, SourceAnswer)>, String>;

#[derive(Debug, Default)]
struct SourceGroups {
    groups: Vec<TargetGroup>,
    error: Option<String>,
}

/// The state of a discovery, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryStatus {
    /// The kind and the source, without secrets: `file_sd_configs: targets/*.json`.
    pub title: String,
    /// The number of discovered targets.
    pub targets: usize,
    /// The time of the last refresh without an error.
    pub refreshed: Option<Timestamp>,
    /// The error of the last refresh. The last groups are in use.
    pub error: Option<String>,
    /// The number of refreshes with an error.
    pub failures: u64,
}

/// The state of one discovery. The caller makes the requests.
#[derive(Debug)]
pub struct DiscoveryState {
    config: DiscoveryConfig,
    sources: BTreeMap<String, SourceGroups>,
    /// When the next refresh is due; `None` if it never is.
    next: Option<Timestamp>,
    /// When a refresh without an answer is given up.
    waits_until: Option<Timestamp>,
    refreshed: Option<Timestamp>,
    error: Option<String>,
    failures: u64,
}

impl DiscoveryState {
    /// Returns the state before the first refresh, which is due at `now`.
    pub fn new(config: DiscoveryConfig, now: Timestamp) -> DiscoveryState {
        let mut state = DiscoveryState {
            next: Some(now),
            config,
            sources: BTreeMap::new(),
            waits_until: None,
            refreshed: None,
            error: None,
            failures: 0,
        };
        if let DiscoveryConfig::Static(fixed) = &state.config {
            let groups = SourceGroups { groups: fixed.groups.clone(), error: None };
            state.sources.insert(String::new(), groups);
            (state.next, state.refreshed) = (None, Some(now));
        }
        state
    }

    /// Returns the configuration.
    pub fn config(&self) -> &DiscoveryConfig {
        &self.config
    }

    /// Returns the time of the next refresh. `None` if there is none.
    pub fn due(&self) -> Option<Timestamp> {
        self.waits_until.or(self.next)
    }

    /// Records the start of a refresh.
    pub fn started(&mut self, now: Timestamp) {
        self.waits_until = Some(now.plus_ms(ANSWER_MS_MAX));
    }

    /// Applies the answer of a refresh, and returns whether the groups changed.
    pub fn answered(&mut self, now: Timestamp, answer: RefreshAnswer) -> bool {
        self.waits_until = None;
        self.next = Some(now.plus_ms(self.interval_ms()));
        let answers = match answer {
            Ok(answers) => answers,
            Err(error) => {
                self.error = Some(error);
                self.failures += 1;
                return false;
            }
        };
        self.error = None;
        let mut before = std::mem::take(&mut self.sources);
        let mut is_changed = false;
        let mut room = DISCOVERED_MAX;
        for (source, answer) in answers {
            let known = before.remove(&source);
            let is_new = known.is_none();
            let mut groups = known.unwrap_or_default();
            is_changed |= groups.apply(answer, room) || (is_new && !groups.groups.is_empty());
            room = room.saturating_sub(groups.targets());
            self.sources.insert(source, groups);
        }
        is_changed |= before.values().any(|gone| gone.targets() > 0);
        if self.sources.values().any(|source| source.error.is_some()) {
            self.failures += 1;
        } else {
            self.refreshed = Some(now);
        }
        is_changed
    }

    /// Returns whether a refresh has succeeded or failed.
    pub fn has_answered(&self) -> bool {
        self.refreshed.is_some() || self.failures > 0
    }

    /// Returns the time between two refreshes in milliseconds.
    fn interval_ms(&self) -> i64 {
        match &self.config {
            DiscoveryConfig::Static(_) => i64::MAX,
            DiscoveryConfig::File(files) => files.refresh_interval_ms.min(FILES_LOOK_MS),
            DiscoveryConfig::Http(http) => http.refresh_interval_ms,
            DiscoveryConfig::Dns(dns) => dns.refresh_interval_ms,
        }
    }

    /// Iterates over all groups.
    pub fn groups(&self) -> impl Iterator<Item = &TargetGroup> {
        self.sources.values().flat_map(|source| &source.groups)
    }

    /// Returns the state for display.
    pub fn status(&self) -> DiscoveryStatus {
        let of_sources = self.sources.values().find_map(|source| source.error.clone());
        DiscoveryStatus {
            title: self.config.title(),
            targets: self.sources.values().map(SourceGroups::targets).sum(),
            refreshed: self.refreshed,
            error: self.error.clone().or(of_sources),
            failures: self.failures,
        }
    }
}

impl SourceGroups {
    fn targets(&self) -> usize {
        self.groups.iter().map(|group| group.targets.len()).sum()
    }

    /// Applies an answer, and returns whether the groups changed.
    fn apply(&mut self, answer: SourceAnswer, room: usize) -> bool {
        match answer {
            SourceAnswer::Unchanged => false,
            SourceAnswer::Failed(error) => {
                self.error = Some(error);
                false
            }
            SourceAnswer::Missing(error) => {
                self.error = Some(error);
                !std::mem::take(&mut self.groups).is_empty()
            }
            SourceAnswer::Groups(groups) => {
                let count: usize = groups.iter().map(|group| group.targets.len()).sum();
                if count > room {
                    self.error = Some(format!("more than {DISCOVERED_MAX} targets"));
                    return false;
                }
                self.error = None;
                let is_changed = self.groups != groups;
                self.groups = groups;
                is_changed
            }
        }
    }
}

impl DiscoveryConfig {
    /// Returns the kind and the source, without secrets.
    pub fn title(&self) -> String {
        match self {
            DiscoveryConfig::Static(fixed) => format!("static_configs: {} groups", fixed.groups.len()),
            DiscoveryConfig::File(files) => {
                let names = files.files.iter().map(|path| path.display().to_string());
                format!("file_sd_configs: {}", listed(names))
            }
            // A query may contain a token.
            DiscoveryConfig::Http(http) => {
                let shown = http.url.split_once('?').map_or(http.url.as_str(), |(base, _)| base);
                format!("http_sd_configs: {shown}")
            }
            DiscoveryConfig::Dns(dns) => format!("dns_sd_configs: {}", listed(dns.names.iter().cloned())),
        }
    }
}

/// Returns the first three names, and the number of the others.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 3;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names.take(SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::super::settings::{FileDiscovery, StaticDiscovery};
    use super::*;
    use crate::model::Labels;

    fn group(target: &str) -> TargetGroup {
        TargetGroup { targets: vec![target.to_owned()], labels: Labels::default() }
    }

    fn files() -> DiscoveryState {
        let config = FileDiscovery { files: vec!["a.json".into()], refresh_interval_ms: 60_000 };
        DiscoveryState::new(DiscoveryConfig::File(config), Timestamp::from_ms(0))
    }

    fn found(state: &DiscoveryState) -> Vec<&str> {
        state.groups().flat_map(|group| &group.targets).map(String::as_str).collect()
    }

    fn groups(source: &str, target: &str) -> (String, SourceAnswer) {
        (source.to_owned(), SourceAnswer::Groups(vec![group(target)]))
    }

    #[test]
    fn fixed_groups_are_never_refreshed() {
        let fixed = StaticDiscovery { groups: vec![group("a")] };
        let state = DiscoveryState::new(DiscoveryConfig::Static(fixed), Timestamp::from_ms(5));
        assert_eq!((state.due(), found(&state)), (None, vec!["a"]));
    }

    #[test]
    fn a_failed_refresh_keeps_the_last_groups_and_reports_the_error() {
        let mut state = files();
        assert_eq!(state.due(), Some(Timestamp::from_ms(0)));
        assert!(state.answered(Timestamp::from_ms(1), Ok(vec![groups("a", "x"), groups("b", "y")])));
        assert_eq!(found(&state), ["x", "y"]);
        assert!(!state.answered(Timestamp::from_ms(2), Err("unreadable".to_owned())));
        assert_eq!(found(&state), ["x", "y"]);
        assert_eq!(state.status().error.as_deref(), Some("unreadable"));
        let failed = ("a".to_owned(), SourceAnswer::Failed("wrong".to_owned()));
        assert!(state.answered(Timestamp::from_ms(3), Ok(vec![failed, groups("b", "z")])));
        assert_eq!(found(&state), ["x", "z"]);
        let status = state.status();
        assert_eq!((status.error.as_deref(), status.failures, status.targets), (Some("wrong"), 2, 2));
        assert_eq!(status.refreshed, Some(Timestamp::from_ms(1)));
    }

    #[test]
    fn sources_that_disappear_lose_their_groups() {
        let mut state = files();
        state.answered(Timestamp::from_ms(1), Ok(vec![groups("a", "x"), groups("b", "y")]));
        let unchanged = ("a".to_owned(), SourceAnswer::Unchanged);
        assert!(state.answered(Timestamp::from_ms(2), Ok(vec![unchanged.clone()])));
        assert_eq!(found(&state), ["x"]);
        assert!(!state.answered(Timestamp::from_ms(3), Ok(vec![unchanged])));
        let missing = ("a".to_owned(), SourceAnswer::Missing("gone".to_owned()));
        assert!(state.answered(Timestamp::from_ms(4), Ok(vec![missing])));
        assert!(found(&state).is_empty());
        assert_eq!(state.status().error.as_deref(), Some("gone"));
    }

    #[test]
    fn a_refresh_without_an_answer_is_repeated() {
        let mut state = files();
        state.started(Timestamp::from_ms(0));
        assert_eq!(state.due(), Some(Timestamp::from_ms(ANSWER_MS_MAX)));
        state.answered(Timestamp::from_ms(10), Ok(vec![]));
        assert_eq!(state.due(), Some(Timestamp::from_ms(10 + FILES_LOOK_MS)));
    }

    #[test]
    fn a_source_beyond_the_limit_has_failed() {
        let mut state = files();
        let many = TargetGroup { targets: vec!["a".to_owned(); DISCOVERED_MAX], labels: Labels::default() };
        let many = ("a".to_owned(), SourceAnswer::Groups(vec![many]));
        state.answered(Timestamp::from_ms(1), Ok(vec![many, groups("b", "y")]));
        assert_eq!(state.status().targets, DISCOVERED_MAX);
        assert!(state.status().error.is_some_and(|error| error.contains("more than 100000 targets")));
    }
}
