//! The web UI: hand-written HTML, CSS and ES modules, compiled into the binary.
//!
//! There is no third-party code. The sources in `assets/` are plain ES modules, which
//! [`Ui::from_dir`] serves as they are. The binary has bundles of them, with short names and
//! without comments and white space, which the build script makes (`bundles.rs`, `bundle.rs`,
//! `minify.rs`). [`FILES`] lists every file once, with its paths. The pages comply with the policy
//! of docs/specification.md B (`default-src 'self'; frame-ancestors 'none'; base-uri 'none';
//! form-action 'self'`): no inline script, no inline style, no event-handler attributes, and no
//! address of another host. The tests of this module check that.
//!
//! ```text
//! /  /login  /login/*  /setup      index.html  one small page; the path selects the view
//! /invite  /account  /organisation
//! /explore  /series  /ingest       queries, metrics, how to add data
//! /targets  /alerts  /rules        what is scraped, alerts and silences, groups of rules
//! /dashboards  /dashboard          the list, and the one of `?uid=`
//! /app.js                          entry of the cabinet: session, and the page of the address
//! /pages/*.js                      one view a file: sign-in, set-up, explore, account, ...
//! /components/*.js                 parts that pages share: forms, dialogs, the query input, tables
//! /panels/*.js                     one kind of dashboard panel a file
//! /plot/*.js                       what panels share: scales, canvas, legend, single values
//! /model/*.js                      pure functions without a DOM, also run by node's test runner
//! /client/*.js                     requests to the API, and types of its answers; /api is the API
//! /share  /frame                   shared.html: one dashboard, by public link or embed token
//! /docs  /docs.css  /docs.js       a viewer of /api/v1/openapi.json, unless that is off;
//!                                  its parts are /docs/*.js
//! /app.css  /panels.css  /cabinet.css  /favicon.svg
//! /dashboards/*.json               the built-in dashboards, in Grafana's JSON
//! /embed-dashboard.js              the element <metric-dashboard>; its parts are /embedded/*.js
//! /embed-alerts.js                 the element <metric-alerts>; its parts are /alert_list/*.js
//! /embed.js  /chart/*.js           the element <metric-chart>, loadable from any origin; its types
//! /embed.d.ts
//! ```
//!
//! Each file that the binary serves, except pages, has a second path below `/assets/<hash>`, where
//! the hash covers all files of the binary. Pages refer to these paths, so browsers never
//! revalidate them, and a new binary changes all of them at once. A module is served in its bundle
//! alone ([`BUNDLES`]): `/app.js` and the files beside it for the cabinet; `/embed.js`,
//! `/embed-alerts.js` and `/embed-dashboard.js` for pages of other origins. These load further
//! files with their version in the query, such as `/chart/later.js?v=0123abcd`, which is immutable,
//! too.
//!
//! This room does not use HTTP: `api` turns an [`Asset`] into a response.

#[cfg(test)]
mod bundle;
#[cfg(test)]
mod bundles;
#[cfg(test)]
mod imports;
#[cfg(test)]
mod minify;
#[cfg(test)]
mod short_names;
#[cfg(test)]
mod tokens;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

/// The maximal size in bytes of a file that is read from a folder ([`Ui::from_dir`]). The largest
/// source is a tenth of it, so a larger file is a mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The type of a file, which decides its headers: only a [`AssetKind::Page`] gets the content
/// security policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssetKind {
    /// HTML.
    Page,
    /// JavaScript, always an ES module.
    Module,
    /// CSS.
    Style,
    /// SVG.
    Image,
    /// JSON.
    Data,
    /// Types of TypeScript, for projects that copy the file.
    Types,
}

impl AssetKind {
    /// The value of `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Page => "text/html; charset=utf-8",
            Self::Module => "text/javascript; charset=utf-8",
            Self::Style => "text/css; charset=utf-8",
            Self::Image => "image/svg+xml",
            Self::Data => "application/json",
            Self::Types => "text/plain; charset=utf-8",
        }
    }
}

/// One file, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// The body.
    pub bytes: Cow<'static, [u8]>,
    /// The value of `ETag` with quotes. It changes whenever the bytes change.
    pub etag: String,
    /// The type of the file.
    pub kind: AssetKind,
    /// Whether pages of other origins load this file. Modules are fetched with CORS, so such a file
    /// needs `Access-Control-Allow-Origin: *` (and never credentials).
    pub any_origin: bool,
    /// The name of the file if its path contains the hash of its content: the path returns the same
    /// bytes for ever.
    pub immutable: Option<&'static str>,
    /// The version of the element for other origins that loads this file later, as `v` in the query
    /// of its address.
    pub version: Option<Cow<'static, str>>,
    /// A key of these bytes, if they are sent often and never change while the program runs: its
    /// files with an immutable path, and those for pages of other origins.
    pub key: Option<&'static str>,
}

impl Asset {
    fn new(file: &Embedded, bytes: Cow<'static, [u8]>) -> Self {
        Self {
            content_type: file.kind.content_type(),
            etag: format!("\"{:016x}\"", fnv(FNV_START, &bytes)),
            bytes,
            kind: file.kind,
            any_origin: file.any_origin,
            immutable: None,
            version: None,
            key: None,
        }
    }

    fn of_element(file: &ElementFile) -> Self {
        Self {
            content_type: AssetKind::Module.content_type(),
            etag: format!("\"{:016x}\"", file.hash()),
            bytes: Cow::Owned(file.bytes.clone()),
            kind: AssetKind::Module,
            any_origin: true,
            immutable: None,
            version: Some(Cow::Owned(file.version.clone())),
            key: None,
        }
    }

