//! The modules that are served together, as a table for the build script and the tests.

use super::bundle::Chunks;

/// The first module of each bundle, and its other files.
///
/// The cabinet's `app.js` has the modules that every page needs. A module that several files need
/// is in the first of them, which is loaded with the others. So files whose modules are shared by
/// many others come first.
pub(crate) const BUNDLES: &[(&str, &Chunks<'_>)] = &[
    ("app.js", &Chunks { files: CABINET, complete: false }),
    ("docs.js", &Chunks { files: &[], complete: true }),
    ("shared.js", &Chunks { files: &[], complete: true }),
    ("embed.js", &Chunks { files: CHART, complete: true }),
    ("embed-alerts.js", &Chunks { files: ALERTS, complete: true }),
    ("embed-dashboard.js", &Chunks { files: DASHBOARD, complete: true }),
];

/// The files of the element for charts: the live stream, explanations of errors and retries; and
/// the cursor with its tooltip, which the first event of a reader loads.
const CHART: &[(&str, &[&str])] =
    &[("chart/later.js", &["chart/later.js"]), ("chart/cursor.js", &["chart/cursor.js"])];

/// The files of the cabinet.
const CABINET: &[(&str, &[&str])] = &[
    (
        "app.parts.js",
        &[
            "pages/sign_in.js",
            "pages/set_up.js",
            "pages/invitation.js",
            "pages/mailed.js",
            "pages/home.js",
            "components/command_palette.js",
            "components/buttons.js",
            "components/copy.js",
            "components/dialog.js",
            "components/form.js",
            "components/parts.js",
            "components/popup.js",
            "components/tabs.js",
            "model/duration.js",
            "model/snippets.js",
            "pages/metrics.js",
        ],
    ),
    (
        "app.model.js",
        &[
            "model/dashboard.js",
            "model/units.js",
            "model/promql_tokens.js",
            "chart/pen.js",
            "chart/tip.js",
            "chart/retry.js",
            "components/query_input.js",
            "components/time_range_form.js",
            "model/variable_query.js",
        ],
    ),
    (
        "app.dashboard.js",
        &[
            "pages/dashboard.js",
            "panels/timeseries.js",
            "panels/stat.js",
            "panels/gauge.js",
            "panels/bargauge.js",
            "panels/table.js",
            "panels/text.js",
            "panels/list.js",
            "model/transformations/index.js",
        ],
    ),
    (
        "app.panels.js",
        &[
            "panels/heatmap.js",
            "panels/state_timeline.js",
            "panels/barchart.js",
            "panels/piechart.js",
            "panels/histogram.js",
        ],
    ),
    ("app.chart.js", &["embed.js", "chart/later.js"]),
    (
        "app.explore.js",
        &[
            "pages/explore.js",
            "components/zone_field.js",
            "components/query_input/completion.js",
            "components/result_panel.js",
            "components/result_table.js",
            "components/explain_view.js",
            "components/query_history.js",
            "components/estimate.js",
            "components/raw_samples.js",
            "components/export_menu.js",
            "components/chart_picture.js",
            "components/add_to_dashboard.js",
            "components/newest.js",
        ],
    ),
    ("app.data.js", &["pages/series.js", "pages/ingest.js", "pages/add_data.js", "pages/dashboards.js"]),
    ("app.targets.js", &["pages/targets.js"]),
    ("app.alerts.js", &["pages/alerts.js", "pages/rules.js"]),
    ("app.organisation.js", &["pages/organisation.js", "pages/account.js", "components/key_dialog.js"]),
    ("app.share.js", &["components/share_dialog/open.js"]),
    (
        "app.edit.js",
        &[
            "components/draft_bar.js",
            "components/edit_mode.js",
            "components/dashboard_json.js",
            "components/dashboard_versions.js",
        ],
    ),
    ("app.editor.js", &["components/panel_editor.js", "components/variable_editor.js"]),
];

/// The files of the element for dashboards.
const DASHBOARD: &[(&str, &[&str])] = &[
    (
        "embed-dashboard.controls.js",
        &["components/time_control.js", "components/variable_bar.js", "components/filter_editor.js"],
    ),
    ("embed-dashboard.live.js", &["embedded/live.js", "chart/later.js"]),
    ("embed-dashboard.plots.js", &["panels/timeseries.js", "components/annotation_source.js"]),
    (
        "embed-dashboard.values.js",
        &["panels/stat.js", "panels/gauge.js", "panels/bargauge.js", "panels/table.js", "panels/text.js"],
    ),
    (
        "embed-dashboard.more.js",
        &[
            "panels/heatmap.js",
            "panels/state_timeline.js",
            "panels/barchart.js",
            "panels/piechart.js",
            "panels/histogram.js",
            "model/transformations/index.js",
            "model/import_legacy.js",
        ],
    ),
    ("embed-dashboard.chart.js", &["embed.js"]),
];

/// The file of the element for alerts: explanations of errors, and retries.
const ALERTS: &[(&str, &[&str])] = &[("embed-alerts.later.js", &["chart/later.js"])];
