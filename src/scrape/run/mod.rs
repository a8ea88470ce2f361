//! The scrapes of targets: when each is due, what a response becomes, and which series have ended.
//!
//! The core is synchronous and deterministic. [`ScrapeRun`] is the state of one target:
//! [`ScrapeRun::wait`] returns the time until the next scrape, [`ScrapeRun::begin`] its timestamp,
//! and [`ScrapeRun::finish`] turns a response or a failure into a batch, with the staleness markers
//! of series that disappeared. A body that differs from the last one only in its values has the
//! same template, so [`ScrapeRun::repeat`] reads it without decoding its labels.
//! [`ScrapeRun::end`] returns the markers of a removed target.
//! `edge` has the task of each target, which waits, fetches, and commits.
//!
//! Behaviour follows `scrape/scrape.go` of Prometheus 3.5.

mod batch;
mod edge;
mod error;
mod known;
mod labels;
mod metadata;
mod negotiate;
mod resolution;
mod response;
mod samples;
mod schedule;
mod status;
mod store_errors;
mod target_run;
mod template;

pub use batch::ScrapeBatch;
pub use edge::{
    ScrapeDeps, ScrapeDone, ScrapeFleet, ScrapeLiveSeries, ScrapePlan, ScrapeRefusal, ScrapeSink,
    ScrapeStored, ScrapeTargetReport, ScrapeWork,
};
pub use error::ScrapeError;
pub use metadata::{ScrapeMetadata, ScrapeMetadataEntry, ScrapeMetadataPool};
pub use negotiate::{accept_header, response_format};
pub use response::{ScrapeBody, ScrapeFormat};
pub use schedule::{ScrapeSchedule, offset_seed};
pub use status::{ScrapeHealth, ScrapeStatus};
pub use target_run::{ScrapeFacts, ScrapeOutcome, ScrapeRun, ScrapeRunSettings};
