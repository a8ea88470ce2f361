//! Samples in, snapshots out.
//!
//! A batch comes in through [`Tsdb::append`]: its series are resolved to ids ([`append`], [`series`]), it becomes
//! records of the log ([`wal`]), durable before it is answered and applied to the [`head`] in the log's order; native
//! histograms, start timestamps and exemplars lie beside it ([`side`]). Reading
//! is [`Tsdb::snapshot`] and nothing else: one organisation within one scope ([`snapshot`]). [`checkpoint`]s keep
//! starts short; [`recovery`] brings everything back. Formats are drawn in [`wal`]'s records and samples,
//! [`series`]' definitions and registry, [`block`], [`checkpoint`].
//!
//! A closed window of time moves from the head to [`segment`]s ([`seal`]): files that never change and that control
//! lists ([`manifest`]). The set of them that counts is beside the head ([`segments`]); log files whose samples are all
//! in it are removed.

mod append;
mod backup;
mod block;
mod check;
mod checkpoint;
mod codec;
mod compact;
mod decoded;
mod deletion;
mod disk;
mod error;
mod head;
mod log_mark;
mod manifest;
mod open_progress;
mod options;
mod prefetch;
mod quota;
mod recovery;
mod registry_load;
mod repair;
mod replay_workers;
mod report;
mod retention;
mod seal;
mod segment;
mod segments;
mod series;
mod side;
mod snapshot;
mod store;
mod store_version;
mod verify_restored;
mod wal;

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use backup::StageError;
pub use check::{CheckProgress, Checked, check};
pub use compact::{UpkeepError, UpkeepReport};
pub use decoded::{DecodedUse, rises};
pub use deletion::{DeleteError, DeleteReport, DeletedSamples};
pub use disk::{Disk, Faults};
pub use error::{AppendError, CheckpointError, Damage, DiskError, OpenError, Unconfirmed};
pub use manifest::ManifestError;
pub use open_progress::{OpenControl, OpenStep, Phase, ProgressObserver};
pub use options::{Durability, Elapsed, Options, OrgLimits};
pub use prefetch::{Prefetch, prefetch_program};
pub use repair::{RepairError, Repaired, accept_loss, repair};
pub use report::{
    AppendReport, Capacity, Cardinality, CheckpointReport, Description, Health, LabelSummary, Listing,
    LogPlace, Metric, MetricFilter, OrgStats, RecoveryMode, RecoveryReport, SampleColumns, SampleCounts,
    SeriesExemplars, SeriesId, Stats, Tally, Writes,
};
pub use seal::{SealError, SealReport};
pub use snapshot::{Grouped, GroupedSeries, Paced, ReadColumns, Reader, SelectedSeries, Snapshot};
pub use verify_restored::{UnfitSegment, fits_list};

use append::Clocked;
use checkpoint::{CheckpointStart, Folder};
use compact::Compactor;
use log_mark::{LogMark, MarkWrite};
use manifest::Manifest;
use recovery::{Recovered, Secrets};
use retention::Retention;
use seal::Sealer;
use store::{OrgStore, Record, Stores};
use wal::log::{Apply, ApplyOutcome, Draft, Log};
use wal::record::RecordKind;

use crate::clock::Stopwatch;
use crate::entropy::Entropy;
use crate::kv::keyed::RecordKey;
use crate::kv::{Control, with_sources};
use crate::model::{Access, OrgId, Refusal, StoreId, Timestamp, WriteBatch};
use crate::sync::IgnorePoison as _;

/// Where a store lives.
#[derive(Clone)]
pub struct Home<'a> {
    /// Holds `wal/`, `series/`, `head/`, `segments/` and `quarantine/`. Locked by the caller (`kv::DataFolder`): two
    /// processes on one log would destroy it.
    pub dir: &'a Path,
    /// Whose it is: in every file.
    pub store: StoreId,
    /// Lists the segments. [`Tsdb::close`] lets go of it.
    pub control: Arc<Control>,
}

