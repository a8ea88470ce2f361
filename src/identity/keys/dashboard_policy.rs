//! The restriction `dashboard`: its JSON, its checks, the matchers of its locked variables, and the
//! intersection of a key's with a token's.
//!
//! A locked variable is a matcher in the scope of the token, below PromQL, so that no text of a
//! query widens it. The value that the dashboard shows for it is only a display of that matcher.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use crate::identity::tables::dashboard::is_dashboard_uid;
use crate::identity::tables::key::{DashboardPolicy, EmbedPolicy, LockedVariable};
use crate::model::{Pattern, is_label_name};

const LOCKED_MAX: usize = 16;
const OPEN_MAX: usize = 32;
const VALUES_MAX: usize = 64;
const VALUE_CHARS_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 128;

/// The dashboard that a token grants, after the intersection with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DashboardGrant {
    /// Uid of the dashboard.
    pub uid: String,
    /// Values of the locked variables, by name. The matchers are in the scope.
    pub locked: BTreeMap<String, Vec<String>>,
    /// Variables that the viewer sets, with the allowed values; `None` allows every value.
    pub open: BTreeMap<String, Option<Vec<String>>>,
}

impl From<DashboardPolicy> for DashboardGrant {
    fn from(policy: DashboardPolicy) -> DashboardGrant {
        let DashboardPolicy { uid, locked, open } = policy;
        let locked = locked.into_iter().map(|(name, locked)| (name, locked.values)).collect();
        DashboardGrant { uid, locked, open }
    }
}

/// Key and token name different dashboards.
#[derive(Debug)]
pub(super) struct OtherDashboard;

/// Returns the dashboard that a token grants. A variable that either policy locks is locked in the
/// result. A variable is open if both open it.
pub(super) fn intersection(
    key: &EmbedPolicy,
    token: &EmbedPolicy,
) -> Result<Option<DashboardGrant>, OtherDashboard> {
    let (own, token) = match (&key.dashboard, &token.dashboard) {
        (Some(own), Some(token)) => (own, token),
        (own, token) => return Ok(own.as_ref().or(token.as_ref()).cloned().map(DashboardGrant::from)),
    };
    if own.uid != token.uid {
        return Err(OtherDashboard);
    }
    let mut locked: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, variable) in token.locked.iter().chain(&own.locked) {
        locked.insert(name.clone(), variable.values.clone());
    }
    // The matchers of both apply, so the value to show is their intersection.
    for (name, variable) in &token.locked {
        if let Some(own) = own.locked.get(name) {
            let both: Vec<String> =
                own.values.iter().filter(|value| variable.values.contains(value)).cloned().collect();
            if !both.is_empty() {
                locked.insert(name.clone(), both);
            }
        }
    }
    let is_free = |name: &&String| !locked.contains_key(*name);
    let both_open = own.open.keys().filter(|name| token.open.contains_key(*name)).filter(is_free);
    let open = both_open.map(|name| {
        let lists = (own.open.get(name).cloned().flatten(), token.open.get(name).cloned().flatten());
        let values = match lists {
            (Some(own), Some(token)) => Some(own.into_iter().filter(|value| token.contains(value)).collect()),
            (own, token) => own.or(token),
        };
        (name.clone(), values)
    });
    let open = open.collect();
    Ok(Some(DashboardGrant { uid: own.uid.clone(), locked, open }))
}

/// Returns the matchers of a policy as texts: its own, and those of its locked variables.
pub(super) fn matcher_texts(policy: &EmbedPolicy) -> Cow<'_, [String]> {
    match &policy.dashboard {
        Some(dashboard) if !dashboard.locked.is_empty() => {
            let locked = dashboard.locked.iter().map(|(name, variable)| variable.matcher_text(name));
            policy.matchers.iter().cloned().chain(locked).collect()
        }
        _ => Cow::Borrowed(&policy.matchers),
    }
}

impl LockedVariable {
    fn label<'l>(&'l self, name: &'l str) -> &'l str {
        self.label.as_deref().unwrap_or(name)
    }

    /// Returns the matcher as text: `=` for one value, otherwise `=~` with the escaped values as
    /// alternatives.
    fn matcher_text(&self, name: &str) -> String {
        let label = self.label(name);
        let label = if is_label_name(label) { Cow::Borrowed(label) } else { Cow::Owned(quoted(label)) };
        if let [value] = self.values.as_slice() {
            return format!("{label}={}", quoted(value));
        }
        let escaped: Vec<String> = self.values.iter().map(|value| Pattern::escape(value)).collect();
        format!("{label}=~{}", quoted(&escaped.join("|")))
    }
}

