//! `promlet export`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::folder::HistoryFolder;
use super::remote::{RemoteCredential, RemoteExport, RemoteReadFetch, RemoteServer, push_selectors};
use super::{HistoryProgress, ObserveHistory, filter_of, with_closing};
use crate::clock::Clock;
use crate::config::{ExportCommand, ExportKind, Settings};
use crate::history::copy::CopyFilter;
use crate::history::export::{
    BlockExport, ExportFormat, ExportSource, StoreExport, TextExport, export_blocks, export_text,
    without_empty_start,
};
use crate::model::{Access, TimeRange, Timestamp, percent_encoded};

/// The result of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportOutcome {
    /// The number of samples; 0 if the server wrote them.
    pub samples: u64,
    /// The number of new blocks.
    pub blocks: u64,
    /// The number of bytes of text.
    pub bytes: u64,
    /// The number of native histograms that were left out, because the format has none; none if the
    /// server does not report it.
    pub left_out: Option<u64>,
}

impl Default for ExportOutcome {
    /// The result of an export without samples.
    fn default() -> ExportOutcome {
        ExportOutcome { samples: 0, blocks: 0, bytes: 0, left_out: Some(0) }
    }
}

/// Runs an export.
///
/// # Errors
/// A sentence. A repeated export of blocks continues after the last complete block.
pub fn export(
    settings: &Settings,
    command: &ExportCommand,
    observe: ObserveHistory<'_>,
) -> Result<ExportOutcome, String> {
    check_out(command)?;
    let filter = filter_of(&command.selection, None)?;
    let place = &command.place;
    if let Some(url) = &place.url {
        let credential = RemoteCredential {
            username: None,
            secret_file: place.token_file.as_deref(),
            ca_file: place.ca_file.as_deref(),
        };
        return of_server(RemoteServer::new(url, credential)?, command, &filter, observe);
    }
    let folder = HistoryFolder::open(settings, place.org.as_deref().unwrap_or_default())?;
    let exported = of_folder(&folder, command, &filter, observe);
    with_closing(exported, folder.close(false))
}

/// Refuses a destination that the kind of export cannot have, before anything is read.
fn check_out(command: &ExportCommand) -> Result<(), String> {
    let out = &command.out;
    match format_of(command.kind) {
        None if out == Path::new("-") => {
            Err("blocks are a folder, which cannot go to standard output: name a folder".to_owned())
        }
        Some(_) if out.is_dir() => Err(format!("{} is a folder: name a file", out.display())),
        _ => Ok(()),
    }
}

fn of_folder(
    folder: &HistoryFolder,
    command: &ExportCommand,
    filter: &CopyFilter,
    observe: ObserveHistory<'_>,
) -> Result<ExportOutcome, String> {
    let snapshot = folder.tsdb().snapshot(&Access::whole(folder.org));
    let mut source = StoreExport::new(snapshot.clone(), filter.selectors.clone());
    let used = source.used_range(filter.range).map_err(|error| error.to_string())?;
    let Some(format) = format_of(command.kind) else {
        let Some(range) = used else { return Ok(ExportOutcome::default()) };
        return blocks(&mut source, &folder.identity(), range, command, observe);
    };
    // An export without samples replaces an older file, too.
    let nothing = TimeRange::new(Timestamp::from_ms(0), Timestamp::from_ms(-1));
    let (source, range) = match used {
        Some(range) => (source, range),
        None => (StoreExport::of_selected(snapshot, Vec::new()), nothing),
    };
    written(&command.out, |out| {
        let text = TextExport { format, range };
        let mut samples = 0;
        let outcome = export_text(source, text, out, &mut |step| {
            samples = step.samples;
            observe(HistoryProgress { samples: step.samples, done: step.done, all: step.all })
        });
        let step = outcome.map_err(|error| error.to_string())?;
        let (bytes, left_out) = (step.bytes, Some(step.left_out));
        Ok(ExportOutcome { samples, bytes, left_out, ..ExportOutcome::default() })
    })
}

