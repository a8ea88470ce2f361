//! `render.svg` and `render.png`: the result of a query as a picture, for mail, chat and pages
//! without scripts (docs/specification.md C5).
//!
//! The query is that of `query/range`, or those of a dashboard's panel, with the same permissions
//! and limits. The picture is drawn where the query runs, in its memory and within its deadline.
//! Errors are JSON: a picture of an error would be cached and forwarded like one of data.

use std::time::Duration;

use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::request::{PendingRead, timeout};
use super::response::response_of;
use super::result::value_memory_bytes;
use super::run::{EvalOptions, QueryRun, SCOPED};
use super::{
    AcceptedQuery, PreparedQuery, QueryKind, QueryMode, QueryParams, QueryWindow, flag, steps_of,
    warn_of_unused,
};
use crate::api::callers::{Endpoint, Grant, Permission};
use crate::api::encoding::{Coding, Effort};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::orgs::dashboards::viewer::{Intervals, PanelQuery, SentValues, ViewerDeps, Viewing};
use crate::api::orgs::etag::names_tag;
use crate::api::params::Params;
use crate::api::routes::{Auth, Routes};
use crate::dashboards::{PanelDraw, PanelLook, PanelStacking};
use crate::model::{Steps, TimeRange, Timestamp};
use crate::promql::{MatrixSeries, QueryError, Value};
use crate::render::{self, Chart, ChartSeries, Draw, Scene, Shape, Stacking, Style, Theme, Zone};

/// The default size, in CSS pixels.
const SIZE_DEFAULT: (usize, usize) = (800, 320);
/// The most queries of a panel that are drawn, inclusive.
const PANEL_QUERIES_MAX: usize = 26;
/// The longest time for which a client may keep a picture, in seconds.
const MAX_AGE_S: i64 = 86_400;
/// Pictures run no scripts and load nothing, also where a browser shows them as a page.
const POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<ViewerDeps> {
    Routes::new()
        .get(
            "/orgs/{slug}/render.svg",
            Auth::PictureCaller(Endpoint::Range),
            "Draw a query over a time range as an SVG picture",
            svg,
        )
        .get(
            "/orgs/{slug}/render.png",
            Auth::PictureCaller(Endpoint::Range),
            "Draw a query over a time range as a PNG picture",
            png,
        )
}

async fn svg(State(deps): State<ViewerDeps>, request: PictureRequest) -> ApiResult<Response> {
    picture(deps, request, Format::Svg).await
}

async fn png(State(deps): State<ViewerDeps>, request: PictureRequest) -> ApiResult<Response> {
    picture(deps, request, Format::Png).await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

/// A read with the header `If-None-Match`.
struct PictureRequest {
    read: PendingRead,
    known: Option<HeaderValue>,
}

impl FromRequest<ViewerDeps> for PictureRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, deps: &ViewerDeps) -> ApiResult<PictureRequest> {
        let known = request.headers().get(header::IF_NONE_MATCH).cloned();
        Ok(PictureRequest { read: PendingRead::from_request(request, &deps.read).await?, known })
    }
}

/// A finished picture.
struct Picture {
    body: Vec<u8>,
    coding: Coding,
    tag: String,
}