/// Returns a label name or a value in the quotes of a policy's matcher.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns whether a text is the name of a variable that a dashboard declares. Names that begin
/// with two underscores belong to the server.
fn is_variable_name(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(word) && !text.starts_with("__")
}

fn are_values(values: &[String]) -> bool {
    let fits = |value: &String| (1..=VALUE_CHARS_MAX).contains(&value.chars().count());
    (1..=VALUES_MAX).contains(&values.len()) && values.iter().all(fits)
}

impl DashboardPolicy {
    /// Returns the errors of names, counts and lengths. Compiles nothing.
    pub(super) fn shape_errors(&self) -> Vec<String> {
        let DashboardPolicy { uid, locked, open } = self;
        let labels = |(name, variable): (&String, &LockedVariable)| {
            let label = variable.label(name);
            (1..=NAME_BYTES_MAX).contains(&label.len())
        };
        let lists = locked.values().map(|variable| &variable.values).chain(open.values().flatten());
        let checks = [
            (is_dashboard_uid(uid), "uid: 1 to 40 letters, digits, - and _"),
            (locked.len() <= LOCKED_MAX, "locked: at most 16 variables"),
            (open.len() <= OPEN_MAX, "open: at most 32 variables"),
            (
                locked.keys().chain(open.keys()).all(|name| is_variable_name(name)),
                "the name of a variable has 1 to 128 letters, digits and _, and does not begin with __",
            ),
            (locked.iter().all(labels), "locked: the label of a variable has 1 to 128 bytes"),
            (lists.into_iter().all(|values| are_values(values)), "1 to 64 values of 1 to 256 characters"),
            (!open.keys().any(|name| locked.contains_key(name)), "a variable is either locked or open"),
        ];
        checks.iter().filter(|(holds, _)| !holds).map(|(_, rule)| format!("dashboard: {rule}")).collect()
    }

    /// Returns whether `asked` names another dashboard, or opens variables or values that this
    /// policy does not open.
    pub(super) fn is_exceeded_by(&self, asked: &DashboardPolicy) -> bool {
        let opens = |(name, asked): (&String, &Option<Vec<String>>)| match (self.open.get(name), asked) {
            (None, _) | (Some(Some(_)), None) => false,
            (Some(None), _) => true,
            (Some(Some(own)), Some(asked)) => asked.iter().all(|value| own.contains(value)),
        };
        self.uid != asked.uid || !asked.open.iter().all(opens)
    }
}

/// The JSON form of a [`DashboardPolicy`], in a token and in the API.
#[derive(Clone, Debug)]
pub(super) struct DashboardClaim(DashboardPolicy);

impl DashboardClaim {
    pub(super) fn into_policy(self) -> DashboardPolicy {
        self.0
    }
}

impl From<DashboardPolicy> for DashboardClaim {
    fn from(policy: DashboardPolicy) -> DashboardClaim {
        DashboardClaim(policy)
    }
}

impl DashboardPolicy {
    /// Returns the policy in the API's form.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(DashboardClaim(self.clone())).expect("maps with text keys")
    }
}

impl Serialize for DashboardClaim {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let DashboardPolicy { uid, locked, open } = &self.0;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("uid", uid)?;
        if !locked.is_empty() {
            let values = locked.iter().map(|(name, variable)| (name, LockedJson::of(variable)));
            map.serialize_entry("locked", &values.collect::<BTreeMap<_, _>>())?;
        }
        match open.values().all(Option::is_none) {
            true if open.is_empty() => {}
            true => map.serialize_entry("open", &open.keys().collect::<Vec<_>>())?,
            false => map.serialize_entry("open", open)?,
        }
        map.end()
    }
}

