//! The clients of the configured sign-in providers.

use std::sync::Arc;

use super::ServerError;
use crate::api::auth::oauth::{Github, OpenId, Providers};
use crate::config::{OauthClient, OauthSettings};
use crate::identity::Admission;
use crate::outbound::{GithubClient, GithubOptions, HttpsOptions, OidcClient, OidcOptions};

/// Google's issuer, which is not configurable.
const GOOGLE: &str = "https://accounts.google.com";

/// Creates a client for each configured provider, without contacting it.
pub(super) fn providers(settings: &OauthSettings) -> Result<Providers, ServerError> {
    let mut providers = Providers::default();
    if let Some(google) = &settings.google {
        let options = openid_options(GOOGLE, &google.client, "openid email profile", HttpsOptions::default());
        let admission = Admission { domains: google.allowed_domains.clone(), trust_email: false };
        providers.google = Some(openid(options, admission, "Google")?);
    }
    if let Some(github) = &settings.github {
        let options = GithubOptions {
            client_id: github.client.id.clone(),
            client_secret: github.client.secret.reveal().to_owned(),
            base_url: github.base_url.clone(),
            api_url: github.api_url.clone(),
            allowed_orgs: github.allowed_orgs.clone(),
            https: HttpsOptions::default(),
        };
        let client = GithubClient::new(options).map_err(ServerError::Oauth)?;
        providers.github = Some(Arc::new(Github { client }));
    }
    if let Some(oidc) = &settings.oidc {
        let read = |path| {
            let why = |error| ServerError::Oauth(format!("PROMLET_OAUTH_OIDC_CA_FILE: {error}"));
            std::fs::read(path).map_err(why)
        };
        let more_roots = oidc.ca_file.as_ref().map(read).transpose()?;
        let https = HttpsOptions { more_roots, ..HttpsOptions::default() };
        let options = openid_options(&oidc.issuer, &oidc.client, &oidc.scopes, https);
        let admission = Admission { domains: oidc.allowed_domains.clone(), trust_email: oidc.trust_email };
        providers.oidc = Some(openid(options, admission, &oidc.name)?);
    }
    Ok(providers)
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

fn openid(options: OidcOptions, admission: Admission, name: &str) -> Result<Arc<OpenId>, ServerError> {
    let client = OidcClient::new(options).map_err(ServerError::Oauth)?;
    Ok(Arc::new(OpenId { client, admission, name: name.to_owned() }))
}
