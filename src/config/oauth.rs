//! Sign-in providers: `PROMLET_OAUTH_*` (docs/specification.md E).

use std::path::PathBuf;

use clap::Args;

use super::{ConfigError, Secret, secret, tidy_list};

/// A client at a provider.
#[derive(Debug, Clone)]
pub struct OauthClient {
    /// Our name there.
    pub id: String,
    /// Proves that we are it.
    pub secret: Secret,
}

/// Sign-in by Google.
#[derive(Debug, Clone)]
pub struct GoogleSetting {
    /// Who we are there.
    pub client: OauthClient,
    /// Only accounts of these domains; empty: all.
    pub allowed_domains: Vec<String>,
}

/// Sign-in by GitHub.
#[derive(Debug, Clone)]
pub struct GithubSetting {
    /// Who we are there.
    pub client: OauthClient,
    /// `https://github.com`, or an Enterprise server.
    pub base_url: String,
    /// `https://api.github.com`, or an Enterprise server's `/api/v3`.
    pub api_url: String,
    /// Only members of these organisations; empty: everybody.
    pub allowed_orgs: Vec<String>,
}

/// Sign-in by an OpenID Connect issuer.
#[derive(Debug, Clone)]
pub struct OidcSetting {
    /// Who we are there.
    pub client: OauthClient,
    /// To the letter, as its discovery document says it.
    pub issuer: String,
    /// What its button says.
    pub name: String,
    /// Separated by blanks.
    pub scopes: String,
    /// Only accounts of these domains; empty: all.
    pub allowed_domains: Vec<String>,
    /// Its word on addresses opens accounts that are there.
    pub trust_email: bool,
    /// Certificates (PEM) that it may show beside those of public authorities.
    pub ca_file: Option<PathBuf>,
}

/// The providers that are set up.
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
    /// Sign-in by Google: the client's id; its secret is PROMLET_OAUTH_GOOGLE_CLIENT_SECRET
    #[arg(long, env = "PROMLET_OAUTH_GOOGLE_CLIENT_ID", value_name = "ID")]
    oauth_google_client_id: Option<String>,
    /// Only Google accounts of these domains may sign in, and may make an account
    #[arg(
        long,
        env = "PROMLET_OAUTH_GOOGLE_ALLOWED_DOMAINS",
        value_name = "DOMAIN,..",
        value_delimiter = ','
    )]
    oauth_google_allowed_domains: Vec<String>,
    /// Sign-in by GitHub: the client's id; its secret is PROMLET_OAUTH_GITHUB_CLIENT_SECRET
    #[arg(long, env = "PROMLET_OAUTH_GITHUB_CLIENT_ID", value_name = "ID")]
    oauth_github_client_id: Option<String>,
    /// Another GitHub than the public one
    #[arg(
        long,
        env = "PROMLET_OAUTH_GITHUB_BASE_URL",
        value_name = "URL",
        default_value = "https://github.com"
    )]
    oauth_github_base_url: String,
    /// Its API
    #[arg(
        long,
        env = "PROMLET_OAUTH_GITHUB_API_URL",
        value_name = "URL",
        default_value = "https://api.github.com"
    )]
    oauth_github_api_url: String,
    /// Only members of these organisations at GitHub may sign in, and may make an account
    #[arg(long, env = "PROMLET_OAUTH_GITHUB_ALLOWED_ORGS", value_name = "ORG,..", value_delimiter = ',')]
    oauth_github_allowed_orgs: Vec<String>,
    /// Sign-in by an OpenID Connect issuer: its URL, to the letter
    #[arg(long, env = "PROMLET_OAUTH_OIDC_ISSUER", value_name = "URL")]
    oauth_oidc_issuer: Option<String>,
    /// The client's id there; its secret is PROMLET_OAUTH_OIDC_CLIENT_SECRET
    #[arg(long, env = "PROMLET_OAUTH_OIDC_CLIENT_ID", value_name = "ID")]
    oauth_oidc_client_id: Option<String>,
    /// What its button says
    #[arg(long, env = "PROMLET_OAUTH_OIDC_NAME", value_name = "NAME", default_value = "OpenID Connect")]
    oauth_oidc_name: String,
    /// What it is asked for
    #[arg(
        long,
        env = "PROMLET_OAUTH_OIDC_SCOPES",
        value_name = "SCOPE ..",
        default_value = "openid email profile"
    )]
    oauth_oidc_scopes: String,
    /// Only its accounts of these mail domains may sign in, and may make an account
    #[arg(long, env = "PROMLET_OAUTH_OIDC_ALLOWED_DOMAINS", value_name = "DOMAIN,..", value_delimiter = ',')]
    oauth_oidc_allowed_domains: Vec<String>,
    /// Its word on mail addresses opens accounts that are there: only where it verifies every address, or sets them itself
    #[arg(long, env = "PROMLET_OAUTH_OIDC_TRUST_EMAIL", value_name = "0|1", default_value = "0", value_parser = zero_one,
          action = clap::ArgAction::Set)]
    oauth_oidc_trust_email: bool,
    /// Certificates (PEM) of the authority behind the issuer's own
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

/// The settings of the flags, and the secrets that belong to them.
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
        return Err(ConfigError::Settings("PROMLET_OAUTH_OIDC_SCOPES must hold openid".into()));
    }
    Ok(OauthSettings { google, github, oidc })
}

/// Both halves of a client, or none.
fn client(provider: &str, id: Option<String>) -> Result<Option<OauthClient>, ConfigError> {
    let name = format!("PROMLET_OAUTH_{provider}_CLIENT_SECRET");
    match (id, secret(&name)?) {
        (None, None) => Ok(None),
        (Some(id), Some(secret)) => Ok(Some(OauthClient { id: id.trim().to_owned(), secret })),
        (Some(_), None) => Err(ConfigError::Settings(format!(
            "PROMLET_OAUTH_{provider}_CLIENT_ID is set: say the secret with {name} or {name}_FILE"
        ))),
        (None, Some(_)) => Err(ConfigError::Settings(format!(
            "{name} is set: say whose it is with PROMLET_OAUTH_{provider}_CLIENT_ID"
        ))),
    }
}
