//! A histogram as text, the way Prometheus writes one in a label: `{count:3, sum:4.5, (1,2]:3}`.

use std::fmt;

use super::{FloatHistogram, ShownBucket};
use crate::promql::functions::over_time::go_float;

impl fmt::Display for FloatHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{count:{}, sum:{}", go_float(self.count()), go_float(self.sum()))?;
        for bucket in self.buckets().filter(|bucket| bucket.count != 0.0) {
            write!(f, ", {bucket}")?;
        }
        f.write_str("}")
    }
}

impl fmt::Display for ShownBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = if self.holds_lower { '[' } else { '(' };
        let close = if self.holds_upper { ']' } else { ')' };
        let [lower, upper, count] = [self.lower, self.upper, self.count].map(go_float);
        write!(f, "{open}{lower},{upper}{close}:{count}")
    }
}
