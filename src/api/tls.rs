//! TLS with a certificate and key from two files, which the operator can have reloaded.
//!
//! An open connection keeps its certificate; new connections use the one that was loaded last. If
//! the files do not fit together, nothing changes.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::sync::IgnorePoison as _;

/// The greatest size of a file. A certificate chain takes some kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The reason why TLS cannot use the files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing or cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file is too large for a certificate or key.
    #[error("{path} has more than {FILE_BYTES_MAX} bytes, which is too large for certificates and keys")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A file has the wrong content.
    #[error("{path} has no {wanted} in PEM{why}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// `certificate` or `private key`.
        wanted: &'static str,
        /// Details, never the content of the file. May be empty.
        why: String,
    },
    /// Both files are well-formed but do not belong together, or are of a kind that TLS does not
    /// support.
    #[error("the certificate in {cert} cannot be used with the key in {key}: {why}")]
    Refused {
        /// The chain.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// The error of rustls.
        why: String,
    },
}

/// The certificate in use and the files it was loaded from.
pub struct Certificates {
    cert: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<ServerConfig>>,
}

impl Certificates {
    /// Reads the certificate and the key.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn read(cert: &Path, key: &Path) -> Result<Certificates, TlsError> {
        let current = RwLock::new(config(cert, key)?);
        Ok(Certificates { cert: cert.to_owned(), key: key.to_owned(), current })
    }

    /// Reads both files again, for connections accepted from now on.
    ///
    /// # Errors
    /// [`TlsError`]; the certificate in use stays.
    pub fn read_again(&self) -> Result<(), TlsError> {
        let fresh = config(&self.cert, &self.key)?;
        *self.current.write().ignore_poison() = fresh;
        Ok(())
    }

    /// Returns the acceptor for one connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.read().ignore_poison()))
    }
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates")
            .field("cert", &self.cert)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Configures TLS 1.2 and 1.3 with the default ciphers of rustls, and HTTP/1.1 in ALPN.
fn config(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = bytes(cert)?;
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&chain).collect();
    let no_chain = |why: String| TlsError::Pem { path: cert.to_owned(), wanted: "certificate", why };
    let chain = chain.map_err(|error| no_chain(format!(": {error}")))?;
    if chain.is_empty() {
        return Err(no_chain(String::new()));
    }
    let secret = PrivateKeyDer::from_pem_slice(&bytes(key)?).map_err(|error| TlsError::Pem {
        path: key.to_owned(),
        wanted: "private key",
        why: format!(": {error}"),
    })?;
    let refused = |why: tokio_rustls::rustls::Error| TlsError::Refused {
        cert: cert.to_owned(),
        key: key.to_owned(),
        why: why.to_string(),
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(refused)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(TlsError::TooLarge { path: path.to_owned() }),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name)
    }

    #[test]
    fn files_that_do_not_fit_together_are_refused_with_a_reason_and_change_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        let put = |from: &str, to: &Path| std::fs::copy(fixture(from), to).expect("copied");
        put("one.crt", &cert);
        put("one.key", &key);
        let certificates = Certificates::read(&cert, &key).expect("a pair");
        let before = Arc::as_ptr(certificates.acceptor().config());
        let refused = |words: &str| {
            let error = certificates.read_again().expect_err("no pair").to_string();
            assert!(error.contains(words), "{error}");
            assert!(!error.contains("BEGIN"), "{error}");
            assert_eq!(Arc::as_ptr(certificates.acceptor().config()), before);
        };
        put("two.key", &key);
        refused("cannot be used with the key");
        std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\nAAAA").expect("written");
        refused("no private key in PEM");
        put("one.key", &key);
        std::fs::write(&cert, "").expect("written");
        refused("no certificate in PEM");
        std::fs::write(&cert, vec![b'x'; 1 + (1 << 20)]).expect("written");
        refused("more than 1048576 bytes");
        std::fs::remove_file(&cert).expect("removed");
        refused("cannot read");
        put("two.crt", &cert);
        put("two.key", &key);
        certificates.read_again().expect("another pair");
        assert_ne!(Arc::as_ptr(certificates.acceptor().config()), before);
    }
}
