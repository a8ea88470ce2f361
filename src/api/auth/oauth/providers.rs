//! The configured sign-in providers, and the requests to them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::api::auth::AuthDeps;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::Lane;
use crate::identity::{
    Admission, Email, ExternalAccount, IdTokenCheck, IdTokenError, OauthAttempt, OauthError, Profile,
    Provider, admission, verify_id_token,
};
use crate::model::Timestamp;
use crate::outbound::{Authorization, OidcClient, ProviderClient, ProviderError, Tokens};

/// Google, or another OpenID Connect issuer.
#[derive(Debug)]
pub struct OpenId {
    /// The client of the issuer.
    pub client: OidcClient,
    /// The rules for which of its accounts may sign in.
    pub admission: Admission,
    /// The name on the sign-in button.
    pub name: String,
}

/// The client of a configured provider, by its protocol.
#[derive(Debug)]
pub enum SignInClient {
    /// OpenID Connect.
    OpenId(Box<OpenId>),
    /// A protocol of the provider's own.
    Own(Box<dyn ProviderClient>),
}

/// The configured providers; none by default.
#[derive(Clone, Debug, Default)]
pub struct Providers(HashMap<Provider, Arc<SignInClient>>);

/// A configured provider.
#[derive(Clone, Copy)]
pub(super) struct Configured<'a> {
    provider: Provider,
    client: &'a SignInClient,
}

impl Providers {
    /// Adds a provider.
    #[must_use]
    pub fn with(mut self, provider: Provider, client: SignInClient) -> Providers {
        self.0.insert(provider, Arc::new(client));
        self
    }

    /// Returns the provider that a path names.
    ///
    /// # Errors
    /// 404 `provider_not_configured`, also for an unknown name.
    pub(super) fn find(&self, name: &str) -> ApiResult<Configured<'_>> {
        let found = Provider::parse(name).and_then(|provider| self.get(provider));
        found.ok_or_else(|| {
            ApiError::new(Code::ProviderNotConfigured, "this server does not know this provider")
        })
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Configured<'_>> {
        Provider::ALL.into_iter().filter_map(|provider| self.get(provider))
    }

    fn get(&self, provider: Provider) -> Option<Configured<'_>> {
        self.0.get(&provider).map(|client| Configured { provider, client })
    }
}

impl<'a> Configured<'a> {
    pub(super) const fn provider(self) -> Provider {
        self.provider
    }

    pub(super) fn name(self) -> &'a str {
        match self.client {
            SignInClient::OpenId(open_id) => &open_id.name,
            SignInClient::Own(client) => client.name(),
        }
    }

    pub(super) async fn authorize_url(self, sent: Authorization<'_>, now: Timestamp) -> ApiResult<String> {
        match self.client {
            SignInClient::OpenId(open_id) => Ok(open_id.client.authorize_url(sent, now).await?),
            SignInClient::Own(client) => Ok(client.authorize_url(sent)),
        }
    }

    /// Returns whether `issuer` in a response names this provider (RFC 9207).
    pub(super) fn is_issuer(self, issuer: &str) -> bool {
        match self.client {
            SignInClient::OpenId(open_id) => issuer == open_id.client.issuer(),
            SignInClient::Own(client) => client.is_issuer(issuer),
        }
    }

    /// Returns whether every response of this provider names its issuer.
    pub(super) async fn names_itself(self, now: Timestamp) -> ApiResult<bool> {
        match self.client {
            SignInClient::OpenId(open_id) => Ok(open_id.client.names_itself(now).await?),
            SignInClient::Own(_) => Ok(false),
        }
    }

    /// Redeems a code and returns the account that it belongs to, if that may sign in.
    pub(super) async fn redeem(
        self,
        deps: &AuthDeps,
        code: &str,
        attempt: &OauthAttempt,
        now: Timestamp,
    ) -> ApiResult<ExternalAccount> {
        let redirect_uri = deps.callback_url(self);
        let verifier = attempt.verifier.expose();
        match self.client {
            SignInClient::Own(client) => {
                let found = client.account(code, verifier, &redirect_uri).await?;
                let email = found.verified_email.as_deref().and_then(|text| Email::parse(text).ok());
                if found.in_allowed_org == Some(false) {
                    return Err(OauthError::DomainNotAllowed.into());
                }
                Ok(ExternalAccount {
                    provider: self.provider,
                    issuer: client.issuer().to_owned(),
                    subject: found.id,
                    email_verified: email.is_some(),
                    email_trusted: email.is_some(),
                    email,
                    name: found.name,
                    welcome: found.in_allowed_org == Some(true),
                })
            }
            SignInClient::OpenId(open_id) => {
                let tokens = open_id.client.redeem(code, verifier, &redirect_uri, now).await?;
                let tokens = Arc::new(tokens);
                let mut profile = open_id.verify(deps, &tokens, attempt, now).await?;
                if profile.email.is_none() {
                    profile = open_id.with_userinfo(&tokens, profile, now).await?;
                }
                Ok(admission(self.provider, open_id.client.issuer(), &profile, &open_id.admission)?)
            }
        }
    }
}

impl OpenId {
    /// Verifies an ID token. If it names an unknown key, fetches the keys again and retries once.
    async fn verify(
        &self,
        deps: &AuthDeps,
        tokens: &Arc<Tokens>,
        attempt: &OauthAttempt,
        now: Timestamp,
    ) -> ApiResult<Profile> {
        let no_keys = || ApiError::internal("the cached keys of an issuer are missing");
        let keys = self.client.keys(None, now).await?.ok_or_else(no_keys)?;
        let newer = match self.verify_with(deps, &keys, tokens, attempt, now).await? {
            Ok(profile) => return Ok(profile),
            Err(IdTokenError::UnknownKey) => self.client.keys(Some(&keys), now).await?,
            Err(refused) => return Err(refused.into()),
        };
        let newer = newer.ok_or(IdTokenError::UnknownKey)?;
        Ok(self.verify_with(deps, &newer, tokens, attempt, now).await??)
    }

    /// Verifies an ID token on a lane, because checking a signature takes long.
    async fn verify_with(
        &self,
        deps: &AuthDeps,
        keys: &Arc<str>,
        tokens: &Arc<Tokens>,
        attempt: &OauthAttempt,
        now: Timestamp,
    ) -> ApiResult<Result<Profile, IdTokenError>> {
        let (keys, tokens, nonce) = (Arc::clone(keys), Arc::clone(tokens), attempt.nonce.clone());
        let (issuer, client_id) = (self.client.issuer().to_owned(), self.client.client_id().to_owned());
        let verify = move || {
            let check = IdTokenCheck {
                token: &tokens.id_token,
                keys: &keys,
                issuer: &issuer,
                client_id: &client_id,
                nonce: nonce.expose(),
                access_token: &tokens.access_token,
            };
            verify_id_token(&check, now)
        };
        deps.lanes.run(Lane::Account, verify).await
    }

    /// Adds the profile from the userinfo endpoint, because issuers need not put it into ID tokens.
    /// The user info must be about the same subject.
    async fn with_userinfo(&self, tokens: &Tokens, known: Profile, now: Timestamp) -> ApiResult<Profile> {
        let Some(profile) = self.client.userinfo(tokens, now).await? else { return Ok(known) };
        let profile: Profile = serde_json::from_value(profile)
            .map_err(|error| ProviderError::Misbehaved(format!("userinfo endpoint: {error}")))?;
        if profile.sub != known.sub {
            return Err(ProviderError::Misbehaved("userinfo endpoint: another subject".into()).into());
        }
        Ok(profile)
    }
}