/// The JSON form of a locked variable.
#[derive(Serialize)]
#[serde(untagged)]
enum LockedJson<'v> {
    One(&'v str),
    Several(&'v [String]),
    Labelled { label: &'v str, values: &'v [String] },
}

impl<'v> LockedJson<'v> {
    fn of(variable: &'v LockedVariable) -> LockedJson<'v> {
        match (&variable.label, variable.values.as_slice()) {
            (Some(label), values) => LockedJson::Labelled { label, values },
            (None, [value]) => LockedJson::One(value),
            (None, values) => LockedJson::Several(values),
        }
    }
}

impl<'de> Deserialize<'de> for DashboardClaim {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<DashboardClaim, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Members {
            uid: String,
            #[serde(default)]
            locked: UniqueMap<LockedClaim>,
            #[serde(default)]
            open: OpenClaim,
        }
        let Members { uid, locked, open } = from_object(from)?;
        let locked = locked.0.into_iter().map(|(name, LockedClaim(variable))| (name, variable)).collect();
        Ok(DashboardClaim(DashboardPolicy { uid, locked, open: open.0 }))
    }
}

/// Deserialises from an object only. A derived struct would also accept an array, by position.
pub(super) fn from_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    struct Object<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }
    from.deserialize_map(Object(PhantomData))
}

/// An object that names no member twice.
struct UniqueMap<V>(BTreeMap<String, V>);

impl<V> Default for UniqueMap<V> {
    fn default() -> UniqueMap<V> {
        UniqueMap(BTreeMap::new())
    }
}

fn named_twice<E: Error>(name: &str) -> E {
    E::custom(format!("{name:?} is named twice"))
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UniqueMap<V>, D::Error> {
        struct Members<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Members<V> {
            type Value = UniqueMap<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object by variable")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueMap<V>, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, V>()? {
                    if members.contains_key(&name) {
                        return Err(named_twice(&name));
                    }
                    members.insert(name, value);
                }
                Ok(UniqueMap(members))
            }
        }
        from.deserialize_map(Members(PhantomData))
    }
}

/// A value, a list of values, or `{"label", "values"}`.
struct LockedClaim(LockedVariable);

impl<'de> Deserialize<'de> for LockedClaim {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LockedClaim, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Labelled {
            label: String,
            values: Vec<String>,
        }
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = LockedVariable;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, a list of values, or an object with label and values")
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<LockedVariable, E> {
                Ok(LockedVariable { label: None, values: vec![value.to_owned()] })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<LockedVariable, A::Error> {
                let values = Vec::deserialize(SeqAccessDeserializer::new(values))?;
                Ok(LockedVariable { label: None, values })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LockedVariable, A::Error> {
                let Labelled { label, values } = Labelled::deserialize(MapAccessDeserializer::new(map))?;
                Ok(LockedVariable { label: Some(label), values })
            }
        }
        from.deserialize_any(Forms).map(LockedClaim)
    }
}

/// A list of names, or an object from names to values.
#[derive(Default)]
struct OpenClaim(BTreeMap<String, Option<Vec<String>>>);

impl<'de> Deserialize<'de> for OpenClaim {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<OpenClaim, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = OpenClaim;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of variables, or an object from variables to values or null")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<OpenClaim, A::Error> {
                let mut open = BTreeMap::new();
                while let Some(name) = names.next_element::<String>()? {
                    if open.contains_key(&name) {
                        return Err(named_twice(&name));
                    }
                    open.insert(name, None);
                }
                Ok(OpenClaim(open))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OpenClaim, A::Error> {
                UniqueMap::deserialize(MapAccessDeserializer::new(map)).map(|UniqueMap(open)| OpenClaim(open))
            }
        }
        from.deserialize_any(Forms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::keys::policy_matcher;
    use proptest::prelude::*;

    proptest! {
        /// A lock matches exactly its values, even if they contain special characters.
        #[test]
        fn a_lock_matches_exactly_its_values(
            label in "tenant|\\PC{1,8}|[\\\\.|^$\"'`\n=~!,{}]{1,8}",
            values in prop::collection::vec("\\PC{1,6}|[\\\\.|^$\"'\n(){}*+?a-]{1,8}", 1..5),
            others in prop::collection::vec("\\PC{0,6}|[\\\\.|^$\"'\n(){}*+?a-]{0,8}", 0..5),
        ) {
            let locked = LockedVariable { label: Some(label.clone()), values: values.clone() };
            let matcher = policy_matcher::parse(&locked.matcher_text("tenant")).expect("a matcher");
            prop_assert_eq!(matcher.name(), label);
            for text in values.iter().chain(&others).map(String::as_str).chain([""]) {
                let expected = values.iter().any(|value| value == text);
                prop_assert_eq!(matcher.matches(text), expected, "{:?} on {:?}", matcher.to_string(), text);
            }
        }
    }
}
