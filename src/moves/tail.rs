//! The samples of the log: each is sent once, with the value that the store has.
//!
//! A sample may be at the target already: with the history, or because its sender sent it twice, or
//! because a process before this one sent it. It is surely new if it is newer than all sent samples
//! of its series, or, in a series of which this process sent none, than all samples that were sent
//! before. All others wait until they are looked up at the target, many at once.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use super::batch::{BatchSeries, MoveBatch};
use super::compare::is_near;
use super::history::{HistoryError, read_series};
use super::run::{COMPARED_WINDOW_MS, MoveEnvironment, MoveStop, Mover, RetryDelay, Unsaved};
use crate::identity::MoveStep;
use crate::model::{Labels, Timestamp};
use crate::tsdb::SeriesId;

/// The pause between two reads of the log after the switch.
const FORWARD_PAUSE: Duration = Duration::from_millis(100);
/// The number of reads of the log without new samples after which the end of the last request is
/// stored.
const LOOKS_TO_SAVE_REQUEST: u32 = 10;
/// The number of reads of the log without new samples after which the position is stored although
/// no request was sent.
const LOOKS_TO_SAVE_POSITION: u32 = 100;
/// The most series whose last samples are remembered.
const SENT_SERIES_MAX: usize = 1 << 20;
/// The samples that are remembered for each series. A sender that retries repeats its last samples,
/// perhaps before the target shows them.
const SENT_TIMES: usize = 4;
/// The samples that wait until they are looked up at the target.
const UNSURE_SAMPLES_MAX: usize = 50_000;

/// The last sent samples of a series, the newest one first: times in milliseconds and bits of
/// values. For native histograms only the times are kept.
#[derive(Clone, Copy, Debug)]
struct SentTimes([(i64, Option<u64>); SENT_TIMES]);

impl SentTimes {
    const NONE: SentTimes = SentTimes([(i64::MIN, None); SENT_TIMES]);

    fn newest(&self) -> i64 {
        self.0[0].0
    }

    fn find(&self, at: Timestamp) -> Option<Option<u64>> {
        self.0.iter().find(|(time, _)| *time == at.as_ms()).map(|(_, bits)| *bits)
    }

    fn add(&mut self, at: Timestamp, bits: Option<u64>) {
        let at = at.as_ms();
        let place = self.0.partition_point(|(have, _)| *have > at);
        if let Some([first, ..]) = self.0.get(place..)
            && first.0 != at
        {
            self.0[place..].rotate_right(1);
            self.0[place] = (at, bits);
        }
    }
}

/// The last samples that this process sent of the log, by series.
#[derive(Debug)]
pub(super) struct SentSeries {
    all: HashMap<SeriesId, SentTimes>,
    /// The newest sample that may have been sent of a series that is not in `all`.
    floor_ms: i64,
    /// The newest sent sample.
    newest_ms: i64,
}

impl SentSeries {
    /// Returns an empty memory: samples up to `newest_ms` may have been sent before.
    pub(super) fn after(newest_ms: i64) -> SentSeries {
        SentSeries { all: HashMap::new(), floor_ms: newest_ms, newest_ms }
    }

    /// Removes the samples that were sent. Returns their number, and the times at which another
    /// value was sent.
    fn remove_sent(&self, id: SeriesId, series: &mut BatchSeries) -> (u64, Vec<i64>) {
        let Some(sent) = self.all.get(&id) else { return (0, Vec::new()) };
        let (before, mut different) = (series.sample_count(), Vec::new());
        series.samples.retain(|one| {
            let found = sent.find(one.at);
            if let Some(Some(bits)) = found
                && bits != one.value.to_bits()
                && !is_near(one.value, f64::from_bits(bits))
            {
                different.push(one.at.as_ms());
            }
            found.is_none()
        });
        series.histograms.retain(|(at, _)| sent.find(*at).is_none());
        ((before - series.sample_count()) as u64, different)
    }

    /// Returns whether no sample of the series from `start` on was sent.
    fn is_newer(&self, id: SeriesId, start: Timestamp) -> bool {
        start.as_ms() > self.all.get(&id).map_or(self.floor_ms, SentTimes::newest)
    }

