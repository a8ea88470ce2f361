//! Preparation of a batch: series are resolved, samples are admitted, and records are encoded.

pub(super) mod batch;
pub(super) mod imported;
pub(super) mod keyed;
mod side_data;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::error::{AppendError, Unconfirmed};
use super::options::OrgLimits;
use super::report::AppendReport;
use super::series::definition::Definitions;
use super::series::identity::LabelsKey;
use super::series::labels;
use super::series::metadata;
use super::series::refused::{self, Cause};
use super::series::table::{Lookup, SeriesLimit, Table};
use super::store::OrgStore;
use super::store::quota::Gate;
use super::store::retention_clock::horizon;
use super::wal::log::{ApplyOutcome, Draft, RefusedSample};
use super::wal::record::RecordKind;
use super::wal::samples::{self, LogSample, SAMPLE_BYTES_MAX};
use crate::model::{
    GuessedBatch, Histogram, HistogramError, HistogramSample, MetricMetadata, OrgId, Refusal, Sample,
    Timestamp, WriteBatch, check_available,
};

/// The most samples of a record: at 39 bytes each in the worst case they are 640 kB, the limit of a
/// record.
const RECORD_SAMPLES_MAX: usize = 16_384;
const _: () = assert!(RECORD_SAMPLES_MAX * SAMPLE_BYTES_MAX + 20 <= super::wal::log::BODY_BYTES_WRITTEN_MAX);
/// The bytes after which a record of definitions or descriptions is closed. One more item always
/// fits.
const BODY_BYTES_SOFT: usize = 256 << 10;
/// The code of a sample whose series has another value at the same time.
const DUPLICATE: &str = "duplicate_sample";
/// 0001-01-01T00:00:00Z.
const YEAR_1_MS: i64 = -62_135_596_800_000;

/// The clocks of a request, and how far its samples may be ahead.
#[derive(Clone, Copy)]
pub(super) struct RequestClock {
    pub(super) now: Timestamp,
    /// The retention clock's time, if there is a retention clock.
    pub(super) reached: Option<Timestamp>,
    /// The latest time that may be the present, if there is a retention clock.
    pub(super) latest: Option<Timestamp>,
    pub(super) ahead_max: Option<Duration>,
    /// The reason why the wall clock may be behind. `None` if samples ahead of it are refused
    /// permanently.
    pub(super) unconfirmed: Option<Unconfirmed>,
}

/// The admitted part of a batch, and the report so far.
pub(super) struct Prepared {
    /// Records that are logged before the samples: definitions, descriptions, start timestamps.
    pub(super) before: Vec<Draft>,
    /// The admitted samples. The samples of one series keep the order of the batch.
    pub(super) samples: Vec<LogSample>,
    /// Records that are logged after the samples: histograms and exemplars.
    pub(super) after: Vec<Draft>,
    pub(super) report: AppendReport,
    /// The outcome of samples that were refused as duplicates before the log.
    pub(super) duplicates: ApplyOutcome,
}

/// Resolves and admits a batch, which then only has to be logged.
///
/// # Errors
/// [`AppendError::ClockUnconfirmed`]. [`AppendError::OutOfMemory`] is returned here, because a
/// logged record must be applied, so the head's memory is requested before.
pub(super) fn prepare(
    store: &OrgStore,
    batch: &WriteBatch<'_>,
    clocked: RequestClock,
) -> Result<Prepared, AppendError> {
    let request = Preparation::new(store, batch, clocked)?;
    if let (Some(at), Some(why)) = (request.accepted.ahead, clocked.unconfirmed) {
        return Err(AppendError::ClockUnconfirmed { at, now: clocked.now, why });
    }
    let found = request.look_up_series()?;
    Ok(finish(&request, found))
}

