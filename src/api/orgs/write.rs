//! Ingestion of samples (docs/specification.md C7): the code that all formats share. [`remote`],
//! [`otlp`] and [`import`] decode the requests and encode the responses of each format.
//!
//! * 2xx: every sample is stored and synced to the disk, or an identical sample was stored before.
//! * 400: the accepted samples are stored and synced; the others are refused for good, and the
//!   first line of the body names the first of them.
//! * 503: the client may send the whole request again.
//!
//! If the operator chose a sync interval, samples are synced within that interval instead. The
//! header `Durability` of the response is `synced` or `buffered` accordingly.

pub(in crate::api) mod import;
pub(in crate::api) mod otlp;
mod relabel;
pub(in crate::api) mod remote;

use std::cell::RefCell;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use super::query::engines::Engines;
use super::rejects::Rejects;
use crate::api::body;
use crate::api::callers::IngestAccess;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::{Lanes, Reply};
use crate::api::routes::Routes;
use crate::clock::{Clock, Stopwatch};
use crate::forward::{BodyFormat, ReceivedBodies};
use crate::ingest::otlp::{self as otlp_format, DeltaTotals};
use crate::ingest::{self, DecodeError, DecodeScratch, Protocol, Translated};
use crate::model::{GuessedBatch, OrgId, Refusal, WriteBatch};
use crate::push::totals::{RequestTotals, SeriesTotals, StoredTotals};
use crate::tsdb::{
    AppendError, AppendReport, Appended, Appending, Durability, GuessOutcome, Tsdb, UNREADABLE,
};

/// The dependencies of the ingestion routes.
#[derive(Clone, Debug)]
pub struct WriteDeps {
    /// The store of samples.
    pub tsdb: Arc<Tsdb>,
    /// The thread pools that decode and append.
    pub lanes: Lanes,
    /// The wall clock.
    pub clock: Clock,
    /// The limits of one request.
    pub limits: ingest::DecodeLimits,
    /// The last refusals of each organisation.
    pub rejects: Arc<Rejects>,
    /// The location of each organisation's samples.
    pub engines: Arc<Engines>,
    /// The totals of series whose senders report changes; `None` in an agent, which stores none.
    pub totals: Option<Arc<SeriesTotals>>,
    /// Changes the labels of each series before it is stored, in an agent with rules.
    pub relabel: Option<Relabel>,
    /// The bodies that targets may get as they were received.
    pub received: Arc<ReceivedBodies>,
}

pub use relabel::{LabelList, Relabel};

/// The routes of all formats.
pub fn routes() -> Routes<Arc<WriteDeps>> {
    remote::routes().merge(otlp::routes()).merge(import::routes())
}

/// The properties of a body according to the request's headers and query, before the body is read.
struct BodyDescription {
    decoder: BodyDecoder,
    /// Labels for every series. They replace the sender's labels; the labels of the API key replace
    /// them.
    labels: Vec<(Box<str>, Box<str>)>,
}

