//! Puts a module and everything that it imports into one module, when the binary is built.
//!
//! Each module becomes a function that runs once and returns its exports, so that equal names of
//! two modules do not meet. Such a function can express named exports of functions, classes and
//! constants, without cycles. Anything else is an error of the build.
//!
//! A dynamic import is a promise of the same function, or the one module of a second file that the
//! first one loads when it is needed ([`split`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::imports::{imports, joined};

/// Returns one module that has the effect of `entry`. `read` returns a minified module by name.
///
/// # Errors
/// The reason, with the name of the module.
pub(crate) fn bundle(entry: &str, read: &dyn Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut bundle = Bundle::new(read, None);
    bundle.add(entry)?;
    Ok(bundle.out)
}

/// Returns a module that has the effect of `entry`, without the module `later` and what only this
/// imports, and the module that is served as `later`. The first loads the second for each dynamic
/// import of it, and gives it the modules that both need.
///
/// The second exports a function with a name that depends on the first: a file of another version
/// has no such export, so the import fails as if the file were missing.
///
/// # Errors
/// The reason, with the name of the module.
pub(crate) fn split(
    entry: &str,
    later: &str,
    read: &dyn Fn(&str) -> Result<String, String>,
) -> Result<(String, String), String> {
    let mut bundle = Bundle::new(read, Some(later));
    bundle.add(entry)?;
    let shared: Vec<String> = (0..bundle.done.len()).map(|number| format!("${number}")).collect();
    let shared = shared.join(",");
    let first = std::mem::take(&mut bundle.out);
    bundle.later = None;
    bundle.add(later)?;
    let number = bundle.number(later)?;
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in first.bytes().chain(bundle.out.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let export = format!("v{hash:016x}");
    let load = format!(
        "let $more;function $later(){{return $more??=import('./{later}').then((file)=>file.{export}({{{shared}}}))\
         .catch((error)=>{{$more=null;throw error;}});}}\n"
    );
    let second = format!("export const {export}=({{{shared}}})=>{{\n{}return ${number};}};\n", bundle.out);
    Ok((load + &first, second))
}

/// A module of the bundle.
struct Done {
    number: usize,
    exports: Vec<String>,
}

struct Bundle<'a> {
    read: &'a dyn Fn(&str) -> Result<String, String>,
    done: BTreeMap<String, Done>,
    /// The modules that wait for their imports.
    open: Vec<String>,
    /// The module of a second file.
    later: Option<&'a str>,
    out: String,
}

