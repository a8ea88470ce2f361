//! The destination of records before they are applied.

use std::sync::Mutex;

use super::log::Log;

/// The destination of records before they are applied.
#[derive(Debug)]
pub(in crate::tsdb) enum Sink {
    /// The log on disk.
    Log(Log),
    /// No log: the samples are kept until the process ends. Holds the last sequence number.
    Memory(Mutex<u64>),
    /// No log: it is damaged, and writes are refused.
    ReadOnly { why: String, last_seq: u64 },
}
