//! The panels of a document and their queries.

use std::collections::HashMap;

use serde_json::Value;

use super::json::{Object, flag, member, number, objects};
use super::variables::{Selections, Variable, variables_of};

/// Panels that have no queries.
const PANELS_WITHOUT_QUERIES: [&str; 5] = ["text", "row", "alertlist", "dashlist", "dashboardlist"];
/// Data source plugins that speak PromQL.
const PROMETHEUS: [&str; 5] = [
    "prometheus",
    "grafana-amazonprometheus-datasource",
    "grafana-azureprometheus-datasource",
    "victoriametrics-metrics-datasource",
    "victoriametrics-datasource",
];

/// A stored dashboard.
#[derive(Clone, Debug)]
pub struct Dashboard {
    /// The document.
    pub(super) root: Object,
    /// Title.
    pub title: String,
    /// Uid in the document, for `${__dashboard.uid}`.
    pub(super) uid: String,
    /// The panels that have queries, in the order of the document.
    pub panels: Vec<Panel>,
    /// The variables, in the order of the document.
    pub variables: Vec<Variable>,
    /// The enabled annotations whose query can be evaluated.
    annotations: Vec<Annotation>,
}

/// An annotation with a query.
#[derive(Clone, Debug)]
struct Annotation {
    /// The place in the list of the document.
    place: usize,
    expr: String,
}

/// A panel with its queries.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Id, if the document has a whole number.
    pub id: Option<i64>,
    /// The queries that can be evaluated and are not hidden.
    pub targets: Vec<Target>,
    /// The variables for whose values the panel, or its row, is repeated.
    pub repeats: Vec<String>,
    /// Title, with references to variables.
    title: String,
    /// The unit of its values, such as `percentunit`; may be empty.
    pub unit: String,
    /// Lines, bars or points, and stacks of them.
    pub look: PanelLook,
}

/// How a panel draws samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PanelDraw {
    /// Lines.
    #[default]
    Line,
    /// Bars.
    Bars,
    /// Points.
    Points,
}

/// How the series of a panel are stacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PanelStacking {
    /// Not stacked.
    #[default]
    None,
    /// Stacked by their values.
    Normal,
    /// Stacked by their shares of the sum.
    Percent,
}

/// The look of the series of a panel, without overrides of single series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PanelLook {
    /// How samples are drawn.
    pub draw: PanelDraw,
    /// How the series are stacked.
    pub stacking: PanelStacking,
    /// The opacity of bars and areas in percent, if the panel states one.
    pub fill_percent: Option<u8>,
}

impl PanelLook {
    /// Reads the look of a panel of time series, also of one of the older plugin `graph`.
    fn of(raw: &Object) -> PanelLook {
        let percent = |value: Option<f64>| {
            let percent = value?.clamp(0.0, 100.0).round();
            format!("{percent:.0}").parse().ok()
        };
        if member(raw, "type") == "graph" {
            let [bars, lines, points] = ["bars", "lines", "points"].map(|name| flag(raw, name));
            let draw = match (bars, lines, points) {
                (true, ..) => PanelDraw::Bars,
                (_, false, true) => PanelDraw::Points,
                _ => PanelDraw::Line,
            };
            let stacking = match (flag(raw, "stack"), flag(raw, "percentage")) {
                (false, _) => PanelStacking::None,
                (true, false) => PanelStacking::Normal,
                (true, true) => PanelStacking::Percent,
            };
            let fill = if bars { Some(10.0) } else { number(raw.get("fill")) };
            return PanelLook { draw, stacking, fill_percent: percent(fill.map(|fill| fill * 10.0)) };
        }
        let custom = raw.get("fieldConfig").and_then(|config| config.get("defaults")?.get("custom"));
        let Some(custom) = custom.and_then(Value::as_object) else { return PanelLook::default() };
        let draw = match member(custom, "drawStyle").as_str() {
            "bars" => PanelDraw::Bars,
            "points" => PanelDraw::Points,
            _ => PanelDraw::Line,
        };
        let stacking = custom.get("stacking").and_then(Value::as_object).map(|one| member(one, "mode"));
        let stacking = match stacking.as_deref() {
            Some("normal") => PanelStacking::Normal,
            Some("percent") => PanelStacking::Percent,
            _ => PanelStacking::None,
        };
        PanelLook { draw, stacking, fill_percent: percent(number(custom.get("fillOpacity"))) }
    }
}

