//! Puts a module and everything that it imports into one module, when the binary is built.
//!
//! Each module becomes a function that runs at its first use and returns its exports, so that equal
//! names of two modules do not meet. Such a function can express named exports of functions,
//! classes and constants, without cycles. Anything else is an error of the build.
//!
//! A dynamic import is a promise of the same function, or it loads further files, the chunks. A
//! chunk has modules that the bundle lacks, and adds them to those of the bundle.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::imports::{imports, joined};
use super::minify;
use super::short_names::{short, with_short_names};
use super::tokens::{is_name, tokens};

/// The files of a bundle: the name of each chunk, relative to that of the bundle, and the modules
/// that it has with all that they import.
pub(crate) struct Chunks<'a> {
    pub(crate) files: &'a [(&'a str, &'a [&'a str])],
    /// Whether a chunk also has the modules that it shares with chunks before it. Otherwise those
    /// are loaded, too.
    pub(crate) complete: bool,
}

/// Returns a module that has the effect of `entry`, and the contents of its chunks in their order.
/// `read` returns a minified module by name.
///
/// A chunk exports a function with a name that depends on all files: a file of another version has
/// no such export, so the import fails as if the file were missing. The version is also in the
/// query of the address of a complete chunk, so that browsers keep the chunks of versions apart. If
/// such a chunk is missing, the bundle is of an earlier version; browsers then load it again for
/// the next view.
///
/// # Errors
/// The reason, with the name of the module.
pub(crate) fn split(
    entry: &str,
    chunks: &Chunks<'_>,
    read: &dyn Fn(&str) -> Result<String, String>,
) -> Result<(String, Vec<String>), String> {
    let roots: Vec<&str> = chunks.files.iter().flat_map(|(_, roots)| roots.iter().copied()).collect();
    let mut bundle = Bundle::new(read, &roots);
    bundle.find_whole(entry)?;
    bundle.add(entry)?;
    let main = std::mem::take(&mut bundle.out);
    let entry = bundle.number(entry)?;
    let mut files = Vec::new();
    for (number, (_, roots)) in chunks.files.iter().enumerate() {
        bundle.chunk = Some(number);
        if chunks.complete {
            bundle.written.clear();
        }
        for root in *roots {
            bundle.add(root)?;
        }
        files.push(std::mem::take(&mut bundle.out));
    }
    let mut places = String::new();
    for (number, (_, roots)) in chunks.files.iter().enumerate() {
        for root in *roots {
            let mut needed = bundle.chunks_of(root);
            if chunks.complete && !needed.is_empty() {
                needed = BTreeSet::from([number]);
            }
            let needed: String = needed.iter().map(|chunk| format!(",{chunk}")).collect();
            _ = write!(places, "[{}{needed}],", bundle.number(root)?);
        }
    }
    let mut head = "const $made=[],$=(a)=>$made[a]??=$all[a]();\n".to_owned();
    if !files.is_empty() {
        let all = files.iter().fold(main.clone(), |all, file| all + file);
        let version = all
            .bytes()
            .fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let names: Vec<String> = chunks.files.iter().map(|(name, _)| format!("'{name}'")).collect();
        let names = names.join(",");
        let (query, renewal) = match chunks.complete {
            true => {
                (format!("+'?v={version:08x}'"), "fetch(import.meta.url,{cache:'reload'}).catch(()=>{});")
            }
            false => Default::default(),
        };
        _ = writeln!(
            head,
            "const $files=[{names}],$at=[{places}],$in={{}},$chunk=async(a)=>{{const[b,...c]=$at[a];\
             await Promise.all(c.map((d)=>$in[d]??=import('./'+$files[d]{query}).then((e)=>\
             e.v{version:08x}($all,$,$chunk)).catch((e)=>{{delete $in[d];{renewal}throw e;}})));return $(b);}};"
        );
        for file in &mut files {
            *file = format!("export const v{version:08x}=(($all,$,$chunk)=>{{\n{file}}});\n");
        }
    }
    Ok((format!("{head}const $all=[\n{main}];\n$({entry});\n"), files))
}

