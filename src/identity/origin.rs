//! The origin of a request, which every audit entry carries.
//!
//! The origin is not a parameter of every change. The edge sets it for all work of a request
//! ([`with_origin`]), and every entry recorded on that thread meanwhile carries it.

use std::cell::RefCell;
use std::net::IpAddr;

/// The origin of an action. The default is this program itself: a task, the command line, the
/// environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Address of the peer, or the one that a trusted proxy reports.
    pub ip: Option<IpAddr>,
    /// Id of the request.
    pub request_id: Option<Box<str>>,
}

thread_local! {
    static ORIGIN: RefCell<Origin> = RefCell::default();
}

/// Guard that restores the previous origin on drop, also after a panic.
struct RestoreOrigin(Origin);

impl Drop for RestoreOrigin {
    fn drop(&mut self) {
        ORIGIN.set(std::mem::take(&mut self.0));
    }
}

/// Runs `work`; entries that it records on this thread carry `origin`.
pub fn with_origin<T>(origin: &Origin, work: impl FnOnce() -> T) -> T {
    let _restore = RestoreOrigin(ORIGIN.replace(origin.clone()));
    work()
}

/// Returns the origin set by [`with_origin`] on this thread.
pub(in crate::identity) fn origin() -> Origin {
    ORIGIN.with_borrow(Clone::clone)
}
