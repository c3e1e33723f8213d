//! The port that the API server calls webhooks at, which not everybody may listen on.

use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};

/// Port of the webhook's Service.
const PORT: u16 = 443;
/// No plane has network 0: nobody is disturbed.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);

/// Makes sure that this process may listen on the webhook's port.
///
/// # Errors
/// When it may not: in one line, with the cure.
pub fn check_webhook_port() -> Result<()> {
    judge(TcpListener::bind((ADDRESS, PORT)).map(drop))
}

/// Linux asks for the permission first: whoever learns that an address is in use could have had it.
fn judge(bound: Result<(), Error>) -> Result<()> {
    match bound {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("port {PORT} needs root or `sysctl net.ipv4.ip_unprivileged_port_start={PORT}`")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_permission_is_told_with_its_cure_and_a_busy_port_is_none() {
        let denied = judge(Err(ErrorKind::PermissionDenied.into())).unwrap_err();
        assert_eq!(
            denied.to_string(),
            "port 443 needs root or `sysctl net.ipv4.ip_unprivileged_port_start=443`"
        );
        assert!(judge(Err(ErrorKind::AddrInUse.into())).is_ok());
        assert!(judge(Ok(())).is_ok());
    }
}
