//! Samples in (docs/specification.md C7): what all ways in share. [`remote`], [`otlp`] and [`import`] have what each takes and answers.
//!
//! What a 2xx says: every sample is stored, or was there already bit for bit, and is on the disk. What a 400 says: what
//! could be stored is stored and on the disk, the rest never will be, and the first line names it. A 503 says: nothing is
//! lost, send it again. Where the operator chose an interval, "on the disk" means: within it; the header `Durability` says
//! `synced` or `buffered`.

mod import;
mod otlp;
mod remote;

use std::cell::RefCell;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use super::rejects::Rejects;
use crate::api::body;
use crate::api::callers::{IngestAccess, IngestCaller};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::{Lanes, Reply};
use crate::api::routes::Routes;
use crate::clock::Clock;
use crate::ingest::{self, DecodeError, DecodeScratch, Protocol, Translated};
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
    pub limits: ingest::DecodeLimits,
    /// What was refused.
    pub rejects: Arc<Rejects>,
}

/// Every way in.
pub fn routes() -> Routes<Arc<WriteDeps>> {
    remote::routes().merge(otlp::routes()).merge(import::routes())
}

/// How a body is read; said by its headers and by the query, before it is there.
struct Incoming {
    format: Format,
    /// Labels that every series gets, replacing the sender's; those of the key replace these.
    labels: Vec<(Box<str>, Box<str>)>,
}

/// Of what kind a body is.
enum Format {
    /// Read in place.
    Borrowed(&'static Protocol),
    /// Read and written down anew.
    Translated { gzip: bool, decode: Translate },
}

type Translate = Box<dyn Fn(&[u8], &ingest::DecodeLimits) -> Result<Translated, DecodeError> + Send + Sync>;

/// What became of a request whose body could be read.
struct Stored {
    /// What was stored, what was refused by the store and by the reader of the body.
    report: AppendReport,
    /// What a 2xx means.
    durability: HeaderValue,
}

/// Takes one request in: who it is from, what it is, its body, and what becomes of that.
///
/// # Errors
/// Of everything that is stored in no part.
async fn take(
    deps: Arc<WriteDeps>,
    machine: IngestCaller,
    slug: &str,
    request: Request,
    admit: impl FnOnce(&Parts) -> ApiResult<Incoming>,
) -> ApiResult<Stored> {
    let writing = machine.enter(slug)?;
    let (parts, body) = request.into_parts();
    let incoming = admit(&parts)?;
    let bytes = body::read(body, deps.limits.compressed_bytes_max).await?;
    let org = writing.org;
    let storing = Arc::new(Storing { deps, incoming, writing });
    let begun = Arc::clone(&storing);
    let work = move |reply| with_scratch(|scratch| begun.begin(&bytes, scratch, reply));
    let outcome = storing.deps.lanes.run_ingest(org, work).await?;
    storing.conclude(outcome)
}

const DURABILITY: HeaderName = HeaderName::from_static("durability");

/// A header's text; what is none is no value that anything accepts.
fn text_of<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).map_or("", |value: &HeaderValue| value.to_str().unwrap_or("?"))
}

/// A sender that is told 415 tries another encoding or another version; 400 would make it drop the batch.
fn unsupported(wanted: &'static str) -> ApiError {
    ApiError::new(Code::UnsupportedMediaType, format!("send {wanted}"))
}

thread_local! {
    /// The lane's threads live long, and most bodies fit where the one before did.
    static SCRATCH: RefCell<DecodeScratch> = RefCell::new(DecodeScratch::default());
}

/// Hands out this thread's memory.
fn with_scratch<T>(work: impl FnOnce(&mut DecodeScratch) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| {
        let done = work(scratch);
        scratch.shrink();
        done
    })
}

/// One request, from the ingest lane's thread to whichever writes the log, and back.
struct Storing {
    deps: Arc<WriteDeps>,
    incoming: Incoming,
    writing: IngestAccess,
}

type Outcome = Result<Appended, ApiError>;

impl Storing {
    /// Decodes and appends; answers once that is durable, which is after this returns if another thread sees to it.
    fn begin(self: &Arc<Self>, body: &[u8], scratch: &mut DecodeScratch, reply: Reply<Outcome>) {
        let appending = match self.prepare(body, scratch) {
            Ok(appending) => appending,
            Err(error) => return self.answer(reply, Err(error)),
        };
        let storing = Arc::clone(self);
        let done = move |said: Result<Appended, AppendError>| storing.answer(reply, said.map_err(Into::into));
        self.deps.tsdb.commit_then(appending, done);
    }

