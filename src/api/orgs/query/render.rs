//! `render.svg` and `render.png`: the result of a query as a picture, for mail, chat and pages
//! without scripts (docs/specification.md C5).
//!
//! The query is that of `query/range`, with the same permissions and limits. The picture is drawn
//! where the query runs, in its memory and within its deadline. Errors are JSON: a picture of an
//! error would be cached and forwarded like one of data.

use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::deps::ReadDeps;
use super::request::{PendingRead, timeout};
use super::response::{response_of, value_memory_bytes};
use super::run::{QueryRun, SCOPED};
use super::{AcceptedQuery, PreparedQuery, QueryMode, QueryParams, QueryWindow, steps_of};
use crate::api::callers::{Endpoint, Grant};
use crate::api::encoding::Coding;
use crate::api::error::{ApiError, ApiResult};
use crate::api::orgs::dashboards::names_tag;
use crate::api::params::Params;
use crate::api::routes::{Auth, Routes};
use crate::model::{Steps, Timestamp};
use crate::promql::{QueryError, Value};
use crate::render::{self, Chart, ChartSeries, Scene, Style, Theme, Zone};

/// The default size, in CSS pixels.
const SIZE_DEFAULT: (usize, usize) = (800, 320);
/// The longest time for which a client may keep a picture, in seconds.
const MAX_AGE_S: i64 = 86_400;
/// Pictures run no scripts and load nothing, also where a browser shows them as a page.
const POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The routes, relative to `/api/v1`.
pub(super) fn routes() -> Routes<ReadDeps> {
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

async fn svg(State(deps): State<ReadDeps>, request: PictureRequest) -> ApiResult<Response> {
    picture(deps, request, Format::Svg).await
}

async fn png(State(deps): State<ReadDeps>, request: PictureRequest) -> ApiResult<Response> {
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

impl FromRequest<ReadDeps> for PictureRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, deps: &ReadDeps) -> ApiResult<PictureRequest> {
        let known = request.headers().get(header::IF_NONE_MATCH).cloned();
        Ok(PictureRequest { read: PendingRead::from_request(request, deps).await?, known })
    }
}

/// A finished picture.
struct Picture {
    body: Vec<u8>,
    coding: Coding,
    tag: String,
}

async fn picture(deps: ReadDeps, request: PictureRequest, format: Format) -> ApiResult<Response> {
    let PictureRequest { mut read, known } = request;
    let mut params = std::mem::take(&mut read.params);
    // The credential layer has read the token.
    params.many(&["token"]);
    let style = take_style(&mut params)?;
    let query = QueryParams::take(&mut params, QueryMode::Range, AcceptedQuery::Any)?;
    if query.explain {
        return Err(ApiError::invalid_parameter("explain", "a picture has no plan; explain query/range"));
    }
    let request = read.enter(Some(query.endpoint()))?;
    let now = deps.clock.now();
    let steps = take_steps(&mut params, now, deps.options.range_ms_max, request.grant(), style.width)?;
    let timeout = timeout(&mut params)?;
    let window = QueryWindow { steps, limit: usize::MAX };
    let query = PreparedQuery { params: query, window, timeout, unused: params.unknown() };
    let headers = headers(steps, request.grant(), now);
    let request = request.within(timeout).listed(query.listed());
    let work = move |run: &mut QueryRun| draw(run, query, &style, format);
    let Picture { body, coding, tag } = deps.run(request, work).await?;
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

/// Takes the parameters of the look.
fn take_style(params: &mut Params) -> ApiResult<Style> {
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
    let zone = Zone::parse(&zone).map_err(|error| ApiError::invalid_parameter("tz", error.to_string()))?;
    let title = take_text(params, "title")?.unwrap_or_default();
    let unit = take_text(params, "unit")?.unwrap_or_default();
    let legend = take_text(params, "legend")?;
    Ok(Style { width, height, scale, theme, title, unit, legend, zone })
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

/// Evaluates a query and draws its result. Runs on the query lane.
fn draw(run: &mut QueryRun, query: PreparedQuery, style: &Style, format: Format) -> ApiResult<Picture> {
    let steps = query.window.steps;
    let evaluated = query.evaluate(run)?;
    let value = evaluated.envelope.value;
    let Value::Matrix(all) = &value else {
        return Err(ApiError::internal("the result of a range query is no matrix"));
    };
    let drawing = render::memory_bytes(style, all.len(), steps.len(), format == Format::Png);
    let held = value_memory_bytes(&value).saturating_add(drawing);
    run.charge(usize::try_from(held).unwrap_or(usize::MAX))?;
    // A scope is not news to the readers of a picture.
    let messages = run.warnings.iter().filter(|text| *text != SCOPED).cloned();
    let messages: Vec<String> = messages.chain(evaluated.infos).collect();
    let series: Vec<ChartSeries<'_>> = all
        .iter()
        .take(render::SERIES_MAX)
        .map(|one| ChartSeries {
            labels: &one.labels,
            samples: &one.samples,
            has_histograms: !one.histograms.is_empty(),
        })
        .collect();
    let chart = Chart { series: &series, total: all.len(), steps, style, messages: &messages };
    let continues = || run.deadline.admit(0).is_ok();
    let _computing = run.lanes.workers().begin_query();
    let drawn = chart.scene(&continues).and_then(|scene: Scene| match format {
        Format::Svg => Ok(scene.svg().into_bytes()),
        Format::Png => scene.png(&continues),
    });
    let Ok(body) = drawn else {
        run.deadline.admit(0)?;
        return Err(QueryError::Cancelled.into());
    };
    let digest = Sha256::digest(&body);
    let tag = format!("\"{}\"", HEXLOWER.encode(&digest[..16]));
    let (body, coding) = match format {
        Format::Svg => run.coding.whole(body),
        Format::Png => (body, Coding::Identity),
    };
    Ok(Picture { body, coding, tag })
}
