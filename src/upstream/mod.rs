//! Queries and listings that another server answers with Prometheus' HTTP API
//! (docs/specification.md C10).
//!
//! `scope` puts the matchers of the caller's scope into every selector of our own tree, which is
//! then printed; `request` makes the request of a read; `answer` reads the response while it
//! arrives, within limits, and keeps the values of a matrix as text; `breaker` stops requests to a
//! server that does not answer. `engine` joins them, and is the only part that is asynchronous.

mod answer;
mod breaker;
mod engine;
mod raw;
mod request;
mod scope;

pub use answer::{AnswerData, PassedResult, QueryAnswer, QueryValue, RawAnswer, UpstreamAnswer};
pub use breaker::CircuitState;
pub use engine::{FetchLimits, FetchedAnswer, Upstream, UpstreamError, UpstreamStatus};
pub use request::UpstreamRead;
pub use scope::{ForcedMatchers, Unsupported};
