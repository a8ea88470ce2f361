//! The web UI: hand-written HTML, CSS and ES modules, compiled into the binary.
//!
//! There is no build step and nothing of a third party: what stands in `assets/` is what the browser
//! gets. [`FILES`] lists every file once, with the paths it is served under. The pages are written for
//! the policy of docs/specification.md B (`default-src 'self'; frame-ancestors 'none'; base-uri 'none';
//! form-action 'self'`): no inline script, no inline style, no event-handler attributes, no address of
//! another host. The tests at the foot hold that.
//!
//! ```text
//! /  /login  /login/*  /setup  /invite  /account  /organisation   index.html   one small page, the path picks the view
//! /app.js  /app/*.js              the cabinet   sign-in, mailed links, first run, explore, account, organisation
//! /docs  /docs.css  /docs.js     the API      a viewer of /api/v1/openapi.json, unless that is off
//! /app.css  /favicon.svg
//! /embed.js  /chart/*.js          the element   <metric-chart>, loadable from any origin
//! ```
//!
//! This room knows nothing of HTTP: `api` turns an [`Asset`] into a response.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// A file read from a folder ([`Ui::from_dir`]) may hold this many bytes. The whole embedded UI is a tenth
/// of it; a bigger file there is a mistake, not a page.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a file is for, which decides its headers: only a [`Kind::Page`] gets the content security policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// HTML.
    Page,
    /// JavaScript, always an ES module.
    Module,
    /// CSS.
    Style,
    /// SVG.
    Image,
}

impl Kind {
    /// The value of `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Page => "text/html; charset=utf-8",
            Self::Module => "text/javascript; charset=utf-8",
            Self::Style => "text/css; charset=utf-8",
            Self::Image => "image/svg+xml",
        }
    }
}

/// One file, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// The body.
    pub bytes: Cow<'static, [u8]>,
    /// The value of `ETag`, quotes included; it changes whenever the bytes do.
    pub etag: String,
    /// What the file is for.
    pub kind: Kind,
    /// Whether pages of other origins load this file. A module is fetched with CORS, so these need
    /// `Access-Control-Allow-Origin: *` (and never credentials).
    pub any_origin: bool,
}

impl Asset {
    fn new(file: &Embedded, bytes: Cow<'static, [u8]>) -> Self {
        Self {
            content_type: file.kind.content_type(),
            etag: etag(&bytes),
            bytes,
            kind: file.kind,
            any_origin: file.any_origin,
        }
    }

    /// Whether a request with this `If-None-Match` already holds these bytes (RFC 9110 section 13.1.2, weak
    /// comparison): answer 304 without a body.
    pub fn is_held(&self, if_none_match: &str) -> bool {
        if_none_match
            .split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || tag.trim_start_matches("W/") == self.etag)
    }
}

/// A file of `assets/`.
struct Embedded {
    /// Below `assets/`, and below the folder of [`Ui::from_dir`].
    name: &'static str,
    /// The paths it answers on.
    paths: &'static [&'static str],
    kind: Kind,
    any_origin: bool,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($kind:ident $origin:ident $name:literal => [$($path:literal),+];)+) => {
        &[$(Embedded {
            name: $name,
            paths: &[$($path),+],
            kind: Kind::$kind,
            any_origin: files!(@ $origin),
            bytes: include_bytes!(concat!("assets/", $name)),
        }),+]
    };
    (@ own) => { false };
    (@ any) => { true };
}

/// Where there is nothing, and a page that says so.
pub const NOWHERE: &str = "/nowhere";

/// Every file, once. A new file is a row here; the tests compare the table with the folder.
const FILES: &[Embedded] = files! {
    Page   own "index.html" => ["/", "/login", "/login/2fa", "/login/reset", "/login/signup", "/login/email", "/setup", "/invite", "/account", "/organisation"];
    Page   own "nowhere.html" => ["/nowhere"];
    Style  own "app.css" => ["/app.css"];
    Image  own "favicon.svg" => ["/favicon.svg"];
    Page   own "docs.html" => ["/docs"];
    Style  own "docs.css" => ["/docs.css"];
    Module own "docs.js" => ["/docs.js"];
    Module any "embed.js" => ["/embed.js"];
    Module any "chart/columns.js" => ["/chart/columns.js"];
    Module any "chart/dom.js" => ["/chart/dom.js"];
    Module any "chart/paint.js" => ["/chart/paint.js"];
    Module any "chart/question.js" => ["/chart/question.js"];
    Module any "chart/readings.js" => ["/chart/readings.js"];
    Module any "chart/scale.js" => ["/chart/scale.js"];
    Module any "chart/source.js" => ["/chart/source.js"];
    Module any "chart/style.js" => ["/chart/style.js"];
    Module own "app.js" => ["/app.js"];
    Module own "app/account.js" => ["/app/account.js"];
    Module own "app/explore.js" => ["/app/explore.js"];
    Module own "app/mailed.js" => ["/app/mailed.js"];
    Module own "app/key_form.js" => ["/app/key_form.js"];
    Module own "app/metrics.js" => ["/app/metrics.js"];
    Module own "app/organisation.js" => ["/app/organisation.js"];
    Module own "app/parts.js" => ["/app/parts.js"];
    Module own "app/promql.js" => ["/app/promql.js"];
    Module own "app/query_input.js" => ["/app/query_input.js"];
    Module own "app/result_table.js" => ["/app/result_table.js"];
    Module own "app/server.js" => ["/app/server.js"];
    Module own "app/sign_in.js" => ["/app/sign_in.js"];
    Module own "app/storage.js" => ["/app/storage.js"];
};

