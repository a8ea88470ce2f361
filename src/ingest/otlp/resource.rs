//! What all series of one sender share: `job` and `instance`, promoted attributes, and `target_info` with the rest.

use std::collections::BTreeMap;

use super::super::protobuf::WireReader;
use super::Trouble;
use super::attributes::{ATTRIBUTES_MAX, Sieve, fold, key_value, text, too_many};
use super::names;
use crate::model::RenderedLabels;

const SERVICE_NAME: &str = "service.name";
const SERVICE_NAMESPACE: &str = "service.namespace";
const INSTANCE_ID: &str = "service.instance.id";

/// Attributes that become `job` and `instance`.
const IDENTIFYING: [&str; 3] = [SERVICE_NAMESPACE, SERVICE_NAME, INSTANCE_ID];

/// Attributes that become labels of every series.
const PROMOTED: [&str; 4] =
    [SERVICE_NAME, "deployment.environment", "deployment.environment.name", "host.name"];

/// One resource of a request.
#[derive(Debug, Default)]
pub(super) struct Resource {
    /// In the sender's order.
    attributes: Vec<(String, String)>,
    /// `job` and `instance`, where there are some.
    identity: Vec<(String, String)>,
    promoted: Vec<(String, String)>,
    rendered: RenderedLabels,
    nothing: RenderedLabels,
    sieve: Sieve,
}

impl Resource {
    /// Reads the `Resource` of a `ResourceMetrics`.
    pub(super) fn read(resource_metrics: &[u8]) -> Result<Resource, Trouble> {
        let mut resource = Resource::default();
        let mut reader = WireReader::new(resource_metrics);
        while let Some(field) = reader.field()? {
            if field.number == 1 {
                resource.read_attributes(field.bytes("ResourceMetrics")?)?;
            }
        }
        resource.identify();
        Ok(resource)
    }

    fn read_attributes(&mut self, message: &[u8]) -> Result<(), Trouble> {
        let mut said = String::new();
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 1 {
                if self.attributes.len() >= ATTRIBUTES_MAX {
                    return Err(too_many());
                }
                let (key, any) = key_value(field.bytes("Resource")?)?;
                self.attributes.push((key.to_owned(), text(any, &mut said)?.to_owned()));
            }
        }
        Ok(())
    }

    fn identify(&mut self) {
        let said = |key: &str| {
            let found = self.attributes.iter().find(|(own, _)| own == key);
            found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
        };
        let job = said(SERVICE_NAME).map(|name| match said(SERVICE_NAMESPACE) {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        });
        let instance = said(INSTANCE_ID).map(str::to_owned);
        let identity = [("job", job), ("instance", instance)];
        let promoted = PROMOTED.into_iter().filter_map(|key| {
            let mut name = String::new();
            names::label(key, &mut name);
            Some((name, said(key)?.to_owned()))
        });
        self.promoted = promoted.collect();
        self.identity =
            identity.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        let (mut rendered, mut sieve) = (RenderedLabels::default(), Sieve::default());
        for (name, value) in self.labels() {
            rendered.push(name, value);
            sieve.add(name);
        }
        (self.rendered, self.sieve) = (rendered, sieve);
    }

    /// The labels that it gives to each of its series.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.identity.iter().chain(&self.promoted).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The same, rendered.
    pub(super) const fn rendered(&self) -> &RenderedLabels {
        &self.rendered
    }

    /// No labels.
    pub(super) const fn nothing(&self) -> &RenderedLabels {
        &self.nothing
    }

    pub(super) const fn sieve(&self) -> Sieve {
        self.sieve
    }

    /// Gives its labels to those of a point, which may say for themselves what was promoted, but not who they are.
    pub(super) fn complete(&self, labels: &mut BTreeMap<String, String>) {
        for (name, value) in &self.promoted {
            labels.entry(name.clone()).or_insert_with(|| value.clone());
        }
        labels.extend(self.identity.iter().cloned());
    }

    /// The labels of its `target_info`; none where nobody could be told by them, or where they would tell nothing.
    pub(super) fn target_info(&self) -> Option<RenderedLabels> {
        let telling = self.attributes.iter().filter(|(key, _)| !IDENTIFYING.contains(&key.as_str()));
        let mut labels = fold(telling.cloned().collect());
        if labels.is_empty() {
            return None;
        }
        labels.extend(self.identity.iter().cloned());
        labels.insert(crate::model::METRIC_NAME.to_owned(), "target_info".to_owned());
        labels.retain(|_, value| !value.is_empty());
        if !["job", "instance"].iter().any(|name| labels.contains_key(*name)) {
            return None;
        }
        let mut rendered = RenderedLabels::default();
        for (name, value) in &labels {
            rendered.push(name, value);
        }
        Some(rendered)
    }
}
