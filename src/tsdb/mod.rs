//! The time series database: batches are appended, snapshots are read.
//!
//! [`Tsdb::append`] resolves the series of a batch to ids ([`append`], [`series`]) and turns it
//! into records of the log ([`wal`]). They are durable before the response and applied to the
//! [`head`] in log order. Native histograms, start timestamps and exemplars are stored separately
//! ([`side_data`]). [`Tsdb::snapshot`] is the only way to read: one organisation within one scope
//! ([`snapshot`]). [`maintenance`] writes checkpoints, which keep starts short; [`recovery`]
//! restores the state at a start. Formats are documented in [`wal`]'s records and samples,
//! [`series`]' definitions and registry, [`chunk`], and [`maintenance::checkpoint`].
//!
//! A seal moves a closed window of time from the head to [`segment`]s ([`maintenance::seal`]):
//! files that never change and that control lists ([`store::manifest`]). The current set of
//! segments is published next to the head ([`store::segments`]). Log files whose samples are all in
//! segments are removed.

mod append;
mod block_cache;
mod chunk;
mod codec;
mod disk;
mod error;
mod head;
mod maintenance;
mod open_progress;
mod options;
mod recovery;
mod report;
mod segment;
mod series;
mod side_data;
mod snapshot;
mod store;
mod wal;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use block_cache::{BlockCacheUsage, non_decreasing};
pub use disk::{Disk, Faults};
pub use error::{AppendError, CheckpointError, Damage, DiskError, ManifestError, OpenError, Unconfirmed};
pub use maintenance::backup::StageError;
pub use maintenance::compact::{UpkeepError, UpkeepReport};
pub use maintenance::deletion::{DeleteError, DeleteReport, DeletedSamples};
pub use maintenance::seal::{SealError, SealReport};
pub use open_progress::{OpenControl, OpenStep, Phase, ProgressObserver};
pub use options::{Durability, Elapsed, Home, Options, OrgLimits};
pub use recovery::check::{CheckProgress, Checked, check};
pub use recovery::prefetch::{Prefetch, prefetch_program};
pub use recovery::repair::{RepairError, Repaired, accept_loss, repair};
pub use recovery::verify_restored::{UnfitSegment, fits_list};
pub use report::{
    AppendReport, Capacity, Cardinality, CheckpointReport, Description, Health, LabelSummary, Listing,
    LogPlace, Metric, MetricFilter, OrgStats, RecoveryMode, RecoveryReport, SampleColumns, SampleCounts,
    SeriesExemplars, SeriesId, Stats, Tally, Writes,
};
pub use snapshot::{Grouped, GroupedSeries, Paced, ReadColumns, SelectedSeries, SeriesReader, Snapshot};

use append::RequestClock;
use maintenance::checkpoint::{self, CheckpointStart, Folder};
use maintenance::compact::Compactor;
use maintenance::log_mark::{LogMark, MarkWrite};
use maintenance::retention::Retention;
use maintenance::seal::{self, Sealer};
use recovery::open::{Recovered, Secrets};
use store::manifest::Manifest;
use store::{OrgStore, Record, Stores};
use wal::log::{Apply, ApplyOutcome, Draft, Log};
use wal::record::RecordKind;

use crate::clock::Stopwatch;
use crate::entropy::Entropy;
use crate::kv::keyed::RecordKey;
use crate::kv::with_sources;
use crate::model::{Access, OrgId, Refusal, Timestamp, WriteBatch};
use crate::sync::IgnorePoison as _;

/// The samples of all organisations.
#[derive(Debug)]
pub struct Tsdb {
    stores: Arc<Stores>,
    log: Sink,
    folder: Option<Folder>,
    manifest: Option<Manifest>,
    options: Options,
    notes: Vec<String>,
    /// The warning of queries about a damaged log.
    log_warning: Option<Arc<str>>,
    /// Held by the writer of a checkpoint, and by a backup or the removal of an organisation to
    /// prevent checkpoints. The counts are in `checkpoint_counts`.
    checkpoints: Mutex<Checkpoints>,
    checkpoint_counts: CheckpointCounts,
    sealer: Mutex<Sealer>,
    /// The seals that wait for the current one, which then skips its pauses.
    seals_waiting: AtomicU32,
    removal: Mutex<Removal>,
    compactor: Mutex<Compactor>,
    retention: Retention,
    seals: seal::SealCounts,
    prefetch: Prefetch,
    log_mark: LogMark,
}

