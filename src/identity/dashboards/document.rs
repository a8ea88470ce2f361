//! The text of a dashboard: its limits, and the few members that the server reads.
//!
//! Checks run from cheap to expensive: the length, the depth by a scan of the bytes, then one pass
//! of the JSON parser, which keeps only the members of [`Outline`]. Only checked documents are
//! compressed or stored.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::identity::dashboards::variables::{VARIABLES_MAX, VariableList};
use crate::identity::tables::compressed::{compressed, decompressed};
use crate::identity::tables::dashboard::{DocumentRow, is_dashboard_uid};
use crate::identity::tables::name::is_forbidden;
use crate::identity::tables::store::StoreError;
use crate::kv::VALUE_BODY_BYTES_MAX;

/// Maximum length of a document, bytes.
pub const DASHBOARD_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a compressed document, bytes: the longest value of the database, without a KiB
/// for the rest of its row.
pub const DASHBOARD_STORED_BYTES_MAX: usize = VALUE_BODY_BYTES_MAX - 1_024;
/// Maximum depth of objects and arrays in a document.
const DASHBOARD_DEPTH_MAX: usize = 64;
/// Maximum number of panels: rows, the panels of rows, and panels without a row.
const PANELS_MAX: usize = 500;
/// Maximum number of queries (`targets`) of all panels.
const QUERIES_MAX: usize = 1_000;
const TITLE_CHARS_MAX: usize = 200;
const TAGS_MAX: usize = 50;
const TAG_CHARS_MAX: usize = 50;
const FOLDER_CHARS_MAX: usize = 200;

/// The level of zstd. Higher levels take longer and save less than a tenth of dashboards.
const LEVEL: i32 = 9;

/// Reasons why a text is not a dashboard of this server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// `dashboard_too_large`.
    #[error("a dashboard has at most {DASHBOARD_BYTES_MAX} bytes of JSON; this one has {0}")]
    TooLarge(usize),
    /// `dashboard_too_large`.
    #[error("a dashboard has at most {DASHBOARD_STORED_BYTES_MAX} bytes when compressed; this one has {0}")]
    StoredTooLarge(usize),
    /// `invalid_dashboard`.
    #[error("a dashboard has at most {allowed} {what}; this one has {found}")]
    TooMany {
        /// The limit: `panels`, `queries`, `variables`, `levels of nesting` or `tags`.
        what: &'static str,
        /// The limit's value.
        allowed: usize,
        /// The number in the document.
        found: usize,
    },
    /// `invalid_dashboard`: the names of variables of which each refers to the next one.
    #[error("variables refer to each other: {}", .0.join(" → "))]
    CyclicVariables(Vec<String>),
    /// `invalid_dashboard`: the text is not JSON, or a member has another type.
    #[error("{message} at line {line} column {column}")]
    Json {
        /// Line in the text, from 1.
        line: usize,
        /// Column in the line, from 1.
        column: usize,
        /// The reason.
        message: String,
    },
    /// `invalid_dashboard`: a member has a value that does not fit.
    #[error("{field}: {message}")]
    Field {
        /// Path of the member in the document.
        field: &'static str,
        /// The rule.
        message: String,
    },
}

impl DocumentError {
    fn field(field: &'static str, message: impl Into<String>) -> DocumentError {
        DocumentError::Field { field, message: message.into() }
    }

    fn json(error: &serde_json::Error) -> DocumentError {
        let text = error.to_string();
        let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
        DocumentError::Json { line: error.line(), column: error.column(), message: message.to_owned() }
    }
}

/// A checked dashboard: the text as received, and the parts that the server reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DashboardDocument {
    text: String,
    uid: Option<String>,
    title: String,
    tags: Vec<String>,
    panels: usize,
    queries: usize,
    variables: usize,
}

