//! ingest: lands with its room.
