//! The document that a viewer gets: without expressions, queries of variables, and links to other
//! dashboards.

use serde_json::{Value, json};

use super::document::{Plugins, is_queried, queried_annotations, ref_ids};
use super::json::{Object, flag, member, objects};
use super::variables::{ALL, Variable, VariableAccess};

/// Members of a document that a viewer needs; the others are left out.
const MEMBERS: [&str; 15] = [
    "title",
    "description",
    "tags",
    "time",
    "timepicker",
    "refresh",
    "timezone",
    "weekStart",
    "fiscalYearStartMonth",
    "graphTooltip",
    "sharedCrosshair",
    "schemaVersion",
    "links",
    "panels",
    "rows",
];
/// Members of a query that a viewer needs.
const TARGET_MEMBERS: [&str; 7] =
    ["legendFormat", "format", "instant", "range", "hide", "interval", "intervalFactor"];
/// Members of an annotation that a viewer needs.
const ANNOTATION_MEMBERS: [&str; 8] =
    ["name", "hide", "iconColor", "step", "titleFormat", "textFormat", "useValueForTime", "filter"];
/// Members of a variable that a viewer needs.
const VARIABLE_MEMBERS: [&str; 16] = [
    "name",
    "type",
    "label",
    "description",
    "hide",
    "multi",
    "includeAll",
    "allValue",
    "current",
    "options",
    "refresh",
    "regex",
    "sort",
    "auto",
    "auto_count",
    "auto_min",
];
/// Members of a panel that cause other requests to the server, or repeat its queries.
const PANEL_MEMBERS_LEFT_OUT: [&str; 6] =
    ["alert", "datasource", "libraryPanel", "scopedVars", "snapshotData", "targets"];

impl super::Dashboard {
    /// Returns the document for a viewer.
    pub fn view<'a>(&self, access: impl Fn(&str) -> VariableAccess<'a>) -> Value {
        let plugins = Plugins::of(&self.root, &self.variables);
        let mut document = Object::new();
        for name in MEMBERS {
            if let Some(value) = self.root.get(name) {
                document.insert(name.to_owned(), value.clone());
            }
        }
        document.insert("uid".to_owned(), json!(self.uid));
        for list in ["panels", "rows"] {
            strip_panels(&mut document, list, &plugins);
        }
        let list = self.root.get("templating").and_then(|templating| templating.get("list"));
        let variables = self.variables.iter().filter_map(|variable| {
            let raw = objects(list).find(|raw| member(raw, "name") == variable.name)?;
            Some(variable_view(variable, raw, access(&variable.name)))
        });
        document.insert("templating".to_owned(), json!({ "list": variables.collect::<Vec<_>>() }));
        let annotations: Vec<Value> = queried_annotations(&self.root, &plugins)
            .map(|(place, raw)| annotation_view(place, raw))
            .collect();
        if !annotations.is_empty() {
            document.insert("annotations".to_owned(), json!({ "list": annotations }));
        }
        let mut document = Value::Object(document);
        strip_links(&mut document);
        document
    }

    /// Returns how the value of each variable is chosen.
    pub fn variables_view<'a>(&self, access: impl Fn(&str) -> VariableAccess<'a>) -> Value {
        let view = |variable: &Variable| match access(&variable.name) {
            VariableAccess::Locked(values) => json!({ "access": "locked", "value": values }),
            VariableAccess::Open(values) => json!({ "access": "open", "values": values }),
            VariableAccess::Fixed => json!({ "access": "fixed", "value": variable.shown_values() }),
        };
        Value::Object(self.variables.iter().map(|one| (one.name.clone(), view(one))).collect())
    }
}

/// Returns an annotation that can be requested, by its index.
fn annotation_view(place: usize, raw: &Object) -> Value {
    let mut view = Object::new();
    for name in ANNOTATION_MEMBERS {
        if let Some(value) = raw.get(name) {
            view.insert(name.to_owned(), value.clone());
        }
    }
    view.insert("queried".to_owned(), json!(true));
    view.insert("place".to_owned(), json!(place));
    Value::Object(view)
}

