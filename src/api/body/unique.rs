//! JSON in which no object has a member twice.
//!
//! RFC 8259 leaves open which of two counts, and readers differ: what a proxy or a person saw may not be what is stored. In
//! what restricts a key (`{"match":["tenant=\"a\""],"match":[]}`) the last one would grant more than the first says.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The first member that an object has twice; `None` also for what is no JSON, which its reader says better.
pub(super) fn member_given_twice(bytes: &[u8]) -> Option<String> {
    let mut twice = None;
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    // An error is either the mark of a find or the reader's.
    let _ = serde::de::DeserializeSeed::deserialize(Value { twice: &mut twice }, &mut reader);
    twice
}

/// Any value, looked through and thrown away.
struct Value<'t> {
    twice: &'t mut Option<String>,
}

impl<'de> serde::de::DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
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
        while all.next_element_seed(Value { twice: self.twice })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        let mut names = BTreeSet::new();
        while let Some(Name(name)) = all.next_key()? {
            if !names.insert(name.clone()) {
                *self.twice = Some(name);
                return Err(A::Error::custom("found"));
            }
            all.next_value_seed(Value { twice: self.twice })?;
        }
        Ok(())
    }
}

/// As it is read, not as it is written: `"a"` and `"\u0061"` are one.
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Name, D::Error> {
        String::deserialize(from).map(Name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_found_twice_wherever_it_stands() {
        for (text, found) in [
            (r#"{"a":1,"a":2}"#, Some("a")),
            (r#"{"a":1,"b":{"c":[{"d":null,"\u0064":true}]}}"#, Some("d")),
            (r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}],"A":-1.5}"#, None),
            (r#"{"":"","":""}"#, Some("")),
            ("[]", None),
            (r#"{"a":1,"a""#, Some("a")),
            (r#"{"a":1,,"a":2}"#, None),
            ("", None),
        ] {
            assert_eq!(member_given_twice(text.as_bytes()).as_deref(), found, "{text}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(member_given_twice(deep.as_bytes()), None, "depth is bounded");
    }
}
