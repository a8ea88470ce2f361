//! Puts a module and everything that it imports into one module, when the binary is built.
//!
//! Each module becomes a function that runs once and returns its exports, so that equal names of
//! two modules do not meet. Such a function can express named exports of functions, classes and
//! constants, without cycles. Anything else is an error of the build.
//!
//! A dynamic import is a promise of the same function, or it loads a further file, a chunk. A chunk
//! has the modules that the bundle lacks, and adds them to those of the bundle.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::imports::{imports, joined};

/// Returns a module that has the effect of `entry`, and the contents of its chunks in the order of
/// `chunks`: each has the name of its file, relative to that of `entry`, and the modules for whose
/// dynamic import it is loaded. `read` returns a minified module by name.
///
/// A chunk exports a function with a name that depends on all files: a file of another version has
/// no such export, so the import fails as if the file were missing.
///
/// # Errors
/// The reason, with the name of the module.
pub(crate) fn split(
    entry: &str,
    chunks: &[(&str, &[&str])],
    read: &dyn Fn(&str) -> Result<String, String>,
) -> Result<(String, Vec<String>), String> {
    let roots: Vec<&str> = chunks.iter().flat_map(|(_, roots)| roots.iter().copied()).collect();
    let mut bundle = Bundle::new(read, &roots);
    bundle.add(entry)?;
    let main = std::mem::take(&mut bundle.out);
    if chunks.is_empty() {
        return Ok((main, Vec::new()));
    }
    let main_modules = bundle.done.len();
    bundle.in_chunk = true;
    let (mut files, mut places) = (Vec::new(), String::new());
    for (file, roots) in chunks {
        bundle.written.clear();
        for root in *roots {
            let included = bundle.done.get(*root).is_some_and(|done| !done.late);
            bundle.add(root)?;
            let number = bundle.number(root)?;
            _ = write!(places, "['{}',{number}],", if included { "" } else { file });
        }
        files.push(std::mem::take(&mut bundle.out));
    }
    let all = files.iter().fold(main.clone(), |all, file| all + file);
    let version =
        all.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    // Without the entry, which may still run when it loads the first chunk.
    let modules: Vec<String> =
        (0..main_modules.saturating_sub(1)).map(|number| format!("${number}")).collect();
    let modules = modules.join(",");
    let head = format!(
        "let $all;const $at=[{places}],$in={{}},$chunk=async(a)=>{{const[b,c]=$at[a];$all??=[{modules}];\
         if(b)await($in[b]??=import('./'+b).then((a)=>a.v{version:08x}($all,$chunk))\
         .catch((a)=>{{delete $in[b];throw a;}}));return $all[c];}};\n"
    );
    let files =
        files.into_iter().map(|file| format!("export const v{version:08x}=($all,$chunk)=>{{\n{file}}};\n"));
    Ok((head + &main, files.collect()))
}

/// A module of the bundle.
struct Done {
    number: usize,
    exports: Vec<String>,
    /// Whether it is in a chunk.
    late: bool,
}

struct Bundle<'a> {
    read: &'a dyn Fn(&str) -> Result<String, String>,
    /// The modules for whose dynamic import a chunk is loaded.
    roots: &'a [&'a str],
    done: BTreeMap<String, Done>,
    /// The modules that wait for their imports.
    open: Vec<String>,
    out: String,
    in_chunk: bool,
    /// The modules of the chunk: two chunks may have the same one, and the first one that is loaded
    /// adds it.
    written: Vec<String>,
}