/// Like [`prepare`], for a guessed batch. Returns None if the guess may be wrong.
///
/// # Errors
/// [`AppendError::OutOfMemory`].
pub(super) fn prepare_guessed(
    store: &OrgStore,
    GuessedBatch(batch): &GuessedBatch<'_>,
    clocked: RequestClock,
) -> Result<Option<Prepared>, AppendError> {
    let request = Preparation::new(store, batch, clocked)?;
    if request.accepted.ahead.is_some() && clocked.unconfirmed.is_some() {
        // The guess may have misread the time.
        return Ok(None);
    }
    let found = request.look_up_series()?;
    if !found.missing.iter().all(|one| one.cause.is_some() || is_labels(batch, one.place)) {
        return Ok(None);
    }
    Ok(Some(finish(&request, found)))
}

/// A batch, and the limits and times by which its samples are accepted.
struct Preparation<'r> {
    store: &'r OrgStore,
    batch: &'r WriteBatch<'r>,
    limits: Arc<OrgLimits>,
    accepted: AcceptedTimes,
}

/// The series of a batch, looked up by their raw labels.
struct FoundSeries {
    keys: Vec<LabelsKey>,
    /// The ids; None for those in `missing`.
    ids: Vec<Option<u32>>,
    missing: Vec<Unresolved>,
    /// The number of registered series when the causes in `missing` were looked up.
    live: u32,
}

impl<'r> Preparation<'r> {
    /// Requests the memory of the batch, and derives which times are accepted.
    fn new(
        store: &'r OrgStore,
        batch: &'r WriteBatch<'r>,
        clocked: RequestClock,
    ) -> Result<Preparation<'r>, AppendError> {
        check_available(batch_bytes(batch))?;
        let limits = store.limits();
        let accepted = AcceptedTimes::new(clocked, &limits, store.usage.newest(), batch);
        Ok(Preparation { store, batch, limits, accepted })
    }

    /// Looks up the series, and requests the memory of new ones.
    fn look_up_series(&self) -> Result<FoundSeries, AppendError> {
        let Preparation { store, batch, limits, .. } = self;
        let domain = store.table().secret.domain(batch.encoding, &batch.forced_labels);
        let keys: Vec<_> = batch.series.iter().map(|series| domain.key(series.raw_labels)).collect();
        let mut ids: Vec<Option<u32>> = Vec::new();
        store.table().by_raw_many(&keys, limits, &mut ids);
        let (missing, live) = self.resolver(&keys).missing(&ids);
        if !missing.is_empty() {
            check_available(new_series_bytes(batch, &missing))?;
        }
        Ok(FoundSeries { keys, ids, missing, live })
    }

    fn resolver<'k>(&'k self, keys: &'k [LabelsKey]) -> Resolver<'k> {
        let Preparation { store, batch, limits, accepted } = self;
        Resolver { store, batch, limits, accepted, keys }
    }
}

