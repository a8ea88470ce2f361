//! The time series database: opened, written, read, and closed.

pub(super) mod import;
mod open;
mod stats;
pub(super) mod tail;
mod write;

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::maintenance::checkpoint::Folder;
use super::maintenance::checkpointer::{CheckpointCounts, Checkpoints};
use super::maintenance::compact::Compactor;
use super::maintenance::copies::Copies;
use super::maintenance::log_mark::{LogMark, MarkWrite};
use super::maintenance::retention::Retention;
use super::maintenance::seal::{SealCounts, Sealer};
use super::options::{Durability, Options, OrgLimits};
use super::recovery::prefetch::Prefetch;
use super::snapshot::Snapshot;
use super::store::Stores;
use super::store::manifest::Manifest;
use super::store::pins::Pins;
use super::wal::sink::Sink;
use crate::model::{Access, OrgId, WriteGate};

/// The samples of all organisations.
#[derive(Debug)]
pub struct Tsdb {
    pub(super) stores: Arc<Stores>,
    pub(super) log: Sink,
    pub(super) folder: Option<Folder>,
    pub(super) manifest: Option<Manifest>,
    pub(super) options: Options,
    pub(super) notes: Vec<String>,
    /// The warning of queries about a damaged log.
    pub(super) log_warning: Option<Arc<str>>,
    /// Held by the writer of a checkpoint, and by a backup or the removal of an organisation to
    /// prevent checkpoints. The counts are in `checkpoint_counts`.
    pub(super) checkpoints: Mutex<Checkpoints>,
    pub(super) checkpoint_counts: CheckpointCounts,
    pub(super) sealer: Mutex<Sealer>,
    /// The seals that wait for the current one, which then skips its pauses.
    pub(super) seals_waiting: AtomicU32,
    pub(super) removal: Mutex<Removal>,
    pub(super) compactor: Mutex<Compactor>,
    pub(super) retention: Retention,
    pub(super) seals: SealCounts,
    pub(super) prefetch: Prefetch,
    pub(super) log_mark: LogMark,
    pub(super) pins: Pins,
    pub(super) copies: Copies,
    /// Decides whether changes are accepted; none without a folder.
    pub(super) gate: Option<Arc<WriteGate>>,
}

/// Locked while files are removed, and by a backup while it links them.
#[derive(Debug, Default)]
pub(super) struct Removal;

impl Tsdb {
    /// Sets the limits of one organisation. Existing data stays.
    pub fn set_limits(&self, org: OrgId, limits: OrgLimits) {
        self.stores.set_limits(org, limits);
    }

    /// Returns the limits of organisations without limits of their own.
    pub fn default_limits(&self) -> &OrgLimits {
        &self.options.limits
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

    /// Refuses samples until a restart, because of a fault elsewhere in the process. Reads
    /// continue.
    pub fn stop_writes(&self, why: &str) {
        if let Sink::Log(log) = &self.log {
            log.stop(why);
        }
    }

    /// Waits until the data of the first queries is in memory, as far as the start reads it ahead,
    /// but for at most `longest`.
    pub fn wait_until_warm(&self, longest: Duration) {
        self.prefetch.wait_for(longest);
    }

    /// Stops writing: waiting records are made durable and applied, and the threads end. Reads
    /// continue. A second call has no effect.
    ///
    /// The next start is shorter if the caller calls [`Tsdb::seal`] first, or [`Tsdb::checkpoint`]
    /// if the seal fails.
    pub fn close(&self) {
        if let Sink::Log(log) = &self.log {
            log.close();
            self.note_end(log);
        }
        self.record_log_end(MarkWrite::Now);
        self.save_pins();
        if let Some(manifest) = &self.manifest {
            if matches!(self.log, Sink::Log(_)) {
                self.close_retention(manifest);
            }
            manifest.close();
        }
        self.prefetch.end();
    }
}
