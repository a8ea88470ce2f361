//! The parts that all HTTP clients of this room share: TLS settings, HTTP/1.1 connections, and
//! their limits.

use std::sync::Arc;

use hyper::body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// The maximal length of a response head in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1_024;

/// The certificates that a client trusts and presents.
#[derive(Default)]
pub(super) struct TlsSettings<'a> {
    /// Certificates (PEM) to trust.
    pub(super) roots: Option<&'a [u8]>,
    /// Whether certificates of public authorities are trusted, too. They are always trusted if
    /// there are no `roots`.
    pub(super) with_public: bool,
    /// The client's certificate chain and key (PEM).
    pub(super) identity: Option<(&'a [u8], &'a [u8])>,
}

impl TlsSettings<'_> {
    /// Returns a connector.
    ///
    /// # Errors
    /// A sentence, if a certificate or key cannot be read.
    pub(super) fn connector(&self) -> Result<TlsConnector, String> {
        Ok(TlsConnector::from(Arc::new(self.config()?)))
    }

    /// Returns a connector that accepts any certificate of a server.
    ///
    /// # Errors
    /// Those of [`TlsSettings::connector`].
    pub(super) fn unverified_connector(&self) -> Result<TlsConnector, String> {
        let mut config = self.config()?;
        config.dangerous().set_certificate_verifier(Arc::new(AnyCertificate(ring::default_provider())));
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn config(&self) -> Result<ClientConfig, String> {
        let is_public = self.with_public || self.roots.is_none();
        let public = if is_public { webpki_roots::TLS_SERVER_ROOTS } else { &[] };
        let mut roots = RootCertStore { roots: public.to_vec() };
        if let Some(pem) = self.roots {
            for certificate in certificates(pem)? {
                roots.add(certificate).map_err(|error| error.to_string())?;
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        match self.identity {
            None => Ok(config.with_no_client_auth()),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| error.to_string())?;
                config.with_client_auth_cert(certificates(chain)?, key).map_err(|error| error.to_string())
            }
        }
    }
}

/// Accepts any certificate, but verifies that the server has its key.
#[derive(Debug)]
struct AnyCertificate(CryptoProvider);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() { Err("it contains no certificate".to_owned()) } else { Ok(found) }
}

/// The task of a connection, which is aborted on drop.
pub(super) struct ConnectionTask(AbortHandle);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts HTTP/1.1 on a stream.
///
/// # Errors
/// That of the connection.
pub(super) async fn handshake<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> hyper::Result<(SendRequest<B>, ConnectionTask)>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    handshake_with_buffer(stream, None).await
}

/// Like [`handshake`], with a buffer of constant size, which also bounds the head of a response.
/// Otherwise the buffer grows up to [`HEAD_BYTES_MAX`] and stays so while the connection is idle.
///
/// # Errors
/// That of the connection.
pub(super) async fn handshake_with_buffer<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    buffer_bytes: Option<usize>,
) -> hyper::Result<(SendRequest<B>, ConnectionTask)>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).max_header_size(HEAD_BYTES_MAX);
    if let Some(bytes) = buffer_bytes {
        builder.read_buf_exact_size(Some(bytes));
    }
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    // The sender notices when the connection ends.
    let task = tokio::spawn(async move { drop(connection.await) }).abort_handle();
    Ok((sender, ConnectionTask(task)))
}
