//! `promlet org move`: starts, shows and stops a move.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::environment::ServerMove;
use super::target::MoveTarget;
use super::{MoveJob, MoveState, Moves, position};
use crate::config::MoveCommand;
use crate::entropy::Entropy;
use crate::identity::{MoveCounts, MoveDirection, MoveRow, MoveStateError, MoveStep, Org};
use crate::kv::with_sources;
use crate::model::{Access, Pace, TimeRange, Timestamp};
use crate::moves::FIRST_MS;
use crate::sync::IgnorePoison as _;
use crate::tsdb::MetricFilter;

/// The samples that a move sends in a second, for the estimate of its time.
const SAMPLES_PER_S: u64 = 150_000;
/// The bytes of a sample in a compressed request, for the estimate.
const BYTES_PER_SAMPLE: u64 = 5;
/// How far ahead of the clock a stored sample may be in milliseconds, and a minute.
const AHEAD_MAX_MS: i64 = 660_000;

impl Moves {
    /// Runs a command.
    ///
    /// # Errors
    /// The reason as text.
    pub(in crate::server) fn perform(&self, org: &Org, command: &MoveCommand) -> Result<Value, String> {
        if command.status {
            return self.status(org);
        }
        let _one = self.commands.lock().ignore_poison();
        if command.dry_run {
            return self.dry_run(org, command);
        }
        if command.stop {
            return self.cancel(org);
        }
        if command.drop_local {
            return if command.yes { self.drop_local(org) } else { self.before_drop(org) };
        }
        let stored = self.stored(org)?.filter(|row| row.step != MoveStep::Returned);
        match (stored, command.back) {
            // The same command continues an interrupted move, for every cause of the interruption.
            (Some(row), back) if !row.step.is_complete() => {
                if (row.direction == MoveDirection::Back) != back {
                    return Err("a move in the other direction is not complete: `--stop` ends it".to_owned());
                }
                let is_renewed = !back && self.renew(org, &row, command)?;
                let accepts = command.accept_differences && !row.accept_differences;
                let is_running = self.jobs().get(&org.id).is_some_and(MoveJob::is_running);
                if is_renewed || accepts || !is_running {
                    self.stop_one(org.id);
                    let row = self.stored(org)?.ok_or("the move no longer exists")?;
                    let accept_differences = row.accept_differences || accepts;
                    let row = MoveRow { accept_differences, ..row };
                    self.identity.save_move(org.id, &row).map_err(|error| with_sources(&error))?;
                    self.run(org.id, row)?;
                }
            }
            (Some(_), true) => self.turn_back(org, command)?,
            (None, true) => return Err(format!("{} was not moved", org.slug)),
            (Some(row), false) => {
                if !self.renew(org, &row, command)? {
                    return Err(format!("{} is moved already: `--back` moves it back", org.slug));
                }
                self.run(org.id, self.stored(org)?.ok_or("the move no longer exists")?)?;
            }
            (None, false) => {
                let target = self.found_target(org, command)?;
                let description = target.json();
                let (now, rng) = (self.clock.now(), &mut Entropy::system());
                let described = (&target.write()?, &*description);
                let accept = command.accept_differences;
                let row = self.identity.begin_move(org.id, described, accept, now, rng);
                self.run(org.id, row.map_err(|error| with_sources(&error))?)?;
            }
        }
        self.status(org)
    }

    fn dry_run(&self, org: &Org, command: &MoveCommand) -> Result<Value, String> {
        let target = self.found_target(org, command)?;
        match self.identity.check_move(org.id, &target.write()?) {
            Ok(()) | Err(MoveStateError::Exists) => self.plan(org, &target),
            Err(error) => Err(with_sources(&error)),
        }
    }

    /// Returns the target of a new move, after a probe.
    fn found_target(&self, org: &Org, command: &MoveCommand) -> Result<MoveTarget, String> {
        let mut target = MoveTarget::of(command)?;
        self.check_tenant(org, &target)?;
        let is_victoria = self.probe(org, &target)?;
        target.found(command, is_victoria);
        Ok(target)
    }