/// A batch that is ready to be logged.
#[derive(Debug)]
pub struct Appending {
    drafts: Vec<Draft>,
    context: BatchContext,
}

impl Appending {
    /// Adds samples that the decoder refused before there was a batch. They are counted with the
    /// code `unreadable`, and their refusals are reported before those of this batch.
    #[must_use]
    pub fn with_unreadable(mut self, refused: u64, mut refusals: Vec<Refusal>) -> Appending {
        let report = &mut self.context.report;
        if refused > 0 {
            report.count(refused, "unreadable");
        }
        refusals.append(&mut report.refusals);
        refusals.truncate(AppendReport::REFUSALS_MAX);
        report.refusals = refusals;
        self
    }
}

/// The context in which the outcome of a batch is reported.
#[derive(Debug)]
struct BatchContext {
    store: Arc<OrgStore>,
    report: AppendReport,
    /// The outcome of samples that were refused as duplicates before the log.
    duplicates: ApplyOutcome,
    newest_ms: i64,
    now: Timestamp,
}

impl BatchContext {
    /// Counts the outcomes of the batch.
    fn applied(mut self, mut outcomes: Vec<ApplyOutcome>) -> Appended {
        let BatchContext { store, report, duplicates, newest_ms, now } = &mut self;
        if duplicates.refused > 0 {
            outcomes.push(std::mem::take(duplicates));
        }
        append::count(store, report, &outcomes);
        store.usage.record_time(*newest_ms);
        store.usage.count(report.stored, &report.refused_by_code, *now);
        Appended { context: self, outcomes }
    }
}

/// A batch whose records are applied, and durable according to [`Durability`].
#[derive(Debug)]
pub struct Appended {
    context: BatchContext,
    outcomes: Vec<ApplyOutcome>,
}

impl Appended {
    /// Returns what was stored and what was refused. Reads the labels of refused series, if there
    /// are any.
    pub fn report(self) -> AppendReport {
        let BatchContext { store, mut report, .. } = self.context;
        append::name(&store, &mut report, &self.outcomes);
        report
    }
}

/// The destination of records before they are applied.
#[derive(Debug)]
enum Sink {
    /// The log on disk.
    Log(Log),
    /// None: the store lives as long as the process. Holds the last sequence number.
    Memory(Mutex<u64>),
    /// None: the log is damaged, and writes are refused.
    ReadOnly { why: String, last_seq: u64 },
}

/// The code of samples that are refused until the clock is confirmed.
const CLOCK_UNCONFIRMED: &str = "clock_unconfirmed";
/// The damaged places that the warning of a query names.
const LOG_WARNING_PLACES_MAX: usize = 5;
/// The time after a seal in which a checkpoint would contain little.
const RECENT_SEAL: Duration = Duration::from_secs(180);

/// Locked while files are removed, and by a backup while it links them.
#[derive(Debug, Default)]
struct Removal;

/// Locked by the only writer of checkpoints.
#[derive(Debug, Default)]
struct Checkpoints;

/// Counts of checkpoints. It is locked for a few instructions at a time, never while one is
/// written.
#[derive(Debug)]
struct CheckpointCounts {
    made: AtomicU64,
    failed: AtomicU64,
    since: Mutex<Stopwatch>,
}

