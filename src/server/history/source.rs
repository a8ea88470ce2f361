//! The sources that a command line names.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::remote::{RemoteCredential, RemoteReadFetch, RemoteServer, VictoriaFetch};
use crate::config::{ImportCommand, ImportKind};
use crate::history::copy::{CopyFilter, CopySource, PrometheusSource, TextFormat, TextSource, WindowSource};
use crate::ingest::csv::CsvColumns;
use crate::ingest::influx::Precision;
use crate::model::{TimeRange, Timestamp};

/// Opens the source of an import.
///
/// # Errors
/// A sentence, if it cannot be opened or an option is wrong.
pub(super) fn open(
    command: &ImportCommand,
    filter: &CopyFilter,
    now: Timestamp,
) -> Result<Box<dyn CopySource>, String> {
    match command.kind {
        ImportKind::PrometheusBlocks => {
            let source = PrometheusSource::open(Path::new(&command.source));
            Ok(Box::new(source.map_err(|error| error.to_string())?))
        }
        ImportKind::RemoteRead => {
            let fetch = RemoteReadFetch { server: server(command)?, selectors: filter.selectors.clone() };
            Ok(Box::new(WindowSource::new(fetch, window_range(command, filter, now)?)))
        }
        ImportKind::Victoriametrics => {
            let fetch =
                VictoriaFetch { server: server(command)?, selectors: command.selection.selectors.clone() };
            Ok(Box::new(WindowSource::new(fetch, window_range(command, filter, now)?)))
        }
        _ => text(command, now),
    }
}

fn server(command: &ImportCommand) -> Result<RemoteServer, String> {
    let credential = RemoteCredential {
        username: command.source_username.as_deref(),
        secret_file: command.source_secret_file.as_deref(),
        ca_file: command.source_ca_file.as_deref(),
    };
    RemoteServer::new(&command.source, credential)
}

/// Returns the times to request from a server, which does not report the time of its first sample.
fn window_range(command: &ImportCommand, filter: &CopyFilter, now: Timestamp) -> Result<TimeRange, String> {
    let from = command.selection.from;
    let start = from.ok_or("--from is needed: a server does not report the time of its first sample")?;
    Ok(TimeRange::new(start, filter.range.end.min(now)))
}

fn format(command: &ImportCommand) -> Result<TextFormat, String> {
    Ok(match command.kind {
        ImportKind::Prometheus => TextFormat::Prometheus,
        ImportKind::Jsonl => TextFormat::JsonLines,
        ImportKind::Csv => {
            let columns = command.columns.as_deref().map(CsvColumns::parse).transpose();
            TextFormat::Csv(columns.map_err(|error| format!("--columns: {error}"))?)
        }
        ImportKind::Influx => {
            let precision = Precision::parse(&command.precision);
            let precision = precision.ok_or("--precision is ns, us, ms, s, m or h")?;
            TextFormat::Influx { precision, database: command.db.clone() }
        }
        _ => TextFormat::OpenMetrics,
    })
}

fn text(command: &ImportCommand, now: Timestamp) -> Result<Box<dyn CopySource>, String> {
    let format = format(command)?;
    let (input, size): (Box<dyn Read + Send>, u64) = if command.source == "-" {
        (Box::new(std::io::stdin()), 0)
    } else {
        let failed = |error| format!("cannot read {}: {error}", command.source);
        let file = File::open(&command.source).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        (Box::new(file), size)
    };
    let source = TextSource::new(input, format, now, size);
    Ok(Box::new(source.map_err(|error| format!("{}: {error}", command.source))?))
}
