//! Starts the notifications of alerts, and lets them follow the state of the server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Server, ServerError};
use crate::api::orgs::notifications::store::{AccountsNotifyStore, ConfiguredMailer};
use crate::model::OrgId;
use crate::notify::edge::{NotifyDeps, NotifyHub};
use crate::outbound::Mailer;

/// The time between two checks of the role of this server, and for removed organisations.
const PERIOD: Duration = Duration::from_secs(10);

impl Server {
    /// Starts the threads of notifications; they send nothing yet.
    pub(super) fn start_notify(&self, mailer: Mailer) -> Result<NotifyHub, ServerError> {
        let store = AccountsNotifyStore {
            identity: Arc::clone(&self.identity),
            public_url: self.listener.options.public_url.as_str().into(),
        };
        NotifyHub::start(NotifyDeps {
            store: Arc::new(store),
            mailer: Arc::new(ConfiguredMailer(mailer)),
            egress: self.listener.options.egress.clone(),
            runtime: self.listener.runtime(),
            clock: self.clock.clone(),
            mails_per_hour: self.settings.notify_mails_per_hour,
            external_labels: Arc::clone(&self.settings.external_labels),
            files: self.settings.notify_files.clone(),
        })
        .map_err(ServerError::Thread)
    }

    /// Starts sending on a primary, and stops it on a follower.
    pub(super) fn follow_notify(&mut self, notify: &Arc<NotifyHub>) -> Result<(), ServerError> {
        let (identity, notify) = (Arc::clone(&self.identity), Arc::clone(notify));
        let follow = move |_| {
            if identity.is_replica() {
                return notify.deactivate();
            }
            notify.activate();
            match identity.orgs() {
                Ok(orgs) => {
                    let known: BTreeSet<OrgId> = orgs.into_iter().map(|org| org.id).collect();
                    notify.retain(|org| known.contains(&org));
                }
                Err(error) => tracing::warn!("organisations cannot be read: {error}"),
            }
        };
        follow(self.clock.now());
        self.start_task("notify", PERIOD, follow)
    }
}