    /// Returns whether pages of other origins name this file: it is the first one of an element.
    pub fn is_element(&self) -> bool {
        self.kind == AssetKind::Module && self.any_origin && self.key.is_some() && self.version.is_none()
    }

    /// Returns whether a request with this `If-None-Match` already has these bytes (RFC 9110
    /// section 13.1.2, weak comparison), so that the response is 304 without a body.
    pub fn is_held(&self, if_none_match: &str) -> bool {
        if_none_match
            .split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || tag.trim_start_matches("W/") == self.etag)
    }
}

/// A file of `assets/`.
struct Embedded {
    /// The path below `assets/`, and below the folder of [`Ui::from_dir`].
    name: &'static str,
    /// The URL paths of the file.
    paths: &'static [&'static str],
    kind: AssetKind,
    any_origin: bool,
    /// The served bytes; empty for a module, which is served in a bundle.
    bytes: &'static [u8],
}

macro_rules! files {
    ($($kind:ident $origin:ident $name:literal => [$($path:literal),+];)+) => {
        &[$(Embedded {
            name: $name,
            paths: &[$($path),+],
            kind: AssetKind::$kind,
            any_origin: files!(@ $origin),
            bytes: files!(@ $kind $name),
        }),+]
    };
    (@ Module $name:literal) => { &[] };
    (@ $kind:ident $name:literal) => { include_bytes!(concat!(env!("OUT_DIR"), "/ui/", $name)) };
    (@ own) => { false };
    (@ any) => { true };
}

/// The path of the page for URLs that do not exist.
pub const NOWHERE: &str = "/nowhere";

