//! The search for objects with duplicate members in JSON.
//!
//! RFC 8259 does not define which of two equal members applies, and parsers differ. A proxy or a
//! person may see another value than the one that is stored. In the policy of a key, such as
//! `{"match":["tenant=\"a\""],"match":[]}`, the last member would grant more than the first.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Returns the first member that occurs twice in an object. Returns `None` also for text that is
/// not JSON, for which the actual parser has a better error.
pub(super) fn duplicate_member(bytes: &[u8]) -> Option<String> {
    let mut duplicate = None;
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    // The visitor also ends with an error after it has found a duplicate.
    let _ =
        serde::de::DeserializeSeed::deserialize(DuplicateFinder { duplicate: &mut duplicate }, &mut reader);
    duplicate
}

/// A visitor that discards any value, and stores the name of the first duplicate member.
struct DuplicateFinder<'t> {
    duplicate: &'t mut Option<String>,
}

impl<'de> serde::de::DeserializeSeed<'de> for DuplicateFinder<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DuplicateFinder<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while all.next_element_seed(DuplicateFinder { duplicate: self.duplicate })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        let mut names = BTreeSet::new();
        while let Some(MemberName(name)) = all.next_key()? {
            if !names.insert(name.clone()) {
                *self.duplicate = Some(name);
                return Err(A::Error::custom("found"));
            }
            all.next_value_seed(DuplicateFinder { duplicate: self.duplicate })?;
        }
        Ok(())
    }
}

/// A member's name after unescaping: `"a"` and `"\u0061"` are equal.
struct MemberName(String);

impl<'de> Deserialize<'de> for MemberName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<MemberName, D::Error> {
        String::deserialize(from).map(MemberName)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_member_is_found_at_any_depth() {
        for (text, duplicate) in [
            (r#"{"a":1,"a":2}"#, Some("a")),
            (r#"{"a":1,"b":{"c":[{"d":null,"\u0064":true}]}}"#, Some("d")),
            (r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}],"A":-1.5}"#, None),
            (r#"{"":"","":""}"#, Some("")),
            ("[]", None),
            (r#"{"a":1,"a""#, Some("a")),
            (r#"{"a":1,,"a":2}"#, None),
            ("", None),
        ] {
            assert_eq!(duplicate_member(text.as_bytes()).as_deref(), duplicate, "{text}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(duplicate_member(deep.as_bytes()), None, "the parser limits the depth");
    }
}