impl Tsdb {
    /// Opens the store and recovers its content.
    ///
    /// A damaged log is not an error: the store opens read-only, and the report and
    /// [`Tsdb::health`] give the reason.
    ///
    /// # Errors
    /// [`OpenError`] if the file system fails, or if a file belongs to another store or a newer
    /// version.
    pub fn open(
        home: Home<'_>,
        options: Options,
        rng: &mut Entropy,
        now: Timestamp,
    ) -> Result<(Tsdb, RecoveryReport), OpenError> {
        let Home { dir, store, control } = home;
        let manifest = Manifest::new(Arc::clone(&control));
        let secrets = Secrets { labels: rng.bytes(), records: RecordKey::random(rng) };
        let mut recovered = recovery::open::recover(dir, store, &manifest, &options, secrets, now)?;
        if let Some(why) = recovered.report.read_only.clone().filter(|_| recovered.log_is_covered) {
            // No sample is lost with this log: a new one replaces it, as with `--accept-loss`.
            match accept_loss(&Home { dir, store, control }, rng, now) {
                Ok(_) => {
                    recovered = recovery::open::recover(dir, store, &manifest, &options, secrets, now)?;
                    recovered.report.notes.push(format!(
                        "{why}; nothing is lost: the log was closed in order, and segments and the checkpoint have all of \
                         it; the damaged log is in quarantine"
                    ));
                }
                Err(e) => tracing::warn!("the damaged log cannot be replaced: {}", with_sources(&e)),
            }
        }
        let Recovered { stores, folder, wal, resume, report, log_is_covered: _ } = recovered;
        stores.uncovered.store(report.samples, Ordering::Relaxed);
        for store in stores.all() {
            let sealed_ms = store.segments().metas().iter().map(|meta| meta.max_ms).max();
            store.usage.record_time(store.greatest_ms().max(sealed_ms).unwrap_or(i64::MIN));
        }
        let log = match resume {
            Some(resume) => {
                let apply = applier(&stores);
                Sink::Log(
                    Log::start(wal, store, options.disk.clone(), options.durability, resume, apply)
                        .map_err(OpenError::Thread)?,
                )
            }
            None => {
                let why = report.read_only.clone().unwrap_or_default();
                Sink::ReadOnly { why, last_seq: report.last_seq }
            }
        };
        let notes = report.notes.clone();
        let log_warning = report.read_only.as_ref().map(|_| log_warning(&report.log_damage));
        // One organisation with a sample ahead of the clock must not set the start for all.
        let newest = stores.all().iter().filter_map(|store| store.usage.newest()).min();
        let retention = Retention::begin(manifest.retention_clock()?, now, newest, &options);
        let manifest = Some(manifest);
        let prefetch = Prefetch::start(&stores, options.warm_bytes_max);
        let tsdb = Tsdb {
            stores,
            log,
            folder: Some(folder),
            manifest,
            options,
            notes,
            log_warning,
            checkpoints: Mutex::default(),
            checkpoint_counts: CheckpointCounts::default(),
            sealer: Mutex::default(),
            seals_waiting: AtomicU32::new(0),
            removal: Mutex::default(),
            compactor: Mutex::default(),
            retention,
            seals: seal::SealCounts::default(),
            prefetch,
            log_mark: LogMark::default(),
        };
        tsdb.warn_of_clocks();
        Ok((tsdb, report))
    }

    /// Creates a store without a log or a folder, whose content ends with the process. `secret`
    /// keys its identity hashes.
    pub fn in_memory(options: Options, secret: [u8; 32]) -> Tsdb {
        let retention = Retention::in_memory(&options);
        Tsdb {
            stores: Arc::new(Stores::with_block_cache(
                options.decoded_bytes_max,
                secret,
                options.limits.clone(),
            )),
            log: Sink::Memory(Mutex::new(0)),
            folder: None,
            manifest: None,
            options,
            notes: Vec::new(),
            log_warning: None,
            checkpoints: Mutex::default(),
            checkpoint_counts: CheckpointCounts::default(),
            sealer: Mutex::default(),
            seals_waiting: AtomicU32::new(0),
            removal: Mutex::default(),
            compactor: Mutex::default(),
            retention,
            seals: seal::SealCounts::default(),
            prefetch: Prefetch::default(),
            log_mark: LogMark::default(),
        }
    }

    /// Creates an empty store in memory for tests of other rooms. It accepts samples of any time.
    pub fn scaffold() -> Tsdb {
        Tsdb::in_memory(Options { ahead_max: None, ..Options::default() }, [0; 32])
    }

    /// Sets the limits of one organisation. Existing data stays.
    pub fn set_limits(&self, org: OrgId, limits: OrgLimits) {
        self.stores.set_limits(org, limits);
    }

