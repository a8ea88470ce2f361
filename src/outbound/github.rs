//! A client of GitHub, which is not an OpenID provider: OAuth, then `/user` and `/user/emails`.

use form_urlencoded::Serializer;
use serde::Deserialize;

use super::https::{
    HttpsClient, HttpsOptions, ProviderError, ProviderRequest, error_code, json, may_request,
};
use super::oidc::{Authorization, with_query};
use super::provider::{AccountFuture, ProviderAccount, ProviderClient};

/// The operator's settings for GitHub.
#[derive(Clone)]
pub struct GithubOptions {
    /// The client id of promlet at GitHub.
    pub client_id: String,
    /// The client secret.
    pub client_secret: String,
    /// `https://github.com`, or the URL of an Enterprise server.
    pub base_url: String,
    /// `https://api.github.com`, or `/api/v3` of an Enterprise server.
    pub api_url: String,
    /// Only members of one of these organisations may sign in; if empty, everyone may.
    pub allowed_orgs: Vec<String>,
    /// The connection settings.
    pub https: HttpsOptions,
}

impl std::fmt::Debug for GithubOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GithubOptions").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

/// A client of GitHub.
#[derive(Debug)]
pub struct GithubClient {
    options: GithubOptions,
    https: HttpsClient,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenResponse {
    Token { access_token: String },
    Refused { error: String },
}

#[derive(Deserialize)]
struct GithubUser {
    id: u64,
    login: String,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Address {
    email: String,
    primary: bool,
    verified: bool,
}

#[derive(Deserialize)]
struct OrgMembership {
    state: String,
}

/// The maximal number of allowed organisations; each takes one request.
const ORGS_MAX: usize = 20;

impl GithubClient {
    /// Creates a client; sends no request.
    ///
    /// # Errors
    /// A sentence, if a URL must not be used or there are too many organisations.
    pub fn new(mut options: GithubOptions) -> Result<GithubClient, String> {
        for url in [&mut options.base_url, &mut options.api_url] {
            *url = url.trim_end_matches('/').to_owned();
            if !may_request(url) {
                return Err(format!(
                    "GitHub's URL {url:?} is not https:// (http:// is allowed for this machine only)"
                ));
            }
        }
        if options.allowed_orgs.len() > ORGS_MAX {
            return Err(format!("at most {ORGS_MAX} GitHub organisations may be configured"));
        }
        let is_name = |org: &String| org.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if let Some(org) = options.allowed_orgs.iter().find(|org| org.is_empty() || !is_name(org)) {
            return Err(format!("{org:?} is not the name of a GitHub organisation"));
        }
        let https = HttpsClient::new(&options.https)?;
        Ok(GithubClient { options, https })
    }

    async fn fetch_account(
        &self,
        code: &str,
        verifier: &str,
        redirect_uri: &str,
    ) -> Result<ProviderAccount, ProviderError> {
        let token = self.redeem(code, verifier, redirect_uri).await?;
        let user: GithubUser = self.api("/user", &token).await?;
        let addresses: Vec<Address> = self.api("/user/emails?per_page=100", &token).await?;
        let verified_email =
            addresses.into_iter().find(|one| one.primary && one.verified).map(|one| one.email);
        let in_allowed_org = match self.options.allowed_orgs.is_empty() {
            true => None,
            false => Some(self.is_in_allowed_org(&token).await?),
        };
        // The number is permanent; the login name is not.
        let (id, name) = (user.id.to_string(), user.name.unwrap_or(user.login));
        Ok(ProviderAccount { id, name, verified_email, in_allowed_org })
    }

    async fn redeem(&self, code: &str, verifier: &str, redirect_uri: &str) -> Result<String, ProviderError> {
        let form = Serializer::new(String::new())
            .append_pair("client_id", &self.options.client_id)
            .append_pair("client_secret", &self.options.client_secret)
            .append_pair("code", code)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("code_verifier", verifier)
            .finish();
        let url = format!("{}/login/oauth/access_token", self.options.base_url);
        let request =
            ProviderRequest { url: &url, form: Some(form), authorization: None, accept: "application/json" };
        // GitHub reports an invalid code with status 200 and an error in the body.
        match json(&self.https.send(request).await?, "access_token")? {
            TokenResponse::Token { access_token } => Ok(access_token),
            TokenResponse::Refused { error } if error == "bad_verification_code" => {
                Err(ProviderError::Refused(error))
            }
            TokenResponse::Refused { error } => {
                Err(ProviderError::Misbehaved(format!("access_token: {}", error_code(&error))))
            }
        }
    }

    /// Requests each membership by itself, because a list would have to be read to its end.
    async fn is_in_allowed_org(&self, token: &str) -> Result<bool, ProviderError> {
        for org in &self.options.allowed_orgs {
            let path = format!("/user/memberships/orgs/{org}");
            let response = self.send_to_api(&path, token).await?;
            // 403: the organisation does not let applications see its members.
            if matches!(response.status, 403 | 404) {
                continue;
            }
            let membership: OrgMembership = json(&response, &path)?;
            if membership.state == "active" {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn api<T: serde::de::DeserializeOwned>(&self, path: &str, token: &str) -> Result<T, ProviderError> {
        json(&self.send_to_api(path, token).await?, path)
    }

    async fn send_to_api(
        &self,
        path: &str,
        token: &str,
    ) -> Result<super::https::ProviderResponse, ProviderError> {
        let url = format!("{}{path}", self.options.api_url);
        let authorization = Some(format!("Bearer {token}"));
        let request =
            ProviderRequest { url: &url, form: None, authorization, accept: "application/vnd.github+json" };
        self.https.send(request).await
    }
}

impl ProviderClient for GithubClient {
    fn name(&self) -> &'static str {
        "GitHub"
    }

    fn issuer(&self) -> &str {
        &self.options.base_url
    }

    fn is_issuer(&self, issuer: &str) -> bool {
        let base = self.issuer();
        // GitHub's OAuth metadata uses the longer issuer.
        issuer == base || issuer.strip_prefix(base) == Some("/login/oauth")
    }

    fn authorize_url(&self, authorization: Authorization<'_>) -> String {
        let scopes = match self.options.allowed_orgs.is_empty() {
            true => "read:user user:email",
            false => "read:user user:email read:org",
        };
        let query = Serializer::new(String::new())
            .append_pair("client_id", &self.options.client_id)
            .append_pair("redirect_uri", authorization.redirect_uri)
            .append_pair("scope", scopes)
            .append_pair("state", authorization.state)
            .append_pair("code_challenge", authorization.challenge)
            .append_pair("code_challenge_method", "S256")
            .finish();
        with_query(&format!("{}/login/oauth/authorize", self.options.base_url), &query)
    }

    fn account<'a>(&'a self, code: &'a str, verifier: &'a str, redirect_uri: &'a str) -> AccountFuture<'a> {
        Box::pin(self.fetch_account(code, verifier, redirect_uri))
    }
}