/// Every file of the folder, once. A new file needs a row here; the tests compare the table with
/// the folder.
const FILES: &[Embedded] = files! {
    Page   own "index.html" => ["/", "/login", "/login/2fa", "/login/reset", "/login/signup", "/login/email", "/setup", "/invite", "/account", "/organisation", "/dashboards", "/dashboard", "/explore", "/series", "/targets", "/alerts", "/rules", "/ingest"];
    Page   own "nowhere.html" => ["/nowhere"];
    Page   own "shared.html" => ["/share", "/frame"];
    Style  own "app.css" => ["/app.css"];
    Style  own "cabinet.css" => ["/cabinet.css"];
    Style  own "panels.css" => ["/panels.css"];
    Style  own "shared.css" => ["/shared.css"];
    Style  own "embed-dashboard.css" => ["/embed-dashboard.css"];
    Data   own "dashboards/host.json" => ["/dashboards/host.json"];
    Data   own "dashboards/promlet.json" => ["/dashboards/promlet.json"];
    Data   own "dashboards/shop.json" => ["/dashboards/shop.json"];
    Image  own "favicon.svg" => ["/favicon.svg"];
    Page   own "docs.html" => ["/docs"];
    Style  own "docs.css" => ["/docs.css"];
    Module own "docs.js" => ["/docs.js"];
    Module own "shared.js" => ["/shared.js"];
    Module own "docs/request_form.js" => ["/docs/request_form.js"];
    Module own "docs/schema.js" => ["/docs/schema.js"];
    Module any "embed.js" => ["/embed.js"];
    Module any "embed-alerts.js" => ["/embed-alerts.js"];
    Module own "alert_list/style.js" => ["/alert_list/style.js"];
    Module own "alert_list/times.js" => ["/alert_list/times.js"];
    Module own "alert_list/view.js" => ["/alert_list/view.js"];
    Module any "embed-dashboard.js" => ["/embed-dashboard.js"];
    Module own "embedded/annotations.js" => ["/embedded/annotations.js"];
    Module own "embedded/dashboard.js" => ["/embedded/dashboard.js"];
    Module own "embedded/live.js" => ["/embedded/live.js"];
    Module own "embedded/sheets.js" => ["/embedded/sheets.js"];
    Module own "embedded/source.js" => ["/embedded/source.js"];
    Module own "embedded/variables.js" => ["/embedded/variables.js"];
    Module own "embedded/view.js" => ["/embedded/view.js"];
    Module own "embedded/words.js" => ["/embedded/words.js"];
    Types  any "embed.d.ts" => ["/embed.d.ts"];
    Module any "chart/api_error.js" => ["/chart/api_error.js"];
    Module any "chart/attributes.js" => ["/chart/attributes.js"];
    Module any "chart/columns.js" => ["/chart/columns.js"];
    Module any "chart/cursor.js" => ["/chart/cursor.js"];
    Module any "chart/cursor_canvas.js" => ["/chart/cursor_canvas.js"];
    Module any "chart/cursor_style.js" => ["/chart/cursor_style.js"];
    Module any "chart/diagnosis.js" => ["/chart/diagnosis.js"];
    Module any "chart/dom.js" => ["/chart/dom.js"];
    Module any "chart/event_reader.js" => ["/chart/event_reader.js"];
    Module any "chart/follower.js" => ["/chart/follower.js"];
    Module any "chart/later.js" => ["/chart/later.js"];
    Module any "chart/legend.js" => ["/chart/legend.js"];
    Module any "chart/live_hub.js" => ["/chart/live_hub.js"];
    Module any "chart/live_points.js" => ["/chart/live_points.js"];
    Module any "chart/loader.js" => ["/chart/loader.js"];
    Module any "chart/paint.js" => ["/chart/paint.js"];
    Module any "chart/pen.js" => ["/chart/pen.js"];
    Module any "chart/pointer.js" => ["/chart/pointer.js"];
    Module any "chart/problems.js" => ["/chart/problems.js"];
    Module any "chart/properties.js" => ["/chart/properties.js"];
    Module any "chart/query.js" => ["/chart/query.js"];
    Module any "chart/request.js" => ["/chart/request.js"];
    Module any "chart/retry.js" => ["/chart/retry.js"];
    Module any "chart/scale.js" => ["/chart/scale.js"];
    Module any "chart/selection.js" => ["/chart/selection.js"];
    Module any "chart/shadow.js" => ["/chart/shadow.js"];
    Module any "chart/state.js" => ["/chart/state.js"];
    Module any "chart/style.js" => ["/chart/style.js"];
    Module any "chart/tip.js" => ["/chart/tip.js"];
    Module any "chart/token_source.js" => ["/chart/token_source.js"];
    Module any "chart/tooltip.js" => ["/chart/tooltip.js"];
    Module any "chart/visitor_words.js" => ["/chart/visitor_words.js"];
    Module any "chart/view.js" => ["/chart/view.js"];
    Module any "chart/visibility.js" => ["/chart/visibility.js"];
    Module own "app.js" => ["/app.js"];
    Module own "pages/account.js" => ["/pages/account.js"];
    Module own "pages/account_security.js" => ["/pages/account_security.js"];
    Module own "pages/add_data.js" => ["/pages/add_data.js"];
    Module own "pages/alerts.js" => ["/pages/alerts.js"];
    Module own "pages/dashboard.js" => ["/pages/dashboard.js"];
    Module own "pages/dashboards.js" => ["/pages/dashboards.js"];
    Module own "pages/explore.js" => ["/pages/explore.js"];
    Module own "pages/home.js" => ["/pages/home.js"];
    Module own "pages/ingest.js" => ["/pages/ingest.js"];
    Module own "pages/invitation.js" => ["/pages/invitation.js"];
    Module own "pages/mailed.js" => ["/pages/mailed.js"];
    Module own "pages/metrics.js" => ["/pages/metrics.js"];
    Module own "pages/organisation.js" => ["/pages/organisation.js"];
    Module own "pages/organisation_embeds.js" => ["/pages/organisation_embeds.js"];
    Module own "pages/organisation_engine.js" => ["/pages/organisation_engine.js"];
    Module own "pages/organisation_forward.js" => ["/pages/organisation_forward.js"];
    Module own "pages/organisation_keys.js" => ["/pages/organisation_keys.js"];
    Module own "pages/organisation_limits.js" => ["/pages/organisation_limits.js"];
    Module own "pages/organisation_members.js" => ["/pages/organisation_members.js"];
    Module own "pages/organisation_notifications.js" => ["/pages/organisation_notifications.js"];
    Module own "pages/rules.js" => ["/pages/rules.js"];
    Module own "pages/series.js" => ["/pages/series.js"];
    Module own "pages/set_up.js" => ["/pages/set_up.js"];
    Module own "pages/sign_in.js" => ["/pages/sign_in.js"];
    Module own "pages/targets.js" => ["/pages/targets.js"];
    Module own "components/add_to_dashboard.js" => ["/components/add_to_dashboard.js"];
    Module own "components/alert_chart.js" => ["/components/alert_chart.js"];
    Module own "components/annotation_source.js" => ["/components/annotation_source.js"];
    Module own "components/chart_picture.js" => ["/components/chart_picture.js"];
    Module own "components/audit_log.js" => ["/components/audit_log.js"];
    Module own "components/command_palette.js" => ["/components/command_palette.js"];
    Module own "components/confirm.js" => ["/components/confirm.js"];
    Module own "components/builtin_dashboards.js" => ["/components/builtin_dashboards.js"];
    Module own "components/cardinality/delete_series.js" => ["/components/cardinality/delete_series.js"];
    Module own "components/cardinality/overview.js" => ["/components/cardinality/overview.js"];
    Module own "components/cardinality/refused.js" => ["/components/cardinality/refused.js"];
    Module own "components/copy.js" => ["/components/copy.js"];
    Module own "components/dashboard_head.js" => ["/components/dashboard_head.js"];
    Module own "components/dashboard_json.js" => ["/components/dashboard_json.js"];
    Module own "components/dashboard_links.js" => ["/components/dashboard_links.js"];
    Module own "components/dashboard_settings.js" => ["/components/dashboard_settings.js"];
    Module own "components/dashboard_versions.js" => ["/components/dashboard_versions.js"];
    Module own "components/dialog.js" => ["/components/dialog.js"];
    Module own "components/buttons.js" => ["/components/buttons.js"];
    Module own "components/backfill_dialog.js" => ["/components/backfill_dialog.js"];
    Module own "components/group_editor.js" => ["/components/group_editor.js"];
    Module own "components/group_versions.js" => ["/components/group_versions.js"];
    Module own "components/live.js" => ["/components/live.js"];
    Module own "components/query_draft.js" => ["/components/query_draft.js"];
    Module own "components/embed_token.js" => ["/components/embed_token.js"];
    Module own "components/estimate.js" => ["/components/estimate.js"];
    Module own "components/explain_view.js" => ["/components/explain_view.js"];
    Module own "components/export_menu.js" => ["/components/export_menu.js"];
    Module own "components/filter_editor.js" => ["/components/filter_editor.js"];
    Module own "components/draft_bar.js" => ["/components/draft_bar.js"];
    Module own "components/draft_keeper.js" => ["/components/draft_keeper.js"];
    Module own "components/edit_bar.js" => ["/components/edit_bar.js"];
    Module own "components/edit_dialogs.js" => ["/components/edit_dialogs.js"];
    Module own "components/edit_grid.js" => ["/components/edit_grid.js"];
    Module own "components/edit_mode.js" => ["/components/edit_mode.js"];
    Module own "components/edited_panels.js" => ["/components/edited_panels.js"];
    Module own "components/editor_host.js" => ["/components/editor_host.js"];
    Module own "components/explore_link.js" => ["/components/explore_link.js"];
    Module own "components/form.js" => ["/components/form.js"];
    Module own "components/icons.js" => ["/components/icons.js"];
    Module own "components/import_dashboard.js" => ["/components/import_dashboard.js"];
    Module own "components/ingest/arrival.js" => ["/components/ingest/arrival.js"];
    Module own "components/ingest/key_card.js" => ["/components/ingest/key_card.js"];
    Module own "components/key_form.js" => ["/components/key_form.js"];
    Module own "components/key_dialog.js" => ["/components/key_dialog.js"];
    Module own "components/links_form.js" => ["/components/links_form.js"];
    Module own "components/menu.js" => ["/components/menu.js"];
    Module own "components/newest.js" => ["/components/newest.js"];
    Module own "components/panel_editor.js" => ["/components/panel_editor.js"];
    Module own "components/panel_editor/controls.js" => ["/components/panel_editor/controls.js"];
    Module own "components/panel_editor/draft.js" => ["/components/panel_editor/draft.js"];
    Module own "components/panel_editor/json_tab.js" => ["/components/panel_editor/json_tab.js"];
    Module own "components/panel_editor/links.js" => ["/components/panel_editor/links.js"];
    Module own "components/panel_editor/mappings.js" => ["/components/panel_editor/mappings.js"];
    Module own "components/panel_editor/options/grids.js" => ["/components/panel_editor/options/grids.js"];
    Module own "components/panel_editor/options/index.js" => ["/components/panel_editor/options/index.js"];
    Module own "components/panel_editor/options/series.js" => ["/components/panel_editor/options/series.js"];
    Module own "components/panel_editor/options/shared.js" => ["/components/panel_editor/options/shared.js"];
    Module own "components/panel_editor/options/values.js" => ["/components/panel_editor/options/values.js"];
    Module own "components/panel_editor/overrides.js" => ["/components/panel_editor/overrides.js"];
    Module own "components/panel_editor/pane.js" => ["/components/panel_editor/pane.js"];
    Module own "components/panel_editor/preview.js" => ["/components/panel_editor/preview.js"];
    Module own "components/panel_editor/queries.js" => ["/components/panel_editor/queries.js"];
    Module own "components/panel_editor/thresholds.js" => ["/components/panel_editor/thresholds.js"];
    Module own "components/panel_editor/transformation_forms.js" => ["/components/panel_editor/transformation_forms.js"];
    Module own "components/panel_editor/transformations.js" => ["/components/panel_editor/transformations.js"];
    Module own "components/panel_editor/unit.js" => ["/components/panel_editor/unit.js"];
    Module own "components/panel_frame.js" => ["/components/panel_frame.js"];
    Module own "components/panel_grid.js" => ["/components/panel_grid.js"];
    Module own "components/panel_runner.js" => ["/components/panel_runner.js"];
    Module own "components/panel_words.js" => ["/components/panel_words.js"];
    Module own "components/parts.js" => ["/components/parts.js"];
    Module own "components/popup.js" => ["/components/popup.js"];
    Module own "components/query_history.js" => ["/components/query_history.js"];
    Module own "components/query_input.js" => ["/components/query_input.js"];
    Module own "components/query_input/completion.js" => ["/components/query_input/completion.js"];
    Module own "components/query_input/highlight.js" => ["/components/query_input/highlight.js"];
    Module own "components/query_input/options_list.js" => ["/components/query_input/options_list.js"];
    Module own "components/query_tools.js" => ["/components/query_tools.js"];
    Module own "components/range_picker.js" => ["/components/range_picker.js"];
    Module own "components/raw_samples.js" => ["/components/raw_samples.js"];
    Module own "components/result_panel.js" => ["/components/result_panel.js"];
    Module own "components/result_table.js" => ["/components/result_table.js"];
    Module own "components/rule_preview.js" => ["/components/rule_preview.js"];
    Module own "components/running.js" => ["/components/running.js"];
    Module own "components/scrape_config.js" => ["/components/scrape_config.js"];
    Module own "components/shell.js" => ["/components/shell.js"];
    Module own "components/refresh_timer.js" => ["/components/refresh_timer.js"];
    Module own "components/save_dashboard.js" => ["/components/save_dashboard.js"];
    Module own "components/share_dialog/embed_tab.js" => ["/components/share_dialog/embed_tab.js"];
    Module own "components/share_dialog/fields.js" => ["/components/share_dialog/fields.js"];
    Module own "components/share_dialog/image_tab.js" => ["/components/share_dialog/image_tab.js"];
    Module own "components/share_dialog/key_choice.js" => ["/components/share_dialog/key_choice.js"];
    Module own "components/share_dialog/link_tab.js" => ["/components/share_dialog/link_tab.js"];
    Module own "components/share_dialog/open.js" => ["/components/share_dialog/open.js"];
    Module own "components/share_dialog/preview.js" => ["/components/share_dialog/preview.js"];
    Module own "components/share_dialog/public_tab.js" => ["/components/share_dialog/public_tab.js"];
    Module own "components/share_dialog/snapshot_tab.js" => ["/components/share_dialog/snapshot_tab.js"];
    Module own "components/share_dialog/subject.js" => ["/components/share_dialog/subject.js"];
    Module own "components/silences.js" => ["/components/silences.js"];
    Module own "components/snippet_choice.js" => ["/components/snippet_choice.js"];
    Module own "components/tabs.js" => ["/components/tabs.js"];
    Module own "components/time_control.js" => ["/components/time_control.js"];
    Module own "components/time_range_form.js" => ["/components/time_range_form.js"];
    Module own "components/toast.js" => ["/components/toast.js"];
    Module own "components/variable_bar.js" => ["/components/variable_bar.js"];
    Module own "components/yaml_editor.js" => ["/components/yaml_editor.js"];
    Module own "components/zone.js" => ["/components/zone.js"];
    Module own "components/zone_field.js" => ["/components/zone_field.js"];
    Module own "components/variable_editor.js" => ["/components/variable_editor.js"];
    Module own "components/variable_editor/form.js" => ["/components/variable_editor/form.js"];
    Module own "panels/barchart.js" => ["/panels/barchart.js"];
    Module own "panels/bargauge.js" => ["/panels/bargauge.js"];
    Module own "panels/gauge.js" => ["/panels/gauge.js"];
    Module own "panels/heatmap.js" => ["/panels/heatmap.js"];
    Module own "panels/histogram.js" => ["/panels/histogram.js"];
    Module own "panels/kinds.js" => ["/panels/kinds.js"];
    Module own "panels/list.js" => ["/panels/list.js"];
    Module own "panels/piechart.js" => ["/panels/piechart.js"];
    Module own "panels/stat.js" => ["/panels/stat.js"];
    Module own "panels/state_timeline.js" => ["/panels/state_timeline.js"];
    Module own "panels/table.js" => ["/panels/table.js"];
    Module own "panels/text.js" => ["/panels/text.js"];
    Module own "panels/timeseries.js" => ["/panels/timeseries.js"];
    Module own "plot/bars.js" => ["/plot/bars.js"];
    Module own "plot/canvas.js" => ["/plot/canvas.js"];
    Module own "plot/heat_grid.js" => ["/plot/heat_grid.js"];
    Module own "plot/legend.js" => ["/plot/legend.js"];
    Module own "plot/lines.js" => ["/plot/lines.js"];
    Module own "plot/paint.js" => ["/plot/paint.js"];
    Module own "plot/scale.js" => ["/plot/scale.js"];
    Module own "plot/series.js" => ["/plot/series.js"];
    Module own "plot/svg.js" => ["/plot/svg.js"];
    Module own "plot/sync.js" => ["/plot/sync.js"];
    Module own "plot/values.js" => ["/plot/values.js"];
    Module own "model/adhoc.js" => ["/model/adhoc.js"];
    Module own "model/alerting.js" => ["/model/alerting.js"];
    Module own "model/annotations.js" => ["/model/annotations.js"];
    Module own "model/arrival.js" => ["/model/arrival.js"];
    Module own "model/attempt.js" => ["/model/attempt.js"];
    Module own "model/backend_snippets.js" => ["/model/backend_snippets.js"];
    Module own "model/audit.js" => ["/model/audit.js"];
    Module own "model/backfill.js" => ["/model/backfill.js"];
    Module own "model/bar_rows.js" => ["/model/bar_rows.js"];
    Module own "model/buckets.js" => ["/model/buckets.js"];
    Module own "model/cardinality.js" => ["/model/cardinality.js"];
    Module own "model/color.js" => ["/model/color.js"];
    Module own "model/columns.js" => ["/model/columns.js"];
    Module own "model/cost.js" => ["/model/cost.js"];
    Module own "model/current_panel.js" => ["/model/current_panel.js"];
    Module own "model/dashboard.js" => ["/model/dashboard.js"];
    Module own "model/dashboard_address.js" => ["/model/dashboard_address.js"];
    Module own "model/edit_panel.js" => ["/model/edit_panel.js"];
    Module own "model/edit_variable.js" => ["/model/edit_variable.js"];
    Module own "model/dashboard_diff.js" => ["/model/dashboard_diff.js"];
    Module own "model/dashboard_reader.js" => ["/model/dashboard_reader.js"];
    Module own "model/drafts.js" => ["/model/drafts.js"];
    Module own "model/duration.js" => ["/model/duration.js"];
    Module own "model/edit_dashboard.js" => ["/model/edit_dashboard.js"];
    Module own "model/edit_history.js" => ["/model/edit_history.js"];
    Module own "model/edit_layout.js" => ["/model/edit_layout.js"];
    Module own "model/edit_prepare.js" => ["/model/edit_prepare.js"];
    Module own "model/embeds.js" => ["/model/embeds.js"];
    Module own "model/error_text.js" => ["/model/error_text.js"];
    Module own "model/explain.js" => ["/model/explain.js"];
    Module own "model/explore_state.js" => ["/model/explore_state.js"];
    Module own "model/exports.js" => ["/model/exports.js"];
    Module own "model/fields.js" => ["/model/fields.js"];
    Module own "model/filter_text.js" => ["/model/filter_text.js"];
    Module own "model/formats.js" => ["/model/formats.js"];
    Module own "model/frame.js" => ["/model/frame.js"];
    Module own "model/fuzzy.js" => ["/model/fuzzy.js"];
    Module own "model/grid.js" => ["/model/grid.js"];
    Module own "model/import_legacy.js" => ["/model/import_legacy.js"];
    Module own "model/increment.js" => ["/model/increment.js"];
    Module own "model/interpolate.js" => ["/model/interpolate.js"];
    Module own "model/legacy_common.js" => ["/model/legacy_common.js"];
    Module own "model/legacy_graph.js" => ["/model/legacy_graph.js"];
    Module own "model/legacy_stat.js" => ["/model/legacy_stat.js"];
    Module own "model/legacy_table.js" => ["/model/legacy_table.js"];
    Module own "model/limits.js" => ["/model/limits.js"];
    Module own "model/limit_units.js" => ["/model/limit_units.js"];
    Module own "model/line_diff.js" => ["/model/line_diff.js"];
    Module own "model/links.js" => ["/model/links.js"];
    Module own "model/mappings.js" => ["/model/mappings.js"];
    Module own "model/markdown.js" => ["/model/markdown.js"];
    Module own "model/matchers.js" => ["/model/matchers.js"];
    Module own "model/metrics.js" => ["/model/metrics.js"];
    Module own "model/names.js" => ["/model/names.js"];
    Module own "model/new_panel.js" => ["/model/new_panel.js"];
    Module own "model/palette.js" => ["/model/palette.js"];
    Module own "model/panel.js" => ["/model/panel.js"];
    Module own "model/panel_clipboard.js" => ["/model/panel_clipboard.js"];
    Module own "model/panel_queries.js" => ["/model/panel_queries.js"];
    Module own "model/pattern.js" => ["/model/pattern.js"];
    Module own "model/promql.js" => ["/model/promql.js"];
    Module own "model/promql_functions.js" => ["/model/promql_functions.js"];
    Module own "model/promql_tokens.js" => ["/model/promql_tokens.js"];
    Module own "model/query_history.js" => ["/model/query_history.js"];
    Module own "model/query_stats.js" => ["/model/query_stats.js"];
    Module own "model/query_text.js" => ["/model/query_text.js"];
    Module own "model/read_variable.js" => ["/model/read_variable.js"];
    Module own "model/recent.js" => ["/model/recent.js"];
    Module own "model/reduce.js" => ["/model/reduce.js"];
    Module own "model/refusals.js" => ["/model/refusals.js"];
    Module own "model/repeat.js" => ["/model/repeat.js"];
    Module own "model/resolve_variables.js" => ["/model/resolve_variables.js"];
    Module own "model/routes.js" => ["/model/routes.js"];
    Module own "model/rule_text.js" => ["/model/rule_text.js"];
    Module own "model/safe_url.js" => ["/model/safe_url.js"];
    Module own "model/save_limits.js" => ["/model/save_limits.js"];
    Module own "model/share_html.js" => ["/model/share_html.js"];
    Module own "model/share_policy.js" => ["/model/share_policy.js"];
    Module own "model/share_snapshot.js" => ["/model/share_snapshot.js"];
    Module own "model/shared_page.js" => ["/model/shared_page.js"];
    Module own "model/shell.js" => ["/model/shell.js"];
    Module own "model/snippets.js" => ["/model/snippets.js"];
    Module own "model/storage.js" => ["/model/storage.js"];
    Module own "model/support.js" => ["/model/support.js"];
    Module own "model/targets.js" => ["/model/targets.js"];
    Module own "model/time.js" => ["/model/time.js"];
    Module own "model/time_zone.js" => ["/model/time_zone.js"];
    Module own "model/transformations/calculate.js" => ["/model/transformations/calculate.js"];
    Module own "model/transformations/convert.js" => ["/model/transformations/convert.js"];
    Module own "model/transformations/filter.js" => ["/model/transformations/filter.js"];
    Module own "model/transformations/group.js" => ["/model/transformations/group.js"];
    Module own "model/transformations/histogram.js" => ["/model/transformations/histogram.js"];
    Module own "model/transformations/index.js" => ["/model/transformations/index.js"];
    Module own "model/transformations/join.js" => ["/model/transformations/join.js"];
    Module own "model/transformations/labels.js" => ["/model/transformations/labels.js"];
    Module own "model/transformations/organize.js" => ["/model/transformations/organize.js"];
    Module own "model/transformations/tools.js" => ["/model/transformations/tools.js"];
    Module own "model/units.js" => ["/model/units.js"];
    Module own "model/units/catalogue.js" => ["/model/units/catalogue.js"];
    Module own "model/units/date.js" => ["/model/units/date.js"];
    Module own "model/units/duration.js" => ["/model/units/duration.js"];
    Module own "model/units/names.js" => ["/model/units/names.js"];
    Module own "model/units/number.js" => ["/model/units/number.js"];
    Module own "model/units/table.js" => ["/model/units/table.js"];
    Module own "model/units/ticks.js" => ["/model/units/ticks.js"];
    Module own "model/units/zone.js" => ["/model/units/zone.js"];
    Module own "model/variable_answers.js" => ["/model/variable_answers.js"];
    Module own "model/variable_query.js" => ["/model/variable_query.js"];
    Module own "model/variables.js" => ["/model/variables.js"];
    Module own "model/write_dashboard.js" => ["/model/write_dashboard.js"];
    Module own "client/alerting.js" => ["/client/alerting.js"];
    Module own "client/batch.js" => ["/client/batch.js"];
    Module own "client/dashboards.js" => ["/client/dashboards.js"];
    Module own "client/embed.js" => ["/client/embed.js"];
    Module own "client/members.js" => ["/client/members.js"];
    Module own "client/navigation.js" => ["/client/navigation.js"];
    Module own "client/lines.js" => ["/client/lines.js"];
    Module own "client/root.js" => ["/client/root.js"];
    Module own "client/server.js" => ["/client/server.js"];
    Module own "client/types.js" => ["/client/types.js"];
    Module own "client/variables.js" => ["/client/variables.js"];
};

