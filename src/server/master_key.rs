//! The key that opens sealed secrets: the one that this store is bound to, or, where that is lost and the operator says so,
//! a new one (docs/storage.md section 17).

use crate::config::{MasterKeySource as KeySetting, Settings};
use crate::entropy::Entropy;
use crate::identity::{Identity, master_key_mark};
use crate::kv::{Control, DataFolder, FolderError, KeyBinding, MasterKey, MasterKeySource, with_sources};
use crate::model::Timestamp;

use super::{ServerError, accounts};

/// A key that fits, or one that is to replace a lost one.
pub(super) enum Unlocked {
    /// What is sealed opens.
    Fits(MasterKey),
    /// What is sealed does not: it is to be dropped, and then the store bound to this key.
    New(MasterKey),
}

impl Unlocked {
    pub(super) fn key(&self) -> MasterKey {
        match self {
            Unlocked::Fits(key) | Unlocked::New(key) => key.clone(),
        }
    }
}

/// Where the server takes the master key from; without a setting, from the folder.
///
/// # Errors
/// [`ServerError::MasterKey`] where the setting is no key.
pub fn master_key_source(setting: Option<&KeySetting>) -> Result<MasterKeySource, ServerError> {
    Ok(match setting {
        None => MasterKeySource::Folder,
        Some(KeySetting::File(path)) => MasterKeySource::File(path.clone()),
        Some(KeySetting::Value(value)) => MasterKeySource::Value(accounts::key_in_hex(value.reveal())?),
    })
}

/// Where the key comes from, for people.
fn place(source: &MasterKeySource, folder: &DataFolder) -> String {
    match source {
        MasterKeySource::Folder => folder.path().join("master.key").display().to_string(),
        MasterKeySource::File(path) => path.display().to_string(),
        MasterKeySource::Value(_) => "PROMLET_MASTER_KEY".to_owned(),
    }
}

/// Reads the key and compares it with what the store is bound to. Only with `--new-master-key` does anything but the right
/// key come to more than an error; a key that lies elsewhere is never made here.
pub(super) fn unlock(
    settings: &Settings,
    folder: &DataFolder,
    control: &Control,
    now: Timestamp,
    rng: &mut Entropy,
) -> Result<Unlocked, ServerError> {
    let source = master_key_source(settings.master_key.as_ref())?;
    let place = place(&source, folder);
    let may_replace = settings.new_master_key && source == MasterKeySource::Folder;
    let key = match folder.master_key(&source, rng) {
        Err(FolderError::MasterKeyMissing { .. } | FolderError::MasterKeyShape { .. }) if may_replace => {
            return Ok(Unlocked::New(folder.replace_master_key(now, rng)?));
        }
        read => read?,
    };
    let bound = control.bind_master_key(master_key_mark(&key, folder.store_id()));
    match bound
        .map_err(|error| ServerError::MasterKey(format!("the master key cannot be checked: {error}")))?
    {
        KeyBinding::First | KeyBinding::Same => {
            if settings.new_master_key {
                tracing::warn!(
                    "--new-master-key: {place} is the right key, nothing is dropped; start without it"
                );
            }
            Ok(Unlocked::Fits(key))
        }
        KeyBinding::Other if may_replace => Ok(Unlocked::New(folder.replace_master_key(now, rng)?)),
        // The operator put a key there: it is the new one.
        KeyBinding::Other if settings.new_master_key => Ok(Unlocked::New(key)),
        KeyBinding::Other => Err(ServerError::MasterKey(format!(
            "{place} is not the master key that the accounts in this folder were sealed with: put the right one back \
             (or start once with --new-master-key, which drops what was sealed)"
        ))),
    }
}

/// Drops what the lost key sealed, says whose it was, and binds the store to the new one: last, so that a start that ends
/// before is none that the key fits.
pub(super) fn begin_anew(
    identity: &Identity,
    folder: &DataFolder,
    control: &Control,
    key: &MasterKey,
    now: Timestamp,
) -> Result<(), ServerError> {
    let failed = |what: &str, error: &dyn std::error::Error| {
        ServerError::MasterKey(format!("{what}: {}; start again with --new-master-key", with_sources(error)))
    };
    let dropped =
        identity.drop_sealed(now).map_err(|e| failed("not all sealed secrets could be dropped", &e))?;
    for address in &dropped.second_factors {
        tracing::warn!("new master key: {address} has no second factor any more, and is logged out");
    }
    for key in &dropped.api_keys {
        tracing::warn!("new master key: embed tokens of API key {key} fail until it is rotated");
    }
    control
        .rebind_master_key(master_key_mark(key, folder.store_id()))
        .map_err(|e| failed("the new master key could not be noted", &e))?;
    tracing::warn!(
        "new master key: {} second factors, the signing secrets of {} API keys and {} links in mails are dropped; \
         passwords, sessions and API keys work as before",
        dropped.second_factors.len(),
        dropped.api_keys.len(),
        dropped.links
    );
    Ok(())
}
