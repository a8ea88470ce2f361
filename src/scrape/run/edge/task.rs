//! The task of one target.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::{ScrapeDeps, ScrapeDone, ScrapeStored, TargetCommand, warn_of_lost_markers};
use crate::clock::Stopwatch;
use crate::ingest::{DecodeError, DecodeLimits, gzip};
use crate::model::{OrgId, Timestamp};
use crate::outbound::{PullRequest, PullResponse, PullServer, TargetError};
use crate::scrape::config::ScrapeJob;
use crate::scrape::run::batch::ScrapeBatch;
use crate::scrape::run::error::ScrapeError;
use crate::scrape::run::negotiate::{accept_header, response_format};
use crate::scrape::run::response::ScrapeBody;
use crate::scrape::run::status::ScrapeStatus;
use crate::scrape::run::target_run::{ScrapeFacts, ScrapeRun};
use crate::scrape::target::ScrapeTarget;
use crate::sync::IgnorePoison as _;

/// A target, its state, and its connection with the request that is sent on it.
pub(super) struct TargetTask {
    org: OrgId,
    deps: ScrapeDeps,
    /// Locked by this task, and by its work on another thread while this task waits for it.
    run: Arc<Mutex<ScrapeRun>>,
    status: Arc<Mutex<ScrapeStatus>>,
    commands: watch::Receiver<TargetCommand>,
    connection: Option<(PullServer, PullRequest)>,
}

/// A scrape that has been fetched.
struct FetchedScrape {
    at: Timestamp,
    duration: Duration,
    fetched: Result<PullResponse, ScrapeError>,
}

impl TargetTask {
    pub(super) fn new(
        org: OrgId,
        deps: ScrapeDeps,
        run: ScrapeRun,
        status: Arc<Mutex<ScrapeStatus>>,
        commands: watch::Receiver<TargetCommand>,
    ) -> TargetTask {
        TargetTask { org, deps, run: Arc::new(Mutex::new(run)), status, commands, connection: None }
    }

    /// Scrapes until the target is removed and its markers are stored, or the fleet is dropped.
    pub(super) async fn run(mut self) {
        loop {
            let command = self.commands.borrow_and_update().clone();
            self.adopt(&command.plan.target);
            let now = self.deps.clock.now();
            let wait = match command.is_ending {
                true => {
                    let (_, due) = self.run.lock().ignore_poison().end_times();
                    Duration::from_millis(u64::try_from(due.ms_since(now)).unwrap_or(0))
                }
                false => self.run.lock().ignore_poison().wait(now),
            };
            tokio::select! {
                biased;
                changed = self.commands.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                () = tokio::time::sleep(wait) => {}
            }
            if command.is_ending {
                self.end().await;
                // The target may have returned while its markers were stored.
                if self.commands.borrow().is_ending {
                    return;
                }
                self.restart(&command.plan.target);
                continue;
            }
            self.scrape(&command).await;
        }
    }

    /// Continues with a changed target.
    fn adopt(&mut self, target: &Arc<ScrapeTarget>) {
        let mut run = self.run.lock().ignore_poison();
        if Arc::ptr_eq(run.target(), target) || **run.target() == **target {
            return;
        }
        run.adopt(Arc::clone(target), self.deps.clock.now());
        drop(run);
        self.connection = None;
    }

    fn restart(&mut self, target: &Arc<ScrapeTarget>) {
        let now = self.deps.clock.now();
        *self.run.lock().ignore_poison() =
            ScrapeRun::new(Arc::clone(target), Arc::clone(&self.deps.settings), now);
    }

    async fn scrape(&mut self, command: &TargetCommand) {
        let at = self.run.lock().ignore_poison().begin(self.deps.clock.now());
        let watch = Stopwatch::start();
        let fetched = match &command.plan.forced_error {
            Some(reason) => Err(ScrapeError::Job(reason.to_string())),
            None => self.fetch(command).await,
        };
        let scrape = FetchedScrape { at, duration: watch.elapsed(), fetched };
        let max_wait = group_wait(self.run.lock().ignore_poison().wait(self.deps.clock.now()));
        let (org, deps, run) = (self.org, self.deps.clone(), Arc::clone(&self.run));
        let work = move |reply| finish(&mut run.lock().ignore_poison(), scrape, (org, &deps), reply);
        let stored = self.work(work, max_wait).await;
        let mut run = self.run.lock().ignore_poison();
        let stored = stored.unwrap_or_else(|| {
            run.count_dropped();
            Err("too many responses wait".to_owned())
        });
        record(&mut run, stored, self.org);
        *self.status.lock().ignore_poison() = run.status().clone();
    }

