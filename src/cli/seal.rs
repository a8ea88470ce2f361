//! `promlet seal`: writes the samples in memory to segments, by the running server or, if none
//! runs, by this process.

use std::path::Path;

use anyhow::{Context as _, anyhow};

use super::output::print_line;
use super::progress::number;
use crate::clock::Clock;
use crate::server::{AdminClient, AdminError, AdminRequest, OpenStore, Sealed};

/// Seals all samples.
pub(super) fn run(dir: &Path) -> anyhow::Result<()> {
    let sealed: Sealed = match AdminClient::connect(dir) {
        Ok(mut client) => client.request(&AdminRequest::Seal)?,
        Err(AdminError::NotRunning { .. }) => stopped(dir)?,
        Err(error) => return Err(error.into()),
    };
    let (samples, segments) = (number(sealed.samples), number(sealed.segments));
    print_line(format_args!("sealed {samples} samples into {segments} segments"))
}

fn stopped(dir: &Path) -> anyhow::Result<Sealed> {
    let store = OpenStore::open(dir, Clock::System)
        .context("no server runs here, and the folder cannot be opened")?;
    let sealed = store.seal().map_err(|words| anyhow!(words));
    store.close().context("the folder was not closed cleanly; the next start checks everything")?;
    sealed
}