    fn add(&mut self, id: SeriesId, series: &BatchSeries) {
        if series.sample_count() == 0 {
            return;
        }
        if self.all.len() >= SENT_SERIES_MAX && !self.all.contains_key(&id) {
            self.all.clear();
            self.floor_ms = self.newest_ms;
        }
        let sent = self.all.entry(id).or_insert(SentTimes::NONE);
        series.samples.iter().for_each(|one| sent.add(one.at, Some(one.value.to_bits())));
        series.histograms.iter().for_each(|(at, _)| sent.add(*at, None));
        self.newest_ms = self.newest_ms.max(sent.newest());
    }
}

/// Samples that the target may have, by series.
#[derive(Debug, Default)]
pub(super) struct UnsureSeries {
    batch: MoveBatch,
    places: HashMap<SeriesId, usize>,
    samples: usize,
}

impl UnsureSeries {
    fn is_empty(&self) -> bool {
        self.batch.series.is_empty()
    }

    fn push(&mut self, id: SeriesId, series: BatchSeries) {
        self.samples += series.sample_count();
        match self.places.get(&id).and_then(|place| self.batch.series.get_mut(*place)) {
            Some(before) => before.merge(series),
            None => {
                self.places.insert(id, self.batch.series.len());
                self.batch.series.push(series);
            }
        }
    }
}