/// A module of the bundle.
struct Done {
    number: usize,
    /// The names of the exports, and their names in the bundle.
    exports: BTreeMap<String, String>,
    /// The chunk that contains the module; `None` for the bundle itself.
    chunk: Option<usize>,
    imports: Vec<String>,
}

struct Bundle<'a> {
    read: &'a dyn Fn(&str) -> Result<String, String>,
    /// The modules that chunks have.
    roots: &'a [&'a str],
    /// The modules that others use as a whole: their exports keep their names.
    whole: BTreeSet<String>,
    done: BTreeMap<String, Done>,
    /// The modules that wait for their imports.
    open: Vec<String>,
    out: String,
    /// The chunk that is being written.
    chunk: Option<usize>,
    /// The modules that are not written again.
    written: BTreeSet<String>,
}

impl<'a> Bundle<'a> {
    fn new(read: &'a dyn Fn(&str) -> Result<String, String>, roots: &'a [&'a str]) -> Self {
        Self {
            read,
            roots,
            whole: BTreeSet::new(),
            done: BTreeMap::new(),
            open: Vec::new(),
            out: String::new(),
            chunk: None,
            written: BTreeSet::new(),
        }
    }

    fn number(&self, name: &str) -> Result<usize, String> {
        self.done.get(name).map(|done| done.number).ok_or_else(|| format!("{name} is missing"))
    }

    /// Finds the modules that others use as a whole, from a module on.
    fn find_whole(&mut self, entry: &str) -> Result<(), String> {
        let (mut seen, mut queue) = (BTreeSet::new(), vec![entry.to_owned()]);
        queue.extend(self.roots.iter().map(|root| (*root).to_owned()));
        self.whole.extend(queue.iter().cloned());
        while let Some(name) = queue.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let module = (self.read)(&name)?;
            for import in imports(&name, &module) {
                if import.names.starts_with('*') {
                    self.whole.insert(import.module.clone());
                }
                queue.push(import.module);
            }
            for path in dynamic_imports(&name, &module).into_iter().flatten() {
                self.whole.insert(path.clone());
                queue.push(path);
            }
        }
        Ok(())
    }

    /// Returns the chunks that contain a module or its imports.
    fn chunks_of(&self, name: &str) -> BTreeSet<usize> {
        let (mut seen, mut queue) = (BTreeSet::new(), vec![name]);
        let mut found = BTreeSet::new();
        while let Some(name) = queue.pop() {
            let Some(done) = self.done.get(name).filter(|_| seen.insert(name)) else { continue };
            found.extend(done.chunk);
            queue.extend(done.imports.iter().map(String::as_str));
        }
        found
    }