impl<'a> Bundle<'a> {
    fn new(read: &'a dyn Fn(&str) -> Result<String, String>, later: Option<&'a str>) -> Bundle<'a> {
        Bundle { read, done: BTreeMap::new(), open: Vec::new(), later, out: String::new() }
    }

    fn number(&self, name: &str) -> Result<usize, String> {
        self.done.get(name).map(|done| done.number).ok_or_else(|| format!("{name} is missing"))
    }

    /// Adds a module after all that it imports, unless it is there.
    fn add(&mut self, name: &str) -> Result<(), String> {
        if self.done.contains_key(name) {
            return Ok(());
        }
        if self.open.iter().any(|open| open == name) {
            return Err(format!("{name}: imports itself through {}", self.open.join(", ")));
        }
        self.open.push(name.to_owned());
        let module = self.without_dynamic_imports(name, (self.read)(name)?)?;
        let mut head = String::new();
        let mut body = String::new();
        let mut copied = 0;
        for import in imports(name, &module) {
            self.add(&import.module)?;
            head.push_str(&self.bound(name, &import.module, import.names)?);
            body.push_str(module.get(copied..import.place.start).unwrap_or_default());
            copied = import.place.end;
        }
        body.push_str(module.get(copied..).unwrap_or_default());
        let (body, exports) = exported(name, &body)?;
        self.open.pop();
        let number = self.done.len();
        let returned = exports.join(",");
        // The entry exports nothing: it runs for its effect.
        _ = write!(self.out, "const ${number}=(()=>{{{head}{body}\nreturn{{{returned}}}}})();\n");
        self.done.insert(name.to_owned(), Done { number, exports });
        Ok(())
    }

    /// Replaces dynamic imports by promises. Adds their modules, except that of the second file.
    fn without_dynamic_imports(&mut self, name: &str, module: String) -> Result<String, String> {
        let mut parts = module.split("import(");
        let mut out = parts.next().unwrap_or_default().to_owned();
        let (folder, _) = name.rsplit_once('/').unwrap_or_default();
        for part in parts {
            let path = part.strip_prefix("'./").and_then(|rest| rest.split_once("')"));
            let (path, rest) = path.ok_or_else(|| format!("{name}: a dynamic import has a path, not {part:.40}"))?;
            let imported = joined(folder, path);
            if self.later == Some(imported.as_str()) {
                out.push_str("$later()");
            } else {
                self.add(&imported)?;
                _ = write!(out, "Promise.resolve(${})", self.number(&imported)?);
            }
            out.push_str(rest);
        }
        Ok(out)
    }

    /// Returns the statement that binds imported names.
    fn bound(&self, importer: &str, module: &str, names: &str) -> Result<String, String> {
        let Some(Done { number, exports }) = self.done.get(module).filter(|_| !names.is_empty()) else {
            return Ok(String::new());
        };
        let list = names.strip_prefix('{').and_then(|list| list.strip_suffix('}'));
        let list = list.ok_or_else(|| format!("{importer}: a bundle imports by name, not {names}"))?;
        let mut bindings = Vec::new();
        for binding in list.split(',').filter(|binding| !binding.is_empty()) {
            let (name, own) = binding.split_once(" as ").unwrap_or((binding, binding));
            if !exports.iter().any(|export| export == name) {
                return Err(format!("{importer}: {module} has no export {name}"));
            }
            bindings.push(if name == own { name.to_owned() } else { format!("{name}:{own}") });
        }
        Ok(format!("const{{{}}}=${number};", bindings.join(",")))
    }
}

/// Returns the body of a module without the keyword `export`, and the exported names.
fn exported(name: &str, body: &str) -> Result<(String, Vec<String>), String> {
    let mut exports = Vec::new();
    let mut out = String::with_capacity(body.len());
    for line in body.split_inclusive('\n') {
        let Some(rest) = line.strip_prefix("export") else {
            out.push_str(line);
            continue;
        };
        let declared = ["async function ", "function ", "class ", "const "]
            .iter()
            .find_map(|start| rest.trim_start().strip_prefix(start));
        if let Some(declared) = declared {
            let end = declared.find(|letter: char| !letter.is_alphanumeric() && !"_$".contains(letter));
            exports.push(declared.get(..end.unwrap_or_default()).unwrap_or_default().to_owned());
            out.push_str(rest.trim_start());
        } else if let Some((list, after)) = rest.strip_prefix('{').and_then(|list| list.split_once('}')) {
            exports.extend(list.split(',').filter(|name| !name.is_empty()).map(str::to_owned));
            out.push_str(after.trim_start_matches(';'));
        } else {
            return Err(format!("{name}: a bundle cannot have {line:.60}"));
        }
    }
    if exports.iter().any(|export| export.is_empty() || export.contains(' ')) {
        return Err(format!("{name}: a bundle exports names as they are, not {exports:?}"));
    }
    Ok((out, exports))
}

#[cfg(test)]
mod tests {
    use super::{bundle, split};

    fn read(modules: &[(&str, &str)], name: &str) -> Result<String, String> {
        let module = modules.iter().find(|(own, _)| *own == name);
        module.map(|(_, text)| (*text).to_owned()).ok_or_else(|| format!("{name}: missing"))
    }

