//! Read-only maps of files that never change.