    async fn fetch(&mut self, command: &TargetCommand) -> Result<PullResponse, ScrapeError> {
        let target = &command.plan.target;
        let client = command.client.as_ref().map_err(|reason| ScrapeError::Job(reason.to_string()))?;
        let (server, request) = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let server = client.server(&target.base).map_err(ScrapeError::Job)?;
                let request = request(target, &self.deps.settings.limits);
                none.insert((server.with_budget(&self.deps.bodies), request))
            }
        };
        server.get(request).await.map_err(|error| match error {
            TargetError::TooLarge(bytes) => ScrapeError::BodySize(bytes),
            error => ScrapeError::Fetch(error),
        })
    }

    /// Stores the markers of a removed target.
    async fn end(&self) {
        let (org, deps, run) = (self.org, self.deps.clone(), Arc::clone(&self.run));
        let work = move |reply: StoreReply| {
            let mut run = run.lock().ignore_poison();
            let (at, _) = run.end_times();
            let batch = run.end(at);
            commit((org, &deps), &batch, reply.done());
        };
        let stored = self.work(work, Duration::ZERO).await;
        warn_of_lost_markers(org, stored.unwrap_or_else(|| Err("too many jobs wait".to_owned())));
    }

    /// Runs work on a thread that may block, and returns its reply; `None` if it did not run.
    async fn work(
        &self,
        work: impl FnOnce(StoreReply) + Send + 'static,
        max_wait: Duration,
    ) -> Option<Result<ScrapeStored, String>> {
        let (sender, mut replies) = mpsc::channel(1);
        let run = move || {
            // A panic has been logged by the hook of the process.
            let _ = catch_unwind(AssertUnwindSafe(|| work(StoreReply(sender))));
        };
        if !self.deps.sink.spawn(self.org, Box::new(run), max_wait) {
            tracing::debug!("a scrape was dropped, because too many responses wait");
        }
        replies.recv().await
    }
}

/// The way back to a task that waits for its samples to be stored. The first reply counts.
#[derive(Clone)]
struct StoreReply(mpsc::Sender<Result<ScrapeStored, String>>);

impl StoreReply {
    fn done(self) -> ScrapeDone {
        // The task may have ended.
        Box::new(move |stored| drop(self.0.try_send(stored)))
    }
}

/// The longest time that a response waits for others.
const GROUP_WAIT_MAX: Duration = Duration::from_millis(80);

/// Returns the time that a response may wait for others: a quarter of the time until the next
/// scrape, which it must not delay.
fn group_wait(until_next: Duration) -> Duration {
    (until_next / 4).min(GROUP_WAIT_MAX)
}

/// Returns the request of every scrape of a target.
fn request(target: &ScrapeTarget, limits: &DecodeLimits) -> PullRequest {
    let job = &target.job;
    let timeout = Duration::from_millis(target.timeout_ms.unsigned_abs());
    let encoding = if job.enable_compression { "gzip" } else { "identity" };
    PullRequest {
        path_and_query: target.path_and_query.clone(),
        headers: vec![
            ("accept", accept_header(&job.protocols, job.name_escaping)),
            ("accept-encoding", encoding.to_owned()),
            ("x-prometheus-scrape-timeout-seconds", seconds(timeout)),
        ],
        timeout,
        body_bytes_max: body_bytes_max(job, limits),
    }
}

/// Returns the most bytes of a body.
fn body_bytes_max(job: &ScrapeJob, limits: &DecodeLimits) -> u64 {
    let own = limits.decompressed_bytes_max as u64;
    match job.limits.body_size_limit {
        0 => own,
        limit => limit.min(own),
    }
}

/// Formats a timeout for the header that exporters read.
fn seconds(timeout: Duration) -> String {
    format!("{}", timeout.as_secs_f64())
}

/// Where samples are stored.
type ScrapeStore<'d> = (OrgId, &'d ScrapeDeps);

