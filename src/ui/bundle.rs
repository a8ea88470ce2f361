//! Puts a module and everything that it imports into one module, when the binary is built.
//!
//! Each module becomes a function that runs once and returns its exports, so that equal names of
//! two modules do not meet. Such a function can express named exports of functions, classes and
//! constants, without cycles. Anything else is an error of the build.
//!
//! What the module imports dynamically is in further files, the chunks. A chunk has the modules that
//! the bundle lacks, and adds them to those of the bundle when it is loaded.

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

/// Returns the bundle of `entry` and its chunks, in the order of `chunks`: the names of their files,
/// in the folder of the bundle, and the modules that are imported dynamically.
///
/// # Errors
/// The reason, with the name of the module.
pub(crate) fn with_chunks(
    entry: &str,
    chunks: &[(&str, &[&str])],
    read: &dyn Fn(&str) -> Result<String, String>,
) -> Result<(String, Vec<String>), String> {
    let roots: Vec<&str> = chunks.iter().flat_map(|(_, roots)| roots.iter().copied()).collect();
    let mut bundle = Bundle::new(read, Some(&roots));
    bundle.add(entry)?;
    let main = std::mem::take(&mut bundle.out);
    bundle.in_chunk = true;
    let (mut files, mut places) = (Vec::new(), String::new());
    for (file, roots) in chunks {
        bundle.written.clear();
        for root in *roots {
            let included = bundle.done.get(root.to_owned()).is_some_and(|done| !done.late);
            bundle.add(root)?;
            let number = bundle.done.get(root.to_owned()).map_or(0, |done| done.number);
            _ = write!(places, "'{root}':['{}',{number}],", if included { "" } else { file });
        }
        files.push(std::mem::take(&mut bundle.out));
    }
    // A chunk refers to modules by number: that of another build has other numbers.
    let all = files.iter().fold(main.clone(), |all, file| all + file);
    let id = all.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let head = format!(
        "const $all=[],$where={{{places}}},$asked={{}},$chunk=async(name)=>{{const[file,at]=$where[name];\
         if(file)await($asked[file]??=import(new URL(file,import.meta.url).href)\
         .then(({{add}})=>add($all,$chunk,'{id:016x}')));return $all[at]}};\n"
    );
    let files = files.into_iter().map(|file| {
        format!(
            "export const add=($all,$chunk,id)=>{{if(id!=='{id:016x}')throw new Error(\
             'The server has a new version. Reload the page.');\n{file}}};\n"
        )
    });
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
    /// The modules that may be imported dynamically; `None` for a bundle without chunks.
    roots: Option<&'a [&'a str]>,
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
    fn new(read: &'a dyn Fn(&str) -> Result<String, String>, roots: Option<&'a [&'a str]>) -> Self {
        let (done, open, written) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { read, roots, done, open, out: String::new(), in_chunk: false, written }
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
        let module = self.with_dynamic_imports(name, &(self.read)(name)?)?;
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
        let place = match (self.in_chunk, self.roots) {
            (true, _) => format!("$all[{number}]??="),
            (false, Some(_)) => format!("const ${number}=$all[{number}]="),
            (false, None) => format!("const ${number}="),
        };
        // The entry exports nothing: it runs for its effect.
        _ = write!(self.out, "{place}(()=>{{{head}{body}\nreturn{{{returned}}}}})();\n");
        self.done.insert(name.to_owned(), Done { number, exports, late: self.in_chunk });
        self.written.push(name.to_owned());
        Ok(())
    }

    /// Returns the module with calls that load chunks in place of dynamic imports.
    fn with_dynamic_imports(&self, name: &str, module: &str) -> Result<String, String> {
        let mut parts = module.split("import(");
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let Some(roots) = self.roots else {
                return Err(format!("{name}: a bundle has no dynamic imports"));
            };
            let target = part.strip_prefix('\'').and_then(|part| part.split_once("')"));
            let Some((specifier, after)) = target else {
                return Err(format!("{name}: a dynamic import of no fixed module"));
            };
            let (folder, _) = name.rsplit_once('/').unwrap_or_default();
            let module = joined(folder, specifier);
            if !roots.contains(&module.as_str()) {
                return Err(format!("{name}: no chunk has {module}"));
            }
            _ = write!(out, "$chunk('{module}'){after}");
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
    use super::{bundle, with_chunks};

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
    fn a_chunk_has_what_the_bundle_lacks() {
        let modules = [
            ("entry.js", "import{a}from'./a.js';\nexport const f=()=>import('./p/late.js').then(a);"),
            ("a.js", "export const a=1;"),
            ("p/late.js", "import{a}from'../a.js';\nimport{b}from'./b.js';\nexport const c=a+b;"),
            ("p/other.js", "import{b}from'./b.js';\nexport const d=b;"),
            ("p/b.js", "export const b=2;"),
        ];
        let read = |name: &str| {
            let module = modules.iter().find(|(own, _)| *own == name);
            module.map(|(_, text)| (*text).to_owned()).ok_or_else(|| format!("{name}: missing"))
        };
        let chunks: [(&str, &[&str]); 2] =
            [("x.one.js", &["p/late.js", "a.js"]), ("x.two.js", &["p/other.js"])];
        let (main, files) = with_chunks("entry.js", &chunks, &read).unwrap();
        assert!(
            main.contains("$where={'p/late.js':['x.one.js',3],'a.js':['',0],'p/other.js':['x.two.js',4],}")
        );
        assert!(
            main.contains("const $1=$all[1]=(()=>{const{a}=$0;\nconst f=()=>$chunk('p/late.js').then(a);")
        );
        assert!(
            files[0].contains("$all[2]??=(()=>{const b=2;")
                && files[1].contains("$all[2]??=(()=>{const b=2;")
        );
        assert!(files[0].contains("$all[3]??=(()=>{const{a}=$all[0];const{b}=$all[2];\n\nconst c=a+b;"));
        let none = with_chunks("entry.js", &[], &read).unwrap_err();
        assert!(none.contains("no chunk has p/late.js"), "{none}");
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
