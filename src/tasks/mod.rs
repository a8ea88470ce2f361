//! tasks: lands with its room.
