//! The ledger of opt-ins, kept in a ConfigMap of Sluice's own namespace: a key per namespace, the time in RFC 3339.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use sluice_engine::{Name, Time};
use sluice_index::Ledger;

/// Name of the ConfigMap.
pub(crate) const CONFIG_MAP: &str = "sluice-opted-in";
/// Key of the time at which Sluice first led in this cluster. No namespace can have this name.
const SINCE: &str = "_since";
/// Field manager of the ConfigMap.
const MANAGER: &str = "sluice-scheduler";

/// Reads the ledger. An entry that is no time is dropped: its namespace is then opted in anew, which adopts, never suspends.
pub(crate) async fn load(config_maps: &Api<ConfigMap>) -> Result<Ledger> {
    let stored = config_maps
        .get_opt(CONFIG_MAP)
        .await
        .context("failed to read the ledger of opted-in namespaces")?;
    Ok(parse(stored.and_then(|map| map.data).unwrap_or_default()))
}

/// Stores the ledger as it is now.
pub(crate) async fn store(config_maps: &Api<ConfigMap>, ledger: &Ledger) -> Result<()> {
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(CONFIG_MAP.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(render(ledger)),
        ..ConfigMap::default()
    };
    config_maps
        .patch(CONFIG_MAP, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&map))
        .await
        .context("failed to store the ledger of opted-in namespaces")?;
    Ok(())
}

fn parse(data: BTreeMap<String, String>) -> Ledger {
    let mut ledger = Ledger::default();
    for (key, value) in data {
        let Ok(time) = value.parse::<Timestamp>() else { continue };
        let time = Time(time.as_millisecond());
        if key == SINCE {
            ledger.since = Some(time);
        } else {
            ledger.opted_in.insert(Name::from(key), time);
        }
    }
    ledger
}

fn render(ledger: &Ledger) -> BTreeMap<String, String> {
    let text = |time: &Time| Timestamp::from_millisecond(time.0).unwrap_or_default().to_string();
    let mut data: BTreeMap<String, String> = ledger
        .opted_in
        .iter()
        .map(|(namespace, time)| (namespace.to_string(), text(time)))
        .collect();
    data.extend(ledger.since.as_ref().map(|since| (SINCE.to_owned(), text(since))));
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_ledger_is_read_back_to_the_millisecond() {
        let mut ledger = Ledger {
            since: Some(Time(1_700_000_000_123)),
            ..Ledger::default()
        };
        ledger.opted_in.insert("team-a".into(), Time(1_700_000_001_456));
        assert_eq!(parse(render(&ledger)), ledger);
    }

    #[test]
    fn an_entry_that_is_no_time_is_dropped() {
        let data = BTreeMap::from([("team-a".to_owned(), "yesterday".to_owned())]);
        assert_eq!(parse(data), Ledger::default());
    }
}
