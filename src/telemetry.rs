//! Where logs go: standard error, so that standard output stays for mail and for what `demo` prints.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The directives do not parse.
    #[error("PROMLET_LOG {0:?}: {1}; use a level (error, warn, info, debug, trace) or tracing directives")]
    Directives(String, String),
    /// Something else set it up first.
    #[error("logging is already set up")]
    Twice,
}

/// Starts logging for the whole process. Colours only on a terminal.
///
/// # Errors
/// [`TelemetryError`] for directives that do not parse, or a second call.
pub fn start(directives: &str, format: LogFormat) -> Result<(), TelemetryError> {
    // Sled and the HTTP crates talk a lot at debug; asking for promlet's debug should not drown in it.
    let quiet = format!("sled=warn,hyper=warn,hyper_util=warn,{directives}");
    let filter = EnvFilter::builder()
        .parse(quiet)
        .map_err(|e| TelemetryError::Directives(directives.to_owned(), e.to_string()))?;
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let started = match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|_| TelemetryError::Twice)
}