impl<'a> Bundle<'a> {
    fn new(read: &'a dyn Fn(&str) -> Result<String, String>, roots: &'a [&'a str]) -> Self {
        let (done, open, written) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { read, roots, done, open, out: String::new(), in_chunk: false, written }
    }

    fn number(&self, name: &str) -> Result<usize, String> {
        self.done.get(name).map(|done| done.number).ok_or_else(|| format!("{name} is missing"))
    }

    /// Adds a module after all that it imports, unless it is there.
    fn add(&mut self, name: &str) -> Result<(), String> {
        let known = self.done.get(name);
        if known.is_some_and(|done| !done.late || self.written.iter().any(|written| written == name)) {
            return Ok(());
        }
        let known = known.map(|done| done.number);
        if self.open.iter().any(|open| open == name) {
            return Err(format!("{name}: imports itself through {}", self.open.join(", ")));
        }
        self.open.push(name.to_owned());
        let module = self.without_dynamic_imports(name, &(self.read)(name)?)?;
        let mut head = String::new();
        let mut body = String::new();
        let mut passed_on = Vec::new();
        let mut copied = 0;
        for import in imports(name, &module) {
            self.add(&import.module)?;
            let bound = self.bound(name, &import.module, import.names)?;
            if module.get(import.place.clone()).is_some_and(|statement| statement.starts_with("export")) {
                let place = self.done.get(&import.module).map(|done| self.place(done.number));
                let names = import.names.trim_matches(['{', '}']).split(',').filter(|name| !name.is_empty());
                passed_on.extend(names.map(|name| (name.to_owned(), place.clone().unwrap_or_default())));
            } else {
                head.push_str(&bound);
            }
            body.push_str(module.get(copied..import.place.start).unwrap_or_default());
            copied = import.place.end;
        }
        body.push_str(module.get(copied..).unwrap_or_default());
        let (body, mut exports) = exported(name, &body)?;
        let mut returned = exports.join(",");
        for (name, place) in passed_on {
            _ = write!(returned, "{}{name}:{place}.{name}", if returned.is_empty() { "" } else { "," });
            exports.push(name);
        }
        if exports.iter().any(|export| export.is_empty() || export.contains(' ')) {
            return Err(format!("{name}: a bundle exports names as they are, not {exports:?}"));
        }
        self.open.pop();
        let number = known.unwrap_or(self.done.len());
        let place = if self.in_chunk { format!("$all[{number}]??=") } else { format!("const ${number}=") };
        // The entry exports nothing: it runs for its effect.
        _ = write!(self.out, "{place}(()=>{{{head}{body}\nreturn{{{returned}}}}})();\n");
        self.done.insert(name.to_owned(), Done { number, exports, late: self.in_chunk });
        self.written.push(name.to_owned());
        Ok(())
    }

    /// Returns the module with promises and calls that load chunks in place of dynamic imports.
    /// Adds the modules that no chunk has.
    fn without_dynamic_imports(&mut self, name: &str, module: &str) -> Result<String, String> {
        let mut parts = module.split("import(");
        let mut out = parts.next().unwrap_or_default().to_owned();
        let (folder, _) = name.rsplit_once('/').unwrap_or_default();
        for part in parts {
            let path = part.strip_prefix("'.").and_then(|rest| rest.split_once("')"));
            let (path, rest) =
                path.ok_or_else(|| format!("{name}: a dynamic import has a path, not {part:.40}"))?;
            let imported = joined(folder, &format!(".{path}"));
            if let Some(root) = self.roots.iter().position(|root| *root == imported) {
                _ = write!(out, "$chunk({root})");
            } else {
                self.add(&imported)?;
                _ = write!(out, "Promise.resolve({})", self.place(self.number(&imported)?));
            }
            out.push_str(rest);
        }
        Ok(out)
    }

    /// Returns the statement that binds imported names.
    fn bound(&self, importer: &str, module: &str, names: &str) -> Result<String, String> {
        let Some(Done { number, exports, .. }) = self.done.get(module).filter(|_| !names.is_empty()) else {
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
        Ok(format!("const{{{}}}={};", bindings.join(","), self.place(*number)))
    }

    /// Returns the expression for the exports of a module.
    fn place(&self, number: usize) -> String {
        if self.in_chunk { format!("$all[{number}]") } else { format!("${number}") }
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
    Ok((out, exports))
}

#[cfg(test)]
mod tests {
    use super::split;

    fn read(modules: &[(&str, &str)], name: &str) -> Result<String, String> {
        let module = modules.iter().find(|(own, _)| *own == name);
        module.map(|(_, text)| (*text).to_owned()).ok_or_else(|| format!("{name}: missing"))
    }

    fn bundled(modules: &[(&str, &str)]) -> Result<String, String> {
        Ok(split("entry.js", &[], &|name| read(modules, name))?.0)
    }

    /// Two modules, of which the second is imported when it is needed; both import a third.
    const LATER: [(&str, &str); 5] = [
        ("entry.js", "import{c}from'./p/c.js';\nimport('./p/b.js').then(f);"),
        ("p/b.js", "import{c}from'./c.js';\nimport{d}from'./d.js';\nexport const b=c+d;"),
        ("p/c.js", "export const c=1;"),
        ("p/d.js", "export const d=2;"),
        ("p/e.js", "import{d}from'../p/d.js';\nexport const e=d;"),
    ];
    const CHUNKS: [(&str, &[&str]); 2] = [("x.one.js", &["p/b.js", "p/c.js"]), ("x.two.js", &["p/e.js"])];

    #[test]
    fn a_dynamic_import_is_a_promise_of_the_same_module() {
        let module = bundled(&LATER).unwrap();
        let [own, promise] = ["const{c}=$0;const{d}=$1;", "Promise.resolve($2).then(f);"];
        assert!(module.contains(own) && module.contains(promise) && !module.contains("import("), "{module}");
    }

    #[test]
    fn a_chunk_has_what_the_bundle_lacks() {
        let (main, files) = split("entry.js", &CHUNKS, &|name| read(&LATER, name)).unwrap();
        assert!(main.contains("$at=[['x.one.js',3],['',0],['x.two.js',4],]"), "{main}");
        assert!(main.contains("const $1=(()=>{const{c}=$0;\n$chunk(0).then(f);"), "{main}");
        assert!(!main.contains("d=2") && !files[0].contains("c=1"), "{files:?}");
        // Whichever is loaded first adds the module that both need.
        assert!(files.iter().all(|file| file.contains("$all[2]??=(()=>{const d=2;")), "{files:?}");
        assert!(files[0].contains("$all[3]??=(()=>{const{c}=$all[0];const{d}=$all[2];"), "{files:?}");
    }

    #[test]
    fn the_files_of_two_versions_do_not_fit_each_other() {
        let (main, files) = split("entry.js", &CHUNKS, &|name| read(&LATER, name)).unwrap();
        let (_, export) = main.split_once("=>a.").unwrap();
        let (export, _) = export.split_once('(').unwrap();
        assert!(files.iter().all(|file| file.starts_with(&format!("export const {export}=("))), "{files:?}");
        let changed = LATER.map(|(name, text)| (name, text.replace("d=2", "d=3")));
        let changed = changed.each_ref().map(|(name, text)| (*name, text.as_str()));
        let (other, _) = split("entry.js", &CHUNKS, &|name| read(&changed, name)).unwrap();
        assert!(!other.contains(export));
    }

    #[test]
    fn a_module_passes_exports_of_others_on() {
        let modules = [
            ("entry.js", "import{a}from'./a.js';a();"),
            ("a.js", "export{a}from'./b.js';\nconst c=1;\nexport{c};"),
            ("b.js", "export const a=()=>1;"),
        ];
        assert_eq!(
            bundled(&modules).unwrap(),
            "const $0=(()=>{const a=()=>1;\nreturn{a}})();\n\
             const $1=(()=>{\nconst c=1;\n\nreturn{c,a:$0.a}})();\n\
             const $2=(()=>{const{a}=$1;a();\nreturn{}})();\n"
        );
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
            (
                vec![("entry.js", "import('./a.js');"), ("a.js", "import{}from'./entry.js';")],
                "imports itself",
            ),
            (vec![("entry.js", "const a=1;\nexport{a as b};")], "as they are"),
            (vec![("entry.js", "import'./none.js';")], "missing"),
        ] {
            let error = bundled(&modules).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
