//! The first account, and the accounts of the demo.

use std::time::Duration;

use crate::api::views::link::sign_in_url;
use crate::config::BootstrapSetting;
use crate::entropy::Entropy;
use crate::identity::{
    Bootstrap, DashboardDocument, DashboardError, DashboardWrite, DocumentError, EmbedSettings, Identity,
    IngestSettings, KeyError, KeyId, KeyScopes, MintError, MintRequest, NewApiKey, Password, ReadSettings,
    Secret, SetUpError, StoreError, UserId,
};
use crate::model::{OrgId, Timestamp};

use super::{Server, ServerError};

/// How the first account is created, if there is none.
#[derive(Debug)]
pub enum FirstAccount {
    /// There is an account already.
    Exists,
    /// The account that the environment describes was created.
    Made {
        /// The address.
        email: String,
        /// The slug of the organisation it owns.
        org: String,
    },
    /// There is no account. This token, in the printed link, creates it.
    SetupToken(Secret),
}

/// The reason why accounts could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The first account was not created.
    #[error("the first account was not created")]
    SetUp(#[from] SetUpError),
    /// The account store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The API key was not created.
    #[error("the API key was not created")]
    Key(#[from] KeyError),
    /// The embed token was not minted.
    #[error("the embed token was not minted")]
    Mint(#[from] MintError),
    /// A built-in dashboard does not fit this server.
    #[error("a built-in dashboard was not read")]
    Document(#[from] DocumentError),
    /// A built-in dashboard was not stored.
    #[error("a built-in dashboard was not stored")]
    Dashboard(#[from] DashboardError),
    /// The folder belongs to another installation, and the demo does not mix with it.
    #[error(
        "the folder has accounts but no organisation {0:?}: give the demo a folder of its own (--data-dir)"
    )]
    NotADemo(String),
}

/// The owner, the organisation and the API key of the demo.
#[derive(Clone, Copy, Debug)]
pub struct DemoAccount {
    /// The account that signs in.
    pub user: UserId,
    /// The organisation that owns the series.
    pub org: OrgId,
    /// The API key that signs embed tokens.
    pub key: KeyId,
}

impl Server {
    /// Creates the first account if the environment describes one, otherwise a setup token.
    ///
    /// # Errors
    /// [`AccountError`] if the account that the environment describes is not acceptable.
    pub fn first_account(&self, rng: &mut Entropy) -> Result<FirstAccount, AccountError> {
        if !self.identity.needs_setup() {
            return Ok(FirstAccount::Exists);
        }
        let now = self.clock.now();
        let Some(BootstrapSetting { email, password, org }) = &self.settings.bootstrap else {
            return Ok(FirstAccount::SetupToken(self.identity.issue_setup_token(rng)));
        };
        let request = Bootstrap { email, password: Password(password.reveal()), org };
        self.identity.bootstrap(&request, now, rng)?;
        Ok(FirstAccount::Made { email: email.clone(), org: org.clone() })
    }

    /// Returns the account of the demo. In a new folder it is created with a random password that
    /// is discarded.
    ///
    /// # Errors
    /// [`AccountError`].
    pub fn demo_account(
        &self,
        email: &str,
        slug: &str,
        rng: &mut Entropy,
    ) -> Result<DemoAccount, AccountError> {
        let now = self.clock.now();
        if self.identity.needs_setup() {
            let password = data_encoding::BASE32_NOPAD.encode(&rng.bytes::<24>());
            self.identity.bootstrap(
                &Bootstrap { email, password: Password(&password), org: slug },
                now,
                rng,
            )?;
        }
        let not_a_demo = || AccountError::NotADemo(slug.to_owned());
        let address = crate::identity::Email::parse(email).map_err(|_| not_a_demo())?;
        let user = self.identity.user_by_email(&address)?.ok_or_else(not_a_demo)?.id;
        let org = self.identity.membership(user, slug)?.ok_or_else(not_a_demo)?.org.id;
        let key = demo_key(&self.identity, org, user, now, rng)?;
        Ok(DemoAccount { user, org, key })
    }

    /// Stores built-in dashboards in `org`, except those that it has. `paths` are paths of
    /// files of the UI.
    ///
    /// # Errors
    /// [`AccountError`].
    pub fn add_dashboards(&self, org: OrgId, paths: &[&str]) -> Result<(), AccountError> {
        let now = self.clock.now();
        for path in paths {
            let file = crate::ui::file(path).expect("a built-in dashboard is a file of the UI");
            let text = String::from_utf8_lossy(&file.bytes).into_owned();
            let packed = DashboardDocument::parse(text).and_then(DashboardDocument::pack)?;
            let write = DashboardWrite { packed, folder: None, message: "Built-in dashboard".to_owned() };
            match self.identity.create_dashboard(org, None, write, now, &mut Entropy::system()) {
                Ok(_) | Err(DashboardError::Exists(_) | DashboardError::Provisioned(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns a link that signs `user` in once and redirects to `path` of this server.
    ///
    /// # Errors
    /// [`AccountError::Store`].
    pub fn sign_in_link(&self, user: UserId, path: &str, rng: &mut Entropy) -> Result<String, AccountError> {
        let link = self.identity.issue_login_link(user, Some(path.to_owned()), self.clock.now(), rng)?;
        Ok(sign_in_url(&self.public_url(), link.token.expose()))
    }

    /// Returns an embed token that reads all of `org`.
    ///
    /// # Errors
    /// [`AccountError::Mint`].
    pub fn embed_token(&self, org: OrgId, key: KeyId, ttl: Duration) -> Result<String, AccountError> {
        let ttl_s = u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX);
        let minted =
            self.identity.mint(org, &MintRequest { key, ttl_s, sub: None, ms: None }, self.clock.now())?;
        Ok(minted.token.expose().to_owned())
    }
}

/// Returns the API key named `demo`, which can sign tokens of a day, and creates it if necessary.
fn demo_key(
    identity: &Identity,
    org: OrgId,
    user: UserId,
    now: Timestamp,
    rng: &mut Entropy,
) -> Result<KeyId, AccountError> {
    const NAME: &str = "demo";
    if let Some(key) =
        identity.keys(org).iter().find(|key| key.name == NAME && key.scopes.embed && !key.disabled)
    {
        return Ok(key.id);
    }
    let key = NewApiKey {
        name: NAME.into(),
        scopes: KeyScopes { read: true, embed: true, ..KeyScopes::default() },
        expires_at: None,
        embed: EmbedSettings { max_token_ttl_s: 86_400, ..EmbedSettings::default() },
        ingest: IngestSettings::default(),
        read: ReadSettings::default(),
    };
    Ok(identity.create_key(org, Some(user), key, now, rng)?.key.id)
}

/// Converts `PROMLET_MASTER_KEY`, 32 bytes in base64, to the hexadecimal form of the folder's file
/// and of `kv`.
pub(super) fn key_in_hex(base64: &str) -> Result<String, ServerError> {
    let bytes = data_encoding::BASE64.decode(base64.trim().as_bytes()).ok().filter(|bytes| bytes.len() == 32);
    let bytes =
        bytes.ok_or_else(|| ServerError::MasterKey("PROMLET_MASTER_KEY is not 32 bytes in base64".into()))?;
    Ok(data_encoding::HEXLOWER.encode(&bytes))
}
