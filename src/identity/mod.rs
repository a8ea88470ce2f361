//! identity: lands with its room.
