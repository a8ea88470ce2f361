//! The folder of a stopped server, opened for an import or an export of one organisation.

use crate::clock::Clock;
use crate::config::Settings;
use crate::model::OrgId;
use crate::server::admin::AdminClient;
use crate::server::{OpenAccounts, OpenStore};
use crate::tsdb::Tsdb;

/// An open store, and one of its organisations.
pub(super) struct HistoryFolder {
    store: OpenStore,
    /// The organisation.
    pub(super) org: OrgId,
}

impl HistoryFolder {
    /// Opens the folder of the settings.
    ///
    /// # Errors
    /// A sentence: a server runs on the folder, it cannot be opened, or it has no such
    /// organisation.
    pub(super) fn open(settings: &Settings, slug: &str) -> Result<HistoryFolder, String> {
        let dir = settings.data_dir.display();
        if AdminClient::connect(&settings.data_dir).is_ok() {
            return Err(format!(
                "a server runs on {dir}: name it with --url http://HOST/api/v1/orgs/{slug}/prometheus and \
                 --token-file instead of --org, or stop it"
            ));
        }
        let accounts = OpenAccounts::open(settings, Clock::System)
            .map_err(|error| format!("{dir} cannot be opened: {error}"))?;
        let org = match accounts.org(slug) {
            Ok(Some(org)) => org,
            other => {
                accounts.close().map_err(|error| error.to_string())?;
                return Err(match other {
                    Err(error) => error,
                    Ok(_) => format!("{dir} has no organisation {slug}: promlet org create {slug}"),
                });
            }
        };
        let store = accounts.into_store().map_err(|error| format!("{dir} cannot be opened: {error}"))?;
        Ok(HistoryFolder { store, org })
    }

    /// Returns the samples.
    pub(super) fn tsdb(&self) -> &Tsdb {
        self.store.tsdb()
    }

    /// Returns a text that identifies the organisation among those of all folders.
    pub(super) fn identity(&self) -> String {
        format!("store {} organisation {}", self.store.store_id(), self.org.0)
    }

    /// Writes the samples in memory to segments, and closes the folder.
    pub(super) fn close(self, has_changed: bool) -> Result<(), String> {
        if has_changed {
            self.store.seal().map(drop)?;
        }
        self.store.close().map_err(|error| {
            format!("the folder was not closed cleanly; the next start checks everything: {error}")
        })
    }
}