fn variable_view(variable: &Variable, raw: &Object, access: VariableAccess<'_>) -> Value {
    let mut view = Object::new();
    for name in VARIABLE_MEMBERS {
        if let Some(value) = raw.get(name) {
            view.insert(name.to_owned(), value.clone());
        }
    }
    let chosen = |values: &[String]| match values {
        [one] if !variable.multi => json!({ "text": one, "value": one }),
        values => json!({ "text": values, "value": values }),
    };
    let options = |values: &[String]| -> Value {
        values.iter().map(|value| json!({ "text": value, "value": value })).collect()
    };
    let has_own_options = matches!(variable.kind.as_str(), "custom" | "interval" | "constant" | "textbox");
    match access {
        VariableAccess::Locked(values) => {
            view.insert("current".to_owned(), chosen(values));
            view.insert("options".to_owned(), options(values));
            view.remove("allValue");
            return Value::Object(view);
        }
        VariableAccess::Open(Some(values)) => {
            let saved = variable.shown_values();
            let is_allowed = |one: &String| values.contains(one) || one == ALL && variable.include_all;
            if !saved.iter().all(is_allowed) {
                view.insert("current".to_owned(), chosen(values.get(..1).unwrap_or_default()));
            }
            view.insert("options".to_owned(), options(values));
            return Value::Object(view);
        }
        VariableAccess::Fixed if !has_own_options => {
            // The options were found when the document was saved, in data that the viewer may not
            // see.
            let saved = variable.shown_values();
            let shown: Vec<String> = saved.into_iter().filter(|value| value != ALL).collect();
            view.insert("options".to_owned(), options(&shown));
        }
        VariableAccess::Open(None) if variable.kind == "adhoc" => {
            // The viewer may change the filters, and so sees them.
            let saved = raw.get("filters").filter(|list| !list.is_null());
            let current = raw.get("current").and_then(|current| current.get("filters"));
            if let Some(filters) = saved.or(current) {
                view.insert("filters".to_owned(), filters.clone());
            }
        }
        VariableAccess::Open(None) if !has_own_options => {
            view.remove("options");
        }
        VariableAccess::Open(None) | VariableAccess::Fixed => {}
    }
    if has_own_options {
        for name in ["query", "valuesFormat"] {
            if let Some(value) = raw.get(name) {
                view.insert(name.to_owned(), value.clone());
            }
        }
    }
    Value::Object(view)
}

fn strip_panels(owner: &mut Object, list: &str, plugins: &Plugins) {
    for panel in owner.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(panel) = panel.as_object_mut() {
            strip_panel(panel, plugins);
        }
    }
}

fn strip_panel(panel: &mut Object, plugins: &Plugins) {
    let targets: Vec<&Object> = objects(panel.get("targets")).collect();
    let is_foreign = !targets.is_empty() && !targets.iter().any(|target| plugins.is_ours(panel, target));
    let lists_dashboards =
        ["dashlist", "dashboardlist", "alertlist"].contains(&member(panel, "type").as_str());
    if is_foreign || lists_dashboards {
        panel.retain(|name, _| ["id", "type", "title", "gridPos", "span", "height"].contains(&name.as_str()));
        return;
    }
    let views = targets.iter().zip(ref_ids(panel)).map(|(target, ref_id)| {
        let mut view = Object::new();
        view.insert("refId".to_owned(), json!(ref_id));
        for name in TARGET_MEMBERS {
            if let Some(value) = target.get(name) {
                view.insert(name.to_owned(), value.clone());
            }
        }
        view.insert("queried".to_owned(), json!(is_queried(plugins, panel, target)));
        Value::Object(view)
    });
    let views: Vec<Value> = views.collect();
    let has_targets = panel.contains_key("targets");
    panel.retain(|name, _| !PANEL_MEMBERS_LEFT_OUT.contains(&name.as_str()));
    if has_targets {
        panel.insert("targets".to_owned(), Value::Array(views));
    }
    strip_panels(panel, "panels", plugins);
}

/// Removes links to dashboards from all parts of a document. The depth of a stored document bounds
/// the recursion.
fn strip_links(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(strip_links),
        Value::Object(object) => {
            for name in ["links", "dataLinks"] {
                if let Some(links) = object.get_mut(name).and_then(Value::as_array_mut) {
                    links.retain(is_outward);
                }
            }
            // A property of an override: `{"id": "links", "value": [...]}`.
            if object.get("id") == Some(&json!("links"))
                && let Some(links) = object.get_mut("value").and_then(Value::as_array_mut)
            {
                links.retain(is_outward);
            }
            if object.get("linkUrl").and_then(Value::as_str).is_some_and(names_dashboard) {
                object.remove("linkUrl");
            }
            object.values_mut().for_each(strip_links);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn names_dashboard(url: &str) -> bool {
    ["/d/", "/d-solo/", "/dashboard", "dashboards/"].iter().any(|part| url.contains(part))
}

/// Returns whether a link leads to something else than a dashboard.
fn is_outward(link: &Value) -> bool {
    let Some(link) = link.as_object() else { return false };
    let url = member(link, "url");
    !url.is_empty()
        && !names_dashboard(&url)
        && !["dashboards", "dashboard"].contains(&member(link, "type").as_str())
        && !["dashUri", "dashboard"].iter().any(|name| link.contains_key(*name))
        && !flag(link, "asDropdown")
}
