//! The variables of a document, their options, and their selected values.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::adhoc::{Filter, chosen_filters, filters_of};
use super::durations::duration_ms;
use super::json::{Object, flag, member, objects, text, texts, whole};

/// The value that stands for All.
pub const ALL: &str = "$__all";

const NAME_BYTES_MAX: usize = 128;
const OPTIONS_MAX: usize = 10_000;
/// Longest constant of an exported document.
const INPUT_BYTES_MAX: usize = 4_096;

/// A variable of a dashboard.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Name.
    pub name: String,
    /// Grafana's type, such as `query`.
    pub kind: String,
    pub(super) multi: bool,
    pub(super) include_all: bool,
    /// The text that replaces All.
    pub(super) all_value: Option<String>,
    pub(super) query: Value,
    /// The values that are saved in the document, and their texts.
    current: Vec<VariableOption>,
    /// The options in the document: its author's, or those found when it was saved.
    options: Vec<VariableOption>,
    auto_count: u32,
    auto_min_ms: i64,
    pub(super) filters: Vec<Filter>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct VariableOption {
    text: String,
    value: String,
}

impl VariableOption {
    fn same(text: &str) -> VariableOption {
        VariableOption { text: text.to_owned(), value: text.to_owned() }
    }
}

/// How the value of a variable is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableAccess<'a> {
    /// The token or its key sets the value: the variable has these values, and those of the
    /// document do not count.
    Locked(&'a [String]),
    /// The viewer chooses one of these values; `None` allows all.
    Open(Option<&'a [String]>),
    /// The document sets the value.
    Fixed,
}

/// The selected value of one variable.
#[derive(Clone, Debug)]
pub struct Selection {
    pub(super) values: Vec<String>,
    pub(super) texts: Vec<String>,
    /// All is selected. `values` are then those of the document; without any, All is a pattern.
    pub(super) is_all: bool,
    pub(super) all_value: Option<String>,
    /// The value is a list, even of one.
    pub(super) is_list: bool,
    /// References without a format are patterns.
    pub(super) is_pattern: bool,
    /// The document's author wrote the value, so it may be any part of a query.
    pub(super) is_authored: bool,
    /// Steps and least length in milliseconds of an automatic interval.
    pub(super) automatic: Option<(u32, i64)>,
    /// The filters of an ad hoc variable that a viewer chose, in place of those of the document.
    pub(super) filters: Option<Vec<Filter>>,
}

/// The selected values, by name.
pub type Selections = BTreeMap<String, Selection>;

/// Reasons why values cannot be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// The dashboard has no such variable.
    #[error("the dashboard has no variable {0}")]
    Unknown(String),
    /// The viewer may not set the variable.
    #[error("the variable {0} is set by the owner of the dashboard")]
    NotOpen(String),
    /// The value is not one of those that the viewer may choose.
    #[error("the variable {0} may not have this value")]
    NotAllowed(String),
    /// The values do not fit the type of the variable.
    #[error("the variable {name} {problem}")]
    Unfit {
        /// The name.
        name: String,
        /// The problem, after the name.
        problem: &'static str,
    },
}

