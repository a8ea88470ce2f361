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
use crate::api::lanes::{Lanes, Reply};
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Routes};
use crate::clock::Clock;
use crate::ingest::{self, PROTOCOLS, Protocol};
use crate::model::{Refusal, WriteBatch};
use crate::tsdb::{AppendError, AppendReport, Appended, Appending, Durability, Tsdb};

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
pub fn routes() -> Routes<Arc<WriteDeps>> {
    let rows = PROTOCOLS.iter().flat_map(|protocol| protocol.paths.iter().map(move |path| (protocol, *path)));
    rows.fold(Routes::new(), |routes, (protocol, path)| {
        let handler =
            move |State(deps): State<Arc<WriteDeps>>,
                  machine: Machine,
                  PathOf(slug): PathOf<String>,
                  request: Request| { write(deps, protocol, machine, slug, request) };
        routes.post(path, Auth::Machine, protocol.summary, handler)
    })
}

async fn write(
    deps: Arc<WriteDeps>,
    protocol: &'static Protocol,
    machine: Machine,
    slug: String,
    request: Request,
) -> ApiResult<Response> {
    let writing = machine.enter(&slug)?;
    let (parts, body) = request.into_parts();
    admit_media(protocol, &parts.headers)?;
    let bytes = body::read(body, deps.limits.compressed_bytes_max).await?;
    let org = writing.org;
    let storing = Arc::new(Storing { deps, protocol, writing });
    let begun = Arc::clone(&storing);
    let work = move |reply| with_scratch(|scratch| begun.begin(&bytes, scratch, reply));
    let outcome = storing.deps.lanes.run_ingest(org, work).await?;
    storing.conclude(outcome)?;
    Ok((StatusCode::NO_CONTENT, [(DURABILITY, storing.said_durability())], Body::empty()).into_response())
}

const DURABILITY: HeaderName = HeaderName::from_static("durability");

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
    const KEPT_BYTES_MAX: usize = 5 << 20;
    SCRATCH.with_borrow_mut(|scratch| {
        let done = work(scratch);
        if scratch.capacity() > KEPT_BYTES_MAX {
            *scratch = Vec::new();
        }
        done
    })
}

/// One request, from the ingest lane's thread to whichever writes the log, and back.
struct Storing {
    deps: Arc<WriteDeps>,
    protocol: &'static Protocol,
    writing: Writing,
}

type Outcome = Result<Appended, ApiError>;

impl Storing {
    /// Decodes and appends; answers once that is durable, which is after this returns if another thread sees to it.
    fn begin(self: &Arc<Self>, body: &[u8], scratch: &mut Vec<u8>, reply: Reply<Outcome>) {
        let appending = match self.prepare(body, scratch) {
            Ok(appending) => appending,
            Err(error) => return self.answer(reply, Err(error)),
        };
        let storing = Arc::clone(self);
        let done = move |said: Result<Appended, AppendError>| storing.answer(reply, said.map_err(Into::into));
        self.deps.tsdb.commit_then(appending, done);
    }

    fn prepare(&self, body: &[u8], scratch: &mut Vec<u8>) -> ApiResult<Appending> {
        let Storing { deps, protocol, writing } = self;
        let ready = |mut batch: WriteBatch<'_>, charged: usize| {
            let samples = batch.samples.len().saturating_add(batch.histograms.len());
            writing.charge_samples(samples.saturating_sub(charged))?;
            batch.forced_labels.clone_from(&writing.forced_labels);
            Ok((deps.tsdb.prepare(writing.org, &batch, deps.clock.now()), samples))
        };
        guess_or_decode(protocol, &deps.limits, body, scratch, ready)
    }

    fn answer(&self, reply: Reply<Outcome>, outcome: Outcome) {
        // Nobody waits any more: what was refused is remembered all the same.
        if let Err(outcome) = reply.send(outcome) {
            drop(self.conclude(outcome));
        }
    }

    /// Remembers what was refused.
    fn conclude(&self, outcome: Outcome) -> ApiResult<()> {
        let (error, series) = match outcome.map(Appended::report) {
            Ok(report) if report.refused == 0 && report.refusals.is_empty() => return Ok(()),
            Ok(report) => (partly(&report, self.said_durability()), report.refusals),
            Err(error) => (error, Vec::new()),
        };
        if let Some(sender) = self.writing.sender() {
            let whole = || {
                let (code, reason) = (error.code().as_str(), error.detail().to_owned());
                vec![Refusal { series: String::new(), code, reason }]
            };
            let series = if series.is_empty() { whole() } else { series };
            self.deps.rejects.note(self.writing.org, &sender, series, self.deps.clock.now());
        }
        Err(error)
    }

    /// What a 2xx means, in the answer's header.
    fn said_durability(&self) -> HeaderValue {
        HeaderValue::from_static(match self.deps.tsdb.durability() {
            Durability::Interval(_) => "buffered",
            _ => "synced",
        })
    }
}

/// Decodes by guessing, and again without where `prepare` says so. It is told how many samples it was given before, and
/// answers how many it was given.
fn guess_or_decode<T>(
    protocol: &Protocol,
    limits: &ingest::Limits,
    body: &[u8],
    scratch: &mut Vec<u8>,
    prepare: impl Fn(WriteBatch<'_>, usize) -> ApiResult<(Result<T, AppendError>, usize)>,
) -> ApiResult<T> {
    let (prepared, samples) = prepare((protocol.guess)(body, limits, scratch)?, 0)?;
    let prepared = match prepared {
        Err(AppendError::Guessed) => prepare((protocol.decode)(body, limits, scratch)?, samples)?.0,
        prepared => prepared,
    };
    Ok(prepared?)
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

#[cfg(test)]
mod tests;