macro_rules! bundles {
    ($($origin:ident $name:literal;)+) => {
        &[$(Embedded {
            name: $name,
            paths: &[concat!("/", $name)],
            kind: AssetKind::Module,
            any_origin: files!(@ $origin),
            bytes: include_bytes!(concat!(env!("OUT_DIR"), "/ui/", $name)),
        }),+]
    };
}

/// The files with the modules, which the build script makes. `bundles.rs` lists their contents.
const BUNDLES: &[Embedded] = bundles! {
    own "app.js";
    own "app.parts.js";
    own "app.model.js";
    own "app.dashboard.js";
    own "app.panels.js";
    own "app.chart.js";
    own "app.explore.js";
    own "app.data.js";
    own "app.targets.js";
    own "app.alerts.js";
    own "app.organisation.js";
    own "app.share.js";
    own "app.edit.js";
    own "app.editor.js";
    own "docs.js";
    own "shared.js";
    any "embed.js";
    any "chart/later.js";
    any "chart/cursor.js";
    any "embed-alerts.js";
    any "embed-alerts.later.js";
    any "embed-dashboard.js";
    any "embed-dashboard.controls.js";
    any "embed-dashboard.live.js";
    any "embed-dashboard.plots.js";
    any "embed-dashboard.values.js";
    any "embed-dashboard.more.js";
    any "embed-dashboard.chart.js";
};

