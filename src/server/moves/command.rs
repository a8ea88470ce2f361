//! `promlet org move`: starts, shows and stops a move.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::environment::ServerMove;
use super::target::MoveTarget;
use super::{MoveState, Moves, StopFlag, position};
use crate::config::MoveCommand;
use crate::entropy::Entropy;
use crate::identity::{MoveCounts, MoveDirection, MoveRow, MoveStep, Org};
use crate::kv::with_sources;
use crate::model::{Access, Pace, TimeRange, Timestamp};
use crate::tsdb::MetricFilter;

/// The samples that a move sends in a second, for the estimate of its time.
const SAMPLES_PER_S: u64 = 150_000;
/// The bytes of a sample in a compressed request, for the estimate.
const BYTES_PER_SAMPLE: u64 = 5;

impl Moves {
    /// Runs a command.
    ///
    /// # Errors
    /// The reason as text.
    pub(in crate::server) fn perform(&self, org: &Org, command: &MoveCommand) -> Result<Value, String> {
        if command.status {
            return self.status(org);
        }
        if command.stop {
            return self.cancel(org);
        }
        if command.drop_local {
            return self.drop_local(org);
        }
        let stored = self.stored(org)?;
        match (&stored, command.back) {
            // The same command continues a move, whatever ended it.
            (Some(row), back) if !row.step.is_complete() => {
                if (row.direction == MoveDirection::Back) != back {
                    return Err("a move in the other direction is not complete: `--stop` ends it".to_owned());
                }
                self.stop_one(org.id);
                self.run(org.id, self.stored(org)?.ok_or("the move is gone")?, command.accept_differences)?;
            }
            (Some(row), true) if row.step.is_moved() => self.turn_back(org)?,
            (_, true) => return Err(format!("{} was not moved", org.slug)),
            (Some(row), false) if row.step.is_moved() => {
                return Err(format!("{} is moved already: `--back` moves it back", org.slug));
            }
            (_, false) => {
                let mut target = MoveTarget::of(command)?;
                let is_victoria = self.probe(org, &target)?;
                target.found(command, is_victoria);
                if command.dry_run {
                    return self.plan(org, &target);
                }
                let (now, rng) = (self.clock.now(), &mut Entropy::system());
                let row = self.identity.begin_move(org.id, &target.json(), now, rng);
                self.run(org.id, row.map_err(|error| with_sources(&error))?, command.accept_differences)?;
            }
        }
        self.status(org)
    }

    fn stored(&self, org: &Org) -> Result<Option<MoveRow>, String> {
        self.identity.move_of(org.id).map_err(|error| with_sources(&error))
    }

    /// Starts to move an organisation back. Its log is sent to the other engine until the switch.
    fn turn_back(&self, org: &Org) -> Result<(), String> {
        self.stop_one(org.id);
        let row = self.stored(org)?.ok_or("the move is gone")?;
        let (next, sending) = row.step.log_position().ok_or("the log is not sent")?;
        // Every later sample is stored here.
        let until_ms = self.clock.now().as_ms();
        let step = MoveStep::Fetch { next_ms: 0, until_ms, next, sending };
        let counts = MoveCounts::default();
        let row = MoveRow { direction: MoveDirection::Back, step, counts, ..row };
        self.identity.save_move(org.id, &row).map_err(|error| with_sources(&error))?;
        self.run(org.id, row, false)
    }

    /// Tells a wrong URL, credential or tenant before anything is stored. Returns whether the
    /// target is VictoriaMetrics.
    fn probe(&self, org: &Org, target: &MoveTarget) -> Result<bool, String> {
        let row = MoveRow::new(Vec::new(), self.clock.now());
        let state = MoveState { row, notes: Vec::new(), waits_for: None, error: None, is_running: false };
        let environment = ServerMove::new(
            self,
            org.id,
            target,
            Arc::new(Mutex::new(state)),
            Arc::new(StopFlag::default()),
        )?;
        environment.probe().map_err(|reason| format!("{} does not answer queries: {reason}", target.read_url))
    }

