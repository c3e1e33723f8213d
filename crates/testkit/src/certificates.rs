//! Certificates of a plane and of what stands before and behind it, from [`sluice_pki`]'s authority.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use sluice_pki::{Authority, Issued, Leaf, Usage};

/// Longer than any plane lives.
const LIFETIME: Duration = Duration::from_secs(30 * 86_400);
/// Certificates are valid a little before they were made.
const SKEW: Duration = Duration::from_secs(3_600);

fn validity() -> (SystemTime, SystemTime) {
    let now = SystemTime::now();
    (now - SKEW, now + LIFETIME)
}

/// A new authority that lives as long as the plane.
pub(crate) fn authority(common_name: &str) -> Result<Authority> {
    let (not_before, not_after) = validity();
    Ok(Authority::new(common_name, not_before, not_after)?)
}

/// A server certificate for `names`; an IP address in text form becomes an IP entry.
pub(crate) fn server(authority: &Authority, names: &[String]) -> Result<Issued> {
    let (mut ip_addresses, mut dns_names) = (Vec::new(), Vec::new());
    for name in names {
        match name.parse::<IpAddr>() {
            Ok(address) => ip_addresses.push(address),
            Err(_) => dns_names.push(name.clone()),
        }
    }
    let (not_before, not_after) = validity();
    Ok(authority.issue(&Leaf {
        common_name: names.first().context("a server certificate needs a name")?.clone(),
        organization: None,
        dns_names,
        ip_addresses,
        usage: Usage::Server,
        not_before,
        not_after,
    })?)
}

/// A client certificate: Kubernetes reads the user from the common name, the group from the organization.
pub(crate) fn client(authority: &Authority, user: &str, groups: &[&str]) -> Result<Issued> {
    let organization = match groups {
        [] => None,
        [group] => Some((*group).to_owned()),
        _ => bail!("a client certificate carries one group at most: {groups:?}"),
    };
    let (not_before, not_after) = validity();
    Ok(authority.issue(&Leaf {
        common_name: user.to_owned(),
        organization,
        dns_names: Vec::new(),
        ip_addresses: Vec::new(),
        usage: Usage::Client,
        not_before,
        not_after,
    })?)
}

/// Writes `NAME.crt` and `NAME.key` into `folder`.
pub(crate) fn write(pair: &Issued, folder: &Path, name: &str) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join(format!("{name}.crt")), &pair.certificate)?;
    std::fs::write(folder.join(format!("{name}.key")), &pair.key)?;
    Ok(())
}
