//! Opening of a database, on a folder or in memory.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::Tsdb;
use crate::entropy::Entropy;
use crate::kv::keyed::RecordKey;
use crate::kv::with_sources;
use crate::model::Timestamp;
use crate::tsdb::error::{ManifestError, OpenError};
use crate::tsdb::maintenance::checkpointer::CheckpointCounts;
use crate::tsdb::maintenance::copies::Copies;
use crate::tsdb::maintenance::log_mark::LogMark;
use crate::tsdb::maintenance::retention::Retention;
use crate::tsdb::maintenance::seal::SealCounts;
use crate::tsdb::options::{Home, Options};
use crate::tsdb::recovery::open::{self, Recovered, Secrets};
use crate::tsdb::recovery::prefetch::Prefetch;
use crate::tsdb::recovery::repair::accept_loss;
use crate::tsdb::report::{LogPlace, RecoveryReport};
use crate::tsdb::store::Stores;
use crate::tsdb::store::manifest::Manifest;
use crate::tsdb::store::pins::Pins;
use crate::tsdb::wal::log::{Apply, Log};
use crate::tsdb::wal::sink::Sink;

/// The damaged places that the warning of a query names.
const LOG_WARNING_PLACES_MAX: usize = 5;

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
        let gate = Arc::clone(control.gate());
        let manifest = Manifest::new(Arc::clone(&control));
        // Before the first task that trims the log, also in commands on the stopped folder.
        let standby = control.standby().map_err(ManifestError::from)?;
        let secrets = Secrets { labels: rng.bytes(), records: RecordKey::random(rng) };
        let mut recovered = open::recover(dir, store, &manifest, &options, secrets, now)?;
        if let Some(why) = recovered.report.read_only.clone().filter(|_| recovered.log_is_covered) {
            // No sample is lost with this log: a new one replaces it, as with `--accept-loss`.
            match accept_loss(&Home { dir, store, control }, rng, now) {
                Ok(_) => {
                    recovered = open::recover(dir, store, &manifest, &options, secrets, now)?;
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
        let pins = Pins::of(manifest.read_pins()?);
        let manifest = Some(manifest);
        let prefetch = Prefetch::start(&stores, options.warm_bytes_max);
        let tsdb = Tsdb {
            folder: Some(folder),
            manifest,
            notes,
            log_warning,
            prefetch,
            pins,
            gate: Some(Arc::clone(&gate)),
            copies: Copies::of(&standby),
            ..Tsdb::without_folder(stores, log, options, retention)
        };
        tsdb.use_gate(&gate);
        tsdb.warn_of_clocks();
        Ok((tsdb, report))
    }

    /// Creates a store without a log or a folder, whose content ends with the process. `secret`
    /// keys its identity hashes.
    pub fn in_memory(options: Options, secret: [u8; 32]) -> Tsdb {
        let retention = Retention::in_memory(&options);
        let limits = options.limits.clone();
        let stores = Arc::new(Stores::with_block_cache(options.decoded_bytes_max, secret, limits));
        Tsdb::without_folder(stores, Sink::Memory(Mutex::new(0)), options, retention)
    }

    fn without_folder(stores: Arc<Stores>, log: Sink, options: Options, retention: Retention) -> Tsdb {
        Tsdb {
            stores,
            log,
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
            seals: SealCounts::default(),
            prefetch: Prefetch::default(),
            log_mark: LogMark::default(),
            pins: Pins::default(),
            copies: Copies::default(),
            gate: None,
        }
    }

    /// Creates an empty store in memory for tests of other rooms. It accepts samples of any time.
    pub fn scaffold() -> Tsdb {
        Tsdb::in_memory(Options { ahead_max: None, ..Options::default() }, [0; 32])
    }
}

/// Returns the warning of queries about a damaged log. It contains files and offsets but never the
/// folder, because any client may read it.
fn log_warning(places: &[LogPlace]) -> Arc<str> {
    let places: Vec<String> = places.iter().take(LOG_WARNING_PLACES_MAX).map(LogPlace::to_string).collect();
    format!("some samples may be missing: the log is damaged in {}", places.join(", ")).into()
}

/// Returns the function that applies a durable record.
fn applier(stores: &Arc<Stores>) -> Apply {
    let stores = Arc::clone(stores);
    Box::new(move |seq, draft| stores.apply_logged(seq, draft))
}