/// Reads the variables. Variables without a usable name are left out.
pub(super) fn variables_of(root: &Object) -> Vec<Variable> {
    let inputs = objects(root.get("__inputs")).filter(|input| member(input, "type") == "constant");
    let inputs: HashMap<String, String> =
        inputs.map(|input| (member(input, "name"), member(input, "value"))).collect();
    let mut names = HashSet::new();
    let list = root.get("templating").and_then(|templating| templating.get("list"));
    let read = objects(list).map(|raw| Variable::of(raw, &inputs));
    read.filter(|variable| is_name(&variable.name) && names.insert(variable.name.clone())).collect()
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Replaces the constants of an exported document, `${VAR_NAME}`, in all texts of a value.
fn with_inputs(value: &Value, inputs: &HashMap<String, String>) -> Value {
    match value {
        Value::String(text) if !inputs.is_empty() && text.len() <= INPUT_BYTES_MAX => {
            let mut replaced = text.clone();
            for (name, input) in inputs.iter().filter(|(_, input)| input.len() <= INPUT_BYTES_MAX) {
                replaced = replaced.replace(&format!("${{{name}}}"), input);
            }
            Value::String(replaced)
        }
        Value::Array(list) => list.iter().map(|one| with_inputs(one, inputs)).collect(),
        Value::Object(object) => {
            Value::Object(object.iter().map(|(name, one)| (name.clone(), with_inputs(one, inputs))).collect())
        }
        other => other.clone(),
    }
}

impl Variable {
    fn of(raw: &Object, inputs: &HashMap<String, String>) -> Variable {
        let with = |name: &str| raw.get(name).map(|value| with_inputs(value, inputs));
        let (query, current, options) = (with("query"), with("current"), with("options"));
        let (value, shown) = match current.as_ref().and_then(Value::as_object) {
            Some(object) => {
                let (value, text) = (object.get("value"), object.get("text"));
                (value.or(text).cloned(), text.or(value).cloned())
            }
            None => (current.clone(), current.clone()),
        };
        let (values, shown) = (texts(value.as_ref()), texts(shown.as_ref()));
        let multi = flag(raw, "multi");
        let count = if multi { OPTIONS_MAX } else { 1 };
        let current = values.into_iter().enumerate().take(count).map(|(at, value)| {
            let text = shown.get(at).cloned().unwrap_or_else(|| value.clone());
            VariableOption { text, value }
        });
        let current = current.filter(|option| !option.value.is_empty()).collect();
        let query = query.unwrap_or_default();
        let kind = Some(member(raw, "type")).filter(|kind| !kind.is_empty()).unwrap_or("query".into());
        let known = match kind.as_str() {
            "custom" if member(raw, "valuesFormat") == "json" => json_options(&query),
            "custom" => custom_options(&text(Some(&query)).unwrap_or_default()),
            "interval" => {
                let auto = flag(raw, "auto").then(|| VariableOption {
                    text: "auto".into(),
                    value: format!("$__auto_interval_{}", member(raw, "name")),
                });
                let steps = interval_options(&text(Some(&query)).unwrap_or_default());
                auto.into_iter().chain(steps).collect()
            }
            _ => objects(options.as_ref())
                .map(|option| {
                    let value = text(option.get("value").or(option.get("text"))).unwrap_or_default();
                    let text = text(option.get("text")).unwrap_or_else(|| value.clone());
                    VariableOption { text, value }
                })
                .collect(),
        };
        Variable {
            name: member(raw, "name"),
            multi,
            include_all: flag(raw, "includeAll"),
            all_value: Some(member(raw, "allValue")).filter(|text| !text.is_empty()),
            query,
            current,
            options: known.into_iter().filter(|option| option.value != ALL).take(OPTIONS_MAX).collect(),
            auto_count: whole(raw.get("auto_count"), 1, 10_000, 30),
            auto_min_ms: duration_ms(&member(raw, "auto_min")).unwrap_or(10_000),
            filters: filters_of(raw),
            kind,
        }
    }

    /// Returns the text of the query, if it is one.
    pub(super) fn query_text(&self) -> String {
        text(Some(&self.query)).unwrap_or_default()
    }

    /// Returns whether the author of the document wrote the options and the value. The values of a
    /// query come from the data, which other people may write.
    fn is_authored(&self) -> bool {
        matches!(self.kind.as_str(), "custom" | "interval" | "constant" | "textbox")
    }

    fn is_constant(&self) -> bool {
        matches!(self.kind.as_str(), "constant" | "datasource")
    }

    fn selection(&self, chosen: Vec<VariableOption>, is_authored: bool) -> Selection {
        let is_automatic = self.kind == "interval"
            && is_authored
            && chosen.first().is_some_and(|option| option.value.starts_with("$__auto_interval"));
        let (texts, values): (Vec<String>, Vec<String>) =
            chosen.into_iter().map(|VariableOption { text, value }| (text, value)).unzip();
        Selection {
            is_list: self.multi,
            is_pattern: self.multi || self.include_all || values.len() > 1,
            values,
            texts,
            is_all: false,
            all_value: None,
            is_authored,
            automatic: is_automatic.then_some((self.auto_count, self.auto_min_ms)),
            filters: None,
        }
    }

    /// Returns the selection of All. The options of a query are not known here.
    fn all(&self) -> Selection {
        let known = if self.is_authored() { self.options.clone() } else { Vec::new() };
        Selection {
            is_list: true,
            is_all: true,
            all_value: self.all_value.clone(),
            texts: vec!["All".to_owned()],
            ..self.selection(known, self.is_authored())
        }
    }

    /// Returns the selection that the document was saved with.
    pub(super) fn saved(&self) -> Selection {
        match self.kind.as_str() {
            "constant" => return self.selection(vec![VariableOption::same(&self.query_text())], true),
            "textbox" => {
                let saved = self.current.first().map(|option| option.value.clone());
                let text = saved.unwrap_or_else(|| self.query_text());
                return self.selection(vec![VariableOption::same(&text)], true);
            }
            _ => {}
        }
        let is_all = self.current.first().is_some_and(|option| option.value == ALL);
        if self.include_all && (is_all || self.current.is_empty()) {
            return self.all();
        }
        let saved = self.current.iter().filter(|option| option.value != ALL);
        let mut chosen: Vec<VariableOption> = saved.cloned().collect();
        if chosen.is_empty() {
            // Without a saved value and without options, a list is empty and a text as well.
            let nothing = (!self.multi).then(|| VariableOption::same(""));
            chosen.extend(self.options.first().cloned().or(nothing));
        }
        self.selection(chosen, self.is_authored())
    }

    /// Returns the selection of values that a viewer sent.
    ///
    /// # Errors
    /// [`SelectionError`].
    fn chosen(&self, values: &[String], allowed: Option<&[String]>) -> Result<Selection, SelectionError> {
        let unfit = |problem| Err(SelectionError::Unfit { name: self.name.clone(), problem });
        let is_allowed = || allowed.is_none_or(|allowed| values.iter().all(|value| allowed.contains(value)));
        if self.kind == "adhoc" {
            if !is_allowed() {
                return Err(SelectionError::NotAllowed(self.name.clone()));
            }
            return match chosen_filters(values) {
                Ok(filters) => Ok(Selection { filters: Some(filters), ..self.literal(values) }),
                Err(problem) => unfit(problem),
            };
        }
        if self.is_constant() {
            return Err(SelectionError::NotOpen(self.name.clone()));
        }
        match values {
            [] => return unfit("needs a value"),
            [only] if only == ALL => {
                if !self.include_all {
                    return unfit("does not offer All");
                }
                return Ok(match allowed {
                    None => self.all(),
                    // All of a list is the whole list.
                    Some(allowed) => {
                        Selection { is_list: true, texts: vec!["All".into()], ..self.literal(allowed) }
                    }
                });
            }
            values if values.iter().any(|value| value == ALL) => {
                return unfit("has All beside other values");
            }
            [_, _, ..] if !self.multi => return unfit("takes one value"),
            values if values.len() > OPTIONS_MAX => return unfit("has too many values"),
            _ => {}
        }
        if !is_allowed() {
            return Err(SelectionError::NotAllowed(self.name.clone()));
        }
        Ok(self.literal(values))
    }

    /// Returns the selection of these values. They are the author's if the document has them.
    fn literal(&self, values: &[String]) -> Selection {
        let is_authored = self.is_authored()
            && values.iter().all(|value| {
                let known = self.options.iter().chain(&self.current);
                known.into_iter().any(|option| option.value == *value)
            });
        let chosen = values.iter().map(|value| {
            let option = self.options.iter().rfind(|option| option.value == *value);
            option.filter(|_| is_authored).cloned().unwrap_or_else(|| VariableOption::same(value))
        });
        self.selection(chosen.collect(), is_authored)
    }

    /// Returns the selected values for a viewer, `$__all` for All.
    pub(super) fn shown_values(&self) -> Vec<String> {
        let saved = self.saved();
        if saved.is_all { vec![ALL.to_owned()] } else { saved.values }
    }

    /// Returns the values for which a panel can be repeated: those of the selection, or for All
    /// those of the document.
    fn repeats(&self, selection: &Selection) -> Vec<String> {
        if selection.is_all && selection.values.is_empty() {
            return self.options.iter().map(|option| option.value.clone()).collect();
        }
        selection.values.clone()
    }
}

impl super::Dashboard {
    /// Returns the selections of a request: locked and fixed values, and those that the viewer sent
    /// for open variables.
    ///
    /// # Errors
    /// [`SelectionError`].
    pub fn selections<'a>(
        &self,
        access: impl Fn(&str) -> VariableAccess<'a>,
        locked: impl IntoIterator<Item = &'a String>,
        sent: &BTreeMap<String, Vec<String>>,
    ) -> Result<Selections, SelectionError> {
        let mut selections = Selections::new();
        for variable in &self.variables {
            let selection = match access(&variable.name) {
                VariableAccess::Locked(values) => variable.literal(values),
                VariableAccess::Fixed => variable.saved(),
                VariableAccess::Open(None) => variable.saved(),
                VariableAccess::Open(Some(allowed)) => match variable.saved() {
                    saved if !saved.is_all && saved.values.iter().all(|value| allowed.contains(value)) => {
                        saved
                    }
                    saved if saved.is_all => variable.literal(allowed),
                    _ => variable.literal(allowed.get(..1).unwrap_or_default()),
                },
            };
            selections.insert(variable.name.clone(), selection);
        }
        // A locked variable has its value also if the document only refers to it.
        for name in locked {
            if let VariableAccess::Locked(values) = access(name)
                && !selections.contains_key(name)
            {
                selections.insert(name.clone(), undeclared(values));
            }
        }
        for (name, values) in sent {
            let selection = self.choose(name, values, access(name))?;
            selections.insert(name.clone(), selection);
        }
        Ok(selections)
    }

    /// Adds the values that were sent for one query. For a repeated panel, a variable for which it
    /// is repeated may have one of its values, also if the viewer may not set it.
    ///
    /// # Errors
    /// [`SelectionError`].
    pub fn select_for_panel<'a>(
        &self,
        selections: &mut Selections,
        access: impl Fn(&str) -> VariableAccess<'a>,
        panel: &super::Panel,
        sent: &BTreeMap<String, Vec<String>>,
    ) -> Result<(), SelectionError> {
        for (name, values) in sent {
            let access = access(name);
            let variable = self.variable(name).filter(|_| panel.repeats.contains(name));
            let repeated = variable.zip(selections.get(name)).filter(|(variable, selection)| {
                let all = variable.repeats(selection);
                !values.is_empty() && values.iter().all(|value| all.contains(value))
            });
            let selection = match (access, repeated) {
                (VariableAccess::Locked(_) | VariableAccess::Fixed, Some((variable, _))) => {
                    let one = variable.literal(values);
                    Selection { is_list: variable.multi, is_pattern: variable.multi || one.is_pattern, ..one }
                }
                (access, _) => self.choose(name, values, access)?,
            };
            selections.insert(name.clone(), selection);
        }
        Ok(())
    }

    fn choose(
        &self,
        name: &str,
        values: &[String],
        access: VariableAccess<'_>,
    ) -> Result<Selection, SelectionError> {
        match (self.variable(name), access) {
            (Some(variable), VariableAccess::Open(allowed)) => variable.chosen(values, allowed),
            (None, VariableAccess::Open(_)) => Err(SelectionError::Unknown(name.to_owned())),
            _ => Err(SelectionError::NotOpen(name.to_owned())),
        }
    }
}

