//! The application of records to the state in memory.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::Stores;
use super::deletion::Deletion;
use super::row_seqs::{RowSeqs, skipped};
use crate::model::OrgId;
use crate::tsdb::error::Damage;
use crate::tsdb::series::{definition, metadata};
use crate::tsdb::side_data::SideRecord;
use crate::tsdb::side_data::record::{decode_exemplars, decode_histograms, decode_starts};
use crate::tsdb::wal::log::{ApplyOutcome, Draft};
use crate::tsdb::wal::record::{RecordKind, parse_seal};
use crate::tsdb::wal::samples::{self, LogSample};

/// A durable record of the log.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct Record<'b> {
    pub(in crate::tsdb) seq: u64,
    pub(in crate::tsdb) org: OrgId,
    pub(in crate::tsdb) kind: RecordKind,
    pub(in crate::tsdb) body: &'b [u8],
    /// The decoded body of [`RecordKind::Samples`], if the record has just been logged. `None` if
    /// it was read from a file.
    pub(in crate::tsdb) samples: Option<&'b [LogSample]>,
}

impl<'b> Record<'b> {
    /// Creates a record that was read from a file.
    pub(in crate::tsdb) const fn read(seq: u64, org: OrgId, kind: RecordKind, body: &'b [u8]) -> Record<'b> {
        Record { seq, org, kind, body, samples: None }
    }

    /// Creates a record that has just been logged.
    pub(in crate::tsdb) fn of(seq: u64, draft: &'b Draft) -> Record<'b> {
        let Draft { org, kind, body, samples, is_copied, .. } = draft;
        let is_known = !is_copied || kind.is_samples();
        Record { seq, org: *org, kind: *kind, body, samples: is_known.then_some(samples) }
    }
}

impl Stores {
    /// Applies a record that has just been logged.
    ///
    /// # Errors
    /// [`Damage`] if the body does not match its type.
    pub(in crate::tsdb) fn apply_logged(&self, seq: u64, draft: &Draft) -> Result<ApplyOutcome, Damage> {
        let seq_before = self.org(draft.org).map_or(0, |store| store.last_seq.load(Ordering::Acquire));
        let outcome = self.apply(Record::of(seq, draft), &mut Vec::new(), None)?;
        Ok(ApplyOutcome { record_seq: seq, seq_before, ..outcome })
    }

    /// Applies a durable record, in the same way while running and in a replay.
    ///
    /// In a replay, `rows` lists the content of the checkpoint, and samples of series without a
    /// definition are counted as orphans. While running every series is defined, because its
    /// definition precedes its samples.
    ///
    /// # Errors
    /// [`Damage`] if the body does not match its type although its checksum is correct.
    pub(in crate::tsdb) fn apply(
        &self,
        record: Record<'_>,
        scratch: &mut Vec<LogSample>,
        rows: Option<&RowSeqs>,
    ) -> Result<ApplyOutcome, Damage> {
        let Record { seq, org, kind, body, samples } = record;
        if kind == RecordKind::Dropped {
            self.drop_org(org);
            return Ok(ApplyOutcome::default());
        }
        if self.is_dropped(org) {
            return Ok(ApplyOutcome::default());
        }
        if kind != RecordKind::Mark {
            self.org_or_new(org).count_record(body);
        }
        match kind {
            RecordKind::Samples | RecordKind::SamplesV1 => self.apply_samples(record, scratch, rows),
            RecordKind::Histograms | RecordKind::Exemplars | RecordKind::Starts if self.queue_only => {
                let store = self.org_or_new(org);
                store.last_seq.store(seq, Ordering::Release);
                let outcome = count_side(kind, body, |at_ms| store.arrivals.record_time(at_ms))?;
                self.uncovered.fetch_add(outcome.stored, Ordering::Relaxed);
                Ok(outcome)
            }
            RecordKind::Histograms | RecordKind::Exemplars | RecordKind::Starts => {
                self.apply_side(record, rows)
            }
            RecordKind::Series if samples.is_some() => {
                // The caller registered its series in the table before logging it.
                let ids = definition::ids(body)?;
                let store = self.org_or_new(org);
                store.last_seq.store(seq, Ordering::Release);
                store.durable().extend(ids);
                Ok(ApplyOutcome::default())
            }
            RecordKind::Series | RecordKind::RegistrySeries => {
                let store = self.org_or_new(org);
                if kind == RecordKind::Series {
                    store.last_seq.store(seq, Ordering::Release);
                }
                let mut table = store.table_mut();
                let defined = table.define_all(body, kind == RecordKind::RegistrySeries);
                store.usage.record_table(&table);
                drop(table);
                self.settle_names(&store);
                defined.map(|()| ApplyOutcome::default())
            }
            RecordKind::Metadata | RecordKind::RegistryMetadata => {
                let store = self.org_or_new(org);
                if kind == RecordKind::Metadata {
                    store.last_seq.store(seq, Ordering::Release);
                }
                let mut known = store.metadata_mut();
                metadata::decode(body, &mut |metric| {
                    known.set(metric, kind == RecordKind::RegistryMetadata)
                })?;
                Ok(ApplyOutcome::default())
            }
            RecordKind::Seal | RecordKind::SealAll => {
                let until_ms = parse_seal(body)?;
                let store = self.org_or_new(org);
                store.last_seq.store(seq, Ordering::Release);
                match kind {
                    RecordKind::SealAll => store.close_all(until_ms),
                    _ => store.close_window(until_ms),
                }
                // Earlier records will soon be in segments, and the log is trimmed after that.
                store.usage.log_bytes.store(0, Ordering::Relaxed);
                Ok(ApplyOutcome::default())
            }
            RecordKind::Delete => self.apply_deletion(record, rows),
            RecordKind::Mark | RecordKind::Switch | RecordKind::Dropped => Ok(ApplyOutcome::default()),
        }
    }

    /// Like [`Stores::apply`], for samples.
    fn apply_samples(
        &self,
        record: Record<'_>,
        scratch: &mut Vec<LogSample>,
        rows: Option<&RowSeqs>,
    ) -> Result<ApplyOutcome, Damage> {
        let Record { seq, org, kind, body, samples } = record;
        if samples.is_none() || cfg!(debug_assertions) {
            samples::decode(kind, body, scratch)?;
        }
        debug_assert!(samples.is_none_or(|samples| samples == &**scratch), "another record was logged");
        let store = self.org_or_new(org);
        let orphans = if rows.is_some() { store.retain_replayed(seq, scratch) } else { 0 };
        let samples = samples.unwrap_or(scratch);
        let least_ms = store.record_samples(seq, samples);
        if self.queue_only {
            let stored = samples.len() as u64;
            self.uncovered.fetch_add(stored, Ordering::Relaxed);
            return Ok(ApplyOutcome { stored, orphans, ..ApplyOutcome::default() });
        }
        let record_change = || (!samples.is_empty()).then(|| store.changes.note(least_ms));
        record_change();
        let mut outcome = store.head.apply(seq, samples, skipped(rows, org, seq));
        outcome.orphans = orphans;
        record_change();
        self.uncovered.fetch_add(outcome.stored, Ordering::Relaxed);
        Ok(outcome)
    }

    /// Like [`Stores::apply`], for side data.
    fn apply_side(&self, record: Record<'_>, rows: Option<&RowSeqs>) -> Result<ApplyOutcome, Damage> {
        let Record { seq, org, kind, body, .. } = record;
        let store = self.org_or_new(org);
        let table = rows.map(|_| store.table());
        let knows = |series| table.as_ref().is_none_or(|table| table.knows(series));
        let have = rows.map_or(&[][..], |rows| rows.side_of(org));
        let sealed = rows.map(|_| store.segments());
        // Skip samples that segments or a checkpoint already contain.
        let skip = |series: u32, at_ms| {
            have.get(series as usize).is_some_and(|have| seq <= *have)
                || sealed.as_ref().is_some_and(|sealed| sealed.has_record(seq, at_ms))
        };
        store.last_seq.store(seq, Ordering::Release);
        if kind == RecordKind::Exemplars && sealed.as_ref().is_some_and(|sealed| seq <= sealed.seal_seq) {
            // A seal takes every exemplar before it, of any time.
            return Ok(ApplyOutcome::default());
        }
        // The times of the record are known only after it is applied.
        let _open = (kind != RecordKind::Exemplars).then(|| store.changes.open());
        let least_ms = Cell::new(i64::MAX);
        if kind == RecordKind::Starts {
            decode_starts(body, |start| least_ms.set(least_ms.get().min(start.at_ms)))?;
        }
        let applied = store.side.apply(SideRecord { seq, kind, body }, knows, skip, |at_ms| {
            least_ms.set(least_ms.get().min(at_ms));
            store.arrivals.record_time(at_ms);
        });
        if kind != RecordKind::Exemplars {
            // Part of a damaged body may have been applied.
            store.changes.note(if applied.is_ok() { least_ms.get() } else { i64::MIN });
        }
        let outcome = applied?;
        self.uncovered.fetch_add(outcome.stored, Ordering::Relaxed);
        Ok(outcome)
    }

    /// Like [`Stores::apply`], for a deletion.
    fn apply_deletion(&self, record: Record<'_>, rows: Option<&RowSeqs>) -> Result<ApplyOutcome, Damage> {
        let Record { seq, org, body, .. } = record;
        let deletion = Deletion::decode(body)?;
        let store = self.org_or_new(org);
        store.last_seq.store(seq, Ordering::Release);
        // A later row of the checkpoint already reflects the deletion, and may have newer samples.
        let knows = |have: &[u64], series: u32| have.get(series as usize).is_some_and(|have| seq <= *have);
        let floats = rows.map_or(&[][..], |rows| rows.of(org));
        let side = rows.map_or(&[][..], |rows| rows.side_of(org));
        // The rings of exemplars from segments reflect earlier deletions, and may have newer
        // exemplars.
        let exemplars = rows.is_none() || seq > store.segments().seal_seq;
        store.changes.note(deletion.from_ms);
        deletion.apply(&store, |series| knows(floats, series), |series| knows(side, series), exemplars);
        store.changes.note(deletion.from_ms);
        // The last checkpoint still has the deleted samples, so another one is due.
        self.uncovered.fetch_add(1, Ordering::Relaxed);
        Ok(ApplyOutcome::default())
    }
}

/// Counts the histograms and exemplars of a record that are not kept in memory. `arrived` gets the
/// times of histograms.
///
/// # Errors
/// [`Damage`] if the body does not match its kind.
fn count_side(kind: RecordKind, body: &[u8], arrived: impl Fn(i64)) -> Result<ApplyOutcome, Damage> {
    let mut outcome = ApplyOutcome::default();
    match kind {
        RecordKind::Histograms => decode_histograms(body, |_, mut decoder| {
            while let Some(at_ms) = decoder.advance()? {
                arrived(at_ms);
                outcome.stored += 1;
                outcome.histograms += 1;
            }
            Ok(())
        })?,
        RecordKind::Exemplars => decode_exemplars(body, |_, _| outcome.exemplars += 1)?,
        _ => decode_starts(body, |_| ())?,
    }
    Ok(outcome)
}
