//! Removal of the links and documents of deleted dashboards, and of everything of a deleted
//! organisation. A change has at most 64 rows, so this takes several changes and continues after a
//! restart.

use crate::kv::{CHANGE_ROWS_MAX, TableKey};
use crate::model::OrgId;

use crate::identity::Identity;
use crate::identity::tables::compressed::compressed_rows;
use crate::identity::tables::dashboard::{
    DashboardMarksRow, DashboardRemovalRow, DashboardRow, DashboardUsageRow, DocumentRow, HistoryRow,
};
use crate::identity::tables::store::{StoreError, read};

/// Number of documents that are read at once, each of at most 192 KiB.
const DOCUMENTS_AT_ONCE: usize = 8;
/// Number of rows of a change that are reserved for the totals and for the state of an unfinished
/// removal.
const OTHER_ROWS: usize = 6;

impl Identity {
    /// Removes the public links and the documents of deleted dashboards, of one organisation or
    /// (`&()`) of all. Blocks (commits).
    pub(in crate::identity) fn remove_deleted_documents(
        &self,
        leading: &impl TableKey,
    ) -> Result<(), StoreError> {
        for (key, row) in self.rows::<DashboardRemovalRow>(leading)? {
            let (org, uid, version) = key.clone();
            self.remove_links_of_dashboard(org, &uid, version)?;
            let mut left = row.0;
            while !left.is_empty() {
                let mut rows = OTHER_ROWS;
                let fits = |(_, bytes): &&(u32, u32)| {
                    rows += compressed_rows(*bytes);
                    rows <= CHANGE_ROWS_MAX
                };
                let batch: Vec<(u32, u32)> = left.iter().take_while(fits).copied().collect();
                // A document has at most 50 rows, so there is progress.
                left.drain(..batch.len().max(1));
                let (key, uid, rest) = (key.clone(), uid.clone(), left.clone());
                self.change(move |txn| {
                    if read::<DashboardRemovalRow>(txn, &key)?.is_none() {
                        return Ok(());
                    }
                    let mut usage = read::<DashboardUsageRow>(txn, &org)?.unwrap_or_default();
                    for (version, bytes) in &batch {
                        txn.remove::<DocumentRow>(&(org, uid.clone(), *version));
                        usage.stored_bytes = usage.stored_bytes.saturating_sub(u64::from(*bytes));
                    }
                    if rest.is_empty() {
                        txn.remove::<DashboardRemovalRow>(&key);
                    } else {
                        txn.put(&key, &DashboardRemovalRow(rest));
                    }
                    txn.put(&org, &usage);
                    Ok::<_, StoreError>(())
                })?;
            }
        }
        Ok(())
    }

    /// Removes all dashboards of a deleted organisation, and their public links. Blocks (commits).
    pub(in crate::identity) fn remove_dashboards_of(&self, org: OrgId) -> Result<(), StoreError> {
        self.remove_links_of_org(org)?;
        loop {
            let found = self.rows_back::<DocumentRow>(&org, None, DOCUMENTS_AT_ONCE)?;
            let is_last = found.len() < DOCUMENTS_AT_ONCE;
            let keys: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
            self.remove_all::<DocumentRow>(&keys)?;
            if is_last {
                break;
            }
        }
        self.remove_rows_of::<DashboardRow>(org)?;
        self.remove_rows_of::<HistoryRow>(org)?;
        self.remove_rows_of::<DashboardRemovalRow>(org)?;
        self.remove_rows_of::<DashboardMarksRow>(org)?;
        self.remove_all::<DashboardUsageRow>(&[org])
    }
}