/// Decodes a response and stores its samples. After a panic, the scrape counts as failed.
fn finish(run: &mut ScrapeRun, scrape: FetchedScrape, store: ScrapeStore<'_>, reply: StoreReply) {
    let FetchedScrape { at, duration, fetched } = scrape;
    let (org, deps) = store;
    let worked = catch_unwind(AssertUnwindSafe(|| {
        let job = Arc::clone(&run.target().job);
        let mut scratch = Vec::new();
        let bytes = match &fetched {
            Ok(response) => decompressed(response, &job, &deps.settings.limits, &mut scratch),
            Err(error) => Err(error.clone()),
        };
        let body_bytes = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let content_type = fetched.as_ref().map_or("", |response| response.content_type.as_str());
        let body = bytes.and_then(|bytes| {
            let format = response_format(content_type, job.fallback_protocol)?;
            Ok(ScrapeBody { format, bytes })
        });
        let facts = ScrapeFacts { at, duration, body_bytes };
        let mut done = reply.clone().done();
        if let Ok(body) = &body {
            match repeat(run, facts, *body, store, done) {
                Ok(()) => return,
                Err(unused) => done = unused,
            }
        }
        let outcome = run.finish(facts, body);
        commit(store, &outcome.batch, done);
        if run.wants_keys() {
            run.set_keys(deps.sink.series_keys(org, &outcome.batch.batch()));
        }
    }));
    if worked.is_err() {
        let outcome = run.finish(ScrapeFacts { at, duration, body_bytes: 0 }, Err(ScrapeError::Panicked));
        commit(store, &outcome.batch, reply.done());
    }
}

/// Records the result of storing a scrape, and logs a new reason why samples were not stored.
fn record(run: &mut ScrapeRun, stored: Result<ScrapeStored, String>, org: OrgId) {
    if let Some(reason) = run.stored(stored) {
        let (job, instance) = (&*run.target().job.name, run.target().labels.value("instance"));
        tracing::warn!(org = org.0, job, instance, "{reason}");
    }
}

/// Stores a response that differs from the last one only in its values.
///
/// # Errors
/// `done`, and nothing is stored, if it differs otherwise or if the store does not know its series
/// any more.
fn repeat(
    run: &mut ScrapeRun,
    facts: ScrapeFacts,
    body: ScrapeBody<'_>,
    (org, deps): ScrapeStore<'_>,
    done: ScrapeDone,
) -> Result<(), ScrapeDone> {
    let Some(batch) = run.repeat(facts, body) else { return Err(done) };
    deps.sink.commit_keyed(org, batch, deps.clock.now(), done)?;
    run.repeated(facts);
    Ok(())
}

fn commit((org, deps): ScrapeStore<'_>, batch: &ScrapeBatch, done: ScrapeDone) {
    match batch.is_empty() {
        true => done(Ok(ScrapeStored::default())),
        false => deps.sink.commit(org, &batch.batch(), deps.clock.now(), done),
    }
}

/// Returns the decompressed body.
fn decompressed<'b>(
    response: &'b PullResponse,
    job: &ScrapeJob,
    limits: &DecodeLimits,
    scratch: &'b mut Vec<u8>,
) -> Result<&'b [u8], ScrapeError> {
    if response.status != 200 {
        return Err(ScrapeError::Status(response.status));
    }
    let bytes_max = body_bytes_max(job, limits);
    match response.content_encoding.as_str() {
        "" | "identity" => Ok(&response.body),
        "gzip" | "x-gzip" => {
            let most = usize::try_from(bytes_max).unwrap_or(usize::MAX);
            let limits = DecodeLimits { decompressed_bytes_max: most, compressed_bytes_max: most, ..*limits };
            match gzip::decompress(&response.body, &limits, scratch) {
                Ok(bytes) => Ok(bytes),
                Err(DecodeError::Empty) => Ok(&[]),
                Err(DecodeError::TooLarge { .. }) => Err(ScrapeError::BodySize(bytes_max)),
                Err(error) => Err(error.into()),
            }
        }
        other => {
            let shown = other.get(..other.floor_char_boundary(64)).unwrap_or_default();
            Err(ScrapeError::ContentType(format!(
                "the response has the Content-Encoding {shown:?}; gzip is supported"
            )))
        }
    }
}