/// Returns the paths of the files with the modules.
pub fn bundles() -> impl Iterator<Item = &'static str> {
    BUNDLES.iter().flat_map(|file| file.paths.iter().copied())
}

/// Returns the bytes that the binary serves.
fn served() -> impl Iterator<Item = &'static Embedded> {
    BUNDLES.iter().chain(FILES.iter().filter(|file| file.kind != AssetKind::Module))
}

/// Returns the embedded file for `path` (without query and fragment, not percent-decoded).
///
/// The path is looked up in a table and never becomes a file name, so path traversal is impossible.
/// Cost: one hash over the file.
pub fn file(path: &str) -> Option<Asset> {
    find(path).map(|file| Asset::new(file, Cow::Borrowed(file.bytes)))
}

fn find(path: &str) -> Option<&'static Embedded> {
    served().find(|file| file.paths.contains(&path))
}

/// The start of the immutable paths, without a slash at its end: `/assets/` and 16 hexadecimal
/// digits.
static IMMUTABLE_ROOT: LazyLock<String> = LazyLock::new(|| {
    let hash = served().fold(FNV_START, |hash, file| fnv(fnv(hash, file.name.as_bytes()), file.bytes));
    format!("/assets/{hash:016x}")
});

/// The files that the page at a path loads after its script, so that browsers fetch them at once.
const PRELOADS: &[(&str, &[&str])] = &[
    ("/", &["app.parts.js"]),
    ("/login", &["app.parts.js"]),
    ("/dashboards", &["app.parts.js", "app.model.js", "app.data.js"]),
    ("/dashboard", &["app.parts.js", "app.model.js", "app.dashboard.js"]),
    ("/explore", &["app.parts.js", "app.model.js", "app.chart.js", "app.explore.js"]),
];

