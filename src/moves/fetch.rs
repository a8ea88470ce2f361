//! The way back: samples that only the target has are stored in this store.

use std::collections::BTreeMap;
use std::time::Duration;

use super::batch::{BatchSeries, MoveBatch};
use super::compare::is_near;
use super::history::FIRST_MS;
use super::readback::{RemoteSeries, of_metric};
use super::run::{
    COMPARED_WINDOW_MS, MoveEnvironment, MoveStop, Mover, READBACK_SAMPLES_MAX, ReadFailure, RetryDelay,
    halves_of,
};
use super::verify::read_metric;
use crate::identity::{MoveRow, MoveStep};
use crate::model::{Labels, Sample, TimeRange, Timestamp};

impl<E: MoveEnvironment> Mover<'_, E> {
    /// Stores the samples of the target here, and switches back.
    pub(super) fn fetch(&mut self, mut next_ms: i64, until_ms: i64) -> Result<(), MoveStop> {
        while let Some(start) = self.next_remote_window(next_ms, until_ms)? {
            let end = start.saturating_add(COMPARED_WINDOW_MS).min(until_ms);
            let range = TimeRange::new(Timestamp::from_ms(start), Timestamp::from_ms(end.saturating_sub(1)));
            for name in self.remote_names(range)? {
                self.fetch_metric(&name, range)?;
            }
            next_ms = end;
            self.set_fetched(next_ms)?;
            self.drain()?;
        }
        self.drain()?;
        let counts = self.row.counts;
        if (counts.refused > 0 || counts.different > 0) && !self.row.accept_differences {
            let notes = self.notes.join("; ");
            (self.row.counts.refused, self.row.counts.different) = (0, 0);
            self.set_fetched(FIRST_MS)?;
            return Err(MoveStop::Failed(format!(
                "{} samples could not be stored here and {} series differ, so the organisation was not switched \
                 (repeat the command to try again, with --accept-differences to switch): {notes}",
                counts.refused, counts.different
            )));
        }
        let switched = MoveRow { step: MoveStep::Returned, ..self.row.clone() };
        self.env.switch(&switched)?;
        self.row = switched;
        self.env.report(&self.row, &self.notes, None);
        Ok(())
    }

    fn set_fetched(&mut self, to_ms: i64) -> Result<(), MoveStop> {
        if let MoveStep::Fetch { next_ms, .. } = &mut self.row.step {
            *next_ms = to_ms;
        }
        self.set(self.row.step)
    }

    /// Returns the start of the first window at or after `from_ms` in which the target may have
    /// samples.
    fn next_remote_window(&mut self, from_ms: i64, until_ms: i64) -> Result<Option<i64>, MoveStop> {
        let (mut start, mut span) = (from_ms, COMPARED_WINDOW_MS);
        while start < until_ms {
            let end = start.saturating_add(span).min(until_ms).saturating_sub(1);
            let range = TimeRange::new(Timestamp::from_ms(start), Timestamp::from_ms(end));
            if self.remote_names(range)?.is_empty() {
                start = start.saturating_add(span);
                span = span.saturating_mul(2);
            } else if span == COMPARED_WINDOW_MS {
                return Ok(Some(start));
            } else {
                span /= 2;
            }
        }
        Ok(None)
    }

    fn remote_names(&mut self, range: TimeRange) -> Result<Vec<String>, MoveStop> {
        let mut delay = RetryDelay::default();
        loop {
            let reason = match self.env.metric_names(range) {
                Ok(names) => return Ok(names),
                Err(ReadFailure::Retry { reason }) => reason,
                Err(ReadFailure::TooLarge { reason } | ReadFailure::Refused { reason }) => {
                    return Err(MoveStop::Failed(format!("the target does not list its metrics: {reason}")));
                }
            };
            self.wait_to_retry(&mut delay, Duration::ZERO, &reason)?;
        }
    }

    /// Stores the samples of a metric that are at the target and not here, and compares both.
    fn fetch_metric(&mut self, name: &str, range: TimeRange) -> Result<(), MoveStop> {
        let Some(there) = self.read(&of_metric(name), range)? else {
            return self.fetch_parts(name, range);
        };
        let Some(here) = self.stored(name, range)? else { return self.fetch_parts(name, range) };
        let mut missing = MoveBatch::default();
        for RemoteSeries { labels, samples, histogram_times } in &there {
            let has = |at: i64| here.get(labels).is_some_and(|times| times.contains_key(&at));
            let lost = histogram_times.iter().filter(|at| !has(**at)).count() as u64;
            if lost > 0 {
                self.row.counts.refused += lost;
                self.note(|| format!("{labels}: {lost} native histograms cannot be read back"));
            }
            let missed = samples.iter().filter(|(at, _)| !has(*at));
            let samples: Vec<Sample> =
                missed.map(|(at, value)| Sample { at: Timestamp::from_ms(*at), value: *value }).collect();
            if !samples.is_empty() {
                missing.series.push(BatchSeries {
                    labels: labels.clone(),
                    samples,
                    ..BatchSeries::default()
                });
            }
        }
        drop(here);
        if !missing.is_empty() {
            let samples = missing.sample_count() as u64;
            let refused = self.env.store(&missing)?;
            self.row.counts.samples += samples.saturating_sub(refused);
            self.row.counts.refused += refused;
            if refused > 0 {
                self.note(|| format!("{name}: {refused} samples are not accepted here"));
            }
        }
        let Some(here) = self.stored(name, range)? else { return self.fetch_parts(name, range) };
        for RemoteSeries { labels, samples, .. } in &there {
            let times = here.get(labels);
            let is_here = |(at, value): &&(i64, f64)| {
                let found = times.and_then(|times| times.get(at));
                found.is_some_and(|found| is_near(*found, *value))
            };
            self.row.counts.compared += 1;
            let different = samples.iter().filter(|one| !is_here(one)).count();
            if different > 0 {
                self.row.counts.different += 1;
                self.note(|| format!("{labels}: {different} samples of the target are not the same here"));
            }
        }
        Ok(())
    }

    fn fetch_parts(&mut self, name: &str, range: TimeRange) -> Result<(), MoveStop> {
        let parts = halves_of(range).ok_or_else(|| self.too_large(name))?;
        parts.into_iter().try_for_each(|part| self.fetch_metric(name, part))
    }

    /// Returns the samples of a metric here, by series and time. Native histograms have no value.
    fn stored(&self, name: &str, range: TimeRange) -> Result<Option<StoredValues>, MoveStop> {
        let found = read_metric(&self.env.snapshot(), name, range, 2 * READBACK_SAMPLES_MAX)?;
        Ok(found.map(|batch| {
            let values = |series: BatchSeries| {
                let floats = series.samples.iter().map(|one| (one.at.as_ms(), one.value));
                let histograms = series.histograms.iter().map(|(at, _)| (at.as_ms(), f64::NAN));
                (series.labels.clone(), floats.chain(histograms).collect())
            };
            batch.series.into_iter().map(values).collect()
        }))
    }
}

/// Values by series and time in milliseconds.
type StoredValues = BTreeMap<Labels, BTreeMap<i64, f64>>;