/// The decoder of a body.
enum BodyDecoder {
    /// Makes a batch that borrows the body.
    Borrowing(&'static Protocol),
    /// Translates the body to a batch of its own.
    Translating { gzip: bool, format: TranslatedFormat },
}

/// The format of a body that is translated.
enum TranslatedFormat {
    Import(TranslateFn),
    /// OTLP, whose points may be changes of totals.
    Otlp(otlp_format::Encoding),
}

type TranslateFn = Box<dyn Fn(&[u8], &ingest::DecodeLimits) -> Result<Translated, DecodeError> + Send + Sync>;

/// The outcome of a request whose body could be decoded.
struct IngestOutcome {
    /// The samples that were stored, and those that the decoder or the store refused.
    report: AppendReport,
    /// The value of the header `Durability`.
    durability: HeaderValue,
    /// Whether the response waited, because the request gives way and others are active.
    has_waited: bool,
}

/// Handles one ingestion request of an admitted caller: checks the headers with `describe`, reads
/// the body, and stores its samples.
///
/// # Errors
/// The reason why no sample was stored.
async fn handle(
    deps: Arc<WriteDeps>,
    access: IngestAccess,
    request: Request,
    describe: impl FnOnce(&Parts) -> ApiResult<BodyDescription>,
) -> ApiResult<IngestOutcome> {
    deps.engines.require_local_writes(access.org)?;
    let (parts, body) = request.into_parts();
    let body_description = describe(&parts)?;
    let bytes = body::read(body, deps.limits.compressed_bytes_max).await?;
    let org = access.org;
    let job = IngestJob { deps, body: body_description, access, received: None };
    let job = Arc::new(IngestJob { received: job.received(&bytes), ..job });
    let started = Arc::clone(&job);
    let work = move |reply| with_scratch(|scratch| started.start(&bytes, scratch, reply));
    if !gives_way(&parts.headers) {
        let result = job.deps.lanes.run_ingest(org, work).await?;
        return job.finish(result);
    }
    let since = Stopwatch::start();
    let result = job.deps.lanes.run_background_ingest(org, work).await?;
    let took = since.elapsed();
    let outcome = job.finish(result)?;
    job.deps.seal_late(org).await;
    let has_waited = job.deps.lanes.give_way(took).await;
    Ok(IngestOutcome { has_waited, ..outcome })
}

/// Returns whether a request gives way to others: whether its urgency is the last one of RFC 9218.
fn gives_way(headers: &HeaderMap) -> bool {
    text_of(headers, &PRIORITY).split(',').any(|part| part.trim() == "u=7")
}

const PRIORITY: HeaderName = HeaderName::from_static("priority");
/// The response header of a request that gave way.
const GAVE_WAY: HeaderName = HeaderName::from_static("gave-way");

pub(super) const DURABILITY: HeaderName = HeaderName::from_static("durability");

/// Returns a header's text: empty if it is missing, `?` if it is not ASCII. Each caller refuses
/// `?`.
fn text_of<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).map_or("", |value: &HeaderValue| value.to_str().unwrap_or("?"))
}

/// Returns 415, after which a sender tries another encoding or version. After 400 it would drop the
/// batch.
pub(super) fn unsupported(expected: &'static str) -> ApiError {
    ApiError::new(Code::UnsupportedMediaType, format!("send {expected}"))
}

thread_local! {
    /// Buffers that the threads of the lane reuse, because most bodies have a similar size.
    static SCRATCH: RefCell<DecodeScratch> = RefCell::new(DecodeScratch::default());
}

/// Runs `work` with this thread's buffers, and shrinks them afterwards.
fn with_scratch<T>(work: impl FnOnce(&mut DecodeScratch) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| {
        let done = work(scratch);
        scratch.shrink();
        done
    })
}

/// One request on its way through a thread of the ingest lane, the thread that writes the log, and
/// back.
struct IngestJob {
    deps: Arc<WriteDeps>,
    body: BodyDescription,
    access: IngestAccess,
    /// The body, if targets may get it as it was received.
    received: Option<(BodyFormat, Bytes)>,
}

/// The bytes up to which a received body is copied, inclusive. It may be a small part of the buffer
/// of its connection.
const RECEIVED_COPY_MAX: usize = 64 << 10;

/// A stored request, before or after its refused series were named.
enum WriteResult {
    Applied(Appended),
    Reported(AppendReport),
}

impl WriteResult {
    fn report(self) -> AppendReport {
        match self {
            WriteResult::Applied(appended) => appended.report(),
            WriteResult::Reported(report) => report,
        }
    }
}

type AppendResult = Result<WriteResult, ApiError>;

impl IngestJob {
    /// Decodes and appends the samples, and replies once they are durable. Another thread may write
    /// the log; then the reply comes after this function has returned.
    fn start(self: &Arc<Self>, body: &[u8], scratch: &mut DecodeScratch, reply: Reply<AppendResult>) {
        if let Some(totals) = &self.deps.totals
            && matches!(self.body.decoder, BodyDecoder::Translating { format: TranslatedFormat::Otlp(_), .. })
        {
            return self.start_with_totals(totals, (body, scratch), reply);
        }
        match self.prepare(body, scratch, None) {
            Ok(appending) => self.commit(appending, reply),
            Err(error) => self.reply(reply, Err(error)),
        }
    }

