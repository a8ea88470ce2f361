//! config: lands with its room.