    /// Adds a module after all that it imports, unless it is there.
    fn add(&mut self, name: &str) -> Result<(), String> {
        let known = self.done.get(name);
        if known.is_some_and(|done| done.chunk.is_none() || self.written.contains(name)) {
            return Ok(());
        }
        let known = known.map(|done| (done.number, done.chunk));
        if self.open.iter().any(|open| open == name) {
            return Err(format!("{name}: imports itself through {}", self.open.join(", ")));
        }
        self.open.push(name.to_owned());
        let (module, mut imported) = self.without_dynamic_imports(name, &(self.read)(name)?)?;
        let (mut head, mut body, mut copied) = (String::new(), String::new(), 0);
        let (mut returned, mut exports) = (String::new(), BTreeMap::new());
        let mut export = |own: &str, value: &str, is_whole: bool| {
            let inner = if is_whole { own.to_owned() } else { short(exports.len()) };
            let entry = if inner == value { inner.clone() } else { format!("{inner}:{value}") };
            _ = write!(returned, "{}{entry}", if returned.is_empty() { "" } else { "," });
            exports.insert(own.to_owned(), inner);
        };
        let is_whole = self.whole.contains(name);
        for import in imports(name, &module) {
            self.add(&import.module)?;
            if module.get(import.place.clone()).is_some_and(|statement| statement.starts_with("export")) {
                let names = import.names.trim_matches(['{', '}']).split(',').filter(|name| !name.is_empty());
                for own in names {
                    let (place, inner) = self.export(name, &import.module, own)?;
                    export(own, &format!("{place}.{inner}"), is_whole);
                }
            } else {
                head.push_str(&self.bound(name, &import.module, import.names)?);
            }
            body.push_str(module.get(copied..import.place.start).unwrap_or_default());
            copied = import.place.end;
            imported.push(import.module);
        }
        body.push_str(module.get(copied..).unwrap_or_default());
        let (body, names) = exported(name, &body)?;
        for own in &names {
            export(own, own, is_whole);
        }
        self.open.pop();
        let text = with_short_names(&format!("{head}{body}\nreturn{{{returned}}}"));
        let text = text.map_err(|offset| format!("{name}: the token at byte {offset} does not end"))?;
        let (number, chunk) = known.unwrap_or((self.done.len(), self.chunk));
        // Browsers compile a function in parentheses at once, instead of when it is called.
        match self.chunk {
            // An element of the list of all modules.
            None => _ = writeln!(self.out, "(()=>{{{text}}}),"),
            Some(_) => _ = writeln!(self.out, "$all[{number}]??=(()=>{{{text}}});"),
        }
        self.done.insert(name.to_owned(), Done { number, exports, chunk, imports: imported });
        self.written.insert(name.to_owned());
        Ok(())
    }

    /// Returns the module with promises and calls that load chunks in place of dynamic imports, and
    /// with its own address. Adds the modules that no chunk has, and returns them.
    fn without_dynamic_imports(&mut self, name: &str, module: &str) -> Result<(String, Vec<String>), String> {
        let mut added = Vec::new();
        let mut parts = module.split("import(");
        let mut out = parts.next().unwrap_or_default().to_owned();
        for (part, imported) in parts.zip(dynamic_imports(name, module)) {
            if part.starts_with('`') {
                // The address of a file that is not of the bundle.
                out.push_str("import(");
                out.push_str(part);
                continue;
            }
            let imported =
                imported.ok_or_else(|| format!("{name}: a dynamic import has a path, not {part:.40}"))?;
            if let Some(root) = self.roots.iter().position(|root| *root == imported) {
                _ = write!(out, "$chunk({root})");
            } else {
                self.add(&imported)?;
                _ = write!(out, "Promise.resolve($({}))", self.number(&imported)?);
                added.push(imported);
            }
            out.push_str(part.split_once("')").unwrap_or_default().1);
        }
        if name.contains('/') {
            out = out.replace("import.meta.url", &format!("new URL('{name}',import.meta.url)"));
        }
        Ok((out, added))
    }

    /// Returns the expression for the exports of a module, and the name of one of them.
    fn export(&self, importer: &str, module: &str, name: &str) -> Result<(String, &str), String> {
        let done = self.done.get(module).ok_or_else(|| format!("{module} is missing"))?;
        let inner =
            done.exports.get(name).ok_or_else(|| format!("{importer}: {module} has no export {name}"))?;
        Ok((format!("$({})", done.number), inner))
    }

    /// Returns the statement that binds imported names.
    fn bound(&self, importer: &str, module: &str, names: &str) -> Result<String, String> {
        let number = self.number(module)?;
        if names.is_empty() {
            return Ok(format!("$({number});"));
        }
        if let Some(own) = names.strip_prefix("*as ") {
            return Ok(format!("const {}=$({number});", own.trim()));
        }
        let list = names.strip_prefix('{').and_then(|list| list.strip_suffix('}'));
        let list = list.ok_or_else(|| format!("{importer}: a bundle imports by name, not {names}"))?;
        let mut bindings = Vec::new();
        for binding in list.split(',').filter(|binding| !binding.is_empty()) {
            let (name, own) = binding.split_once(" as ").unwrap_or((binding, binding));
            let (_, inner) = self.export(importer, module, name)?;
            bindings.push(if inner == own { own.to_owned() } else { format!("{inner}:{own}") });
        }
        Ok(format!("const{{{}}}=$({number});", bindings.join(",")))
    }
}