/// Registers new series, admits samples, and encodes the records of everything else.
fn finish(request: &Preparation<'_>, found: FoundSeries) -> Prepared {
    let Preparation { store, batch, limits, accepted } = request;
    let mut report = AppendReport::default();
    let ids = register(request, found, &mut report);
    let mut admitted = Vec::with_capacity(batch.samples.len());
    let logged = |series, sample: &Sample| LogSample {
        series,
        at_ms: sample.at.as_ms(),
        bits: sample.value.to_bits(),
    };
    if accepted.takes_all && has_one_sample_each(batch) {
        let known = ids.iter().zip(&batch.samples);
        admitted.extend(known.filter_map(|(id, sample)| Some(logged((*id)?, sample))));
    } else {
        for (series, id) in batch.series.iter().zip(&ids) {
            let Some(id) = *id else { continue };
            for sample in batch.samples.get(series.samples.clone()).unwrap_or_default() {
                match accepted.code(sample.at) {
                    None => admitted.push(logged(id, sample)),
                    Some(code) => {
                        report.refuse(1, code, || refusal(store, id, code, accepted.reason(sample.at)));
                    }
                }
            }
        }
    }
    // A sender's order is usually that of the series' numbers, except between two scrapes.
    // Otherwise samples are sorted, so that neighbours in the head are applied together. The sort
    // is stable: samples of one series keep their order.
    let breaks = admitted.windows(2).filter(|pair| pair[0].series > pair[1].series).count();
    // A duplicate that the head refuses is in the log already, so refusing it costs more than
    // accepting it. After a batch of duplicates, the head looks for more of them before the log.
    let expects_duplicates = store.usage.sends_duplicates.load(Ordering::Relaxed);
    if breaks > if expects_duplicates { 0 } else { admitted.len() / 64 } {
        admitted.sort_by_key(|sample| sample.series);
    }
    let duplicates = match expects_duplicates {
        true => store.head.take_duplicates(&mut admitted),
        false => ApplyOutcome::default(),
    };
    let side = side_data::concerns(batch).then(|| {
        side_data::admit(store, batch, &ids, accepted, &mut report, |id, code, reason| {
            refusal(store, id, code, reason)
        })
    });
    let side_series = side.as_ref().map_or(&[][..], |side| &side.series).iter().copied();
    let mut drafts = definitions(store, admitted.iter().map(|sample| sample.series).chain(side_series));
    drafts.extend(descriptions(store, &batch.metadata, limits));
    let (starts, after) = side.map_or_else(Default::default, |side| (side.starts, side.others));
    drafts.extend(starts);
    Prepared { before: drafts, samples: admitted, after, report, duplicates }
}

/// Returns the records of a batch in the order of the log. `samples` are encoded.
pub(super) fn records(
    org: OrgId,
    before: Vec<Draft>,
    samples: Vec<LogSample>,
    after: Vec<Draft>,
) -> Vec<Draft> {
    let mut drafts = before;
    for samples in records_of(samples) {
        let mut body = Vec::with_capacity(samples.len() * 4 + 32);
        samples::encode(&mut body, &samples);
        let greatest_ms = samples.iter().map(|sample| sample.at_ms).max().unwrap_or(i64::MIN);
        drafts.push(Draft { samples, greatest_ms, ..Draft::new(org, RecordKind::Samples, body) });
    }
    drafts.extend(after);
    drafts
}

/// Splits samples into those of each record. They are copied, because splitting off vectors one by
/// one would keep the capacity of all later samples.
fn records_of(admitted: Vec<LogSample>) -> Vec<Vec<LogSample>> {
    match admitted.len() {
        0 => Vec::new(),
        1..=RECORD_SAMPLES_MAX => vec![admitted],
        _ => admitted.chunks(RECORD_SAMPLES_MAX).map(<[LogSample]>::to_vec).collect(),
    }
}

/// Returns the maximum memory for the preparation of a batch and for its samples in the head, in
/// bytes: lists of keys and ids, samples in the batch's order and in the log's, records, chunks.
fn batch_bytes(batch: &WriteBatch<'_>) -> u64 {
    const SERIES: u64 = 64;
    const SAMPLE: u64 = 96;
    let others = batch.histograms.len() + batch.exemplars.len();
    let samples = (batch.samples.len() as u64).saturating_add((others as u64).saturating_mul(4));
    (batch.series.len() as u64).saturating_mul(SERIES).saturating_add(samples.saturating_mul(SAMPLE))
}

/// Returns the memory of new series in bytes: names, rows and entries in the tables, definitions in
/// the log, and first chunks. A series takes about 300 bytes if many share a name; a name of its
/// own costs another kilobyte.
fn new_series_bytes(batch: &WriteBatch<'_>, missing: &[Unresolved]) -> u64 {
    const SERIES: u64 = 1_536;
    const LABEL_BYTE: u64 = 4;
    let labels = missing.iter().filter_map(|one| batch.series.get(one.place));
    let label_bytes: u64 = labels.map(|series| series.raw_labels.len() as u64).sum();
    let series = (missing.len() as u64).saturating_mul(SERIES);
    series.saturating_add(label_bytes.saturating_mul(LABEL_BYTE))
}

