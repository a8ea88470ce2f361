//! `promlet agent`: receives and scrapes samples and forwards them until SIGTERM or Ctrl-C.

use anyhow::Context;

use super::progress;
use crate::clock::Clock;
use crate::config::{AgentSettings, Settings};
use crate::server::{Agent, ServerError};
use crate::telemetry;

/// Forwards samples until the process receives a signal to stop.
pub(super) fn run(settings: Settings, agent: &AgentSettings) -> anyhow::Result<()> {
    telemetry::start(&settings.log, settings.log_format)?;
    match Agent::open(settings, agent, Clock::System, progress::start_line()) {
        Err(ServerError::Stopped) => Ok(()),
        opened => opened.context("the agent cannot start")?.run().context("the agent ended early"),
    }
}