/// All organisations' samples.
#[derive(Debug)]
pub struct Tsdb {
    stores: Arc<Stores>,
    log: Sink,
    folder: Option<Folder>,
    manifest: Option<Manifest>,
    options: Options,
    notes: Vec<String>,
    /// What queries are told about a damaged log.
    log_warning: Option<Arc<str>>,
    /// Held while a checkpoint is written, and while a backup or the removal of an organisation keeps one from being
    /// written. Its counts are in `checkpoint_counts`.
    checkpoints: Mutex<Checkpoints>,
    checkpoint_counts: CheckpointCounts,
    sealer: Mutex<Sealer>,
    /// Seals that wait for the one under way: it need not rest.
    seals_waiting: AtomicU32,
    removal: Mutex<Removal>,
    compactor: Mutex<Compactor>,
    retention: Retention,
    seals: seal::SealCounts,
    prefetch: Prefetch,
    log_mark: LogMark,
}

/// A batch that is ready to be stored.
#[derive(Debug)]
pub struct Appending {
    drafts: Vec<Draft>,
    concerns: Concerns,
}

impl Appending {
    /// Counts, under the code `unreadable`, samples that whoever read the request refused before there was a batch, and
    /// tells of the first of them before those that are refused here.
    #[must_use]
    pub fn besides(mut self, refused: u64, mut refusals: Vec<Refusal>) -> Appending {
        let report = &mut self.concerns.report;
        if refused > 0 {
            report.count(refused, "unreadable");
        }
        refusals.append(&mut report.refusals);
        refusals.truncate(AppendReport::REFUSALS_MAX);
        report.refusals = refusals;
        self
    }
}

/// Whom the outcome of a batch concerns.
#[derive(Debug)]
struct Concerns {
    store: Arc<OrgStore>,
    report: AppendReport,
    newest_ms: i64,
    now: Timestamp,
}

impl Concerns {
    /// Counts what came of it.
    fn applied(mut self, outcomes: Vec<ApplyOutcome>) -> Appended {
        let Concerns { store, report, newest_ms, now } = &mut self;
        append::count(store, report, &outcomes);
        store.usage.saw(*newest_ms);
        store.usage.count(report.stored, &report.refused_by_code, *now);
        Appended { concerns: self, outcomes }
    }
}

/// A batch whose records are applied, and durable as [`Durability`] says.
#[derive(Debug)]
pub struct Appended {
    concerns: Concerns,
    outcomes: Vec<ApplyOutcome>,
}

impl Appended {
    /// What was stored and what was refused. Reads the names of refused series; otherwise next to nothing.
    pub fn report(self) -> AppendReport {
        let Concerns { store, mut report, .. } = self.concerns;
        append::name(&store, &mut report, &self.outcomes);
        report
    }
}

/// Where records go before they are applied.
#[derive(Debug)]
enum Sink {
    /// To the disk.
    Log(Log),
    /// Nowhere: the store lives as long as the process. Holds the last seq.
    Memory(Mutex<u64>),
    /// Nothing is written: the log is damaged.
    ReadOnly { why: String, last_seq: u64 },
}

/// The code that samples are counted under which are refused until the clock is confirmed.
const CLOCK_UNCONFIRMED: &str = "clock_unconfirmed";
/// Places of a damaged log that a query is told.
const LOG_PLACES_TOLD_MAX: usize = 5;
/// A checkpoint so soon after a seal would hold little.
const RECENT_SEAL: Duration = Duration::from_secs(180);

/// Held by who removes files, and by a backup while it takes them along.
#[derive(Debug, Default)]
struct Removal;

/// Held by the only writer of checkpoints.
#[derive(Debug, Default)]
struct Checkpoints;

/// What became of checkpoints. Locked for a few instructions at a time, never while one is written.
#[derive(Debug)]
struct CheckpointCounts {
    made: AtomicU64,
    failed: AtomicU64,
    since: Mutex<Stopwatch>,
}

