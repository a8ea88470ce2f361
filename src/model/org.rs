//! Identifiers of organisations and of the data folder.

/// Number of an organisation in this store; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct OrgId(pub u32);

impl std::fmt::Display for OrgId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Id of a data folder, written into every file of it: 16 random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(pub [u8; 16]);

impl std::fmt::Display for StoreId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Name of an organisation in URLs: `^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$`, not reserved,
/// immutable (docs/specification.md B).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrgSlug(Box<str>);

/// Names that would shadow routes or could be mistaken for the product itself.
const RESERVED: [&str; 12] = [
    "api", "auth", "admin", "docs", "embed", "health", "healthz", "login", "metrics", "new", "readyz",
    "setup",
];

/// Reasons why a text is not a slug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlugError {
    /// The slug is empty, longer than 63 bytes, or has characters or hyphens that are not allowed
    /// there.
    #[error("a slug is 1 to 63 lower-case letters, digits and inner hyphens")]
    Shape,
    /// The slug is a reserved word.
    #[error("this slug is reserved")]
    Reserved,
}

impl OrgSlug {
    /// Parses a slug.
    ///
    /// # Errors
    /// [`SlugError`] if `text` does not match the pattern or is reserved.
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

    /// Returns the text.
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
    fn slugs_follow_the_specified_pattern() {
        for good in ["a", "acme", "a-b", "0x", &"a".repeat(63)] {
            assert!(OrgSlug::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "ä", "a/b", &"a".repeat(64)] {
            assert_eq!(OrgSlug::parse(bad), Err(SlugError::Shape), "{bad}");
        }
        assert_eq!(OrgSlug::parse("setup"), Err(SlugError::Reserved));
    }
}
