//! Statistics and health of a database.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Tsdb;
use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;
use crate::tsdb::disk::Space;
use crate::tsdb::report::{Health, OrgStats, Stats, Writes};
use crate::tsdb::wal::sink::Sink;

impl Tsdb {
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

    /// Returns the free space of the disk, or None if the store has no folder or the space is
    /// unknown.
    fn space(&self) -> Option<Space> {
        self.options.disk.space(&self.folder.as_ref()?.head).ok()
    }
}
