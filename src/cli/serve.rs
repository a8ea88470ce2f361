//! `promlet serve`: serves a data folder until SIGTERM or Ctrl-C.

use std::io::{IsTerminal, Write};

use anyhow::Context;

use super::progress;
use crate::clock::Clock;
use crate::config::Settings;
use crate::entropy::Entropy;
use crate::server::{FirstAccount, Server, ServerError};
use crate::telemetry;

/// Serves until the process receives a signal to stop.
pub(super) fn run(settings: Settings) -> anyhow::Result<()> {
    telemetry::start(&settings.log, settings.log_format)?;
    let mut server = match Server::open(settings, Clock::System, progress::start_line()) {
        Err(ServerError::Stopped) => return Ok(()),
        opened => opened.context("cannot open the data folder")?,
    };
    let first = server.first_account(&mut Entropy::system()).context("cannot create the first account")?;
    server.listen()?;
    banner(&server, &first)?;
    server.run().context("the server ended early")
}

/// Prints a few lines for the person who started the server: on standard output if that is a
/// terminal, otherwise on standard error, so that standard output has mail only.
fn banner(server: &Server, first: &FirstAccount) -> anyhow::Result<()> {
    let url = server.public_url();
    let mut text = format!(
        "promlet {} · data {} · ready in {:.0} ms\n  Cabinet   {url}/\n",
        env!("CARGO_PKG_VERSION"),
        server.data_dir().display(),
        server.uptime_ms(),
    );
    match first {
        FirstAccount::Exists => {}
        FirstAccount::Made { email, org } => text.push_str(&format!("  Account   {email}, owner of {org}\n")),
        FirstAccount::SetupToken(token) => {
            text.push_str(&format!(
                "  Set up    {url}/setup#token={}   (once; creates the first account)\n",
                token.expose()
            ));
        }
    }
    text.push_str(&format!("  Write     {url}/api/v1/orgs/<org>/prometheus/api/v1/write\n"));
    text.push_str(&format!("  Grafana   {url}/api/v1/orgs/<org>/prometheus\n"));
    if server.mails_to_console() {
        text.push_str("  Mail      console: sign-in links are printed here\n");
    }
    if std::io::stdout().is_terminal() {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
    } else {
        std::io::stderr().lock().write_all(text.as_bytes()).context("cannot write to standard error")
    }
}