/// Returns whether each series has one sample, in the same order, as in a scrape.
fn has_one_sample_each(batch: &WriteBatch<'_>) -> bool {
    let mut places = batch.series.iter().map(|series| &series.samples).zip(0..);
    batch.series.len() == batch.samples.len()
        && places.all(|(samples, place)| samples.start == place && samples.end == place + 1)
}

/// Counts the outcomes of the head.
fn count(store: &OrgStore, report: &mut AppendReport, outcomes: &[ApplyOutcome]) {
    let sum = |of: fn(&ApplyOutcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let are_duplicates = sum(|outcome| outcome.refused) > sum(|outcome| outcome.stored);
    store.usage.sends_duplicates.store(are_duplicates, Ordering::Relaxed);
    for outcome in outcomes {
        report.stored += outcome.stored;
        if outcome.refused > 0 {
            report.count(outcome.refused, DUPLICATE);
        }
        report.histograms += outcome.histograms;
        report.exemplars += outcome.exemplars;
    }
    store.stored_total.fetch_add(report.stored, Ordering::Relaxed);
    store.refused_total.fetch_add(report.refused, Ordering::Relaxed);
}

/// Adds the refusals of the head with the series' labels.
fn name(store: &OrgStore, report: &mut AppendReport, outcomes: &[ApplyOutcome]) {
    for outcome in outcomes {
        for refused in &outcome.first {
            if report.refusals.len() < AppendReport::REFUSALS_MAX {
                report.refusals.push(duplicate(store, refused));
            }
        }
        for (series, at) in &outcome.first_histograms {
            if report.refusals.len() < AppendReport::REFUSALS_MAX {
                let reason = format!("the series has another histogram at {at}: the first is kept");
                report.refusals.push(refusal(store, *series, DUPLICATE, reason));
            }
        }
    }
}

/// Returns whether the raw labels of a series of the batch are labels and nothing else.
fn is_labels(batch: &WriteBatch<'_>, place: usize) -> bool {
    let raw = batch.series.get(place).map_or(&[][..], |series| series.raw_labels);
    (batch.is_labels)(raw)
}

/// Registers the missing series. Returns the id of each series of the batch; None if it is refused.
fn register(request: &Preparation<'_>, found: FoundSeries, report: &mut AppendReport) -> Vec<Option<u32>> {
    let Preparation { store, batch, limits, accepted } = request;
    let FoundSeries { keys, mut ids, missing, live } = found;
    if missing.is_empty() {
        return ids;
    }
    let resolver = request.resolver(&keys);
    // The report names the first few series, so these are parsed even if their refusal is cached.
    let (named, others) = missing.split_at(missing.len().min(AppendReport::REFUSALS_MAX));
    let (mut parser, mut lookup) = (labels::Parser::default(), Lookup::default());
    let mut parsed = Vec::new();
    for missing in [named].into_iter().chain(others.chunks(BATCH_SERIES)) {
        let mut remaining = missing.to_vec();
        resolver.refuse_repeated(&mut remaining, live, report);
        // Parsing is done without the lock, so hostile labels cost only their sender's time.
        parser.clear();
        parsed.clear();
        let mut invalid = Vec::new();
        for one in remaining {
            let Some(series) = batch.series.get(one.place) else { continue };
            match parser.parse(batch, series.raw_labels, limits) {
                Ok(label_set) => parsed.push((one, label_set)),
                Err(problem) => {
                    let code = problem.code();
                    report.refuse(samples_of(batch, one.place), code, || parser.refusal(&problem));
                    if one.cause.is_none() && is_labels(batch, one.place) {
                        invalid.push((one.place, code));
                    }
                }
            }
        }
        if parsed.is_empty() && invalid.is_empty() {
            continue;
        }
        let mut table = store.table_mut();
        let mut gate = Gate::open(&store.usage, limits, accepted.now);
        let entries_max = refused::entries_max(table.live(), gate.spare_bytes(&table));
        for (place, code) in invalid {
            if let Some(key) = keys.get(place) {
                table.refused.add_invalid(*key, code, limits, entries_max);
            }
        }
        for (one, label_set) in &parsed {
            let (Unresolved { place, registers, cause }, pairs) = (*one, parser.pairs(label_set));
            let known = table.live();
            let series_max = if registers { gate.series_max(&table) } else { 0 };
            let found = table.find_or_add(pairs, series_max, &mut lookup);
            let (Some(slot), Some(key)) = (ids.get_mut(place), keys.get(place)) else {
                continue;
            };
            match found {
                Ok(id) => {
                    if table.live() > known {
                        gate.take_one();
                    }
                    // The raw bytes of other encodings have fields between labels that change with
                    // each request. A guess must never find such bytes either.
                    if is_labels(batch, place) {
                        table.cache_raw(*key, id);
                    }
                    *slot = Some(id);
                    continue;
                }
                Err(SeriesLimit { .. }) if !registers => {
                    accepted
                        .refuse_each(batch, place, report, || Refusal::series_text(pairs.iter().copied()));
                }
                Err(SeriesLimit { .. }) => {
                    let code = gate.code(&table);
                    let samples = samples_of(batch, place);
                    report.refuse(samples, code, || {
                        gate.refusal(&table, Refusal::series_text(pairs.iter().copied()))
                    });
                }
            }
            if cause.is_none() && is_labels(batch, place) {
                table.record_unknown(*key, pairs, limits, entries_max);
            }
        }
        store.usage.record_table(&table);
    }
    ids
}

/// Series that are resolved under one lock.
const BATCH_SERIES: usize = 512;

/// A series of a batch that has no id yet.
#[derive(Clone, Copy)]
struct Unresolved {
    /// The index in the batch.
    place: usize,
    /// Whether it has a sample that is accepted. Only such a series is registered, so that refused
    /// samples do not add names.
    registers: bool,
    /// The reason of an earlier refusal, if it still holds.
    cause: Option<Cause>,
}

/// The context in which the series of a batch are resolved.
struct Resolver<'r> {
    store: &'r OrgStore,
    batch: &'r WriteBatch<'r>,
    limits: &'r OrgLimits,
    accepted: &'r AcceptedTimes,
    /// The keys of all series of the batch.
    keys: &'r [LabelsKey],
}

