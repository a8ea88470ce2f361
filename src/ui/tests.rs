//! Tests of the UI's files: complete, small, and compliant with the strict policy.

use super::*;
use std::collections::BTreeSet;
use std::path::Path;

fn assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ui/assets")
}

fn names_below(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            names_below(&entry.path(), &format!("{name}/"), found);
        } else {
            assert!(found.insert(name.clone()), "{name} twice");
        }
    }
}

/// The source of a file, because the served file has no comments and little white space.
fn text(file: &Embedded) -> String {
    std::fs::read_to_string(assets().join(file.name)).unwrap()
}

fn of(kind: AssetKind) -> impl Iterator<Item = &'static Embedded> {
    FILES.iter().filter(move |file| file.kind == kind)
}

#[test]
fn every_file_of_the_folder_is_listed_once() {
    let mut on_disk = BTreeSet::new();
    names_below(&assets(), "", &mut on_disk);
    let listed: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
    assert_eq!(listed, on_disk);
    assert_eq!(listed.len(), FILES.len(), "a file is listed twice");
}

#[test]
fn a_path_belongs_to_one_file() {
    let mut seen = BTreeSet::new();
    for file in FILES {
        for path in file.paths {
            assert!(path.starts_with('/') && seen.insert(*path), "{path}");
        }
    }
    for file in served() {
        for path in file.paths {
            assert_eq!(super::file(path).unwrap().bytes, file.bytes, "{path}");
        }
    }
    for kind in [AssetKind::Module, AssetKind::Style, AssetKind::Image, AssetKind::Data] {
        for file in of(kind) {
            // Relative imports resolve against the path, so the path must equal the name.
            assert_eq!(file.paths, [format!("/{}", file.name)], "{}", file.name);
        }
    }
}

fn named(name: &str) -> &'static Embedded {
    served().find(|file| file.name == name).unwrap_or_else(|| panic!("there is no {name}"))
}

fn gzipped(bytes: &[u8]) -> usize {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap().len()
}

fn gzip_bytes(file: &Embedded) -> usize {
    gzipped(file.bytes)
}

#[test]
fn the_first_page_is_at_most_60_kb_of_gzip_and_the_whole_cabinet_330_kb() {
    let first = ["index.html", "app.css", "panels.css", "cabinet.css", "app.js", "app.parts.js"];
    let bytes: usize = first.into_iter().map(|name| gzip_bytes(named(name))).sum();
    assert!(bytes <= 60_000, "{bytes} bytes for the first page");
    // The elements for pages of other origins have bounds of their own.
    let total: usize =
        served().filter(|file| !file.name.starts_with("embed") && !file.any_origin).map(gzip_bytes).sum();
    let types = gzip_bytes(named("embed.d.ts"));
    assert!(total + types <= 330_000, "{total} bytes");
}

/// The names of the modules that a module of the sources imports statically.
fn imported(module: &Embedded) -> Vec<String> {
    let minified = minify::module(&text(module)).unwrap();
    imports::imports(module.name, &minified).into_iter().map(|import| import.module).collect()
}

fn source(name: &str) -> &'static Embedded {
    FILES.iter().find(|file| file.name == name).unwrap_or_else(|| panic!("there is no {name}"))
}

#[test]
fn every_import_names_a_file_of_the_table() {
    for module in of(AssetKind::Module) {
        let imported = imported(module);
        let text = text(module);
        let exported = text.split("\nexport {").skip(1).filter_map(|rest| rest.split(';').next());
        let from = exported.filter(|statement| statement.contains(" from '")).count();
        let statements = text.split("\nimport ").skip(1).count() + from;
        assert_eq!(imported.len(), statements, "{}: {imported:?}", module.name);
        for name in imported {
            assert_eq!(source(&name).kind, AssetKind::Module, "{} imports {name}", module.name);
        }
    }
}

