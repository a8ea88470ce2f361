//! Dashboards that the operator provides as files: read-only, and the same for every organisation.
//! The server reads the files; here they are only held.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::model::Timestamp;
use crate::sync::IgnorePoison as _;

use crate::identity::Identity;
use crate::identity::dashboards::document::DashboardDocument;
use crate::identity::dashboards::store::Dashboard;

/// A dashboard of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct ProvisionedDashboard {
    /// The dashboard; its version is 0.
    pub dashboard: Dashboard,
    /// The document.
    pub text: Arc<str>,
    /// A hash of the document, for the `ETag`.
    pub hash: String,
}

impl ProvisionedDashboard {
    /// Creates a dashboard of a file that was modified at `at`.
    pub fn new(
        uid: String,
        document: &DashboardDocument,
        folder: String,
        at: Timestamp,
    ) -> ProvisionedDashboard {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let digest = Sha256::digest(document.text().as_bytes());
        ProvisionedDashboard {
            dashboard: Dashboard {
                uid,
                title: document.title().to_owned(),
                folder,
                tags: document.tags().to_vec(),
                version: 0,
                created_at: at,
                created_by: None,
                updated_at: at,
                updated_by: None,
                panels: count(document.panels()),
                queries: count(document.queries()),
            },
            text: document.text().into(),
            hash: data_encoding::HEXLOWER.encode(digest.get(..8).unwrap_or_default()),
        }
    }
}

/// Returns the uid of a dashboard whose document has none. `path` is the path of its file below the
/// folder, so the uid stays when the file changes.
pub fn provisioned_uid(path: &str) -> String {
    let digest = Sha256::digest(path.as_bytes());
    format!("file-{}", data_encoding::HEXLOWER.encode(digest.get(..16).unwrap_or_default()))
}

/// All provisioned dashboards by uid.
pub type ProvisionedDashboards = BTreeMap<String, Arc<ProvisionedDashboard>>;

impl Identity {
    /// Replaces all provisioned dashboards. The streams of public links of those that are gone end.
    pub fn set_provisioned_dashboards(&self, all: ProvisionedDashboards) {
        let all = Arc::new(all);
        let before = std::mem::replace(&mut *self.provisioned.lock().ignore_poison(), Arc::clone(&all));
        if before.keys().any(|uid| !all.contains_key(uid)) {
            self.renew_links_of(|uid| before.contains_key(uid) && !all.contains_key(uid));
        }
    }

    /// Returns the provisioned dashboards. Does not access the disk.
    pub fn provisioned_dashboards(&self) -> Arc<ProvisionedDashboards> {
        Arc::clone(&self.provisioned.lock().ignore_poison())
    }
}
