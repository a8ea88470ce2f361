//! The configuration of an organisation's notifications: a JSON document whose fields have the
//! names of Alertmanager's configuration file.

mod intervals;
mod reader;
mod receiver;
mod route;
mod secrets;
mod target;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

pub use reader::FieldProblem;
pub use receiver::{IntegrationKind, NotifyIntegration, NotifyReceiver};
pub use route::{GroupBy, NotifyRoute, RouteTimes};

use super::alertmanager::discovery::is_file_name;
use super::labels::AlertLabels;
use super::limits::{ALERTMANAGERS_MAX, DOCUMENT_BYTES_MAX, INHIBIT_RULES_MAX, MATCHERS_MEMORY_MAX};
use super::matcher::AlertMatchers;
use crate::entropy::Entropy;
use crate::model::{Target, TargetUrl};
use reader::{Element, Problems, Section};
use receiver::{ReadReceivers, read_id};
use route::{RouteReader, read_matchers};
use secrets::{ALERTMANAGER_LIST, assign_ids, drop_notes, hide_secrets, keep_secrets};
use target::{TARGET_FIELDS, read_target, read_target_at};

/// One Alertmanager, or the Alertmanagers that a file names.
#[derive(Clone, Debug, PartialEq)]
pub struct AmConfig {
    /// The stable id, unique in the document.
    pub id: Arc<str>,
    /// The server. For a file, its host is a placeholder.
    pub target: Target,
    /// The path before `/api/v2/alerts`: empty, or begins with `/`.
    pub path_prefix: String,
    /// The longest time for a request, in milliseconds.
    pub timeout_ms: i64,
    /// The file of targets, by its name in the operator's folder, in place of a URL.
    pub file: Option<String>,
    /// Whether targets of the file without a scheme are reached by `https`.
    pub is_tls: bool,
}

/// A rule by which alerts suppress other alerts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InhibitRule {
    /// Matches the alerts that suppress.
    pub source: AlertMatchers,
    /// Matches the alerts that are suppressed.
    pub target: AlertMatchers,
    /// Labels that both must have with equal values.
    pub equal: Vec<String>,
}

/// A valid configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NotifyConfig {
    /// Alerts go to these.
    pub alertmanagers: Vec<AmConfig>,
    /// The routes; the root is the first. Empty without a built-in route.
    pub routes: Vec<NotifyRoute>,
    /// The receivers.
    pub receivers: Vec<NotifyReceiver>,
    /// The integrations of all receivers.
    pub integrations: Vec<Arc<NotifyIntegration>>,
    /// The inhibition rules.
    pub inhibit_rules: Vec<InhibitRule>,
}

impl NotifyConfig {
    /// Returns the indexes of the routes that an alert takes, in the order of the tree.
    pub fn routes_of(&self, labels: &AlertLabels) -> Vec<usize> {
        let mut found = Vec::new();
        if !self.routes.is_empty() {
            self.collect_routes(0, labels, &mut found);
        }
        found
    }

    /// Adds the routes that an alert takes at or below one route. Returns whether it matched.
    fn collect_routes(&self, index: usize, labels: &AlertLabels, found: &mut Vec<usize>) -> bool {
        let Some(route) = self.routes.get(index).filter(|route| route.matchers.matches(labels)) else {
            return false;
        };
        let mut has_child = false;
        for child in &route.children {
            if self.collect_routes(*child, labels, found) {
                has_child = true;
                if self.routes.get(*child).is_some_and(|child| !child.continues) {
                    break;
                }
            }
        }
        if !has_child {
            found.push(index);
        }
        true
    }

    /// Returns the index and the id of each integration of a route's receiver.
    pub fn integrations_of(&self, route: &NotifyRoute) -> impl Iterator<Item = (usize, Arc<str>)> {
        let indexes = self.receivers.get(route.receiver).map(|receiver| receiver.integrations.as_slice());
        let integration = |index: &usize| Some((*index, Arc::clone(&self.integrations.get(*index)?.id)));
        indexes.unwrap_or_default().iter().filter_map(integration)
    }
}

/// A document as stored, and its parsed configuration.
#[derive(Clone, Debug)]
pub struct NotifyDocument {
    value: Value,
    config: Arc<NotifyConfig>,
}

impl Default for NotifyDocument {
    fn default() -> NotifyDocument {
        NotifyDocument { value: json!({}), config: Arc::default() }
    }
}

impl NotifyDocument {
    /// Reads a document that a caller sends. Missing ids are assigned, and missing secrets are
    /// those of `stored`.
    ///
    /// # Errors
    /// The wrong fields.
    pub fn parse(
        text: &str,
        stored: Option<&NotifyDocument>,
        rng: &mut Entropy,
    ) -> Result<NotifyDocument, Vec<FieldProblem>> {
        let problem = |message: String| vec![FieldProblem { path: String::new(), message }];
        if text.len() > DOCUMENT_BYTES_MAX {
            return Err(problem(format!("{} bytes, more than the {DOCUMENT_BYTES_MAX} allowed", text.len())));
        }
        let mut value: Value = serde_json::from_str(text).map_err(|error| problem(error.to_string()))?;
        assign_ids(&mut value, rng);
        if let Some(stored) = stored {
            keep_secrets(&mut value, &stored.value);
        }
        let config = read_config(&value)?;
        drop_notes(&mut value);
        Ok(NotifyDocument { value, config: Arc::new(config) })
    }

