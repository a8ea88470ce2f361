//! The documents: their links resolve, and the pages of the guide are short.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{files_below, relative_to_root, root};

/// The most lines of a page of the guide, inclusive.
const PAGE_LINES_MAX: usize = 150;
/// The most bytes of documents that a newcomer reads first, inclusive.
const BYTES_MAX: [(&str, usize); 3] =
    [("ARCHITECTURE.md", 14_000), ("README.md", 8_000), ("CHANGELOG.md", 6_000)];

/// The documents at the top level, in `docs` and in `examples`.
fn documents() -> Vec<PathBuf> {
    let top = fs::read_dir(root()).expect("readable").map(|entry| entry.expect("readable").path());
    let mut found: Vec<PathBuf> =
        top.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    found.extend(["docs", "examples"].iter().flat_map(|dir| files_below(&root().join(dir), ".md")));
    found
}

/// The lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_block = false;
    text.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        is_block ^= is_fence;
        !is_block && !is_fence
    })
}

/// Returns the anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// The targets of the links of a text, without those to other sites. Text in backquotes is no link.
fn links(text: &str) -> Vec<String> {
    let lines = prose(text).collect::<Vec<_>>().join("\n");
    let outside: String = lines.split('`').step_by(2).collect::<Vec<_>>().join("``");
    let ends = outside.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let targets = ends.map(|(target, _)| target.to_owned());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")).collect()
}

/// Returns the path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

#[test]
fn every_link_of_the_documents_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    let mut checked = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).expect("UTF-8");
        for link in links(&text) {
            checked += 1;
            let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => document.clone(),
                path => normal(&document.parent().expect("in a folder").join(path)),
            };
            let has_heading =
                || fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(heading));
            if !target.exists() || (!heading.is_empty() && !has_heading()) {
                broken.push(format!("{}: {link}", relative_to_root(&document)));
            }
        }
    }
    assert!(broken.is_empty(), "links without a target:\n{}", broken.join("\n"));
    assert!(checked > 100, "{checked} links");
}

#[test]
fn pages_of_the_guide_and_first_documents_are_short() {
    for page in files_below(&root().join("docs/guide"), ".md") {
        let lines = fs::read_to_string(&page).expect("UTF-8").lines().count();
        assert!(lines <= PAGE_LINES_MAX, "{}: {lines} lines", relative_to_root(&page));
    }
    for (document, bytes_max) in BYTES_MAX {
        let bytes = fs::read(root().join(document)).expect("readable").len();
        assert!(bytes <= bytes_max, "{document}: {bytes} bytes; at most {bytes_max} are allowed");
    }
}

#[test]
fn links_in_code_are_no_links_and_headings_have_the_anchors_of_github() {
    let text = "# A `b`: c, d\n[x](#a-b-c-d) `[y](z)` [w](https://e)\n```\n# no [v](u)\n```\n";
    assert_eq!(links(text), ["#a-b-c-d"]);
    assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), ["a-b-c-d"]);
}