/// A query of a panel.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name within the panel, such as `A`.
    pub ref_id: String,
    /// The expression, with references to variables.
    pub expr: String,
    /// The names of its series, with `{{label}}` and references to variables in it.
    legend: String,
}

impl Dashboard {
    /// Reads a stored document; `uid` is that of its row. Members with unexpected types count as
    /// missing.
    ///
    /// # Errors
    /// The error of a text that is not a JSON object.
    pub fn parse(uid: &str, text: &str) -> Result<Dashboard, serde_json::Error> {
        let mut root: Object = serde_json::from_str(text)?;
        merge_library_panels(&mut root);
        let variables = variables_of(&root);
        let plugins = Plugins::of(&root, &variables);
        let panels = panels_of(&root, &plugins);
        let annotations = queried_annotations(&root, &plugins)
            .map(|(place, raw)| Annotation { place, expr: annotation_expr(raw) })
            .collect();
        let title = member(&root, "title");
        Ok(Dashboard { title, uid: uid.to_owned(), panels, variables, annotations, root })
    }

    /// Returns the query with this name of a panel with this id.
    pub fn target(&self, panel: i64, ref_id: &str) -> Option<(&Panel, &Target)> {
        let named = self.panels.iter().filter(|candidate| candidate.id == Some(panel));
        let targets = named.flat_map(|panel| panel.targets.iter().map(move |target| (panel, target)));
        targets.into_iter().find(|(_, target)| target.ref_id == ref_id)
    }

    /// Returns the panel with this id.
    pub fn panel(&self, id: i64) -> Option<&Panel> {
        self.panels.iter().find(|candidate| candidate.id == Some(id))
    }

    /// Returns the expression of the annotation at this place in the list of the document, if it is
    /// enabled and can be evaluated.
    pub fn annotation(&self, place: usize) -> Option<&str> {
        let found = self.annotations.iter().find(|annotation| annotation.place == place);
        found.map(|annotation| annotation.expr.as_str())
    }

    /// Returns the variable with this name.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }

    /// Returns the time zone of the document, such as `utc` or `browser`.
    pub(super) fn time_zone(&self) -> String {
        Some(member(&self.root, "timezone")).filter(|zone| !zone.is_empty()).unwrap_or("browser".into())
    }
}

impl Panel {
    /// Returns the title with the selected values.
    pub fn title(&self, selections: &Selections) -> String {
        labelled(&self.title, selections)
    }
}

impl Target {
    /// Returns the names of the series with the selected values, and `{{label}}` in them. `None`
    /// names each series by its labels.
    pub fn legend(&self, selections: &Selections) -> Option<String> {
        let is_own = !self.legend.is_empty() && self.legend != "__auto";
        is_own.then(|| labelled(&self.legend, selections))
    }
}

/// The most characters of a title or legend that are read, and the bytes after which no further
/// value is added.
const LABELLED_MAX: usize = 4_096;