impl Resolver<'_> {
    /// Returns the series without an id, and the number of registered series when the causes were
    /// looked up. Series with accepted samples come first, so that an entry with only exemplars
    /// finds a series that another entry registers.
    fn missing(&self, ids: &[Option<u32>]) -> (Vec<Unresolved>, u32) {
        let without = ids.iter().enumerate().filter(|(_, id)| id.is_none());
        let registers = |place: usize| self.accepted.takes_any(self.batch, place);
        let mut missing: Vec<Unresolved> = without
            .map(|(place, _)| Unresolved { place, registers: registers(place), cause: None })
            .collect();
        if missing.is_empty() {
            return (missing, 0);
        }
        missing.sort_by_key(|one| !one.registers);
        let table = self.store.table();
        self.look_up(&table, &mut missing);
        (missing, table.live())
    }

    /// Looks up why series were refused before.
    fn look_up(&self, table: &Table, missing: &mut [Unresolved]) {
        let keys: Vec<LabelsKey> =
            missing.iter().filter_map(|one| self.keys.get(one.place).copied()).collect();
        let mut causes = Vec::with_capacity(keys.len());
        table.refused.causes(&keys, self.limits, &mut causes);
        missing.iter_mut().zip(causes).for_each(|(one, cause)| one.cause = cause);
    }

    /// Refuses series again whose earlier refusal still holds, at the cost of a lookup, and keeps
    /// the others. All are kept while the report still names refusals. `live` is the number of
    /// registered series when the causes were looked up.
    fn refuse_repeated(&self, missing: &mut Vec<Unresolved>, live: u32, report: &mut AppendReport) {
        let names = report.refusals.len() < AppendReport::REFUSALS_MAX;
        if names || missing.iter().all(|one| one.cause.is_none()) {
            return;
        }
        let closed = {
            let table = self.store.table();
            if table.live() != live {
                // One of these series may have been registered meanwhile.
                self.look_up(&table, missing);
            }
            Gate::open(&self.store.usage, self.limits, self.accepted.now).closed_code(&table)
        };
        let Resolver { batch, accepted, .. } = self;
        missing.retain(|one| {
            match (one.cause, closed) {
                (Some(Cause::Invalid(code)), _) => report.count(samples_of(batch, one.place), code),
                (Some(Cause::Unknown), _) if !one.registers => {
                    accepted.refuse_each(batch, one.place, report, String::new);
                }
                (Some(Cause::Unknown), Some(code)) => report.count(samples_of(batch, one.place), code),
                (Some(Cause::Unknown), None) | (None, _) => return true,
            }
            false
        });
    }
}

