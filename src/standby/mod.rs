//! A second process with a copy of everything that the first one acknowledged (docs/standby.md).
//!
//! [`frame`] is the format of the stream. [`primary`] serves streams and counts acknowledgements;
//! [`follower`] copies, and is promoted; [`base`] is the copy of the folder from which a follower
//! begins. The room is synchronous and knows no HTTP: `api` serves the primary's requests,
//! `outbound` makes the follower's.

mod base;
mod follower;
mod frame;
mod primary;

#[cfg(test)]
mod tests;

pub use base::{BaseError, Prepared, fetch_base, finish_adoption, prepare_folder};
pub use follower::{
    Follower, FollowerState, FollowerStatus, Incoming, LinkError, PrimaryLink, PromoteError, ReloadAccounts,
};
pub use frame::{Frame, FrameError, FrameReader};
pub use primary::{
    Acknowledgement, BaseSource, Primary, PrimaryOptions, PrimaryStatus, Refused, Stream, StreamRequest,
};

use crate::kv::Control;

/// The version of the protocol.
const VERSION: u16 = 1;

/// Promotes the stopped store of a follower, also one that has never caught up if `accepts_loss`.
/// Returns the epoch. The server sends the promotion to the old primary after its next start.
///
/// # Errors
/// [`PromoteError`].
pub fn promote_stopped(control: &Control, accepts_loss: bool) -> Result<u64, PromoteError> {
    follower::promote_store(control, accepts_loss)
}
