//! `promlet org move`: starts, shows and stops a move.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::environment::ServerMove;
use super::target::MoveTarget;
use super::{MoveState, Moves, StopFlag, position};
use crate::config::MoveCommand;
use crate::entropy::Entropy;
use crate::identity::{MoveDirection, MoveRow, MoveStep, Org};
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
        if let Some(row) = self.stored(org)?.filter(|row| row.step.is_running()) {
            let asked = if command.back { MoveDirection::Back } else { MoveDirection::Away };
            if row.direction != asked {
                return Err("a move in the other direction is not complete: `--stop` ends it".to_owned());
            }
            // The same command continues a move, whatever ended it.
            self.run(org.id, row, command.accept_differences)?;
            return self.status(org);
        }
        let (direction, target) = match command.back {
            true => (MoveDirection::Back, self.last_target(org)?),
            false => (MoveDirection::Away, MoveTarget::of(command)?),
        };
        self.probe(org, &target, direction)?;
        if command.dry_run {
            return self.plan(org, &target);
        }
        let (now, rng) = (self.clock.now(), &mut Entropy::system());
        let row = self.identity.begin_move(org.id, direction, &target.json(), now, rng);
        let row = row.map_err(|error| with_sources(&error))?;
        self.run(org.id, row, command.accept_differences)?;
        self.status(org)
    }

    fn stored(&self, org: &Org) -> Result<Option<MoveRow>, String> {
        self.identity.move_of(org.id).map_err(|error| with_sources(&error))
    }

    fn last_target(&self, org: &Org) -> Result<MoveTarget, String> {
        let row =
            self.stored(org)?.filter(|row| row.step == MoveStep::Switched || row.step == MoveStep::Dropped);
        let row = row.ok_or_else(|| format!("{} was not moved", org.slug))?;
        let target = self.identity.move_target(org.id, &row).map_err(|error| with_sources(&error))?;
        MoveTarget::read(&target)
    }

    /// Tells a wrong URL, credential or tenant before anything is stored.
    fn probe(&self, org: &Org, target: &MoveTarget, direction: MoveDirection) -> Result<(), String> {
        let row = MoveRow::new(direction, Vec::new(), self.clock.now());
        let state = MoveState { row, notes: Vec::new(), waits_for: None, error: None, is_running: false };
        let mut environment = ServerMove::new(
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
            "complete": !row.step.is_running(),
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
        if !row.step.is_running() {
            return Err("the move is complete: `--back` moves the organisation back".to_owned());
        }
        self.stop_one(org.id);
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
        let row = self.stored(org)?.filter(|row| row.direction == MoveDirection::Away);
        let row = row.filter(|row| row.step == MoveStep::Switched);
        let row = row.ok_or_else(|| format!("{} was not moved to another engine", org.slug))?;
        let everything = self.delete_samples(org.id)?;
        let dropped = MoveRow { step: MoveStep::Dropped, ..row };
        self.identity.save_move(org.id, &dropped).map_err(|error| with_sources(&error))?;
        Ok(
            json!({ "slug": org.slug.as_str(), "step": "dropped", "running": false, "complete": true, "removed_series": everything }),
        )
    }
}
