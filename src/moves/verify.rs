//! The comparison of both sides before the switch.

use super::batch::MoveBatch;
use super::compare::{Comparison, compare};
use super::history::{HistoryError, next_window, read_series, window_of};
use super::readback::of_metric;
use super::run::{COMPARED_WINDOW_MS, MoveEnvironment, MoveStop, Mover, READBACK_SAMPLES_MAX, halves_of};
use crate::identity::{MoveRow, MoveStep};
use crate::model::{METRIC_NAME, Matcher, TimeRange, Timestamp};
use crate::tsdb::Snapshot;

/// Comparisons of the same series and window before they count as different.
const COMPARISONS_MAX: usize = 4;
/// The time in milliseconds that is compared for the last time before the switch, if senders are
/// not faster than the comparison.
const LAST_PART_MS: i64 = 30_000;
/// The most rounds of the comparison. Each pass compares the samples that arrived during the
/// previous pass.
const ROUNDS_MAX: usize = 10;

impl<E: MoveEnvironment> Mover<'_, E> {
    /// Sends the log and compares both sides until the rest is small, and switches.
    pub(super) fn tail_and_compare(&mut self) -> Result<(), MoveStop> {
        self.drain()?;
        let mut before = i64::MAX;
        for _ in 0..ROUNDS_MAX {
            let until = self.env.after_newest_ms().unwrap_or(i64::MIN);
            let MoveStep::Tail { compared_ms, late_ms, .. } = &mut self.row.step else { return Ok(()) };
            *compared_ms = (*compared_ms).min(std::mem::replace(late_ms, i64::MAX));
            let part = until.saturating_sub(*compared_ms);
            self.compare_until(until)?;
            self.drain()?;
            // A further round is of no use if it does not become shorter.
            if part <= LAST_PART_MS || part > before / 2 {
                break;
            }
            before = part;
        }
        let counts = self.row.counts;
        if (counts.different > 0 || counts.refused > 0) && !self.row.accept_differences {
            let notes = self.notes.join("; ");
            self.compare_again()?;
            return Err(MoveStop::Failed(format!(
                "{} samples were refused and {} series and windows differ, so the organisation was not switched \
                 (repeat the command to compare again, with --accept-differences to switch): {notes}",
                counts.refused, counts.different
            )));
        }
        // Queries see all samples that have been accepted so far.
        self.settle()?;
        self.drain()?;
        let MoveStep::Tail { next, .. } = self.row.step else { return Ok(()) };
        let switched = MoveRow { step: MoveStep::Switched { next, sending: None }, ..self.row.clone() };
        self.env.switch(&switched)?;
        self.row = switched;
        self.env.report(&self.row, &self.notes, None);
        Ok(())
    }

    /// Resets the comparison, so that the next run repeats it.
    fn compare_again(&mut self) -> Result<(), MoveStop> {
        let MoveStep::Tail { cut_ms, next, sending, .. } = self.row.step else { return Ok(()) };
        (self.row.counts.different, self.row.counts.refused, self.row.counts.compared) = (0, 0, 0);
        let first = next_window(&self.env.snapshot(), i64::MIN, cut_ms)?.unwrap_or(cut_ms);
        self.set(MoveStep::Tail { cut_ms, next, sending, compared_ms: first, late_ms: i64::MAX })
    }

    fn set_compared(&mut self, to_ms: i64) -> Result<(), MoveStop> {
        if let MoveStep::Tail { compared_ms, .. } = &mut self.row.step {
            *compared_ms = to_ms;
        }
        self.set(self.row.step)
    }

    fn compare_until(&mut self, until_ms: i64) -> Result<(), MoveStop> {
        loop {
            let MoveStep::Tail { compared_ms, .. } = self.row.step else { return Ok(()) };
            let snapshot = self.env.snapshot();
            let found =
                if compared_ms < until_ms { next_window(&snapshot, compared_ms, until_ms)? } else { None };
            let Some(start) = found.map(|start| start.max(compared_ms)) else {
                return self.set_compared(compared_ms.max(until_ms));
            };
            let end = window_of(start).saturating_add(COMPARED_WINDOW_MS).min(until_ms);
            let range = TimeRange::new(Timestamp::from_ms(start), Timestamp::from_ms(end.saturating_sub(1)));
            for name in metric_names(&snapshot, range) {
                self.compare_metric(&name, range)?;
            }
            self.set_compared(end)?;
            self.drain()?;
        }
    }

    /// Compares the series of one metric in a range. Missing samples are sent once more, in case
    /// the target acknowledged and forgot them.
    fn compare_metric(&mut self, name: &str, range: TimeRange) -> Result<(), MoveStop> {
        let read = |mover: &Self| read_metric(&mover.env.snapshot(), name, range, READBACK_SAMPLES_MAX);
        let Some(mut here) = read(self)? else { return self.compare_parts(name, range) };
        for attempt in 1.. {
            let Some(there) = self.read(&of_metric(name), range)? else {
                return self.compare_parts(name, range);
            };
            let Comparison { series, rounded, different } = compare(&here, &there);
            if different.is_empty() || attempt == COMPARISONS_MAX {
                if rounded > 0 && self.row.counts.rounded == 0 {
                    self.note(|| format!("{name}: the target rounds values in their last digits"));
                }
                self.row.counts.compared += series;
                self.row.counts.rounded += rounded;
                self.row.counts.different += different.len() as u64;
                for (labels, own, other) in different {
                    self.note(|| format!("{labels}: {} samples here, {} there", own.count, other.count));
                }
                return Ok(());
            }
            // The target may show accepted samples with a delay, and further samples may have
            // arrived meanwhile.
            self.env.pause(self.options.settle)?;
            self.drain()?;
            let Some(now) = read(self)? else { return self.compare_parts(name, range) };
            // Samples that were read before the log was sent are not sent again from the log.
            let mut missing = std::mem::replace(&mut here, now);
            if attempt + 1 == COMPARISONS_MAX {
                self.remove_known(&mut missing)?;
                self.send(missing)?;
                self.env.pause(self.options.settle)?;
            }
        }
        Ok(())
    }

    fn compare_parts(&mut self, name: &str, range: TimeRange) -> Result<(), MoveStop> {
        let parts = halves_of(range).ok_or_else(|| self.too_large(name))?;
        parts.into_iter().try_for_each(|part| self.compare_metric(name, part))
    }
}

/// Returns the names of the metrics with samples in a range, sorted.
fn metric_names(snapshot: &Snapshot, range: TimeRange) -> Vec<String> {
    let all = snapshot.select(&[], range);
    let mut names: Vec<String> = all.iter().map(|one| one.labels.metric_name().to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Reads the series of a metric. `None` if a range of more than a millisecond has over `most`
/// samples; reading then stops after the series that exceeds `most`.
pub(super) fn read_metric(
    snapshot: &Snapshot,
    name: &str,
    range: TimeRange,
    most: usize,
) -> Result<Option<MoveBatch>, MoveStop> {
    let (mut batch, mut samples) = (MoveBatch::default(), 0);
    for one in snapshot.select(&[Matcher::equal(METRIC_NAME, name)], range) {
        let series = read_series(snapshot, one.id, &one.labels, range);
        samples += series.sample_count();
        if samples > most && range.start < range.end {
            return Ok(None);
        }
        if series.sample_count() > 0 {
            batch.series.push(series);
        }
    }
    match snapshot.warnings().into_iter().next() {
        Some(warning) => Err(HistoryError::Damaged(warning).into()),
        None => Ok(Some(batch)),
    }
}