    fn commit(self: &Arc<Self>, appending: Appending, reply: Reply<AppendResult>) {
        let job = Arc::clone(self);
        let done = move |result: Result<Appended, AppendError>| {
            if let (Some((format, body)), Ok(appended)) = (&job.received, &result)
                && let Some(span) = appended.complete_span()
            {
                job.deps.received.add(job.access.org, *format, span, body);
            }
            job.reply(reply, result.map(WriteResult::Applied).map_err(Into::into));
        };
        self.deps.tsdb.commit_then(appending, done);
    }

    /// Like [`IngestJob::start`]. A request whose points are changes holds the totals of its
    /// organisation until its samples are durable, so this thread waits for them.
    fn start_with_totals(
        self: &Arc<Self>,
        totals: &SeriesTotals,
        (body, scratch): (&[u8], &mut DecodeScratch),
        reply: Reply<AppendResult>,
    ) {
        let now = self.deps.clock.now();
        let org = totals.of(self.access.org);
        let forced_labels = self.forced_labels();
        let stored = StoredTotals::new(&self.deps.tsdb, self.access.org, &forced_labels, now);
        let mut changes = RequestTotals::new(&org, &totals.counts, stored, now);
        let appending = match self.prepare(body, scratch, Some(&mut changes)) {
            Ok(appending) => appending,
            Err(error) => return self.reply(reply, Err(error)),
        };
        if !changes.is_used() {
            return self.commit(appending, reply);
        }
        let (done, result) = std::sync::mpsc::channel();
        // The receiver outlives the call.
        self.deps.tsdb.commit_then(appending, move |result| drop(done.send(result)));
        let result = match result.recv() {
            Ok(result) => result.map(Appended::report).map_err(ApiError::from),
            Err(_) => Err(ApiError::internal("the thread of the log dropped a write")),
        };
        match &result {
            // Points that the decoder refused changed no total.
            Ok(report) if report.refused_by_code.iter().all(|(code, _)| *code == UNREADABLE) => {
                changes.keep();
            }
            Ok(_) => changes.forget(),
            // The totals are as before, and the sender sends the request again.
            Err(_) => drop(changes),
        }
        self.reply(reply, result.map(WriteResult::Reported));
    }