    fn status(&self, org: &Org) -> Result<Value, String> {
        let state = self.state(org.id)?.ok_or_else(|| format!("{} has no move", org.slug))?;
        let MoveState { row, notes, waits_for, error, is_running } = state;
        let counts = row.counts;
        let time = |ms: i64| Timestamp::from_ms(ms).to_rfc3339();
        let (at, until) =
            position(&row).map_or((None, None), |(at, until)| (Some(time(at)), Some(time(until))));
        Ok(json!({
            "slug": org.slug.as_str(),
            "direction": match row.direction { MoveDirection::Away => "away", MoveDirection::Back => "back" },
            "step": row.step.name(),
            "running": is_running,
            "complete": row.step.is_complete(),
            "dropped": row.dropped,
            "started_at": row.started_at.to_rfc3339(),
            "at": at,
            "until": until,
            "requests": counts.requests,
            "samples": counts.samples,
            "known": counts.known,
            "refused": counts.refused,
            "compared": counts.compared,
            "different": counts.different,
            "rounded": counts.rounded,
            "deletions": counts.deletions,
            "notes": notes,
            "waits_for": waits_for,
            "error": error,
        }))
    }

    fn cancel(&self, org: &Org) -> Result<Value, String> {
        let row = self.stored(org)?.ok_or_else(|| format!("{} has no move", org.slug))?;
        if row.step.is_complete() {
            return Err("the move is complete: `--back` moves the organisation back".to_owned());
        }
        self.stop_one(org.id);
        let row = self.stored(org)?.ok_or_else(|| format!("{} has no move", org.slug))?;
        if let (true, Some((next, sending))) = (row.step.is_moved(), row.step.log_position()) {
            // The organisation stays at the other engine.
            let step = MoveStep::Switched { next, sending };
            let row = MoveRow { direction: MoveDirection::Away, step, ..row };
            self.identity.save_move(org.id, &row).map_err(|error| with_sources(&error))?;
            self.run(org.id, row, false)?;
            return self.status(org);
        }
        self.identity.forget_move(org.id).map_err(|error| with_sources(&error))?;
        self.unpin(org.id)?;
        Ok(json!({ "slug": org.slug.as_str(), "step": "stopped", "running": false, "complete": true }))
    }

    /// Returns the figures of a move without making it.
    fn plan(&self, org: &Org, target: &MoveTarget) -> Result<Value, String> {
        let snapshot = self.tsdb.snapshot(&Access::whole(org.id));
        let pace = Pace::endless();
        let listed = snapshot.paced(&pace).metrics(&MetricFilter::default(), TimeRange::ALL, usize::MAX - 1);
        let metrics = listed.map_err(|_| "the list of metrics was stopped".to_owned())?.items;
        let stats = self.tsdb.stats();
        let stats = stats.orgs.into_iter().find(|one| one.org == org.id);
        let samples = stats.as_ref().map_or(0, |one| one.samples + one.sealed_samples);
        let mut unfit = Vec::new();
        if snapshot.has_histograms() {
            unfit.push("native histograms: the target must accept them, and only their times are compared");
        }
        if stats.as_ref().is_some_and(|one| one.exemplars > 0) {
            unfit.push("exemplars: a target without a store for exemplars drops them");
        }
        let series: u64 = metrics.iter().map(|metric| metric.series).sum();
        let first = crate::moves::first_window_ms(&snapshot).map_err(|error| error.to_string())?;
        if first.is_some() {
            unfit.push("old samples: the target's retention must include them");
        }
        Ok(json!({
            "slug": org.slug.as_str(),
            "dry_run": true,
            "write_url": target.write_url,
            "read_url": target.read_url,
            "metrics": metrics.len(),
            "series": series,
            "samples": samples,
            "from": first.map(|ms| Timestamp::from_ms(ms).to_rfc3339()),
            "bytes": samples.saturating_mul(BYTES_PER_SAMPLE),
            // Everything is sent once and read back once.
            "seconds": 2 * samples / SAMPLES_PER_S + 1,
            "may_not_fit": unfit,
        }))
    }

    fn drop_local(&self, org: &Org) -> Result<Value, String> {
        let row = self.stored(org)?.filter(|row| matches!(row.step, MoveStep::Switched { .. }));
        row.ok_or_else(|| format!("{} is not moved to another engine", org.slug))?;
        let series = self.delete_samples(org.id)?;
        self.stop_one(org.id);
        let row = self.stored(org)?.ok_or("the move is gone")?;
        let row = MoveRow { dropped: true, ..row };
        self.identity.save_move(org.id, &row).map_err(|error| with_sources(&error))?;
        self.run(org.id, row, false)?;
        Ok(
            json!({ "slug": org.slug.as_str(), "step": "switched", "dropped": true, "removed_series": series }),
        )
    }
}