/// Returns the number of samples of a series of the batch, including histograms.
fn samples_of(batch: &WriteBatch<'_>, place: usize) -> u64 {
    let floats = batch.series.get(place).map_or(0, |series| series.samples.len());
    (floats + histograms_of(batch, place).len()) as u64
}

fn floats_of<'b>(batch: &'b WriteBatch<'_>, place: usize) -> &'b [Sample] {
    let samples = batch.series.get(place).and_then(|series| batch.samples.get(series.samples.clone()));
    samples.unwrap_or_default()
}

fn histograms_of<'b>(batch: &'b WriteBatch<'_>, place: usize) -> &'b [HistogramSample] {
    if batch.histograms.is_empty() {
        return &[];
    }
    let first = batch.histograms.partition_point(|sample| sample.series < place);
    let after = batch.histograms.partition_point(|sample| sample.series <= place);
    batch.histograms.get(first..after).unwrap_or_default()
}

/// The times of samples that are accepted.
pub(super) struct AcceptedTimes {
    first: Timestamp,
    last: Timestamp,
    now: Timestamp,
    /// The start of the window for late samples, and the sample that it precedes, if the window
    /// starts after the retention does.
    late: Option<(Timestamp, Timestamp)>,
    /// Whether every sample of the request is within.
    takes_all: bool,
    /// The latest time of the request, if it is too far ahead of the clock.
    ahead: Option<Timestamp>,
}

impl AcceptedTimes {
    /// Derives the accepted times. `newest` is the organisation's newest sample before this
    /// request; if it is ahead of the clock, it counts as now. Retention also considers the newest
    /// sample of the request, so that no sample is accepted that would be hidden at once.
    ///
    /// The retention clock decides if it contradicts the wall clock, so a server whose clock is
    /// ahead or was set back does not refuse senders whose time is right.
    fn new(
        RequestClock { now, reached, latest, ahead_max, .. }: RequestClock,
        limits: &OrgLimits,
        newest: Option<Timestamp>,
        batch: &WriteBatch<'_>,
    ) -> AcceptedTimes {
        let last = ahead_max
            .map_or(Timestamp::MAX, |ahead| latest.map_or(now, |latest| latest.max(now)).plus(ahead));
        let present = reached.map_or(now, |reached| reached.min(now));
        let times = || {
            let floats = batch.samples.iter().map(|sample| sample.at);
            floats.chain(batch.histograms.iter().map(|sample| sample.at))
        };
        // One pass over all times: nearly always all are within, and no sample is checked
        // separately.
        let (least, greatest) = times().fold((Timestamp::MAX, Timestamp::MIN), |(least, greatest), at| {
            (least.min(at), greatest.max(at))
        });
        let kept_from = limits.retention.and_then(|age| {
            let own = match (least..=last).contains(&greatest) {
                true => Some(greatest),
                false => times().filter(|at| *at <= last).max(),
            };
            horizon(Some(age), newest.max(own), present)
        });
        let oldest = kept_from.unwrap_or(Timestamp::MIN).max(Timestamp::from_ms(YEAR_1_MS));
        let newest = newest.map(|newest| newest.min(present));
        let late = newest.zip(limits.ooo_window).map(|(newest, window)| (newest.minus(window), newest));
        let late = late.filter(|(first, _)| *first > oldest);
        let first = late.map_or(oldest, |(first, _)| first);
        let ahead = Some(greatest).filter(|greatest| *greatest > last);
        AcceptedTimes { first, late, last, now, takes_all: first <= least && greatest <= last, ahead }
    }

