//! The difference between expected and found alerts as coloured JSON, as promtool shows it with
//! `--diff`.

use std::collections::{BTreeMap, BTreeSet};

use super::compare::FiringAlert;
use crate::rules::template::go_quote;

/// A found but unexpected item: green.
const ADDED: &str = "\u{1b}[0;32m";
/// An expected but missing item: red.
const REMOVED: &str = "\u{1b}[0;31m";
/// A value that differs from the expected one: yellow.
const CHANGED: &str = "\u{1b}[0;33m";
const END: &str = "\u{1b}[0m";

type Texts = BTreeMap<String, String>;

/// Returns the difference between two sorted lists of alerts, which are compared place by place.
pub(super) fn alerts_difference(expected: &[FiringAlert], found: &[FiringAlert]) -> String {
    // An empty list is compared as a list of one alert without labels and annotations.
    let blank = [FiringAlert { labels: Texts::new(), annotations: Texts::new() }];
    let [expected, found] = [expected, found].map(|list| if list.is_empty() { &blank[..] } else { list });
    let elements = (0..expected.len().max(found.len())).filter_map(|place| {
        match (expected.get(place), found.get(place)) {
            (Some(expected), Some(found)) => Some(both(expected, found)),
            (Some(expected), None) => Some(whole(expected, REMOVED)),
            (None, Some(found)) => Some(whole(found, ADDED)),
            (None, None) => None,
        }
    });
    format!("[\n{}\n]", elements.collect::<Vec<_>>().join(",\n"))
}

/// Returns an alert that only one of the lists has, with every line coloured.
fn whole(alert: &FiringAlert, colour: &str) -> String {
    let mut lines = vec![(4, "{".to_owned())];
    for (name, texts, end) in [("Annotations", &alert.annotations, ","), ("Labels", &alert.labels, "")] {
        if texts.is_empty() {
            lines.push((8, format!("\"{name}\": {{}}{end}")));
            continue;
        }
        lines.push((8, format!("\"{name}\": {{")));
        for (index, (key, value)) in texts.iter().enumerate() {
            let comma = if index + 1 < texts.len() { "," } else { "" };
            lines.push((12, format!("{}: {}{comma}", go_quote(key), go_quote(value))));
        }
        lines.push((8, format!("}}{end}")));
    }
    lines.push((4, "}".to_owned()));
    let lines = lines.into_iter().map(|(indent, line)| format!("{:indent$}{colour}{line}{END}", ""));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns an alert of both lists, with the texts that differ coloured.
fn both(expected: &FiringAlert, found: &FiringAlert) -> String {
    let annotations = texts(&expected.annotations, &found.annotations);
    let labels = texts(&expected.labels, &found.labels);
    format!("    {{\n        \"Annotations\": {annotations},\n        \"Labels\": {labels}\n    }}")
}

fn texts(expected: &Texts, found: &Texts) -> String {
    let keys: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let line = |key: &String| {
        let quoted = go_quote(key);
        match (expected.get(key), found.get(key)) {
            (Some(expected), Some(found)) if expected == found => format!("{quoted}: {}", go_quote(found)),
            (Some(expected), Some(found)) => {
                format!("{quoted}: {CHANGED}{} => {}{END}", go_quote(expected), go_quote(found))
            }
            (Some(expected), None) => format!("{REMOVED}{quoted}: {}{END}", go_quote(expected)),
            (None, found) => {
                format!("{ADDED}{quoted}: {}{END}", go_quote(found.map_or("", String::as_str)))
            }
        }
    };
    let lines: Vec<String> = keys.into_iter().map(|key| format!("            {}", line(key))).collect();
    if lines.is_empty() { "{}".to_owned() } else { format!("{{\n{}\n        }}", lines.join(",\n")) }
}