    fn bundled(modules: &[(&str, &str)]) -> Result<String, String> {
        bundle("entry.js", &|name| read(modules, name))
    }

    /// Two modules, of which the second is imported when it is needed; both import a third.
    const LATER: [(&str, &str); 4] = [
        ("entry.js", "import{c}from'./p/c.js';\nimport('./p/b.js').then(f);"),
        ("p/b.js", "import{c}from'./c.js';\nimport{d}from'./d.js';\nexport const b=c+d;"),
        ("p/c.js", "export const c=1;"),
        ("p/d.js", "export const d=2;"),
    ];

    #[test]
    fn a_dynamic_import_is_a_promise_of_the_same_module() {
        let module = bundled(&LATER).unwrap();
        let [own, promise] = ["const{c}=$0;const{d}=$1;", "Promise.resolve($2).then(f);"];
        assert!(module.contains(own) && module.contains(promise) && !module.contains("import("), "{module}");
    }

    #[test]
    fn a_second_file_has_what_only_the_later_module_imports() {
        let (first, second) = split("entry.js", "p/b.js", &|name| read(&LATER, name)).unwrap();
        assert!(first.contains("{const{c}=$0;\n$later().then(f);"), "{first}");
        assert!(first.contains("import('./p/b.js')") && !first.contains("d=2"), "{first}");
        assert!(second.contains("const d=2") && !second.contains("const c=1"), "{second}");
        let (_, export) = first.split_once("file.").unwrap();
        let (export, _) = export.split_once('(').unwrap();
        assert!(second.starts_with(&format!("export const {export}=({{$0,$1}})=>{{")), "{second}");
        assert!(second.ends_with("return $3;};\n"), "{second}");
        let changed = LATER.map(|(name, text)| (name, text.replace("d=2", "d=3")));
        let changed = changed.each_ref().map(|(name, text)| (*name, text.as_str()));
        let (other, _) = split("entry.js", "p/b.js", &|name| read(&changed, name)).unwrap();
        assert!(!other.contains(export), "the files of two versions do not fit each other");
    }

    #[test]
    fn modules_become_functions_after_what_they_import() {
        let modules = [
            ("entry.js", "import{a as x,B}from'./p/a.js';\nimport'./p/c.js';x(B);"),
            ("p/a.js", "import{c}from'./c.js';\nexport const a=(y)=>c+y;\nexport class B{}"),
            ("p/c.js", "const c=1;\nexport{c};"),
        ];
        assert_eq!(
            bundled(&modules).unwrap(),
            "const $0=(()=>{const c=1;\n\nreturn{c}})();\n\
             const $1=(()=>{const{c}=$0;\nconst a=(y)=>c+y;\nclass B{}\nreturn{a,B}})();\n\
             const $2=(()=>{const{a:x,B}=$1;\nx(B);\nreturn{}})();\n"
        );
    }

    #[test]
    fn forms_that_a_function_cannot_express_are_errors() {
        for (modules, why) in [
            (vec![("entry.js", "import'./a.js';"), ("a.js", "import'./entry.js';")], "imports itself"),
            (vec![("entry.js", "import{a}from'./a.js';"), ("a.js", "export const b=1;")], "no export a"),
            (vec![("entry.js", "import*as a from'./a.js';"), ("a.js", "")], "imports by name"),
            (vec![("entry.js", "export let a=1;")], "cannot have"),
            (vec![("entry.js", "export default 1;")], "cannot have"),
            (vec![("entry.js", "export const{a}=b;")], "cannot have"),
            (vec![("entry.js", "f(import(a));")], "dynamic"),
            (vec![("entry.js", "import('./a.js');"), ("a.js", "import{}from'./entry.js';")], "imports itself"),
            (vec![("entry.js", "const a=1;\nexport{a as b};")], "as they are"),
            (vec![("entry.js", "import'./none.js';")], "missing"),
        ] {
            let error = bundled(&modules).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
