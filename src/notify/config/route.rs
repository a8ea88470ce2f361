//! The tree of routes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::reader::{Element, Problems, Section};
use super::receiver::NotifyReceiver;
use crate::model::Timestamp;
use crate::notify::interval::MuteInterval;
use crate::notify::labels::AlertLabels;
use crate::notify::limits::{ALERT_PAIRS_MAX, MATCHERS_MAX, ROUTE_DEPTH_MAX, ROUTES_MAX, TIME_INTERVALS_MAX};
use crate::notify::matcher::AlertMatchers;
use crate::yaml::unknown_name;

/// The intervals of each name.
pub(super) type NamedIntervals = BTreeMap<String, Arc<[MuteInterval]>>;

/// The labels that a group has in common.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupBy {
    /// Every label: each alert is a group of its own (`...`).
    All,
    /// These labels.
    Labels(BTreeSet<String>),
}

/// The waiting times of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteTimes {
    /// From the first alert of a group to its first notification, in milliseconds.
    pub group_wait_ms: i64,
    /// Between two flushes of a group, in milliseconds: each reports new and resolved alerts.
    pub group_interval_ms: i64,
    /// From a notification about an alert to the next one without a change, in milliseconds.
    pub repeat_interval_ms: i64,
}

/// A route of the tree, with the settings that it inherits.
#[derive(Clone, Debug, PartialEq)]
pub struct NotifyRoute {
    /// The path of matchers from the root, which identifies the route across configurations.
    pub key: String,
    /// The matchers of this route alone.
    pub matchers: AlertMatchers,
    /// Whether later siblings are tried after this route matched.
    pub continues: bool,
    /// The index of the receiver in [`super::NotifyConfig::receivers`].
    pub receiver: usize,
    /// The labels of groups.
    pub group_by: GroupBy,
    /// The waiting times.
    pub times: RouteTimes,
    /// While one of these lasts, the route sends nothing.
    pub mute: Vec<Arc<[MuteInterval]>>,
    /// If there are any, the route sends only while one of these lasts.
    pub active: Vec<Arc<[MuteInterval]>>,
    /// The indexes of the routes below.
    pub children: Vec<usize>,
}

impl NotifyRoute {
    /// Returns whether the route sends nothing at this time.
    pub fn is_muted(&self, now: Timestamp) -> bool {
        let lasts = |named: &Arc<[MuteInterval]>| named.iter().any(|interval| interval.contains(now));
        self.mute.iter().any(lasts) || (!self.active.is_empty() && !self.active.iter().any(lasts))
    }

    /// Returns the labels of the group of an alert.
    pub fn group_labels(&self, labels: &AlertLabels) -> AlertLabels {
        let is_in = |name: &String| match &self.group_by {
            GroupBy::All => true,
            GroupBy::Labels(names) => names.contains(name),
        };
        labels.iter().filter(|(name, _)| is_in(name)).map(|(n, v)| (n.clone(), v.clone())).collect()
    }
}

const ROUTE_FIELDS: [&str; 10] = [
    "receiver",
    "matchers",
    "continue",
    "group_by",
    "group_wait",
    "group_interval",
    "repeat_interval",
    "mute_time_intervals",
    "active_time_intervals",
    "routes",
];

const DAY_MS: i64 = 86_400_000;
const DEFAULT_TIMES: RouteTimes =
    RouteTimes { group_wait_ms: 30_000, group_interval_ms: 300_000, repeat_interval_ms: 4 * 3_600_000 };

/// Reads the tree.
pub(super) struct RouteReader<'c> {
    pub(super) receivers: &'c [NotifyReceiver],
    pub(super) intervals: &'c NamedIntervals,
    /// The routes so far; the root is the first.
    pub(super) routes: Vec<NotifyRoute>,
}

/// The settings that a route inherits.
#[derive(Clone)]
struct Inherited {
    key: String,
    receiver: Option<usize>,
    group_by: GroupBy,
    times: RouteTimes,
    depth: usize,
}