fn of_server(
    server: RemoteServer,
    command: &ExportCommand,
    filter: &CopyFilter,
    observe: ObserveHistory<'_>,
) -> Result<ExportOutcome, String> {
    let Some(format) = format_of(command.kind) else {
        let start = command.selection.from.ok_or("--from is needed for blocks of a running server")?;
        let range = TimeRange::new(start, filter.range.end.min(Clock::System.now()));
        let exists = |range| server.has_series(&command.selection.selectors, range);
        let Some(range) = without_empty_start(range, block_ms(command), exists)? else {
            return Ok(ExportOutcome::default());
        };
        let identity = format!("server {}", command.place.url.as_deref().unwrap_or_default());
        let fetch = RemoteReadFetch { server, selectors: filter.selectors.clone() };
        return blocks(&mut RemoteExport::new(fetch), &identity, range, command, observe);
    };
    let name = match format {
        ExportFormat::JsonLines => "jsonl",
        ExportFormat::Csv => "csv",
        ExportFormat::OpenMetrics => "openmetrics",
        ExportFormat::Prometheus => "prometheus",
    };
    let mut suffix = format!("/api/v1/export?format={name}");
    push_selectors(&command.selection.selectors, &mut suffix);
    for (parameter, at) in [("start", command.selection.from), ("end", command.selection.to)] {
        if let Some(at) = at {
            suffix.push_str(&format!("&{parameter}={}", percent_encoded(&at.to_rfc3339())));
        }
    }
    written(&command.out, |out| {
        let done = server.download(suffix, out, &mut |bytes| {
            observe(HistoryProgress { samples: 0, done: bytes, all: 0 })
        })?;
        Ok(ExportOutcome { bytes: done.bytes, left_out: done.left_out, ..ExportOutcome::default() })
    })
}

fn format_of(kind: ExportKind) -> Option<ExportFormat> {
    match kind {
        ExportKind::Openmetrics => Some(ExportFormat::OpenMetrics),
        ExportKind::Prometheus => Some(ExportFormat::Prometheus),
        ExportKind::Jsonl => Some(ExportFormat::JsonLines),
        ExportKind::Csv => Some(ExportFormat::Csv),
        ExportKind::PrometheusBlocks => None,
    }
}

fn block_ms(command: &ExportCommand) -> i64 {
    i64::from(command.block_hours).saturating_mul(3_600_000)
}

fn blocks(
    source: &mut dyn ExportSource,
    origin: &str,
    range: TimeRange,
    command: &ExportCommand,
    observe: ObserveHistory<'_>,
) -> Result<ExportOutcome, String> {
    std::fs::create_dir_all(&command.out)
        .map_err(|error| format!("cannot create {}: {error}", command.out.display()))?;
    let identity = format!("{origin} {:?}", command.selection.selectors);
    let export =
        BlockExport { folder: &command.out, range, block_ms: block_ms(command), identity: &identity };
    let mut samples = 0;
    let written = export_blocks(source, &export, &mut |step| {
        samples = step.samples;
        observe(HistoryProgress { samples: step.samples, done: step.done_ms, all: step.all_ms })
    });
    let blocks = written.map_err(|error| error.to_string())?.len() as u64;
    Ok(ExportOutcome { samples, blocks, ..ExportOutcome::default() })
}

/// Calls `write` with a file that gets its name once it is complete, or with standard output.
fn written(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<ExportOutcome, String>,
) -> Result<ExportOutcome, String> {
    if path == Path::new("-") {
        let mut out = BufWriter::with_capacity(256 << 10, std::io::stdout().lock());
        let outcome = write(&mut out)?;
        out.flush().map_err(|error| error.to_string())?;
        return Ok(outcome);
    }
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    let mut name = path.as_os_str().to_owned();
    name.push(".incomplete");
    let temporary = PathBuf::from(name);
    let mut out = BufWriter::with_capacity(256 << 10, File::create(&temporary).map_err(failed)?);
    let outcome = write(&mut out).inspect_err(|_| {
        // The next export replaces the incomplete file.
        let _ = std::fs::remove_file(&temporary);
    })?;
    out.flush().and_then(|()| out.get_ref().sync_all()).map_err(failed)?;
    std::fs::rename(&temporary, path).map_err(failed)?;
    Ok(outcome)
}
