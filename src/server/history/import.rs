//! `promlet import`, its preview, and `promlet verify-import`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;

use super::folder::HistoryFolder;
use super::remote::{RemoteCredential, RemoteLookup, RemoteServer, RemoteSink};
use super::{HistoryProgress, ObserveHistory, filter_of, source, with_closing};
use crate::clock::Clock;
use crate::config::{HistoryPlace, ImportCommand, Settings};
use crate::history::copy::{
    CopyFilter, CopyLookup, CopyPreview, CopyShare, CopySink, CopySource, CopyStep, CopyTotals, ProgressFile,
    SampleCopyError, StoreLookup, StoreSink, VerifyReport, copy, preview, verify,
};

/// The result of an import command.
#[derive(Clone, Debug)]
pub enum ImportOutcome {
    /// The samples are imported.
    Imported(CopyTotals),
    /// The preview of a dry run.
    Previewed(CopyPreview),
    /// The comparison.
    Verified(VerifyReport),
}

/// The destination of the samples.
enum Destination {
    Folder(Box<HistoryFolder>),
    Server(Box<RemoteServer>),
}

/// Runs an import, its preview, or a comparison with stored samples.
///
/// # Errors
/// A sentence. An interrupted import continues with the same command.
pub fn import(
    settings: &Settings,
    command: &ImportCommand,
    verifies: bool,
    observe: ObserveHistory<'_>,
) -> Result<ImportOutcome, String> {
    let filter = filter_of(&command.selection, command.relabel.as_deref())?;
    let mut source = source::open(command, &filter, Clock::System.now())?;
    let destination = Destination::open(settings, &command.place)?;
    let progress = progress_file(settings, command, &*source);
    let outcome = destination.run(&mut *source, &filter, &progress, (verifies, command.dry_run), observe);
    let has_changed = matches!(&outcome, Ok(ImportOutcome::Imported(_)));
    with_closing(outcome.map_err(|error| error.to_string()), destination.close(has_changed))
}

/// Returns the progress file of a command. Its identity changes with everything that decides which
/// samples are written where.
fn progress_file(settings: &Settings, command: &ImportCommand, source: &dyn CopySource) -> ProgressFile {
    let ImportCommand { place, selection, relabel, columns, precision, db, .. } = command;
    let dir = std::path::absolute(&settings.data_dir).unwrap_or_default();
    let target = place.url.clone().unwrap_or_else(|| format!("{} {:?}", dir.display(), place.org));
    let rules = relabel.as_deref().and_then(|path| super::read_file(path).ok());
    let identity = format!(
        "{:?} {} {} {target} {selection:?} {rules:?} {columns:?} {precision} {db}",
        command.kind,
        command.source,
        source.identity()
    );
    let mut hasher = DefaultHasher::new();
    (command.source.as_str(), target.as_str()).hash(&mut hasher);
    let path = command.progress.clone();
    let path = path.unwrap_or_else(|| PathBuf::from(format!("promlet-import-{:016x}.json", hasher.finish())));
    ProgressFile::new(&path, identity)
}

impl Destination {
    fn open(settings: &Settings, place: &HistoryPlace) -> Result<Destination, String> {
        match (&place.url, &place.org) {
            (Some(url), _) => {
                let credential = RemoteCredential {
                    username: None,
                    secret_file: place.token_file.as_deref(),
                    ca_file: place.ca_file.as_deref(),
                };
                Ok(Destination::Server(Box::new(RemoteServer::new(url, credential)?)))
            }
            (None, Some(org)) => Ok(Destination::Folder(Box::new(HistoryFolder::open(settings, org)?))),
            (None, None) => Err("--org or --url is needed".to_owned()),
        }
    }

    fn run(
        &self,
        source: &mut dyn CopySource,
        filter: &CopyFilter,
        progress: &ProgressFile,
        (verifies, previews): (bool, bool),
        observe: ObserveHistory<'_>,
    ) -> Result<ImportOutcome, SampleCopyError> {
        // The sink writes segments on a thread.
        std::thread::scope(|scope| {
            let (mut store_sink, mut remote_sink);
            let (mut store_lookup, mut remote_lookup);
            let (sink, lookup): (&mut dyn CopySink, &mut dyn CopyLookup) = match self {
                Destination::Folder(folder) => {
                    store_sink = StoreSink::new(folder.tsdb(), folder.org, Clock::System, Some(scope));
                    store_lookup = StoreLookup::new(folder.tsdb(), folder.org);
                    (&mut store_sink, &mut store_lookup)
                }
                Destination::Server(server) => {
                    remote_sink = RemoteSink::new(server);
                    remote_lookup = RemoteLookup(server);
                    (&mut remote_sink, &mut remote_lookup)
                }
            };
            let step =
                |share: CopyShare, samples| HistoryProgress { samples, done: share.done, all: share.all };
            if verifies {
                let report =
                    verify(source, filter, lookup, &mut |share, samples| observe(step(share, samples)))?;
                return Ok(ImportOutcome::Verified(report));
            }
            if previews {
                let mut each = |share, samples| observe(step(share, samples));
                return Ok(ImportOutcome::Previewed(preview(source, filter, Some(lookup), &mut each)?));
            }
            let mut first = None;
            let totals = copy(source, filter, sink, progress, &mut |CopyStep { totals, share }| {
                // Samples of earlier runs do not count for the speed of this one.
                let before = *first.get_or_insert(totals.stored);
                observe(step(share, totals.stored.saturating_sub(before)))
            })?;
            Ok(ImportOutcome::Imported(totals))
        })
    }

    fn close(self, has_changed: bool) -> Result<(), String> {
        match self {
            Destination::Folder(folder) => folder.close(has_changed),
            Destination::Server(_) => Ok(()),
        }
    }
}