#[test]
fn the_table_of_served_files_has_what_the_build_script_makes() {
    let made = bundles::BUNDLES.iter().flat_map(|(entry, chunks)| {
        std::iter::once(*entry).chain(chunks.files.iter().map(|(name, _)| *name))
    });
    let made: BTreeSet<&str> = made.collect();
    assert_eq!(BUNDLES.iter().map(|file| file.name).collect::<BTreeSet<_>>(), made);
    assert_eq!(BUNDLES.len(), made.len());
    for (path, names) in PRELOADS {
        let page = find(path).unwrap();
        let html = body(&Ui::embedded(), path);
        assert_eq!(page.kind, AssetKind::Page, "{path}");
        for name in *names {
            assert!(html.contains(&format!("{}/{name}\"", IMMUTABLE_ROOT.as_str())), "{path}: {name}");
            assert!(!named(name).any_origin, "{name}");
        }
    }
}

#[test]
fn pages_carry_no_inline_script_style_or_handler() {
    for page in of(AssetKind::Page) {
        for tag in
            text(page).split('<').skip(1).map(|rest| rest.split('>').next().unwrap().to_ascii_lowercase())
        {
            let name = tag.split_ascii_whitespace().next().unwrap_or_default();
            assert_ne!(name, "style", "{}: inline style", page.name);
            assert_ne!(name, "base", "{}: base is forbidden by the policy", page.name);
            assert!(name != "script" || tag.contains("src=\""), "{}: inline script", page.name);
            for attribute in tag.split_ascii_whitespace().skip(1) {
                assert!(!attribute.starts_with("on"), "{}: handler in <{tag}>", page.name);
                assert!(!attribute.starts_with("style="), "{}: style in <{tag}>", page.name);
            }
            assert!(!tag.contains("javascript:"), "{}: <{tag}>", page.name);
        }
    }
}

#[test]
fn modules_neither_build_markup_from_text_nor_run_text() {
    // Metric names and label values are untrusted: pages show them in text nodes only (F 48).
    for module in of(AssetKind::Module) {
        for word in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
        {
            assert!(!text(module).contains(word), "{}: {word}", module.name);
        }
        for attribute in ["setAttribute('style", "setAttribute(\"style", "cssText"] {
            assert!(!text(module).contains(attribute), "{}: {attribute} is an inline style", module.name);
        }
    }
}

/// A bundle has each module in a function, which cannot wait.
#[test]
fn no_module_awaits_at_its_top_level() {
    for file in of(AssetKind::Module) {
        let source = text(file);
        let is_top = |line: &&str| line.starts_with(|first: char| first.is_ascii_alphabetic());
        for line in source.lines().filter(is_top) {
            let awaits = line.split(|c: char| !c.is_alphanumeric()).any(|word| word == "await");
            assert!(!awaits || line.contains("async"), "{}: {line}", file.name);
        }
    }
}

#[test]
fn no_file_refers_to_another_host() {
    for file in FILES {
        let text = text(file);
        for (at, _) in text.match_indices("://") {
            let after: String = text.get(at..).unwrap().chars().take(40).collect();
            // Neither the name of a namespace nor the placeholder of a field is ever fetched; the
            // top-level domain of the latter does not exist (RFC 2606).
            let is_placeholder = after.contains(".example/");
            assert!(after.starts_with("://www.w3.org/") || is_placeholder, "{}: …{after}", file.name);
        }
        for word in ["src=\"//", "href=\"//", "url(", "@import"] {
            assert!(!text.contains(word), "{}: {word}", file.name);
        }
    }
}

#[test]
fn paths_outside_the_table_are_refused() {
    let editing = Ui::from_dir(assets());
    for path in [
        "",
        "index.html",
        "/index.html",
        "/../Cargo.toml",
        "/..%2fCargo.toml",
        "/pages/../../mod.rs",
        "/client",
        "/client/server",
        "//etc/passwd",
        "/app.css/",
        "/app.css\0",
        "/%61pp.css",
        "/assets/app.css",
        "\\app.css",
        "/chart",
        "/chart/",
    ] {
        assert_eq!(file(path), None, "{path}");
        assert_eq!(editing.file(path).unwrap(), None, "{path}");
    }
}

