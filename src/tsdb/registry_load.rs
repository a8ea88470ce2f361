//! The names that a start finds in registries, read by one thread while another puts what was read before into tables.
//!
//! A registry that is not as the store writes it is read once more, record by record in its order; what is kept of it and
//! what is said of it come from there.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::checkpoint::Folder;
use super::error::{DiskError, OpenError};
use super::open_progress::{Onlooker, Phase, Step};
use super::series::registry::{self, ReadRegistry};
use super::series::sheet::Sheet;
use super::series::table::load::{GivesUp, Loading};
use super::store::{Record, Stores};
use super::wal::record::{FILE_HEADER_BYTES, Kind, record_bytes};
use crate::model::{OrgId, StoreId};

/// Bodies between the threads; each has some 256 KiB, and a few times that as columns.
const AHEAD_MAX: usize = 2;

/// The registry of an organisation, and where it lies.
pub(super) type Registry = (OrgId, PathBuf);

/// What the reading thread found.
enum Piece {
    /// And how many bytes it was.
    Series(Box<Sheet>, usize),
    Metadata(Vec<u8>),
    /// The file is read; none: it is not as the store writes it.
    End(Option<Result<ReadRegistry, OpenError>>),
}

/// Reads registries into stores that are empty yet; answers what was found of each. The onlooker hears of each record.
///
/// # Errors
/// [`OpenError`] where a file cannot be read, or is another store's or a newer version's, or the onlooker ends it.
pub(super) fn load(
    folder: &Folder,
    stores: &Stores,
    registries: &[Registry],
    onlooker: &Onlooker,
) -> Result<Vec<ReadRegistry>, OpenError> {
    if registries.is_empty() {
        return Ok(Vec::new());
    }
    let mut step = Step { phase: Phase::Names, files: registries.len() as u64, ..Step::default() };
    for (_, path) in registries {
        step.all += std::fs::metadata(path).map_err(DiskError::at("look at", path))?.len();
    }
    let (pieces, read) = sync_channel(AHEAD_MAX);
    let (back, used) = sync_channel(AHEAD_MAX);
    // The ends go with the closure, so that the reader ends where this ends early.
    std::thread::scope(move |scope| {
        let reader = Reader { store: folder.store, pieces, used };
        std::thread::Builder::new()
            .name("names".to_owned())
            .spawn_scoped(scope, move || {
                // Who does not take it any more says why.
                let _ = registries.iter().try_for_each(|(org, path)| reader.send(*org, path));
            })
            .map_err(OpenError::Thread)?;
        let mut taker = Taker { store: folder.store, stores, read, back, onlooker, step };
        registries.iter().map(|(org, path)| taker.take(*org, path)).collect()
    })
}

/// Reads for another thread.
struct Reader {
    store: StoreId,
    pieces: SyncSender<Piece>,
    /// Sheets to be used again.
    used: Receiver<Box<Sheet>>,
}

impl Reader {
    /// Reads one registry. None: nobody takes it any more.
    fn send(&self, org: OrgId, path: &Path) -> Option<()> {
        let mut is_odd = false;
        let read = registry::read(path, self.store, org, &mut |kind, body| {
            let piece = self.piece(kind, body);
            is_odd |= piece.is_none();
            piece.is_some_and(|piece| self.pieces.send(piece).is_ok())
        });
        self.pieces.send(Piece::End((!is_odd).then_some(read))).ok()
    }

    fn piece(&self, kind: Kind, body: &[u8]) -> Option<Piece> {
        match kind {
            Kind::RegistrySeries => {
                let mut sheet = self.used.try_recv().unwrap_or_default();
                sheet.read(body).ok().map(|()| Piece::Series(sheet, body.len()))
            }
            Kind::RegistryMetadata => Some(Piece::Metadata(body.to_vec())),
            _ => None,
        }
    }
}

/// Puts into stores what was read.
struct Taker<'s> {
    store: StoreId,
    stores: &'s Stores,
    read: Receiver<Piece>,
    back: SyncSender<Box<Sheet>>,
    onlooker: &'s Onlooker,
    step: Step,
}

impl Taker<'_> {
    /// Takes one registry.
    fn take(&mut self, org: OrgId, path: &Path) -> Result<ReadRegistry, OpenError> {
        self.step.file += 1;
        let mut loading = Loading::new(self.stores.secret_of(org));
        let mut held = Ok(());
        let read = loop {
            match self.read.recv() {
                Ok(Piece::Series(mut sheet, bytes)) => {
                    self.see(bytes)?;
                    held = held.and_then(|()| loading.add(&mut sheet));
                    // Where there are enough of them it goes.
                    let _ = self.back.try_send(sheet);
                }
                Ok(Piece::Metadata(body)) => {
                    self.see(body.len())?;
                    held = held.and_then(|()| loading.describe(&body));
                }
                Ok(Piece::End(Some(read))) => break read?,
                // A reader that ended without a word has panicked, which the scope says.
                Ok(Piece::End(None)) | Err(_) => return self.one_by_one(org, path),
            }
        };
        match (held.and_then(|()| loading.finish()), read) {
            (Ok((table, metadata)), ReadRegistry::Valid(end)) => {
                let store = self.stores.org_or_new(org);
                let records = end.bytes.saturating_sub(FILE_HEADER_BYTES as u64);
                store.usage.log_bytes.fetch_add(records, Ordering::Relaxed);
                let mut held = store.table_mut();
                *held = table;
                store.usage.record_table(&held);
                drop(held);
                *store.metadata_mut() = metadata;
                self.stores.settle_names(&store);
                Ok(ReadRegistry::Valid(end))
            }
            (_, damaged @ ReadRegistry::Damaged(_)) => Ok(damaged),
            (Err(GivesUp), _) => self.one_by_one(org, path),
        }
    }

    /// Tells the onlooker of a record that is about to be taken.
    fn see(&mut self, body_bytes: usize) -> Result<(), OpenError> {
        self.step.done = self.step.all.min(self.step.done + record_bytes(body_bytes) as u64);
        Ok(self.onlooker.see(&self.step)?)
    }

    /// Reads a registry record by record, as the log is read: what is wrong with one ends it there.
    fn one_by_one(&mut self, org: OrgId, path: &Path) -> Result<ReadRegistry, OpenError> {
        let (store, stores) = (self.store, self.stores);
        let (mut scratch, mut seen) = (Vec::new(), Ok(()));
        let read = registry::read(path, store, org, &mut |kind, body| {
            seen = self.see(body.len());
            seen.is_ok() && stores.apply(Record::read(0, org, kind, body), &mut scratch, None).is_ok()
        })?;
        seen.map(|()| read)
    }
}