/// Returns the modules of the dynamic imports of a module in their order; none for one whose path
/// is not a text.
fn dynamic_imports(name: &str, module: &str) -> Vec<Option<String>> {
    let (folder, _) = name.rsplit_once('/').unwrap_or_default();
    let path = |part: &str| {
        let (path, _) = part.strip_prefix("'.")?.split_once("')")?;
        Some(joined(folder, &format!(".{path}")))
    };
    module.split("import(").skip(1).map(path).collect()
}

/// Returns the body of a module without the keyword `export`, and the exported names.
fn exported(name: &str, body: &str) -> Result<(String, Vec<String>), String> {
    let tokens = tokens(body).map_err(|offset| format!("{name}: the token at byte {offset} does not end"))?;
    let (mut exports, mut kept) = (Vec::new(), Vec::with_capacity(tokens.len()));
    let mut rest = tokens.iter();
    while let Some(token) = rest.next() {
        if !token.is("export") {
            kept.push((token, token.text));
            continue;
        }
        let mut declared = rest.clone().filter(|token| !token.is("async"));
        let declared = [declared.next(), declared.next()].map(|token| token.map_or("", |token| token.text));
        match declared {
            ["function" | "class" | "const", name] if name.starts_with(is_name) => {
                exports.push(name.to_owned())
            }
            ["{", _] => {
                let list = rest.by_ref().skip(1).take_while(|token| !token.is("}")).map(|token| token.text);
                let list: Vec<&str> = list.collect();
                if list.contains(&"as") {
                    return Err(format!("{name}: a bundle exports names as they are, not {list:?}"));
                }
                exports.extend(list.into_iter().filter(|name| *name != ",").map(str::to_owned));
                rest.next();
            }
            [first, second] => return Err(format!("{name}: a bundle cannot have export {first} {second}")),
        }
    }
    Ok((minify::joined(kept.into_iter()), exports))
}

#[cfg(test)]
mod tests {
    use super::{Chunks, split};

    fn read(modules: &[(&str, &str)], name: &str) -> Result<String, String> {
        let module = modules.iter().find(|(own, _)| *own == name);
        module.map(|(_, text)| (*text).to_owned()).ok_or_else(|| format!("{name}: missing"))
    }

    /// The functions of the modules in a bundle without chunks.
    fn bundled(modules: &[(&str, &str)]) -> Result<String, String> {
        let (module, _) =
            split("entry.js", &Chunks { files: &[], complete: true }, &|name| read(modules, name))?;
        Ok(module.split_once("$all=[\n").unwrap().1.to_owned())
    }

    /// Two modules, of which the second is imported when it is needed; both import a third.
    const LATER: [(&str, &str); 5] = [
        ("entry.js", "import{c}from'./p/c.js';\nimport('./p/b.js').then(c);"),
        ("p/b.js", "import{c}from'./c.js';\nimport{d}from'./d.js';\nexport const b=c+d;"),
        ("p/c.js", "export const c=1;"),
        ("p/d.js", "export const d=2;"),
        ("p/e.js", "import{d}from'../p/d.js';\nexport const e=d;"),
    ];
    const COMPLETE: Chunks<'_> =
        Chunks { files: &[("x.one.js", &["p/b.js", "p/c.js"]), ("x.two.js", &["p/e.js"])], complete: true };
    const APART: Chunks<'_> = Chunks { complete: false, ..COMPLETE };

    #[test]
    fn a_dynamic_import_is_a_promise_of_the_same_module() {
        assert_eq!(
            bundled(&LATER).unwrap(),
            "(()=>{const a=1;return{a:a}}),\n(()=>{const a=2;return{a:a}}),\n\
             (()=>{const{a:b}=$(0);const{a:c}=$(1);const a=b+c;return{b:a}}),\n\
             (()=>{const{a:a}=$(0);Promise.resolve($(2)).then(a);return{}}),\n];\n$(3);\n"
        );
    }

