//! The settings of sign-in providers: `PROMLET_OAUTH_*` (docs/specification.md E).

use std::path::PathBuf;

use clap::Args;

use super::{ConfigError, SecretSetting, secret, tidy_list};

/// The credentials of this server at a provider.
#[derive(Debug, Clone)]
pub struct OauthClient {
    /// The client id.
    pub id: String,
    /// The client secret.
    pub secret: SecretSetting,
}

/// Sign-in with Google.
#[derive(Debug, Clone)]
pub struct GoogleSetting {
    /// The credentials at Google.
    pub client: OauthClient,
    /// The domains whose accounts may sign in; empty for all.
    pub allowed_domains: Vec<String>,
}

/// Sign-in with GitHub.
#[derive(Debug, Clone)]
pub struct GithubSetting {
    /// The credentials at GitHub.
    pub client: OauthClient,
    /// `https://github.com`, or an Enterprise server.
    pub base_url: String,
    /// `https://api.github.com`, or an Enterprise server's `/api/v3`.
    pub api_url: String,
    /// The organisations whose members may sign in; empty for everyone.
    pub allowed_orgs: Vec<String>,
}

/// Sign-in with an OpenID Connect issuer.
#[derive(Debug, Clone)]
pub struct OidcSetting {
    /// The credentials at the issuer.
    pub client: OauthClient,
    /// The issuer, exactly as its discovery document names it.
    pub issuer: String,
    /// The name on the sign-in button.
    pub name: String,
    /// The scopes to request, separated by spaces.
    pub scopes: String,
    /// The domains whose accounts may sign in; empty for all.
    pub allowed_domains: Vec<String>,
    /// Whether its statement that an address is verified opens existing accounts.
    pub trust_email: bool,
    /// A PEM file of certificates to trust in addition to those of public authorities.
    pub ca_file: Option<PathBuf>,
}

/// The configured providers.
#[derive(Debug, Clone, Default)]
pub struct OauthSettings {
    /// Google.
    pub google: Option<GoogleSetting>,
    /// GitHub.
    pub github: Option<GithubSetting>,
    /// Any OpenID Connect issuer.
    pub oidc: Option<OidcSetting>,
}

#[derive(Args, Clone)]
pub(super) struct OauthFlags {
    /// Sign-in with Google: the client id; the secret is PROMLET_OAUTH_GOOGLE_CLIENT_SECRET
    #[arg(long, env = "PROMLET_OAUTH_GOOGLE_CLIENT_ID", value_name = "ID")]
    oauth_google_client_id: Option<String>,
    /// Only Google accounts of these domains may sign in and create an account
    #[arg(
        long,
        env = "PROMLET_OAUTH_GOOGLE_ALLOWED_DOMAINS",
        value_name = "DOMAIN,..",
        value_delimiter = ','
    )]
    oauth_google_allowed_domains: Vec<String>,
    /// Sign-in with GitHub: the client id; the secret is PROMLET_OAUTH_GITHUB_CLIENT_SECRET
    #[arg(long, env = "PROMLET_OAUTH_GITHUB_CLIENT_ID", value_name = "ID")]
    oauth_github_client_id: Option<String>,
    /// The URL of a GitHub Enterprise server
    #[arg(
        long,
        env = "PROMLET_OAUTH_GITHUB_BASE_URL",
        value_name = "URL",
        default_value = "https://github.com"
    )]
    oauth_github_base_url: String,
    /// The URL of the GitHub server's API
    #[arg(
        long,
        env = "PROMLET_OAUTH_GITHUB_API_URL",
        value_name = "URL",
        default_value = "https://api.github.com"
    )]
    oauth_github_api_url: String,
    /// Only members of these GitHub organisations may sign in and create an account
    #[arg(long, env = "PROMLET_OAUTH_GITHUB_ALLOWED_ORGS", value_name = "ORG,..", value_delimiter = ',')]
    oauth_github_allowed_orgs: Vec<String>,
    /// Sign-in with an OpenID Connect issuer: its exact URL
    #[arg(long, env = "PROMLET_OAUTH_OIDC_ISSUER", value_name = "URL")]
    oauth_oidc_issuer: Option<String>,
    /// The client id at the issuer; the secret is PROMLET_OAUTH_OIDC_CLIENT_SECRET
    #[arg(long, env = "PROMLET_OAUTH_OIDC_CLIENT_ID", value_name = "ID")]
    oauth_oidc_client_id: Option<String>,
    /// The name on the sign-in button
    #[arg(long, env = "PROMLET_OAUTH_OIDC_NAME", value_name = "NAME", default_value = "OpenID Connect")]
    oauth_oidc_name: String,
    /// The scopes to request
    #[arg(
        long,
        env = "PROMLET_OAUTH_OIDC_SCOPES",
        value_name = "SCOPE ..",
        default_value = "openid email profile"
    )]
    oauth_oidc_scopes: String,
    /// Only accounts of these mail domains may sign in and create an account
    #[arg(long, env = "PROMLET_OAUTH_OIDC_ALLOWED_DOMAINS", value_name = "DOMAIN,..", value_delimiter = ',')]
    oauth_oidc_allowed_domains: Vec<String>,
    /// Trust the issuer's claim `email_verified`, so that a sign-in opens the existing account with
    /// that address. Only for issuers that verify or assign every address
    #[arg(long, env = "PROMLET_OAUTH_OIDC_TRUST_EMAIL", value_name = "0|1", default_value = "0", value_parser = zero_one,
          action = clap::ArgAction::Set)]
    oauth_oidc_trust_email: bool,
    /// Certificates (PEM) of the authority that signed the issuer's certificate
    #[arg(long, env = "PROMLET_OAUTH_OIDC_CA_FILE", value_name = "FILE")]
    oauth_oidc_ca_file: Option<PathBuf>,
}

