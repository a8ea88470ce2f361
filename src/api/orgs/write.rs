//! Samples in (API.md C7): one handler for every protocol of `ingest`.
//!
//! What a 2xx says: every sample is stored, or was there already bit for bit, and is on the disk. What a 400 says: what
//! could be stored is stored and on the disk, the rest never will be, and the first line names it. A 503 says: nothing is
//! lost, send it again. Where the operator chose an interval, "on the disk" means: within it; the header `Durability` says
//! `synced` or `buffered`.

use std::cell::RefCell;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::rejects::Rejects;
use crate::api::body;
use crate::api::callers::{Machine, Writing};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::{Lane, Lanes};
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Routes};
use crate::clock::Clock;
use crate::ingest::{self, PROTOCOLS, Protocol};
use crate::model::{Refusal, Timestamp};
use crate::tsdb::{AppendReport, Durability, Tsdb};

/// What writing needs.
#[derive(Clone, Debug)]
pub struct WriteDeps {
    /// Where samples go.
    pub tsdb: Arc<Tsdb>,
    /// Where bodies are read and appended.
    pub lanes: Lanes,
    /// What time it is.
    pub clock: Clock,
    /// How much one request may bring.
    pub limits: ingest::Limits,
    /// What was refused.
    pub rejects: Arc<Rejects>,
}

/// A route for each path of each protocol.
pub fn routes() -> Routes<WriteDeps> {
    let rows = PROTOCOLS.iter().flat_map(|protocol| protocol.paths.iter().map(move |path| (protocol, *path)));
    rows.fold(Routes::new(), |routes, (protocol, path)| {
        let handler =
            move |State(deps): State<WriteDeps>,
                  machine: Machine,
                  PathOf(slug): PathOf<String>,
                  request: Request| { write(deps, protocol, machine, slug, request) };
        routes.post(path, Auth::Machine, protocol.summary, handler)
    })
}

async fn write(
    deps: WriteDeps,
    protocol: &'static Protocol,
    machine: Machine,
    slug: String,
    request: Request,
) -> ApiResult<Response> {
    let writing = machine.enter(&slug)?;
    let (parts, body) = request.into_parts();
    admit_media(protocol, &parts.headers)?;
    let bytes = body::read(body, deps.limits.compressed_bytes_max).await?;
    let lanes = deps.lanes.clone();
    let said = said_durability(&deps.tsdb);
    let work = move || with_scratch(|scratch| Storing { deps, protocol, writing }.store(&bytes, scratch));
    lanes.run(Lane::Ingest, work).await??;
    Ok((StatusCode::NO_CONTENT, [(DURABILITY, said)], Body::empty()).into_response())
}

const DURABILITY: HeaderName = HeaderName::from_static("durability");

/// What a 2xx means, in the answer's header.
fn said_durability(tsdb: &Tsdb) -> HeaderValue {
    HeaderValue::from_static(match tsdb.durability() {
        Durability::Interval(_) => "buffered",
        _ => "synced",
    })
}

/// A sender that is told 415 tries another encoding or another version; 400 would make it drop the batch.
fn admit_media(protocol: &Protocol, headers: &HeaderMap) -> ApiResult<()> {
    let text = |name| headers.get(name).map_or("", |value: &HeaderValue| value.to_str().unwrap_or("?"));
    let (content_type, encoding) = (text(header::CONTENT_TYPE), text(header::CONTENT_ENCODING));
    if (protocol.accepts_type)(content_type) && (protocol.accepts_encoding)(encoding) {
        return Ok(());
    }
    Err(ApiError::new(Code::UnsupportedMediaType, format!("send {}", protocol.wanted)))
}

thread_local! {
    /// Decompressed bytes; the lane's threads live long, and most bodies fit where the one before did.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Hands out this thread's buffer. One that grew large is not kept: 64 MiB a thread would stay with us for ever.
fn with_scratch<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    const KEPT_BYTES_MAX: usize = 4 << 20;
    SCRATCH.with_borrow_mut(|scratch| {
        let done = work(scratch);
        if scratch.capacity() > KEPT_BYTES_MAX {
            *scratch = Vec::new();
        }
        done
    })
}

/// One request on the ingest lane.
struct Storing {
    deps: WriteDeps,
    protocol: &'static Protocol,
    writing: Writing,
}

impl Storing {
    /// Decodes and appends; remembers what was refused.
    fn store(mut self, body: &[u8], scratch: &mut Vec<u8>) -> ApiResult<()> {
        let now = self.deps.clock.now();
        let Err(Refused { error, series }) = self.try_store(body, scratch, now) else { return Ok(()) };
        if let Some(sender) = self.writing.sender() {
            let whole = || {
                let (code, reason) = (error.code().as_str(), error.detail().to_owned());
                vec![Refusal { series: String::new(), code, reason }]
            };
            let series = if series.is_empty() { whole() } else { series };
            self.deps.rejects.note(self.writing.org, &sender, series, now);
        }
        Err(error)
    }

    fn try_store(&mut self, body: &[u8], scratch: &mut Vec<u8>, now: Timestamp) -> Result<(), Refused> {
        let Storing { deps, protocol, writing } = self;
        let mut batch = (protocol.decode)(body, &deps.limits, scratch)?;
        writing.charge_samples(batch.samples.len().saturating_add(batch.histograms.len()))?;
        batch.forced_labels = std::mem::take(&mut writing.forced_labels);
        let report = deps.tsdb.append(writing.org, &batch, now)?;
        if report.refused == 0 && report.refusals.is_empty() {
            return Ok(());
        }
        Err(Refused { error: partly(&report, said_durability(&deps.tsdb)), series: report.refusals })
    }
}

/// A request that was refused: as a whole, or these of its series.
struct Refused {
    error: ApiError,
    series: Vec<Refusal>,
}

impl<E: Into<ApiError>> From<E> for Refused {
    fn from(error: E) -> Refused {
        Refused { error: error.into(), series: Vec::new() }
    }
}

/// 400 for what was refused, with the first of it in the first line: that line is what senders log.
fn partly(report: &AppendReport, said: HeaderValue) -> ApiError {
    let refusals = report.refusals.iter();
    let first: Vec<String> =
        refusals.clone().take(3).map(|refusal| format!("{}: {}", refusal.series, refusal.reason)).collect();
    let detail =
        format!("{} samples stored, {} refused; {}", report.stored, report.refused, first.join("; "));
    let error = ApiError::new(Code::BadRequest, detail)
        .with("stored", report.stored)
        .with("refused", report.refused)
        .with_header(DURABILITY, said);
    refusals.fold(error, |error, refusal| {
        error.with_field(refusal.series.clone(), refusal.code, refusal.reason.clone())
    })
}
