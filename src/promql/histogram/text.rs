//! The text form of a histogram, as Prometheus writes it in label values:
//! `{count:3, sum:4.5, (1,2]:3}`.

use std::fmt;

use super::{FloatHistogram, HistogramBucket};
use crate::promql::numbers::go_float;

impl fmt::Display for FloatHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{count:{}, sum:{}", go_float(self.count()), go_float(self.sum()))?;
        for bucket in self.buckets().filter(|bucket| bucket.count != 0.0) {
            write!(f, ", {bucket}")?;
        }
        f.write_str("}")
    }
}

impl fmt::Display for HistogramBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = if self.lower_inclusive { '[' } else { '(' };
        let close = if self.upper_inclusive { ']' } else { ')' };
        let [lower, upper, count] = [self.lower, self.upper, self.count].map(go_float);
        write!(f, "{open}{lower},{upper}{close}:{count}")
    }
}
