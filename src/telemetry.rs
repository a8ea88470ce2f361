//! Logging to standard error, so that standard output is free for mail and the output of `demo`.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// The reason why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The directives cannot be parsed.
    #[error("PROMLET_LOG {0:?}: {1}; use a level (error, warn, info, debug, trace) or tracing directives")]
    Directives(String, String),
    /// Logging was set up before.
    #[error("logging is already set up")]
    Twice,
}

/// Starts logging for the whole process. Colours are used on terminals only.
///
/// # Errors
/// [`TelemetryError`], if the directives cannot be parsed or logging is already set up.
pub fn start(directives: &str, format: LogFormat) -> Result<(), TelemetryError> {
    // Sled and the HTTP packages log much at debug level, which must not hide promlet's own
    // messages.
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