impl RouteReader<'_> {
    /// Reads the root and all below it.
    pub(super) fn read(&mut self, element: &Element<'_>, problems: &mut Problems) {
        let inherited = Inherited {
            key: String::new(),
            receiver: None,
            group_by: GroupBy::Labels(BTreeSet::new()),
            times: DEFAULT_TIMES,
            depth: 1,
        };
        self.read_route(element, &inherited, problems);
    }

    fn read_route(
        &mut self,
        element: &Element<'_>,
        above: &Inherited,
        problems: &mut Problems,
    ) -> Option<usize> {
        if self.routes.len() >= ROUTES_MAX || above.depth > ROUTE_DEPTH_MAX {
            let message =
                format!("at most {ROUTES_MAX} routes are allowed, and {ROUTE_DEPTH_MAX} below each other");
            problems.add(&element.path, message);
            return None;
        }
        let section = element.section(&ROUTE_FIELDS, problems)?;
        let matchers = read_matchers(&section, "matchers", problems);
        let is_root = above.depth == 1;
        if is_root {
            for name in ["matchers", "continue", "mute_time_intervals", "active_time_intervals"] {
                if section.get(name).is_some() {
                    problems.add(&section.at(name), "is not allowed in the root route");
                }
            }
        }
        let receiver = self.read_receiver(&section, problems).or(above.receiver);
        if receiver.is_none() && is_root && section.get("receiver").is_none() {
            problems.add(&section.at("receiver"), "is required");
        }
        let mut names: Vec<String> = matchers.texts();
        names.sort();
        let mut key = match is_root {
            true => "{}".to_owned(),
            false => format!("{}/{{{}}}", above.key, names.join(",")),
        };
        // Siblings with equal matchers have groups of their own.
        let alike = self.routes.iter().filter(|other| other.key.split('#').next() == Some(&*key)).count();
        if alike > 0 {
            key = format!("{key}#{alike}");
        }
        let inherited = Inherited {
            key: key.clone(),
            receiver,
            group_by: read_group_by(&section, problems).unwrap_or_else(|| above.group_by.clone()),
            times: read_times(&section, above.times, problems),
            depth: above.depth + 1,
        };
        let index = self.routes.len();
        self.routes.push(NotifyRoute {
            key,
            matchers,
            continues: section.flag("continue", false, problems),
            receiver: receiver.unwrap_or_default(),
            group_by: inherited.group_by.clone(),
            times: inherited.times,
            mute: self.read_intervals(&section, "mute_time_intervals", problems),
            active: self.read_intervals(&section, "active_time_intervals", problems),
            children: Vec::new(),
        });
        let mut children = Vec::new();
        for child in section.list("routes", ROUTES_MAX, problems) {
            children.extend(self.read_route(&child, &inherited, problems));
        }
        if let Some(route) = self.routes.get_mut(index) {
            route.children = children;
        }
        Some(index)
    }

    fn read_receiver(&self, section: &Section<'_>, problems: &mut Problems) -> Option<usize> {
        section.get("receiver")?;
        let name = section.required("receiver", problems)?;
        let index = self.receivers.iter().position(|receiver| *receiver.name == *name);
        if index.is_none() {
            let known: Vec<&str> = self.receivers.iter().map(|receiver| &*receiver.name).collect();
            problems.add(&section.at("receiver"), unknown_name("receiver", name, &known));
        }
        index
    }

    fn read_intervals(
        &self,
        section: &Section<'_>,
        field: &str,
        problems: &mut Problems,
    ) -> Vec<Arc<[MuteInterval]>> {
        let mut found = Vec::new();
        for (path, name) in section.texts(field, TIME_INTERVALS_MAX, problems) {
            match self.intervals.get(name) {
                Some(intervals) => found.push(Arc::clone(intervals)),
                None => {
                    let known: Vec<&str> = self.intervals.keys().map(String::as_str).collect();
                    problems.add(&path, unknown_name("time interval", name, &known));
                }
            }
        }
        found
    }
}

fn read_times(section: &Section<'_>, above: RouteTimes, problems: &mut Problems) -> RouteTimes {
    let mut duration = |name, range| section.duration(name, range, problems);
    RouteTimes {
        group_wait_ms: duration("group_wait", 0..=DAY_MS).unwrap_or(above.group_wait_ms),
        group_interval_ms: duration("group_interval", 1_000..=7 * DAY_MS).unwrap_or(above.group_interval_ms),
        repeat_interval_ms: duration("repeat_interval", 60_000..=365 * DAY_MS)
            .unwrap_or(above.repeat_interval_ms),
    }
}

fn read_group_by(section: &Section<'_>, problems: &mut Problems) -> Option<GroupBy> {
    section.get("group_by")?;
    let names = section.texts("group_by", ALERT_PAIRS_MAX, problems);
    if names.iter().any(|(_, name)| *name == "...") {
        if names.len() > 1 {
            problems.add(&section.at("group_by"), "\"...\" stands alone");
        }
        return Some(GroupBy::All);
    }
    Some(GroupBy::Labels(names.into_iter().map(|(_, name)| name.to_owned()).collect()))
}

/// Reads a list of matchers, each a text or an object.
pub(super) fn read_matchers(section: &Section<'_>, field: &str, problems: &mut Problems) -> AlertMatchers {
    let mut matchers = AlertMatchers::default();
    for element in section.list(field, MATCHERS_MAX, problems) {
        if let Err(why) = matchers.push_value(element.value) {
            problems.add(&element.path, why);
        }
    }
    matchers
}
