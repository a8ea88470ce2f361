//! Pages of another origin that show a chart and, at `/alerts`, the alerts of a promlet server with
//! an embed token.
//!
//! ```text
//! cargo run --example embed_page -- <embed token> [server] [org] [--expr PROMQL] [--listen ADDRESS]
//! ```
//!
//! The server defaults to `http://127.0.0.1:8095`, the organisation to `demo`, the address to
//! `127.0.0.1:8096`. `promlet demo` prints a suitable token. The embedding is in `page.html`: one
//! script and one element. This program only sends that page, as your web server would.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const PAGE: &str = include_str!("page.html");
const ALERTS: &str = include_str!("alerts.html");
const STYLE: &str = include_str!("page.css");
/// The most bytes of a request line with its headers, which no browser exceeds.
const HEAD_BYTES_MAX: u64 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(5);

struct Options {
    token: String,
    server: String,
    org: String,
    expr: String,
    listen: String,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut plain = Vec::new();
        let mut expr = "sum by (route) (rate(shop_http_requests_total[5m]))".to_owned();
        let mut listen = "127.0.0.1:8096".to_owned();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--expr" => expr = arguments.next().ok_or("--expr needs a query")?,
                "--listen" => listen = arguments.next().ok_or("--listen needs an address")?,
                _ if argument.starts_with("--") => return Err(format!("unknown option {argument}")),
                _ => plain.push(argument),
            }
        }
        let mut plain = plain.into_iter();
        let token = plain.next().ok_or("the embed token is missing")?;
        let server = plain.next().unwrap_or_else(|| "http://127.0.0.1:8095".to_owned());
        let org = plain.next().unwrap_or_else(|| "demo".to_owned());
        Ok(Self { token, server: server.trim_end_matches('/').to_owned(), org, expr, listen })
    }

    fn filled(&self, page: &str) -> String {
        // The placeholders of a page are {{name}}.
        let blanks = [("server", &self.server), ("org", &self.org), ("expr", &self.expr)];
        blanks.iter().fold(page.to_owned(), |page, (name, value)| {
            page.replace(&format!("{{{{{name}}}}}"), &escape(value))
        })
    }
}

/// Escapes a text for the value of an attribute.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse(std::env::args().skip(1)).map_err(|problem| {
        format!(
            "{problem}; usage: embed_page <embed token> [server] [org] [--expr PROMQL] [--listen ADDRESS]"
        )
    })?;
    let pages = [options.filled(PAGE), options.filled(ALERTS)];
    let listener = TcpListener::bind(&options.listen)?;
    println!("Open http://{}/", listener.local_addr()?);
    for stream in listener.incoming() {
        // One connection at a time is enough for an example. A slow client is disconnected.
        if let Err(problem) = stream.and_then(|stream| answer(stream, &pages, &options.token)) {
            eprintln!("a request failed: {problem}");
        }
    }
    Ok(())
}

fn answer(mut stream: TcpStream, [page, alerts]: &[String; 2], token: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?.take(HEAD_BYTES_MAX));
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let (status, kind, body) = match request.split_ascii_whitespace().nth(1) {
        // A browser opens connections in advance and may close them unused.
        None => return Ok(()),
        Some("/") => ("200 OK", "text/html", page.as_str()),
        Some("/alerts") => ("200 OK", "text/html", alerts.as_str()),
        Some("/page.css") => ("200 OK", "text/css", STYLE),
        // A real site signs a short-lived token for the visitor here.
        Some("/metrics-token") => ("200 OK", "text/plain", token),
        Some("/favicon.ico") => ("204 No Content", "image/x-icon", ""),
        Some(_) => ("404 Not Found", "text/plain", "Not found.\n"),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
