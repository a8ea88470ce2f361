//! Finds the static imports of minified modules.
//!
//! Used by the build script, which bundles modules, and by the library, which lists them in pages.

use std::ops::Range;

/// A statement that imports from another module, or exports from it.
pub(crate) struct Import<'a> {
    /// The name of the other module, relative to the folder of all modules.
    pub(crate) module: String,
    /// The imported names with their braces; empty for an import without names.
    pub(crate) names: &'a str,
    /// The statement in the importing module, in bytes, with its semicolon.
    pub(crate) place: Range<usize>,
}

/// Returns the static imports of the minified module `name`, in their order. Such a statement
/// begins a line, and ends with a semicolon.
pub(crate) fn imports<'a>(name: &str, module: &'a str) -> Vec<Import<'a>> {
    let (folder, _) = name.rsplit_once('/').unwrap_or_default();
    let mut found = Vec::new();
    let mut begin = 0;
    for line in module.split_inclusive('\n') {
        let place = begin..begin + line.find(';').map_or(line.len(), |end| end + 1);
        begin += line.len();
        let statement = module.get(place.clone()).unwrap_or_default();
        let Some(rest) = statement.strip_prefix("import").or_else(|| statement.strip_prefix("export")) else {
            continue;
        };
        let rest = rest.trim_end_matches(['\n', ';']);
        let (names, specifier) = match rest.split_once("from'") {
            Some((names, specifier)) if names.starts_with(['{', '*']) => (names, specifier),
            _ => match rest.strip_prefix('\'') {
                Some(specifier) => ("", specifier),
                None => continue,
            },
        };
        if let Some(specifier) = specifier.strip_suffix('\'') {
            found.push(Import { module: joined(folder, specifier), names, place });
        }
    }
    found
}

/// Resolves a relative module specifier.
pub(crate) fn joined(folder: &str, specifier: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in specifier.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::imports;

    #[test]
    fn imports_and_exports_from_other_modules_are_found() {
        let module = "import{a,b as c}from'./x.js';const d=a;\nimport'../e.js';\nexport{f}from'./g/h.js';\nexport{d};\n\
                      import('./lazy.js');\nexport const i='from';";
        let found: Vec<_> = imports("k/m.js", module)
            .into_iter()
            .map(|one| (one.module, one.names.to_owned(), module[one.place].to_owned()))
            .collect();
        assert_eq!(
            found,
            [
                ("k/x.js", "{a,b as c}", "import{a,b as c}from'./x.js';"),
                ("e.js", "", "import'../e.js';"),
                ("k/g/h.js", "{f}", "export{f}from'./g/h.js';"),
            ]
            .map(|(module, names, text)| (module.to_owned(), names.to_owned(), text.to_owned()))
        );
    }
}
