//! The key of sealed secrets: the one that this store is bound to, or a new one if that is lost and
//! the operator asks for it (docs/storage.md section 17).

use crate::config::{MasterKeySetting, Settings};
use crate::entropy::Entropy;
use crate::identity::{Identity, master_key_mark};
use crate::kv::{Control, DataFolder, FolderError, KeyBinding, MasterKey, MasterKeySource, with_sources};
use crate::model::Timestamp;

use super::{ServerError, accounts};

/// The right master key, or one that replaces a lost one.
pub(super) enum Unlocked {
    /// The key opens the sealed secrets.
    Fits(MasterKey),
    /// The key does not. The sealed secrets are to be dropped and the store bound to this key.
    New(MasterKey),
}

impl Unlocked {
    pub(super) fn key(&self) -> MasterKey {
        match self {
            Unlocked::Fits(key) | Unlocked::New(key) => key.clone(),
        }
    }
}

/// Returns where the master key is read from: by default the folder.
///
/// # Errors
/// [`ServerError::MasterKey`] if the setting is not a key.
pub fn master_key_source(setting: Option<&MasterKeySetting>) -> Result<MasterKeySource, ServerError> {
    Ok(match setting {
        None => MasterKeySource::Folder,
        Some(MasterKeySetting::File(path)) => MasterKeySource::File(path.clone()),
        Some(MasterKeySetting::Value(value)) => MasterKeySource::Value(accounts::key_in_hex(value.reveal())?),
    })
}

/// Names the source of the key for people.
fn source_name(source: &MasterKeySource, folder: &DataFolder) -> String {
    match source {
        MasterKeySource::Folder => folder.path().join("master.key").display().to_string(),
        MasterKeySource::File(path) => path.display().to_string(),
        MasterKeySource::Value(_) => "PROMLET_MASTER_KEY".to_owned(),
    }
}

/// Reads the key and compares it with the one that the store is bound to. A wrong or missing key is
/// an error, except with `--new-master-key`. A key outside of the folder is never created here.
pub(super) fn unlock(
    settings: &Settings,
    folder: &DataFolder,
    control: &Control,
    now: Timestamp,
    rng: &mut Entropy,
) -> Result<Unlocked, ServerError> {
    let source = master_key_source(settings.master_key.as_ref())?;
    let source_name = source_name(&source, folder);
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
                    "--new-master-key: {source_name} is the right key, nothing is dropped; omit the option"
                );
            }
            Ok(Unlocked::Fits(key))
        }
        KeyBinding::Other if may_replace => Ok(Unlocked::New(folder.replace_master_key(now, rng)?)),
        // The operator provided this key, which becomes the master key.
        KeyBinding::Other if settings.new_master_key => Ok(Unlocked::New(key)),
        KeyBinding::Other => Err(ServerError::MasterKey(format!(
            "{source_name} is not the master key that the accounts in this folder were sealed with: put the right one back \
             (or start once with --new-master-key, which drops the sealed secrets)"
        ))),
    }
}

/// Drops the secrets that the lost key sealed, logs their owners, and binds the store to the new
/// key. The binding comes last: after an interruption the key still does not fit, and the next
/// start repeats this.
pub(super) fn adopt_new_key(
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
        tracing::warn!("new master key: {address} has lost the second factor and is logged out");
    }
    for key in &dropped.api_keys {
        tracing::warn!("new master key: embed tokens of API key {key} fail until it is rotated");
    }
    control
        .rebind_master_key(master_key_mark(key, folder.store_id()))
        .map_err(|e| failed("the new master key could not be recorded", &e))?;
    tracing::warn!(
        "new master key: {} second factors, the signing secrets of {} API keys, the addresses of {} public links and \
         {} links in mails are dropped; passwords, sessions, API keys and public links work as before",
        dropped.second_factors.len(),
        dropped.api_keys.len(),
        dropped.public_links,
        dropped.links
    );
    Ok(())
}
