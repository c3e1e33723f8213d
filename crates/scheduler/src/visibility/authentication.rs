//! Who asks: the API server's front proxy says it in headers, and only it is believed.
//!
//! The rules are in the ConfigMap `kube-system/extension-apiserver-authentication`, which the API server writes: which
//! authority signs the front proxy's certificate, under which names, and which headers hold the user.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use axum::http::HeaderMap;
use rustls::pki_types::CertificateDer;
use sluice_pki::{AuthorityError, ClientAuthority, ClientError};

/// Everybody whom the API server knows is in this group.
const AUTHENTICATED: &str = "system:authenticated";
/// Everybody whom it does not know is in this group.
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// A user of the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

/// Why a request is not taken as anybody's.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// The rules are not known yet.
    #[error("this replica does not know yet whom the API server's front proxy is known by")]
    NoRules,
    /// Not the front proxy.
    #[error("only the API server's front proxy may ask here, by its client certificate: {0}")]
    Certificate(#[from] ClientError),
    /// A client of the same authority that is not the front proxy.
    #[error("only the API server's front proxy may ask here: the certificate of {0:?} is none of those that it uses")]
    NotAllowed(String),
    /// The front proxy names nobody.
    #[error("the API server's front proxy does not say who asks")]
    Nobody,
}

/// Why the rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RulesError {
    /// A key is missing: the API server was started without the flag of that name.
    #[error("it has no {0}: the API server needs the flag of that name for aggregated APIs")]
    Missing(&'static str),
    /// A key does not hold a list of names.
    #[error("its {key} is no list of names")]
    List {
        key: &'static str,
        source: serde_json::Error,
    },
    /// The authority cannot be used.
    #[error("its {AUTHORITY} cannot be used")]
    Authority(#[from] AuthorityError),
}

const AUTHORITY: &str = "requestheader-client-ca-file";
const ALLOWED_NAMES: &str = "requestheader-allowed-names";
const USER_HEADERS: &str = "requestheader-username-headers";
const UID_HEADERS: &str = "requestheader-uid-headers";
const GROUP_HEADERS: &str = "requestheader-group-headers";
const EXTRA_PREFIXES: &str = "requestheader-extra-headers-prefix";

/// How the front proxy is known, and where it says who asks.
#[derive(Debug)]
pub(super) struct Rules {
    authority: ClientAuthority,
    /// Empty: any name.
    allowed_names: BTreeSet<String>,
    user_headers: Vec<String>,
    uid_headers: Vec<String>,
    group_headers: Vec<String>,
    extra_prefixes: Vec<String>,
}

impl Rules {
    /// Reads them from the data of the ConfigMap.
    pub(super) fn read(data: &BTreeMap<String, String>) -> Result<Self, RulesError> {
        let authority = data.get(AUTHORITY).ok_or(RulesError::Missing(AUTHORITY))?;
        let user_headers = list(data, USER_HEADERS)?;
        if user_headers.is_empty() {
            return Err(RulesError::Missing(USER_HEADERS));
        }
        Ok(Self {
            authority: ClientAuthority::from_pem(authority.as_bytes())?,
            allowed_names: list(data, ALLOWED_NAMES)?.into_iter().collect(),
            user_headers,
            uid_headers: list(data, UID_HEADERS)?,
            group_headers: list(data, GROUP_HEADERS)?,
            extra_prefixes: list(data, EXTRA_PREFIXES)?,
        })
    }

    fn user(&self, headers: &HeaderMap) -> Option<User> {
        let first = |names: &[String]| {
            names
                .iter()
                .flat_map(|name| values(headers, name))
                .find(|text| !text.is_empty())
        };
        let mut groups: Vec<String> = self
            .group_headers
            .iter()
            .flat_map(|name| values(headers, name))
            .collect();
        // The API server passes groups on as its own authenticators found them, and that one adds last.
        if !groups
            .iter()
            .any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED)
        {
            groups.push(AUTHENTICATED.to_owned());
        }
        Some(User {
            name: first(&self.user_headers)?,
            uid: first(&self.uid_headers).unwrap_or_default(),
            groups,
            extra: self.extra(headers),
        })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in headers.keys() {
            let prefixes = self.extra_prefixes.iter();
            // Names of headers are in lower case here.
            let key = prefixes.filter_map(|prefix| name.as_str().strip_prefix(&prefix.to_ascii_lowercase()));
            if let Some(key) = key.into_iter().next() {
                extra
                    .entry(unescaped(key))
                    .or_default()
                    .extend(values(headers, name.as_str()));
            }
        }
        extra
    }
}

