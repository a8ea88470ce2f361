//! The clients of the configured sign-in providers.

use super::ServerError;
use crate::api::auth::oauth::{OpenId, Providers, SignInClient};
use crate::config::{OauthClient, OauthSettings};
use crate::identity::{Admission, Provider};
use crate::outbound::{GithubClient, GithubOptions, HttpsOptions, OidcClient, OidcOptions};

/// Google's issuer, which is not configurable.
const GOOGLE: &str = "https://accounts.google.com";

/// Creates the client of a provider without contacting it; `None` if it is not configured.
type Constructor = fn(&OauthSettings) -> Result<Option<SignInClient>, ServerError>;

/// Returns the constructor of a provider's client.
fn constructor(provider: Provider) -> Constructor {
    match provider {
        Provider::Google => google,
        Provider::GitHub => github,
        Provider::Oidc => oidc,
    }
}

/// Creates a client for each configured provider, without contacting it.
pub(super) fn providers(settings: &OauthSettings) -> Result<Providers, ServerError> {
    let mut providers = Providers::default();
    for provider in Provider::ALL {
        if let Some(client) = constructor(provider)(settings)? {
            providers = providers.with(provider, client);
        }
    }
    Ok(providers)
}

fn google(settings: &OauthSettings) -> Result<Option<SignInClient>, ServerError> {
    let Some(google) = &settings.google else { return Ok(None) };
    let options = openid_options(GOOGLE, &google.client, "openid email profile", HttpsOptions::default());
    let admission = Admission { domains: google.allowed_domains.clone(), trust_email: false };
    openid(options, admission, "Google").map(Some)
}

fn github(settings: &OauthSettings) -> Result<Option<SignInClient>, ServerError> {
    let Some(github) = &settings.github else { return Ok(None) };
    let options = GithubOptions {
        client_id: github.client.id.clone(),
        client_secret: github.client.secret.reveal().to_owned(),
        base_url: github.base_url.clone(),
        api_url: github.api_url.clone(),
        allowed_orgs: github.allowed_orgs.clone(),
        https: HttpsOptions::default(),
    };
    let client = GithubClient::new(options).map_err(ServerError::Oauth)?;
    Ok(Some(SignInClient::Own(Box::new(client))))
}

fn oidc(settings: &OauthSettings) -> Result<Option<SignInClient>, ServerError> {
    let Some(oidc) = &settings.oidc else { return Ok(None) };
    let read = |path| {
        let why = |error| ServerError::Oauth(format!("PROMLET_OAUTH_OIDC_CA_FILE: {error}"));
        std::fs::read(path).map_err(why)
    };
    let more_roots = oidc.ca_file.as_ref().map(read).transpose()?;
    let https = HttpsOptions { more_roots, ..HttpsOptions::default() };
    let options = openid_options(&oidc.issuer, &oidc.client, &oidc.scopes, https);
    let admission = Admission { domains: oidc.allowed_domains.clone(), trust_email: oidc.trust_email };
    openid(options, admission, &oidc.name).map(Some)
}

fn openid_options(issuer: &str, client: &OauthClient, scopes: &str, https: HttpsOptions) -> OidcOptions {
    OidcOptions {
        issuer: issuer.to_owned(),
        client_id: client.id.clone(),
        client_secret: client.secret.reveal().to_owned(),
        scopes: scopes.to_owned(),
        https,
    }
}

fn openid(options: OidcOptions, admission: Admission, name: &str) -> Result<SignInClient, ServerError> {
    let client = OidcClient::new(options).map_err(ServerError::Oauth)?;
    Ok(SignInClient::OpenId(Box::new(OpenId { client, admission, name: name.to_owned() })))
}