    /// Refuses a target without a tenant that has the samples of another organisation: `--back`
    /// would store them here.
    fn check_tenant(&self, org: &Org, target: &MoveTarget) -> Result<(), String> {
        let mut others = Vec::new();
        for (other, row) in self.identity.moves().map_err(|error| with_sources(&error))? {
            if row.step != MoveStep::Returned {
                let target = self.identity.move_target(other, &row).map_err(|error| with_sources(&error))?;
                others.push((other, MoveTarget::read(&target)?.query()?));
            }
        }
        let engines = self.identity.engines().into_iter();
        others.extend(engines.filter_map(|(other, engine)| Some((other, engine.target.clone()?))));
        for (_, other) in others.iter().filter(|(other, _)| *other != org.id) {
            if target.is_shared_with(other)? {
                return Err(
                    "another organisation has its samples at this target, and `--back` would mix both: give \
                     each a tenant (--tenant)"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }

    /// Takes new credentials for the target of a move, after a probe. Returns whether they are new.
    fn renew(&self, org: &Org, row: &MoveRow, command: &MoveCommand) -> Result<bool, String> {
        let stored = self.identity.move_target(org.id, row).map_err(|error| with_sources(&error))?;
        let stored = MoveTarget::read(&stored)?;
        let mut target = MoveTarget::of(command)?;
        target.keep_settle(command, &stored);
        if !target.is_same_place(&stored) {
            let url = &stored.write_url;
            return Err(match row.step.is_complete() {
                true => format!("{} is moved already, to {url}: `--back` moves it back", org.slug),
                false => format!("a move to {url} is not complete: `--stop` ends it"),
            });
        }
        if target.json() == stored.json() {
            return Ok(false);
        }
        self.probe(org, &target)?;
        // The thread stores the row that it has in memory.
        self.stop_one(org.id);
        let is_moved = self.stored(org)?.is_some_and(|row| row.step.is_moved());
        let engine = is_moved.then(|| target.query()).transpose()?;
        let (now, rng) = (self.clock.now(), &mut Entropy::system());
        let renewed = self.identity.renew_move_target(org.id, &target.json(), engine.as_ref(), now, rng);
        renewed.map(|()| true).map_err(|error| with_sources(&error))
    }

    fn stored(&self, org: &Org) -> Result<Option<MoveRow>, String> {
        self.identity.move_of(org.id).map_err(|error| with_sources(&error))
    }

    /// Starts to move an organisation back. The organisation's log is sent to the other engine
    /// until the switch.
    fn turn_back(&self, org: &Org, command: &MoveCommand) -> Result<(), String> {
        self.stop_one(org.id);
        let row = self.stored(org)?.ok_or("the move no longer exists")?;
        let (next, sending) = row.step.log_position().ok_or("the log is not sent")?;
        // Every later sample is stored here.
        let until_ms = self.clock.now().plus_ms(AHEAD_MAX_MS).as_ms();
        let step = MoveStep::Fetch { next_ms: FIRST_MS, until_ms, next, sending };
        let counts = MoveCounts { lost_records: row.counts.lost_records, ..MoveCounts::default() };
        let (direction, accept_differences) = (MoveDirection::Back, command.accept_differences);
        let row = MoveRow { direction, step, counts, accept_differences, ..row };
        self.identity.save_move(org.id, &row).map_err(|error| with_sources(&error))?;
        self.run(org.id, row)
    }

    /// Detects a wrong URL, credential or tenant before the move is stored. Returns whether the
    /// target is VictoriaMetrics.
    fn probe(&self, org: &Org, target: &MoveTarget) -> Result<bool, String> {
        let row = MoveRow::new(Vec::new(), String::new(), self.clock.now());
        let state = Arc::new(Mutex::new(MoveState::idle(row)));
        let environment = ServerMove::new(self, org.id, target, state, Arc::clone(&self.closing))?;
        environment.probe(target, self.egress.clone())
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
            "lost_records": counts.lost_records,
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
            self.run(org.id, row)?;
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

    /// Returns the data that `--back` could not return after `--drop-local`. Without `--yes`, the
    /// command only shows this.
    fn before_drop(&self, org: &Org) -> Result<Value, String> {
        let row = self.switched(org)?;
        let stats = self.tsdb.stats().orgs.into_iter().find(|one| one.org == org.id);
        let mut lost =
            vec!["staleness markers".to_owned(), "samples that the target no longer has".to_owned()];
        if let Some(exemplars) = stats.as_ref().map(|one| one.exemplars).filter(|count| *count > 0) {
            lost.push(format!("{exemplars} exemplars"));
        }
        if self.tsdb.snapshot(&Access::whole(org.id)).has_histograms() {
            lost.push("native histograms".to_owned());
        }
        let MoveCounts { refused, lost_records, .. } = row.counts;
        if refused > 0 {
            lost.push(format!("{refused} samples that the target refused"));
        }
        if lost_records > 0 {
            lost.push(format!("{lost_records} records of the log that were not sent"));
        }
        let samples = stats.as_ref().map_or(0, |one| one.samples + one.sealed_samples);
        Ok(json!({ "slug": org.slug.as_str(), "dropped": false, "samples": samples, "not_returned": lost }))
    }

    /// Returns the row of a switched move.
    fn switched(&self, org: &Org) -> Result<MoveRow, String> {
        let row = self.stored(org)?.filter(|row| matches!(row.step, MoveStep::Switched { .. }));
        row.ok_or_else(|| format!("{} is not moved to another engine", org.slug))
    }

    fn drop_local(&self, org: &Org) -> Result<Value, String> {
        self.switched(org)?;
        let series = self.delete_samples(org.id)?;
        self.stop_one(org.id);
        let row = MoveRow { dropped: true, ..self.switched(org)? };
        self.identity.save_move(org.id, &row).map_err(|error| with_sources(&error))?;
        self.run(org.id, row)?;
        Ok(
            json!({ "slug": org.slug.as_str(), "step": "switched", "dropped": true, "removed_series": series }),
        )
    }
}