/// The pages as they are served, by path.
static PAGES: LazyLock<BTreeMap<&'static str, Vec<u8>>> = LazyLock::new(|| {
    let pages = FILES.iter().filter(|file| file.kind == AssetKind::Page);
    pages.flat_map(|page| page.paths.iter().map(|path| (*path, with_immutable_paths(page, path)))).collect()
});

/// The reason why a file of an editing folder could not be served.
#[derive(Debug, thiserror::Error)]
pub enum UiError {
    /// The file is missing or unreadable.
    #[error("cannot read UI file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is larger than a UI file can reasonably be.
    #[error("UI file {path} has more than {allowed} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit, in bytes.
        allowed: u64,
    },
}

/// A file that an element for other origins loads later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementFile {
    /// The URL path, such as `/chart/later.js`.
    pub path: String,
    /// The version of the element, 8 hexadecimal digits.
    pub version: String,
    /// The content.
    pub bytes: Vec<u8>,
}

impl ElementFile {
    /// Returns a hash that tells damaged bytes from these.
    pub fn hash(&self) -> u64 {
        fnv(FNV_START, &self.bytes)
    }
}

/// Returns the files of this binary that its elements load later.
pub fn element_files() -> impl Iterator<Item = ElementFile> {
    BUNDLES.iter().filter(|file| file.any_origin).flat_map(|file| {
        let version = version_of(file.bytes)?.to_owned();
        Some(ElementFile { path: format!("/{}", file.name), version, bytes: file.bytes.to_vec() })
    })
}

