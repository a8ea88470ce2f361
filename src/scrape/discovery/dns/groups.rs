//! The groups of targets that records make.

use std::net::IpAddr;

use super::super::settings::{DnsDiscovery, TargetGroup};
use super::message::DnsRecord;
use crate::model::Labels;

/// The label with the name that was looked up.
const NAME: &str = "__meta_dns_name";

/// Returns one group for each record of a name, with the labels of Prometheus' `dns_sd_config`.
pub(super) fn groups_of_records(
    discovery: &DnsDiscovery,
    name: &str,
    records: &[DnsRecord],
) -> Vec<TargetGroup> {
    let with_port = |host: &str, port: u16| match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let of_address = |ip: IpAddr| (with_port(&ip.to_string(), discovery.port), Vec::new());
    let group = |record: &DnsRecord| {
        let (target, own) = match record {
            DnsRecord::A(ip) => of_address((*ip).into()),
            DnsRecord::Aaaa(ip) => of_address((*ip).into()),
            DnsRecord::Srv { target, port } => {
                let own = vec![
                    ("__meta_dns_srv_record_target", target.clone()),
                    ("__meta_dns_srv_record_port", port.to_string()),
                ];
                (with_port(target.trim_end_matches('.'), *port), own)
            }
            DnsRecord::Mx(host) => {
                let own = vec![("__meta_dns_mx_record_target", host.clone())];
                (with_port(host.trim_end_matches('.'), discovery.port), own)
            }
            DnsRecord::Ns(host) => {
                let own = vec![("__meta_dns_ns_record_target", host.clone())];
                (with_port(host.trim_end_matches('.'), discovery.port), own)
            }
        };
        let labels = [(NAME, name.to_owned())].into_iter().chain(own);
        TargetGroup { targets: vec![target], labels: Labels::from_pairs(labels) }
    };
    records.iter().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::settings::DnsRecordType;
    use super::*;

    #[test]
    fn records_become_targets_with_the_labels_of_prometheus() {
        let discovery =
            DnsDiscovery { names: vec![], record: DnsRecordType::A, port: 9100, refresh_interval_ms: 30_000 };
        let records = [
            DnsRecord::A([10, 0, 0, 1].into()),
            DnsRecord::Aaaa("fd00::1".parse().unwrap()),
            DnsRecord::Srv { target: "a.example.".to_owned(), port: 80 },
            DnsRecord::Mx("m.example.".to_owned()),
        ];
        let groups = groups_of_records(&discovery, "web", &records);
        let shown: Vec<String> =
            groups.iter().map(|group| format!("{} {}", group.targets.join(","), group.labels)).collect();
        assert_eq!(
            shown,
            [
                r#"10.0.0.1:9100 {__meta_dns_name="web"}"#,
                r#"[fd00::1]:9100 {__meta_dns_name="web"}"#,
                r#"a.example:80 {__meta_dns_name="web", __meta_dns_srv_record_port="80", __meta_dns_srv_record_target="a.example."}"#,
                r#"m.example:9100 {__meta_dns_mx_record_target="m.example.", __meta_dns_name="web"}"#,
            ]
        );
    }
}