fn zero_one(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err("either 0 or 1".into()),
    }
}

/// Combines the flags with the secrets that belong to them.
pub(super) fn settings(flags: OauthFlags) -> Result<OauthSettings, ConfigError> {
    let google = client("GOOGLE", flags.oauth_google_client_id)?.map(|client| GoogleSetting {
        client,
        allowed_domains: tidy_list(flags.oauth_google_allowed_domains),
    });
    let github = client("GITHUB", flags.oauth_github_client_id)?.map(|client| GithubSetting {
        client,
        base_url: flags.oauth_github_base_url,
        api_url: flags.oauth_github_api_url,
        allowed_orgs: tidy_list(flags.oauth_github_allowed_orgs),
    });
    let oidc = match (client("OIDC", flags.oauth_oidc_client_id)?, flags.oauth_oidc_issuer) {
        (None, None) => None,
        (Some(client), Some(issuer)) => Some(OidcSetting {
            client,
            issuer: issuer.trim().to_owned(),
            name: flags.oauth_oidc_name,
            scopes: flags.oauth_oidc_scopes,
            allowed_domains: tidy_list(flags.oauth_oidc_allowed_domains),
            trust_email: flags.oauth_oidc_trust_email,
            ca_file: flags.oauth_oidc_ca_file,
        }),
        _ => {
            return Err(ConfigError::Settings(
                "sign-in by OpenID Connect needs PROMLET_OAUTH_OIDC_ISSUER, PROMLET_OAUTH_OIDC_CLIENT_ID and \
                 PROMLET_OAUTH_OIDC_CLIENT_SECRET"
                    .into(),
            ));
        }
    };
    if oidc.as_ref().is_some_and(|oidc| !oidc.scopes.split(' ').any(|scope| scope == "openid")) {
        return Err(ConfigError::Settings("PROMLET_OAUTH_OIDC_SCOPES must contain openid".into()));
    }
    Ok(OauthSettings { google, github, oidc })
}

/// Returns the variable that holds the client secret at a provider.
pub(super) fn secret_name(provider: &str) -> String {
    format!("PROMLET_OAUTH_{provider}_CLIENT_SECRET")
}

/// Returns the credentials at a provider; `None` if neither half is set.
fn client(provider: &str, id: Option<String>) -> Result<Option<OauthClient>, ConfigError> {
    let name = secret_name(provider);
    match (id, secret(&name)?) {
        (None, None) => Ok(None),
        (Some(id), Some(secret)) => Ok(Some(OauthClient { id: id.trim().to_owned(), secret })),
        (Some(_), None) => Err(ConfigError::Settings(format!(
            "PROMLET_OAUTH_{provider}_CLIENT_ID is set: set the secret with {name} or {name}_FILE"
        ))),
        (None, Some(_)) => Err(ConfigError::Settings(format!(
            "{name} is set: set the client id with PROMLET_OAUTH_{provider}_CLIENT_ID"
        ))),
    }
}
