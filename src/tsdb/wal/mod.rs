//! The write-ahead log: accepted batches in plain files, durable before the 2xx response
//! (docs/storage.md sections 4, 5 and 10).
//!
//! * [`record`]: the byte layouts of files and records. [`samples`]: the body of most records.
//! * [`mod@file`]: creation of a log file, zeroed and synced before its first record.
//! * [`log`]: one committer for all organisations. It makes groups durable and applies them in log
//!   order.
//! * [`copy`]: records as they are copied between a primary and its follower.
//! * [`sink`]: the log, or its replacement in a store in memory or with a damaged log.
//! * [`trimmed`]: files that the log no longer needs.
//! * [`reader`]: buffered reads of one file. [`replay`]: the read of the whole log after a start,
//!   which distinguishes a torn tail from damage.

pub(super) mod copy;
pub(super) mod file;
pub(super) mod log;
pub(super) mod reader;
pub(super) mod record;
pub(super) mod replay;
pub(super) mod samples;
pub(super) mod sink;
pub(super) mod trimmed;
