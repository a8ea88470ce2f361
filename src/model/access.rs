//! The access of a caller: an organisation, and matchers that it cannot remove.

use super::{Matcher, OrgId, Timestamp};

/// The only organisation that a reader may see, and the visible part of it.
#[derive(Clone, Debug)]
pub struct Access {
    /// The organisation.
    pub org: OrgId,
    /// The visible part.
    pub scope: Scope,
}

impl Access {
    /// Returns unrestricted access to one organisation, as for its members in the cabinet.
    pub fn whole(org: OrgId) -> Access {
        Access { org, scope: Scope::default() }
    }
}

/// Restrictions ANDed onto every selection of series, below PromQL (docs/specification.md D7). The
/// default restricts nothing.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Matchers; all must match.
    pub matchers: Vec<Matcher>,
    /// Each inner list is an alternation of metric names; every list must match (intersection of
    /// token and key policy).
    pub names: Vec<Vec<NameGlob>>,
    /// Time of the earliest sample that may be returned.
    pub min_time: Option<Timestamp>,
}

impl Scope {
    /// Returns whether nothing is restricted.
    pub fn is_whole(&self) -> bool {
        self.matchers.is_empty() && self.names.is_empty() && self.min_time.is_none()
    }

    /// Returns a text that identifies the visible series: scopes with equal texts show the same
    /// series, apart from `min_time`.
    pub fn series_key(&self) -> String {
        // Each part is quoted separately, because a name may contain the characters of an operator.
        let parts =
            |matcher: &Matcher| format!("{:?} {:?} {:?}", matcher.name(), matcher.op(), matcher.value());
        let matchers: Vec<String> = self.matchers.iter().map(parts).collect();
        format!("{matchers:?} {:?}", self.names)
    }

    /// Returns whether the name lists admit series with this metric name.
    pub fn admits_name(&self, name: &str) -> bool {
        self.names.iter().all(|any| any.iter().any(|glob| glob.matches(name)))
    }
}

/// A metric name in which `*` stands for any run of characters, as in an embed token's `metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameGlob(Box<str>);

impl NameGlob {
    /// Creates a glob from any text; only `*` is special.
    pub fn new(text: &str) -> NameGlob {
        NameGlob(text.into())
    }

    /// Returns the text of the glob.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the whole of `name` matches. The worst-case cost is both lengths times the
    /// number of stars.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else { return false };
        let mut parts: Vec<&str> = parts.collect();
        let Some(last) = parts.pop() else { return rest.is_empty() };
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_that_show_different_series_have_different_keys() {
        use crate::model::MatchOp;
        let scope = |matchers: &[(&str, MatchOp, &str)], names: &[&[&str]]| {
            let matchers = matchers.iter().map(|(name, op, value)| Matcher::new(name, *op, value));
            let names = names.iter().map(|list| list.iter().map(|text| NameGlob::new(text)).collect());
            Scope {
                matchers: matchers.collect::<Result<_, _>>().expect("valid"),
                names: names.collect(),
                min_time: None,
            }
        };
        use MatchOp::{Equal, NotEqual, Regex};
        let mut keys: Vec<String> = [
            scope(&[], &[]),
            scope(&[("a", NotEqual, "x")], &[]),
            scope(&[("a!", Equal, "x")], &[]),
            scope(&[("a", Equal, "~x")], &[]),
            scope(&[("a", Regex, "x")], &[]),
            scope(&[("a", Equal, "x"), ("b", Equal, "y")], &[]),
            scope(&[("a", Equal, "x\" Equal \"b")], &[]),
            scope(&[], &[&["a", "b"]]),
            scope(&[], &[&["a"], &["b"]]),
            scope(&[], &[&["a, b"]]),
        ]
        .iter()
        .map(Scope::series_key)
        .collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 10, "{keys:?}");
        let later = Scope { min_time: Some(Timestamp::from_s(1)), ..Scope::default() };
        assert_eq!(later.series_key(), Scope::default().series_key(), "time is handled separately");
    }

    #[test]
    fn a_glob_matches_the_whole_name() {
        let cases = [
            ("up", "up", true),
            ("up", "upper", false),
            ("http_*", "http_requests_total", true),
            ("http_*", "grpc_http_x", false),
            ("*", "", true),
            ("*_total", "a_total", true),
            ("*_total", "a_total_b", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
        ];
        for (glob, name, expected) in cases {
            assert_eq!(NameGlob::new(glob).matches(name), expected, "{glob} on {name}");
        }
    }
}
