//! kv: lands with its room.
