//! Accepted batches in plain files, durable before the 2xx (docs/storage.md sections 4, 5 and 10).
//!
//! * [`record`]: the drawings of files and records. [`samples`]: the body that most records have.
//! * [`mod@file`]: making a log file, zeroed and synced before its first record.
//! * [`log`]: one committer for all organisations, and the thread that applies what it made durable, in log order.
//! * [`trimmed`]: files that it needs no more.
//! * [`pieces`]: a file read by and by. [`replay`]: reading it all back; what is a torn tail and what is damage.

pub(super) mod file;
pub(super) mod log;
pub(super) mod pieces;
pub(super) mod record;
pub(super) mod replay;
pub(super) mod samples;
pub(super) mod trimmed;
