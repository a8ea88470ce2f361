//! telemetry: lands with its room.
