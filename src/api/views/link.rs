//! The links that a person opens once.

/// Returns the URL that signs an account in.
pub fn sign_in_url(public_url: &str, token: &str) -> String {
    format!("{public_url}/api/v1/auth/magic-link/verify?token={token}")
}

/// Returns the URL of the page that accepts an invitation. The token is in the fragment, which
/// browsers send to no server, so that it occurs in no log.
pub fn invite_url(public_url: &str, token: &str) -> String {
    format!("{public_url}/invite#token={token}")
}
