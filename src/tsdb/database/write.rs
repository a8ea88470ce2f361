//! Writing of batches: admission, the log, and the outcome.

use std::sync::Arc;

use super::Tsdb;
use crate::model::{BatchBuilder, GuessedBatch, OrgId, Timestamp, WriteBatch};
use crate::sync::IgnorePoison as _;
use crate::tsdb::append::batch::{Appended, Appending, BatchContext, GuessOutcome};
use crate::tsdb::append::keyed::{KeyedBatch, prepare_keyed};
use crate::tsdb::append::{self, Prepared, RequestClock};
use crate::tsdb::error::AppendError;
use crate::tsdb::report::AppendReport;
use crate::tsdb::series::identity::LabelsKey;
use crate::tsdb::store::{OrgStore, quota};
use crate::tsdb::wal::log::{ApplyOutcome, Draft};
use crate::tsdb::wal::record::RecordKind;
use crate::tsdb::wal::sink::Sink;

/// The code of samples that are refused until the clock is confirmed.
const CLOCK_UNCONFIRMED: &str = "clock_unconfirmed";

impl Tsdb {
    /// Stores a batch. When this returns, the samples that the report counts as stored are visible,
    /// and durable according to [`Durability`](crate::tsdb::Durability).
    ///
    /// Series and samples that may not be stored are refused one by one and named in the report;
    /// the others are stored. The organisation is created on its first write. The call blocks for
    /// one sync of the disk.
    ///
    /// # Errors
    /// [`AppendError`] if nothing is acknowledged, for reasons that are not the sender's fault.
    pub fn append(
        &self,
        org: OrgId,
        batch: &WriteBatch<'_>,
        now: Timestamp,
    ) -> Result<AppendReport, AppendError> {
        let appending = self.prepare(org, batch, now)?;
        self.finish(appending)
    }

    /// Stores a batch like [`Tsdb::append`], but its samples do not count as samples of this day.
    /// It is for the metrics of the server itself.
    ///
    /// # Errors
    /// Those of [`Tsdb::append`].
    pub fn append_own(
        &self,
        org: OrgId,
        batch: &WriteBatch<'_>,
        now: Timestamp,
    ) -> Result<AppendReport, AppendError> {
        let mut appending = self.prepare(org, batch, now)?;
        appending.context.is_usage = false;
        self.finish(appending)
    }

    /// Stores a prepared batch and waits for it.
    fn finish(&self, Appending { drafts, context }: Appending) -> Result<AppendReport, AppendError> {
        let outcomes = self.commit(drafts, context.now)?;
        Ok(context.applied(outcomes).report())
    }

    /// Stores a batch like [`Tsdb::append`], but nothing of it if a series may not be stored, for
    /// example because of the limits of labels or of the number of series. The report then has
    /// refusals and no stored sample. Samples that arrive out of order are refused one by one.
    ///
    /// # Errors
    /// Those of [`Tsdb::append`].
    pub fn append_whole(
        &self,
        org: OrgId,
        batch: &WriteBatch<'_>,
        now: Timestamp,
    ) -> Result<AppendReport, AppendError> {
        let mut appending = self.prepare(org, batch, now)?;
        if appending.context.report.refused + appending.context.duplicates.refused > 0 {
            appending.drafts.clear();
        }
        self.finish(appending)
    }

    /// Returns the keys of the series of a batch, in its order, for [`Tsdb::prepare_keyed`]. They
    /// are valid for this organisation until the store is closed. Returns none for an organisation
    /// without a store.
    pub fn series_keys(&self, org: OrgId, batch: &WriteBatch<'_>) -> Vec<LabelsKey> {
        let Some(store) = self.stores.org(org) else { return Vec::new() };
        let domain = store.table().secret.domain(batch.encoding, &batch.forced_labels);
        batch.series.iter().map(|series| domain.key(series.raw_labels)).collect()
    }

    /// Does the first half of [`Tsdb::append`] for a batch by the keys of its series. Returns None
    /// if a series is not known by its key any more: the caller must send its labels.
    ///
    /// # Errors
    /// Those of [`Tsdb::append`].
    pub fn prepare_keyed(
        &self,
        org: OrgId,
        batch: KeyedBatch<'_>,
        now: Timestamp,
    ) -> Result<Option<Appending>, AppendError> {
        let builder = BatchBuilder::default();
        let (keys, batch) = batch.split(&builder);
        let store = self.admit(org, &batch, now)?;
        let prepared = prepare_keyed(&store, keys, &batch, self.request_clock(now))?;
        Ok(prepared.map(|prepared| self.appending(store, prepared, now)))
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
        self.commit_all_then([(appending, done)]);
    }