    fn prepare<'t>(
        &'t self,
        body: &[u8],
        scratch: &mut DecodeScratch,
        totals: Option<&'t mut (dyn DeltaTotals + 't)>,
    ) -> ApiResult<Appending> {
        let IngestJob { deps, body: description, access, .. } = self;
        // One charge for all samples: refused ones were sent and decoded as well, and a request
        // with more than one second's samples is charged for one second.
        let charge = |batch: &mut WriteBatch<'_>, charged: usize, refused: usize| -> ApiResult<usize> {
            let samples = batch.samples.len().saturating_add(batch.histograms.len());
            access.charge_samples(samples.saturating_add(refused).saturating_sub(charged))?;
            batch.forced_labels = self.forced_labels();
            Ok(samples)
        };
        let prepare = |mut batch: WriteBatch<'_>, charged: usize, refused: usize| -> ApiResult<Appending> {
            charge(&mut batch, charged, refused)?;
            let Some(relabel) = &deps.relabel else {
                return Ok(deps.tsdb.prepare(access.org, &batch, deps.clock.now())?);
            };
            let relabelled = relabel.apply(&batch);
            let batch = relabelled.batch(batch);
            let appending = deps.tsdb.prepare(access.org, &batch, deps.clock.now())?;
            Ok(relabelled.report(appending))
        };
        let limits = &deps.limits;
        match &description.decoder {
            // A guess has no labels to change yet.
            BodyDecoder::Borrowing(protocol) if deps.relabel.is_some() => {
                prepare((protocol.decode)(body, limits, scratch)?, 0, 0)
            }
            BodyDecoder::Borrowing(protocol) => {
                let prepare_guessed = |mut batch: GuessedBatch<'_>| {
                    let samples = charge(&mut batch.0, 0, 0)?;
                    Ok((deps.tsdb.prepare_guessed(access.org, &batch, deps.clock.now())?, samples))
                };
                guess_or_decode(protocol, limits, body, scratch, prepare_guessed, |batch, charged| {
                    prepare(batch, charged, 0)
                })
            }
            BodyDecoder::Translating { gzip, format } => {
                let plain = match gzip {
                    true => ingest::gzip::decompress(body, limits, &mut scratch.body)?,
                    false if body.is_empty() => return Err(DecodeError::Empty.into()),
                    false => body,
                };
                let Translated { batch, refusals, refused, skipped } = match format {
                    TranslatedFormat::Import(decode) => decode(plain, limits)?,
                    TranslatedFormat::Otlp(encoding) => {
                        otlp_format::decode_with_totals(plain, *encoding, limits, totals)?
                    }
                };
                let appending = prepare(batch.batch(), 0, refused)?;
                Ok(appending.with_skipped(skipped as u64).with_unreadable(refused as u64, refusals))
            }
        }
    }

    /// Returns the body, if a target takes its format and its series are stored as they were sent.
    fn received(&self, body: &Bytes) -> Option<(BodyFormat, Bytes)> {
        let BodyDecoder::Borrowing(protocol) = self.body.decoder else { return None };
        let format = remote::body_format(protocol);
        let is_wanted = self.deps.received.wants(self.access.org, format);
        if !is_wanted || self.deps.relabel.is_some() || !self.forced_labels().is_empty() {
            return None;
        }
        let is_small = body.len() <= RECEIVED_COPY_MAX;
        Some((format, if is_small { Bytes::copy_from_slice(body) } else { body.clone() }))
    }

    /// Returns the forced labels of the request and of the API key; the key's labels take
    /// precedence.
    fn forced_labels(&self) -> Vec<(Box<str>, Box<str>)> {
        let of_key = &self.access.forced_labels;
        let key_forces = |name: &str| of_key.iter().any(|(forced, _)| **forced == *name);
        let of_request = self.body.labels.iter().filter(|(name, _)| !key_forces(name));
        of_request.chain(of_key).cloned().collect()
    }

    fn reply(&self, reply: Reply<AppendResult>, result: AppendResult) {
        // The client has disconnected. The refusals are recorded nevertheless.
        if let Err(result) = reply.send(result) {
            drop(self.finish(result));
        }
    }

    /// Records the refusals of the request.
    fn finish(&self, result: AppendResult) -> ApiResult<IngestOutcome> {
        let report = result.map(WriteResult::report);
        let refusals = match &report {
            Ok(report) if report.refusals.is_empty() && report.refused == 0 => Vec::new(),
            Ok(report) if !report.refusals.is_empty() => report.refusals.clone(),
            Ok(report) => {
                vec![request_refusal("refused", format!("{} samples were refused", report.refused))]
            }
            Err(error) => vec![request_refusal(error.code().as_str(), error.detail().to_owned())],
        };
        if let Some(sender) = self.access.sender().filter(|_| !refusals.is_empty()) {
            self.deps.rejects.record(self.access.org, &sender, refusals, self.deps.clock.now());
        }
        let durability = self.deps.durability();
        report.map(|report| IngestOutcome { report, durability, has_waited: false })
    }
}

impl WriteDeps {
    /// Seals the late samples of an organisation if there are many. An import of old samples, which
    /// are late, would fill the memory between two seals of the background.
    async fn seal_late(&self, org: OrgId) {
        if !self.tsdb.has_many_late(org) {
            return;
        }
        let (tsdb, now) = (Arc::clone(&self.tsdb), self.clock.now());
        let work = move |reply: Reply<()>| {
            // A failure is counted and shown with those of other seals; the samples stay in memory
            // and in the log.
            let _ = tsdb.seal_late(org, now);
            // The client may have disconnected.
            let _ = reply.send(());
        };
        // If no thread is free, a later request tries again.
        let _ = self.lanes.run_background_ingest(org, work).await;
    }

