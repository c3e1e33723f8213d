//! Which form of an answer a client takes: the header `Accept`, as Kubernetes' API servers read it.

use axum::http::{HeaderMap, header};
use sluice_api::visibility::discovery::AGGREGATED;

/// A form that an answer can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The object as JSON.
    Json,
    /// A `Table` of `meta.k8s.io/v1`, for printing.
    Table,
    /// Aggregated discovery of `apidiscovery.k8s.io/v2`.
    Discovery,
}

impl Form {
    /// The content type that the answer has.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Json | Self::Table => "application/json",
            Self::Discovery => AGGREGATED,
        }
    }

    /// What a client has to write to get it.
    fn asked_by(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Table => "application/json;as=Table;v=v1;g=meta.k8s.io",
            Self::Discovery => self.content_type(),
        }
    }
}

/// One entry of `Accept`.
#[derive(Debug)]
struct Range<'a> {
    media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// In thousandths.
    quality: u16,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let mut parameters: Vec<(&str, &str)> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim().trim_matches('"')))
            .collect();
        let quality = parameters.iter().find(|(key, _)| *key == "q");
        let quality = quality.map_or(1_000, |(_, value)| thousandths(value));
        parameters.retain(|(key, _)| *key != "q");
        Self {
            media_type,
            parameters,
            quality,
        }
    }

    fn parameter(&self, name: &str) -> &'a str {
        let found = self.parameters.iter().find(|(key, _)| *key == name);
        found.map_or("", |(_, value)| value)
    }

    /// The form that it asks for, if there is such a form.
    fn form(&self) -> Option<Form> {
        let is_json = ["application/json", "application/*", "*/*"]
            .iter()
            .any(|known| self.media_type.eq_ignore_ascii_case(known));
        if !is_json {
            return None;
        }
        match (self.parameter("as"), self.parameter("g"), self.parameter("v")) {
            ("", ..) => Some(Form::Json),
            ("Table", "meta.k8s.io", "v1") => Some(Form::Table),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Some(Form::Discovery),
            _ => None,
        }
    }
}

/// A quality between 0 and 1; what is none counts as 0, so that it is never chosen.
fn thousandths(text: &str) -> u16 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    match whole {
        "1" => 1_000,
        "0" => format!("{fraction:0<3}")
            .get(..3)
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0),
        _ => 0,
    }
}

/// The form that the client likes best of those that there are.
///
/// # Errors
///
/// It takes none of them; what it may ask for.
pub(super) fn negotiate(headers: &HeaderMap, offered: &[Form]) -> Result<Form, String> {
    let accepted: Vec<&str> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let accepted = accepted.join(",");
    if accepted.trim().is_empty() {
        return Ok(Form::Json);
    }
    let mut ranges: Vec<Range<'_>> = accepted.split(',').map(|text| Range::parse(text.trim())).collect();
    // Stable: of two that are liked alike the first one counts.
    ranges.sort_by_key(|range| std::cmp::Reverse(range.quality));
    let liked = ranges.iter().filter(|range| range.quality > 0).filter_map(Range::form);
    liked.into_iter().find(|form| offered.contains(form)).ok_or_else(|| {
        let forms: Vec<&str> = offered.iter().map(|form| form.asked_by()).collect();
        forms.join(", ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFERED: &[Form] = &[Form::Json, Form::Table];

    fn of(accept: &str) -> Result<Form, String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        negotiate(&headers, OFFERED)
    }

    #[test]
    fn what_kubectl_and_client_go_send_gets_a_table_or_json() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(of(kubectl), Ok(Form::Table));
        assert_eq!(
            of("application/vnd.kubernetes.protobuf,application/json"),
            Ok(Form::Json)
        );
        assert_eq!(of("application/json, */*"), Ok(Form::Json));
        assert_eq!(of("*/*"), Ok(Form::Json));
        assert_eq!(negotiate(&HeaderMap::new(), OFFERED), Ok(Form::Json));
    }

    #[test]
    fn the_best_liked_form_counts_and_zero_means_never() {
        assert_eq!(
            of("application/json;q=0.5,application/json;as=Table;g=meta.k8s.io;v=v1;q=0.9"),
            Ok(Form::Table)
        );
        assert_eq!(
            of("application/json;as=Table;g=meta.k8s.io;v=v1;q=0,application/json;q=0.001"),
            Ok(Form::Json)
        );
        assert!(of("application/json;q=0").is_err());
        assert!(of("application/json;q=much").is_err());
    }

    #[test]
    fn a_client_that_takes_nothing_that_there_is_hears_what_there_is() {
        for accept in [
            "text/html",
            "application/vnd.kubernetes.protobuf",
            "application/json;as=Table;g=meta.k8s.io;v=v1beta1",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        ] {
            let said = of(accept).unwrap_err();
            assert!(said.contains("as=Table;v=v1;g=meta.k8s.io"), "{accept}: {said}");
        }
    }

    #[test]
    fn aggregated_discovery_is_taken_before_the_plain_one() {
        let mut headers = HeaderMap::new();
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        assert_eq!(negotiate(&headers, &[Form::Discovery, Form::Json]), Ok(Form::Discovery));
        assert_eq!(negotiate(&headers, &[Form::Json]), Ok(Form::Json));
    }
}
