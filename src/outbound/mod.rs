//! outbound: lands with its room.