async fn picture(deps: ViewerDeps, request: PictureRequest, format: Format) -> ApiResult<Response> {
    let PictureRequest { mut read, known } = request;
    let mut params = std::mem::take(&mut read.params);
    // The credential layer has read the token.
    params.many(&["token"]);
    let look = Look::take(&mut params)?;
    let source = Source::take(&mut params)?;
    let request = read.enter(Some(source.endpoint()))?;
    if let Source::Panel(panel) = &source {
        request.grant().require(Permission::Dashboard(&panel.uid))?;
    }
    let now = deps.read.clock.now();
    let range_ms_max = deps.read.options.range_ms_max;
    let steps = take_steps(&mut params, now, range_ms_max, request.grant(), look.style.width)?;
    let timeout = timeout(&mut params)?;
    let headers = headers(steps, request.grant(), now);
    let request = request.within(timeout).listed(source.listed());
    let drawing = Drawing { look, source, steps, timeout, unused: params.unknown(), format };
    let read = deps.read.clone();
    let Picture { body, coding, tag } = read.run(request, move |run| drawing.draw(&deps, run)).await?;
    let media = match format {
        Format::Svg => HeaderValue::from_static("image/svg+xml"),
        Format::Png => HeaderValue::from_static("image/png"),
    };
    let mut response = match known.is_some_and(|known| names_tag(&known, &tag)) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => response_of(body.into(), coding, media),
    };
    response.headers_mut().extend(headers);
    // Weak, because the bytes depend on the content coding.
    if let Ok(tag) = HeaderValue::try_from(format!("W/{tag}")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

/// The source of a picture's data.
#[derive(Clone)]
enum Source {
    /// A structured query or an expression.
    Query(QueryParams),
    /// The queries of a panel.
    Panel(PanelSource),
}

/// The parameters `dashboard`, `panel`, `ref`, and `var-NAME` for each variable.
#[derive(Clone)]
struct PanelSource {
    uid: String,
    panel: i64,
    /// The only query to draw; `None` draws all.
    ref_id: Option<String>,
    variables: SentValues,
    eval: EvalOptions,
}

impl Source {
    fn take(params: &mut Params) -> ApiResult<Source> {
        let Some(uid) = params.one(&["dashboard"])? else {
            let query = QueryParams::take(params, QueryMode::Range, AcceptedQuery::Any)?;
            if query.explain {
                let detail = "a picture has no plan; explain query/range";
                return Err(ApiError::invalid_parameter("explain", detail));
            }
            return Ok(Source::Query(query));
        };
        if ["expr", "query", "metric"].iter().any(|name| params.has(name)) {
            let detail = "a panel and a query of your own exclude each other";
            return Err(ApiError::invalid_parameter("dashboard", detail));
        }
        let panel = params.number("panel", "the id of a panel")?;
        let panel =
            panel.ok_or_else(|| ApiError::invalid_parameter("panel", "the id of a panel is expected"))?;
        let mut variables = SentValues::new();
        for (name, value) in params.take_prefixed("var-") {
            variables.entry(name).or_default().push(value);
        }
        let eval = EvalOptions { lookback_ms: None, nocache: flag(params, "nocache")? };
        Ok(Source::Panel(PanelSource { uid, panel, ref_id: params.one(&["ref"])?, variables, eval }))
    }

    /// Returns the endpoint that a token must grant.
    fn endpoint(&self) -> Endpoint {
        match self {
            Source::Query(query) => query.endpoint(),
            Source::Panel(_) => Endpoint::Dashboard,
        }
    }

    /// Returns the text for the list of running queries.
    fn listed(&self) -> String {
        match self {
            Source::Query(query) => query.listed(),
            Source::Panel(panel) => format!("panel {} of the dashboard {}", panel.panel, panel.uid),
        }
    }
}

/// The look of a picture. A panel may set the fields that a request leaves out.
#[derive(Clone)]
struct Look {
    style: Style,
    legend: Option<String>,
}

/// A query and the names of its series.
struct NamedQuery {
    query: QueryParams,
    legend: Option<String>,
}

impl Look {
    /// Takes the parameters of the look.
    fn take(params: &mut Params) -> ApiResult<Look> {
        let side = |params: &mut Params, name, bounds: std::ops::RangeInclusive<usize>, default: usize| {
            Ok::<_, ApiError>(params.count(name, *bounds.start(), *bounds.end())?.unwrap_or(default))
        };
        let width = side(params, "width", render::WIDTH, SIZE_DEFAULT.0)?;
        let height = side(params, "height", render::HEIGHT, SIZE_DEFAULT.1)?;
        let scale = side(params, "scale", render::SCALE, 1)?;
        let pixels = width * height * scale * scale;
        if pixels > render::PIXELS_MAX {
            let message = format!("{pixels} pixels, more than the {} allowed", render::PIXELS_MAX);
            return Err(ApiError::invalid_parameter("scale", message));
        }
        let theme = match params.one(&["theme"])?.as_deref() {
            None | Some("light") => Theme::Light,
            Some("dark") => Theme::Dark,
            Some(_) => return Err(ApiError::invalid_parameter("theme", "light or dark is expected")),
        };
        let zone = params.one(&["tz"])?.unwrap_or_default();
        let zone =
            Zone::parse(&zone).map_err(|error| ApiError::invalid_parameter("tz", error.to_string()))?;
        let title = take_text(params, "title")?.unwrap_or_default();
        let unit = take_text(params, "unit")?.unwrap_or_default();
        let legend = take_text(params, "legend")?;
        let shape = Shape::default();
        let style = Style { width, height, scale, theme, title, unit, zone, shape };
        Ok(Look { style, legend })
    }
}

fn take_text(params: &mut Params, name: &'static str) -> ApiResult<Option<String>> {
    let text = params.one(&[name])?;
    if text.as_ref().is_some_and(|text| text.chars().count() > render::TEXT_CHARS_MAX) {
        let message = format!("at most {} characters are expected", render::TEXT_CHARS_MAX);
        return Err(ApiError::invalid_parameter(name, message));
    }
    Ok(text)
}

/// Takes `start`, `end` and `step`. The default step is that of `<metric-chart>`: a point for two
/// pixels. The default end is the newest multiple of the step, so that a picture that is requested
/// again within a step is the same one.
fn take_steps(
    params: &mut Params,
    now: Timestamp,
    range_ms_max: i64,
    grant: &Grant,
    width: usize,
) -> ApiResult<Steps> {
    let step_ms = |range_ms: i64| {
        render::nice_step_s(range_ms as f64 / 1_000.0, (width / 2).max(60)).saturating_mul(1_000)
    };
    let of = |params: &mut Params, now| steps_of(params, now, range_ms_max, grant, step_ms);
    let steps = of(&mut params.clone(), now)?;
    let aligned = now.plus_ms(-now.as_ms().rem_euclid(steps.step_ms()));
    // A start after the newest multiple leaves no aligned range.
    let is_open = !params.has("end") && steps.start() <= aligned;
    of(params, if is_open { aligned } else { now })
}

/// Returns the headers of a picture. A client may show it for a step, but not longer than its token
/// is valid. No cache that several credentials share may store it.
fn headers(steps: Steps, grant: &Grant, now: Timestamp) -> HeaderMap {
    let step_s = (steps.step_ms() / 1_000).clamp(1, MAX_AGE_S);
    let left_s = grant.expires_at().map_or(step_s, |at| (at.ms_since(now) / 1_000).max(0));
    let age = format!("private, max-age={}", step_s.min(left_s));
    let mut headers = HeaderMap::new();
    if let Ok(age) = HeaderValue::try_from(age) {
        headers.insert(header::CACHE_CONTROL, age);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding, Authorization, Cookie"));
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    // The pages of others show the pictures of tokens, but not those of sessions.
    let shown_by = if grant.is_token() { "cross-origin" } else { "same-origin" };
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static(shown_by));
    headers
}

/// A picture before it is drawn.
#[derive(Clone)]
struct Drawing {
    look: Look,
    source: Source,
    steps: Steps,
    timeout: Option<Duration>,
    unused: Vec<String>,
    format: Format,
}

impl Drawing {
    /// Evaluates the queries and draws their results. Runs on the query lane.
    fn draw(mut self, deps: &ViewerDeps, run: &mut QueryRun) -> ApiResult<Picture> {
        let queries = self.queries(deps, run)?;
        warn_of_unused(run, std::mem::take(&mut self.unused));
        let (mut infos, mut results) = (Vec::new(), Vec::new());
        let (mut total, mut drawn) = (0, 0);
        for NamedQuery { query, legend } in queries {
            // A token that does not know the expression gets no warnings and infos, which could
            // reveal it.
            let is_hidden = query.hides_expression;
            let window = QueryWindow { steps: self.steps, limit: usize::MAX };
            let prepared = PreparedQuery { params: query, window, timeout: self.timeout, unused: Vec::new() };
            let evaluated = prepared.evaluate(run)?;
            if is_hidden {
                run.warnings.clear();
            } else {
                infos.extend(evaluated.infos);
            }
            total += evaluated.envelope.value.series_count();
            let mut value = run.parsed(evaluated.envelope.value)?;
            if let Value::Matrix(series) = &mut value {
                series.truncate(render::SERIES_MAX - drawn);
                drawn += series.len();
            }
            run.charge(usize::try_from(value_memory_bytes(&value)).unwrap_or(usize::MAX))?;
            results.push((value, legend));
        }
        // A scope is not news to the readers of a picture.
        let warnings = run.warnings.iter().filter(|text| *text != SCOPED).cloned();
        let messages: Vec<String> = warnings.chain(infos).collect();
        let series: Vec<ChartSeries<'_>> =
            results.iter().flat_map(|(value, legend)| series_of(value, legend.as_deref())).collect();
        self.paint(run, &series, total, &messages)
    }

    fn paint(
        &self,
        run: &QueryRun,
        series: &[ChartSeries<'_>],
        total: usize,
        messages: &[String],
    ) -> ApiResult<Picture> {
        let style = &self.look.style;
        let bytes = render::memory_bytes(style, series.len(), self.steps.len(), self.format == Format::Png);
        run.charge(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let chart = Chart { series, total, steps: self.steps, style, messages };
        let continues = || run.deadline.admit(0).is_ok();
        let _computing = run.lanes.workers().begin_query();
        let drawn = chart.scene(&continues).and_then(|scene: Scene| match self.format {
            Format::Svg => Ok(scene.svg().into_bytes()),
            Format::Png => scene.png(&continues),
        });
        let Ok(body) = drawn else {
            run.deadline.admit(0)?;
            return Err(QueryError::Cancelled.into());
        };
        let digest = Sha256::digest(&body);
        let tag = format!("\"{}\"", HEXLOWER.encode(&digest[..16]));
        let (body, coding) = match self.format {
            Format::Svg => run.coding.whole(body, Effort::Least),
            Format::Png => (body, Coding::Identity),
        };
        Ok(Picture { body, coding, tag })
    }

    /// Returns the queries of the source. Queries of a panel have the display options of the panel.
    fn queries(&mut self, deps: &ViewerDeps, run: &QueryRun) -> ApiResult<Vec<NamedQuery>> {
        let source = match &self.source {
            Source::Query(query) => {
                return Ok(vec![NamedQuery { query: query.clone(), legend: self.look.legend.clone() }]);
            }
            Source::Panel(source) => source,
        };
        let dashboard = deps.dashboard(run.access.org, &source.uid)?.document;
        let viewing = Viewing::new(&dashboard, &run.grant, &source.variables);
        let no_query =
            || viewing.refused(Code::NotFound, "the dashboard has no such query that can be evaluated");
        let panel = dashboard.panel(source.panel).ok_or_else(no_query)?;
        let selections = viewing.selections()?;
        let style = &mut self.look.style;
        if style.title.is_empty() {
            style.title = panel.title(selections);
        }
        if style.unit.is_empty() {
            style.unit = unit_of(&panel.unit);
        }
        style.shape = shape_of(panel.look);
        let wanted = |name: &str| source.ref_id.as_ref().is_none_or(|wanted| wanted == name);
        let targets = panel.targets.iter().filter(|target| wanted(&target.ref_id)).take(PANEL_QUERIES_MAX);
        let mut queries = Vec::new();
        for target in targets {
            let expr = viewing.expression(&PanelQuery {
                panel: source.panel,
                ref_id: &target.ref_id,
                variables: &SentValues::new(),
                range: TimeRange::new(self.steps.start(), self.steps.end()),
                intervals: Intervals::parse(None, None, Some(self.steps.step_ms()))?,
            })?;
            let legend = self.look.legend.clone().or_else(|| target.legend(selections));
            let legend = legend.map(|text| text.chars().take(render::TEXT_CHARS_MAX).collect());
            let query = QueryParams {
                kind: QueryKind::Expression(expr),
                mode: QueryMode::Range,
                explain: false,
                eval: source.eval,
                hides_expression: run.grant.is_token(),
            };
            queries.push(NamedQuery { query, legend });
        }
        if queries.is_empty() { Err(no_query()) } else { Ok(queries) }
    }
}

/// Returns the series of a result. A range query has a matrix.
fn series_of<'v>(value: &'v Value, legend: Option<&'v str>) -> Vec<ChartSeries<'v>> {
    let Value::Matrix(series) = value else { return Vec::new() };
    let of = |one: &'v MatrixSeries| ChartSeries {
        labels: &one.labels,
        samples: &one.samples,
        has_histograms: !one.histograms.is_empty(),
        legend,
    };
    series.iter().map(of).collect()
}

/// Returns the shapes of a panel.
fn shape_of(look: PanelLook) -> Shape {
    let draw = match look.draw {
        PanelDraw::Line => Draw::Line,
        PanelDraw::Bars => Draw::Bars,
        PanelDraw::Points => Draw::Points,
    };
    let stacking = match look.stacking {
        PanelStacking::None => Stacking::None,
        PanelStacking::Normal => Stacking::Normal,
        PanelStacking::Percent => Stacking::Percent,
    };
    Shape { draw, stacking, fill_percent: look.fill_percent }
}

/// Returns the unit of a picture for a unit of Grafana; the name itself if it is a custom one.
fn unit_of(unit: &str) -> String {
    let known = match unit {
        "bytes" | "decbytes" => "bytes",
        "Bps" | "binBps" => "bytes/s",
        "s" => "seconds",
        "percentunit" => "percent",
        "percent" => "%",
        "reqps" => "req/s",
        "ops" => "ops/s",
        _ => unit.strip_prefix("suffix:").unwrap_or_default(),
    };
    known.to_owned()
}