/// Replaces references to variables by the texts of their values, for people to read. Formats are
/// ignored.
fn labelled(text: &str, selections: &Selections) -> String {
    let mut out = String::new();
    let mut rest = text.char_indices().nth(LABELLED_MAX).map_or(text, |(end, _)| &text[..end]);
    while let Some(at) = rest.find(['$', '[']).filter(|_| out.len() < LABELLED_MAX) {
        let (before, here) = rest.split_at(at);
        out.push_str(before);
        let end = match here.as_bytes() {
            [b'$', b'{', ..] => here.find('}').map(|end| end + 1),
            [b'[', b'[', ..] => here.find("]]").map(|end| end + 2),
            [b'$', ..] => {
                let word = here.bytes().skip(1).take_while(|b| b.is_ascii_alphanumeric() || *b == b'_');
                Some(1 + word.count())
            }
            _ => None,
        };
        let (found, after) = here.split_at(end.unwrap_or(1));
        match reference(found).and_then(|name| selections.get(name)) {
            Some(selection) => out.push_str(&selection.texts.join(" + ")),
            None => out.push_str(found),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Puts the models of library panels, which an exported document has in `__elements`, into the
/// panels that refer to them.
fn merge_library_panels(root: &mut Object) {
    let Some(Value::Object(elements)) = root.remove("__elements") else { return };
    let merge = |panel: &mut Value| {
        let Some(panel) = panel.as_object_mut() else { return };
        let uid = panel.get("libraryPanel").and_then(|library| library.get("uid")?.as_str());
        let model = uid.and_then(|uid| elements.get(uid)?.get("model")?.as_object());
        for (name, value) in model.cloned().unwrap_or_default() {
            panel.entry(name).or_insert(value);
        }
    };
    for list in ["panels", "rows"] {
        for panel in root.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            merge(panel);
            panel.get_mut("panels").and_then(Value::as_array_mut).into_iter().flatten().for_each(merge);
        }
    }
}

/// The plugins of the data sources that a document names.
pub(super) struct Plugins(HashMap<String, String>);

impl Plugins {
    pub(super) fn of(root: &Object, variables: &[Variable]) -> Plugins {
        let inputs = objects(root.get("__inputs"));
        let inputs = inputs.filter(|input| member(input, "type") == "datasource");
        let mut plugins: HashMap<String, String> =
            inputs.map(|input| (member(input, "name"), member(input, "pluginId"))).collect();
        let sources = variables.iter().filter(|variable| variable.kind == "datasource");
        plugins.extend(sources.map(|variable| (variable.name.clone(), variable.query_text())));
        Plugins(plugins)
    }

    /// Returns the plugin of a text; empty for the default data source and unknown names.
    fn named(&self, text: &str) -> &str {
        if let Some(name) = reference(text) {
            return self.0.get(name).map_or("", String::as_str);
        }
        match text {
            "-- Mixed --" => "mixed",
            "-- Grafana --" | "grafana" => "grafana",
            "-- Dashboard --" => "dashboard",
            "__expr__" | "-100" => "__expr__",
            _ => "",
        }
    }

    fn of_source<'p>(&'p self, source: Option<&'p Value>) -> &'p str {
        let Some(source) = source.and_then(Value::as_object) else {
            return self.named(source.and_then(Value::as_str).unwrap_or_default());
        };
        let uid = self.named(source.get("uid").and_then(Value::as_str).unwrap_or_default());
        let kind = source.get("type").and_then(Value::as_str).unwrap_or_default();
        match (uid, kind, self.named(kind)) {
            ("", "", _) => "",
            ("", "datasource", _) => "grafana",
            ("", kind, "") if kind.contains('$') => "",
            ("", kind, "") => kind,
            ("", _, named) => named,
            (uid, ..) => uid,
        }
    }

    /// Returns whether a query of a panel has a data source of this server.
    pub(super) fn is_ours(&self, panel: &Object, target: &Object) -> bool {
        let own = self.of_source(target.get("datasource").filter(|source| !source.is_null()));
        let plugin = if own.is_empty() { self.of_source(panel.get("datasource")) } else { own };
        plugin.is_empty() || plugin == "mixed" || PROMETHEUS.contains(&plugin)
    }
}

/// Returns the name in `$name`, `${name}` or `[[name]]`.
fn reference(text: &str) -> Option<&str> {
    let name = match text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) {
        Some(inner) => inner.split(['.', ':']).next()?,
        None => text
            .strip_prefix("[[")
            .and_then(|rest| rest.strip_suffix("]]"))
            .or_else(|| text.strip_prefix('$'))?,
    };
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (!name.is_empty() && name.bytes().all(word)).then_some(name)
}

/// Returns whether the panel is a saved copy of a repeated one, which is made again from its
/// original.
fn is_repeated_copy(panel: &Object) -> bool {
    number(panel.get("repeatPanelId")).is_some() && member(panel, "repeat").is_empty()
}

/// Returns the names of a panel's queries. Queries without one, or with that of an earlier one, get
/// the first free one of `A`, `B`, and so on.
pub(super) fn ref_ids(panel: &Object) -> Vec<String> {
    let targets = || objects(panel.get("targets"));
    let mut taken: Vec<String> = targets().map(|target| member(target, "refId")).collect();
    taken.retain(|name| !name.is_empty());
    let mut names = Vec::new();
    for target in targets() {
        let mut name = member(target, "refId");
        if name.is_empty() || names.contains(&name) {
            let letter = |count: u32| char::from(b'A' + u8::try_from(count % 26).unwrap_or_default());
            let candidates = (0_u32..).map(|count| match count / 26 {
                0 => letter(count).to_string(),
                round => format!("{}{}", letter(round - 1), letter(count)),
            });
            name = candidates.into_iter().find(|name| !taken.contains(name)).unwrap_or_default();
            taken.push(name.clone());
        }
        names.push(name);
    }
    names
}

/// Returns whether a query can be evaluated and requested.
pub(super) fn is_queried(plugins: &Plugins, panel: &Object, target: &Object) -> bool {
    let is_shown = !flag(target, "hide") && !PANELS_WITHOUT_QUERIES.contains(&member(panel, "type").as_str());
    is_shown && plugins.is_ours(panel, target) && !member(target, "expr").trim().is_empty()
}

/// Returns the annotations that are enabled and come from a PromQL query, with their places.
pub(super) fn queried_annotations<'d>(
    root: &'d Object,
    plugins: &'d Plugins,
) -> impl Iterator<Item = (usize, &'d Object)> {
    let list = root.get("annotations").and_then(|annotations| annotations.get("list"));
    objects(list).enumerate().filter(|(_, raw)| {
        let is_enabled = raw.get("enable") != Some(&Value::Bool(false));
        let is_built_in = flag(raw, "builtIn") || number(raw.get("builtIn")) == Some(1.0);
        let target = raw.get("target").and_then(Value::as_object);
        let is_ours = plugins.is_ours(raw, target.unwrap_or(raw));
        is_enabled && !is_built_in && is_ours && !annotation_expr(raw).trim().is_empty()
    })
}

