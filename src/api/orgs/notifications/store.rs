//! The store and the mailer of notifications: rows of the accounts' store, and the configured mail
//! server.

use std::sync::Arc;

use crate::identity::{Identity, NotifyStateChange};
use crate::kv::with_sources;
use crate::model::OrgId;
use crate::notify::config::NotifyDocument;
use crate::notify::edge::{AlertMailFailure, AlertMailer, NotifyLoad, NotifyStore};
use crate::notify::rows::{NotifyChanges, NotifyRow, NotifyRowKey};
use crate::outbound::{Mailer, PlainMail};

/// The rows of notifications in the accounts' store.
#[derive(Clone, Debug)]
pub struct AccountsNotifyStore {
    /// The accounts.
    pub identity: Arc<Identity>,
    /// The public URL of the server, with which links in notifications begin.
    pub public_url: Arc<str>,
}

impl NotifyStore for AccountsNotifyStore {
    fn orgs(&self) -> Result<Vec<OrgId>, String> {
        let orgs = self.identity.orgs_with_notifications().map_err(|error| error.to_string())?;
        Ok(orgs.into_iter().collect())
    }

    fn load(&self, org: OrgId) -> Result<Option<NotifyLoad>, String> {
        let text = |error: crate::identity::StoreError| error.to_string();
        let Some(found) = self.identity.org(org).map_err(text)? else { return Ok(None) };
        let rows = self.identity.notify_state(org).map_err(text)?;
        let document = match self.identity.notifications(org).map_err(text)? {
            None => None,
            Some(stored) => {
                let sealed = "the configuration was sealed with another master key";
                let stored = stored.text.ok_or(sealed)?;
                let read = NotifyDocument::from_stored(&stored);
                Some(read.map_err(|_| "the stored configuration cannot be read")?)
            }
        };
        let row = |(kind, id, value)| NotifyRow { key: NotifyRowKey { kind, id }, value };
        let (url, slug) = (&self.public_url, found.slug.as_str());
        Ok(Some(NotifyLoad {
            rows: rows.into_iter().map(row).collect(),
            document,
            external_url: format!("{url}/alerts?org={slug}"),
            expr_url: format!("{url}/explore?org={slug}&expr="),
        }))
    }

    fn save(&self, org: OrgId, changes: &NotifyChanges) -> Result<(), String> {
        let change = |(key, value): (&NotifyRowKey, &Option<Vec<u8>>)| NotifyStateChange {
            kind: key.kind,
            id: key.id,
            value: value.clone(),
        };
        let changes = changes.iter().map(change).collect();
        self.identity.change_notify_state(org, changes).map_err(|error| with_sources(&error))
    }
}

/// The configured mail server.
#[derive(Clone, Debug)]
pub struct ConfiguredMailer(pub Mailer);

impl AlertMailer for ConfiguredMailer {
    fn send(&self, mail: &PlainMail) -> Result<(), AlertMailFailure> {
        self.0.send_plain(mail).map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            let text = format!("{error}{}", cause.unwrap_or_default());
            AlertMailFailure { is_permanent: error.is_permanent(), text }
        })
    }
}
