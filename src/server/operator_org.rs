//! The organisation of the operator's files: it gets the samples of `--scrape-config` and the rules
//! of `--rules`.

use crate::identity::Identity;
use crate::model::OrgId;

/// Returns the organisation with the slug of `flag`; without a slug, the first organisation.
///
/// # Errors
/// A sentence, if there is none or the organisations cannot be read.
pub(super) fn operator_org(identity: &Identity, slug: Option<&str>, flag: &str) -> Result<OrgId, String> {
    let unreadable = |error| format!("the organisations cannot be read: {error}");
    match slug {
        Some(slug) => {
            let found = identity.org_by_slug(slug).map_err(unreadable)?;
            found.map(|org| org.id).ok_or_else(|| format!("there is no organisation {slug:?} ({flag})"))
        }
        None => {
            let first = identity.orgs().map_err(unreadable)?.iter().map(|org| org.id).min();
            first.ok_or_else(|| "there is no organisation; the first one will be used".to_owned())
        }
    }
}