impl DashboardDocument {
    /// Checks a text.
    ///
    /// # Errors
    /// [`DocumentError`], except the one of the compressed length.
    pub fn parse(text: String) -> Result<DashboardDocument, DocumentError> {
        if text.len() > DASHBOARD_BYTES_MAX {
            return Err(DocumentError::TooLarge(text.len()));
        }
        check_depth(text.as_bytes(), 0)?;
        if !text.trim_start().starts_with('{') {
            return Err(DocumentError::Json {
                line: 1,
                column: 1,
                message: "a dashboard is a JSON object".to_owned(),
            });
        }
        let outline: Outline<'_> =
            serde_json::from_str(&text).map_err(|error| DocumentError::json(&error))?;
        let PanelCounts { panels, queries } = outline.panels.plus(outline.rows);
        let list = outline.templating.map(|templating| templating.list).unwrap_or_default();
        let variables = list.count;
        let tags = outline.tags.unwrap_or_default();
        let limits = [
            ("panels", PANELS_MAX, panels),
            ("queries", QUERIES_MAX, queries),
            ("variables", VARIABLES_MAX, variables),
            ("tags", TAGS_MAX, tags.len()),
        ];
        if let Some((what, allowed, found)) = limits.into_iter().find(|(_, allowed, found)| found > allowed) {
            return Err(DocumentError::TooMany { what, allowed, found });
        }
        if let Some(cycle) = list.cycle() {
            return Err(DocumentError::CyclicVariables(cycle));
        }
        let uid = outline.uid.filter(|uid| !uid.is_empty());
        if uid.as_deref().is_some_and(|uid| !is_dashboard_uid(uid)) {
            return Err(DocumentError::field("uid", "must be 1 to 40 letters, digits, - and _"));
        }
        let title = outline.title.unwrap_or_default().trim().to_owned();
        check_text("title", &title, TITLE_CHARS_MAX)?;
        for tag in &tags {
            check_text("tags", tag, TAG_CHARS_MAX)?;
        }
        Ok(DashboardDocument { uid, title, tags, panels, queries, variables, text })
    }

    /// Returns the text as it was received.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the uid in the document, if it has one.
    pub fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// Returns the title without surrounding space.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the tags.
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// Returns the number of panels, rows included.
    pub fn panels(&self) -> usize {
        self.panels
    }

    /// Returns the number of queries.
    pub fn queries(&self) -> usize {
        self.queries
    }

    /// Returns the number of variables.
    pub fn variables(&self) -> usize {
        self.variables
    }

    /// Checks the length of the compressed text without storing it. Short texts are not compressed.
    ///
    /// # Errors
    /// [`DocumentError::StoredTooLarge`].
    pub fn check_stored_size(&self) -> Result<(), DocumentError> {
        // Text that cannot be compressed grows by less than 1 %.
        match self.text.len() > DASHBOARD_STORED_BYTES_MAX / 2 {
            true => self.clone().pack().map(drop),
            false => Ok(()),
        }
    }

    /// Compresses the text. Takes milliseconds for a long document.
    ///
    /// # Errors
    /// [`DocumentError::StoredTooLarge`].
    pub fn pack(self) -> Result<PackedDashboard, DocumentError> {
        let compressed = compressed(&self.text, LEVEL)
            .map_err(|error| DocumentError::field("", format!("cannot be compressed: {error}")))?;
        if compressed.len() > DASHBOARD_STORED_BYTES_MAX {
            return Err(DocumentError::StoredTooLarge(compressed.len()));
        }
        let bytes = u32::try_from(self.text.len()).expect("at most 1 MiB: checked by `parse`");
        Ok(PackedDashboard { document: self, row: DocumentRow { bytes, compressed } })
    }
}

/// A checked and compressed dashboard, ready to be stored.
#[derive(Clone, Debug)]
pub struct PackedDashboard {
    document: DashboardDocument,
    pub(super) row: DocumentRow,
}

impl PackedDashboard {
    /// Returns the dashboard.
    pub fn document(&self) -> &DashboardDocument {
        &self.document
    }
}