fn list(data: &BTreeMap<String, String>, key: &'static str) -> Result<Vec<String>, RulesError> {
    let Some(text) = data.get(key).filter(|text| !text.is_empty()) else {
        return Ok(Vec::new());
    };
    serde_json::from_str(text).map_err(|source| RulesError::List { key, source })
}

/// What is no text counts as absent: it could be taken for somebody else.
fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
    let texts = headers.get_all(name).iter();
    texts
        .filter_map(|value| std::str::from_utf8(value.as_bytes()).ok())
        .map(str::to_owned)
        .collect()
}

/// Keys of extra information are percent-encoded; what is not well encoded stays as it is.
fn unescaped(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let decoded = after
            .get(..2)
            .filter(|_| byte == b'%')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(decoded.unwrap_or(byte));
        rest = after;
        if decoded.is_some() {
            rest = after.get(2..).unwrap_or_default();
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

/// The rules of the moment.
#[derive(Clone, Debug, Default)]
pub(super) struct FrontProxy(Arc<ArcSwapOption<Rules>>);

impl FrontProxy {
    /// From now on these rules count; with none nobody is believed.
    pub(super) fn set(&self, rules: Option<Rules>) {
        self.0.store(rules.map(Arc::new));
    }

    /// Whether there are rules.
    pub(super) fn is_known(&self) -> bool {
        self.0.load().is_some()
    }

    /// Who asks, if the connection's client is the front proxy by the certificates that it showed, its own first.
    pub(super) fn user(&self, shown: &[Vec<u8>], headers: &HeaderMap, now: SystemTime) -> Result<User, Refusal> {
        let rules = self.0.load();
        let rules = rules.as_ref().ok_or(Refusal::NoRules)?;
        let chain: Vec<CertificateDer<'_>> = shown.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
        let name = rules.authority.verify(&chain, now)?;
        if !rules.allowed_names.is_empty() && !rules.allowed_names.contains(&name) {
            return Err(Refusal::NotAllowed(name));
        }
        rules.user(headers).ok_or(Refusal::Nobody)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use axum::http::HeaderName;
    use rustls::pki_types::pem::PemObject;
    use sluice_pki::{Authority, Issued, Leaf, Usage};

    use super::*;

    pub(crate) fn authority(name: &str) -> Authority {
        let now = SystemTime::now();
        Authority::new(name, now - Duration::from_secs(60), now + Duration::from_secs(3_600)).unwrap()
    }

    pub(crate) fn leaf(authority: &Authority, name: &str, usage: Usage) -> Issued {
        let now = SystemTime::now();
        authority
            .issue(&Leaf {
                common_name: name.to_owned(),
                organization: None,
                dns_names: vec!["localhost".to_owned()],
                ip_addresses: vec![],
                usage,
                not_before: now - Duration::from_secs(60),
                not_after: now + Duration::from_secs(600),
            })
            .unwrap()
    }

    /// The ConfigMap as kube-apiserver writes it.
    pub(crate) fn config_map(authority: &Authority) -> BTreeMap<String, String> {
        [
            (AUTHORITY, authority.certificate()),
            (ALLOWED_NAMES, r#"["front-proxy-client"]"#),
            (USER_HEADERS, r#"["X-Remote-User"]"#),
            (UID_HEADERS, r#"["X-Remote-Uid"]"#),
            (GROUP_HEADERS, r#"["X-Remote-Group"]"#),
            (EXTRA_PREFIXES, r#"["X-Remote-Extra-"]"#),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    fn chain(issued: &Issued) -> Vec<Vec<u8>> {
        CertificateDer::pem_slice_iter(issued.certificate.as_bytes())
            .map(|certificate| certificate.unwrap().to_vec())
            .collect()
    }

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    fn known(authority: &Authority) -> FrontProxy {
        let proxy = FrontProxy::default();
        proxy.set(Some(Rules::read(&config_map(authority)).unwrap()));
        proxy
    }

    #[test]
    fn the_front_proxy_says_who_asks() {
        let authority = authority("front-proxy-ca");
        let shown = chain(&leaf(&authority, "front-proxy-client", Usage::Client));
        let headers = headers(&[
            ("X-Remote-User", "ann"),
            ("X-Remote-Uid", "7"),
            ("X-Remote-Group", "team"),
            ("X-Remote-Group", "others"),
            ("X-Remote-Extra-Example.org%2Fscopes", "read"),
            ("X-Remote-Extra-example.org%2fscopes", "write"),
            ("Authorization", "Bearer abc"),
        ]);
        let user = known(&authority).user(&shown, &headers, SystemTime::now()).unwrap();
        assert_eq!((&*user.name, &*user.uid), ("ann", "7"));
        assert_eq!(user.groups, ["team", "others", "system:authenticated"]);
        assert_eq!(user.extra["example.org/scopes"], ["read", "write"]);
    }

    #[test]
    fn whoever_the_api_server_does_not_know_is_not_made_known_here() {
        let authority = authority("front-proxy-ca");
        let shown = chain(&leaf(&authority, "front-proxy-client", Usage::Client));
        let headers = headers(&[
            ("X-Remote-User", "system:anonymous"),
            ("X-Remote-Group", "system:unauthenticated"),
        ]);
        let user = known(&authority).user(&shown, &headers, SystemTime::now()).unwrap();
        assert_eq!(user.groups, ["system:unauthenticated"]);
    }

    #[test]
    fn headers_of_anybody_else_count_for_nothing() {
        let (authority, other) = (authority("front-proxy-ca"), authority("another"));
        let proxy = known(&authority);
        let admin = headers(&[("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")]);
        let refused = |shown: &[Vec<u8>]| proxy.user(shown, &admin, SystemTime::now()).unwrap_err();
        assert!(matches!(refused(&[]), Refusal::Certificate(ClientError::Missing)));
        let foreign = chain(&leaf(&other, "front-proxy-client", Usage::Client));
        assert!(matches!(
            refused(&foreign),
            Refusal::Certificate(ClientError::Refused(_))
        ));
        let server = chain(&leaf(&authority, "front-proxy-client", Usage::Server));
        assert!(matches!(
            refused(&server),
            Refusal::Certificate(ClientError::Refused(_))
        ));
        let named = chain(&leaf(&authority, "kubelet", Usage::Client));
        assert!(matches!(refused(&named), Refusal::NotAllowed(name) if name == "kubelet"));
        let expired = chain(&leaf(&authority, "front-proxy-client", Usage::Client));
        let later = SystemTime::now() + Duration::from_secs(601);
        assert!(matches!(
            proxy.user(&expired, &admin, later).unwrap_err(),
            Refusal::Certificate(ClientError::Refused(_))
        ));
    }

    #[test]
    fn without_rules_or_without_a_user_nobody_is_believed() {
        let authority = authority("front-proxy-ca");
        let shown = chain(&leaf(&authority, "front-proxy-client", Usage::Client));
        let proxy = known(&authority);
        for pairs in [
            &[][..],
            &[("X-Remote-User", "")],
            &[("X-Remote-Group", "system:masters")],
        ] {
            let refused = proxy.user(&shown, &headers(pairs), SystemTime::now()).unwrap_err();
            assert!(matches!(refused, Refusal::Nobody));
        }
        proxy.set(None);
        let refused = proxy.user(&shown, &headers(&[("X-Remote-User", "ann")]), SystemTime::now());
        assert!(matches!(refused.unwrap_err(), Refusal::NoRules));
    }

    #[test]
    fn a_config_map_that_says_too_little_is_refused_by_the_key() {
        let authority = authority("front-proxy-ca");
        let without = |key: &str| {
            let mut data = config_map(&authority);
            data.remove(key);
            Rules::read(&data).map(|_| ()).map_err(|error| error.to_string())
        };
        for key in [AUTHORITY, USER_HEADERS] {
            assert!(without(key).unwrap_err().contains(key));
        }
        for key in [ALLOWED_NAMES, UID_HEADERS, GROUP_HEADERS, EXTRA_PREFIXES] {
            assert_eq!(without(key), Ok(()));
        }
        let mut data = config_map(&authority);
        data.insert(ALLOWED_NAMES.to_owned(), "front-proxy-client".to_owned());
        assert!(Rules::read(&data).unwrap_err().to_string().contains(ALLOWED_NAMES));
    }
}