    /// Reads a document that [`NotifyDocument::stored_text`] returned.
    ///
    /// # Errors
    /// The wrong fields.
    pub fn from_stored(text: &str) -> Result<NotifyDocument, Vec<FieldProblem>> {
        // Every id is present.
        NotifyDocument::parse(text, None, &mut Entropy::seeded(0))
    }

    /// Returns the text to store, with secrets.
    pub fn stored_text(&self) -> String {
        self.value.to_string()
    }

    /// Returns the document without secrets.
    pub fn public(&self) -> Value {
        let mut value = self.value.clone();
        hide_secrets(&mut value);
        value
    }

    /// Returns the configuration that the document describes.
    pub const fn config(&self) -> &Arc<NotifyConfig> {
        &self.config
    }
}

fn read_config(value: &Value) -> Result<NotifyConfig, Vec<FieldProblem>> {
    let mut problems = Problems::default();
    let known = [ALERTMANAGER_LIST, "route", "receivers", "time_intervals", "inhibit_rules"];
    let document = Element { path: String::new(), value };
    let Some(root) = document.section(&known, &mut problems) else { return Err(problems.into_list()) };
    let mut read = ReadReceivers::default();
    let alertmanagers = read_alertmanagers(&root, &mut read.ids, &mut problems);
    read.read(&root, &mut problems);
    let intervals = intervals::read_time_intervals(&root, &mut problems);
    let mut routes = RouteReader { receivers: &read.receivers, intervals: &intervals, routes: Vec::new() };
    if let Some(route) = root.get("route") {
        routes.read(&route, &mut problems);
    }
    let routes = routes.routes;
    let inhibit_rules = read_inhibit_rules(&root, &mut problems);
    let sides = inhibit_rules.iter().flat_map(|rule| [&rule.source, &rule.target]);
    let matchers = routes.iter().map(|route| &route.matchers).chain(sides);
    if matchers.map(AlertMatchers::memory_usage).sum::<usize>() > MATCHERS_MEMORY_MAX {
        problems.add("route", format!("all patterns together have at most {MATCHERS_MEMORY_MAX} bytes"));
    }
    let problems = problems.into_list();
    let ReadReceivers { receivers, integrations, .. } = read;
    match problems.is_empty() {
        true => Ok(NotifyConfig { alertmanagers, routes, receivers, integrations, inhibit_rules }),
        false => Err(problems),
    }
}

fn read_alertmanagers(
    root: &Section<'_>,
    ids: &mut BTreeSet<String>,
    problems: &mut Problems,
) -> Vec<AmConfig> {
    let known: Vec<&str> =
        ["id", "path_prefix", "timeout", "file", "scheme"].iter().chain(&TARGET_FIELDS).copied().collect();
    let mut found = Vec::new();
    for element in root.list(ALERTMANAGER_LIST, ALERTMANAGERS_MAX, problems) {
        let Some(section) = element.section(&known, problems) else { continue };
        found.extend(read_alertmanager(&section, ids, problems));
    }
    found
}

fn read_alertmanager(
    section: &Section<'_>,
    ids: &mut BTreeSet<String>,
    problems: &mut Problems,
) -> Option<AmConfig> {
    let id = read_id(section, ids, problems)?;
    let file = section.text("file", problems);
    let is_tls = match section.text("scheme", problems) {
        None | Some("http") => false,
        Some("https") => true,
        Some(_) => {
            problems.add(&section.at("scheme"), "http or https is expected");
            false
        }
    };
    let target = match file {
        None => read_target(section, problems)?,
        Some(name) => {
            if section.get("url").is_some() {
                problems.add(&section.at("url"), "url and file exclude each other");
            }
            if !is_file_name(name) {
                problems.add(&section.at("file"), "the name of a .json, .yml or .yaml file is expected");
            }
            let placeholder = if is_tls { "https://from-file" } else { "http://from-file" };
            read_target_at(section, TargetUrl::parse(placeholder).ok()?, problems)?
        }
    };
    let path_prefix = section.text("path_prefix", problems).unwrap_or_default().trim_end_matches('/');
    let is_path = path_prefix.is_empty() || path_prefix.starts_with('/');
    if !is_path || !path_prefix.bytes().all(|b| b.is_ascii_graphic() && !b"?#\\".contains(&b)) {
        problems.add(&section.at("path_prefix"), "a path such as /alertmanager is expected");
    }
    Some(AmConfig {
        id,
        target,
        path_prefix: path_prefix.to_owned(),
        timeout_ms: section.duration("timeout", 1_000..=60_000, problems).unwrap_or(10_000),
        file: file.map(str::to_owned),
        is_tls,
    })
}

fn read_inhibit_rules(root: &Section<'_>, problems: &mut Problems) -> Vec<InhibitRule> {
    let mut rules = Vec::new();
    for element in root.list("inhibit_rules", INHIBIT_RULES_MAX, problems) {
        let known = ["source_matchers", "target_matchers", "equal"];
        let Some(section) = element.section(&known, problems) else { continue };
        let rule = InhibitRule {
            source: read_matchers(&section, "source_matchers", problems),
            target: read_matchers(&section, "target_matchers", problems),
            equal: section
                .texts("equal", 32, problems)
                .into_iter()
                .map(|(_, name)| name.to_owned())
                .collect(),
        };
        for (field, side) in [("source_matchers", &rule.source), ("target_matchers", &rule.target)] {
            if side.is_empty() {
                problems.add(&section.at(field), "at least one matcher is expected");
            }
        }
        rules.push(rule);
    }
    rules
}

#[cfg(test)]
mod tests;
