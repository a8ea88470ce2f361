//! Sending stored samples on to other servers.
//!
//! * [`sender`]: the state machine that decides what is sent to one target, and when; it does
//!   no I/O. [`batch`] has its requests, [`starts`] start timestamps, [`mod@status`] its status.
//! * [`received`]: bodies that targets may get as they were received.
//! * [`edge`]: the thread of a target, and its HTTP requests.
//! * [`encode`]: the bodies of remote write 1.0 and 2.0.

mod batch;
pub mod edge;
pub mod encode;
pub mod received;
pub mod sender;
mod series_cache;
pub(crate) mod starts;
pub mod status;

pub use edge::{ForwardDeps, ForwardError, ForwardSpec, Forwarding};
pub use received::{BodyFormat, ReceivedBodies};
pub use sender::ForwardProtocol;
pub use status::{ForwardCounts, ForwardStatus, RefusedBody, SenderState};
