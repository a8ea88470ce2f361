//! Queries name servers: over UDP, and over TCP if the response was cut.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::super::settings::{DnsDiscovery, DnsRecordType};
use super::super::state::{RefreshAnswer, SourceAnswer};
use super::DnsResolver;
use super::groups::groups_of_records;
use super::message::{DnsRecord, DnsResponse, decode_response, encode_query};
use crate::entropy::Entropy;
use crate::sync::IgnorePoison as _;

/// The response code of success.
const CODE_SUCCESS: u8 = 0;
/// The response code of a name that does not exist.
const CODE_NO_NAME: u8 = 3;
/// The longest time for all names of a discovery.
const REFRESH_TIME_MAX: Duration = Duration::from_secs(60);

/// Looks up the names of a discovery. A name that cannot be looked up has failed; the others have
/// their groups.
pub(in crate::scrape::discovery) async fn refresh(
    discovery: &DnsDiscovery,
    resolver: &DnsResolver,
    rng: &Arc<Mutex<Entropy>>,
) -> RefreshAnswer {
    let mut answers = Vec::with_capacity(discovery.names.len());
    let all = async {
        for name in &discovery.names {
            let lookup = DnsLookup { resolver, record: discovery.record, rng };
            let answer = match lookup.records(name).await {
                Ok(records) => SourceAnswer::Groups(groups_of_records(discovery, name, &records)),
                Err(error) => SourceAnswer::Failed(format!("{name}: {error}")),
            };
            answers.push((name.clone(), answer));
        }
    };
    let is_late = timeout(REFRESH_TIME_MAX, all).await.is_err();
    if is_late {
        let left = discovery.names.get(answers.len()..).unwrap_or_default();
        let late = || SourceAnswer::Failed("the name servers did not answer in time".to_owned());
        answers.extend(left.iter().map(|name| (name.clone(), late())));
    }
    Ok(answers)
}

struct DnsLookup<'l> {
    resolver: &'l DnsResolver,
    record: DnsRecordType,
    rng: &'l Mutex<Entropy>,
}

impl DnsLookup<'_> {
    /// Returns the records of the first candidate of a name that has some. No records if all
    /// candidates are known to have none.
    async fn records(&self, name: &str) -> Result<Vec<DnsRecord>, String> {
        let mut failed = None;
        for candidate in self.resolver.candidates(name) {
            match self.ask_servers(&candidate).await {
                Ok(response) if !response.records.is_empty() => return Ok(response.records),
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or_else(|| Ok(Vec::new()), Err)
    }

    async fn ask_servers(&self, name: &str) -> Result<DnsResponse, String> {
        let mut last = "there is no name server".to_owned();
        for server in &self.resolver.servers {
            for _ in 0..self.resolver.attempts {
                let id = u16::from_be_bytes(self.rng.lock().ignore_poison().bytes());
                let query = encode_query(id, name, self.record).map_err(|error| error.to_string())?;
                match self.ask(*server, &query).await {
                    Ok(response) if [CODE_SUCCESS, CODE_NO_NAME].contains(&response.code) => {
                        return Ok(response);
                    }
                    Ok(response) => last = format!("{server} returned code {}", response.code),
                    Err(error) => last = format!("{server}: {error}"),
                }
            }
        }
        Err(last)
    }

    async fn ask(&self, server: SocketAddr, query: &[u8]) -> Result<DnsResponse, String> {
        let by_udp = timeout(self.resolver.timeout, self.ask_by_udp(server, query)).await;
        let response = by_udp.map_err(|_| "no answer in time".to_owned())??;
        if !response.is_truncated {
            return Ok(response);
        }
        let by_tcp = timeout(self.resolver.timeout, self.ask_by_tcp(server, query)).await;
        by_tcp.map_err(|_| "no answer in time".to_owned())?
    }

    async fn ask_by_udp(&self, server: SocketAddr, query: &[u8]) -> Result<DnsResponse, String> {
        let failed = |error: std::io::Error| error.to_string();
        let own = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(own).await.map_err(failed)?;
        // A connected socket receives only from this server.
        socket.connect(server).await.map_err(failed)?;
        socket.send(query).await.map_err(failed)?;
        let mut buffer = vec![0; 4_096];
        loop {
            let length = socket.recv(&mut buffer).await.map_err(failed)?;
            let bytes = buffer.get(..length).unwrap_or_default();
            // A datagram of another query, or a forged one, does not end the wait.
            if let Ok(response) = decode_response(bytes, query, self.record) {
                return Ok(response);
            }
        }
    }

    async fn ask_by_tcp(&self, server: SocketAddr, query: &[u8]) -> Result<DnsResponse, String> {
        let failed = |error: std::io::Error| error.to_string();
        let length = u16::try_from(query.len()).map_err(|error| error.to_string())?;
        let mut stream = TcpStream::connect(server).await.map_err(failed)?;
        let framed: Vec<u8> = length.to_be_bytes().into_iter().chain(query.iter().copied()).collect();
        write_all(&mut stream, &framed).await.map_err(failed)?;
        let mut length = [0; 2];
        read_all(&mut stream, &mut length).await.map_err(failed)?;
        let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
        read_all(&mut stream, &mut bytes).await.map_err(failed)?;
        decode_response(&bytes, query, self.record).map_err(|error| error.to_string())
    }
}

async fn write_all(stream: &mut TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn read_all(stream: &mut TcpStream, out: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = out.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        stream.readable().await?;
        match stream.try_read(rest) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