    /// Returns whether a series of the batch has a sample that is accepted.
    fn takes_any(&self, batch: &WriteBatch<'_>, place: usize) -> bool {
        let takes = |at: Timestamp| (self.first..=self.last).contains(&at);
        floats_of(batch, place).iter().any(|sample| takes(sample.at))
            || histograms_of(batch, place).iter().any(|sample| takes(sample.at) && sample.value.is_ok())
    }

    /// Reports the refusal of each sample of a series of the batch.
    fn refuse_each(
        &self,
        batch: &WriteBatch<'_>,
        place: usize,
        report: &mut AppendReport,
        series: impl Fn() -> String,
    ) {
        for sample in floats_of(batch, place) {
            let Some(code) = self.code(sample.at) else { continue };
            report.refuse(1, code, || Refusal { series: series(), code, reason: self.reason(sample.at) });
        }
        for sample in histograms_of(batch, place) {
            let Err(code) = self.code_of_histogram(sample) else { continue };
            let reason = || self.reason_of_histogram(sample);
            report.refuse(1, code, || Refusal { series: series(), code, reason: reason() });
        }
    }

    /// Returns the histogram, or the code of its refusal.
    pub(super) fn code_of_histogram<'b>(
        &self,
        sample: &'b HistogramSample,
    ) -> Result<&'b Histogram, &'static str> {
        let histogram = sample.value.as_ref().map_err(HistogramError::code)?;
        self.code(sample.at).map_or(Ok(histogram), Err)
    }

    /// Returns the reason why a histogram is refused.
    pub(super) fn reason_of_histogram(&self, sample: &HistogramSample) -> String {
        sample.value.as_ref().map_or_else(ToString::to_string, |_| self.reason(sample.at))
    }

    /// Returns the code with which a sample of this time is refused, or None if it is accepted.
    pub(super) fn code(&self, at: Timestamp) -> Option<&'static str> {
        if (self.first..=self.last).contains(&at) {
            return None;
        }
        Some(if at > self.last {
            "too_far_in_future"
        } else if at.as_ms() < YEAR_1_MS {
            "out_of_bounds"
        } else if self.late.is_some() {
            "too_late"
        } else {
            "too_old"
        })
    }

    /// Returns the reason why a sample of this time is refused.
    fn reason(&self, at: Timestamp) -> String {
        let ms = at.as_ms();
        if at > self.last {
            let (ahead, allowed) = (at.ms_since(self.now), self.last.ms_since(self.now));
            return format!(
                "the sample's time {ms} is {ahead} ms ahead of the clock, at most {allowed} ms are allowed"
            );
        }
        if ms < YEAR_1_MS {
            return format!("the sample's time {ms} is before the year 1");
        }
        if let Some((first, newest)) = self.late {
            let (before, allowed) = (newest.ms_since(at), newest.ms_since(first));
            return format!(
                "the sample's time {ms} is {before} ms before the newest sample's, at most {allowed} ms are allowed"
            );
        }
        format!("the sample's time {ms} is before {}, where retention begins", self.first.as_ms())
    }
}