    /// Returns the value of the header `Durability`.
    pub(super) fn durability(&self) -> HeaderValue {
        HeaderValue::from_static(match self.tsdb.durability() {
            Durability::Interval(_) => "buffered",
            _ => "synced",
        })
    }
}

/// Returns 400 with the counts of stored and refused samples, and the refusals.
pub(super) fn partial_error(deps: &WriteDeps, report: AppendReport) -> ApiError {
    IngestOutcome { report, durability: deps.durability(), has_waited: false }
        .partial_error("accepted", "rejected")
}

/// Returns a refusal of the whole request, which names no series.
pub(super) fn request_refusal(code: &'static str, reason: String) -> Refusal {
    Refusal { series: String::new(), code, reason }
}

/// Decodes with [`Protocol::guess`], and with [`Protocol::decode`] if there is nothing to guess or
/// the guess may be wrong. `prepare_guessed` returns also the number of samples of its batch, which
/// `prepare` receives; 0 if there was no guess.
fn guess_or_decode(
    protocol: &Protocol,
    limits: &ingest::DecodeLimits,
    body: &[u8],
    scratch: &mut DecodeScratch,
    prepare_guessed: impl FnOnce(GuessedBatch<'_>) -> ApiResult<(GuessOutcome, usize)>,
    prepare: impl FnOnce(WriteBatch<'_>, usize) -> ApiResult<Appending>,
) -> ApiResult<Appending> {
    let mut guessed_samples = 0;
    if let Some(guess) = protocol.guess {
        match prepare_guessed(guess(body, limits, scratch)?)? {
            (GuessOutcome::Ready(appending), _) => return Ok(appending),
            (GuessOutcome::Doubtful, samples) => guessed_samples = samples,
        }
    }
    prepare((protocol.decode)(body, limits, scratch)?, guessed_samples)
}

impl IngestOutcome {
    /// Returns whether no sample was refused.
    fn is_complete(&self) -> bool {
        self.report.refused == 0 && self.report.refusals.is_empty()
    }

    /// Returns the first three refusals in one line, which senders log.
    fn first_refusals(&self) -> String {
        // A refusal of the decoder has no series; its reason contains the position.
        let one = |refusal: &Refusal| match refusal.series.as_str() {
            "" => refusal.reason.clone(),
            series => format!("{series}: {}", refusal.reason),
        };
        let first: Vec<String> = self.report.refusals.iter().take(3).map(one).collect();
        first.join("; ")
    }

    /// Returns 400 with the counts of stored and refused samples, in fields of these names, and the
    /// refusals.
    fn partial_error(&self, stored_field: &'static str, refused_field: &'static str) -> ApiError {
        let AppendReport { stored, refused, refusals, .. } = &self.report;
        let detail = format!("{stored} samples stored, {refused} refused; {}", self.first_refusals());
        let error = ApiError::new(Code::BadRequest, detail)
            .with(stored_field, *stored)
            .with(refused_field, *refused)
            .with_header(DURABILITY, self.durability.clone());
        refusals.iter().fold(error, |error, refusal| {
            let field = if refusal.series.is_empty() { "body" } else { &refusal.series };
            error.with_field(field.to_owned(), refusal.code, refusal.reason.clone())
        })
    }
}

/// Returns `Content-Type` and `Content-Encoding`, empty if missing.
pub(super) fn media(headers: &HeaderMap) -> (&str, &str) {
    (text_of(headers, &header::CONTENT_TYPE), text_of(headers, &header::CONTENT_ENCODING))
}

/// Returns a media type without its parameters, in lower case.
pub(super) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns whether a body is compressed with gzip; `None` for any other content coding.
pub(super) fn gzip(content_encoding: &str) -> Option<bool> {
    match &*content_encoding.trim().to_ascii_lowercase() {
        "" | "identity" => Some(false),
        "gzip" | "x-gzip" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
