//! Fills the table of imports, when the binary is built, so that browsers load a page's modules at
//! once instead of level by level.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::imports;

/// The module with the table.
pub(crate) const TABLE: &str = "client/import_table.js";
/// The module that pages load first. Its imports are in the pages.
const FIRST: &str = "app.js";
/// The folders whose modules are loaded when they are needed.
const LATER: [&str; 2] = ["pages/", "panels/"];

/// Returns the module [`TABLE`] with the imports of all pages and panels. `modules` are minified,
/// by name.
///
/// # Errors
/// The reason if the module does not have an empty table.
pub(crate) fn filled(modules: &BTreeMap<String, String>) -> Result<String, String> {
    let first = closure(FIRST, modules);
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut rows = Vec::new();
    for name in modules.keys().filter(|name| LATER.iter().any(|folder| name.starts_with(folder))) {
        let imported =
            closure(name, modules).into_iter().filter(|other| other != name && !first.contains(other));
        let imported: Vec<String> = imported
            .map(|other| {
                let number = numbers.len();
                numbers.entry(other).or_insert(number).to_string()
            })
            .collect();
        rows.push(format!("'{name}':[{}]", imported.join(",")));
    }
    let mut names: Vec<(usize, String)> = numbers.into_iter().map(|(name, number)| (number, name)).collect();
    names.sort_unstable();
    let names: Vec<String> = names.into_iter().map(|(_, name)| format!("'{name}'")).collect();
    let empty = modules.get(TABLE).ok_or_else(|| format!("{TABLE} is missing"))?;
    if !empty.contains("MODULES=[]") || !empty.contains("IMPORTED={}") {
        return Err(format!("{TABLE} has no empty table"));
    }
    let module = empty.replace("MODULES=[]", &format!("MODULES=[{}]", names.join(",")));
    Ok(module.replace("IMPORTED={}", &format!("IMPORTED={{{}}}", rows.join(","))))
}

/// Returns a module and all that it imports, directly or through others.
fn closure(name: &str, modules: &BTreeMap<String, String>) -> BTreeSet<String> {
    let (mut found, mut queue) = (BTreeSet::new(), vec![name.to_owned()]);
    while let Some(name) = queue.pop() {
        let Some(module) = modules.get(&name) else { continue };
        if found.insert(name.clone()) {
            queue.extend(imports(&name, module).into_iter().map(|import| import.module));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{TABLE, filled};

    #[test]
    fn pages_and_panels_have_what_they_import_beyond_the_first_module() {
        let modules = [
            ("app.js", "import{a}from'./a.js';"),
            ("a.js", ""),
            ("b.js", "import{a}from'./a.js';\nimport{c}from'./c.js';"),
            ("c.js", "import{b}from'./b.js';"),
            ("pages/p.js", "import{b}from'../b.js';"),
            ("panels/q.js", "import{a}from'../a.js';"),
            (TABLE, "export const MODULES=[];\nexport const IMPORTED={};"),
        ];
        let modules = modules.map(|(name, module)| (name.to_owned(), module.to_owned())).into();
        assert_eq!(
            filled(&modules).unwrap(),
            "export const MODULES=['b.js','c.js'];\nexport const IMPORTED={'pages/p.js':[0,1],'panels/q.js':[]};"
        );
    }
}