/// The source of the UI: the binary, or a folder while someone edits it (`PROMLET_UI_DIR`).
#[derive(Clone, Debug, Default)]
pub struct Ui {
    folder: Option<PathBuf>,
    /// The files of elements of other versions.
    others: Arc<[ElementFile]>,
    /// The path prefix of the server's URLs, such as `/promlet`; empty at the root.
    prefix: String,
    without_docs: bool,
}

impl Ui {
    /// Returns the UI with the files in the binary.
    pub fn embedded() -> Self {
        Self::default()
    }

    /// Returns the same UI with files of elements of other versions, which pages may still run.
    #[must_use]
    pub fn with_others(self, files: Vec<ElementFile>) -> Self {
        Self { others: files.into(), ..self }
    }

    /// Returns the same UI below a path prefix, for a server behind a proxy. Pages contain the
    /// prefix; modules import each other by relative paths.
    #[must_use]
    pub fn below(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// Returns the same UI without the page that shows the API.
    #[must_use]
    pub fn without_docs(self) -> Self {
        Self { without_docs: true, ..self }
    }

    /// Returns the same UI, but each request reads the file from a copy of `src/ui/assets`.
    ///
    /// Only files of the table are opened, so a request cannot name any other file of the disk.
    pub fn from_dir(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()), ..Self::default() }
    }

    /// Returns the file for `path`, or `None` if the UI has no such path.
    ///
    /// # Errors
    /// [`UiError`], only with [`Ui::from_dir`], if the file is missing, unreadable or over 1 MiB.
    /// Reads block the calling thread, which is acceptable for one person who edits.
    pub fn file(&self, path: &str) -> Result<Option<Asset>, UiError> {
        // A file of the folder changes, so none has an immutable path.
        let below = path.strip_prefix(IMMUTABLE_ROOT.as_str()).filter(|_| self.folder.is_none());
        let found = match &self.folder {
            Some(_) => FILES.iter().find(|file| file.paths.contains(&path)),
            None => find(below.unwrap_or(path)),
        };
        let Some(file) = found.filter(|file| below.is_none() || file.kind != AssetKind::Page) else {
            return Ok(None);
        };
        if self.without_docs && (file.name.starts_with("docs.") || file.name.starts_with("docs/")) {
            return Ok(None);
        }
        let bytes = match &self.folder {
            Some(folder) => self.placed(file, Cow::Owned(read(folder.join(file.name))?)),
            None => match PAGES.get(path) {
                Some(page) => self.placed(file, Cow::Borrowed(page)),
                None => Cow::Borrowed(file.bytes),
            },
        };
        let immutable = below.map(|_| file.name);
        let shared = file.paths.first().copied().filter(|_| file.any_origin && self.folder.is_none());
        let version = shared.and_then(|_| version_of(file.bytes)).map(Cow::Borrowed);
        Ok(Some(Asset { immutable, version, key: immutable.or(shared), ..Asset::new(file, bytes) }))
    }

    /// Returns the file for `path` and the version in the query of its address, if it has one.
    ///
    /// A file of an element is returned in that version alone, because it would not fit an element
    /// of another one. Other files have no versions, and are returned as they are.
    ///
    /// # Errors
    /// The same as those of [`Ui::file`].
    pub fn file_of(&self, path: &str, version: Option<&str>) -> Result<Option<Asset>, UiError> {
        let asset = self.file(path)?;
        let Some(wanted) = version else { return Ok(asset) };
        let fits = asset.as_ref().is_some_and(|asset| asset.version.as_ref().is_none_or(|own| own == wanted));
        if fits {
            return Ok(asset);
        }
        Ok(self.others.iter().find(|file| file.path == path && file.version == wanted).map(Asset::of_element))
    }

    /// Returns the page for URLs that do not exist.
    ///
    /// # Errors
    /// The same as those of [`Ui::file`].
    pub fn nowhere(&self) -> Result<Option<Asset>, UiError> {
        self.file(NOWHERE)
    }

    /// Puts a page's own addresses, which begin at the root, below the prefix.
    fn placed(&self, file: &Embedded, bytes: Cow<'static, [u8]>) -> Cow<'static, [u8]> {
        if self.prefix.is_empty() || file.kind != AssetKind::Page {
            return bytes;
        }
        let text = String::from_utf8_lossy(&bytes);
        let placed = ["href=\"/", "src=\"/"].iter().fold(text.into_owned(), |text, start| {
            let (attribute, _) = start.split_at(start.len() - 1);
            text.replace(start, &format!("{attribute}{}/", self.prefix))
        });
        Cow::Owned(placed.into_bytes())
    }
}