fn body(ui: &Ui, path: &str) -> String {
    let file = ui.file(path).unwrap().unwrap_or_else(|| panic!("there is no {path}"));
    String::from_utf8(file.bytes.into_owned()).unwrap()
}

#[test]
fn a_page_refers_to_immutable_paths() {
    for (ui, prefix) in [(Ui::embedded(), ""), (Ui::embedded().below("/below"), "/below")] {
        for (page, script) in [("/", "app.js"), ("/dashboard", "app.js"), ("/docs", "docs.js")] {
            let html = body(&ui, page);
            let mut referred = BTreeSet::new();
            for reference in
                html.split("=\"/").skip(1).map(|rest| format!("/{}", rest.split('"').next().unwrap()))
            {
                let path = reference.strip_prefix(prefix).unwrap();
                if matches!(path, "/" | "/api/v1/openapi.json") {
                    continue;
                }
                let file = ui.file(path).unwrap().unwrap_or_else(|| panic!("{page} refers to {path}"));
                let name = file.immutable.unwrap_or_else(|| panic!("{path} is not immutable"));
                assert!(path.ends_with(name), "{path}");
                assert_eq!(file.bytes, named(name).bytes, "{path}");
                let is_new = referred.insert(name);
                assert!(is_new || file.kind != AssetKind::Module, "{page} refers to {name} twice");
            }
            assert!(referred.contains(script) && referred.contains("app.css"), "{referred:?}");
        }
    }
}

#[test]
fn pages_and_other_versions_have_no_immutable_path() {
    let ui = Ui::embedded();
    let root = IMMUTABLE_ROOT.as_str();
    assert_eq!(ui.file(&format!("{root}/app.js")).unwrap().unwrap().bytes, named("app.js").bytes);
    let others = ["/assets/0123456789abcdef/app.js", "/assets/app.js", "/assets//app.js", root];
    for path in others
        .map(str::to_owned)
        .into_iter()
        .chain(["", "/", "/login", "/app.j"].map(|end| format!("{root}{end}")))
    {
        assert_eq!(ui.file(&path).unwrap(), None, "{path}");
    }
    let editing = Ui::from_dir(assets());
    assert_eq!(editing.file(&format!("{root}/app.js")).unwrap(), None);
    assert_eq!(body(&editing, "/"), text(source("index.html")));
    let without_docs = Ui::embedded().without_docs();
    assert_eq!(without_docs.file(&format!("{root}/docs.js")).unwrap(), None);
}

#[test]
fn other_origins_load_the_element_with_one_request_of_at_most_17_kb() {
    let bundle = Ui::embedded().file("/embed.js").unwrap().unwrap();
    assert!(bundle.any_origin && bundle.immutable.is_none());
    let module = str::from_utf8(&bundle.bytes).unwrap();
    assert!(!module.contains("import") || !module.contains("from'"), "it imports");
    // Five lines of an hour take 8 kB more, and a first chart at most 25 kB.
    let bytes = gzipped(&bundle.bytes);
    assert!(bytes <= 17_000, "{bytes} bytes");
    assert_eq!(body(&Ui::from_dir(assets()), "/embed.js"), text(source("embed.js")));
}

#[test]
fn live_charts_and_readers_need_one_more_file_each_which_fits_the_element_of_the_same_binary_alone() {
    let ui = Ui::embedded();
    let first = body(&ui, "/embed.js");
    let (_, export) = first.split_once("=>e.").unwrap();
    let (export, _) = export.split_once('(').unwrap();
    for (name, bytes_max) in [("chart/later.js", 8_000), ("chart/cursor.js", 5_000)] {
        let path = format!("/{name}");
        let file = ui.file(&path).unwrap().unwrap();
        assert!(file.any_origin && file.immutable.is_none());
        let second = body(&ui, &path);
        assert!(!second.contains("from'") && first.contains(&format!("'{name}'")));
        assert!(second.starts_with(&format!("export const {export}=")), "{export}");
        let bytes = gzipped(&file.bytes);
        assert!(bytes <= bytes_max, "{name}: {bytes} bytes");
        assert_eq!(body(&Ui::from_dir(assets()), &path), text(source(name)));
    }
}

