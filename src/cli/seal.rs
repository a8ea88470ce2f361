//! `promlet seal`: what is in memory goes to segments now. By the running server, or, where none runs, by this process.

use std::path::Path;

use anyhow::{Context as _, anyhow};

use super::progress::number;
use crate::clock::Clock;
use crate::server::{AskError, Asking, OpenStore, Question, Sealed};

/// Seals.
pub(super) fn run(dir: &Path) -> anyhow::Result<()> {
    let sealed: Sealed = match Asking::connect(dir) {
        Ok(mut asking) => asking.ask(&Question::Seal)?,
        Err(AskError::NotRunning { .. }) => stopped(dir)?,
        Err(error) => return Err(error.into()),
    };
    println!("sealed {} samples into {} segments", number(sealed.samples), number(sealed.segments));
    Ok(())
}

fn stopped(dir: &Path) -> anyhow::Result<Sealed> {
    let store = OpenStore::open(dir, Clock::System)
        .context("no server runs here, and the folder cannot be opened")?;
    let sealed = store.seal().map_err(|words| anyhow!(words));
    store.close().context("the folder was not closed in order; the next start checks everything")?;
    sealed
}