    /// Stores a batch. When this returns, the samples that the report counts as stored are visible,
    /// and durable according to [`Durability`].
    ///
    /// Series and samples that may not be stored are refused one by one and named in the report;
    /// the others are stored. The organisation is created on its first write. The call blocks for
    /// one sync of the disk.
    ///
    /// # Errors
    /// [`AppendError`] if nothing is acknowledged, for reasons that are not the sender's fault.
    /// [`AppendError::Guessed`] if the batch was guessed and must be decoded in full.
    pub fn append(
        &self,
        org: OrgId,
        batch: &WriteBatch<'_>,
        now: Timestamp,
    ) -> Result<AppendReport, AppendError> {
        let Appending { drafts, context } = self.prepare(org, batch, now)?;
        let outcomes = if drafts.is_empty() { Vec::new() } else { self.commit(drafts, now)? };
        Ok(context.applied(outcomes).report())
    }

    /// Does the second half of [`Tsdb::append`] without waiting for the disk. `done` is called with
    /// the result on the thread that writes the log, perhaps before this returns. It must be short:
    /// [`Appended::report`] does the rest of the work.
    ///
    /// The calling thread may write the log for other callers, as long as drafts are waiting.
    pub fn commit_then(
        &self,
        appending: Appending,
        done: impl FnOnce(Result<Appended, AppendError>) + Send + 'static,
    ) {
        let Appending { drafts, context } = appending;
        if drafts.is_empty() {
            return done(Ok(context.applied(Vec::new())));
        }
        let now = context.now;
        let finish = move |result: Result<Vec<ApplyOutcome>, AppendError>| {
            done(result.map(|outcomes| context.applied(outcomes)));
        };
        match &self.log {
            Sink::Log(log) => log.commit_then(drafts, now, Box::new(finish)),
            Sink::Memory(_) | Sink::ReadOnly { .. } => finish(self.commit(drafts, now)),
        }
    }

    /// Does the first half of [`Tsdb::append`]: resolves or registers the series, and refuses what
    /// may not be stored. Nothing is stored yet.
    ///
    /// # Errors
    /// Those of [`Tsdb::append`].
    pub fn prepare(
        &self,
        org: OrgId,
        batch: &WriteBatch<'_>,
        now: Timestamp,
    ) -> Result<Appending, AppendError> {
        match &self.log {
            Sink::Log(log) => log.admit()?,
            Sink::Memory(_) => {}
            Sink::ReadOnly { why, .. } => return Err(AppendError::ReadOnly(why.clone())),
        }
        let store = self.stores.org_or_new(org);
        if let Err(refused) = store::quota::admit(&self.stores, &store, self.options.head_bytes_max) {
            if let AppendError::AtCapacity { what, .. } = &refused {
                store.usage.count(0, &vec![(what.code(), batch.samples.len() as u64)], now);
            }
            return Err(refused);
        }
        let clocked = RequestClock {
            now,
            reached: self.retention.reached(),
            latest: self.retention.latest(),
            ahead_max: self.options.ahead_max,
            unconfirmed: self.retention.unconfirmed(now, &self.options),
        };
        let append::Prepared { drafts, report, duplicates } = append::prepare(&store, batch, clocked)
            .inspect_err(|e| {
                if let AppendError::ClockUnconfirmed { .. } = e {
                    let samples = batch.samples.len().saturating_add(batch.histograms.len());
                    store.usage.count(0, &vec![(CLOCK_UNCONFIRMED, samples as u64)], now);
                }
            })?;
        self.stores.settle_names(&store);
        let samples =
            drafts.iter().filter(|draft| matches!(draft.kind, RecordKind::Samples | RecordKind::Histograms));
        let newest_ms = samples.map(|draft| draft.greatest_ms).max().unwrap_or(i64::MIN);
        Ok(Appending { drafts, context: BatchContext { store, report, duplicates, newest_ms, now } })
    }

    /// Returns the limits of organisations without limits of their own.
    pub fn default_limits(&self) -> &OrgLimits {
        &self.options.limits
    }

    /// Returns how many samples each organisation stored since midnight (UTC).
    pub fn stored_today_by_org(&self, now: Timestamp) -> Vec<(OrgId, u64)> {
        self.stores.all().into_iter().map(|store| (store.org, store.usage.stored_today(now))).collect()
    }

