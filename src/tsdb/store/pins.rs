//! Pins: the positions in the log up to which consumers have read it. A log file stays while a pin
//! needs it, as far as the limit of the log's bytes allows.
//!
//! Control table 0x29, key (kind of the consumer, its number): the first record that the consumer
//! still needs, and its lost records ([`PinRow`]). A position in memory may be ahead of the stored
//! one. Only the stored one decides about files, so a start never finds a pin before the log's
//! begin without a loss.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use crate::kv::{Record, TableKey};
use crate::sync::IgnorePoison as _;

/// The limit of pins of one store. Sixteen targets of each of 256 organisations have one each.
pub(in crate::tsdb) const PINS_MAX: usize = 4_096;

/// The number of a log record: the next one that a consumer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition(pub u64);

/// The kind of a consumer of the log. Numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ConsumerKind {
    /// A forwarding target of an organisation.
    Forward = 1,
    /// A standby server.
    Standby = 2,
    /// The move of an organisation.
    Move = 3,
    /// The target of an agent.
    Agent = 4,
}

/// A consumer of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId {
    /// The kind.
    pub kind: ConsumerKind,
    /// The number among consumers of its kind.
    pub number: u64,
}

impl TableKey for ConsumerId {
    fn write(&self, out: &mut Vec<u8>) {
        (self.kind as u8, self.number).write(out);
    }

    fn read(from: &mut &[u8]) -> Option<ConsumerId> {
        let (kind, number) = <(u8, u64)>::read(from)?;
        let kind = match kind {
            1 => ConsumerKind::Forward,
            2 => ConsumerKind::Standby,
            3 => ConsumerKind::Move,
            4 => ConsumerKind::Agent,
            _ => return None,
        };
        Some(ConsumerId { kind, number })
    }
}

/// A stored pin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tsdb) struct PinRow {
    /// The number of the first record that the consumer needs.
    pub(in crate::tsdb) next: u64,
    /// The number of records that were removed before the consumer read them.
    pub(in crate::tsdb) lost: u64,
    /// The last of them, inclusive; 0 if none was.
    pub(in crate::tsdb) lost_to: u64,
}

impl Record for PinRow {
    const TABLE: u8 = 0x29;
    const KIND: u8 = 0x29;
    const VERSION: u8 = 1;
    type Key = ConsumerId;
}

/// A pin, as reports show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinReport {
    /// The consumer.
    pub consumer: ConsumerId,
    /// The next record that the consumer reads.
    pub next: LogPosition,
    /// Records that were removed before the consumer read them, since the pin exists.
    pub lost: u64,
    /// The bytes of the log from its position on, estimated within a file.
    pub lag_bytes: u64,
}

/// A pin in memory.
#[derive(Clone, Copy, Debug)]
struct Pin {
    stored: PinRow,
    /// The position in memory, at or after the stored one.
    next: u64,
}

/// All pins of a store.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Pins {
    all: Mutex<BTreeMap<ConsumerId, Pin>>,
    /// The last record of the first log files whose samples are all in segments.
    pub(in crate::tsdb) sealed_seq: std::sync::atomic::AtomicU64,
}

