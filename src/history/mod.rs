//! Samples in and out of files, and the blocks of Prometheus.
//!
//! [`block`] reads and writes block folders, and [`wal`] reads the log and the head chunks of a
//! stopped Prometheus. [`copy`] moves samples from a source to a sink.
//!
//! **Invariant:** files are read in pieces, never as a whole, and each length in them is compared
//! with the bytes of its file before memory is allocated for it.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod block;
pub mod copy;
pub mod export;
pub mod wal;
