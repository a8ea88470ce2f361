//! The error of opening, running and closing a server.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::identity::{IdentityError, StoreError};
use crate::kv::{self, FolderError};
use crate::{api, tsdb};

/// The reason why the server does not start, or did not end cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The data folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The accounts on disk cannot be opened.
    #[error("the accounts cannot be opened")]
    Control(#[from] kv::OpenError),
    /// The accounts cannot be loaded into memory.
    #[error("the accounts cannot be read")]
    Identity(#[from] IdentityError),
    /// A change of accounts failed.
    #[error(transparent)]
    Account(#[from] StoreError),
    /// The master key is missing or wrong.
    #[error("{0}")]
    MasterKey(String),
    /// The samples cannot be opened.
    #[error("the samples cannot be opened")]
    Tsdb(#[from] tsdb::OpenError),
    /// A damaged log could not be rewritten.
    #[error("the damaged log could not be rewritten")]
    AcceptLoss(#[from] tsdb::RepairError),
    /// The address cannot be bound.
    #[error("cannot listen on {0}: {1}; is another program using it? (choose another address with --listen)")]
    Listen(SocketAddr, std::io::Error),
    /// The folder of dashboards cannot be listed.
    #[error("the folder of dashboards {dir:?} cannot be read: {reason} (--dashboards names it)")]
    Dashboards {
        /// The folder.
        dir: PathBuf,
        /// The operating system's error.
        reason: std::io::Error,
    },
    /// The certificate cannot be used.
    #[error("TLS cannot be set up")]
    Tls(#[from] api::tls::TlsError),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// The public URL or a related option is invalid.
    #[error(transparent)]
    Api(#[from] api::OptionsError),
    /// The mail setting is invalid.
    #[error(transparent)]
    Mail(#[from] crate::outbound::SmtpError),
    /// A sign-in provider cannot be set up.
    #[error("sign-in by a provider: {0}")]
    Oauth(String),
    /// A target of an agent cannot be used.
    #[error("{0}")]
    Agent(String),
    /// The file of `--scrape-config` is wrong.
    #[error("--scrape-config: {0}")]
    Scrape(String),
    /// The process received a signal to stop before the store was open. Everything was closed
    /// cleanly.
    #[error("stopped before the store was open")]
    Stopped,
    /// The log of samples accepted no more writes. This is not a clean stop, so the next start
    /// checks everything.
    #[error("the log of samples was closed to writes: {0}")]
    Fenced(String),
    /// A part was still in use when it was to be closed.
    #[error(
        "{0} could not be closed cleanly; nothing acknowledged is lost, the next start checks everything"
    )]
    StillInUse(&'static str),
    /// The role of the store does not fit the command, or the primary refuses.
    #[error("standby: {0}")]
    Standby(String),
    /// The accounts could not be closed.
    #[error("the accounts were not closed cleanly")]
    Close(#[from] kv::CloseError),
}
