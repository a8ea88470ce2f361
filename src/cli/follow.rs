//! `promlet follow`: serves a copy of another server. `promlet promote`: makes it the primary.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use super::output::{print_line, remark_line};
use super::progress;
use crate::clock::Clock;
use crate::config::Settings;
use crate::server::{
    AdminClient, AdminError, AdminRequest, Server, ServerError, prepare_follower, promote_stopped,
};
use crate::telemetry;

/// Follows the primary until the process receives a signal to stop. A folder that was promoted is
/// served as a primary.
pub(super) fn run(settings: Settings) -> anyhow::Result<()> {
    telemetry::start(&settings.log, settings.log_format)?;
    prepare_follower(&settings).context("cannot copy the primary")?;
    let mut server = match Server::open(settings, Clock::System, progress::start_line()) {
        Err(ServerError::Stopped) => return Ok(()),
        opened => opened.context("cannot open the data folder")?,
    };
    server.listen()?;
    remark_line(format_args!(
        "promlet {} · data {} · standby on {}",
        env!("CARGO_PKG_VERSION"),
        server.data_dir().display(),
        server.public_url(),
    ));
    server.run().context("the server ended early")
}

/// The response of a promotion.
#[derive(Deserialize)]
struct Promoted {
    epoch: u64,
}

/// Promotes the follower that runs on `dir`, or its stopped folder; also one that never had
/// everything if `accepts_loss`.
pub(super) fn promote(dir: &Path, accepts_loss: bool) -> anyhow::Result<()> {
    let epoch = match AdminClient::connect(dir) {
        Ok(mut client) => client.request::<Promoted>(&AdminRequest::Promote { accepts_loss })?.epoch,
        Err(AdminError::NotRunning { .. }) => promote_stopped(dir, accepts_loss, &Clock::System)?,
        Err(error) => return Err(error.into()),
    };
    print_line(format_args!("promoted: this is the primary of epoch {epoch}"))
}
