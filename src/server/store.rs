//! A data folder opened for one command, without accounts in memory and without listening.

use std::path::Path;
use std::sync::{Arc, Mutex};

use super::ServerError;
use super::admin::{Answering, Sealed, Stage, Staged};
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::identity::USERS_TABLE;
use crate::kv::{Control, ControlOptions, DataFolder, FolderError, with_sources};
use crate::tsdb::{self, Tsdb};

/// The stopped server's folder, open.
pub struct OpenStore {
    answering: Answering,
}

impl OpenStore {
    /// Opens the folder of a stopped server. One that holds no store is refused and left as it is.
    ///
    /// # Errors
    /// [`ServerError`]; [`FolderError::InUse`] when a server runs on it.
    pub fn open(dir: &Path, clock: Clock) -> Result<OpenStore, ServerError> {
        if !dir.join("STORE").exists() {
            return Err(FolderError::NoStore { path: dir.to_owned() }.into());
        }
        let mut rng = Entropy::system();
        let now = clock.now();
        let folder = Arc::new(DataFolder::open(dir, now, &mut rng)?);
        let options = ControlOptions { now, users_table: USERS_TABLE };
        let control = Arc::new(Control::open(&folder, &options)?.0);
        let home = tsdb::Home { dir: folder.path(), store: folder.store_id(), control: Arc::clone(&control) };
        let (tsdb, _) = Tsdb::open(home, tsdb::Options::default(), &mut rng, now)?;
        let (tsdb, backing_up) = (Arc::new(tsdb), Mutex::new(()));
        Ok(OpenStore { answering: Answering { folder, control, tsdb, clock, backing_up } })
    }

    /// Seals everything now.
    ///
    /// # Errors
    /// In words.
    pub fn seal(&self) -> Result<Sealed, String> {
        let done =
            self.answering.tsdb.seal_and_merge(self.answering.clock.now()).map_err(|e| with_sources(&e))?;
        Ok(Sealed { segments: done.segments, samples: done.samples })
    }

    /// Sets a state aside for a backup, for as long as `copy` runs.
    ///
    /// # Errors
    /// In words, or what `copy` says.
    pub fn with_stage<T, E: From<String>>(
        &self,
        with_key: bool,
        copy: impl FnOnce(&Staged) -> Result<T, E>,
    ) -> Result<T, E> {
        let (stage, answer) = Stage::make(&self.answering, with_key)?;
        let staged: Staged = serde_json::from_value(answer).map_err(|e| E::from(e.to_string()))?;
        let copied = copy(&staged);
        drop(stage);
        copied
    }

    /// Closes the folder in order.
    ///
    /// # Errors
    /// [`ServerError`]; what was sealed stays sealed.
    pub fn close(self) -> Result<(), ServerError> {
        let Answering { folder, control, tsdb, clock, .. } = self.answering;
        tsdb.close();
        drop(tsdb);
        Arc::try_unwrap(control).map_err(|_| ServerError::StillInUse("accounts"))?.close()?;
        let folder = Arc::try_unwrap(folder).map_err(|_| ServerError::StillInUse("the data folder"))?;
        Ok(folder.close_clean(clock.now())?)
    }
}