    #[test]
    fn a_chunk_has_what_the_bundle_lacks() {
        let (main, files) = split("entry.js", &COMPLETE, &|name| read(&LATER, name)).unwrap();
        assert!(main.contains("$at=[[3,0],[0],[4,1],]"), "{main}");
        assert!(main.contains("(()=>{const{c:a}=$(0);$chunk(0).then(a);"), "{main}");
        assert!(!main.contains("=2") && !files[0].contains("=1"), "{files:?}");
        // Whichever is loaded first adds the module that both need.
        assert!(files.iter().all(|file| file.contains("$all[2]??=(()=>{const a=2;")), "{files:?}");
        assert!(files[0].contains("$all[3]??=(()=>{const{c:b}=$(0);const{a:c}=$(2);"), "{files:?}");
    }

    #[test]
    fn files_apart_have_each_module_once_and_are_loaded_together() {
        let (main, files) = split("entry.js", &APART, &|name| read(&LATER, name)).unwrap();
        assert!(main.contains("$files=['x.one.js','x.two.js'],$at=[[3,0],[0],[4,0,1],]"), "{main}");
        assert!(files[0].contains("$all[2]??=") && !files[1].contains("$all[2]??="), "{files:?}");
    }

    #[test]
    fn the_files_of_two_versions_do_not_fit_each_other() {
        let (main, files) = split("entry.js", &COMPLETE, &|name| read(&LATER, name)).unwrap();
        let (_, export) = main.split_once("=>e.").unwrap();
        let (export, _) = export.split_once('(').unwrap();
        assert!(files.iter().all(|file| file.starts_with(&format!("export const {export}=(("))), "{files:?}");
        let changed = LATER.map(|(name, text)| (name, text.replace("d=2", "d=3")));
        let changed = changed.each_ref().map(|(name, text)| (*name, text.as_str()));
        let (other, _) = split("entry.js", &COMPLETE, &|name| read(&changed, name)).unwrap();
        assert!(!other.contains(export));
        // The address has the version, unless another part of the program names the file, too.
        let version = export.trim_start_matches('v');
        assert!(main.contains(&format!("import('./'+$files[d]+'?v={version}')")), "{main}");
        let (apart, _) = split("entry.js", &APART, &|name| read(&LATER, name)).unwrap();
        assert!(apart.contains("import('./'+$files[d]).then") && !apart.contains("fetch("), "{apart}");
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
            "(()=>{const a=()=>1;return{a}}),\n(()=>{const a=1;return{a:$(0).a,b:a}}),\n\
             (()=>{const{a}=$(1);a();return{}}),\n];\n$(2);\n"
        );
    }

    #[test]
    fn modules_become_functions_after_what_they_import() {
        let modules = [
            (
                "entry.js",
                "import{a as x,B}from'./p/a.js';\nimport'./p/c.js';\nimport*as all from'./p/d.js';x(B,all);",
            ),
            ("p/a.js", "import{c}from'./c.js';\nexport const a=(y)=>c+y;\nexport class B{}"),
            ("p/c.js", "const c=1;\nexport{c};"),
            ("p/d.js", "export const long=import.meta.url;"),
        ];
        let bundle = bundled(&modules).unwrap();
        for part in [
            "(()=>{const a=1;return{a:a}}),\n",
            "(()=>{const{a:c}=$(0);const b=(d)=>c+d;class a{}\nreturn{a:b,b:a}}),\n",
            "(()=>{const a=new URL('p/d.js',import.meta.url);return{long:a}}),\n",
            "(()=>{const{a:c,b:a}=$(1);$(0);const b=$(2);c(a,b);return{}}),\n];\n$(3);\n",
        ] {
            assert!(bundle.contains(part), "{part} in {bundle}");
        }
    }

    #[test]
    fn forms_that_a_function_cannot_express_are_errors() {
        for (modules, why) in [
            (vec![("entry.js", "import'./a.js';"), ("a.js", "import'./entry.js';")], "imports itself"),
            (vec![("entry.js", "import{a}from'./a.js';"), ("a.js", "export const b=1;")], "no export a"),
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