/// Returns the selection of a locked variable that the document does not declare.
fn undeclared(values: &[String]) -> Selection {
    Selection {
        values: values.to_vec(),
        texts: values.to_vec(),
        is_all: false,
        all_value: None,
        is_list: values.len() > 1,
        is_pattern: values.len() > 1,
        is_authored: false,
        automatic: None,
        filters: None,
    }
}

/// `a, text : value, with\, comma`.
fn custom_options(query: &str) -> Vec<VariableOption> {
    let mut parts = vec![String::new()];
    let mut chars = query.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some(',')) => {
                chars.next();
                parts.iter_mut().last().into_iter().for_each(|part| part.push(','));
            }
            (',', _) => parts.push(String::new()),
            (c, _) => parts.iter_mut().last().into_iter().for_each(|part| part.push(c)),
        }
    }
    let parts = parts.iter().filter(|part| !part.is_empty());
    let parts = parts.map(|part| match part.trim().rsplit_once(" : ") {
        Some((text, value)) if !text.is_empty() => {
            VariableOption { text: text.trim().to_owned(), value: value.trim().to_owned() }
        }
        _ => VariableOption::same(part.trim()),
    });
    parts.collect()
}

fn json_options(query: &Value) -> Vec<VariableOption> {
    let text_of = text(Some(query)).unwrap_or_default();
    let Ok(Value::Array(list)) = serde_json::from_str::<Value>(&text_of) else { return Vec::new() };
    let read = list.iter().map(|item| match item.as_object() {
        None => VariableOption::same(&text(Some(item)).unwrap_or_default()),
        Some(item) => {
            let shown = text(item.get("text").or(item.get("value"))).unwrap_or_default();
            let value = text(item.get("value")).unwrap_or_else(|| shown.clone());
            VariableOption { text: shown, value }
        }
    });
    read.collect()
}

/// `1m,10m "1h"`.
fn interval_options(query: &str) -> Vec<VariableOption> {
    let mut options = Vec::new();
    let mut rest = query;
    while let Some(c) = rest.chars().next() {
        let (option, after) = match c {
            '"' | '\'' => {
                let inner = &rest[1..];
                match inner.split_once(c) {
                    Some((option, after)) => (Some(option), after),
                    None => (None, inner),
                }
            }
            c if c.is_whitespace() || c == ',' => (None, &rest[c.len_utf8()..]),
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || ",\"'".contains(c)).unwrap_or(rest.len());
                (Some(&rest[..end]), &rest[end..])
            }
        };
        options.extend(option.map(|option| VariableOption::same(option.trim())));
        rest = after;
    }
    options
}
