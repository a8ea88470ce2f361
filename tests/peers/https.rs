//! One request over TLS, for the tests that speak it: `cargo test` needs no other program for that.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

pub(crate) type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A file of the pairs `one` and `two`.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name)
}

/// A connection to `localhost` that trusts this pair's certificate and no other.
pub(crate) fn connect(port: u16, trusted: &str) -> std::io::Result<Stream> {
    over(TcpStream::connect(("127.0.0.1", port))?, trusted)
}

/// The same over a socket that is connected already.
pub(crate) fn over(socket: TcpStream, trusted: &str) -> std::io::Result<Stream> {
    let mut roots = RootCertStore::empty();
    let pem = std::fs::read(fixture(&format!("{trusted}.crt")))?;
    roots.add(CertificateDer::from_pem_slice(&pem).expect("a certificate")).expect("a root");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    Ok(StreamOwned::new(connection, socket))
}

/// Sends a request that says `Connection: close`, and reads all that comes.
pub(crate) fn https(port: u16, trusted: &str, request: &str) -> std::io::Result<String> {
    ask(connect(port, trusted)?, request)
}

/// The same over a connection that is there already.
pub(crate) fn ask(mut stream: Stream, request: &str) -> std::io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        // Not every server says goodbye in TLS before it closes.
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof || all.is_empty() => Err(error),
        _ => Ok(String::from_utf8_lossy(&all).into_owned()),
    }
}
