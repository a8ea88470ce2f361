//! Pushed groups of metrics, and the totals of streams that send deltas.
//!
//! A group is a set of labels, such as `job="backup"`, and the metrics that were pushed last with
//! them, as in a Pushgateway (`grouping` reads the labels from a path, `exposition` holds the
//! metrics, `groups` the groups of an organisation). [`totals`] adds up the changes that senders of
//! OpenTelemetry report.
//!
//! This room does no I/O. Its callers store groups and write the samples that it returns.

mod exposition;
mod grouping;
mod groups;
pub mod totals;

pub use exposition::{Exposition, PushBodyError, PushFormat, PushedSeries};
pub use grouping::{GroupingError, GroupingLabels};
pub use groups::{OrgPushes, Push, PushChange, PushError, PushGroup, PushKind};