    /// Adds the samples that an organisation stored today before this process started. Call it
    /// before anything is written.
    pub fn resume_today(&self, org: OrgId, samples: u64, now: Timestamp) {
        if let Some(store) = self.stores.org(org) {
            store.usage.resume_today(samples, now);
        }
    }

    /// Returns how many samples an organisation stored since midnight (UTC) in this process, plus
    /// the samples passed to [`Tsdb::resume_today`].
    pub fn stored_today(&self, org: OrgId, now: Timestamp) -> u64 {
        self.stores.org(org).map_or(0, |store| store.usage.stored_today(now))
    }

    fn commit(&self, drafts: Vec<Draft>, now: Timestamp) -> Result<Vec<ApplyOutcome>, AppendError> {
        match &self.log {
            Sink::Log(log) => log.commit(drafts, now),
            Sink::Memory(last) => {
                let mut last = last.lock().ignore_poison();
                let mut apply = |draft: Draft| {
                    *last += 1;
                    let applied = self.stores.apply(Record::of(*last, &draft), &mut Vec::new(), None);
                    applied.map_err(|e| AppendError::Fenced(e.to_string()))
                };
                drafts.into_iter().map(&mut apply).collect()
            }
            Sink::ReadOnly { why, .. } => Err(AppendError::ReadOnly(why.clone())),
        }
    }

    /// Makes all applied records durable.
    fn flush(&self) -> Result<(), AppendError> {
        match &self.log {
            Sink::Log(log) => log.flush().map(drop),
            Sink::Memory(_) | Sink::ReadOnly { .. } => Ok(()),
        }
    }

    /// Returns when an append is acknowledged.
    pub fn durability(&self) -> Durability {
        self.options.durability
    }

    /// Returns the view of one organisation within one scope. An organisation that never wrote is
    /// empty.
    pub fn snapshot(&self, access: &Access) -> Snapshot {
        let snapshot = Snapshot::new(self.stores.org(access.org), access.scope.clone());
        snapshot.with_log_warning(self.log_warning.clone())
    }

