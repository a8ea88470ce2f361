//! Times in query strings and forms that are sent to other servers.

use std::fmt::{Display, Formatter, Result};

/// Milliseconds, formatted as seconds with three decimals.
pub(super) struct DecimalSeconds(pub(super) i64);

impl Display for DecimalSeconds {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let ms = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:03}", ms / 1_000, ms % 1_000)
    }
}