#[test]
fn other_origins_load_the_element_for_dashboards_with_at_most_60_kb_and_its_parts_when_they_need_them() {
    let ui = Ui::embedded();
    let bundle = ui.file("/embed-dashboard.js").unwrap().unwrap();
    assert!(bundle.any_origin && bundle.immutable.is_none());
    let bytes = gzipped(&bundle.bytes);
    assert!(bytes <= 60_000, "{bytes} bytes");
    let module = String::from_utf8(bundle.bytes.to_vec()).unwrap();
    assert!(!module.lines().any(|line| line.starts_with("import")) && module.contains(".panel-grid{"));
    for word in ["Discard", "aliasColors"] {
        assert!(!module.contains(word), "{word} is in the first file");
    }
    let below = |name: &str| ui.file(&format!("{}/{name}", IMMUTABLE_ROOT.as_str())).unwrap().unwrap();
    for chunk in BUNDLES
        .iter()
        .filter(|file| file.name.starts_with("embed-dashboard.") && file.name != "embed-dashboard.js")
    {
        let file = ui.file(chunk.paths[0]).unwrap().unwrap();
        assert!(file.any_origin && module.contains(&format!("'{}'", chunk.name)), "{}", chunk.name);
        // Both files have the same version, from whichever path the first one was loaded.
        assert_eq!(below(chunk.name).bytes, file.bytes, "{}", chunk.name);
        let bytes = gzipped(&file.bytes);
        assert!(bytes <= 45_000, "{}: {bytes} bytes", chunk.name);
    }
    let immutable = below("embed-dashboard.js");
    assert_eq!((immutable.bytes, immutable.immutable), (bundle.bytes, Some("embed-dashboard.js")));
}

#[test]
fn other_origins_load_the_element_for_alerts_with_one_request_of_at_most_8_kb() {
    let ui = Ui::embedded();
    let [bundle, later] =
        ["/embed-alerts.js", "/embed-alerts.later.js"].map(|path| ui.file(path).unwrap().unwrap());
    assert!(bundle.any_origin && bundle.immutable.is_none() && later.any_origin);
    let module = str::from_utf8(&bundle.bytes).unwrap();
    assert!(!module.lines().any(|line| line.starts_with("import")), "it imports");
    assert!(module.contains("'embed-alerts.later.js'"));
    let [first, second] = [&bundle, &later].map(|file| gzipped(&file.bytes));
    assert!(first <= 8_000 && second <= 11_000, "{first} and {second} bytes");
    assert_eq!(body(&Ui::from_dir(assets()), "/embed-alerts.js"), text(source("embed-alerts.js")));
}

#[test]
fn a_shared_page_loads_the_bundle_and_its_own_script() {
    let html = body(&Ui::embedded(), "/share");
    assert!(html.contains(&format!("src=\"{}/embed-dashboard.js\"", IMMUTABLE_ROOT.as_str())), "{html}");
    assert!(!html.contains("/components/") && html.contains("/shared.js\""), "{html}");
}

#[test]
fn other_origins_may_read_the_types_of_the_element() {
    let types = Ui::embedded().file("/embed.d.ts").unwrap().unwrap();
    assert!(types.any_origin);
    assert_eq!(types.content_type, "text/plain; charset=utf-8");
}

#[test]
fn an_editing_folder_serves_the_bytes_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let editing = Ui::from_dir(folder.path());
    assert!(matches!(editing.file("/app.css"), Err(UiError::Read { .. })));
    std::fs::write(folder.path().join("app.css"), "p { color: teal }").unwrap();
    let first = editing.file("/app.css").unwrap().unwrap();
    assert_eq!((&*first.bytes, first.kind), (&b"p { color: teal }"[..], AssetKind::Style));
    std::fs::write(folder.path().join("app.css"), "p { color: navy }").unwrap();
    assert_ne!(editing.file("/app.css").unwrap().unwrap().etag, first.etag);
    std::fs::write(folder.path().join("app.css"), vec![b' '; 1 + (1 << 20)]).unwrap();
    assert!(matches!(editing.file("/app.css"), Err(UiError::TooLarge { .. })));
}

