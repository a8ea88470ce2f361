//! The segment file, byte by byte.
