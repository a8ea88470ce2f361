//! PromQL: text to value.

pub mod syntax;