fn refusal(store: &OrgStore, id: u32, code: &'static str, reason: String) -> Refusal {
    let labels = store.table().labels(id).unwrap_or_default();
    let series = Refusal::series_text(labels.iter().map(|label| (label.name, label.value)));
    Refusal { series, code, reason }
}

fn duplicate(store: &OrgStore, refused: &RefusedSample) -> Refusal {
    let sample = Sample { at: Timestamp::from_ms(refused.at_ms), value: f64::from_bits(refused.bits) };
    let have = f64::from_bits(refused.have);
    let at = sample.at.as_ms();
    let reason = format!("the series has {have} at {at}, so the new value {} was refused", sample.value);
    refusal(store, refused.series, DUPLICATE, reason)
}

/// Returns records that define those series of the batch whose definitions may not be durable.
fn definitions(store: &OrgStore, admitted: impl Iterator<Item = u32>) -> Vec<Draft> {
    store.take_durable();
    let table = store.table();
    let mut drafts = Vec::new();
    if table.pending.is_empty() {
        return drafts;
    }
    let mut definitions = Definitions::default();
    let mut last = None;
    for series in admitted {
        if last.replace(series) == Some(series) || !table.pending.contains(&series) {
            continue;
        }
        let Some(labels) = table.labels(series) else { continue };
        definitions.add(series, labels.iter().map(|label| (label.name, label.value)));
        if definitions.bytes() >= BODY_BYTES_SOFT {
            drafts.push(draft(store, RecordKind::Series, std::mem::take(&mut definitions).finish()));
        }
    }
    if !definitions.is_empty() {
        drafts.push(draft(store, RecordKind::Series, definitions.finish()));
    }
    drafts
}

fn draft(store: &OrgStore, kind: RecordKind, body: Vec<u8>) -> Draft {
    Draft::new(store.org, kind, body)
}

/// Returns records of new or changed metadata.
fn descriptions(store: &OrgStore, metric: &[MetricMetadata<'_>], limits: &OrgLimits) -> Vec<Draft> {
    if metric.is_empty() {
        return Vec::new();
    }
    let mut changed = Vec::new();
    let mut dropped = 0;
    {
        let metadata = store.metadata();
        for metric in metric {
            match metadata.has_changed(metric, limits) {
                Ok(true) => changed.push(metric),
                Ok(false) => {}
                Err(()) => dropped += 1,
            }
        }
    }
    store.metadata_dropped_total.fetch_add(dropped, Ordering::Relaxed);
    let mut drafts = Vec::new();
    let mut rest = changed.as_slice();
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take_while(|metric| {
            let fits = bytes < BODY_BYTES_SOFT;
            bytes += metric.name.len() + metric.help.len() + metric.unit.len() + 16;
            fits
        });
        let (batch, after) = rest.split_at(fits.count());
        rest = after;
        drafts.push(draft(
            store,
            RecordKind::Metadata,
            metadata::encode(batch.iter().map(|metric| **metric)),
        ));
    }
    drafts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_of_a_large_batch_have_no_spare_capacity() {
        for len in [0, 1, RECORD_SAMPLES_MAX, RECORD_SAMPLES_MAX + 1, 300_000] {
            let sample = |n: usize| LogSample { series: 7, at_ms: n as i64, bits: 0 };
            let records = records_of((0..len).map(sample).collect());
            let room: usize = records.iter().map(Vec::capacity).sum();
            assert!(room <= len + RECORD_SAMPLES_MAX, "{len} samples have room for {room}");
            let found = records.iter().flatten().map(|sample| sample.at_ms);
            assert!(found.eq(0..len as i64) && records.iter().all(|record| !record.is_empty()), "{len}");
        }
    }
}
