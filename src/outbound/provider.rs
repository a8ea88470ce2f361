//! The client of a provider that is not an OpenID issuer: OAuth 2, then its own API.

use std::pin::Pin;

use super::https::ProviderError;
use super::oidc::Authorization;

/// An account at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderAccount {
    /// The provider's id of the person; it is permanent.
    pub id: String,
    /// The display name; may be empty.
    pub name: String,
    /// The address, if the provider has verified it.
    pub verified_email: Option<String>,
    /// Whether the person is in an allowed organisation; `None` if no organisation is configured.
    pub in_allowed_org: Option<bool>,
}

/// The future of [`ProviderClient::account`].
pub type AccountFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ProviderAccount, ProviderError>> + Send + 'a>>;

/// A client of a provider with a protocol of its own. Any other one is an `OidcClient`.
pub trait ProviderClient: std::fmt::Debug + Send + Sync {
    /// Returns the name on the sign-in button.
    fn name(&self) -> &'static str;

    /// Returns the base URL, which identifies the provider.
    fn issuer(&self) -> &str;

    /// Returns whether `issuer` in a response names this provider (RFC 9207).
    fn is_issuer(&self, issuer: &str) -> bool {
        issuer == self.issuer()
    }

    /// Returns the URL to which the browser is redirected.
    fn authorize_url(&self, authorization: Authorization<'_>) -> String;

    /// Redeems a code and fetches the account that it belongs to. The future fails with
    /// `Refused` for a code that is not valid.
    fn account<'a>(&'a self, code: &'a str, verifier: &'a str, redirect_uri: &'a str) -> AccountFuture<'a>;
}