    /// Like [`Tsdb::commit_then`] for several batches, which one sync makes durable if a group of
    /// the log holds them. Each has its own result.
    pub fn commit_all_then<D>(&self, batches: impl IntoIterator<Item = (Appending, D)>)
    where
        D: FnOnce(Result<Appended, AppendError>) + Send + 'static,
    {
        let callers = batches.into_iter().map(|(Appending { drafts, context }, done)| {
            let now = context.now;
            let finish = move |result: Result<Vec<ApplyOutcome>, AppendError>| {
                done(result.map(|outcomes| context.applied(outcomes)));
            };
            (drafts, now, finish)
        });
        match &self.log {
            Sink::Log(log) => log.commit_all_then(
                callers.map(|(drafts, now, finish)| (drafts, now, Box::new(finish) as Box<_>)),
            ),
            Sink::Memory(_) | Sink::ReadOnly { .. } => {
                callers.for_each(|(drafts, now, finish)| finish(self.commit(drafts, now)));
            }
        }
    }

    /// Does the first half of [`Tsdb::append`]: resolves or registers the series, and refuses
    /// samples that may not be stored. It stores no sample.
    ///
    /// # Errors
    /// Those of [`Tsdb::append`].
    pub fn prepare(
        &self,
        org: OrgId,
        batch: &WriteBatch<'_>,
        now: Timestamp,
    ) -> Result<Appending, AppendError> {
        let store = self.admit(org, batch, now)?;
        let prepared = append::prepare(&store, batch, self.request_clock(now)).inspect_err(|e| {
            if let AppendError::ClockUnconfirmed { .. } = e {
                let samples = batch.samples.len().saturating_add(batch.histograms.len());
                store.usage.count(0, &vec![(CLOCK_UNCONFIRMED, samples as u64)], now);
            }
        })?;
        Ok(self.appending(store, prepared, now))
    }

    /// Like [`Tsdb::prepare`], for a guessed batch.
    ///
    /// # Errors
    /// Those of [`Tsdb::append`].
    pub fn prepare_guessed(
        &self,
        org: OrgId,
        batch: &GuessedBatch<'_>,
        now: Timestamp,
    ) -> Result<GuessOutcome, AppendError> {
        let store = self.admit(org, &batch.0, now)?;
        let prepared = append::prepare_guessed(&store, batch, self.request_clock(now))?;
        Ok(match prepared {
            Some(prepared) => GuessOutcome::Ready(self.appending(store, prepared, now)),
            None => GuessOutcome::Doubtful,
        })
    }

    /// Returns the state of the organisation, if the log and the limits of memory and disk admit
    /// the batch.
    pub(super) fn admit(
        &self,
        org: OrgId,
        batch: &WriteBatch<'_>,
        now: Timestamp,
    ) -> Result<Arc<OrgStore>, AppendError> {
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
        Ok(store)
    }

    pub(super) fn request_clock(&self, now: Timestamp) -> RequestClock {
        RequestClock {
            now,
            reached: self.retention.reached(),
            latest: self.retention.latest(),
            ahead_max: self.options.ahead_max,
            unconfirmed: self.retention.unconfirmed(now, &self.options),
        }
    }

    pub(super) fn appending(&self, store: Arc<OrgStore>, prepared: Prepared, now: Timestamp) -> Appending {
        let Prepared { before, samples, after, report, duplicates } = prepared;
        let drafts = append::records(store.org, before, samples, after);
        self.stores.settle_names(&store);
        let samples =
            drafts.iter().filter(|draft| matches!(draft.kind, RecordKind::Samples | RecordKind::Histograms));
        let newest_ms = samples.map(|draft| draft.greatest_ms).max().unwrap_or(i64::MIN);
        let has_samples_only = drafts.iter().all(|draft| {
            matches!(
                draft.kind,
                RecordKind::Series | RecordKind::Samples | RecordKind::Histograms | RecordKind::Exemplars
            )
        });
        let is_usage = true;
        Appending {
            drafts,
            context: BatchContext { store, report, duplicates, newest_ms, now, is_usage, has_samples_only },
        }
    }

    pub(in crate::tsdb) fn commit(
        &self,
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<ApplyOutcome>, AppendError> {
        match &self.log {
            Sink::Log(log) => log.commit(drafts, now),
            Sink::Memory(last) => {
                let mut last = last.lock().ignore_poison();
                let mut apply = |draft: Draft| {
                    *last += 1;
                    let applied = self.stores.apply_logged(*last, &draft);
                    applied.map_err(|e| AppendError::Fenced(e.to_string()))
                };
                drafts.into_iter().map(&mut apply).collect()
            }
            Sink::ReadOnly { why, .. } => Err(AppendError::ReadOnly(why.clone())),
        }
    }

    /// Makes all applied records durable.
    ///
    /// # Errors
    /// [`AppendError`].
    pub fn flush(&self) -> Result<(), AppendError> {
        match &self.log {
            Sink::Log(log) => log.flush().map(drop),
            Sink::Memory(_) | Sink::ReadOnly { .. } => Ok(()),
        }
    }
}
