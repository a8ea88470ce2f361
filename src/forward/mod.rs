//! Sending stored samples on to other servers.

pub mod encode;