impl Pins {
    pub(in crate::tsdb) fn of(rows: Vec<(ConsumerId, PinRow)>) -> Pins {
        let pin = |row: PinRow| Pin { stored: row, next: row.next };
        let all = rows.into_iter().map(|(consumer, row)| (consumer, pin(row))).collect();
        Pins { all: Mutex::new(all), ..Pins::default() }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<ConsumerId, Pin>> {
        self.all.lock().ignore_poison()
    }

    pub(in crate::tsdb) fn len(&self) -> usize {
        self.all().len()
    }

    /// Returns the position of a consumer, if it has a pin.
    pub(in crate::tsdb) fn next(&self, consumer: ConsumerId) -> Option<u64> {
        self.all().get(&consumer).map(|pin| pin.next)
    }

    /// Returns the consumers, their positions in memory, and the records that they lost.
    pub(in crate::tsdb) fn list(&self) -> Vec<(ConsumerId, u64, u64)> {
        self.all().iter().map(|(consumer, pin)| (*consumer, pin.next, pin.stored.lost)).collect()
    }

    pub(in crate::tsdb) fn insert(&self, consumer: ConsumerId, row: PinRow) {
        self.all().insert(consumer, Pin { stored: row, next: row.next });
    }

    pub(in crate::tsdb) fn remove(&self, consumer: ConsumerId) {
        self.all().remove(&consumer);
    }

    /// Moves a pin forward in memory. An earlier position changes nothing.
    pub(in crate::tsdb) fn advance(&self, consumer: ConsumerId, to: u64) {
        if let Some(pin) = self.all().get_mut(&consumer) {
            pin.next = pin.next.max(to);
        }
    }

    /// Returns the least stored position; none without pins.
    pub(in crate::tsdb) fn least_stored(&self) -> Option<u64> {
        self.all().values().map(|pin| pin.stored.next).min()
    }

    /// Returns the rows of the pins that moved since they were stored.
    pub(in crate::tsdb) fn unsaved(&self) -> Vec<(ConsumerId, PinRow)> {
        let all = self.all();
        let moved = all.iter().filter(|(_, pin)| pin.next > pin.stored.next);
        moved.map(|(consumer, pin)| (*consumer, PinRow { next: pin.next, ..pin.stored })).collect()
    }

    /// Returns the rows of the pins whose stored position is before `begin`, moved to `begin` or to
    /// their position in memory, with the records that each consumer loses by that.
    pub(in crate::tsdb) fn broken_by(&self, begin: u64) -> Vec<(ConsumerId, PinRow, u64)> {
        let broken = |consumer: ConsumerId, pin: &Pin| {
            let lost = begin.saturating_sub(pin.next);
            let lost_to = if lost > 0 { begin.saturating_sub(1) } else { pin.stored.lost_to };
            let row =
                PinRow { next: pin.next.max(begin), lost: pin.stored.lost.saturating_add(lost), lost_to };
            (consumer, row, lost)
        };
        let all = self.all();
        let needs = all.iter().filter(|(_, pin)| pin.stored.next < begin);
        needs.map(|(consumer, pin)| broken(*consumer, pin)).collect()
    }

    /// Records that rows were stored. A pin that was removed meanwhile stays removed.
    pub(in crate::tsdb) fn saved(&self, rows: &[(ConsumerId, PinRow)]) {
        let mut all = self.all();
        for (consumer, row) in rows {
            if let Some(pin) = all.get_mut(consumer) {
                pin.stored = *row;
                pin.next = pin.next.max(row.next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{decode_body, encode_body};

    #[test]
    fn version_1_of_a_pin_has_the_documented_bytes() {
        let row = PinRow { next: 300, lost: 7, lost_to: 9 };
        let bytes = data_encoding::HEXLOWER.decode(b"fb2c010709").expect("hex");
        assert_eq!(encode_body(&row).as_deref(), Ok(&*bytes));
        assert_eq!(decode_body::<PinRow>(&bytes), Ok(row));
        let mut key = Vec::new();
        let consumer = ConsumerId { kind: ConsumerKind::Standby, number: 5 };
        consumer.write(&mut key);
        assert_eq!(key, [2, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(ConsumerId::read(&mut &*key), Some(consumer));
        assert_eq!(ConsumerId::read(&mut &[9, 0, 0, 0, 0, 0, 0, 0, 5][..]), None);
    }

    #[test]
    fn a_pin_moves_forward_only_and_a_broken_one_counts_what_it_lost() {
        let consumer = ConsumerId { kind: ConsumerKind::Forward, number: 1 };
        let pins = Pins::of(vec![(consumer, PinRow { next: 10, lost: 0, lost_to: 0 })]);
        pins.advance(consumer, 20);
        pins.advance(consumer, 15);
        assert_eq!((pins.next(consumer), pins.least_stored()), (Some(20), Some(10)));
        let rows = pins.unsaved();
        pins.saved(&rows);
        assert_eq!((pins.unsaved(), pins.least_stored()), (Vec::new(), Some(20)));
        assert!(pins.broken_by(20).is_empty());
        pins.advance(consumer, 30);
        let moved = PinRow { next: 30, lost: 0, lost_to: 0 };
        assert_eq!(pins.broken_by(25), [(consumer, moved, 0)]);
        let broken = PinRow { next: 45, lost: 15, lost_to: 44 };
        assert_eq!(pins.broken_by(45), [(consumer, broken, 15)]);
        pins.saved(&[(consumer, broken)]);
        assert_eq!(pins.list(), [(consumer, 45, 15)]);
        pins.remove(consumer);
        pins.saved(&[(consumer, broken)]);
        assert!(pins.list().is_empty());
    }
}