/// Decompresses a stored document.
pub(super) fn unpack(row: &DocumentRow) -> Result<String, StoreError> {
    decompressed(&row.compressed, row.bytes, DASHBOARD_BYTES_MAX)
        .ok_or(StoreError::Inconsistent("the document of a dashboard cannot be decompressed"))
}

/// Parses the name of a folder: parts between slashes, without surrounding space and empty parts.
///
/// # Errors
/// [`DocumentError::Field`].
pub fn parse_folder(text: &str) -> Result<String, DocumentError> {
    let parts: Vec<&str> = text.split('/').map(str::trim).filter(|part| !part.is_empty()).collect();
    let folder = parts.join("/");
    if !folder.is_empty() {
        check_text("folder", &folder, FOLDER_CHARS_MAX)?;
    }
    Ok(folder)
}

fn check_text(field: &'static str, text: &str, chars_max: usize) -> Result<(), DocumentError> {
    let chars = text.chars().count();
    if !(1..=chars_max).contains(&chars) {
        return Err(DocumentError::field(field, format!("must be 1 to {chars_max} characters, not {chars}")));
    }
    match text.chars().find(|c| is_forbidden(*c)) {
        None => Ok(()),
        Some(wrong) => {
            let code = u32::from(wrong);
            Err(DocumentError::field(field, format!("has the control or invisible character U+{code:04X}")))
        }
    }
}

/// Checks the depth of a document before any parser recurses into it. `around` is the number of
/// objects around the document in `text`. Text that is not JSON is accepted; the parser refuses it.
///
/// # Errors
/// [`DocumentError::TooMany`].
pub fn check_depth(text: &[u8], around: usize) -> Result<(), DocumentError> {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    let (allowed, found) = (DASHBOARD_DEPTH_MAX, deepest.saturating_sub(around));
    if found > allowed {
        return Err(DocumentError::TooMany { what: "levels of nesting", allowed, found });
    }
    Ok(())
}

/// The members of a dashboard that the server reads.
#[derive(serde::Deserialize)]
struct Outline<'a> {
    uid: Option<String>,
    title: Option<String>,
    tags: Option<Vec<String>>,
    #[serde(default)]
    panels: PanelCounts,
    /// Rows of dashboards before schema version 16.
    #[serde(default)]
    rows: PanelCounts,
    #[serde(borrow)]
    templating: Option<Templating<'a>>,
}

#[derive(serde::Deserialize)]
struct Templating<'a> {
    #[serde(borrow, default)]
    list: VariableList<'a>,
}

/// The number of panels and queries of an array of panels or rows.
#[derive(Clone, Copy, Default)]
struct PanelCounts {
    panels: usize,
    queries: usize,
}

impl PanelCounts {
    fn plus(self, other: PanelCounts) -> PanelCounts {
        PanelCounts { panels: self.panels + other.panels, queries: self.queries + other.queries }
    }
}

impl<'de> Deserialize<'de> for PanelCounts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<PanelCounts, D::Error> {
        struct Counter;
        impl<'de> Visitor<'de> for Counter {
            type Value = PanelCounts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of panels")
            }

            fn visit_unit<E>(self) -> Result<PanelCounts, E> {
                Ok(PanelCounts::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<PanelCounts, A::Error> {
                let mut counts = PanelCounts::default();
                while let Some(PanelOutline(own)) = all.next_element()? {
                    counts = counts.plus(own).plus(PanelCounts { panels: 1, queries: 0 });
                }
                Ok(counts)
            }
        }
        from.deserialize_any(Counter)
    }
}

/// The content of a panel or a row: its own queries, and those of the panels in it.
struct PanelOutline(PanelCounts);

impl<'de> Deserialize<'de> for PanelOutline {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<PanelOutline, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = PanelOutline;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a panel, which is an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<PanelOutline, A::Error> {
                let mut counts = PanelCounts::default();
                while let Some(name) = members.next_key::<std::borrow::Cow<'de, str>>()? {
                    match name.as_ref() {
                        "panels" => counts = counts.plus(members.next_value()?),
                        "targets" => counts.queries += members.next_value::<Length>()?.0,
                        _ => drop(members.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(PanelOutline(counts))
            }
        }
        from.deserialize_map(Reader)
    }
}

