//! api: lands with its room.
