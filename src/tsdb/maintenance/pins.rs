//! Pins of the log's consumers: kept in control, and stored in batches while they move.

use std::sync::atomic::Ordering;

use crate::kv::with_sources;
use crate::sync::IgnorePoison as _;
use crate::tsdb::Tsdb;
use crate::tsdb::error::{ManifestError, PinError};
use crate::tsdb::store::pins::{ConsumerId, LogPosition, PINS_MAX, PinReport, PinRow};
use crate::tsdb::wal::log::Log;
use crate::tsdb::wal::sink::Sink;

impl Tsdb {
    /// Keeps the log from record `from` on for a consumer, durably. Records from there on that were
    /// removed already count as lost. An existing pin is not changed. Returns the position from
    /// which the consumer continues.
    ///
    /// # Errors
    /// [`PinError`]. No pin is stored then.
    pub fn pin(&self, consumer: ConsumerId, from: LogPosition) -> Result<LogPosition, PinError> {
        let log = self.pinned_log()?;
        let manifest = self.manifest.as_ref().ok_or(ManifestError::Closed)?;
        // Files are not removed between the look at the log's begin and the new pin.
        let _removal = self.removal.lock().ignore_poison();
        if let Some(next) = self.pins.next(consumer) {
            return Ok(LogPosition(next));
        }
        if self.pins.len() >= PINS_MAX {
            return Err(PinError::TooMany(PINS_MAX));
        }
        let first = log.first_seq();
        // The log may have lost its last records in a power failure.
        let next = from.0.clamp(first, self.log_end().0.max(first));
        let lost = first.saturating_sub(from.0);
        let row = PinRow { next, lost, lost_to: if lost > 0 { first - 1 } else { 0 } };
        if lost > 0 {
            tracing::warn!(?consumer, lost, "log records that a consumer needs were removed before");
        }
        manifest.add_pin(consumer, row)?;
        self.pins.insert(consumer, row);
        Ok(LogPosition(row.next))
    }

    /// Records that a consumer needs no record before `to` any more. The new position is stored
    /// within ten seconds; until then a start returns to the old one.
    pub fn advance_pin(&self, consumer: ConsumerId, to: LogPosition) {
        self.pins.advance(consumer, to.0);
    }

    /// Removes a pin, durably. A consumer without a pin is not an error.
    ///
    /// # Errors
    /// [`PinError::Manifest`]: the pin remains.
    pub fn unpin(&self, consumer: ConsumerId) -> Result<(), PinError> {
        if self.pins.next(consumer).is_some() {
            self.manifest.as_ref().ok_or(ManifestError::Closed)?.remove_pin(consumer)?;
            self.pins.remove(consumer);
        }
        Ok(())
    }

    /// Returns all pins in order of consumer.
    pub fn pins(&self) -> Vec<PinReport> {
        let bytes_from = |next| match &self.log {
            Sink::Log(log) => log.bytes_from(next),
            Sink::Memory(_) | Sink::ReadOnly { .. } => 0,
        };
        let report = |(consumer, next, lost)| PinReport {
            consumer,
            next: LogPosition(next),
            lost,
            lag_bytes: bytes_from(next),
        };
        self.pins.list().into_iter().map(report).collect()
    }

    /// Returns the position of the first record that the log has.
    pub fn log_begin(&self) -> LogPosition {
        match &self.log {
            Sink::Log(log) => LogPosition(log.first_seq()),
            Sink::Memory(_) | Sink::ReadOnly { .. } => self.log_end(),
        }
    }

    /// Returns the position after the last record of the log: a consumer that starts there reads
    /// only later records.
    pub fn log_end(&self) -> LogPosition {
        let last = match &self.log {
            Sink::Log(log) => log.counters().last_seq.load(Ordering::Relaxed),
            Sink::Memory(_) | Sink::ReadOnly { .. } => 0,
        };
        LogPosition(last.saturating_add(1))
    }

    /// Returns the bytes of the log from a record on. Within a file, records count as equally long.
    pub fn log_bytes_from(&self, from: LogPosition) -> u64 {
        match &self.log {
            Sink::Log(log) => log.bytes_from(from.0),
            Sink::Memory(_) | Sink::ReadOnly { .. } => 0,
        }
    }

    /// Stores the positions of the pins that moved. A failure is logged, and the next call makes up
    /// for it.
    pub fn save_pins(&self) {
        let rows = self.pins.unsaved();
        let (false, Some(manifest)) = (rows.is_empty(), &self.manifest) else { return };
        match manifest.update_pins(&rows) {
            Ok(()) => self.pins.saved(&rows),
            Err(ManifestError::Closed) => {}
            Err(e) => {
                tracing::warn!("cannot store the positions of the log's consumers: {}", with_sources(&e))
            }
        }
    }

    fn pinned_log(&self) -> Result<&Log, PinError> {
        match &self.log {
            Sink::Log(log) => Ok(log),
            Sink::Memory(_) => Err(PinError::NoLog("it is in memory only".to_owned())),
            Sink::ReadOnly { why, .. } => Err(PinError::NoLog(why.clone())),
        }
    }
}