/// The length of an array; 0 for `null`.
#[derive(Clone, Copy, Default)]
struct Length(usize);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Length, D::Error> {
        struct Counter;
        impl<'de> Visitor<'de> for Counter {
            type Value = Length;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_unit<E>(self) -> Result<Length, E> {
                Ok(Length(0))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Length, A::Error> {
                let mut count = 0;
                while all.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Length(count))
            }
        }
        from.deserialize_any(Counter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<DashboardDocument, DocumentError> {
        DashboardDocument::parse(text.to_owned())
    }

    fn repeated(item: &str, count: usize) -> String {
        format!("[{}]", vec![item; count].join(","))
    }

    #[test]
    fn panels_queries_and_variables_are_counted_in_old_and_new_layouts() {
        let text = r#"{"title":" T ","uid":"a-B_1","tags":["x"],
            "panels":[{"targets":[{},{}]},{"type":"row","panels":[{"targets":[{}]},{"targets":null}]}],
            "rows":[{"panels":[{"targets":[{"a":[1,2]}]},{}]}],
            "templating":{"list":[{},{},{}]}}"#;
        let found = parse(text).expect("a dashboard");
        assert_eq!((found.panels(), found.queries(), found.variables()), (7, 4, 3));
        assert_eq!((found.title(), found.uid(), found.tags()), ("T", Some("a-B_1"), &["x".to_owned()][..]));
        assert_eq!(found.text(), text);
    }

