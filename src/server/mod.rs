//! server: lands with its room.