impl<E: MoveEnvironment> Mover<'_, E> {
    /// Sends the log from the switch on. A failure is retried, because the organisation's samples
    /// are accepted in any case.
    ///
    /// # Errors
    /// [`MoveStop`], always.
    pub fn forward(&mut self) -> Result<Infallible, MoveStop> {
        let (mut delay, mut looks) = (RetryDelay::default(), 0);
        loop {
            match self.forward_once(&mut looks) {
                Ok(()) if delay != RetryDelay::default() => {
                    delay = RetryDelay::default();
                    self.env.report(&self.row, &self.notes, None);
                }
                Ok(()) => {}
                Err(MoveStop::Failed(reason)) => {
                    self.wait_to_retry(&mut delay, Duration::ZERO, &reason)?;
                }
                Err(stop) => return Err(stop),
            }
            self.env.pause(FORWARD_PAUSE)?;
        }
    }

    fn forward_once(&mut self, looks: &mut u32) -> Result<(), MoveStop> {
        *looks = if self.drain()? { 0 } else { looks.saturating_add(1) };
        let is_due = match self.unsaved {
            Unsaved::Nothing => false,
            Unsaved::Position => *looks >= LOOKS_TO_SAVE_POSITION,
            Unsaved::Request => *looks >= LOOKS_TO_SAVE_REQUEST,
        };
        if is_due {
            *looks = 0;
            self.set(self.row.step)?;
        } else if self.unsaved > Unsaved::Nothing {
            self.env.report(&self.row, &self.notes, None);
        }
        Ok(())
    }

    /// Sends the log up to its end. Returns whether the batch had samples. The position afterwards
    /// is not stored: the next request stores it, and so does the caller.
    pub(super) fn drain(&mut self) -> Result<bool, MoveStop> {
        // Samples that an error left here are between the two positions of the row.
        self.unsure = UnsureSeries::default();
        let Some((mut next, sending)) = self.row.step.log_position() else { return Ok(false) };
        if let Some(end) = sending {
            while next < end {
                let read = self.env.tail(next, Some(end))?;
                let is_over = read.next < next;
                self.count_lost(read.lost_records, read.deletions)?;
                let mut batch = read.batch;
                self.take_stored_values(&mut batch)?;
                self.send_unknown(batch)?;
                next = read.next;
                if is_over {
                    break;
                }
                if next < end {
                    self.set(self.row.step.at_record(next, Some(end)))?;
                }
            }
            self.set(self.row.step.at_record(next, None))?;
        }
        let (mut from, mut has_samples) = (next, false);
        loop {
            let read = self.env.tail(next, None)?;
            if read.next < next {
                // A standby was promoted that had not received the end of the log.
                from = read.next;
            }
            if read.next <= next {
                next = read.next;
                break;
            }
            self.count_lost(read.lost_records, read.deletions)?;
            let mut batch = read.batch;
            self.take_stored_values(&mut batch)?;
            if !batch.is_empty() {
                has_samples = true;
                let step = self.arrived(&batch).at_record(from, Some(read.next));
                self.set(step)?;
                self.send_of_tail(batch)?;
                self.unsaved = Unsaved::Request;
            }
            next = read.next;
            self.unsaved = self.unsaved.max(Unsaved::Position);
            if self.unsure.samples >= UNSURE_SAMPLES_MAX {
                self.send_unsure()?;
            }
            if self.unsure.is_empty() {
                from = next;
                self.row.step = self.row.step.at_record(from, None);
            }
            if read.left == 0 {
                break;
            }
        }
        self.send_unsure()?;
        if self.row.step.log_position() != Some((next, None)) {
            self.unsaved = self.unsaved.max(Unsaved::Position);
            self.row.step = self.row.step.at_record(next, None);
        }
        Ok(has_samples)
    }

    /// Counts records that are not sent. Before the switch nothing may be lost.
    fn count_lost(&mut self, lost_records: u64, deletions: u64) -> Result<(), MoveStop> {
        self.row.counts.deletions += deletions;
        if lost_records == 0 {
            return Ok(());
        }
        if !self.row.step.is_moved() {
            return Err(MoveStop::Failed(format!(
                "the log reached its limit, and {lost_records} records were removed before they were sent: end \
                 this move with `--stop`, and start it again"
            )));
        }
        self.row.counts.lost_records += lost_records;
        self.note(|| format!("the log reached its limit: {lost_records} records are here and not there"));
        self.unsaved = Unsaved::Request;
        Ok(())
    }

    /// Replaces the samples of the log by those of the store, which may have refused a sample of
    /// the log or replaced it by a later one. After the switch, samples that were removed here stay
    /// as they are in the log, because `--drop-local` also removes samples that were not sent yet.
    fn take_stored_values(&mut self, batch: &mut MoveBatch) -> Result<(), MoveStop> {
        let (snapshot, keeps_missing) = (self.env.snapshot(), self.row.step.is_moved());
        // Series are read in the order of their numbers.
        batch.series.sort_by_key(|series| series.id);
        for series in &mut batch.series {
            let Some(id) = series.id.filter(|_| series.sample_count() > 0) else { continue };
            let mut stored = BatchSeries::default();
            for range in series.windows(COMPARED_WINDOW_MS).into_values() {
                let part = read_series(&snapshot, id, &Labels::default(), range);
                stored.samples.extend(part.samples);
                stored.histograms.extend(part.histograms);
            }
            series.take_values_of(&stored, keeps_missing);
        }
        batch.series.retain(|series| !series.is_empty());
        match snapshot.warnings().into_iter().next() {
            Some(warning) if !keeps_missing => Err(HistoryError::Damaged(warning).into()),
            _ => Ok(()),
        }
    }

    /// Records the times of samples before they are sent. Returns the step with them.
    fn arrived(&mut self, batch: &MoveBatch) -> MoveStep {
        let mut step = self.row.step;
        if let Some(range) = batch.range() {
            self.row.sent_ms = self.row.sent_ms.max(range.end.as_ms());
            let least = range.start.as_ms();
            if let MoveStep::Tail { compared_ms, late_ms, .. } = &mut step
                && least < *compared_ms
            {
                *late_ms = least.min(*late_ms);
            }
        }
        step
    }

    /// Sends the samples that are surely new, and keeps the others for [`Mover::send_unsure`]. All
    /// samples of a series are sent in the order of the log.
    fn send_of_tail(&mut self, batch: MoveBatch) -> Result<(), MoveStop> {
        let mut sure = MoveBatch::default();
        for mut series in batch.series {
            let Some(id) = series.id else { continue };
            let (known, different) = self.sent.remove_sent(id, &mut series);
            self.row.counts.known += known;
            different.into_iter().for_each(|at_ms| self.differs(&series.labels, at_ms));
            if series.is_empty() {
                continue;
            }
            // On the way back the log also has the samples that came from the target.
            let is_back = matches!(self.row.step, MoveStep::Fetch { .. });
            let is_new = !is_back
                && !self.unsure.places.contains_key(&id)
                && self.sent.is_newer(id, series.range().start);
            let is_sure = is_new || series.sample_count() == 0;
            self.sent.add(id, &series);
            if is_sure {
                sure.series.push(series);
            } else {
                self.unsure.push(id, series);
            }
        }
        self.send(sure)
    }

    /// Sends the samples that wait, without those that the target has.
    fn send_unsure(&mut self) -> Result<(), MoveStop> {
        match std::mem::take(&mut self.unsure).batch {
            batch if batch.series.is_empty() => Ok(()),
            batch => self.send_unknown(batch),
        }
    }
}
