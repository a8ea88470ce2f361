//! Reads JSON with the path of each wrong field.

use serde_json::{Map, Value};

use crate::model::parse_duration;
use crate::yaml::unknown_name;

/// The most problems that are reported, inclusive.
const PROBLEMS_MAX: usize = 20;

/// A wrong field of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FieldProblem {
    /// The path, such as `receivers[1].webhook_configs[0].url`.
    pub path: String,
    /// The reason, as the end of a sentence.
    pub message: String,
}

/// Collects the problems of a document.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<FieldProblem>);

impl Problems {
    pub(super) fn add(&mut self, path: &str, message: impl Into<String>) {
        if self.0.len() < PROBLEMS_MAX {
            self.0.push(FieldProblem { path: path.to_owned(), message: message.into() });
        }
    }

    pub(super) fn into_list(self) -> Vec<FieldProblem> {
        self.0
    }
}

/// An object of the document, and its path.
#[derive(Clone, Debug)]
pub(super) struct Section<'v> {
    pub(super) path: String,
    fields: &'v Map<String, Value>,
}

/// An element of a list, and its path.
#[derive(Clone, Debug)]
pub(super) struct Element<'v> {
    pub(super) path: String,
    pub(super) value: &'v Value,
}

impl<'v> Element<'v> {
    /// Returns the object, with a problem for each field that is not in `known`.
    pub(super) fn section(&self, known: &[&str], problems: &mut Problems) -> Option<Section<'v>> {
        let Some(fields) = self.value.as_object() else {
            problems.add(&self.path, "an object is expected");
            return None;
        };
        let section = Section { path: self.path.clone(), fields };
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            problems.add(&section.at(name), unknown_name("field", name, known));
        }
        Some(section)
    }
}

impl<'v> Section<'v> {
    /// Returns the path of a field.
    pub(super) fn at(&self, name: &str) -> String {
        match self.path.is_empty() {
            true => name.to_owned(),
            false => format!("{}.{name}", self.path),
        }
    }

    /// Returns a field that is present and not null.
    pub(super) fn get(&self, name: &str) -> Option<Element<'v>> {
        let value = self.fields.get(name).filter(|value| !value.is_null())?;
        Some(Element { path: self.at(name), value })
    }

    pub(super) fn text(&self, name: &str, problems: &mut Problems) -> Option<&'v str> {
        let field = self.get(name)?;
        let text = field.value.as_str();
        if text.is_none() {
            problems.add(&field.path, "a text is expected");
        }
        text
    }

    /// Like [`Section::text`], with a problem if the field is absent or empty.
    pub(super) fn required(&self, name: &str, problems: &mut Problems) -> Option<&'v str> {
        match self.get(name) {
            None => {
                problems.add(&self.at(name), "is required");
                None
            }
            Some(_) => {
                let text = self.text(name, problems)?;
                if text.is_empty() {
                    problems.add(&self.at(name), "must not be empty");
                    return None;
                }
                Some(text)
            }
        }
    }

    pub(super) fn flag(&self, name: &str, default: bool, problems: &mut Problems) -> bool {
        let Some(field) = self.get(name) else { return default };
        field.value.as_bool().unwrap_or_else(|| {
            problems.add(&field.path, "true or false is expected");
            default
        })
    }

    /// Returns a whole number within `range`.
    pub(super) fn number(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
        problems: &mut Problems,
    ) -> Option<u64> {
        let field = self.get(name)?;
        let number = field.value.as_u64().filter(|number| range.contains(number));
        if number.is_none() {
            let message = format!("a whole number from {} to {} is expected", range.start(), range.end());
            problems.add(&field.path, message);
        }
        number
    }

    /// Returns a duration in milliseconds within `range`.
    pub(super) fn duration(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<i64>,
        problems: &mut Problems,
    ) -> Option<i64> {
        let text = self.text(name, problems)?;
        match parse_duration(text) {
            Ok(ms) if range.contains(&ms) => Some(ms),
            Ok(_) => {
                let ends = [*range.start(), *range.end()].map(crate::model::format_duration);
                let [first, last] = ends;
                problems.add(&self.at(name), format!("a duration from {first} to {last} is expected"));
                None
            }
            Err(error) => {
                problems.add(&self.at(name), error.to_string());
                None
            }
        }
    }

    /// Returns the elements of a list, at most `most`; none if the field is absent.
    pub(super) fn list(&self, name: &str, most: usize, problems: &mut Problems) -> Vec<Element<'v>> {
        let Some(field) = self.get(name) else { return Vec::new() };
        let Some(list) = field.value.as_array() else {
            problems.add(&field.path, "a list is expected");
            return Vec::new();
        };
        if list.len() > most {
            problems.add(&field.path, format!("at most {most} elements are allowed"));
        }
        let element = |(at, value)| Element { path: format!("{}[{at}]", field.path), value };
        list.iter().take(most).enumerate().map(element).collect()
    }

    /// Returns the texts of a list with their paths.
    pub(super) fn texts(&self, name: &str, most: usize, problems: &mut Problems) -> Vec<(String, &'v str)> {
        let mut texts = Vec::new();
        for element in self.list(name, most, problems) {
            match element.value.as_str() {
                Some(text) => texts.push((element.path, text)),
                None => problems.add(&element.path, "a text is expected"),
            }
        }
        texts
    }
}
