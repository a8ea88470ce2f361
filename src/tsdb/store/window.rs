//! The writable window of an organisation: its head and its side data, which a seal closes
//! together.

use super::OrgStore;

impl OrgStore {
    pub(in crate::tsdb) fn close_window(&self, until_ms: i64) {
        self.head.close_window(until_ms);
        self.side.close_window(until_ms);
    }

    /// Like [`OrgStore::close_window`], for samples of any time. The window may end earlier than
    /// before.
    pub(in crate::tsdb) fn close_all(&self, until_ms: i64) {
        self.head.close_all(until_ms);
        self.side.close_all(until_ms);
        self.arrivals.reset_greatest();
    }

    /// Sets the end of the window to that of a checkpoint, without closing a window.
    pub(in crate::tsdb) fn set_barrier(&self, until_ms: i64) {
        self.head.set_barrier(until_ms);
        self.side.set_barrier(until_ms);
    }

    pub(in crate::tsdb) fn release_closed(&self) {
        self.head.release_closed();
        self.side.release_closed();
    }

    pub(in crate::tsdb) fn reopen(&self) {
        self.head.reopen();
        self.side.reopen();
    }

    pub(in crate::tsdb) fn least_ms(&self) -> Option<i64> {
        let side = self.side.extent().map(|(least, _)| least);
        self.head.least_ms().into_iter().chain(side).min()
    }

    pub(in crate::tsdb) fn greatest_ms(&self) -> Option<i64> {
        self.head.greatest_ms().max(self.side.extent().map(|(_, greatest)| greatest))
    }
}
