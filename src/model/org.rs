//! An organisation as stored and as written in a URL.

/// An organisation's number in this store; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct OrgId(pub u32);

impl std::fmt::Display for OrgId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of one data folder, written into every file of it: 16 random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(pub [u8; 16]);

impl std::fmt::Display for StoreId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// An organisation's name in URLs: `^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$`, not reserved, immutable (docs/specification.md B).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrgSlug(Box<str>);

/// Names that would shadow routes or read like the product itself.
const RESERVED: [&str; 12] = [
    "api", "auth", "admin", "docs", "embed", "health", "healthz", "login", "metrics", "new", "readyz",
    "setup",
];

/// Why a text is no organisation slug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlugError {
    /// Empty, longer than 63 bytes, or with characters or hyphens where they may not stand.
    #[error("a slug is 1 to 63 lower-case letters, digits and inner hyphens")]
    Shape,
    /// One of the reserved words.
    #[error("this slug is reserved")]
    Reserved,
}

impl OrgSlug {
    /// Checks `text`.
    ///
    /// # Errors
    /// [`SlugError`] where it does not fit the pattern or is reserved.
    pub fn parse(text: &str) -> Result<OrgSlug, SlugError> {
        let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
        let bytes = text.as_bytes();
        let edges = bytes.first().is_some_and(|b| *b != b'-') && bytes.last().is_some_and(|b| *b != b'-');
        if bytes.len() > 63 || !edges || !bytes.iter().all(inner) {
            return Err(SlugError::Shape);
        }
        if RESERVED.contains(&text) {
            return Err(SlugError::Reserved);
        }
        Ok(OrgSlug(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for OrgSlug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_what_the_contract_says() {
        for good in ["a", "acme", "a-b", "0x", &"a".repeat(63)] {
            assert!(OrgSlug::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "ä", "a/b", &"a".repeat(64)] {
            assert_eq!(OrgSlug::parse(bad), Err(SlugError::Shape), "{bad}");
        }
        assert_eq!(OrgSlug::parse("setup"), Err(SlugError::Reserved));
    }
}
