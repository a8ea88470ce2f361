//! The shared vocabulary of all rooms. It has no I/O, no async code, no clock and no wire formats;
//! of the other rooms it uses `sync` only.

mod access;
mod alert;
mod allocation;
mod byte_budget;
#[cfg(test)]
pub(crate) mod effort;
mod egress;
mod exemplar;
mod features;
mod file_glob;
mod histogram;
mod labels;
mod matcher;
mod names;
mod org;
mod org_lru;
mod pace;
mod pattern;
mod percent;
mod quoted;
mod raw_series;
mod sample;
mod standby;
mod target;
mod time;
mod times;
mod write;

pub use access::{Access, NameGlob, Scope};
pub use alert::{Alert, AlertSink};
pub use allocation::{OutOfMemory, bytes_of, check_available, try_reserve_exact, try_with_capacity};
pub use byte_budget::{ByteBudget, ByteCharge};
pub use egress::{AddressRefusal, EgressRules, is_public};
pub use exemplar::Exemplar;
pub use features::{Features, Switches, UnknownFeature};
pub use file_glob::FileGlob;
pub use histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, CounterReset, Histogram, HistogramColumns, HistogramCounts,
    HistogramError, HistogramShape, StartChange, counts_from_deltas,
};
pub use labels::{
    Label, LabelColumn, LabelMask, LabelRef, LabelTable, LabelValues, Labels, LabelsBuilder, LabelsIter,
    METRIC_NAME,
};
pub use matcher::{MatchOp, Matcher};
pub use names::{is_label_name, is_metric_name};
pub use org::{OrgId, OrgSlug, SlugError, StoreId};
pub use org_lru::{LruBounds, OrgLru};
pub use pace::{Conductor, Pace, Stopped};
pub use pattern::{CaptureError, Captures, CompileLimits, MayCompile, Pattern, PatternCache, PatternError};
pub use percent::{percent_decoded, percent_encoded};
pub use quoted::{QuotedError, quoted_length, unquoted};
pub use raw_series::RawSeries;
pub use sample::{STALE_NAN_BITS, Sample, is_stale, stale_nan};
pub use standby::{GateAnswer, GateMode, StandbyRefusal, WriteGate};
pub use target::{
    InvalidTarget, TARGET_HEADERS_MAX, TARGET_PEM_BYTES_MAX, TARGET_SCOPES_MAX, TARGET_TEXT_BYTES_MAX,
    TARGET_URL_BYTES_MAX, TENANT_PLACEHOLDER, Target, TargetAuth, TargetSecret, TargetTls, TargetUrl, Tenant,
};
pub use time::{DurationError, Steps, StepsError, TimeRange, Timestamp, format_duration, parse_duration};
pub use times::{RegularTimes, Times, TimesBuilder};
pub use write::{
    BatchBuilder, GuessedBatch, HistogramSample, MetricKind, MetricMetadata, ParseLabels, Refusal,
    RenderedLabels, WriteBatch, WriteExemplar, WriteSeries, WriteStart, families_of,
};