/// Returns the version of a file that an element loads later (`bundle::split`).
fn version_of(bytes: &'static [u8]) -> Option<&'static str> {
    let digits = bytes.strip_prefix(b"export const v")?.get(..8)?;
    str::from_utf8(digits).ok()
}

/// Returns a page that refers to the immutable paths of its files, and to those that it loads at a
/// path.
fn with_immutable_paths(page: &Embedded, path: &str) -> Vec<u8> {
    let root = IMMUTABLE_ROOT.as_str();
    let mut text = String::from_utf8_lossy(page.bytes).into_owned();
    for file in served().filter(|file| file.kind != AssetKind::Page) {
        text = text.replace(&format!("=\"/{}\"", file.name), &format!("=\"{root}/{}\"", file.name));
    }
    let later = PRELOADS.iter().filter(|(at, _)| *at == path).flat_map(|(_, names)| names.iter());
    let links: String =
        later.map(|name| format!("  <link rel=\"modulepreload\" href=\"{root}/{name}\">\n")).collect();
    text.replace("</head>", &format!("{links}</head>")).into_bytes()
}

fn read(path: PathBuf) -> Result<Vec<u8>, UiError> {
    let mut bytes = Vec::new();
    // One byte more than the limit shows that the file is too large.
    let outcome = File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match outcome {
        Err(source) => Err(UiError::Read { path, source }),
        Ok(_) if bytes.len() as u64 > FILE_BYTES_MAX => {
            Err(UiError::TooLarge { path, allowed: FILE_BYTES_MAX })
        }
        Ok(_) => Ok(bytes),
    }
}

/// The hash of no bytes.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Extends a 64-bit FNV-1a hash, which suffices for `ETag` and paths because it only tells builds
/// of a file apart.
fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
