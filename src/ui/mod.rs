//! ui: lands with its room.
