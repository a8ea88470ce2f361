//! Loads the series registries at a start. One thread reads, another puts the definitions into
//! tables.
//!
//! A registry that the store would not have written this way is read once more, record by record in
//! order. Its result comes from that second read.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::model::{OrgId, StoreId};
use crate::tsdb::error::{DiskError, OpenError};
use crate::tsdb::maintenance::checkpoint::Folder;
use crate::tsdb::open_progress::{OpenStep, Phase, ProgressObserver};
use crate::tsdb::series::definition_columns::DefinitionColumns;
use crate::tsdb::series::registry::{self, ReadRegistry};
use crate::tsdb::series::table::load::{BulkLoader, NotBulkLoadable};
use crate::tsdb::store::{Record, Stores};
use crate::tsdb::wal::record::{FILE_HEADER_BYTES, RecordKind, record_bytes};

/// The limit of bodies between the threads. Each has about 256 KiB, and a few times that as
/// columns.
const QUEUE_MAX: usize = 2;

/// An organisation and the path of its registry.
pub(in crate::tsdb) type Registry = (OrgId, PathBuf);

/// A message of the reading thread.
enum RegistryPart {
    /// The definitions of a record, and its bytes.
    Series(Box<DefinitionColumns>, usize),
    Metadata(Vec<u8>),
    /// The end of the file; none if the store would not have written it this way.
    End(Option<Result<ReadRegistry, OpenError>>),
}

/// Reads registries into empty stores. Returns the result for each registry. The observer is called
/// for each record.
///
/// # Errors
/// [`OpenError`] if a file cannot be read, or belongs to another store or a newer version, or the
/// observer stops the start.
pub(in crate::tsdb) fn load(
    folder: &Folder,
    stores: &Stores,
    registries: &[Registry],
    observer: &ProgressObserver,
) -> Result<Vec<ReadRegistry>, OpenError> {
    if registries.is_empty() {
        return Ok(Vec::new());
    }
    let mut step = OpenStep { phase: Phase::Names, files: registries.len() as u64, ..OpenStep::default() };
    for (_, path) in registries {
        step.all += std::fs::metadata(path).map_err(DiskError::at("look at", path))?.len();
    }
    let (parts, read) = sync_channel(QUEUE_MAX);
    let (used_sheets, used) = sync_channel(QUEUE_MAX);
    // The channel ends move into the closure, so the reading thread ends if this one returns early.
    std::thread::scope(move |scope| {
        let reader = RegistryReader { store: folder.store, parts, used };
        std::thread::Builder::new()
            .name("names".to_owned())
            .spawn_scoped(scope, move || {
                // A send fails only after the receiver stopped with its own error.
                let _ = registries.iter().try_for_each(|(org, path)| reader.send(*org, path));
            })
            .map_err(OpenError::Thread)?;
        let mut loader = RegistryLoader { store: folder.store, stores, read, used_sheets, observer, step };
        registries.iter().map(|(org, path)| loader.take(*org, path)).collect()
    })
}

/// The reading thread's state.
struct RegistryReader {
    store: StoreId,
    parts: SyncSender<RegistryPart>,
    /// Buffers of columns for reuse.
    used: Receiver<Box<DefinitionColumns>>,
}

impl RegistryReader {
    /// Reads one registry. Returns `None` if the receiver was dropped.
    fn send(&self, org: OrgId, path: &Path) -> Option<()> {
        let mut is_foreign = false;
        let read = registry::read(path, self.store, org, &mut |kind, body| {
            let part = self.part(kind, body);
            is_foreign |= part.is_none();
            part.is_some_and(|part| self.parts.send(part).is_ok())
        });
        self.parts.send(RegistryPart::End((!is_foreign).then_some(read))).ok()
    }

    fn part(&self, kind: RecordKind, body: &[u8]) -> Option<RegistryPart> {
        match kind {
            RecordKind::RegistrySeries => {
                let mut sheet = self.used.try_recv().unwrap_or_default();
                sheet.read(body).ok().map(|()| RegistryPart::Series(sheet, body.len()))
            }
            RecordKind::RegistryMetadata => Some(RegistryPart::Metadata(body.to_vec())),
            _ => None,
        }
    }
}

/// The receiving side, which fills the stores.
struct RegistryLoader<'s> {
    store: StoreId,
    stores: &'s Stores,
    read: Receiver<RegistryPart>,
    used_sheets: SyncSender<Box<DefinitionColumns>>,
    observer: &'s ProgressObserver,
    step: OpenStep,
}

impl RegistryLoader<'_> {
    /// Receives one registry.
    fn take(&mut self, org: OrgId, path: &Path) -> Result<ReadRegistry, OpenError> {
        self.step.file += 1;
        let mut loading = BulkLoader::new(self.stores.secret_of(org));
        let mut loaded = Ok(());
        let read = loop {
            match self.read.recv() {
                Ok(RegistryPart::Series(mut sheet, bytes)) => {
                    self.report(bytes)?;
                    loaded = loaded.and_then(|()| loading.add(&mut sheet));
                    // Fails when enough sheets are waiting for reuse. The sheet is then dropped.
                    let _ = self.used_sheets.try_send(sheet);
                }
                Ok(RegistryPart::Metadata(body)) => {
                    self.report(body.len())?;
                    loaded = loaded.and_then(|()| loading.describe(&body));
                }
                Ok(RegistryPart::End(Some(read))) => break read?,
                // A reading thread that ended without the message has panicked, which the scope
                // reports.
                Ok(RegistryPart::End(None)) | Err(_) => return self.load_by_record(org, path),
            }
        };
        match (loaded.and_then(|()| loading.finish()), read) {
            (Ok((table, metadata)), ReadRegistry::Valid(end)) => {
                let store = self.stores.org_or_new(org);
                let records = end.bytes.saturating_sub(FILE_HEADER_BYTES as u64);
                store.usage.log_bytes.fetch_add(records, Ordering::Relaxed);
                let mut stored = store.table_mut();
                *stored = table;
                store.usage.record_table(&stored);
                drop(stored);
                *store.metadata_mut() = metadata;
                self.stores.settle_names(&store);
                Ok(ReadRegistry::Valid(end))
            }
            (_, damaged @ ReadRegistry::Damaged(_)) => Ok(damaged),
            (Err(NotBulkLoadable), _) => self.load_by_record(org, path),
        }
    }

    /// Reports a record that is about to be applied to the observer.
    fn report(&mut self, body_bytes: usize) -> Result<(), OpenError> {
        self.step.done = self.step.all.min(self.step.done + record_bytes(body_bytes) as u64);
        Ok(self.observer.report(&self.step)?)
    }

    /// Reads a registry record by record like the log. A bad record ends its reading.
    fn load_by_record(&mut self, org: OrgId, path: &Path) -> Result<ReadRegistry, OpenError> {
        let (store, stores) = (self.store, self.stores);
        let (mut scratch, mut seen) = (Vec::new(), Ok(()));
        let read = registry::read(path, store, org, &mut |kind, body| {
            seen = self.report(body.len());
            seen.is_ok() && stores.apply(Record::read(0, org, kind, body), &mut scratch, None).is_ok()
        })?;
        seen.map(|()| read)
    }
}