impl Tsdb {
    /// Opens the store, recovering what is there.
    ///
    /// A damaged log is no error: the store opens read-only, and the report and [`Tsdb::health`] say why.
    ///
    /// # Errors
    /// [`OpenError`] where the file system refuses, or a file is another store's or a newer version's.
    pub fn open(
        home: Home<'_>,
        options: Options,
        rng: &mut Entropy,
        now: Timestamp,
    ) -> Result<(Tsdb, RecoveryReport), OpenError> {
        let Home { dir, store, control } = home;
        let manifest = Manifest::new(Arc::clone(&control));
        let secrets = Secrets { labels: rng.bytes(), records: RecordKey::random(rng) };
        let mut recovered = recovery::recover(dir, store, &manifest, &options, secrets, now)?;
        if let Some(why) = recovered.report.read_only.clone().filter(|_| recovered.log_is_covered) {
            // Nothing is lost with this log: a new one takes its place, as after `--accept-loss`.
            match repair::accept_loss(&Home { dir, store, control }, rng, now) {
                Ok(_) => {
                    recovered = recovery::recover(dir, store, &manifest, &options, secrets, now)?;
                    recovered.report.notes.push(format!(
                        "{why}; nothing is lost: the log had ended in order and segments and the checkpoint have all of \
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
            store.usage.saw(store.greatest_ms().max(sealed_ms).unwrap_or(i64::MIN));
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
        // One organisation with a sample ahead of the clock must not move the start for all.
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

    /// A store without a log or a folder: what it holds ends with the process. `secret` keys its identity hashes.
    pub fn in_memory(options: Options, secret: [u8; 32]) -> Tsdb {
        let retention = Retention::in_memory(&options);
        Tsdb {
            stores: Arc::new(Stores::keeping(options.decoded_bytes_max, secret, options.limits.clone())),
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

    /// An empty store in memory, for tests of the rooms above: samples may be of any time, whatever the clock says.
    pub fn scaffold() -> Tsdb {
        Tsdb::in_memory(Options { ahead_max: None, ..Options::default() }, [0; 32])
    }

    /// Sets what one organisation may store. What it has already stays.
    pub fn set_limits(&self, org: OrgId, limits: OrgLimits) {
        self.stores.set_limits(org, limits);
    }

    /// Stores a batch: when this answers, what the report counts as stored is visible, and durable as [`Durability`]
    /// says.
    ///
    /// Series and samples that may not be stored are refused one by one and named in the report; the others are stored.
    /// The organisation is made on its first write. Blocks for one sync of the disk.
    ///
    /// # Errors
    /// [`AppendError`] where nothing is acknowledged, for reasons that are not the sender's; [`AppendError::Guessed`] for
    /// batches that were.
    pub fn append(
        &self,
        org: OrgId,
        batch: &WriteBatch<'_>,
        now: Timestamp,
    ) -> Result<AppendReport, AppendError> {
        let Appending { drafts, concerns } = self.prepare(org, batch, now)?;
        let outcomes = if drafts.is_empty() { Vec::new() } else { self.commit(drafts, now)? };
        Ok(concerns.applied(outcomes).report())
    }

    /// The second half of [`Tsdb::append`], without waiting for the disk: `done` hears what came of it, on whatever thread
    /// writes the log then, perhaps before this returns. It must be short: [`Appended::report`] is the rest of the work.
    ///
    /// This thread may write the log for others meanwhile, as long as something waits.
    pub fn commit_then(
        &self,
        appending: Appending,
        done: impl FnOnce(Result<Appended, AppendError>) + Send + 'static,
    ) {
        let Appending { drafts, concerns } = appending;
        if drafts.is_empty() {
            return done(Ok(concerns.applied(Vec::new())));
        }
        let now = concerns.now;
        let said = move |said: Result<Vec<ApplyOutcome>, AppendError>| {
            done(said.map(|outcomes| concerns.applied(outcomes)));
        };
        match &self.log {
            Sink::Log(log) => log.commit_then(drafts, now, Box::new(said)),
            Sink::Memory(_) | Sink::ReadOnly { .. } => said(self.commit(drafts, now)),
        }
    }

    /// The first half of [`Tsdb::append`]: finds or makes the series, refuses what may not be stored. Nothing is stored
    /// yet.
    ///
    /// # Errors
    /// As of [`Tsdb::append`].
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
        if let Err(refused) = quota::admit(&self.stores, &store, self.options.head_bytes_max) {
            if let AppendError::AtCapacity { what, .. } = &refused {
                store.usage.count(0, &vec![(what.code(), batch.samples.len() as u64)], now);
            }
            return Err(refused);
        }
        let clocked = Clocked {
            now,
            reached: self.retention.reached(),
            latest: self.retention.latest(),
            ahead_max: self.options.ahead_max,
            unconfirmed: self.retention.unconfirmed(now, &self.options),
        };
        let append::Prepared { drafts, report } =
            append::prepare(&store, batch, clocked).inspect_err(|e| {
                if let AppendError::ClockUnconfirmed { .. } = e {
                    let samples = batch.samples.len().saturating_add(batch.histograms.len());
                    store.usage.count(0, &vec![(CLOCK_UNCONFIRMED, samples as u64)], now);
                }
            })?;
        self.stores.settle_names(&store);
        let samples =
            drafts.iter().filter(|draft| matches!(draft.kind, RecordKind::Samples | RecordKind::Histograms));
        let newest_ms = samples.map(|draft| draft.greatest_ms).max().unwrap_or(i64::MIN);
        Ok(Appending { drafts, concerns: Concerns { store, report, newest_ms, now } })
    }

    /// What an organisation may store that has no limits of its own.
    pub fn default_limits(&self) -> &OrgLimits {
        &self.options.limits
    }

    /// What organisations stored since midnight (UTC).
    pub fn stored_today_by_org(&self, now: Timestamp) -> Vec<(OrgId, u64)> {
        self.stores.all().into_iter().map(|store| (store.org, store.usage.stored_today(now))).collect()
    }

    /// Takes up what an organisation stored today before this process began; before anything is written.
    pub fn resume_today(&self, org: OrgId, samples: u64, now: Timestamp) {
        if let Some(store) = self.stores.org(org) {
            store.usage.resume_today(samples, now);
        }
    }

    /// Samples that an organisation stored since midnight (UTC): in this process, and before it as far as
    /// [`Tsdb::resume_today`] was told.
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

    /// Makes everything durable that is applied.
    fn flush(&self) -> Result<(), AppendError> {
        match &self.log {
            Sink::Log(log) => log.flush().map(drop),
            Sink::Memory(_) | Sink::ReadOnly { .. } => Ok(()),
        }
    }

    /// When an append is answered.
    pub fn durability(&self) -> Durability {
        self.options.durability
    }

    /// What a reader may see: one organisation within one scope. An organisation that never wrote is empty.
    pub fn snapshot(&self, access: &Access) -> Snapshot {
        let snapshot = Snapshot::new(self.stores.org(access.org), access.scope.clone());
        snapshot.with_log_warning(self.log_warning.clone())
    }

    /// Writes a checkpoint, so that the next start replays only what comes after. One at a time; appends go on.
    ///
    /// # Errors
    /// [`CheckpointError`]: the one before still holds; try again later with a new one.
    pub fn checkpoint(&self, now: Timestamp) -> Result<CheckpointReport, CheckpointError> {
        // Asked for by every tick; nothing in a generation depends on the clock yet.
        let _ = now;
        let (Some(folder), Sink::Log(log)) = (&self.folder, &self.log) else {
            return Err(CheckpointError::Closed("it has no log that goes on".to_owned()));
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

    /// A record that everything up to is applied, and the barriers as they were after it.
    fn covered(
        &self,
        flush: impl Fn() -> Result<u64, CheckpointError>,
    ) -> Result<CheckpointStart, CheckpointError> {
        loop {
            let barriers = checkpoint::barriers(&self.stores);
            let replay_seq = flush()?;
            // No seal record came in between, so that none is missed or counted twice. They are minutes apart.
            if checkpoint::barriers(&self.stores) == barriers {
                return Ok(CheckpointStart { replay_seq, barriers });
            }
        }
    }

    /// Whether a checkpoint is due: the last one is old and something came since, or many samples came.
    pub fn checkpoint_due(&self) -> bool {
        let uncovered = self.stores.uncovered.load(Ordering::Relaxed);
        let age = self.checkpoint_counts.age();
        // A seal makes most of a checkpoint needless, and the disk has just been busy with it.
        let rest = RECENT_SEAL.min(self.options.checkpoint_every);
        let sealed_lately = self.sealer.try_lock().is_ok_and(|sealer| sealer.made_within(rest));
        matches!(self.log, Sink::Log(_))
            && uncovered > 0
            && !sealed_lately
            && (age >= self.options.checkpoint_every || uncovered >= self.options.checkpoint_samples)
    }

    /// Plain counters, of the store and of each organisation. Waits for no query, seal, merge, checkpoint or backup: it
    /// reads atomics, and locks that are held for a few instructions.
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

    /// Whether it takes samples, and what an operator should know.
    pub fn health(&self) -> Health {
        let writes = match &self.log {
            Sink::Log(log) => log.writes(),
            Sink::Memory(_) => Writes::Open,
            Sink::ReadOnly { why, .. } => Writes::ReadOnly(why.clone()),
        };
        let mut notes = self.notes.clone();
        // A seal under way is not waited for.
        if let Ok(sealer) = self.sealer.try_lock() {
            notes.extend(sealer.failures());
        }
        if let Sink::Log(log) = &self.log
            && let (files @ 1.., bytes) = log.trimmed().size()
        {
            notes.push(format!(
                "{files} log files that are needed no more could not be removed; {bytes} bytes of the disk wait for it"
            ));
        }
        notes.extend(self.retention.notes(&self.options).into_iter().flatten());
        if let Some(space) = self.space()
            && space.free < space.growth_floor()
        {
            notes.push(format!(
                "{} bytes are free on the disk: checkpoints and compactions that take much wait until {} are; samples stop below {}",
                space.free,
                space.growth_floor(),
                space.samples_floor()
            ));
        }
        Health { writes, notes }
    }

    /// Takes no more samples until a restart, because of something that is wrong elsewhere in the process. Reads go on.
    pub fn stop_writes(&self, why: &str) {
        if let Sink::Log(log) = &self.log {
            log.stop(why);
        }
    }

    /// Leaves a marker where the log ended in order and a checkpoint has all of it: damage of such a log loses nothing.
    fn note_end(&self, log: &Log) {
        let Some(folder) = self.folder.as_ref().filter(|_| matches!(log.writes(), Writes::Closed)) else {
            return;
        };
        let last_seq = log.counters().last_seq.load(Ordering::Relaxed);
        if checkpoint::newest_replay_seq(&folder.head, folder.store) == last_seq
            && let Err(e) = (checkpoint::ClosedMarker { last_seq }).write(folder)
        {
            tracing::warn!("the end of the log was not noted: {}", e.line());
        }
    }

    /// What is left on the disk; none where the store has none, or it does not say.
    fn space(&self) -> Option<disk::Space> {
        self.options.disk.space(&self.folder.as_ref()?.head).ok()
    }

    /// Waits until what the first questions will look at is in memory, as far as a start reads that ahead, but no longer than
    /// this.
    pub fn wait_until_warm(&self, longest: Duration) {
        self.prefetch.wait_for(longest);
    }

    /// Ends writing: what waits is made durable and applied, the threads end. Reads go on. A second call does nothing.
    ///
    /// For a short next start call [`Tsdb::seal`] first, or [`Tsdb::checkpoint`] where that fails.
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

/// What queries are told about a damaged log: files and offsets, never the folder, since a reader may be a stranger.
fn log_warning(places: &[LogPlace]) -> Arc<str> {
    let places: Vec<String> = places.iter().take(LOG_PLACES_TOLD_MAX).map(LogPlace::to_string).collect();
    format!("some samples may be missing: the log is damaged in {}", places.join(", ")).into()
}

impl Default for CheckpointCounts {
    fn default() -> CheckpointCounts {
        let (made, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        CheckpointCounts { made, failed, since: Mutex::new(Stopwatch::start()) }
    }
}

impl CheckpointCounts {
    /// The time since the last checkpoint, or since the store was opened.
    fn age(&self) -> Duration {
        self.since.lock().ignore_poison().elapsed()
    }
}

/// What the applying thread does with a durable record.
fn applier(stores: &Arc<Stores>) -> Apply {
    let stores = Arc::clone(stores);
    Box::new(move |seq, draft| stores.apply(Record::of(seq, draft), &mut Vec::new(), None))
}

#[cfg(test)]
mod tests;