    fn prepare(&self, body: &[u8], scratch: &mut DecodeScratch) -> ApiResult<Appending> {
        let Storing { deps, incoming, writing } = self;
        // Charged in one: what is refused was sent and read all the same, and more than a second's share counts as that.
        let ready = |mut batch: WriteBatch<'_>, charged: usize, refused: usize| {
            let samples = batch.samples.len().saturating_add(batch.histograms.len());
            writing.charge_samples(samples.saturating_add(refused).saturating_sub(charged))?;
            batch.forced_labels = self.forced_labels();
            Ok((deps.tsdb.prepare(writing.org, &batch, deps.clock.now()), samples))
        };
        let limits = &deps.limits;
        match &incoming.format {
            Format::Borrowed(protocol) => {
                guess_or_decode(protocol, limits, body, scratch, |batch, charged| ready(batch, charged, 0))
            }
            Format::Translated { gzip, decode } => {
                let plain = match gzip {
                    true => ingest::gzip::decompress(body, limits, &mut scratch.body)?,
                    false if body.is_empty() => return Err(DecodeError::Empty.into()),
                    false => body,
                };
                let Translated { batch, refusals, refused } = decode(plain, limits)?;
                let (appending, _) = ready(batch.batch(), 0, refused)?;
                Ok(appending?.with_unreadable(refused as u64, refusals))
            }
        }
    }

    /// Those of the request, and those of the key, which win.
    fn forced_labels(&self) -> Vec<(Box<str>, Box<str>)> {
        let keys = &self.writing.forced_labels;
        let is_keys = |name: &str| keys.iter().any(|(forced, _)| **forced == *name);
        let own = self.incoming.labels.iter().filter(|(name, _)| !is_keys(name));
        own.chain(keys).cloned().collect()
    }

    fn answer(&self, reply: Reply<Outcome>, outcome: Outcome) {
        // Nobody waits any more: what was refused is remembered all the same.
        if let Err(outcome) = reply.send(outcome) {
            drop(self.conclude(outcome));
        }
    }

    /// Remembers what was refused.
    fn conclude(&self, outcome: Outcome) -> ApiResult<Stored> {
        let outcome = outcome.map(Appended::report);
        let refusals = match &outcome {
            Ok(report) if report.refusals.is_empty() && report.refused == 0 => Vec::new(),
            Ok(report) if !report.refusals.is_empty() => report.refusals.clone(),
            Ok(report) => vec![of_all("refused", format!("{} samples were refused", report.refused))],
            Err(error) => vec![of_all(error.code().as_str(), error.detail().to_owned())],
        };
        if let Some(sender) = self.writing.sender().filter(|_| !refusals.is_empty()) {
            self.deps.rejects.note(self.writing.org, &sender, refusals, self.deps.clock.now());
        }
        let durability = self.said_durability();
        outcome.map(|report| Stored { report, durability })
    }

    /// What a 2xx means, in the answer's header.
    fn said_durability(&self) -> HeaderValue {
        HeaderValue::from_static(match self.deps.tsdb.durability() {
            Durability::Interval(_) => "buffered",
            _ => "synced",
        })
    }
}

/// A refusal of the whole request, which has no series.
fn of_all(code: &'static str, reason: String) -> Refusal {
    Refusal { series: String::new(), code, reason }
}

/// Decodes by guessing, and again without where `prepare` says so. It is told how many samples it was given before, and
/// answers how many it was given.
fn guess_or_decode<T>(
    protocol: &Protocol,
    limits: &ingest::DecodeLimits,
    body: &[u8],
    scratch: &mut DecodeScratch,
    prepare: impl Fn(WriteBatch<'_>, usize) -> ApiResult<(Result<T, AppendError>, usize)>,
) -> ApiResult<T> {
    let (prepared, samples) = prepare((protocol.guess)(body, limits, scratch)?, 0)?;
    let prepared = match prepared {
        Err(AppendError::Guessed) => prepare((protocol.decode)(body, limits, scratch)?, samples)?.0,
        prepared => prepared,
    };
    Ok(prepared?)
}

impl Stored {
    /// Whether everything is stored.
    fn is_whole(&self) -> bool {
        self.report.refused == 0 && self.report.refusals.is_empty()
    }

    /// The first of what was refused, in a line: that line is what senders log.
    fn first_refusals(&self) -> String {
        // What could not be read has no series, and says in its reason where it stands.
        let one = |refusal: &Refusal| match refusal.series.as_str() {
            "" => refusal.reason.clone(),
            series => format!("{series}: {}", refusal.reason),
        };
        let first: Vec<String> = self.report.refusals.iter().take(3).map(one).collect();
        first.join("; ")
    }

    /// 400 for what was refused: counts by these names, and the first refusals one by one.
    fn partly(&self, [stored, refused]: [&'static str; 2]) -> ApiError {
        let AppendReport { stored: samples, refused: bad, refusals, .. } = &self.report;
        let detail = format!("{samples} samples stored, {bad} refused; {}", self.first_refusals());
        let error = ApiError::new(Code::BadRequest, detail)
            .with(stored, *samples)
            .with(refused, *bad)
            .with_header(DURABILITY, self.durability.clone());
        refusals.iter().fold(error, |error, refusal| {
            let place = if refusal.series.is_empty() { "body" } else { &refusal.series };
            error.with_field(place.to_owned(), refusal.code, refusal.reason.clone())
        })
    }
}

/// Content type and content encoding.
fn media(headers: &HeaderMap) -> (&str, &str) {
    (text_of(headers, &header::CONTENT_TYPE), text_of(headers, &header::CONTENT_ENCODING))
}

/// A media type without its parameters, in lower case.
fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether a body is gzip or as it is; none where it is something else.
fn gzip(content_encoding: &str) -> Option<bool> {
    match &*content_encoding.trim().to_ascii_lowercase() {
        "" | "identity" => Some(false),
        "gzip" | "x-gzip" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
