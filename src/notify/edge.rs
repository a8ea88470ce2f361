//! The threads of notifications: they drive the state of each organisation, and deliver.
//!
//! One thread, `notify`, advances all organisations and stores changed rows. Requests run as tasks
//! of the server's runtime; mails are sent by the thread `alert-mail`. Neither a slow receiver nor
//! a panic of one organisation's step holds up another one.

mod driver;
mod hub;
mod send;

pub use hub::{NotifyFigures, NotifyHub, NotifyUnavailable};
pub use send::{RunningTests, TestReport};

use std::path::PathBuf;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::config::NotifyDocument;
use super::labels::AlertLabels;
use super::rows::{NotifyChanges, NotifyRow};
use crate::clock::Clock;
use crate::model::OrgId;
use crate::outbound::{Egress, PlainMail};

/// The stored notifications of an organisation.
#[derive(Debug, Default)]
pub struct NotifyLoad {
    /// The rows of its state.
    pub rows: Vec<NotifyRow>,
    /// The configuration; `None` if none is stored.
    pub document: Option<NotifyDocument>,
    /// The page of its alerts, for links; may be empty.
    pub external_url: String,
    /// The page of an expression, before the escaped expression; may be empty.
    pub expr_url: String,
}

/// The store of configurations and states.
pub trait NotifyStore: Send + Sync {
    /// Returns the organisations that have a configuration or a state.
    ///
    /// # Errors
    /// A sentence.
    fn orgs(&self) -> Result<Vec<OrgId>, String>;

    /// Reads an organisation; `None` if it does not exist.
    ///
    /// # Errors
    /// A sentence.
    fn load(&self, org: OrgId) -> Result<Option<NotifyLoad>, String>;

    /// Stores changes of the rows in one commit. Changes of an organisation that does not exist
    /// any more are ignored.
    ///
    /// # Errors
    /// A sentence; then nothing is stored.
    fn save(&self, org: OrgId, changes: &NotifyChanges) -> Result<(), String>;
}

/// The reason why a mail was not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertMailFailure {
    /// The mail server will never accept this mail.
    pub is_permanent: bool,
    /// The description.
    pub text: String,
}

/// Sends mails.
pub trait AlertMailer: Send + Sync {
    /// Sends one mail. May block for some seconds.
    ///
    /// # Errors
    /// [`AlertMailFailure`], if the mail server did not accept the mail.
    fn send(&self, mail: &PlainMail) -> Result<(), AlertMailFailure>;
}

/// The dependencies of the hub.
#[derive(Clone)]
pub struct NotifyDeps {
    /// The store.
    pub store: Arc<dyn NotifyStore>,
    /// The mailer.
    pub mailer: Arc<dyn AlertMailer>,
    /// The addresses that may be connected to.
    pub egress: Egress,
    /// The runtime of the requests.
    pub runtime: Handle,
    /// The wall clock.
    pub clock: Clock,
    /// The most mails of an organisation in an hour, inclusive.
    pub mails_per_hour: u32,
    /// Labels that Alertmanagers get with each alert that has no label of the same name.
    pub external_labels: Arc<AlertLabels>,
    /// The folder with files of Alertmanagers, if the operator allows any.
    pub files: Option<PathBuf>,
}

impl std::fmt::Debug for NotifyDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NotifyDeps").field("files", &self.files).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