/// Returns the expression of an annotation, which newer documents have in a target.
fn annotation_expr(raw: &Object) -> String {
    let of_target = || raw.get("target").and_then(Value::as_object).map(|target| member(target, "expr"));
    Some(member(raw, "expr")).filter(|expr| !expr.is_empty()).or_else(of_target).unwrap_or_default()
}

/// Returns the unit in the field configuration, or in the axes of a panel of an older plugin.
fn unit_of(raw: &Object) -> String {
    let configured = raw.get("fieldConfig").and_then(|config| config.get("defaults")?.get("unit")?.as_str());
    let of_axis = || raw.get("yaxes").and_then(|axes| axes.get(0)?.get("format")?.as_str());
    configured.or_else(of_axis).unwrap_or_default().to_owned()
}

fn panel_of(raw: &Object, plugins: &Plugins, rows: &[&str]) -> Panel {
    let id = number(raw.get("id")).filter(|id| id.fract() == 0.0 && id.abs() < 9e15);
    let named = objects(raw.get("targets")).zip(ref_ids(raw));
    let targets = named.filter(|(target, _)| is_queried(plugins, raw, target));
    let repeats = rows.iter().map(|repeat| (*repeat).to_owned()).chain([member(raw, "repeat")]);
    Panel {
        id: id.and_then(|id| format!("{id:.0}").parse().ok()),
        targets: targets
            .map(|(target, ref_id)| Target {
                ref_id,
                expr: member(target, "expr"),
                legend: member(target, "legendFormat"),
            })
            .collect(),
        title: member(raw, "title"),
        unit: unit_of(raw),
        look: PanelLook::of(raw),
        repeats: repeats.filter(|repeat| !repeat.is_empty()).collect(),
    }
}

fn panels_of(root: &Object, plugins: &Plugins) -> Vec<Panel> {
    let mut panels = Vec::new();
    let mut placed: Vec<&Object> =
        objects(root.get("panels")).filter(|panel| !is_repeated_copy(panel)).collect();
    // A row owns the panels after it, in the order of their places.
    let place = |panel: &&Object, axis: &str| {
        let at = panel.get("gridPos").and_then(|place| number(place.get(axis)));
        at.unwrap_or(f64::MAX)
    };
    placed.sort_by(|a, b| {
        place(a, "y").total_cmp(&place(b, "y")).then(place(a, "x").total_cmp(&place(b, "x")))
    });
    let mut row = String::new();
    for raw in placed {
        if member(raw, "type") != "row" {
            panels.push(panel_of(raw, plugins, &[&row]));
            continue;
        }
        row = member(raw, "repeat");
        panels.extend(objects(raw.get("panels")).map(|inner| panel_of(inner, plugins, &[&row])));
    }
    for raw in objects(root.get("rows")) {
        let row = member(raw, "repeat");
        panels.extend(objects(raw.get("panels")).map(|inner| panel_of(inner, plugins, &[&row])));
    }
    panels
}
