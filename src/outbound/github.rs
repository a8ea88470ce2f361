//! GitHub, which is no OpenID provider: OAuth, then `/user` and `/user/emails`.

use form_urlencoded::Serializer;
use serde::Deserialize;

use super::https::{Https, HttpsOptions, ProviderError, Question, error_code, is_reachable_by, json};
use super::oidc::{Authorization, with_query};

/// What the operator says about GitHub.
#[derive(Clone)]
pub struct GithubOptions {
    /// Our name there.
    pub client_id: String,
    /// Proves that we are it.
    pub client_secret: String,
    /// `https://github.com`, or an Enterprise server.
    pub base_url: String,
    /// `https://api.github.com`, or an Enterprise server's `/api/v3`.
    pub api_url: String,
    /// Whoever is in none of these organisations may not come; empty: everybody may.
    pub allowed_orgs: Vec<String>,
    /// How it is reached.
    pub https: HttpsOptions,
}

impl std::fmt::Debug for GithubOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GithubOptions").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

/// Somebody at GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GithubAccount {
    /// The number that never changes hands; the name does.
    pub id: u64,
    /// The name.
    pub login: String,
    /// What they want to be called.
    pub name: Option<String>,
    /// Their primary address, where GitHub verified it.
    pub verified_email: Option<String>,
    /// Whether they are in an allowed organisation; `None` where none is named.
    pub in_allowed_org: Option<bool>,
}

/// A client of GitHub.
#[derive(Debug)]
pub struct GithubClient {
    options: GithubOptions,
    https: Https,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Redeemed {
    Token { access_token: String },
    Refused { error: String },
}

#[derive(Deserialize)]
struct User {
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

/// Organisations that are asked about, one question each.
const ORGS_MAX: usize = 20;

impl GithubClient {
    /// Asks nobody yet.
    ///
    /// # Errors
    /// In words: a URL that may not be asked, or too many organisations.
    pub fn new(mut options: GithubOptions) -> Result<GithubClient, String> {
        for url in [&mut options.base_url, &mut options.api_url] {
            *url = url.trim_end_matches('/').to_owned();
            if !is_reachable_by(url) {
                return Err(format!(
                    "GitHub's URL {url:?} is not https:// (http:// is for this machine alone)"
                ));
            }
        }
        if options.allowed_orgs.len() > ORGS_MAX {
            return Err(format!("at most {ORGS_MAX} organisations of GitHub may be named"));
        }
        let is_name = |org: &String| org.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if let Some(org) = options.allowed_orgs.iter().find(|org| org.is_empty() || !is_name(org)) {
            return Err(format!("{org:?} is no name of an organisation at GitHub"));
        }
        let https = Https::new(&options.https)?;
        Ok(GithubClient { options, https })
    }

    /// Its name for itself.
    pub fn issuer(&self) -> &str {
        &self.options.base_url
    }

    /// Where to send the browser.
    pub fn authorize_url(&self, sent: Authorization<'_>) -> String {
        let scopes = match self.options.allowed_orgs.is_empty() {
            true => "read:user user:email",
            false => "read:user user:email read:org",
        };
        let query = Serializer::new(String::new())
            .append_pair("client_id", &self.options.client_id)
            .append_pair("redirect_uri", sent.redirect_uri)
            .append_pair("scope", scopes)
            .append_pair("state", sent.state)
            .append_pair("code_challenge", sent.challenge)
            .append_pair("code_challenge_method", "S256")
            .finish();
        with_query(&format!("{}/login/oauth/authorize", self.options.base_url), &query)
    }

    /// Redeems a code, and asks who it is of.
    ///
    /// # Errors
    /// [`ProviderError`]; `Refused` for a code that is not good.
    pub async fn account(
        &self,
        code: &str,
        verifier: &str,
        redirect_uri: &str,
    ) -> Result<GithubAccount, ProviderError> {
        let token = self.redeem(code, verifier, redirect_uri).await?;
        let user: User = self.api("/user", &token).await?;
        let addresses: Vec<Address> = self.api("/user/emails?per_page=100", &token).await?;
        let verified_email =
            addresses.into_iter().find(|one| one.primary && one.verified).map(|one| one.email);
        let in_allowed_org = match self.options.allowed_orgs.is_empty() {
            true => None,
            false => Some(self.is_in_allowed_org(&token).await?),
        };
        Ok(GithubAccount { id: user.id, login: user.login, name: user.name, verified_email, in_allowed_org })
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
        let question =
            Question { url: &url, form: Some(form), authorization: None, accept: "application/json" };
        // A code that is not good is a 200 with an error in it.
        match json(&self.https.ask(question).await?, "access_token")? {
            Redeemed::Token { access_token } => Ok(access_token),
            Redeemed::Refused { error } if error == "bad_verification_code" => {
                Err(ProviderError::Refused(error))
            }
            Redeemed::Refused { error } => {
                Err(ProviderError::Misbehaved(format!("access_token: {}", error_code(&error))))
            }
        }
    }

    /// Membership is asked for one by one: a list would have to be read to its end.
    async fn is_in_allowed_org(&self, token: &str) -> Result<bool, ProviderError> {
        for org in &self.options.allowed_orgs {
            let path = format!("/user/memberships/orgs/{org}");
            let answer = self.ask_api(&path, token).await?;
            // 403: the organisation does not let applications see its members.
            if matches!(answer.status, 403 | 404) {
                continue;
            }
            let membership: OrgMembership = json(&answer, &path)?;
            if membership.state == "active" {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn api<T: serde::de::DeserializeOwned>(&self, path: &str, token: &str) -> Result<T, ProviderError> {
        json(&self.ask_api(path, token).await?, path)
    }

    async fn ask_api(&self, path: &str, token: &str) -> Result<super::https::Answer, ProviderError> {
        let url = format!("{}{path}", self.options.api_url);
        let authorization = Some(format!("Bearer {token}"));
        let question =
            Question { url: &url, form: None, authorization, accept: "application/vnd.github+json" };
        self.https.ask(question).await
    }
}