#[test]
fn a_browser_with_the_same_bytes_gets_not_modified() {
    let page = file("/").unwrap();
    let cases = [
        (page.etag.clone(), true),
        (format!("W/{}", page.etag), true),
        (format!("\"other\", {}", page.etag), true),
        ("*".to_owned(), true),
        ("\"other\"".to_owned(), false),
        (String::new(), false),
    ];
    for (sent, held) in cases {
        assert_eq!(page.is_held(&sent), held, "{sent}");
    }
}

#[test]
fn below_a_prefix_pages_refer_to_files_below_it() {
    let placed = Ui::embedded().below("/metrics/ui");
    for page in of(AssetKind::Page) {
        let path = page.paths[0];
        let html = String::from_utf8(placed.file(path).unwrap().unwrap().bytes.into_owned()).unwrap();
        assert!(html.contains("src=\"/metrics/ui/"), "{path}");
        for rest in html.split("=\"/").skip(1) {
            assert!(rest.starts_with("metrics/ui/"), "{path}: {rest:.40}");
        }
        assert_ne!(placed.file(path).unwrap().unwrap().etag, super::file(path).unwrap().etag);
    }
    assert_eq!(
        placed.file("/app.js").unwrap(),
        super::file("/app.js"),
        "modules import each other by relative paths"
    );
}

#[test]
fn without_docs_their_files_are_not_served() {
    let ui = Ui::embedded().without_docs();
    for path in ["/docs", "/docs.js", "/docs.css"] {
        assert!(super::file(path).is_some());
        assert_eq!(ui.file(path).unwrap(), None);
    }
    assert!(ui.file("/").unwrap().is_some());
}

/// Addresses of the server are built from a module's own URL, because a path from the root would
/// ignore the prefix.
#[test]
fn modules_name_no_path_from_the_root() {
    for module in of(AssetKind::Module) {
        for start in [
            "href: '/",
            "src: '/",
            "action: '/",
            "replaceState(null, '', '/",
            "pushState(null, '', '/",
            "fetch('/",
            "location = '/",
            "location.assign('/",
        ] {
            assert!(!text(module).contains(start), "{}: {start}", module.name);
        }
    }
}

/// All sheets of the cabinet apply to each of its pages. The API page has a document of its own.
#[test]
fn a_class_alone_is_styled_by_one_sheet() {
    let mut sheets: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    // No page has these beside the sheets of the cabinet.
    let apart = ["docs.css", "embed-dashboard.css", "shared.css"];
    for file in of(AssetKind::Style).filter(|file| !apart.contains(&file.name)) {
        let source = minify::style(&text(file)).unwrap();
        for rule in source.split('}') {
            let selectors = rule.split('{').next().unwrap().split(',').map(str::trim);
            for selector in selectors.filter(|selector| {
                selector.strip_prefix('.').is_some_and(|class| {
                    class.chars().all(|letter| letter.is_alphanumeric() || letter == '-')
                })
            }) {
                sheets.entry(selector.to_owned()).or_default().insert(file.name);
            }
        }
    }
    assert!(sheets.len() > 100);
    // Panels are also shown without the sheet of the pages, so they share no class with it.
    let panels = text(source("panels.css"));
    let is_in_panels = |selector: &str| {
        panels.match_indices(selector).any(|(at, _)| {
            let after = panels.get(at + selector.len()..).and_then(|rest| rest.chars().next());
            after.is_none_or(|letter| !letter.is_alphanumeric() && letter != '-')
        })
    };
    sheets
        .retain(|selector, names| names.len() > 1 || names.contains("cabinet.css") && is_in_panels(selector));
    assert!(sheets.is_empty(), "{sheets:#?}");
}
