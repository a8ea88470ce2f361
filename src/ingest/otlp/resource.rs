//! The labels that all series of one resource share: `job`, `instance` and promoted attributes. The
//! other attributes become labels of `target_info`.

use std::collections::BTreeMap;

use super::super::protobuf::WireReader;
use super::TranslateError;
use super::attributes::{ATTRIBUTES_MAX, NameFilter, fold, key_value, text, too_many};
use super::names;
use crate::model::RenderedLabels;

const SERVICE_NAME: &str = "service.name";
const SERVICE_NAMESPACE: &str = "service.namespace";
const INSTANCE_ID: &str = "service.instance.id";

/// Attributes that become `job` and `instance`.
const IDENTIFYING: [&str; 3] = [SERVICE_NAMESPACE, SERVICE_NAME, INSTANCE_ID];

/// Attributes that become labels of every series (promoted attributes).
const PROMOTED: [&str; 4] =
    [SERVICE_NAME, "deployment.environment", "deployment.environment.name", "host.name"];

/// The attributes and labels of one resource of a request.
#[derive(Debug, Default)]
pub(super) struct Resource {
    /// All attributes, in the sender's order.
    attributes: Vec<(String, String)>,
    /// `job` and `instance`, if the resource has them.
    identity: Vec<(String, String)>,
    promoted: Vec<(String, String)>,
    rendered: RenderedLabels,
    no_labels: RenderedLabels,
    filter: NameFilter,
}

impl Resource {
    /// Reads the `Resource` of a `ResourceMetrics`.
    pub(super) fn read(resource_metrics: &[u8]) -> Result<Resource, TranslateError> {
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

    fn read_attributes(&mut self, message: &[u8]) -> Result<(), TranslateError> {
        let mut buffer = String::new();
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 1 {
                if self.attributes.len() >= ATTRIBUTES_MAX {
                    return Err(too_many());
                }
                let (key, any) = key_value(field.bytes("Resource")?)?;
                self.attributes.push((key.to_owned(), text(any, &mut buffer)?.to_owned()));
            }
        }
        Ok(())
    }

    /// Derives `job`, `instance` and the promoted labels from the attributes.
    fn identify(&mut self) {
        let non_empty = |key: &str| {
            let found = self.attributes.iter().find(|(own, _)| own == key);
            found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
        };
        let job = non_empty(SERVICE_NAME).map(|name| match non_empty(SERVICE_NAMESPACE) {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        });
        let instance = non_empty(INSTANCE_ID).map(str::to_owned);
        let identity = [("job", job), ("instance", instance)];
        let promoted = PROMOTED.into_iter().filter_map(|key| {
            let mut name = String::new();
            names::label(key, &mut name);
            Some((name, non_empty(key)?.to_owned()))
        });
        self.promoted = promoted.collect();
        self.identity =
            identity.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        let (mut rendered, mut filter) = (RenderedLabels::default(), NameFilter::default());
        for (name, value) in self.labels() {
            rendered.push(name, value);
            filter.add(name);
        }
        (self.rendered, self.filter) = (rendered, filter);
    }

    /// Iterates over the labels that every series of the resource has.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.identity.iter().chain(&self.promoted).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns these labels in rendered form.
    pub(super) const fn rendered(&self) -> &RenderedLabels {
        &self.rendered
    }

    /// Returns an empty list of labels.
    pub(super) const fn no_labels(&self) -> &RenderedLabels {
        &self.no_labels
    }

    pub(super) const fn filter(&self) -> NameFilter {
        self.filter
    }

    /// Adds the labels of the resource to those of a point. A point may override promoted
    /// attributes, but not `job` and `instance`.
    pub(super) fn complete(&self, labels: &mut BTreeMap<String, String>) {
        for (name, value) in &self.promoted {
            labels.entry(name.clone()).or_insert_with(|| value.clone());
        }
        labels.extend(self.identity.iter().cloned());
    }

    /// Returns the labels of `target_info`. Returns `None` if the resource has neither `job` nor
    /// `instance`, or no other attributes.
    pub(super) fn target_info(&self) -> Option<RenderedLabels> {
        let descriptive = self.attributes.iter().filter(|(key, _)| !IDENTIFYING.contains(&key.as_str()));
        let mut labels = fold(descriptive.cloned().collect());
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