    /// Writes a checkpoint, so that the next start replays only the log after it. Only one is
    /// written at a time; appends continue.
    ///
    /// # Errors
    /// [`CheckpointError`]: the previous checkpoint is still valid. Retry later with a new one.
    pub fn checkpoint(&self, now: Timestamp) -> Result<CheckpointReport, CheckpointError> {
        // Every tick calls this; a generation does not depend on the clock yet.
        let _ = now;
        let (Some(folder), Sink::Log(log)) = (&self.folder, &self.log) else {
            return Err(CheckpointError::Closed("the store has no writable log".to_owned()));
        };
        let _alone = self.checkpoints.lock().ignore_poison();
        let covered = self.stores.uncovered.load(Ordering::Relaxed);
        let space = self.options.disk.space(&folder.head)?;
        let held =
            [&*self.stores.head_bytes, &self.stores.name_bytes].map(|bytes| bytes.load(Ordering::Relaxed));
        let needed = space.growth_needs(held.iter().sum());
        let result = if space.free < needed {
            Err(CheckpointError::DiskFull { free: space.free, needed })
        } else {
            let flush = || log.flush().map_err(|e| CheckpointError::Closed(e.to_string()));
            self.covered(flush)
                .and_then(|covered| checkpoint::write(folder, &self.stores, covered, || flush().map(drop)))
        };
        self.record_log_end(MarkWrite::Now);
        if result.is_ok() {
            self.stores.uncovered.fetch_sub(covered, Ordering::Relaxed);
            self.checkpoint_counts.made.fetch_add(1, Ordering::Relaxed);
            *self.checkpoint_counts.since.lock().ignore_poison() = Stopwatch::start();
        } else {
            self.checkpoint_counts.failed.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Returns a record up to which all records are applied, and the barriers after that record.
    fn covered(
        &self,
        flush: impl Fn() -> Result<u64, CheckpointError>,
    ) -> Result<CheckpointStart, CheckpointError> {
        loop {
            let barriers = checkpoint::barriers(&self.stores);
            let replay_seq = flush()?;
            // If no seal record came in between, none is missed or counted twice. Seals are minutes
            // apart.
            if checkpoint::barriers(&self.stores) == barriers {
                return Ok(CheckpointStart { replay_seq, barriers });
            }
        }
    }

    /// Returns whether a checkpoint is due: the last one is old and samples came since, or many
    /// samples came.
    pub fn checkpoint_due(&self) -> bool {
        let uncovered = self.stores.uncovered.load(Ordering::Relaxed);
        let age = self.checkpoint_counts.age();
        // A seal makes most of a checkpoint needless, and has just kept the disk busy.
        let rest = RECENT_SEAL.min(self.options.checkpoint_every);
        let sealed_lately = self.sealer.try_lock().is_ok_and(|sealer| sealer.made_within(rest));
        matches!(self.log, Sink::Log(_))
            && uncovered > 0
            && !sealed_lately
            && (age >= self.options.checkpoint_every || uncovered >= self.options.checkpoint_samples)
    }

    /// Returns counters of the store and of each organisation. It reads atomics, and takes locks
    /// that are held for a few instructions, so it never waits for a query, seal, merge, checkpoint
    /// or backup.
    pub fn stats(&self) -> Stats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = Stats::default();
        for store in self.stores.all() {
            let counters = &store.head.counters;
            let set = store.segments();
            let org = OrgStats {
                org: store.org,
                series: store.usage.series(),
                samples: load(&counters.samples) + load(&store.side.counters.histograms),
                late_samples: load(&counters.late) + load(&store.side.counters.late),
                head_bytes: load(&counters.bytes) + load(&store.side.counters.bytes),
                histograms: load(&store.side.counters.histograms),
                exemplars: load(&store.side.counters.exemplars),
                exemplars_dropped_total: load(&store.side.counters.exemplars_dropped),
                memory_bytes: store.memory_bytes(),
                disk_bytes: store.disk_bytes(),
                stored_total: load(&store.stored_total),
                refused_total: load(&store.refused_total),
                refused_by_code: store.usage.refused().into_iter().collect(),
                segments: set.metas().len() as u64,
                sealed_samples: set.metas().iter().map(|meta| meta.samples).sum(),
                segment_bytes: set.metas().iter().map(|meta| meta.file_bytes).sum(),
                metadata_dropped_total: load(&store.metadata_dropped_total),
            };
            stats.series += org.series;
            stats.samples += org.samples;
            stats.head_bytes += org.head_bytes;
            stats.stored_total += org.stored_total;
            stats.refused_total += org.refused_total;
            stats.segments += org.segments;
            stats.sealed_samples += org.sealed_samples;
            stats.segment_bytes += org.segment_bytes;
            stats.orgs.push(org);
        }
        match &self.log {
            Sink::Log(log) => {
                let counters = log.counters();
                stats.wal_files = load(&counters.files);
                stats.wal_file_bytes = load(&counters.file_bytes);
                (stats.wal_trimmed_files, stats.wal_trimmed_bytes) = log.trimmed().size();
                stats.wal_written_bytes = load(&counters.written_bytes);
                stats.wal_records = load(&counters.records);
                stats.wal_syncs = load(&counters.syncs);
                stats.last_seq = load(&counters.last_seq);
            }
            Sink::Memory(last) => stats.last_seq = *last.lock().ignore_poison(),
            Sink::ReadOnly { last_seq, .. } => stats.last_seq = *last_seq,
        }
        stats.decoded = self.stores.decoded.usage();
        stats.samples_since_checkpoint = load(&self.stores.uncovered);
        if let Some(space) = self.space() {
            (stats.disk_free_bytes, stats.disk_bytes) = (space.free, space.total);
        }
        stats.checkpoint_age = self.checkpoint_counts.age();
        stats.checkpoints = load(&self.checkpoint_counts.made);
        stats.checkpoints_failed = load(&self.checkpoint_counts.failed);
        stats.seals = self.seals.made.load(Ordering::Relaxed);
        stats.wal_unlinks_failed = self.seals.unlinks_failed.load(Ordering::Relaxed);
        stats.seals_failed = self.seals.failed.load(Ordering::Relaxed);
        (stats.retention_lag, stats.segments_waiting) = self.retention.lag();
        stats
    }

    /// Returns whether the store accepts samples, and notes for the operator.
    pub fn health(&self) -> Health {
        let writes = match &self.log {
            Sink::Log(log) => log.writes(),
            Sink::Memory(_) => Writes::Open,
            Sink::ReadOnly { why, .. } => Writes::ReadOnly(why.clone()),
        };
        let mut notes = self.notes.clone();
        // Do not wait for a running seal.
        if let Ok(sealer) = self.sealer.try_lock() {
            notes.extend(sealer.failures());
        }
        if let Sink::Log(log) = &self.log
            && let (files @ 1.., bytes) = log.trimmed().size()
        {
            notes.push(format!("{files} unneeded log files could not be removed; they occupy {bytes} bytes"));
        }
        notes.extend(self.retention.notes(&self.options).into_iter().flatten());
        if let Some(space) = self.space()
            && space.free < space.growth_floor()
        {
            notes.push(format!(
                                "{} bytes are free on the disk: large checkpoints and compactions wait until {} are free; writes stop below {}",
                space.free,
                space.growth_floor(),
                space.samples_floor()
            ));
        }
        Health { writes, notes }
    }

    /// Refuses samples until a restart, because of a fault elsewhere in the process. Reads
    /// continue.
    pub fn stop_writes(&self, why: &str) {
        if let Sink::Log(log) = &self.log {
            log.stop(why);
        }
    }

    /// Writes a marker if the log was closed in order and a checkpoint has all of it. Later damage
    /// of such a log loses nothing.
    fn note_end(&self, log: &Log) {
        let Some(folder) = self.folder.as_ref().filter(|_| matches!(log.writes(), Writes::Closed)) else {
            return;
        };
        let last_seq = log.counters().last_seq.load(Ordering::Relaxed);
        if checkpoint::newest_replay_seq(&folder.head, folder.store) == last_seq
            && let Err(e) = (checkpoint::ClosedMarker { last_seq }).write(folder)
        {
            tracing::warn!("cannot record that the log was closed: {}", e.line());
        }
    }

    /// Returns the free space of the disk, or None if the store has no folder or the space is
    /// unknown.
    fn space(&self) -> Option<disk::Space> {
        self.options.disk.space(&self.folder.as_ref()?.head).ok()
    }

    /// Waits until the data of the first queries is in memory, as far as the start reads it ahead,
    /// but for at most `longest`.
    pub fn wait_until_warm(&self, longest: Duration) {
        self.prefetch.wait_for(longest);
    }

    /// Stops writing: waiting records are made durable and applied, and the threads end. Reads
    /// continue. A second call has no effect.
    ///
    /// For a short next start, call [`Tsdb::seal`] first, or [`Tsdb::checkpoint`] if that fails.
    pub fn close(&self) {
        if let Sink::Log(log) = &self.log {
            log.close();
            self.note_end(log);
        }
        self.record_log_end(MarkWrite::Now);
        if let Some(manifest) = &self.manifest {
            if matches!(self.log, Sink::Log(_)) {
                self.close_retention(manifest);
            }
            manifest.close();
        }
        self.prefetch.end();
    }
}

/// Returns the warning of queries about a damaged log. It contains files and offsets but never the
/// folder, because any client may read it.
fn log_warning(places: &[LogPlace]) -> Arc<str> {
    let places: Vec<String> = places.iter().take(LOG_WARNING_PLACES_MAX).map(LogPlace::to_string).collect();
    format!("some samples may be missing: the log is damaged in {}", places.join(", ")).into()
}

impl Default for CheckpointCounts {
    fn default() -> CheckpointCounts {
        let (made, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        CheckpointCounts { made, failed, since: Mutex::new(Stopwatch::start()) }
    }
}

impl CheckpointCounts {
    /// Returns the time since the last checkpoint, or since the store was opened.
    fn age(&self) -> Duration {
        self.since.lock().ignore_poison().elapsed()
    }
}

/// Returns the function that applies a durable record.
fn applier(stores: &Arc<Stores>) -> Apply {
    let stores = Arc::clone(stores);
    Box::new(move |seq, draft| stores.apply(Record::of(seq, draft), &mut Vec::new(), None))
}

#[cfg(test)]
mod tests;