/// The file served under `path` (no query, no fragment, percent signs as they came), from the binary.
///
/// The path is looked up in a table and never becomes a file name, so there is nothing to traverse.
/// Cost: one hash over the file, some 30 KiB.
pub fn file(path: &str) -> Option<Asset> {
    find(path).map(|file| Asset::new(file, Cow::Borrowed(file.bytes)))
}

fn find(path: &str) -> Option<&'static Embedded> {
    FILES.iter().find(|file| file.paths.contains(&path))
}

/// A file of an editing folder could not be served.
#[derive(Debug, thiserror::Error)]
pub enum UiError {
    /// It is missing or unreadable.
    #[error("cannot read UI file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It is larger than any page has a reason to be.
    #[error("UI file {path} holds more than {allowed} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit, in bytes.
        allowed: u64,
    },
}

/// Where the UI comes from: the binary, or a folder while someone edits it (`PROMLET_UI_DIR`).
#[derive(Clone, Debug, Default)]
pub struct Ui {
    folder: Option<PathBuf>,
    /// Where the server's paths begin, if not at the root: `/promlet`.
    prefix: String,
    without_docs: bool,
}

impl Ui {
    /// The files in the binary.
    pub const fn embedded() -> Self {
        Self { folder: None, prefix: String::new(), without_docs: false }
    }

    /// The same below a path, as a proxy shows it: pages name their files there. Modules find each other by themselves.
    #[must_use]
    pub fn below(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// Without the page that shows the API.
    #[must_use]
    pub fn without_docs(self) -> Self {
        Self { without_docs: true, ..self }
    }

    /// The same files, read from a copy of `src/ui/assets` at every request.
    ///
    /// Only the names of the table are opened, so a request cannot name any other file of the disk.
    pub fn from_dir(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()), ..Self::default() }
    }

    /// The file served under `path`, or `None` where the UI has nothing there.
    ///
    /// # Errors
    /// Only with [`Ui::from_dir`], when the file is missing, unreadable or over 1 MiB. Reads block the
    /// calling thread, which is fine for the one person editing.
    pub fn file(&self, path: &str) -> Result<Option<Asset>, UiError> {
        let Some(file) = find(path) else { return Ok(None) };
        if self.without_docs && file.name.starts_with("docs.") {
            return Ok(None);
        }
        let bytes = match &self.folder {
            None => Cow::Borrowed(file.bytes),
            Some(folder) => Cow::Owned(read(folder.join(file.name))?),
        };
        Ok(Some(Asset::new(file, self.placed(file, bytes))))
    }

    /// What people see where there is nothing.
    ///
    /// # Errors
    /// As [`Ui::file`].
    pub fn nowhere(&self) -> Result<Option<Asset>, UiError> {
        self.file(NOWHERE)
    }

    /// A page's own addresses, which begin at the root, put below the prefix.
    fn placed(&self, file: &Embedded, bytes: Cow<'static, [u8]>) -> Cow<'static, [u8]> {
        if self.prefix.is_empty() || file.kind != Kind::Page {
            return bytes;
        }
        let text = String::from_utf8_lossy(&bytes);
        let placed = ["href=\"/", "src=\"/"].iter().fold(text.into_owned(), |text, start| {
            let (attribute, _) = start.split_at(start.len() - 1);
            text.replace(start, &format!("{attribute}{}/", self.prefix))
        });
        Cow::Owned(placed.into_bytes())
    }
}

fn read(path: PathBuf) -> Result<Vec<u8>, UiError> {
    let mut bytes = Vec::new();
    // One byte past the limit tells a full file from one that is cut.
    let outcome = File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match outcome {
        Err(source) => Err(UiError::Read { path, source }),
        Ok(_) if bytes.len() as u64 > FILE_BYTES_MAX => {
            Err(UiError::TooLarge { path, allowed: FILE_BYTES_MAX })
        }
        Ok(_) => Ok(bytes),
    }
}

/// FNV-1a, 64 bit: it tells two builds of a file apart, which is all an `ETag` is for.
fn etag(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("\"{hash:016x}\"")
}

#[cfg(test)]
mod tests;
