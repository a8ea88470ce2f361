//! Puts a module and everything that it imports into one module, when the binary is built.
//!
//! Each module becomes a function that runs once and returns its exports, so that equal names of
//! two modules do not meet. Such a function can express named exports of functions, classes and
//! constants, without cycles. Anything else is an error of the build.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::imports::imports;

/// Returns one module that has the effect of `entry`. `read` returns a minified module by name.
///
/// # Errors
/// The reason, with the name of the module.
pub(crate) fn bundle(entry: &str, read: &dyn Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut bundle = Bundle { read, done: BTreeMap::new(), open: Vec::new(), out: String::new() };
    bundle.add(entry)?;
    Ok(bundle.out)
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
    out: String,
}

impl Bundle<'_> {
    /// Adds a module after all that it imports, unless it is there.
    fn add(&mut self, name: &str) -> Result<(), String> {
        if self.done.contains_key(name) {
            return Ok(());
        }
        if self.open.iter().any(|open| open == name) {
            return Err(format!("{name}: imports itself through {}", self.open.join(", ")));
        }
        self.open.push(name.to_owned());
        let module = (self.read)(name)?;
        if module.contains("import(") {
            return Err(format!("{name}: a bundle has no dynamic imports"));
        }
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
    use super::bundle;

    fn bundled(modules: &[(&str, &str)]) -> Result<String, String> {
        let read = |name: &str| {
            let module = modules.iter().find(|(own, _)| *own == name);
            module.map(|(_, text)| (*text).to_owned()).ok_or_else(|| format!("{name}: missing"))
        };
        bundle("entry.js", &read)
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
            (vec![("entry.js", "f(import('./a.js'));")], "dynamic"),
            (vec![("entry.js", "const a=1;\nexport{a as b};")], "as they are"),
            (vec![("entry.js", "import'./none.js';")], "missing"),
        ] {
            let error = bundled(&modules).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