    #[test]
    fn every_limit_is_inclusive_and_named() {
        let panels = |count| format!(r#"{{"title":"T","panels":{}}}"#, repeated("{}", count));
        let rows = |count| format!(r#"{{"title":"T","rows":[{{"panels":{}}}]}}"#, repeated("{}", count));
        let nested = |count| format!(r#"{{"title":"T","panels":[{{"panels":{}}}]}}"#, repeated("{}", count));
        let queries =
            |count| format!(r#"{{"title":"T","panels":[{{"targets":{}}}]}}"#, repeated("{}", count));
        let variables =
            |count| format!(r#"{{"title":"T","templating":{{"list":{}}}}}"#, repeated("{}", count));
        let tags = |count| format!(r#"{{"title":"T","tags":{}}}"#, repeated("\"a\"", count));
        let deep =
            |count: usize| format!(r#"{{"title":"T","x":{}{}}}"#, "[".repeat(count), "]".repeat(count));
        type Make<'a> = &'a dyn Fn(usize) -> String;
        let cases: [(Make<'_>, usize, &str); 7] = [
            (&panels, PANELS_MAX, "panels"),
            (&rows, PANELS_MAX - 1, "panels"),
            (&nested, PANELS_MAX - 1, "panels"),
            (&queries, QUERIES_MAX, "queries"),
            (&variables, VARIABLES_MAX, "variables"),
            (&tags, TAGS_MAX, "tags"),
            (&deep, DASHBOARD_DEPTH_MAX - 1, "levels of nesting"),
        ];
        for (make, most, name) in cases {
            assert!(parse(&make(most)).is_ok(), "{name}");
            let refused = parse(&make(most + 1)).expect_err("one more");
            assert!(matches!(refused, DocumentError::TooMany { what, .. } if what == name), "{refused}");
        }
        let filler = |bytes: usize| format!(r#"{{"title":"T","x":"{}"}}"#, "y".repeat(bytes - 20));
        assert_eq!(filler(100).len(), 100);
        assert!(parse(&filler(DASHBOARD_BYTES_MAX)).is_ok());
        assert_eq!(parse(&filler(DASHBOARD_BYTES_MAX + 1)), Err(DocumentError::TooLarge((1 << 20) + 1)));
    }

    #[test]
    fn a_member_that_does_not_fit_is_refused() {
        let long = |field: &str, text: String| format!(r#"{{"title":"T","{field}":"{text}"}}"#);
        for wrong in [
            "",
            "[]",
            "null",
            "{",
            r#"{"title":"T"} x"#,
            r#"{"title":"T","panels":{}}"#,
            r#"{"title":"T","panels":[1]}"#,
            r#"{"title":"T","panels":[[]]}"#,
            r#"{"title":"T","panels":[{"targets":7}]}"#,
            r#"{"title":"T","tags":[1]}"#,
            r#"{"title":"T","tags":[""]}"#,
            r#"{"title":7}"#,
            r#"{"title":"  "}"#,
            r#"{"title":"a\nb"}"#,
            r#"{"title":"a\u202eb"}"#,
            "{}",
            r#"{"title":"T","uid":"a b"}"#,
            r#"{"title":"T","uid":7}"#,
            r#"{"title":"T","title":"U"}"#,
            &long("uid", "a".repeat(41)),
            &format!(r#"{{"title":"{}"}}"#, "é".repeat(201)),
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse(&long("uid", "a".repeat(40))).is_ok());
        assert!(parse(&format!(r#"{{"title":"{}"}}"#, "é".repeat(200))).is_ok());
        assert_eq!(parse(r#"{"title":"T","uid":""}"#).expect("as if without").uid(), None);
        let refused = parse("{\"title\":\"T\",\n  \"panels\": 7}").expect_err("no array");
        assert!(matches!(refused, DocumentError::Json { line: 2, column: 13, .. }), "{refused:?}");
    }

    #[test]
    fn folders_are_paths_of_visible_parts() {
        for (text, folder) in
            [("", ""), (" / ", ""), ("Infra / Kubernetes/", "Infra/Kubernetes"), ("/a//b", "a/b")]
        {
            assert_eq!(parse_folder(text), Ok(folder.to_owned()));
        }
        assert!(parse_folder(&"a".repeat(201)).is_err() && parse_folder("a\nb").is_err());
    }

    #[test]
    fn a_document_that_compresses_badly_is_refused_by_its_compressed_length() {
        let mut state = 1_u64;
        let mut noise = String::new();
        while noise.len() < 400_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            noise.push_str(&format!("{:08x}", state >> 32));
        }
        let text = format!(r#"{{"title":"T","x":"{noise}"}}"#);
        assert!(matches!(
            parse(&text).expect("within the limits").pack().expect_err("noise"),
            DocumentError::StoredTooLarge(bytes) if bytes > DASHBOARD_STORED_BYTES_MAX
        ));
    }

    #[test]
    fn a_planted_length_allocates_no_more_than_a_document() {
        let packed = parse(r#"{"title":"T"}"#).expect("fine").pack().expect("short").row;
        assert_eq!(unpack(&packed).expect("whole"), r#"{"title":"T"}"#);
        for bytes in [0, 12, 14, 1 << 20, (1 << 20) + 1, u32::MAX] {
            assert!(unpack(&DocumentRow { bytes, ..packed.clone() }).is_err(), "{bytes}");
        }
        let bomb = compressed(&" ".repeat(64 << 20), 3).expect("compressed");
        assert!(unpack(&DocumentRow { bytes: 1 << 20, compressed: bomb }).is_err());
    }

    proptest! {
        #[test]
        fn what_is_stored_is_read_back_byte_by_byte(
            title in "[a-z]{1,20}",
            number in "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
            space in "[ \\n\\t]{0,5}",
        ) {
            let text = format!("{{{space}\"title\":{space}\"{title}\",\"x\":[{number}{space}],\"z\":{{\"ä\":\"\\u00e4\"}} }}");
            let packed = parse(&text).expect("a dashboard").pack().expect("short");
            prop_assert_eq!(unpack(&packed.row).expect("whole"), text);
        }

        #[test]
        fn no_text_panics(text in "[\\[\\]{}\",:a\\\\1 ]{0,60}") {
            let _ = parse(&text);
        }
    }
}
